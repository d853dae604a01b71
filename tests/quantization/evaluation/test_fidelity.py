"""Fidelity views and the budget, on numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxtool.errors import InputError
from onnxtool.model import io
from onnxtool.model.spec import TensorSpec
from onnxtool.quantization.evaluation.class_agreement import ClassAgreement
from onnxtool.quantization.evaluation.column_noise import ColumnNoise, SampleOrder, are_alike, column_axis
from onnxtool.quantization.evaluation.criterion import Criterion
from onnxtool.quantization.evaluation.fidelity import FidelityEvaluator, Judgement
from onnxtool.quantization.evaluation.metrics import METRICS, accuracy
from onnxtool.quantization.evaluation.neighbours import VectorAgreement
from onnxtool.quantization.evaluation.output_kind import kind_of, may_be_scores
from onnxtool.quantization.evaluation.task_metric import LabelledTask
from onnxtool.report.quantize import Fidelity
from onnxtool.runtime.data.open_data import open_data
from onnxtool.runtime.data.source import DataSource
from tests.quantization.quant_models import build, weights


class Fixed:
    """A Runner that gives a fixed array."""

    def __init__(self, value: np.ndarray) -> None:
        self.inputs = (TensorSpec("x", np.dtype("float32"), ("n", 2)),)
        self.outputs = (TensorSpec("y", np.dtype("float32"), None),)
        self.value = value

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"y": self.value}


def judged(expected: np.ndarray, actual: np.ndarray, op: str = "Gemm") -> Fidelity:
    rank = expected.ndim
    reads = ["x", "w"] if op in ("Gemm", "LayerNormalization") else ["x"]
    proto = build(
        [helper.make_node("MatMul" if op == "Gemm" else op, reads, ["y"])],
        {"w": weights(2, 2)} if len(reads) > 1 else {},
        {"x": [None] * rank},
        {"y": [None] * rank},
    )
    data = open_data({"x": np.zeros((len(expected), 2), np.float32)}, Fixed(expected).inputs)
    judge = FidelityEvaluator(io.from_proto(proto), Fixed(expected), data, batch=1000)
    return judge.judge(Fixed(actual))


def test_agreement_and_expected_drop_of_probabilities() -> None:
    expected = np.array([[0.9, 0.1], [0.6, 0.4], [0.5, 0.5], [0.2, 0.8]], np.float32)
    actual = np.array([[0.8, 0.2], [0.4, 0.6], [0.4, 0.6], [0.1, 0.9]], np.float32)
    found = judged(expected, actual)
    assert found.agreement == pytest.approx(0.5)
    assert found.expected_drop == pytest.approx((0.6 - 0.4) / 4), "a flip between equals costs nothing"


def test_logits_are_judged_by_their_softmax() -> None:
    expected = np.log(np.array([[0.7, 0.3], [0.3, 0.7]], np.float32)) + 5
    actual = expected[:, ::-1] * np.array([[1], [-1]])
    assert judged(expected, actual).expected_drop == pytest.approx(0.4 / 2, abs=1e-6)


def test_channel_noise_does_not_let_large_channels_hide_small_ones() -> None:
    random = np.random.default_rng(0)
    expected = random.standard_normal((4, 2, 500)) * np.array([100.0, 0.1])[:, None]
    actual = expected.copy()
    actual[:, 1] += random.standard_normal((4, 500)) * 0.1  # the small channel drowns in noise
    found = judged(expected, actual, "Relu")
    assert found.sqnr_db > 50
    assert found.channel_db == pytest.approx(0.0, abs=0.5) and found.weakest == "y[1]"
    assert found.agreement is None


def test_detections_are_counted() -> None:
    scores = np.linspace(0, 1, 1000).reshape(1, 1, 1000)
    moved = np.clip(scores + np.where(scores > 0.65, -0.6, 0.0), 0, 1)
    found = judged(scores, moved, "Sigmoid")
    true, kept = (scores > 0.7).sum(), ((scores > 0.7) & (moved > 0.7)).sum()
    assert found.detection_f1 == pytest.approx(2 * kept / (true + (moved > 0.7).sum())), "at the worst threshold"
    low = np.where((scores > 0.3) & (scores < 0.4), scores - 0.2, scores)
    assert judged(scores, low, "Sigmoid").detection_f1 == pytest.approx(2 * 600 / (700 + 600), abs=0.005)
    few = np.where(scores > 0.65, scores, scores * 0.2)[:, :, :715]
    assert judged(few, few * 0.9, "Sigmoid").detection_f1 == 1, "of scores over 0.7 there are too few to tell"


def test_a_target_of_its_own_unit_that_became_noise_is_the_weakest() -> None:
    """Four regression targets, the last one's unit a thousandth of the first one's."""
    random = np.random.default_rng(1)
    units = np.array([1000.0, 1.0, 1.0, 1.0])
    expected = random.standard_normal((2000, 4)) * units
    actual = expected + random.standard_normal((2000, 4)) * np.array([1.0, 0.0, 0.0, 1.3])
    found = judged(expected, actual)
    assert found.channel_db > 50
    assert found.weakest == "y[3]"
    assert found.column_db == pytest.approx(-2.3, abs=0.7)
    assert not Criterion(0.5).judge(found).kept
    assert Criterion(0.5).judge(judged(expected, expected + random.standard_normal((2000, 4)) * 0.01)).kept


def test_two_of_five_channels_lost_is_not_kept() -> None:
    random = np.random.default_rng(2)
    expected = random.standard_normal((4, 5, 10, 10))
    noise = np.array([0.01, 0.01, 0.01, 1.1, 1.1]).reshape(1, 5, 1, 1)
    found = judged(expected, expected + random.standard_normal(expected.shape) * noise, "Relu")
    assert found.channel_db == pytest.approx(-0.8, abs=0.5) and found.weakest in ("y[3]", "y[4]")
    assert not Criterion().judge(found).kept


def test_constant_columns_are_no_signal() -> None:
    random = np.random.default_rng(3)
    expected = np.concatenate([random.standard_normal((60, 2)), np.full((60, 1), 7.0)], axis=1)
    actual = expected + np.array([0.0, 0.0, 1e-3])
    assert judged(expected, actual, "Relu").channel_db == np.inf


@pytest.mark.parametrize("op", ["Gemm", "Relu", "Sigmoid", "Softmax", "LayerNormalization"])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_lost(op: str, odd: float) -> None:
    right = np.random.default_rng(3).dirichlet(np.ones(6), 200)
    wrong = right.copy()
    wrong[::20, 1] = odd
    assert not Criterion().judge(judged(right, wrong, op)).kept
    if np.isnan(odd):
        assert Criterion().judge(judged(wrong, wrong, op)).kept, "as float has it"


@pytest.mark.parametrize("value", [0.0, 2.0])
def test_an_output_that_is_always_the_same_has_to_stay_it(value: float) -> None:
    right = np.full((200, 4), value)
    assert Criterion().judge(judged(right, right, "Relu")).kept
    assert not Criterion().judge(judged(right, right + 0.5, "Relu")).kept
    few = np.where(np.random.default_rng(3).random((200, 4)) < 0.01, 5.0, value)
    assert not Criterion().judge(judged(few, right, "Relu")).kept, "one value in a hundred is another one"


def test_vectors_are_judged_by_their_neighbours() -> None:
    random = np.random.default_rng(4)
    expected = random.standard_normal((100, 64))
    near = expected + random.standard_normal((100, 64)) * 0.05
    far = expected + random.standard_normal((100, 64)) * 0.5
    found = judged(expected, near, "LayerNormalization")
    assert found.neighbours is not None and found.neighbours > 0.9
    assert found.vector_cosine is not None and found.vector_cosine > 0.99
    assert found.column_db is not None and found.agreement is None
    assert Criterion().judge(found).kept, "at 26 dB a column may be below the limit of values"
    assert not Criterion().judge(judged(expected, far, "LayerNormalization")).kept


def test_few_vectors_are_judged_by_cosine_alone() -> None:
    expected = np.random.default_rng(5).standard_normal((6, 64))
    found = judged(expected, expected * 0.9, "LayerNormalization")
    assert found.neighbours is None and found.vector_cosine == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("op", "rank", "name", "expected"),
    [
        ("Softmax", 3, "y", "classes"),
        ("Softmax", 2, "y", "classes"),
        ("MatMul", 3, "y", "linear"),
        ("MatMul", 2, "y", "linear"),
        ("MatMul", 2, "logits", "linear"),
        ("MatMul", 2, "embeddings", "linear"),
        ("Relu", 3, "y", "values"),
        ("Sigmoid", 3, "y", "scores"),
        ("Sigmoid", 1, "y", "values"),
        ("Relu", 2, "y", "values"),
        ("Relu", 2, "class_scores", "values"),
        ("ReduceMean", 2, "y", "vectors"),
        ("LayerNormalization", 3, "last_hidden_state", "vectors"),
        ("ArgMax", 2, "y", "classes"),
    ],
)
def test_knows_what_an_output_is_for(op: str, rank: int, name: str, expected: str) -> None:
    inputs = ["x", "w"] if op in ("MatMul", "LayerNormalization") else ["x"]
    arrays = {"w": weights(32, 32) if op == "MatMul" else np.ones(32, np.float32)} if len(inputs) > 1 else {}
    nodes = [helper.make_node("Relu" if op == "ArgMax" else op, inputs, [name])]
    outputs = {name: [32] * rank}
    if op == "ArgMax":
        nodes.append(helper.make_node(op, [name], ["label"]))
    proto: onnx.ModelProto = build(nodes, arrays, {"x": [32] * rank}, outputs)
    assert kind_of(io.from_proto(proto).graph.outputs[0]).value == expected


def units(count: int, decades: float) -> np.ndarray:
    """[256, count]: targets whose units spread over so many decades."""
    return np.random.default_rng(3).normal(2, 1, (256, count)) * np.logspace(0, decades, count)


@pytest.mark.parametrize("count", [16, 64, 65, 128, 300])
@pytest.mark.parametrize("op", ["Gemm", "Relu"])
def test_targets_of_different_units_are_judged_each_however_many_there_are(count: int, op: str) -> None:
    right = np.abs(units(count, 2.0))
    wrong = right + np.random.default_rng(4).normal(size=right.shape) * right.std() * 0.01
    found = judged(right, wrong, op)
    assert found.sqnr_db > 35 and found.margin_db < 0 and found.column_db is not None and found.column_db < 10
    assert not Criterion().judge(found).kept
    assert Criterion().judge(judged(right, right + 0.003 * right.std(0) * np.sign(wrong - right), op)).kept


@pytest.mark.parametrize(("decades", "alike"), [(0.9, True), (1.2, False)])
@pytest.mark.parametrize("name", ["logits", "embedding", "last_hidden_state", "features"])
def test_a_name_never_counts(decades: float, alike: bool, name: str) -> None:
    assert are_alike([units(96, decades)]) is alike
    proto = build(
        [helper.make_node("MatMul", ["x", "w"], [name])], {"w": weights(2, 96)}, {"x": [None] * 2}, {name: [None, 96]}
    )
    assert kind_of(io.from_proto(proto).graph.outputs[0], (256, 96), alike=alike).value == "linear"


@pytest.mark.parametrize(("noise", "allowed"), [(0.03, True), (1.0, False)])
def test_one_quiet_column_of_pooled_vectors_does_not_outweigh_their_neighbours(noise: float, allowed: bool) -> None:
    """Who compares vectors adds up their columns: a quiet one is judged beside the others, on their scale."""
    random = np.random.default_rng(6)
    right = random.normal(size=(64, 48))
    right[:, 5] *= 0.04
    wrong = right + noise * random.normal(size=right.shape)
    assert 10 * np.log10(right[:, 5].var() / noise**2) < 5
    assert Criterion().judge(judged(right, wrong, "ReduceMean")).kept is allowed


@pytest.mark.parametrize(
    ("columns", "decades", "db", "kept"),
    [(1, 0, 22, False), (1, 0, 24, True), (12, 0, 22, False), (12, 0, 24, True), (12, 3, 22, False)],
)
def test_each_result_of_a_linear_layer_needs_23_db(columns: int, decades: float, db: float, kept: bool) -> None:
    right = units(columns, decades)
    signs = np.random.default_rng(4).choice([-1.0, 1.0], size=right.shape)
    found = judged(right, right + 10 ** (-db / 20) * right.std(0) * signs * (np.arange(columns) == 0))
    assert (found.margin_db >= 0) is kept


@pytest.mark.parametrize(("rows", "alike"), [(31, True), (32, False)])
def test_few_rows_tell_less_of_how_columns_vary(rows: int, alike: bool) -> None:
    right = np.tile([-1.0, 1.0], 16)[:rows, None] * np.logspace(0, 1.2, 20)
    assert are_alike([right]) is alike and not are_alike([right**3])


def test_a_few_small_targets_among_many_that_vary_alike_are_not_lost() -> None:
    right = np.random.default_rng(5).normal(size=(256, 96))
    right[:, 7] *= 1e-3
    assert are_alike([right]), "one in a hundred is no unlike spread"
    found = judged(right, right + 0.02 * np.random.default_rng(6).normal(size=right.shape), "Relu")
    assert found.weakest == "y[7]" and not Criterion().judge(found).kept


@pytest.mark.parametrize("op", ["Relu", "Gemm"])
def test_of_targets_that_vary_alike_one_in_twenty_may_have_a_little_more_noise(op: str) -> None:
    random = np.random.default_rng(7)
    right, noise = random.normal(size=(400, 40)), random.normal(size=(400, 40))
    for columns, loud, db, kept in (
        (40, 2, 21.5, True), (40, 3, 21.5, False), (40, 1, 19, False), (20, 1, 21.5, True), (19, 1, 21.5, False)
    ):  # fmt: skip
        size = np.where(np.arange(columns) < loud, 10 ** (-db / 20), 10**-1.4)  # 28 dB
        a = right[:, :columns]
        assert Criterion().judge(judged(a, a + size * noise[:, :columns], op)).kept is kept, (columns, loud, db)
    several = right[:, :20] * np.logspace(0, 2, 20)
    off = np.where(np.arange(20) < 1, 10**-1.15, 10**-1.4) * several.std(0) * noise[:, :20]
    assert not Criterion().judge(judged(several, several + off, op)).kept, "of different units"


def test_logits_that_exclude_one_another_may_have_more_noise_than_targets() -> None:
    """Or that name a row of the table which the inputs are looked up in."""
    random = np.random.default_rng(9)
    right, noise = 8 * random.normal(size=(400, 12)), random.normal(size=(400, 12))
    logits = right - right.mean(1, keepdims=True)
    tables = {"w": weights(2, 12), "table": weights(12, 4)}
    head = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    lookup = [helper.make_node("Gather", ["table", "ids"], ["rows"])]
    for values, db, nodes, kept in (
        (logits, 22, head, True), (logits, 18, head, False), (right, 22, head, False),
        (right, 22, lookup + head, True), (right, 18, lookup + head, False), (right[:, :11], 22, lookup + head, False),
    ):  # fmt: skip
        wrong = values + 10 ** (-db / 20) * values.std() * noise[:, : values.shape[1]]
        inputs = {"x": [None, 2], **({"ids": [None]} if len(nodes) > 1 else {})}
        proto = build(nodes, tables if len(nodes) > 1 else {"w": tables["w"]}, inputs, {"y": [None, values.shape[1]]})
        data = open_data({"x": np.zeros((400, 2), np.float32)}, Fixed(values).inputs)
        judge = FidelityEvaluator(io.from_proto(proto), Fixed(values), data, batch=400)
        assert (judge.judge(Fixed(wrong)).bounds["margin_db"] >= 0) is kept, (db, len(nodes))


def test_pooled_vectors_may_have_a_few_noisier_columns_and_no_more() -> None:
    """They may be targets all the same; what is divided by its length is not."""
    random = np.random.default_rng(14)
    pairs = np.repeat(random.normal(size=(64, 64)), 2, 0)
    right = pairs + 0.3 * random.normal(size=pairs.shape)
    noise = random.normal(size=right.shape) * right.std(0)
    for loud, kept in ((2, True), (8, False)):  # of 64
        wrong = right + np.where(np.arange(64) < loud, 10**-0.6, 10**-1.5) * noise  # 12 dB, and 30
        found = judged(right, wrong, "ReduceMean")
        assert found.kinds == {"y": "vectors"} and Criterion().judge(found).kept is kept
        assert kept or "weaker columns" in found.weakest
    unit = right / np.linalg.norm(right, axis=1, keepdims=True)
    off = np.where(np.arange(64) < 8, 10**-0.6, 10**-1.5) * noise * unit.std() / right.std()
    assert judged(unit, unit + off, "ReduceMean").weakest == ""


def test_few_samples_leave_more_noise_open() -> None:
    """24 dB: enough as measured, but not what 24 samples show."""
    random = np.random.default_rng(11)
    right, noise = random.normal(size=(400, 1)), random.normal(size=(400, 1))
    many, few = (
        judged(right[:n], right[:n] + 10**-1.2 * noise[:n] / noise[:n].std() * right[:n].std(), "Relu")
        for n in (400, 24)
    )
    assert Criterion().judge(many).kept and not Criterion().judge(few).kept
    assert few.margin_db > 0 > few.bounds["margin_db"] and "24 samples show" in Criterion().judge(few).worst.text


def test_noise_in_few_of_the_samples_or_places_of_a_map_is_seen() -> None:
    random = np.random.default_rng(12)
    right, noise = random.normal(size=(64, 2, 16, 16)), random.normal(size=(64, 2, 16, 16))
    assert Criterion().judge(judged(right, right + 10**-1.35 * noise, "Relu")).kept, "27 dB everywhere"
    border = np.where(np.arange(16) < 2, 10**-0.95, 0.0)  # 19 dB in an eighth: 28 dB
    for at in (border, border[:, None], np.where(np.arange(64) < 8, 10**-0.95, 0.0)[:, None, None, None]):
        found = judged(right, right + at * noise, "Relu")
        assert found.channel_db > 27 and "noisiest eighth" in found.weakest and not Criterion().judge(found).kept


@pytest.mark.parametrize("columns", [1, 3])
def test_amounts_over_a_decade_are_judged_in_proportion(columns: int) -> None:
    """Most values are small, a few are large, and by these the noise looks like little."""
    random = np.random.default_rng(13)
    right = np.exp(random.normal(size=(400, columns)))
    noise = random.normal(size=right.shape)
    found = judged(right, right + 10**-1.3 * right.std() * noise, "Relu")
    assert found.channel_db > 23 and "(in proportion)" in found.weakest and not Criterion().judge(found).kept
    assert Criterion().judge(judged(right, right * (1 + 0.02 * noise), "Relu")).kept
    # What merely comes near to zero is no amount in proportion.
    even = random.uniform(0.001, 1, (400, columns))
    assert Criterion().judge(judged(even, even + 0.05 * even.std() * noise, "Relu")).kept


def test_noise_that_hides_the_order_of_most_samples_is_seen() -> None:
    """A few far values make the noise of all others look like little."""
    random = np.random.default_rng(13)
    right = random.normal(size=(400, 1))
    right[::20] *= 25
    off = 10**-1.35 * right.std() * random.normal(size=right.shape)
    found = judged(right, right + off, "Relu")
    assert found.channel_db > 26 and found.weakest == "y (order of samples)" and not Criterion().judge(found).kept
    assert Criterion().judge(judged(right, right + off / 4, "Relu")).kept


def test_small_values_of_a_column_that_is_mostly_zero_may_change_places() -> None:
    random, order = np.random.default_rng(14), SampleOrder()
    right = np.maximum(random.normal(size=(400, 50)) - 1, 0)
    order.add(right, right + 0.1 * right.std(axis=0) * random.normal(size=right.shape))
    assert 0.005 < order.swapped().mean() < 0.009, "of pairs a tenth of the spread apart; 0.020 of all that differ"


def test_rows_of_one_length_are_vectors_whatever_the_graph_says() -> None:
    right = np.random.default_rng(8).normal(size=(64, 32)) * np.logspace(0, 1.5, 32)
    assert judged(right, right, "Relu").kinds == {"y": "values"}
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    found = judged(right, right, "Relu")
    assert found.kinds == {"y": "vectors"} and found.neighbours == 1
    assert judged(right[:7], right[:7], "Relu").kinds == {"y": "values"}, "of a few rows it may be chance"


def test_rows_that_point_the_same_way_are_no_vectors() -> None:
    """Positions within a hundredth of a degree: of one length, and off by half of what tells them apart."""
    random = np.random.default_rng(11)
    right = np.array([50, 8]) + random.normal(0, 0.01, (256, 2))
    found = judged(right, right + random.normal(0, 0.005, right.shape), "Relu")
    assert found.kinds == {"y": "values"} and not Criterion().judge(found).kept


def test_scores_are_no_amounts() -> None:
    """Chances near 0 and near 1, off by a hundredth; the same a hundred times smaller are amounts."""
    right = np.random.default_rng(12).beta(0.3, 0.9, (256, 3)).clip(1e-4)
    wrong = right + 0.001 * np.random.default_rng(13).normal(size=right.shape)
    assert "proportion" not in judged(right, wrong, "Sigmoid").weakest
    assert "proportion" not in judged(right, wrong, "HardSwish").weakest, "what the graph says nothing of may be scores"
    assert "proportion" in judged(right, wrong, "Relu").weakest, "nothing holds it below one"
    assert "proportion" in judged(right / 100, wrong / 100, "HardSwish").weakest


@pytest.mark.parametrize(
    ("operators", "may_be"),
    [
        (("MatMul", "Sigmoid", "Relu"), True),
        (("Sigmoid", "MatMul", "Relu"), False),
        (("MatMul", "Softmax", "Concat", "Transpose"), True),
        (("Sigmoid", "MatMul", "Concat"), False),
        (("MatMul", "Clip"), True),
        (("Relu", *["Concat"] * 60), False),
    ],
)
def test_scores_are_held_within_bounds_by_the_graph(operators: tuple[str, ...], may_be: bool) -> None:
    names = ["x", *(f"v{i}" for i in range(1, len(operators))), "y"]
    nodes = [
        helper.make_node(op, [name, *{"MatMul": ["w"], "Concat": [name]}.get(op, [])], [result])
        for op, name, result in zip(operators, names[:-1], names[1:], strict=True)
    ]
    for node in nodes:
        node.attribute.extend([helper.make_attribute("axis", 0)] if node.op_type == "Concat" else [])
    model = io.from_proto(build(nodes, {"w": weights(2, 2)}, {"x": [None, 2]}, {"y": [None, 2]}))
    assert may_be_scores(model.graph.outputs[0]) is may_be


@pytest.mark.parametrize(("made", "kept"), [("Sigmoid", False), ("Relu", True)])
def test_rare_scores_that_are_missed_count_where_a_sigmoid_makes_them(made: str, kept: bool) -> None:
    right = np.full((64, 20), 0.05)
    right[:, 1] = np.linspace(0.02, 0.09, 64)
    right[:12, 3] = 0.8
    wrong = right.copy()
    wrong[:12, 3] = 0.78
    found = judged(right, wrong, made)
    assert (found.rare_f1 == pytest.approx(2 * 0.6 / 1.6)) is not kept and Criterion().judge(found).kept is kept
    wrong[:12, 3] = 0.8
    right[0, 3], wrong[0, 3] = 0.701, 0.699
    assert Criterion().judge(judged(right, wrong, made)).kept, "on either side of one threshold, and as high"


@pytest.mark.parametrize("form", ["corners", "middle"])
def test_boxes_that_a_linear_layer_makes_are_held_by_their_own_sizes(form: str) -> None:
    """Noise of 28 dB in each column, which is a tenth of a small box."""
    random = np.random.default_rng(10)
    middle, size = random.uniform(100, 540, (512, 2)), random.uniform(40, 80, (512, 2))
    right = np.concatenate([middle - size / 2, middle + size / 2] if form == "corners" else [middle, size], 1)
    noise = random.normal(size=right.shape) * right.std(0)
    found = judged(right, right + 0.04 * noise)
    assert found.kinds == {"y": "linear"} and found.weakest == "y (overlap of boxes)"
    assert -14 < found.margin_db < -10 and found.channel_db > 25
    assert not Criterion().judge(found).kept
    assert Criterion().judge(judged(right, right + 0.005 * noise)).kept
    of_other_units = right * [1, 300, 1, 300 if form == "corners" else 1]
    assert Criterion().judge(judged(of_other_units, of_other_units * (1 + 0.01 * noise / right))).kept


def test_a_few_high_scores_that_sink_are_seen() -> None:
    right = np.random.default_rng(9).uniform(0, 0.6, (64, 20))
    right[:10, 3] = 0.95
    sunk = np.where(right > 0.9, 0.75, right)
    found = judged(right, sunk, "Sigmoid")
    assert found.detection_f1 == 1 and found.rare_shift == pytest.approx(0.2)
    assert not Criterion().judge(found).kept and Criterion().judge(judged(right, right * 0.999, "Sigmoid")).kept


def test_boxes_beside_scores_are_found_where_they_were() -> None:
    """One box in five is looked at; one of these moves by half of its size, and all others anywhere."""
    random = np.random.default_rng(5)
    low = random.uniform(0, 500, (10, 40, 2))
    boxes = np.concatenate([low, low + 40], -1)
    scores = np.where(np.arange(40) % 5 == 0, 0.9, 0.1) * np.ones((10, 40))
    moved = np.where(scores[..., None] > 0.5, boxes, boxes + random.uniform(50, 90, (10, 40, 1)))
    moved[0, 0] += 20
    proto = build(
        [helper.make_node("Identity", ["x"], ["boxes"]), helper.make_node("Identity", ["x"], ["scores"])],
        {}, {"x": [None, None]}, {"boxes": [None, 40, 4], "scores": [None, 40]},
    )  # fmt: skip

    class Pair(Fixed):
        def __init__(self, value: np.ndarray) -> None:
            super().__init__(value)
            self.outputs = tuple(TensorSpec(name, np.dtype("float32"), None) for name in ("boxes", "scores"))

        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {"boxes": self.value.astype(np.float32), "scores": scores.astype(np.float32)}

    data = open_data({"x": np.zeros((10, 2), np.float32)}, Pair(boxes).inputs)
    judge = FidelityEvaluator(io.from_proto(proto), Pair(boxes), data, batch=10)
    assert judge.judge(Pair(moved)).detection_f1 == pytest.approx(79 / 80)
    assert judge.judge(Pair(boxes)).detection_f1 == 1


@pytest.mark.parametrize(("off", "kind"), [(0.0, "classes"), (0.0009, "classes"), (0.002, "values"), (-1.0, "values")])
def test_rows_that_sum_to_one_are_classes_whatever_the_graph_says(off: float, kind: str) -> None:
    """A Softmax in parts, or the mean of several."""
    rows = np.random.default_rng(9).dirichlet(np.ones(5), 30).astype(np.float32)
    rows[:, 0] += off
    if off < 0:
        rows[:, 1] -= off
    assert judged(rows, rows, "Relu").kinds == {"y": kind}
    alone = judged(np.ones((30, 1), np.float32), np.ones((30, 1), np.float32), "Relu")
    assert alone.kinds == {"y": "values"}, "one column is no choice"


def test_a_band_of_quantiles_is_the_weakest_column() -> None:
    random = np.random.default_rng(6)
    right = random.normal(1000, 300, (200, 1)) + np.array([-10.0, 0, 10])
    found = judged(right, right + 2 * random.normal(size=right.shape), "Relu")
    assert found.weakest == "y (from column to column)" and found.channel_db > 40
    assert not Criterion().judge(found).kept


def test_a_map_of_amounts_that_is_more_everywhere_is_not_kept() -> None:
    random = np.random.default_rng(7)
    right = np.where(random.random((8, 1, 16, 16)) < 0.1, 1.0, 0.0)
    found = judged(right, right + 0.0025, "Relu")
    assert found.total_shift == pytest.approx(0.0025 * right.size / right.sum(), rel=1e-3)
    assert found.channel_db > 40 and not Criterion().judge(found).kept


def test_a_mask_of_a_small_object_counts_as_much_as_that_of_a_large_one() -> None:
    right = np.full((8, 1, 16, 16), 0.01)
    right[:, :, :15] = 0.99
    right[0, :, 1:] = 0.01  # one row
    gone = right.copy()
    gone[0, :, 0, :4] = 0.2
    found = judged(right, gone, "Sigmoid")
    assert found.sample_f1 == pytest.approx(1 - (1 - 24 / 28) / 8)
    assert (found.detection_f1 or 0) > 0.99 and not Criterion().judge(found).kept


@pytest.mark.parametrize(("axes", "kind"), [([1], "vectors"), ([0, 1], "vectors"), ([2], "values"), ([1, 2], "values")])
def test_a_mean_over_the_last_axis_is_no_vector(axes: list[int], kind: str) -> None:
    nodes = [helper.make_node("ReduceSum", ["x", "a"], ["s"], keepdims=1), helper.make_node("Div", ["s", "c"], ["y"])]
    arrays = {"a": np.array(axes), "c": np.ones(1, np.float32)}
    made = [1 if i in axes else 32 for i in range(3)]
    output = io.from_proto(build(nodes, arrays, {"x": [32] * 3}, {"y": made})).graph.outputs[0]
    assert kind_of(output, (8, 32, 32)).value == kind


def test_what_a_softmax_makes_is_classes_behind_what_hands_it_on() -> None:
    nodes = [
        helper.make_node("Softmax", ["x"], ["p"]),
        helper.make_node("Mul", ["c", "p"], ["q"]),
        helper.make_node("Reshape", ["q", "s"], ["y"]),
    ]
    arrays = {"c": np.ones(1, np.float32), "s": np.array([-1, 5])}
    output = io.from_proto(build(nodes, arrays, {"x": [None, 5]}, {"y": [None, 5]})).graph.outputs[0]
    assert kind_of(output).value == "classes"


def test_columns_on_one_scale_are_judged_on_it() -> None:
    """A note that hardly ever sounds, among others that do."""
    random = np.random.default_rng(0)
    right = random.random((400, 16))
    right[:, 3] *= 0.01
    right[:, 4] = 0.5 + 0.01 * (right[:, 4] - 0.5)  # neither off nor on: it says something
    noise = np.full((400, 16), 0.003)
    found = ColumnNoise()
    found.add(right, noise, 1)
    apart, together = found.decibels(), found.decibels(scores=True)
    assert {one.column for one in apart[:2]} == {3, 4} and apart[1].db < 5
    assert together[0].column == 4 and together[0].db < 5
    usual = 10 * np.log10(right.var(axis=0).mean() / 0.003**2)
    assert next(one for one in together if one.column == 3).db == pytest.approx(usual, abs=0.1)


def test_an_output_that_is_one_number_is_judged() -> None:
    proto = build([helper.make_node("Sigmoid", ["x"], ["y"])], {}, {"x": [None]}, {"y": []})
    right = Fixed(np.array(0.7, np.float32))
    data = open_data({"x": np.zeros((1, 2), np.float32)}, right.inputs)
    judge = FidelityEvaluator(io.from_proto(proto), right, data)
    assert judge.judge(right).sqnr_db == np.inf
    assert judge.judge(Fixed(np.array(0.35, np.float32))).sqnr_db == pytest.approx(20 * np.log10(2), abs=0.01)


def test_a_dead_column_among_many_is_no_signal() -> None:
    right = np.random.default_rng(0).standard_normal((50, 40))
    right[:, 7] *= 1e-8
    noise = np.full((50, 40), 1e-4)
    found = ColumnNoise()
    found.add(right, noise, 1)
    assert 7 not in [one.column for one in found.decibels()]
    few = ColumnNoise()
    few.add(right[:, 4:10], noise[:, 4:10], 1)
    assert few.decibels()[0].column == 3, "of a few targets, each may have a unit of its own"


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((5,), None), ((8, 4), 1), ((1, 84, 8400), 1), ((1, 8400, 84), 2), ((1, 64, 8, 8), 1), ((1, 32, 32, 3), 3)],
)
def test_columns_are_in_the_axis_of_different_things(shape: tuple[int, ...], axis: int | None) -> None:
    assert column_axis(shape) == axis


GOOD = Fidelity(30, 0.999, 1.0, 64, channel_db=30, expected_drop=0.0, margin_db=10.0)


@pytest.mark.parametrize(
    ("fidelity", "allowed"),
    [
        (GOOD, True),
        (replace(GOOD, agreement=0.97, expected_drop=0.0006), True),
        (replace(GOOD, agreement=0.97, expected_drop=0.011), False),
        (replace(GOOD, agreement=0.93, expected_drop=0.0, channel_db=28.0), False),
        (replace(GOOD, channel_db=19.9, margin_db=-0.1), False),
        (replace(GOOD, agreement=None, expected_drop=None, margin_db=-0.1), False),
        (replace(GOOD, agreement=None, expected_drop=None, margin_db=0.0), True),
        (replace(GOOD, agreement=None, expected_drop=None, detection_f1=0.97), False),
        (replace(GOOD, vector_cosine=0.97), False),
        (replace(GOOD, vector_cosine=0.99, neighbours=0.98), False),
        (
            replace(GOOD, agreement=None, expected_drop=None, channel_db=12.0, vector_cosine=0.99, neighbours=0.995),
            True,
        ),
    ],
)
def test_the_budget_without_labels(fidelity: Fidelity, allowed: bool) -> None:
    assert Criterion(0.01).judge(fidelity).kept is allowed


def test_a_model_that_declares_any_batch_and_takes_one_is_judged_sample_by_sample() -> None:
    class OnlyOne:
        inputs = (TensorSpec("x", np.dtype("float32"), (None, 2)),)
        outputs = (TensorSpec("y", np.dtype("float32"), (None, 2)),)

        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            if len(feeds["x"]) > 1:
                raise InputError("cannot be reshaped to {1,2}")
            return {"y": feeds["x"]}

    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    model = io.from_proto(build(nodes, {}, {"x": ["n", 2]}, {"y": ["n", 2]}))
    data = open_data({"x": np.arange(12, dtype=np.float32).reshape(6, 2)}, OnlyOne.inputs)
    judge = FidelityEvaluator(model, OnlyOne(), data)
    assert judge.samples == 6
    assert judge.judge(OnlyOne()).sqnr_db == float("inf")
    task = LabelledTask(data, np.ones(6, np.int64), accuracy, "accuracy")
    assert task.score(OnlyOne()) == 1.0


def test_constant_outputs_are_judged_without_a_warning() -> None:
    noise = ColumnNoise()
    noise.add(np.zeros((4, 3)), np.zeros((4, 3)), 1)
    noise.add(np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([[0.0, 0.0], [0.1, 0.0]]), 1)
    assert [one.column for one in noise.decibels()] == [0]


@pytest.mark.parametrize("by_columns", [False, True])
def test_detections_count_as_kept_by_score_and_overlap(by_columns: bool) -> None:
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 500, (8, 20, 2))
    score = np.full((8, 20, 1), 0.9)
    score[:, ::2] = 0.1
    right = np.concatenate([low, low + rng.uniform(40, 100, low.shape), score], -1).astype(np.float32)
    wrong = right.copy()
    wrong[:, 1, 0] += 60  # one of ten sure boxes of each picture
    if by_columns:
        right, wrong = right.swapaxes(1, 2), wrong.swapaxes(1, 2)
    found = judged(right, wrong, "Relu")
    assert found.detection_f1 == pytest.approx(0.9)
    assert not Criterion().judge(found).kept
    assert judged(right, right, "Relu").detection_f1 == 1


@pytest.mark.parametrize(("op", "boxes"), [("Sigmoid", False), ("Relu", True)])
def test_what_a_sigmoid_makes_of_every_frame_is_no_boxes(op: str, boxes: bool) -> None:
    random = np.random.default_rng(5)
    frames = random.uniform(0, 1, (8, 6, 40))
    frames[:, 2:4] = frames[:, :2] * 0.99 + 0.01  # the first four frames look like the corners of narrow boxes
    found = judged(frames, frames + random.standard_normal(frames.shape) * 0.003, op).detection_f1
    assert found is not None and (found < 0.5) == boxes and (found > 0.98) != boxes


class Replaying:
    """Gives some rows of an array, one after the other."""

    def __init__(self, rows: np.ndarray) -> None:
        self.inputs = (TensorSpec("x", np.dtype("float32"), ("n", 2)),)
        self.outputs = (TensorSpec("y", np.dtype("float32"), None),)
        self.rows, self.given = rows, 0

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        count = len(feeds["x"])
        self.given += count
        return {"y": self.rows[self.given - count : self.given]}


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_texts_are_read_off_with_the_blank_of_all_samples_however_many_run_at_once(batch: int) -> None:
    # The third is hardly blank, and the last class stands in it more often than the first, which is the blank.
    steps = np.array([[0, 0, 0, 1, 0, 2], [0, 0, 3, 0, 0, 0], [1, 4, 2, 4, 4, 3], [0, 0, 0, 0, 2, 0]])
    changed = steps.copy()
    changed[2, 0] = 2
    proto = build([helper.make_node("Softmax", ["x"], ["y"])], {}, {"x": [None] * 3}, {"y": [None] * 3})
    right, wrong = (np.eye(5, dtype=np.float32)[s] for s in (steps, changed))
    data = open_data({"x": np.zeros((4, 2), np.float32)}, Fixed(right).inputs)
    judge = FidelityEvaluator(io.from_proto(proto), Replaying(right), data, batch=batch)
    found = judge.judge(Replaying(wrong))
    assert found.sequences and found.agreement == pytest.approx(1 - 1 / 9)


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_texts_whose_steps_come_first_are_those_of_each_sample(batch: int) -> None:
    """[steps, samples, classes], as torch's CTC losses want it."""
    random = np.random.default_rng(3)
    steps = np.where(random.random((4, 30)) < 0.6, 0, random.integers(1, 5, (4, 30)))
    changed = steps.copy()
    changed[1, :2], changed[1, 2:4] = [0, 1], [0, 0]  # a text of its own, by one step
    proto = build([helper.make_node("Softmax", ["x"], ["y"])], {}, {"x": [None] * 3}, {"y": [None] * 3})

    class StepsFirst(Replaying):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {"y": super().run(feeds)["y"].swapaxes(0, 1)}

    sharp = np.eye(5, dtype=np.float32) * 0.9 + 0.02
    data = open_data({"x": np.zeros((4, 2), np.float32)}, Fixed(sharp[steps]).inputs)
    found = {}
    for kind in (Replaying, StepsFirst):
        judge = FidelityEvaluator(io.from_proto(proto), kind(sharp[steps]), data, batch=batch)
        found[kind] = judge.judge(kind(sharp[changed]))
        assert found[kind].samples == 4
    assert found[StepsFirst].sequences and (found[StepsFirst].agreement or 1) < 1
    assert found[StepsFirst].agreement == found[Replaying].agreement
    assert found[StepsFirst].expected_drop == pytest.approx(found[Replaying].expected_drop)


