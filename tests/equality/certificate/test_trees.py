"""Ensembles of trees in exact arithmetic: what decides differently is another function, what is not covered is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxtool.equality.certificate import operators
from onnxtool.equality.certificate.field import Field
from onnxtool.equality.certificate.interpreter import Interpreter
from onnxtool.equality.certificate.values import NotCoveredError, Value

operators.register()
FIELD = Field(7)
TREE: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
    "nodes_missing_value_tracks_true": [0, 0, 0],
}
SUMS = {"target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, -2.0]}
VOTES = {"class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [0, 1], "class_weights": [1.0, 2.0]}
TURNED = {"nodes_truenodeids": [2, 0, 0], "nodes_falsenodeids": [1, 0, 0]}
LESS, MORE = ({"nodes_modes": [f"BRANCH_{kind}", "LEAF", "LEAF"]} for kind in ("LT", "GTE"))


def evaluated(kind: str, attributes: dict[str, Any]) -> tuple[np.ndarray, ...]:
    outputs = ["y"] if kind == "Regressor" else ["label", "scores"]
    node = helper.make_node(f"TreeEnsemble{kind}", ["x"], outputs, domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph([node], "g", [], [helper.make_empty_tensor_value_info(o) for o in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 3)])
    assert isinstance(model, onnx.ModelProto)
    x = Value(FIELD.draw("x", (4, 2)), np.dtype(np.float32), False)
    return tuple(value.data for value in Interpreter(model, FIELD).run({"x": x}).values())


def regressor(**changed: Any) -> np.ndarray:
    return evaluated("Regressor", {**TREE, **SUMS, "n_targets": 1, **changed})[0]


def classifier(labels: int = 3, **changed: Any) -> tuple[np.ndarray, ...]:
    return evaluated("Classifier", {**TREE, **VOTES, "classlabels_int64s": [*range(labels)], **changed})


@pytest.mark.parametrize(
    "changed",
    [
        {"nodes_values": [float(np.nextafter(np.float32(0.5), np.float32(1))), 0.0, 0.0]},
        LESS,
        {"nodes_featureids": [0, 0, 0]},
        {"nodes_missing_value_tracks_true": [1, 0, 0]},
        TURNED,
        {"target_weights": [1.0, -2.5]},
        {"base_values": [0.25]},
        {**MORE, **TURNED},  # not (x >= v) is x < v
        {"nodes_modes": ["BRANCH_GT", "LEAF", "LEAF"], **TURNED},  # a missing value goes the other way
    ],
)
def test_another_decision_or_leaf_is_another_function(changed: dict[str, Any]) -> None:
    assert (regressor() != regressor(**changed)).all()


def test_one_decision_in_other_words() -> None:
    """Turned round, and by the largest number below; a missing value goes the same way."""
    for missing in (0, 1):
        same, other = ({"nodes_missing_value_tracks_true": [m, 0, 0]} for m in (missing, 1 - missing))
        turned = regressor(nodes_modes=["BRANCH_GT", "LEAF", "LEAF"], **TURNED, **other)
        assert (regressor(**same) == turned).all()
        assert (regressor(**LESS, **same) == regressor(**MORE, **TURNED, **other)).all()
    below = float(np.nextafter(np.float32(0.5), np.float32(0)))
    assert (regressor(**LESS) == regressor(nodes_values=[below, 0.0, 0.0])).all()


@pytest.mark.parametrize(
    "changed",
    [
        {"nodes_featureids": [9, 0, 0]},  # a column that is not there
        {"nodes_falsenodeids": [1, 0, 0]},  # two ways to one node
        {"target_nodeids": [0, 2]},  # a weight that is no leaf's
        {"aggregate_function": "AVERAGE"},
        {"post_transform": "SOFTMAX"},
        {"base_values": [1.0, 2.0]},
        {"nodes_modes": ["BRANCH_EQ", "LEAF", "LEAF"]},
    ],
)
def test_what_is_not_covered_is_said(changed: dict[str, Any]) -> None:
    with pytest.raises(NotCoveredError):
        regressor(**changed)


def test_a_class_without_leaves_is_left_out_only_where_it_cannot_win() -> None:
    assert (classifier()[0] == classifier(2)[0]).all()
    assert (classifier(base_values=[0.0, 0.0, 5.0])[0] != classifier()[0]).all()  # it begins with more
    below = [-1.0, -2.0]
    assert (classifier(class_weights=below)[0] != classifier(2, class_weights=below)[0]).all()


def test_one_sum_for_two_classes_decides_by_its_sign() -> None:
    one = {"class_ids": [0, 0]}
    labels, scores = classifier(2, **one, class_weights=[1.0, -2.0])
    assert scores.shape == (4, 2) and (FIELD.add(scores[:, 0], scores[:, 1]) == 0).all()
    assert (labels != classifier(2, **one, class_weights=[1.0, -2.5])[0]).all()
    with pytest.raises(NotCoveredError):  # the runtime then asks for more than a half
        classifier(2, **one, class_weights=[1.0, 2.0])
    with pytest.raises(NotCoveredError):
        classifier(2, **one, class_weights=[1.0, -2.0], post_transform="PROBIT")


def encoded(kind: str, **attributes: Any) -> np.ndarray:
    """A tree on what an encoder makes of two columns of texts, at the threshold given as `limit`."""
    limit, missing = attributes.pop("limit", 0.5), attributes.pop("missing", 0)
    tree = {**TREE, **SUMS, "nodes_values": [limit, 0.0, 0.0], "nodes_missing_value_tracks_true": [missing, 0, 0]}
    nodes = [
        helper.make_node(kind, ["x"], ["codes"], domain="ai.onnx.ml", **attributes),
        helper.make_node("Cast", ["codes"], ["wide"], to=onnx.TensorProto.DOUBLE),
        helper.make_node("Reshape", ["wide", "shape"], ["matrix"]),
        helper.make_node("TreeEnsembleRegressor", ["matrix"], ["y"], domain="ai.onnx.ml", n_targets=1, **tree),
    ]
    shape = onnx.numpy_helper.from_array(np.array([3, -1]), "shape")
    graph = helper.make_graph(nodes, "g", [], [helper.make_empty_tensor_value_info("y")], [shape])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    x = Value(FIELD.draw("texts", (3, 2)), np.dtype(object), False)
    return np.asarray(Interpreter(helper.make_model(graph, opset_imports=opsets), FIELD).run({"x": x})["y"].data)


CODES: dict[str, Any] = {"keys_strings": ["a", "b", "c"], "values_int64s": [0, 1, 2], "default_int64": -1}
CATEGORIES: dict[str, Any] = {"cats_strings": ["a", "b"]}


@pytest.mark.parametrize(("kind", "given"), [("LabelEncoder", CODES), ("OneHotEncoder", CATEGORIES)])
def test_thresholds_between_the_same_two_codes_are_one_decision(kind: str, given: dict[str, Any]) -> None:
    usual = encoded(kind, **given)
    np.testing.assert_array_equal(encoded(kind, **given, limit=0.9, missing=1), usual)
    assert (encoded(kind, **given, limit=1.0) != usual).any()
    assert (encoded(kind, **given, limit=-0.1) != usual).any()


def test_a_code_above_all_thresholds_or_below_decides_nothing() -> None:
    np.testing.assert_array_equal(encoded("LabelEncoder", **CODES, limit=2.0), np.full((3, 1), 1))
    low = FIELD.from_float(np.float64(-2.0))
    np.testing.assert_array_equal(encoded("LabelEncoder", **CODES, limit=-1.5), np.full((3, 1), low))


@pytest.mark.parametrize(
    ("kind", "given", "changed"),
    [
        ("LabelEncoder", CODES, {"values_int64s": [0, 2, 1]}),
        ("LabelEncoder", CODES, {"keys_strings": ["b", "a", "c"]}),
        ("LabelEncoder", CODES, {"default_int64": 1}),
        ("OneHotEncoder", CATEGORIES, {"cats_strings": ["b", "a"]}),
        ("OneHotEncoder", CATEGORIES, {"zeros": 0}),
    ],
)
def test_other_categories_are_another_function(kind: str, given: dict[str, Any], changed: dict[str, Any]) -> None:
    assert (encoded(kind, **given) != encoded(kind, **{**given, **changed})).any()


def test_the_order_of_the_keys_of_a_table_does_not_count() -> None:
    turned = {"keys_strings": ["c", "a", "b"], "values_int64s": [2, 0, 1], "default_int64": -1}
    np.testing.assert_array_equal(encoded("LabelEncoder", **turned), encoded("LabelEncoder", **CODES))


def test_codes_are_the_same_before_and_behind_a_concat() -> None:
    """Numbers of 32 bits are what they are in doubles, whichever way they are put together."""
    encoders = [
        helper.make_node("LabelEncoder", ["x"], [name], domain="ai.onnx.ml", **{**CODES, "default_int64": default})
        for name, default in (("a", -1), ("b", 7))
    ]
    casts = [helper.make_node("Cast", [n], [f"wide_{n}"], to=onnx.TensorProto.DOUBLE) for n in ("a", "b")]
    found = []
    for rest in (
        [*casts, helper.make_node("Concat", ["wide_a", "wide_b"], ["y"], axis=1)],
        [
            helper.make_node("Concat", ["a", "b"], ["both"], axis=1),
            helper.make_node("Cast", ["both"], ["y"], to=onnx.TensorProto.DOUBLE),
        ],
    ):
        graph = helper.make_graph([*encoders, *rest], "g", [], [helper.make_empty_tensor_value_info("y")])
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
        )
        x = Value(FIELD.draw("texts", (3, 2)), np.dtype(object), False)
        found.append(np.asarray(Interpreter(model, FIELD).run({"x": x})["y"].data))
    np.testing.assert_array_equal(*found)


def test_a_key_that_is_there_twice_is_not_looked_up() -> None:
    twice, once = (encoded("LabelEncoder", **{**CODES, "keys_strings": ["a", b, "c"]}) for b in "ab")
    assert (twice != once).all()
