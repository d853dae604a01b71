"""XGBoost's linear booster (gblinear) -> ONNX; onnxmltools writes trees only.

Source: XGBoost, src/gbm/gblinear.cc (missing values add nothing to the sum) and the objectives' PredTransform.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.conversion.frameworks import Booster, Estimator
from onnxtool.errors import UnsupportedError

if TYPE_CHECKING:
    import onnx

# What predictions are made of sums by.
_LINKS = {
    "reg:squarederror": None, "reg:squaredlogerror": None, "reg:pseudohubererror": None, "reg:absoluteerror": None,
    "reg:logistic": "Sigmoid", "binary:logistic": "Sigmoid", "binary:logitraw": None, "count:poisson": "Exp",
    "reg:gamma": "Exp", "reg:tweedie": "Exp", "multi:softprob": "Softmax", "multi:softmax": "Softmax",
}  # fmt: skip


_VERSIONS = {"Where": 9}  # of operators that are older than the others


def is_linear(estimator: Estimator) -> bool:
    """Whether a model of XGBoost is a linear one."""
    if type(estimator).__module__.partition(".")[0] != "xgboost":
        return False
    return bool(learner_of(booster_of(estimator))["gradient_booster"]["name"] == "gblinear")


def export_linear(estimator: Estimator, opset: int) -> onnx.ModelProto:
    """Write the sum of weighted features, and what the objective makes of it.

    Args:
        estimator: a Booster, a regressor or a classifier.
        opset: of the standard operators.

    Raises:
        UnsupportedError: an objective with another form.
    """
    from onnx import TensorProto, checker, helper, numpy_helper

    booster = booster_of(estimator)
    objective = learner_of(booster)["objective"]["name"]
    if objective not in _LINKS:
        raise UnsupportedError(f"XGBoost (booster=gblinear, objective={objective}): has no ONNX form here.")
    weights, bias = _sums(booster)
    constants = {"weights": weights, "bias": bias, "nought": np.zeros((), np.float32)}
    nodes = [
        helper.make_node("IsNaN", ["X"], ["missing"]),
        helper.make_node("Where", ["missing", "nought", "X"], ["filled"]),
        helper.make_node("Gemm", ["filled", "weights", "bias"], ["sums"]),
    ]
    nodes.append(helper.make_node(_LINKS[objective] or "Identity", ["sums"], ["linked"]))
    classes = len(getattr(estimator, "classes_", ()))
    if classes:
        outputs = _as_classes(nodes, constants, classes, binary=weights.shape[1] == 1)
    else:
        outputs = [helper.make_tensor_value_info("variable", TensorProto.FLOAT, [None, weights.shape[1]])]
        nodes[-1].output[0] = "variable"
        if objective == "multi:softmax":
            nodes[-1].output[0] = "linked"
            nodes += [
                helper.make_node("ArgMax", ["linked"], ["place"], axis=1),
                helper.make_node("Cast", ["place"], ["variable"], to=TensorProto.FLOAT),
            ]
            outputs = [helper.make_tensor_value_info("variable", TensorProto.FLOAT, [None, 1])]
    given = helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, weights.shape[0]])
    initializers = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "gblinear", [given], outputs, initializers)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", max(opset, 13))], ir_version=8)
    checker.check_model(proto)
    return proto


def add_as_step(scope: Any, operator: Any, container: Any, proto: onnx.ModelProto) -> None:
    """Copy a whole graph with one input of floats or doubles into a pipeline's graph, as one of its steps."""
    from onnx import helper, numpy_helper

    floats = scope.get_unique_variable_name("floats")
    outputs = [o.full_name for o in operator.outputs]
    names = {
        proto.graph.input[0].name: floats,
        **{o.name: full for o, full in zip(proto.graph.output, outputs, strict=True)},
    }

    def named(name: str) -> str:
        return str(names.setdefault(name, scope.get_unique_variable_name(name)))

    own, kind = scope.get_unique_operator_name("Cast"), proto.graph.input[0].type.tensor_type.elem_type
    container.add_node("Cast", [operator.inputs[0].full_name], [floats], op_version=13, name=own, to=kind)
    for tensor in proto.graph.initializer:
        values = numpy_helper.to_array(tensor).reshape(-1).tolist()
        values = [v.encode() if isinstance(v, str) else v for v in values]
        container.add_initializer(named(tensor.name), tensor.data_type, list(tensor.dims), values)
    for node in proto.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        container.add_node(
            node.op_type,
            [named(n) for n in node.input],
            [named(n) for n in node.output],
            op_domain=node.domain,
            op_version=3 if node.domain else _VERSIONS.get(node.op_type, 13),
            name=scope.get_unique_operator_name(node.op_type),
            **attributes,
        )


def _as_classes(nodes: list[Any], constants: dict[str, np.ndarray], classes: int, *, binary: bool) -> list[Any]:
    """Labels, and probabilities of all classes."""
    from onnx import TensorProto, helper

    chances = "linked"
    if binary:
        constants["whole"] = np.ones((), np.float32)
        nodes.append(helper.make_node("Sub", ["whole", "linked"], ["other"]))
        nodes.append(helper.make_node("Concat", ["other", "linked"], ["both"], axis=1))
        chances = "both"
    nodes.append(helper.make_node("ArgMax", [chances], ["label"], axis=1, keepdims=0))
    nodes.append(helper.make_node("Identity", [chances], ["probabilities"]))
    return [
        helper.make_tensor_value_info("label", TensorProto.INT64, [None]),
        helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, classes]),
    ]


def _sums(booster: Booster) -> tuple[np.ndarray, np.ndarray]:
    """[features, outputs] weights and [outputs] what is added: its own bias and that of the whole model."""
    import xgboost

    features = booster.num_features()
    model = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]
    table = np.array(model["weights"], np.float64).reshape(features + 1, -1)
    none = xgboost.DMatrix(np.zeros((1, features), np.float32), feature_names=booster.feature_names)
    at_zero = booster.predict(none, output_margin=True, validate_features=False)
    return table[:-1].astype(np.float32), np.asarray(at_zero, np.float32).reshape(-1)


def booster_of(estimator: Estimator) -> Any:
    """The Booster of an estimator of XGBoost, or the Booster that it is."""
    return estimator.get_booster() if hasattr(estimator, "get_booster") else estimator


def learner_of(booster: Booster) -> dict[str, Any]:
    """How XGBoost made a Booster, without its trees."""
    learner: dict[str, Any] = json.loads(booster.save_config())["learner"]
    return learner