def read_off(right: list[list[float]], wrong: list[list[float]]) -> ClassAgreement:
    """The best of three classes at each step, the first of which is the blank."""
    found = ClassAgreement()
    found.add(*(np.array([[[1 - a, a, 0] for a in row] for row in rows], np.float32) for rows in (right, wrong)))
    return found


def test_characters_cost_what_the_float_model_gives_them_more() -> None:
    steps = [[0.1, 0.9, 0.1, 0.1, 0.1, 0.9, 0.1, 0.1, 0.1, 0.52]]
    unsure = [[*steps[0][:-1], 0.49]]
    found = read_off(steps, unsure)
    assert found.is_ctc and found.agreement == pytest.approx(2 / 3)
    assert found.expected_drop == pytest.approx(0.04 / 3, abs=1e-6)
    sure = [[0.1, *steps[0][2:3], *steps[0][2:]]]
    assert read_off(steps, sure).expected_drop == pytest.approx(0.8 / 3, abs=1e-6)
    moved = [[0.9, 0.1, *steps[0][2:]]]
    assert read_off(steps, moved).agreement == 1 and read_off(steps, moved).expected_drop == 0, "the text is the same"
    longer = [
        [0.1, 0.9, 0.9, 0.9, 0.9, 0.9, 0.1, 0.1, 0.1, 0.52]
    ]  # one character for two: three sure steps are one edit
    assert read_off(steps, longer).expected_drop == pytest.approx(1 / 3)


