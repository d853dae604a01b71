"""What comparing two models gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from onnxtool.report.base import Report
from onnxtool.report.certificate import CertificateReport, Verdict, suffices
from onnxtool.report.layers import Layers
from onnxtool.report.proof import BRANCHES, Branch, Counterexample, Coverage


@dataclass(frozen=True)
class PrecisionLevels:
    """How far a model's outputs move when its weights and inputs are rounded; relative, the worst output.

    Attributes:
        float32: by the runtime's own choice of kernels.
        float16: to 11 bits, as float16 and tf32 have.
        bfloat16: to 8 bits.
    """

    float32: float
    float16: float
    bfloat16: float


@dataclass(frozen=True)
class ProviderProof:
    """One model on one provider, held against the same file on the CPU without the runtime's own optimizations.

    Attributes:
        provider: as it was asked for, with its options.
        ok: every output within tolerance.
        error: root mean square of the difference over that of the CPU's outputs, the worst output; None when it failed.
        precision: "float32", "tf32 or float16", "bfloat16": which rounding the error is as large as; "other" when it is
            larger than any; "" when it failed or nothing is known.
        levels: what these roundings do to this model; None when they were not tried.
        option: what turns reduced precision off on this provider ("INFERENCE_PRECISION_HINT=f32"); "" when there is
            none, or nothing to turn off.
        confirmed: whether the error was gone with that option; None when it was not tried.
        failure: why it did not run; "" when it did.
    """

    provider: str
    ok: bool
    error: float | None
    precision: str
    levels: PrecisionLevels | None = None
    option: str = ""
    confirmed: bool | None = None
    failure: str = ""

    @property
    def reduced(self) -> bool:
        """Whether the provider computes in less precision than the model declares."""
        return self.precision in ("tf32 or float16", "tf32", "float16", "bfloat16")

    @property
    def summary(self) -> str:
        """In a sentence."""
        if self.failure:
            return f"{self.provider}: does not run: {self.failure}"
        verdict = "within tolerance" if self.ok else "outside the tolerance"
        error = "" if self.error is None else f" (relative error {self.error:.1e})"
        if not self.reduced:
            why = "" if self.ok or self.precision != "other" else ": more than rounding in float32 explains"
            return f"{self.provider}: {verdict}{error}{why}"
        line = (
            f"{self.provider}: {verdict}{error}: it computes in {self.precision}, which is less than the model declares"
        )
        if not self.option:
            return line
        name = self.provider + ("," if ":" in self.provider else ":") + self.option
        proof = {
            True: ", and the error is gone with it",
            False: ", but the error stays: the model amplifies any rounding on these inputs",
            None: "",
        }[self.confirmed]
        return f"{line}; {name} turns that off{proof}"


LOWEST_DECADE, DECADES = -12, 16


@dataclass(frozen=True)
class TensorDifference:
    """How far one tensor of B is from the same tensor of A, over all runs.

    Attributes:
        name: the tensor's name in A (and in B, unless `other_name`).
        ok: within tolerance everywhere; integers, booleans and strings must be equal.
        max_abs: largest |a - b|; infinite where only one side is NaN or infinite.
        max_rel: largest |a - b| / |a| over elements with a != 0.
        mean_abs: mean |a - b|.
        cosine: cosine similarity of the flattened tensors.
        sqnr_db: signal-to-noise ratio, 10 log10(sum a^2 / sum (a-b)^2), in dB; infinite when equal.
        mismatched: elements outside tolerance, those that are excused included.
        total: elements compared.
        worst_index: where the tolerance is left furthest (in run `worst_run`), with both values.
        note: why it is not ok when it is not about values ("shape [2, 3] against [2, 4]").
        max_ulp: largest number of representable floats between a and b (float16 and float32), None elsewhere.
        nans, infinities: how many (in A, in B).
        top1: share of rows (along the last dim) whose largest element is at the same place; None for vectors.
        top_k: mean share of each row's `CompareReport.top_k` largest elements that are the same ones; None for rows
            that are no longer than that.
        error_decades: how many elements are exactly equal, then how many have an error in [1e-12, 1e-11) and so on
            up to [1e3, 1e4); smaller and larger ones count in the first and last decade.
        rtol, atol: this tensor's own tolerance; None when it has that of the report.
        given: `rtol` and `atol` are the user's own for this tensor: nothing widens them, and nothing is excused.
        excused: how many of the mismatched elements are no further off than rounding alone moves the reference.
        compared: False where the values could not be compared; `note` says why, and `ok` says nothing then.
        untested: why no run told anything of it: "random", "empty", "not finite", "zero" or "constant" (the same
            in every row) in every run; "" otherwise.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    ok: bool
    max_abs: float
    max_rel: float
    mean_abs: float
    cosine: float
    sqnr_db: float
    mismatched: int
    total: int
    worst_index: tuple[int, ...] | None = None
    worst_run: int = 0
    expected: Any = None
    actual: Any = None
    other_name: str | None = None
    note: str | None = None
    max_ulp: int | None = None
    nans: tuple[int, int] = (0, 0)
    infinities: tuple[int, int] = (0, 0)
    top1: float | None = None
    top_k: float | None = None
    error_decades: tuple[int, ...] = ()
    rtol: float | None = None
    atol: float | None = None
    excused: int = 0
    given: bool = False
    compared: bool = True
    untested: str = ""

    @property
    def why_not_tested(self) -> str:
        """In words, of an output that no run told anything of: "'y' was constant"."""
        return f"{self.name!r} was {self.untested or 'not compared'}"


