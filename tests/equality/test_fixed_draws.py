"""Models that draw random numbers are compared with the same draws, or not called equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from onnxtool.editing.edit import edit
from onnxtool.equality.compare import compare
from onnxtool.equality.fixed_draws import with_fixed_draws
from onnxtool.errors import VerdictError
from onnxtool.optimization.optimize import optimize

WEIGHT = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
TENSOR, LABEL = 1, 6
DROPOUT = helper.make_node("Dropout", ["h", "ratio", "yes"], ["y"])
NOISE = [helper.make_node("RandomNormalLike", ["h"], ["r"]), helper.make_node("Add", ["h", "r"], ["y"])]
BERNOULLI = [helper.make_node("Sigmoid", ["h"], ["p"]), helper.make_node("Bernoulli", ["p"], ["y"])]
MULTINOMIAL = [helper.make_node("Multinomial", ["h"], ["y"], sample_size=3)]


def loop() -> onnx.NodeProto:
    """Noise added three times: each time another."""
    infos = [helper.make_tensor_value_info(n, kind, shape) for n, kind, shape in
             (("i", 7, []), ("on", 9, []), ("sum", 1, ["n", 4]), ("on2", 9, []), ("sum2", 1, ["n", 4]))]  # fmt: skip
    nodes = [
        helper.make_node("RandomNormalLike", ["h"], ["r"]),
        helper.make_node("Add", ["sum", "r"], ["sum2"]),
        helper.make_node("Identity", ["on"], ["on2"]),
    ]
    return helper.make_node(
        "Loop", ["three", "yes", "h"], ["y"], body=helper.make_graph(nodes, "b", infos[:3], infos[3:])
    )


def saved(
    path: Path,
    nodes: list[onnx.NodeProto],
    weight: np.ndarray = WEIGHT,
    ratio: float = 0.5,
    kind: int = TENSOR,
    extra: str = "",
) -> Path:
    constants = {"w": weight, "ratio": np.float32(ratio), "yes": np.bool_(True), "three": np.int64(3)}
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), *nodes],
        "g",
        [helper.make_tensor_value_info("x", 1, ["n", 8])],
        [
            helper.make_tensor_value_info("y", kind, ["m", 3 if kind == LABEL else 4]),
            *([helper.make_tensor_value_info(extra, 1, ["n", 4])] if extra else []),
        ],
        [numpy_helper.from_array(np.array(v), n) for n, v in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize(
    ("nodes", "kind"), [([DROPOUT], TENSOR), (NOISE, TENSOR), (BERNOULLI, TENSOR), (MULTINOMIAL, LABEL)]
)
def test_what_is_computed_around_draws_is_compared(nodes: list[onnx.NodeProto], kind: int, tmp_path: Path) -> None:
    a = saved(tmp_path / "a.onnx", nodes, kind=kind)
    alike = compare(a, saved(tmp_path / "same.onnx", nodes, kind=kind), effort="quick")
    assert alike.ok and not alike.not_compared
    negated = compare(a, saved(tmp_path / "negated.onnx", nodes, -WEIGHT, kind=kind), effort="quick")
    assert not negated.ok and negated.compared


def test_another_share_of_what_is_dropped_is_no_equality(tmp_path: Path) -> None:
    a, b = (saved(tmp_path / f"{r}.onnx", [DROPOUT], ratio=r) for r in (0.5, 0.51))
    assert not compare(a, b, effort="quick").ok


def test_a_fault_in_what_is_dropped_is_seen(tmp_path: Path) -> None:
    moved = WEIGHT.copy()
    moved[:, 2] *= -1
    nearly_all = [helper.make_node("Dropout", ["h", "ratio", "yes"], ["y"])]
    a = saved(tmp_path / "a.onnx", nearly_all, ratio=0.999)
    assert not compare(a, saved(tmp_path / "b.onnx", nearly_all, moved, ratio=0.999), effort="quick").ok


def test_draws_that_one_model_lacks_are_compared(tmp_path: Path) -> None:
    kept = [helper.make_node("Identity", ["h"], ["y"])]
    report = compare(saved(tmp_path / "a.onnx", NOISE), saved(tmp_path / "b.onnx", kept), effort="quick")
    assert report.differs and not report.not_compared


def test_one_class_is_drawn_where_no_number_of_them_is_given(tmp_path: Path) -> None:
    drawn = [helper.make_node("Multinomial", ["h"], ["c"]), helper.make_node("Expand", ["c", "row"], ["y"])]
    row = helper.make_node("Constant", [], ["row"], value_ints=[1, 3])
    fixed = with_fixed_draws(*[ir.load(saved(tmp_path / "a.onnx", [row, *drawn], kind=LABEL))] * 2)
    assert fixed is not None
    session = onnxruntime.InferenceSession(ir.to_proto(fixed.a).SerializeToString())
    found = session.run(["y"], {"x": np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)})[0]
    assert found.shape == (64, 3) and set(found.ravel()) == {0, 1, 2, 3}


def test_one_draw_used_twice_is_not_two_draws(tmp_path: Path) -> None:
    twice = [NOISE[0], helper.make_node("Add", ["h", "r"], ["s"]), helper.make_node("Add", ["s", "r"], ["y"])]
    two = [*twice[:2], helper.make_node("RandomNormalLike", ["h"], ["q"]), helper.make_node("Add", ["s", "q"], ["y"])]
    report = compare(saved(tmp_path / "a.onnx", twice), saved(tmp_path / "b.onnx", two), effort="quick")
    assert not report.ok


def normal(name: str, **parameters: float) -> onnx.NodeProto:
    return helper.make_node("RandomNormalLike", ["h"], [name], **parameters)


@pytest.mark.parametrize("other", [{"scale": 1.01}, {"mean": 0.01}])
def test_another_distribution_beside_an_output_that_does_not_draw_is_no_equality(
    other: dict[str, float], tmp_path: Path
) -> None:
    a, b = (saved(tmp_path / f"{n}.onnx", [normal("y", **p)], extra="h") for n, p in (("a", {}), ("b", other)))
    report = compare(a, b, effort="quick")
    assert report.differs and not report.not_compared


def test_scaled_draws_are_draws_of_that_scale(tmp_path: Path) -> None:
    twice = [normal("r"), helper.make_node("Add", ["r", "r"], ["y"])]
    a, b = saved(tmp_path / "a.onnx", twice), saved(tmp_path / "b.onnx", [normal("y", scale=2.0)])
    report = compare(a, b, effort="quick")
    assert report.ok and report.compared


def test_a_draw_whose_shape_alone_is_used_needs_no_partner(tmp_path: Path) -> None:
    shape = [normal("r"), normal("q"), helper.make_node("Shape", ["q"], ["s"])]
    used = helper.make_node("Expand", ["r", "s"], ["y"])
    a, b = saved(tmp_path / "a.onnx", [*shape, used]), saved(tmp_path / "b.onnx", [normal("y")])
    report = compare(a, b, effort="quick")
    assert report.ok and report.compared


def test_what_is_drawn_is_paired_by_distribution_before_names(tmp_path: Path) -> None:
    def both(first: str, second: str) -> list[onnx.NodeProto]:
        return [normal(first), normal(second, scale=5.0), helper.make_node("Concat", [first, second], ["y"], axis=0)]

    a = saved(tmp_path / "a.onnx", both("r", "q"))
    report = compare(a, saved(tmp_path / "b.onnx", both("q", "r")), effort="quick")
    assert report.ok and report.compared


def test_where_no_output_was_compared_the_verdict_is_bad(tmp_path: Path) -> None:
    a = saved(tmp_path / "a.onnx", [loop()])
    for b in (a, saved(tmp_path / "b.onnx", [loop()], -WEIGHT)):
        report = compare(a, b, effort="quick")
        assert not report.ok and not report.compared
        assert [o.name for o in report.not_compared] == ["y"] and "random" in str(report.not_compared[0].note)


def test_draws_have_the_distribution_that_they_stand_for(tmp_path: Path) -> None:
    nodes = [helper.make_node("RandomNormalLike", ["h"], ["y"], mean=2.0, scale=3.0)]
    model = ir.load(saved(tmp_path / "a.onnx", nodes))
    fixed = with_fixed_draws(model, model)
    assert fixed is not None
    session = onnxruntime.InferenceSession(ir.to_proto(fixed.a).SerializeToString())
    drawn = session.run(["y"], {"x": np.zeros((20_000, 8), np.float32)})[0]
    assert abs(drawn.mean() - 2) < 0.05 and abs(drawn.std() - 3) < 0.05


def test_uniform_numbers_lie_between_zero_and_one_unless_it_says_others(tmp_path: Path) -> None:
    for given, low, high in (({}, 0.0, 1.0), ({"low": -2.0, "high": 4.0}, -2.0, 4.0)):
        model = ir.load(saved(tmp_path / "a.onnx", [helper.make_node("RandomUniformLike", ["h"], ["y"], **given)]))
        fixed = with_fixed_draws(model, model)
        assert fixed is not None
        session = onnxruntime.InferenceSession(ir.to_proto(fixed.a).SerializeToString())
        drawn = session.run(["y"], {"x": np.zeros((20_000, 8), np.float32)})[0]
        assert low <= drawn.min() < low + 0.01 * (high - low) and high - 0.01 * (high - low) < drawn.max() <= high
        assert abs(drawn.mean() - (low + high) / 2) < 0.02 * (high - low)
        shares = np.histogram(drawn, 10, (low, high))[0] / drawn.size
        np.testing.assert_allclose(shares, 0.1, atol=0.01)


def test_optimize_compares_what_draws_and_says_what_it_does_not(tmp_path: Path) -> None:
    report = optimize(saved(tmp_path / "a.onnx", NOISE), tmp_path / "out.onnx", bench=False)
    assert report.ok and report.comparison is not None and report.comparison.ok
    report = optimize(saved(tmp_path / "b.onnx", [loop()]), tmp_path / "out.onnx", bench=False)
    assert report.ok and report.comparison is not None
    assert not report.comparison.ok and [o.name for o in report.comparison.not_compared] == ["y"]
    assert any("'y'" in w and "not the values" in w for w in report.warnings)


def test_edit_says_that_random_outputs_were_not_compared(tmp_path: Path) -> None:
    change = [("rename-input", "x=z")]
    report = edit(saved(tmp_path / "a.onnx", NOISE), tmp_path / "out.onnx", change)
    assert report.steps[0].proof is not None and report.steps[0].proof.compared
    with pytest.raises(VerdictError, match="assumed, and not proven: the outputs y have not changed"):
        edit(saved(tmp_path / "b.onnx", [loop()]), tmp_path / "no.onnx", change)
    report = edit(tmp_path / "b.onnx", tmp_path / "out.onnx", change, allow_unproven=True)
    assert not report.ok
    proof = report.steps[0].proof
    assert proof is not None and not proof.compared and "y" in proof.unproven