@pytest.mark.parametrize(("blanks", "texts"), [(3, False), (4, True)])
def test_a_class_that_more_than_three_in_ten_steps_say_is_a_blank(blanks: int, texts: bool) -> None:
    steps = np.array([[1] * (10 - blanks) + [0] * blanks])
    found = ClassAgreement()
    found.add(np.eye(5, dtype=np.float32)[steps], np.eye(5, dtype=np.float32)[steps])
    assert found.is_ctc is texts and found.agreement == 1 and found.expected_drop == 0


def test_nothing_read_off_loses_nothing() -> None:
    silence = np.eye(3, dtype=np.float32)[np.zeros((2, 6), int)]
    found = ClassAgreement()
    found.add(silence, silence)
    assert found.is_ctc and found.agreement == 1 and found.expected_drop == 0


@pytest.mark.parametrize("blank", [0, 2])
def test_the_blank_may_turn_out_to_be_another_class(blank: int) -> None:
    """At first the other end's class is the most frequent, over all samples this one is."""
    some, others = np.array([[2, 2, 1, 0, 2]]), np.array([[0, 1, 0, 0, 0]])
    gone = np.zeros((1, 5), int)
    if blank:
        some, others, gone = 2 - some, 2 - others, 2 - gone
    found = ClassAgreement()
    found.add(np.eye(3, dtype=np.float32)[some], np.eye(3, dtype=np.float32)[some])
    assert found.is_ctc and found.agreement == 1
    found.add(np.eye(3, dtype=np.float32)[others], np.eye(3, dtype=np.float32)[gone])
    assert found.agreement == pytest.approx(1 - 1 / 4), (
        "three characters of the first, and one of the second, which goes"
    )


