"""Are two models equal? The one judgement that convert, optimize, quantize, compare and compare --layers share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.equality.rule.difference import Difference
from onnxtool.equality.rule.rounding import RoundingNoise
from onnxtool.equality.rule.ties import TiedScores
from onnxtool.equality.rule.tolerance import Tolerance, rule_text
from onnxtool.errors import InputError, UsageError
from onnxtool.report.compare import CompareReport
from onnxtool.runtime.flatten_outputs import flatten

if TYPE_CHECKING:
    import onnx_ir as ir

Feeds = Mapping[str, np.ndarray]
_HALF = ("float16", "bfloat16")
# A quantized output that varies by fewer of its rounding steps proves little.
_TELLING = 10
NOT_COMPARED = "not compared: random, varies from run to run"


@dataclass(frozen=True)
class Evidence:
    """What is known of the reference, beside its outputs.

    Attributes:
        noise: the reference with other roundings.
        ties: the reference's scores where its outputs are indices of the largest.
        precision: the half-precision type that it computes in ("float16", "bfloat16").
        quantized: its outputs that are rounded to steps -> how far those may be off, in their own units.
        declared: its outputs -> the element types that they are to have, of a framework model, which may compute in
            wider ones; None where the types that it gives count.
        kernel_errors: its outputs -> how far the runtime's own kernel may be off in them, in their units.
    """

    noise: RoundingNoise | None = None
    ties: TiedScores | None = None
    precision: str | None = None
    quantized: Mapping[str, float] | None = None
    declared: Mapping[str, str] | None = None
    kernel_errors: Mapping[str, float] = field(default_factory=dict)

    def off(self, name: str) -> float:
        """How far an output may be off in its own units, whatever the model computes."""
        return (self.quantized or {}).get(name, self.kernel_errors.get(name, 0.0))


class EquivalenceCheck:
    """Takes in what two models gave on the same inputs, run by run, and says whether they are equal.

    Args:
        tolerance: for floats.
        evidence: what is known of the reference.
        own: tolerances of single outputs, by their name in the reference.
        names: how to call the two in the report.
        top_k: how many largest elements of each row are held against each other.
    """

    def __init__(
        self,
        tolerance: Tolerance,
        evidence: Evidence = Evidence(),
        *,
        own: Mapping[str, Tolerance] | None = None,
        names: tuple[str, str] = ("A", "B"),
        top_k: int = 5,
    ) -> None:
        self._tolerance, self._evidence, self._names, self._top_k = tolerance, evidence, names, top_k
        self._own = {name: replace(given, alone=True) for name, given in (own or {}).items()}
        self._differences: dict[str, Difference] = {}
        self._renamed: dict[str, str] = {}
        self._spread: dict[str, tuple[float, float]] = {}
        self._filled: set[str] = set()
        self._shapes: list[dict[str, tuple[int, ...]]] = []

    def add(self, feeds: Feeds, expected: Mapping[str, Any], actual: Mapping[str, Any]) -> None:
        """Take in one run.

        Args:
            feeds: in the reference's names.
            expected: what the reference gave; sequences and maps are taken apart.
            actual: what is judged.

        Raises:
            InputError: the two have other outputs.
        """
        self._shapes.append({name: tuple(np.shape(array)) for name, array in feeds.items()})
        left, right = flatten(expected), flatten(actual)
        if not self._renamed:
            self._renamed = match_names(list(left), list(right), "outputs")
        for name, array in left.items():
            if name not in self._renamed:  # a sequence that is longer in this run
                self._renamed[name] = name
            other = self._renamed[name]
            if other not in right:
                raise InputError(f"output {name!r} is there in {self._names[0]} only.")
            self._add_output(feeds, name, np.asarray(array), np.asarray(right[other]))

    def _add_output(self, feeds: Feeds, name: str, a: np.ndarray, b: np.ndarray) -> None:
        evidence = self._evidence
        entry = self._differences.get(name)
        if entry is None:
            declared = None if evidence.declared is None else evidence.declared.get(name, "")
            entry = Difference(
                name,
                self._tolerance_of(name),
                top_k=self._top_k,
                precision=evidence.precision,
                declared=declared,
            )
            self._differences[name] = entry
        if a.size:
            self._filled.add(name)
            if evidence.off(name):
                low, high = self._spread.get(name, (np.inf, -np.inf))
                self._spread[name] = min(low, float(a.min())), max(high, float(a.max()))
        noise = None if name in self._own else evidence.noise
        again = None if noise is None else partial(_again, noise, feeds, name)
        before = entry.mismatched
        entry.add(a, b, again)
        ties = None if name in self._own else evidence.ties
        if entry.mismatched > before and ties is not None and a.dtype.kind in "iu" and a.shape == b.shape:
            entry.excuse_ties(ties.excused(feeds, name, a, b))

    def _tolerance_of(self, name: str) -> Tolerance:
        if name in self._own:
            return self._own[name]
        off = (self._evidence.quantized or {}).get(name)
        if off is None or self._tolerance.bits:
            error = self._evidence.kernel_errors.get(name, 0.0)  # nothing is allowed where bits count
            return replace(self._tolerance, least=max(self._tolerance.least, error))
        # A float output is a step times an integer, rounded.
        atol = self._tolerance.atol
        return Tolerance(self._tolerance.rtol, max(atol, 1.0001 * off), int(max(atol, off)), absolute=True)

    def report(self, data: str = "given feeds") -> CompareReport:
        """The verdict on all runs so far.

        Args:
            data: where the feeds came from.

        Raises:
            UsageError: a tolerance names no output.
            InputError: there was no run.
        """
        if not self._shapes:
            raise InputError("there is no input data to compare on.")
        unknown = [name for name in self._own if name not in self._differences]
        if unknown:
            raise UsageError(f"there is no output {unknown[0]!r}; the model gives {', '.join(self._differences)}.")
        applied = self._tolerance.widened(self._evidence.precision)
        outputs = []
        for name, entry in self._differences.items():
            item = entry.result(self._renamed[name] if self._renamed[name] != name else None)
            own = self._tolerance_of(name)
            same = not own.alone and (own.rtol, own.atol) == (self._tolerance.rtol, self._tolerance.atol)
            outputs.append(item if same else replace(item, rtol=own.rtol, atol=own.atol, given=own.alone))
        return CompareReport(
            a=self._names[0],
            b=self._names[1],
            outputs=tuple(outputs),
            runs=tuple(self._shapes),
            data=data,
            rtol=applied.rtol,
            atol=applied.atol,
            warnings=tuple(self._warnings()),
            top_k=self._top_k,
            rule=rule_text(self._tolerance, self._evidence.precision, self._kernel_error()),
        )

    def _kernel_error(self) -> float:
        """The largest error of the runtime's own kernels that was allowed for."""
        if self._tolerance.bits:
            return 0.0
        own = [self._tolerance_of(n).least for n in self._differences if self._evidence.kernel_errors.get(n)]
        return max(own, default=0.0)

    def _warnings(self) -> list[str]:
        """What the comparison did not prove."""
        found = list(empty_outputs(n for n in self._differences if n not in self._filled))
        numbers = [d for d in self._differences.values() if d.total and not d.note and is_float(d.dtype)]
        never = [d.name for d in numbers if not d.finite]
        if never:
            found.append(
                f"{_listed(never)} had no finite number in any run, so its values were not compared; give --data."
            )
        zero = [d.name for d in numbers if d.finite and d.is_zero]
        if zero:
            found.append(f"{_listed(zero)} was zero in every run, which proves little; give --data.")
        for name, (low, high) in self._spread.items():
            off = self._evidence.off(name)
            if high - low < _TELLING * off:
                found.append(f"output {name} varies by {high - low:.3g} only: within {off:.3g} that proves little")
        return found


