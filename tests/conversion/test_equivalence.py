"""The proof: which inputs are tried, what is done when the graph or the tidying is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.conversion import equivalence
from onnxtool.conversion.adapter import SourceModel
from onnxtool.conversion.equivalence import SourceProof, as_given, cleaned_up, probe, sample_feeds
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import InputError, UnsupportedError, VerdictError
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec
from onnxtool.options.convert import ConvertOptions
from onnxtool.report.certificate import CertificateReport
from onnxtool.runtime.probes import Probe
from onnxtool.runtime.worker import apart

F32 = np.dtype("float32")


class Doubler(SourceModel):
    """A source model in numpy: y = 2 x; `allowed` says which shapes it takes."""

    form, framework = "numpy", "numpy"
    feeds_hint: Mapping[str, Domain] | None = None

    def __init__(self, *shape: Any, allowed: Any = lambda s: True) -> None:
        self.inputs = (TensorSpec("x", F32, shape),)
        self.outputs = (TensorSpec("y", F32, shape),)
        self.notes: list[str] = []
        self.allowed, self.calls = allowed, 0

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        self.calls += 1
        if not self.allowed(feeds["x"].shape):
            raise InputError(f"no {feeds['x'].shape}")
        return {"y": 2 * feeds["x"]}


def graph(body: str, dims: str = "batch, n") -> ir.Model:
    return ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 20]> g (float[{dims}] x) => (float[{dims}] y) {{ {body} }}'
    )


def proof(model: Doubler, **options: Any) -> SourceProof:
    return SourceProof(model, ConvertOptions(**options), Tolerance())


def sizes(model: Doubler, **options: Any) -> list[tuple[int, ...]]:
    return [p.feeds["x"].shape for p in probe(model, ConvertOptions(**options), {})]


def test_three_sizes_of_every_dynamic_dim_none_shared() -> None:
    assert sizes(Doubler("batch", "n", "m")) == [(2, 16, 19), (1, 9, 12), (5, 23, 26)]
    assert sizes(Doubler("batch", 4)) == [(2, 4), (1, 4), (5, 4)]
    assert sizes(Doubler(3, 4)) == [(3, 4)]


def test_tries_other_lengths_where_the_source_needs_multiples() -> None:
    assert sizes(Doubler("b", "h", "w", allowed=lambda s: s[1] % 32 == s[2] % 32 == 0)) == [
        (2, 32, 64),
        (1, 64, 96),
        (5, 96, 128),
    ]


def test_tries_equal_lengths_where_two_names_must_agree() -> None:
    assert sizes(Doubler("b", "h", "w", allowed=lambda s: s[1] == s[2])) == [(2, 16, 16), (1, 9, 9), (5, 23, 23)]


def test_what_was_long_in_the_first_run_is_long_in_the_proof_alone() -> None:
    model = Doubler("b", "samples", "n", allowed=lambda s: s[1] > 2000)
    model.traced_sizes = {"samples": 4099, "n": 18}
    assert sizes(model) == [(2, 4099, 19), (1, 2305, 12), (5, 5892, 26)]


def test_leaves_out_a_batch_that_the_source_refuses_and_says_so() -> None:
    model = Doubler("b", 3, allowed=lambda s: s[0] > 1)
    assert sizes(model) == [(2, 3), (5, 3)]
    assert any("refuses 1 of 3" in n for n in model.notes)


def test_a_source_that_never_runs_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"no \(2, 16\)"):
        sizes(Doubler("b", "n", allowed=lambda s: False))


def test_sample_is_cut_to_three_batches() -> None:
    sample = {"x": np.ones((40, 3), F32)}
    assert sizes(Doubler("b", 3), sample=sample) == [(32, 3), (1, 3), (5, 3)]
    assert sizes(Doubler(40, 3), sample=sample) == [(40, 3)]


@pytest.mark.parametrize(("rows", "proven"), [(1, [1, 5, 2]), (3, [3, 1, 5]), (5, [5, 1, 2])])
def test_few_rows_of_a_sample_are_repeated_for_other_batches(rows: int, proven: list[int]) -> None:
    sample = {"x": np.arange(rows * 3, dtype=F32).reshape(rows, 3)}
    assert sizes(Doubler("b", 3), sample=sample) == [(n, 3) for n in proven]
    assert sizes(Doubler(rows, 3), sample=sample) == [(rows, 3)]


def test_the_source_is_run_once_for_each_size() -> None:
    model = Doubler("batch", "n")
    held = proof(model)
    assert held.compare(graph("y = Add(x, x)")).ok
    assert not held.compare(graph("y = Neg(x)")).ok
    assert model.calls == 3


def right_up_to(rows: int) -> ir.Model:
    """Twice the first rows, and the others as they are."""
    return graph(f"""
        zero = Constant <value_ints = [0]> ()
        two = Constant <value_ints = [{rows}]> ()
        far = Constant <value_ints = [99]> ()
        head = Slice(x, zero, two)  rest = Slice(x, two, far)
        double = Add(head, head)  y = Concat <axis = 0> (double, rest)
    """)


def test_a_wrong_result_is_found_at_any_size() -> None:
    # Right for up to two rows, wrong beyond: only the third size shows it.
    report = proof(Doubler("batch", "n")).compare(right_up_to(2))
    assert not report.ok and report.worst is not None and report.worst.worst_run == 2


def test_a_graph_that_fails_at_another_size_is_a_verdict() -> None:
    frozen = "s = Constant <value_ints = [2, 16]> ()  r = Reshape(x, s)  y = Add(r, r)"
    with pytest.raises(VerdictError, match="fails where the source runs") as caught:
        proof(Doubler("batch", "n")).compare(graph(frozen))
    assert caught.value.exit_code == 1


def test_a_graph_that_the_runtime_refuses_is_the_exporters_fault() -> None:
    broken = graph("n = Cast <to = 7> (x)  y = Add(x, n)")  # a float and an integer
    with pytest.raises(
        UnsupportedError, match=r"exporter of numpy wrote a graph that the runtime refuses: .*Add"
    ) as caught:
        proof(Doubler("batch", "n")).compare(broken)
    assert caught.value.exit_code == 4


def test_tidying_that_harms_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def harm(model: ir.Model, level: str, **_: object) -> None:
        next(n for n in model.graph if n.op_type == "Add").op_type = "Sub"

    monkeypatch.setattr(equivalence, "optimize_model", harm)
    notes: list[str] = []
    kept, report = cleaned_up(graph("y = Add(x, x)"), proof(Doubler("batch", "n")), notes)
    assert report.ok and [n.op_type for n in kept.graph] == ["Add"]
    assert notes == ["left as the exporter wrote it: tidying it up changed its results"]


def test_tidying_that_crashes_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(model: ir.Model, level: str, **_: object) -> None:
        model.graph.outputs.clear()
        raise RuntimeError("pass is broken")

    monkeypatch.setattr(equivalence, "optimize_model", crash)
    notes: list[str] = []
    _, report = cleaned_up(graph("y = Add(x, x)"), proof(Doubler("batch", "n")), notes)
    assert report.ok and "RuntimeError: pass is broken" in notes[0]


def test_tidying_removes_leftovers() -> None:
    kept, report = cleaned_up(graph("a = Identity(x) unused = Neg(x) y = Add(a, a)"), proof(Doubler("batch", "n")), [])
    assert report.ok and [n.op_type for n in kept.graph] == ["Add"]


def test_a_graph_that_is_wrong_from_the_start_stays_wrong() -> None:
    notes: list[str] = []
    _, report = cleaned_up(graph("y = Neg(x)"), proof(Doubler("batch", "n")), notes)
    assert not report.ok and notes == []


class Scaled(Doubler):
    """y = scale * x, with zeros in all rows but the first."""

    def __init__(self, scale: float) -> None:
        super().__init__("batch", "n")
        self.scale = np.float32(scale)

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        y = self.scale * feeds["x"]
        y[1:] = 0
        return {"y": y}


def zeroed(scale: float, error: float) -> ir.Model:
    return graph(
        f"""
        s = Constant <value_float = {scale}> ()  e = Constant <value_float = {error}> ()
        z = Constant <value_ints = [0]> ()  one = Constant <value_ints = [1]> ()
        far = Constant <value_ints = [999]> ()  zero = Constant <value_float = 0.0> ()
        first = Slice(x, z, one, z)  rest = Slice(x, one, far, z)  none = Mul(rest, zero)  off = Add(none, e)
        more = Mul(first, s)  y = Concat <axis = 0> (more, off)
        """
    )


@pytest.mark.parametrize(("scale", "error", "ok"), [(1e6, 1.0, True), (1e6, 1000.0, False), (1.0, 1e-3, False)])
def test_absolute_tolerance_grows_with_the_output(scale: float, error: float, ok: bool) -> None:
    assert proof(Scaled(scale)).compare(zeroed(scale, error)).ok is ok


def test_an_output_that_is_always_empty_is_said() -> None:
    model = Doubler("b", 0)
    report = proof(model).compare(graph("y = Add (x, x)", "b, 0"))
    assert not report.differs and not report.ok
    assert any("'y' had no elements in any run" in n for n in model.notes)


def test_an_output_that_is_always_zero_is_said() -> None:
    model = Scaled(0.0)
    assert proof(model).compare(zeroed(0.0, 0.0)).ok
    assert any("'y' was zero in every run" in n for n in model.notes)


def test_a_graph_that_may_not_end_runs_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[np.ndarray] = []

    class Child:
        def __init__(self, model: Any, options: Any) -> None: ...

        def run(self, feeds: Mapping[str, np.ndarray], seconds: float | None = None) -> dict[str, Any]:
            given.append(feeds["x"])
            return {"y": 2 * feeds["x"]}

    monkeypatch.setattr(apart, "TrialWorker", Child)
    endless = (
        "y = Loop <body = turn (int64 i, bool c, float[batch, n] s) => (bool goes, float[batch, n] t) "
        "{ goes = Identity(c) t = Add(s, s) }> (, yes, x)"
    )
    model = graph(f"yes = Constant <value = bool {{1}}> () {endless}")
    assert proof(Doubler("batch", "n")).compare(model).ok and len(given) == 3
    given.clear()
    assert proof(Doubler("batch", "n")).compare(graph("y = Add(x, x)")).ok and not given


@pytest.mark.parametrize(
    ("notes", "grows", "refused"), [([], 1, True), (["draws random numbers"], 1, False), ([], 0, False)]
)
def test_a_source_that_remembers_what_it_ran_on_is_refused(notes: list[str], grows: int, refused: bool) -> None:
    class Counting(Doubler):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            return {"y": super().run(feeds)["y"] + grows * self.calls}

    model = Counting("batch", "n")
    model.notes = notes
    first = probe(model, ConvertOptions(), {})[0]
    with pytest.raises(UnsupportedError, match="keeps state") if refused else nullcontext():
        equivalence._refuse_state(model, first)


POSITIVE = "r = Relu(x)  y = Add(r, r)"


@pytest.mark.parametrize(
    ("body", "dims", "changed"),
    [
        (POSITIVE, "batch, 2", (2, 4)),
        ("y = Add(x, x)", "batch, 2", None),
        ("y = Transpose(x)", "batch, 2", None),
        ("s = Constant <value_ints = [9, 9]> ()  y = Reshape(x, s)", "batch, 2", None),
    ],
)
def test_rows_on_which_the_graph_differs_are_counted(body: str, dims: str, changed: tuple[int, int] | None) -> None:
    sample = {"x": np.array([[1, 2], [1, -2], [-1, -2], [3, 4]], F32)}
    held = proof(Doubler("batch", 2), sample=sample)
    held.observe(graph("y = Add(x, x)", dims))
    assert held.changed_rows(graph(body, dims)) == changed


def test_rows_differ_in_any_output_and_outputs_have_as_many() -> None:
    class Two(Doubler):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            return {"sign": np.sign(feeds["x"][:, 0]).astype(np.int64), "y": 2 * feeds["x"]}

    def made(body: str) -> ir.Model:
        return ir.from_onnx_text(
            f"""<ir_version: 10, opset_import: ["" : 20]> g (float[batch, 2] x) => (int64[m] sign, float[batch, 2] y) {{
                {body}  z = Constant <value_int = 0> ()  c = Gather <axis = 1> (x, z)  f = Sign(c)
                l = Cast <to = 7> (f)  sign = Abs(l) }}"""
        )

    held = proof(Two("batch", 2), sample={"x": np.array([[1, 2], [-1, 2], [1, -2], [3, 4]], F32)})
    held.observe(made(POSITIVE))
    assert held.changed_rows(made(POSITIVE)) == (
        2,
        4,
    )  # a sign in the second row, a number in the third, of which -1 is
    assert held.changed_rows(made("y = Add(x, x)")) == (1, 4)


def test_rows_of_doubles_are_run_before_the_file_rounds_them() -> None:
    model = Doubler("batch", 2)
    rows = np.array([[1 + 2.0**-40, 2], [3, 4]])
    assert as_given(model, {"x": rows}) == []  # it computes in float32 itself
    model.in_doubles = True
    (found,) = as_given(model, {"x": rows})
    assert found.feeds["x"].dtype == F32 and found.outputs["y"][0, 0] == 2 + 2.0**-39
    assert as_given(model, {"x": rows.astype(F32)}) == [] == as_given(model, None)
    assert len(as_given(model, {"": rows})) == 1  # an array without a name is for the only input
    model.inputs = (TensorSpec("x", np.dtype("float64"), ("batch", 2)),)
    assert as_given(model, {"x": rows}) == []


def test_a_sample_whose_inputs_have_no_row_in_common_stays_as_it_is() -> None:
    model = Doubler("b", 2)
    model.inputs = (*model.inputs, TensorSpec("z", F32, ("b", 1)))
    sample = {"x": np.ones((4, 2), F32), "z": np.ones((0, 1), F32)}
    assert [f["x"].shape for f in sample_feeds(model, sample)] == [(4, 2)]


@pytest.mark.parametrize("known", [True, False])
def test_a_certificate_stands_in_the_report_where_nothing_differs(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    held, certificate = proof(Doubler("batch", "n")), CertificateReport("A", "B", "certified")
    monkeypatch.setattr(held, "_certificate", lambda *_: certificate if known else None)
    right, wrong = (graph(f"y = {body}") for body in ("Add(x, x)", "Neg(x)"))
    assert held.certified(right, held.compare(right)).certificate is (certificate if known else None)
    assert held.certified(wrong, held.compare(wrong)).certificate is None


@pytest.mark.parametrize(("stays", "same"), [(True, True), (True, False), (False, True)])
def test_a_certificate_is_asked_for_where_further_inputs_differ(
    stays: bool, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one graph, and not of the next; without the source nothing shows that rounding moves both."""
    right, model = graph("y = Add(x, x)"), Doubler("batch", "n")
    held, asked = proof(model, effort="quick"), []
    held.observe(right)
    held.observe_further(right, model, 0.0, stays=stays)
    assert held.further is not None and len(held.tried) > len(held.probes)

    def certificate(of: ir.Model) -> CertificateReport:
        asked.append(of)
        return CertificateReport("A", "B", "not tested", same_function=same)

    monkeypatch.setattr(held, "_certificate", certificate)
    assert held.compare(right_up_to(8)).differs
    assert len(asked) == stays and held.further.certified is (stays and same)
    assert not held.compare(right).differs
    assert len(asked) == stays and not held.further.certified