def test_labelled_texts_whose_steps_come_first() -> None:
    steps = np.array([[0, 1, 0, 2, 0], [0, 0, 3, 0, 0], [0, 2, 0, 2, 0]])
    rows = np.eye(5, dtype=np.float32)[steps]

    class StepsFirst(Replaying):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {"y": super().run(feeds)["y"].swapaxes(0, 1)}

    data = open_data({"x": np.zeros((3, 2), np.float32)}, StepsFirst(rows).inputs)
    labels = np.array([[1, 2], [3, -1], [2, 2]])
    assert LabelledTask(data, labels, METRICS["cer"], "cer").score(StepsFirst(rows)) == 1
    alone = LabelledTask(data, labels, METRICS["cer"], "cer")
    assert all(a.shape == (5, 1, 5) for a in alone._gathered(StepsFirst(rows), 1)["y"])
    assert alone._axes == {"y": 1}


def test_rows_as_long_as_their_sequence_are_compared_with_those_of_the_same_length() -> None:
    random = np.random.default_rng(8)
    found = VectorAgreement()
    for width in (24, 35, 24):
        rows = random.normal(size=(width, width))
        found.add(rows, rows + 0.05 * random.normal(size=rows.shape), 1)
    assert found.cosine() == pytest.approx(0.9988, abs=2e-4) and found.cosine(0.95) < found.cosine()
    assert 0.5 < (found.recall() or 0) < 1
    few = VectorAgreement()
    few.add(np.eye(20), np.eye(20), 1)
    assert few.recall() is None
    few.add(np.eye(21), np.eye(21)[::-1].copy(), 1)
    assert few.recall() is not None, "20 of the one width tell nothing, 21 of another do"


