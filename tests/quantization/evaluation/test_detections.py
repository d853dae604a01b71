"""Rows behind a NonMaxSuppression: matched by overlap, whatever their order and number."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxtool.model import io
from onnxtool.model.spec import TensorSpec
from onnxtool.quantization.evaluation.criterion import Criterion
from onnxtool.quantization.evaluation.detections import Detections
from onnxtool.quantization.evaluation.fidelity import FidelityEvaluator, outputs_fit
from onnxtool.runtime.data.open_data import open_data

Outputs = dict[str, np.ndarray]


def graph_of(names: tuple[str, ...], suppressed: bool = True) -> onnx.ModelProto:
    """A model whose outputs are behind a NonMaxSuppression, or are not."""
    node, info = helper.make_node, helper.make_tensor_value_info
    nodes = [node("NonMaxSuppression", ["boxes_in", "scores_in"], ["chosen"])] if suppressed else []
    source = "chosen" if suppressed else "boxes_in"
    nodes += [node("Cast", [source], [name], to=1) for name in names]
    inputs = [info("boxes_in", 1, [1, "n", 4]), info("scores_in", 1, [1, "c", "n"])]
    outputs = [info(name, 1, None) for name in names]
    return helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )


def found(count: int, seed: int = 0) -> np.ndarray:
    """[count, 4]: corners of boxes of 40 to 60 pixels that lie apart."""
    random = np.random.default_rng(seed)
    low = np.stack([np.arange(count) * 100.0, random.uniform(0, 500, count)], 1)
    return np.concatenate([low, low + random.uniform(40, 60, (count, 2))], 1).astype(np.float32)


def rows(count: int, seed: int = 0) -> Outputs:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 5, count).astype(np.int64)
    return {"boxes": found(count, seed), "scores": random.random(count).astype(np.float32), "labels": labels}


def opened(samples: list[Outputs]) -> Detections:
    known = Detections.of(io.from_proto(graph_of(tuple(samples[0]))).graph, samples)
    assert known is not None
    return known


def taken(sample: Outputs, order: list[int]) -> Outputs:
    return {name: a[order] for name, a in sample.items()}


def test_rows_are_matched_whatever_their_order() -> None:
    samples = [rows(4, 1), rows(0), rows(6, 2)]
    known = opened(samples)
    assert known.names == ("boxes", "scores", "labels") and known.form == "corners"
    matched = known.match(samples[0], taken(samples[0], [2, 0, 3, 1]))
    assert (matched.true, matched.found) == (4, 4)
    for name, (right, wrong) in matched.rows.items():
        assert (right.ravel() == samples[0][name].ravel()).all() and (right == wrong).all()
    nothing = known.match(samples[1], samples[0])
    assert (nothing.true, nothing.found, len(nothing.rows["boxes"][0])) == (0, 4, 0)
    assert len(known.match(samples[0], samples[1]).rows["boxes"][0]) == 0


def test_boxes_at_whole_numbers_may_move_a_little() -> None:
    for offset in (0, 1):
        lead = np.zeros((6, offset))
        table = np.concatenate([lead, np.round(found(6)), np.arange(6)[:, None] % 2], 1)
        known = Detections.of(io.from_proto(graph_of(("y",))).graph, [{"y": table.astype(np.float32)}])
        assert known is not None and known.offset == offset
        moved = table.copy()
        moved[:, offset : offset + 4] += 1
        assert len(known.match({"y": table}, {"y": moved}).rows["y"][0]) == 6


def test_another_class_or_place_is_not_the_same() -> None:
    sample = rows(5)
    known = opened([sample, rows(7, 3)])
    other = {name: a.copy() for name, a in sample.items()}
    other["labels"][1] += 1
    other["boxes"][2] += 15
    other["scores"][:] += 0.01
    assert len(known.match(sample, other).rows["boxes"][0]) == 3
    twice = taken(sample, [0, 0, 1])
    assert len(known.match(taken(sample, [0, 1]), twice).rows["boxes"][0]) == 2
    assert len(known.match(twice, taken(sample, [0, 1])).rows["boxes"][0]) == 2, "each is found once"


def test_the_sample_may_be_a_column_or_an_axis_and_rows_of_zeros_fill_up() -> None:
    random = np.random.default_rng(4)
    one = np.concatenate([np.zeros((6, 1)), found(6), random.integers(0, 3, (6, 1)), random.random((6, 1))], 1)
    known = Detections.of(io.from_proto(graph_of(("out",))).graph, [{"out": one.astype(np.float32)}])
    assert known is not None and known.offset == 1 and known.whole.tolist() == [True, True, *[False] * 4, True, False]
    moved = one.copy()
    moved[1, 4] = moved[1, 2] + 10  # its lower edge
    again = known.match({"out": one}, {"out": moved[::-1]})
    assert len(again.rows["out"][0]) == 5 and (again.rows["out"][0] == again.rows["out"][1]).all()
    padded = np.concatenate([one, np.zeros((3, 7))])
    assert known.match({"out": padded}, {"out": one}).true == 6
    filled = np.zeros((2, 8, 4), np.float32)
    filled[0, :5], filled[1, :3] = found(5), found(5)[:3]
    table = {"boxes": filled, "count": np.array([5, 3])}
    axis = Detections.of(io.from_proto(graph_of(("boxes", "count"))).graph, [table])
    assert axis is not None and axis.names == ("boxes",), "how many there are is no row"
    swapped = {"boxes": filled[::-1, ::-1].copy(), "count": table["count"]}
    matched = axis.match(table, swapped)
    assert (matched.true, matched.found, len(matched.rows["boxes"][0])) == (8, 8, 6), "three of the five, and the three"
    turned = {"boxes": filled[:, ::-1].copy(), "count": table["count"]}
    assert len(axis.match(table, turned).rows["boxes"][0]) == 8


def test_what_is_not_behind_a_suppression_or_no_box_is_left_alone() -> None:
    sample = rows(6)
    assert Detections.of(io.from_proto(graph_of(tuple(sample), suppressed=False)).graph, [sample]) is None
    graph = io.from_proto(graph_of(("y",))).graph
    assert Detections.of(graph, [{"y": np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)}]) is None
    assert Detections.of(graph, [{"y": np.zeros((0, 4), np.float32)}]) is None
    assert Detections.of(graph, [{"y": found(6)[:, :3]}]) is None
    assert (
        Detections.of(graph, [{"y": found(6).astype(np.int64)}]) is None
        and Detections.of(graph, [{"y": found(1)[0]}]) is None
    )


class Replaying:
    def __init__(self, samples: list[Outputs]) -> None:
        self.inputs = (TensorSpec("x", np.dtype("float32"), ("n", 2)),)
        self.outputs = tuple(TensorSpec(name, a.dtype, None) for name, a in samples[0].items())
        self.samples = iter(samples)

    def run(self, feeds: Mapping[str, np.ndarray]) -> Outputs:
        return next(self.samples)


@pytest.mark.parametrize(("lost", "kept"), [(1, True), (8, False)])
def test_a_detector_is_kept_that_finds_nearly_the_same(lost: int, kept: bool) -> None:
    samples = [rows(6, seed) for seed in range(24)]
    wrong = [taken(s, list(range(5 if i < lost else 6))[::-1]) for i, s in enumerate(samples)]
    data = open_data({"x": np.zeros((24, 2), np.float32)}, Replaying(samples).inputs)
    model = io.from_proto(graph_of(tuple(samples[0])))
    judge = FidelityEvaluator(model, Replaying(samples), data, batch=1)
    fidelity = judge.judge(Replaying(wrong))
    assert fidelity.detection_f1 == pytest.approx(2 * (144 - lost) / (288 - lost)) and fidelity.detections == 144
    assert set(fidelity.kinds.values()) == {"detections"} and fidelity.column_db is None
    assert Criterion().judge(fidelity).kept is kept
    assert judge.detections is not None
    assert outputs_fit(samples[0], wrong[0]) and not outputs_fit(samples[0], wrong[0], judge.detections.names)
    assert outputs_fit(samples[0], {**wrong[0], "boxes": wrong[0]["boxes"][:, :3]}, judge.detections.names)