@pytest.mark.parametrize("stays", [True, False])
def test_a_branch_that_only_new_inputs_reach_is_named_where_the_source_is_gone(stays: bool) -> None:
    body = """
        a = Add(x, x)  c = Constant <value_float = 54321.0> ()  s = ReduceSum <keepdims = 0> (x)  g = Greater(s, c)
        y = If (g) <then_branch = t () => (p) { p = Identity(a) }, else_branch = e () => (q) { q = Add(x, x) }>
    """
    model = Doubler("batch", "n")
    held = proof(model, effort="quick")
    held.observe(graph(body))
    held.observe_further(graph(body), model, 0.0, stays=stays)
    report = held.compare(graph(body))
    assert not report.differs and report.coverage is not None
    assert [b.part for b in report.coverage.unreached] == ([] if stays else ["then branch"])


def test_outputs_of_all_runs_together_tell_whether_bfloat16_only_rounds() -> None:
    """In one of them an output may cancel, so that all of it is rounding."""
    model = Doubler(1)
    probes = [Probe(f, model.run(f)) for f in ({"x": np.zeros(1, F32)}, {"x": np.full(1, 50, F32)})]
    for error, refused in ((1.0, False), (50.0, True)):
        model.as_written = lambda feeds, error=error: {"y": 2 * feeds["x"] + error}  # type: ignore[method-assign]
        with pytest.raises(VerdictError, match="in bfloat16") if refused else nullcontext():
            equivalence._hold_to_types(model, probes)