def test_what_is_near_counts_less_by_rank() -> None:
    """Pairs of rows, all others equally far: who looks for the nearest finds it, and the other nine mean little."""
    random = np.random.default_rng(9)
    rows = np.repeat(random.normal(size=(128, 384)), 2, axis=0) + 0.4 * random.normal(size=(256, 384))
    noisy, swapped = VectorAgreement(), VectorAgreement()
    noisy.add(rows, rows + 0.18 * random.normal(size=rows.shape), 256)
    assert (noisy.recall(0.95) or 0) > 0.99
    first = np.arange(256) // 2 % 12 == 0  # of one pair in twelve the two are apart: nothing else is as near
    swapped.add(rows, np.where((first & (np.arange(256) % 2 == 0))[:, None], -rows, rows), 256)
    assert (swapped.recall() or 1) < 0.9


def test_neighbours_that_are_as_near_may_change_places() -> None:
    """Pairs of rows far from all others, which are equally far: which of these are nearest means nothing."""
    random = np.random.default_rng(9)
    rows = np.repeat(random.normal(size=(100, 256)), 2, axis=0) + 0.1 * random.normal(size=(200, 256))
    noisy = rows + 0.1 * random.normal(size=rows.shape)
    apart = np.where((np.arange(200) % 2 == 0)[:, None], rows, random.normal(size=rows.shape))
    near, far = VectorAgreement(), VectorAgreement()
    near.add(rows, noisy, 200)
    far.add(rows, apart, 200)
    assert (near.recall(0.95) or 0) > 0.99 > 0.7 > (far.recall() or 1)