@dataclass(frozen=True)
class Opinion:
    """What ONNX's reference implementation, run on A's graph, says of one output of both.

    Attributes:
        output: its name in A.
        a_ok, b_ok: within tolerance of the reference.
        a_max_abs, b_max_abs: largest distance from it.
    """

    output: str
    a_ok: bool
    b_ok: bool
    a_max_abs: float
    b_max_abs: float

    @property
    def summary(self) -> str:
        """In words."""
        if self.a_ok and self.b_ok:
            return "agrees with both"
        if self.a_ok or self.b_ok:
            return f"agrees with {'A' if self.a_ok else 'B'}, not with {'B' if self.a_ok else 'A'}"
        return "agrees with neither"


@dataclass(frozen=True, repr=False)
class CompareReport(Report, kind="compare"):
    """Two models on the same inputs.

    Attributes:
        a: what is taken as right.
        b: what is judged.
        outputs: one entry for each output, in A's order.
        runs: for each run, the shapes of the inputs.
        data: where the inputs came from ("random, seed 0" or a file).
        layers: the error along the depth, when it was asked for.
        opinions: what the reference implementation says, when it was asked.
        top_k: how many largest elements of a row `TensorDifference.top_k` looks at.
        coverage: what was tried beyond the usual inputs; None when nothing was.
        strict: what no input reached makes the verdict bad.
        counterexample: the input that shows the difference, when it is none of the usual ones.
        precision: B on the provider that it was run on, held against the CPU, where that is another.
        budget: what decided in place of equality, where B was said to be a quantized form of A; else "".
        rule: when two outputs count as equal, as it was applied, in a line (docs/equality.md).
        certificate: whether both are the same real function, where both are ONNX files that agree on the usual inputs.
        require: the verdict that is good: "tested", or nothing less than "certified".
    """

    computed: ClassVar[tuple[str, ...]] = ("verdict",)

    a: str
    b: str
    outputs: tuple[TensorDifference, ...]
    runs: tuple[Mapping[str, tuple[int, ...]], ...]
    data: str
    rtol: float
    atol: float
    warnings: tuple[str, ...] = ()
    layers: Layers | None = None
    opinions: tuple[Opinion, ...] = ()
    top_k: int = 5
    coverage: Coverage | None = None
    counterexample: Counterexample | None = None
    strict: bool = False
    rule: str = ""
    budget: str = ""
    precision: ProviderProof | None = None
    certificate: CertificateReport | None = None
    require: str = "tested"

    @property
    def ok(self) -> bool:
        """True when outputs are within tolerance, as required, and every branch was run with `strict`."""
        if not suffices(self.verdict, self.require):
            return False
        return self.equal and not (self.strict and self.coverage is not None and bool(self.coverage.unreached))

    @property
    def differs(self) -> bool:
        """True when an output is outside the tolerance; False, too, where nothing could be compared."""
        return not all(o.ok for o in self.outputs)

    @property
    def equal(self) -> bool:
        """True when outputs are within tolerance on every input, and something is known of each that is random."""
        return not (self.differs or self.nothing_compared or self.unjudged or self.unlike_unreached)

    @property
    def unlike_unreached(self) -> tuple[Branch, ...]:
        """Branches of both models that no run took, where exact arithmetic does not find the same function: it may be
        another one there, unless all that was changed is a branch that did run.
        """
        if self.certificate is None or not self.certificate.unlike or self.coverage is None:
            return ()
        parts, change = tuple(b for b in self.coverage.unreached if b.part in BRANCHES), self.certificate.change
        if "_branch' of" in change and not any(b.part.replace(" ", "_") in change for b in parts):
            return ()
        return parts if len({b.model for b in parts}) > 1 else ()

    @property
    def unjudged(self) -> tuple[TensorDifference, ...]:
        """The outputs that depend on random numbers, where no certificate shows that both models draw alike."""
        certified = self.certificate is not None and self.certificate.ok
        return () if certified else self.not_compared

    @property
    def nothing_compared(self) -> bool:
        """True when no number was: every output is random, empty, or never finite."""
        return len(self.uninformed) == len(self.outputs)

    @property
    def not_tested(self) -> tuple[TensorDifference, ...]:
        """The outputs that no run told anything of."""
        return tuple(o for o in self.outputs if o.untested or not o.compared)

    @property
    def uninformed(self) -> tuple[TensorDifference, ...]:
        """The outputs that were random, empty or not finite in every run, so that equal outputs mean nothing."""
        return tuple(o for o in self.outputs if not o.compared or o.untested in ("random", "empty", "not finite"))

    @property
    def verdict(self) -> Verdict:
        """In a word: the same real function, no counterexample found, one found, or no run told of some output."""
        if self.differs:
            return "different"
        if self.certificate is not None and self.certificate.ok:
            return "certified"
        return "not tested" if self.not_tested or not self.outputs or self.unlike_unreached else "tested"

    @property
    def is_untold(self) -> bool:
        """True when nothing was told of an output of numbers, or of any output at all.

        A label, a count or a mask may well be the same in every run, beside outputs that were not.
        """
        if self.verdict != "not tested":
            return False
        choices = [o for o in self.not_tested if o.untested == "constant" and "float" not in o.dtype]
        return len(choices) < len(self.not_tested) or len(choices) == len(self.outputs)

    @property
    def compared(self) -> tuple[TensorDifference, ...]:
        """The outputs whose values were compared."""
        return tuple(o for o in self.outputs if o.compared)

    @property
    def not_compared(self) -> tuple[TensorDifference, ...]:
        """The others: those that depend on what is drawn at random."""
        return tuple(o for o in self.outputs if not o.compared)

    @property
    def worst(self) -> TensorDifference | None:
        """The output that is furthest off: a failed one first, then by relative error."""
        return max(self.outputs, key=lambda o: (not o.ok, o.max_abs), default=None)