def _again(noise: RoundingNoise, feeds: Feeds, name: str) -> Any:
    return noise.outputs(feeds).get(name)


def is_float(dtype: str) -> bool:
    """Whether a type is judged with a tolerance."""
    return "float" in dtype or "complex" in dtype


def empty_outputs(names: Iterable[str]) -> tuple[str, ...]:
    """A warning on outputs that had no element in any run: a detector that found nothing, say."""
    listed = _listed(names)
    return (f"{listed} had no elements in any run, so nothing was compared; give inputs that fill it.",) * bool(listed)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(n) for n in names)


def match_names(a: Sequence[str], b: Sequence[str], what: str) -> dict[str, str]:
    """Name in A -> name in B: by name, or by position when the names share nothing.

    Raises:
        InputError: neither works.
    """
    if set(a) == set(b) or (set(a) <= set(b) and what == "inputs"):
        return {name: name for name in a}
    if len(a) == len(b):
        shared = set(a) & set(b)
        rest = iter([n for n in b if n not in shared])
        return {name: name if name in shared else next(rest) for name in a}
    raise InputError(f"the two models have other {what}: {', '.join(a)} against {', '.join(b)}.")


def precision_of(model: ir.Model) -> str | None:
    """The half-precision type that a model computes in; None for float32 and wider.

    It shows in the types of its inputs, outputs and weights, and in casts.
    """
    found: set[str] = set()
    for value in (*model.graph.inputs, *model.graph.outputs):
        found.add(value.dtype.name if value.dtype is not None else "")
    for graph in model.graphs():
        for value in graph.initializers.values():
            found.add(value.const_value.dtype.name if value.const_value is not None else "")
        for node in graph:
            to = node.attributes.get("to") if node.op_type == "Cast" else None
            found.add({10: "FLOAT16", 16: "BFLOAT16"}.get(to.as_int() if to is not None else 0, ""))
    wide = [name for name in reversed(_HALF) if name.upper() in found]
    return wide[0] if wide else None
