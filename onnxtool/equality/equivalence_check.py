"""Are two models equal? The one judgement that convert, optimize, quantize, compare and compare --layers share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from onnxtool.equality.reference import Answers, Reference
from onnxtool.equality.rule.difference import Difference
from onnxtool.equality.rule.movement import Movement
from onnxtool.equality.rule.tolerance import Tolerance, rule_text
from onnxtool.errors import InputError, UsageError
from onnxtool.report.compare import CompareReport
from onnxtool.runtime.feeds import Feeds, flatten

# A quantized output that varies by fewer of its rounding steps proves little.
_TELLING = 10
NOT_COMPARED = "not compared: random, varies from run to run"


class EquivalenceCheck:
    """Takes in what two models gave on the same inputs, run by run, and says whether they are equal.

    Args:
        tolerance: for floats.
        reference: what the other is judged by; it is run here only where outputs differ.
        own: tolerances of single outputs, by their name in the reference.
        names: how to call the two in the report.
        top_k: how many largest elements of each row are held against each other.
        varying: outputs that depend on what is drawn at random: only their types and shapes are compared.
    """

    def __init__(
        self,
        tolerance: Tolerance,
        reference: Reference | None = None,
        *,
        own: Mapping[str, Tolerance] | None = None,
        names: tuple[str, str] = ("A", "B"),
        top_k: int = 5,
        varying: Collection[str] = (),
    ) -> None:
        self._tolerance, self._names, self._top_k, self._varying = tolerance, names, top_k, varying
        self._reference = reference or Reference(Answers())
        self._own = {name: replace(given, alone=True) for name, given in (own or {}).items()}
        self._differences: dict[str, Difference] = {}
        self._renamed: dict[str, str] = {}
        self._spread: dict[str, tuple[float, float]] = {}
        self._movements: dict[str, Movement] = {}
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
            a, b = np.asarray(array), np.asarray(right[other])
            if self._varies(name):
                a, b = np.zeros_like(a), np.zeros_like(b)
            self._add_output(feeds, name, (a, b), left)

    def _varies(self, name: str) -> bool:
        return name in self._varying or self._renamed[name] in self._varying

    def _add_output(
        self, feeds: Feeds, name: str, pair: tuple[np.ndarray, np.ndarray], expected: Mapping[str, Any]
    ) -> None:
        (a, b), reference = pair, self._reference
        entry = self._differences.get(name)
        if entry is None:
            declared = None if reference.declared is None else reference.declared.get(name, "")
            entry = Difference(
                name,
                self._tolerance_of(name),
                top_k=self._top_k,
                precision=reference.precision,
                declared=declared,
                usual_scale=reference.scales.get(name, 0.0),
            )
            self._differences[name] = entry
        if a.size:
            self._movements.setdefault(name, Movement()).add(a)
            if name in reference.quantized:
                low, high = self._spread.get(name, (np.inf, -np.inf))
                self._spread[name] = min(low, float(a.min())), max(high, float(a.max()))
        given = name in self._own  # then nothing is excused
        before = entry.mismatched
        if given:
            entry.add(a, b)
        else:
            again = partial(reference.rerounded_where_steady, feeds, name, expected)
            entry.add(a, b, again, partial(reference.judged_with_exact_kernels, feeds, name))
            reference.scales.setdefault(name, entry.largest_scale)
        ties = None if given else reference.ties
        if entry.mismatched > before and ties is not None and a.dtype.kind in "iu" and a.shape == b.shape:
            entry.excuse_ties(ties.excused(feeds, name, a, b))

    def _tolerance_of(self, name: str) -> Tolerance:
        if name in self._own:
            return self._own[name]
        off = self._reference.quantized.get(name)
        if off is None or self._tolerance.bits:
            return self._tolerance
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
        applied = self._tolerance.widened(self._reference.precision)
        outputs = []
        for name, entry in self._differences.items():
            item = entry.result(self._renamed[name] if self._renamed[name] != name else None)
            if self._varies(name) and item.ok:
                item = replace(item, compared=False, note=NOT_COMPARED)
            item = replace(item, untested=self._untested(name))
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
            rule=rule_text(self._tolerance, self._reference.precision),
        )

    def _untested(self, name: str) -> str:
        """Why no run told anything of an output."""
        entry = self._differences[name]
        if self._varies(name):
            return "random"
        if name not in self._movements:
            return "empty"
        if is_float(entry.dtype) and not entry.finite:
            return "not finite"
        if name in self._reference.fixed:
            return ""
        if is_float(entry.dtype) and entry.is_zero:
            return "zero"
        return "constant" if self._movements[name].is_constant else ""

    def _warnings(self) -> list[str]:
        """What the comparison did not prove."""
        entries = [d for d in self._differences.values() if not d.note]
        found = list(empty_outputs(d.name for d in self._differences.values() if self._untested(d.name) == "empty"))
        never = [d.name for d in entries if self._untested(d.name) == "not finite"]
        if never:
            found.append(
                f"{_listed(never)} had no finite number in any run, so its values were not compared; give real inputs."
            )
        zero = [d.name for d in entries if self._untested(d.name) == "zero"]
        if zero:
            found.append(f"{_listed(zero)} was zero in every run, which proves little; give real inputs.")
        for name, (low, high) in self._spread.items():
            off = self._reference.quantized[name]
            if high - low < _TELLING * off and name not in (*never, *zero):
                found.append(
                    f"{name!r} varied by {high - low:.3g} only, of which {off:.3g} may be rounding; that proves little."
                )
        return found


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