@pytest.mark.parametrize(("length", "samples"), [(63, 16), (64, 8)])
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_a_first_look_takes_sixteen_samples_or_eight_of_many_tokens(length: int, samples: int, batch: int) -> None:
    tokens = np.random.default_rng(0).random((40, length, 5)).astype(np.float32)
    proto = build([helper.make_node("Softmax", ["x"], ["y"])], {}, {"x": [None] * 3}, {"y": [None] * 3})
    data = open_data({"x": np.zeros((40, 2), np.float32)}, Fixed(tokens).inputs)
    judge = FidelityEvaluator(io.from_proto(proto), Replaying(tokens), data, batch=batch)
    runner, seen = Replaying(tokens), Judgement()
    assert judge.judge(runner, few=True, begun=seen).samples == runner.given == -(-samples // batch) * batch
    assert judge.judge(runner, begun=seen).samples == runner.given == 40, "it goes on from there"


class Doubling:
    """A Runner that gives each row so many times over, and counts the rows."""

    def __init__(self, width: int, rows: int | None = None) -> None:
        self.inputs = (TensorSpec("x", np.dtype("float32"), ("n", 2)),)
        self.outputs = (TensorSpec("y", np.dtype("float32"), None),)
        self.width, self.rows, self.seen = width, rows, 0

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.seen += len(feeds["x"])
        return {"y": np.ones((self.rows or len(feeds["x"]), self.width), np.float32)}


@pytest.mark.parametrize(("width", "rows", "seen"), [(1, None, 8), (900, None, 5), (9000, None, 4), (9000, 3, 8)])
@pytest.mark.parametrize("batch", [1, 2, 8])
def test_a_glance_takes_the_fewest_samples_that_give_some_thousand_values(
    width: int, rows: int | None, seen: int, batch: int
) -> None:
    proto = build([helper.make_node("Relu", ["x"], ["y"])], {}, {"x": [None, 2]}, {"y": [None, 2]})
    data = open_data({"x": np.zeros((16, 2), np.float32)}, Doubling(1).inputs)
    runner = Doubling(width, rows)
    judge = FidelityEvaluator(io.from_proto(proto), runner, data, batch=batch)
    runner.seen = 0
    samples = judge.glance(runner).samples
    # What is not one row for each sample cannot be cut, and counts as one.
    assert (samples, runner.seen) == ((seen, seen) if rows is None else (min(4, 16 // batch), min(4 * batch, 16)))
    assert judge.judge(runner).samples == (16 if rows is None else 16 // batch), "and nothing else is changed"


class Song:
    """Takes frames, of any number, and says one thing of all of them: the largest of the given rows, one by one."""

    def __init__(self, rows: np.ndarray) -> None:
        self.inputs = (TensorSpec("x", np.dtype("float32"), ("frames", 2)),)
        self.outputs = (TensorSpec("y", np.dtype("float32"), None),)
        self.rows, self.seen = rows, 0

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.seen += 1
        return {"y": self.rows[(self.seen - 1) % len(self.rows)]}


def test_the_classes_of_one_sample_need_no_batch() -> None:
    right = np.eye(4, dtype=np.float32)[[0, 1, 2, 3, 0, 1, 2, 3]] * 0.9 + 0.025
    wrong = right.copy()
    wrong[3] = wrong[2]
    proto = build([helper.make_node("Softmax", ["x"], ["y"])], {}, {"x": [None]}, {"y": [None]})
    frames = [{"x": np.zeros((5, 2), np.float32)} for _ in right]
    data = DataSource("songs", 8, lambda: iter(frames), Song(right).inputs)
    judge = FidelityEvaluator(io.from_proto(proto), Song(right), data)
    found = judge.judge(Song(wrong))
    assert found.agreement == pytest.approx(7 / 8) and found.samples == 8, "frames are no samples"
    assert found.expected_drop == pytest.approx((0.925 - 0.025) / 8 * 0.9, rel=0.2)


def test_one_number_for_each_row_is_no_row_of_classes() -> None:
    right = np.array([0.1, 0.9, 0.2, 0.3], np.float32)
    proto = build([helper.make_node("Softmax", ["x"], ["y"])], {}, {"x": [None]}, {"y": [None]})
    data = open_data({"x": np.zeros((4, 2), np.float32)}, Fixed(right).inputs)
    judge = FidelityEvaluator(io.from_proto(proto), Fixed(right), data)
    found = judge.judge(Fixed(right[::-1].copy()))
    assert found.agreement is None and found.samples == 4


@pytest.mark.parametrize("batch", [1, 4, 8])
def test_amounts_that_happen_to_lie_below_one_are_no_scores(batch: int) -> None:
    rng = np.random.default_rng(0)
    right = np.stack([rng.random(256), rng.random(256) * 1.2], axis=1).astype(np.float32)
    wrong = right.copy()
    wrong[:, 1] += 0.1
    proto = build([helper.make_node("Relu", ["x"], ["y"])], {}, {"x": [None, 2]}, {"y": [None, 2]})
    data = open_data({"x": np.zeros((256, 2), np.float32)}, Fixed(right).inputs)
    judge = FidelityEvaluator(io.from_proto(proto), Replaying(right), data, batch=batch)
    assert judge.judge(Replaying(wrong)).detection_f1 == 1.0, "the first column is the only one of scores"
    shifted = right.copy()
    shifted[:, 0] = 1 - right[:, 0]
    assert (judge.judge(Replaying(shifted)).detection_f1 or 0) < 0.7


def test_a_coarse_step_that_makes_ties_of_samples_is_seen() -> None:
    """Of the same noise power as random noise that is kept: samples that differ become equal."""
    drawn = np.random.default_rng(3).laplace(size=(400, 3))
    right, step = np.sign(drawn) * np.abs(drawn) ** 1.5, 0.3
    found = judged(right, np.round(right / step) * step, "Relu")
    assert found.channel_db > 26 and "order of samples" in found.weakest and not Criterion().judge(found).kept
    noisy = right + step / 12**0.5 * np.random.default_rng(4).normal(size=right.shape)
    assert Criterion().judge(judged(right, noisy, "Relu")).kept


def test_columns_of_a_linear_layer_are_in_the_last_axis() -> None:
    """Of four dims too: axis 1 holds places there, over which columns of different means look like a wide spread."""
    random = np.random.default_rng(5)
    means = 5.0 * np.arange(10)
    right = means + random.normal(size=(64, 6, 6, 10))
    found = judged(right, right + 0.3 * random.normal(size=right.shape))
    assert found.weakest.startswith("y") and found.column_db is not None and found.column_db < 12


def test_columns_of_one_unit_are_all_scores_or_none() -> None:
    """Curves that fall from one: the last columns are never above a half, and are no amounts for that."""
    random = np.random.default_rng(6)
    right = np.exp(-(0.4 + random.gamma(3, 0.25, (400, 1))) * np.arange(1, 3))
    assert right[:, 1].max() < 0.5 < right[:, 0].max()
    wrong = right + 0.02 * right.std(0) * random.normal(size=right.shape)
    assert "proportion" not in judged(right, wrong, "HardSwish").weakest
    assert judged(right * 0.7, wrong * 0.7, "Relu").weakest == "y[1] (in proportion)"
