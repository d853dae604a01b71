"""compare finds what random numbers of one size do not show, and calls nothing different that is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.equality.compare import compare
from onnxtool.equality.compare_runners import compare_runners
from onnxtool.equality.search.counterexample import _is_last_bits
from onnxtool.equality.trials.trial import Trial
from onnxtool.model import io
from onnxtool.report.proof import TrialKind
from onnxtool.runtime.runner import OnnxRunner

TABLE = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
OTHER_ROW = TABLE.copy()
OTHER_ROW[137] += 1
WEIGHT = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
ZEROED = WEIGHT.copy()
ZEROED.reshape(-1)[:7] = 0
X = "g (float[b,4] x) => (float[b,4] y)"
N = "g (float[b,n] x) => (float[b,n] y)"
MASKED = "g (float[b,n] x, int64[b,n] attention_mask) => (float[b] y)"
SUMMED = "one = Constant <value_ints = [1]> ()  y = ReduceSum <keepdims = 0> (p, one)"
CUT = """
    zero = Constant <value_ints = [0]> ()  at = Constant <value_ints = [{at}]> ()
    far = Constant <value_ints = [99999]> ()  axis = Constant <value_ints = [{axis}]> ()
    head = Slice(x, zero, at, axis)  rest = Slice(x, at, far, axis)  other = Neg(rest)
    y = Concat <axis = {axis}> (head, other)
"""
BRANCH = """
    s = ReduceSum <keepdims = 0> (x)  limit = Constant <value_float = {limit}> ()  c = Greater(s, limit)
    y = If (c) <then_branch = t () => (p) {{ p = MatMul(x, w) }}, else_branch = e () => (q) {{ q = Identity(x) }}>
"""
X8 = "g (float[b,8] x) => (float[b,8] y)"
IDS = "g (int64[b,n] ids) => (float[b,n,8] y)"
SAME = "y = Identity(x)"

# what differs -> two graphs, the kind of input that shows it
PAIRS: dict[str, tuple[str, str, str, str]] = {
    "a mask that is ignored": (MASKED, f"m = Cast <to = 1> (attention_mask)  p = Mul(x, m)  {SUMMED}",
                               f"p = Identity(x)  {SUMMED}", "mask"),
    "pictures above 1": ("g (uint8[b,n] x) => (float[b,n] y)", "y = Cast <to = 1> (x)",
                         "c = Constant <value_float = 1.0> ()  f = Cast <to = 1> (x)  y = Min(f, c)", "values"),
    "integers below zero": ("g (int64[b,n] x) => (int64[b,n] y)", SAME, "y = Abs(x)", "values"),
    "positions above 64": (N, SAME, CUT.format(at=64, axis=1), "size"),
    "batches above 8": (X, SAME, CUT.format(at=8, axis=0), "size"),
    "a length of 317 only": (N, SAME, "s = Shape <start = 1, end = 2> (x)  c = Constant <value_ints = [317]> () "
                             "q = Equal(s, c)  f = Cast <to = 1> (q)  y = Add(x, f)", "size"),
    "values above a threshold": (X, SAME, "c = Constant <value_float = 7.5> ()  y = Min(x, c)", "values"),
    "values below a threshold": (X, SAME, "c = Constant <value_float = -77.5> ()  y = Max(x, c)", "values"),
    "saturated values": (X, "y = Sigmoid(x)", "l = Constant <value_float = -5.0> ()  h = Constant <value_float = 5.0> "
                         "()  c = Clip(x, l, h)  y = Sigmoid(c)", "values"),
    "at exactly a threshold": (X, "c = Constant <value_float = 0.25> ()  q = Greater(x, c)  y = Cast <to = 1> (q)",
                               "c = Constant <value_float = 0.25> ()  q = GreaterOrEqual(x, c)  y = Cast <to = 1> (q)",
                               "thresholds"),
    "NaN": (X, "n = IsNaN(x)  z = Constant <value_float = 0.0> ()  y = Where(n, z, x)", SAME, "missing"),
}  # fmt: skip


def graph(head: str, body: str, **weights: np.ndarray) -> ir.Model:
    listed = ", ".join(f"float[{', '.join(map(str, w.shape))}] {n}" for n, w in weights.items())
    made = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 20]> {head} {f"<{listed}>" if listed else ""} {{ {body} }}',
        initializers=[ir.tensor(w, name=n) for n, w in weights.items()],
    )
    assert isinstance(made, ir.Model)
    return made


def saved(folder: Path, name: str, model: ir.Model) -> Path:
    io.save(model, folder / name)
    return folder / name


@pytest.mark.parametrize("what", PAIRS)
def test_a_difference_is_found_and_said(what: str, tmp_path: Path) -> None:
    head, right, wrong, kind = PAIRS[what]
    a, b = saved(tmp_path, "a.onnx", graph(head, right)), saved(tmp_path, "b.onnx", graph(head, wrong))
    report = compare(a, b)
    assert not report.ok
    assert report.counterexample is not None and report.counterexample.kind == kind


@pytest.mark.parametrize("what", PAIRS)
def test_a_model_is_equal_to_itself(what: str, tmp_path: Path) -> None:
    head, right, wrong, _ = PAIRS[what]
    for body in (right, wrong):
        path = saved(tmp_path, "a.onnx", graph(head, body))
        report = compare(path, path)
        assert report.ok and report.coverage is not None and report.coverage.inputs


def test_one_row_of_a_table_is_found(tmp_path: Path) -> None:
    body = "y = Gather(w, ids)"
    a = saved(tmp_path, "a.onnx", graph(IDS, body, w=TABLE))
    report = compare(a, saved(tmp_path, "b.onnx", graph(IDS, body, w=OTHER_ROW)))
    assert not report.ok and report.counterexample is not None


def test_weights_of_a_branch_that_is_rarely_taken(tmp_path: Path) -> None:
    body = BRANCH.format(limit="5000.0")
    a = saved(tmp_path, "a.onnx", graph(X8, body, w=WEIGHT))
    report = compare(a, saved(tmp_path, "b.onnx", graph(X8, body, w=ZEROED)))
    assert not report.ok and report.counterexample is not None and report.counterexample.kind == "thresholds"
    assert compare(a, a).ok


def test_a_branch_that_nothing_reaches_is_named(tmp_path: Path) -> None:
    # x*x is never below -1, whatever x is.
    body = """
        q = Mul(x, x)  s = ReduceSum <keepdims = 0> (q)  limit = Constant <value_float = -1.0> ()  c = Less(s, limit)
        y = If (c) <then_branch = t () => (p) { p = MatMul(x, w) }, else_branch = e () => (q2) { q2 = Identity(x) }>
    """
    a = saved(tmp_path, "a.onnx", graph(X8, body, w=WEIGHT))
    assert compare(a, a).verdict == "certified"  # which covers both branches
    alike = body.replace("q2 = Identity(x)", "z = Sign(x)  u = Abs(x)  q2 = Mul(z, u)")  # which no certificate knows
    same = saved(tmp_path, "same.onnx", graph(X8, alike, w=WEIGHT))
    report = compare(a, same)
    assert report.ok and report.coverage is not None
    assert [u.part for u in report.coverage.unreached] == ["then branch", "then branch"]
    other = saved(tmp_path, "b.onnx", graph(X8, body, w=ZEROED))
    differing = compare(a, other)  # which no run can show, and exact arithmetic does
    assert (differing.verdict, differing.ok, differing.differs) == ("not tested", False, False)
    for judged in (report, differing):
        assert any("equal where run" in line for line in judged.warnings)
    assert not compare(a, same, strict=True).ok


def test_a_counterexample_is_kept_and_shows_the_difference_again(tmp_path: Path) -> None:
    head, right, wrong, _ = PAIRS["values above a threshold"]
    a, b = saved(tmp_path, "a.onnx", graph(head, right)), saved(tmp_path, "b.onnx", graph(head, wrong))
    kept = tmp_path / "found.npz"
    assert not compare(a, b, keep_counterexample=kept).ok
    with np.load(kept) as arrays:
        assert arrays["x"].shape[0] == 1 and (arrays["expected.y"] == arrays["x"]).all()
        assert np.count_nonzero(arrays["x"]) == 1  # made smaller, to the one value that matters
    again = compare(a, b, data=kept)
    assert not again.ok and again.counterexample is None


def test_what_the_reference_refuses_is_no_difference(tmp_path: Path) -> None:
    # A table of 40 positions: longer inputs fail in both.
    body = """
        s = Shape <start = 1, end = 2> (x)  zero = Constant <value_ints = [0]> ()  one = Constant <value_ints = [1]> ()
        t = Slice(w, zero, s, zero)  y = Add(x, t)
    """
    path = saved(tmp_path, "a.onnx", graph(N, body, w=np.arange(40, dtype=np.float32)))
    report = compare(path, path)
    assert report.ok and report.coverage is not None and report.coverage.refused


@pytest.mark.parametrize(
    ("broken", "sound"),
    [
        (
            "c = Constant <value_float = 25.0> ()  n = Constant <value_float = nan> ()  q = Greater(x, c)  "
            "y = Where(q, n, x)",
            SAME,
        ),
        ("e = Exp(x)  a = Constant <value_ints = [1]> ()  s = ReduceSum(e, a)  y = Div(e, s)", "y = Softmax(x)"),
    ],
)
def test_numbers_where_the_reference_gives_nan_are_said_and_no_failure(broken: str, sound: str, tmp_path: Path) -> None:
    broken = broken.replace("<value_float = nan> ()", "<value = float {nan}> ()")
    a, b = saved(tmp_path, "a.onnx", graph(X, broken)), saved(tmp_path, "b.onnx", graph(X, sound))
    report = compare(a, b)
    assert report.ok
    assert any("a.onnx gives NaN or infinity" in line for line in report.warnings)
    assert not any("gives NaN" in line for line in compare(a, a).warnings)


def test_what_shows_far_out_only_is_said() -> None:
    """Integers through doubles."""
    head, wrong = "g (int64[b,4] x) => (int64[b,4] y)", "d = Cast <to = 11> (x)  y = Cast <to = 7> (d)"
    report = compare(graph(head, SAME), graph(head, wrong))
    assert report.ok
    assert any("above 2^53" in warning for warning in report.warnings)


def test_the_search_towards_a_larger_difference_finds_a_coarser_formula() -> None:
    """A variance by squares, which is not far out where all columns are moved together."""
    head, axis = "g (float[b,4] x) => (float[b,1] y)", "a = Constant <value_ints = [1]> ()  m = ReduceMean(x, a)  "
    right = "d = Sub(x, m)  s = Mul(d, d)  y = ReduceMean(s, a)"
    wrong = "s = Mul(x, x)  e = ReduceMean(s, a)  q = Mul(m, m)  v = Sub(e, q)  z = Constant <value_float = 0.0> ()  "
    report = compare(graph(head, axis + right), graph(head, axis + wrong + "y = Max(v, z)"))
    assert report.verdict == "different"
    assert report.counterexample is not None and report.counterexample.kind == "search"


def test_numbers_that_a_certificate_finds_to_round_coarsely_are_run() -> None:
    head = "g (float[b,4] x) => (float[b,4] y)"
    half = "k = Constant <value_float = 1.0> ()  h = Constant <value_float = 0.5> ()  "
    wrong = (
        "e = Add(x, k)  d = Sub(e, x)  i = Less(d, k)  j = Less(d, h)  c = And(i, j)  n = Neg(x)  y = Where(c, n, x)"
    )
    report = compare(graph(head, "y = Identity(x)"), graph(head, half + wrong))
    assert report.certificate is not None and report.certificate.same_function
    assert report.verdict == "different"
    assert report.counterexample is not None and report.counterexample.label.endswith(", which B rounds coarsely")


def test_a_row_of_a_table_in_a_constant_node_is_sought() -> None:
    table = np.random.default_rng(2).normal(size=(3000, 4)).astype(np.float32)
    other = table.copy()
    other[2718] = 0
    models = []
    for rows in (table, other):
        node = ir.node("Constant", [], {"value": ir.tensor(rows, name="rows")})
        model = graph("g (int64[4] x) => (float[4,4] y)", "t = Constant <value_float = 0.0> ()  y = Gather(t, x)")
        model.graph.node(0).attributes["value"] = node.attributes["value"]
        del model.graph.node(0).attributes["value_float"]
        models.append(model)
    report = compare(*models, effort="quick")
    assert report.verdict == "different" and report.counterexample is not None
    assert "row 2718 of 't'" in report.counterexample.label


def test_an_edge_that_the_graph_names_is_no_noise_at_the_least_effort() -> None:
    head, edges = "g (float[n] x) => (int64[n] y)", "e = Constant <value_floats = [18.0, 25.0, 35.0, 65.0]> ()  "
    body = edges + "a = Constant <value_ints = [1]> ()  u = Unsqueeze(x, a)  m = {}  c = Cast <to = 7> (m)  "
    models = [
        graph(head, body.format(asked) + "y = ReduceSum <keepdims = 0> (c, a)")
        for asked in ("Greater(u, e)", "GreaterOrEqual(u, e)", "Less(e, u)")
    ]
    assert compare(*models[:2], effort="quick").verdict == "different"
    assert compare(models[0], models[2], effort="quick").verdict == "certified"


def test_a_failure_without_rows_is_said_and_another_shape_is_a_difference(tmp_path: Path) -> None:
    head = "g (float[b,4] x) => (float[b,2,2] y)"
    body = "s = Constant <value_ints = [-1, 2, 2]> ()  y = Reshape(x, s)"
    a = saved(tmp_path, "a.onnx", graph(head, body))
    report = compare(a, saved(tmp_path, "b.onnx", graph(head, body.replace("-1, 2, 2", "0, -1, 2"))))
    assert report.ok and report.verdict == "tested"
    assert report.certificate is not None and report.certificate.reason.endswith("B fails with an empty batch")
    assert any("an empty batch (there it fails)" in line for line in report.warnings)
    axes = "g (float[b,4] x, int64[k] axes) => (float[p,q] y)"
    body = "y = ReduceSum <noop_with_empty_axes = 0> (x, axes)"
    a = saved(tmp_path, "a.onnx", graph(axes, body))
    report = compare(a, saved(tmp_path, "b.onnx", graph(axes, body.replace("= 0", "= 1"))))
    assert not report.ok
    assert report.counterexample is not None
    assert report.counterexample.label == "an empty batch"


@pytest.mark.parametrize(("error", "kept"), [(1e-5, True), (2e-5, False), (1.0, False)])
def test_sums_that_cancel_at_a_number_of_the_graph_are_off_by_last_bits(error: float, kept: bool) -> None:
    """A Fourier transform of ones: 12, and zeros but for rounding. A step of the height of a number is none."""
    outputs = {"y": np.array([[12.0, 0.0, 0.0]], np.float32)}
    shift = np.array([[0, error, 0]], np.float32)
    head = "g (float[1,3] x) => (float[1,3] y)"
    runners = [OnnxRunner.open(m) for m in (graph(head, SAME), graph(head, "y = Add(x, w)", w=shift))]
    trial = Trial("values of exactly 1", TrialKind.THRESHOLDS, {"x": outputs["y"]}, outputs)
    report = compare_runners(runners[0], runners[1], [trial.feeds])
    assert report.differs and _is_last_bits(trial, report) == kept
