"""`compare --layers`: run two models with every tensor in sight, and find the first one that is wrong."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool import progress
from onnxtool.equality.equivalence_check import match_names
from onnxtool.equality.layers import tensor_stream
from onnxtool.equality.layers.graph import LayerGraph
from onnxtool.equality.layers.locate_wrong_node import Measured, judge
from onnxtool.equality.layers.tensor_stream import TensorStream, sketch
from onnxtool.equality.reference import precision_of
from onnxtool.equality.rule.difference import agrees
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.model.ir.queries import input_specs
from onnxtool.report.layers import Layers
from onnxtool.runtime.session.session import EXACT, SessionOptions

Sides = tuple[TensorStream, TensorStream]


def compare_layers(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    feeds: Mapping[str, np.ndarray],
    tolerance: Tolerance,
    options: SessionOptions = EXACT,
) -> Layers:
    """Compare all tensors of two ONNX models in one run, and name the first that is wrong.

    Tensors are matched by name, and by value where names differ (a fusion may have renamed them). The runtime's own
    optimizations are off: it would fuse the tensors away. Memory is bounded: the graphs run part by part, see
    `Side.stream`.

    Args:
        a: the reference.
        b: what is judged.
        feeds: inputs in A's names.
        tolerance: for floats.
        options: provider, threads and custom-operator libraries.

    Raises:
        InputError: a model cannot be read, or fails to run.
    """
    exact = replace(options, optimization="off")
    return compare_sides(open_sides(Path(a), Path(b), feeds, exact), tolerance)


def open_sides(a: Path, b: Path, feeds: Mapping[str, np.ndarray], options: SessionOptions) -> Sides:
    """Two models, ready to be run with any of their tensors as outputs."""
    left = TensorStream.open(a, feeds, options)
    right = TensorStream.open(b, {}, options)
    inputs = match_names(list(feeds), [s.name for s in input_specs(right.graph.model)], "inputs")
    right.feeds = {inputs[n]: array for n, array in feeds.items() if n in inputs}
    right.sizes = left.sizes  # partners are as large, and the others are few
    return left, right


def compare_sides(sides: Sides, tolerance: Tolerance, accepted: Collection[str] = ()) -> Layers:
    """As `compare_layers`, of models that are open already.

    Args:
        sides: A and B.
        tolerance: for floats.
        accepted: A's outputs that were compared already, on more runs and beside A's own rounding, and found equal.
    """
    left, right = sides
    partners = _partners(left.graph, right.graph)
    precision = precision_of(left.graph.model)
    measured: dict[str, Measured] = {}
    with progress.task("comparing layers", len(right.graph.producers)) as task:
        reference = _Reference(left, Counter(partners.values()))
        for y, value in right.stream():
            x = partners.get(y)
            if x is None:
                _sketch(right, y, value)
            elif reference.advance_to(x):
                _note(measured, y, measure(reference.take(x), value, tolerance, precision))
            task.advance()
        reference.finish()
        missed = [y for y, x in partners.items() if x in reference.dropped and y not in measured]
        for group in right.groups(missed, tensor_stream.MEMORY // 4):
            ours, theirs = left.fetch([partners[y] for y in group]), right.fetch(group)
            for y in group:
                _note(measured, y, measure(ours.get(partners[y]), theirs.get(y), tolerance, precision))
    measured |= {y: replace(m, ok=True) for y, m in measured.items() if partners[y] in accepted and not m.other}
    by_value = _match_by_value(left, right)
    return judge(left.graph, right.graph, measured, partners, by_value, max(left.parts, right.parts))


def _note(measured: dict[str, Measured], name: str, found: Measured | None) -> None:
    if found is not None:
        measured[name] = found


class _Reference:
    """A's tensors as they come, held until their partners in B come too."""

    def __init__(self, side: TensorStream, awaited: Counter[str]) -> None:
        self._side, self._awaited = side, awaited
        self._stream = side.stream()
        self._held: dict[str, Any] = {}
        self._bytes = 0
        self.dropped: set[str] = set()

    def advance_to(self, name: str) -> bool:
        """Go on until this tensor is held; False when it was dropped for want of memory, or never comes."""
        while name not in self._held and name not in self.dropped and self._step():
            pass
        return name in self._held

    def take(self, name: str) -> Any:
        """The tensor; it is let go after its last partner."""
        self._awaited[name] -= 1
        value = self._held[name]
        if self._awaited[name] <= 0:
            self._let_go(name)
        return value

    def finish(self) -> None:
        """Run the rest, for what has no partner."""
        while self._step():
            pass

    def _step(self) -> bool:
        for name, value in self._stream:
            if self._awaited[name] <= 0:
                _sketch(self._side, name, value)
                return True
            # The other model runs its nodes in another order: what does not fit is fetched again at the end.
            while self._held and self._bytes + _bytes_of(value) > tensor_stream.MEMORY // 4:
                oldest = next(iter(self._held))
                self._let_go(oldest)
                self.dropped.add(oldest)
            self._held[name] = value
            self._bytes += _bytes_of(value)
            return True
        return False

    def _let_go(self, name: str) -> None:
        self._bytes -= _bytes_of(self._held.pop(name))


def _bytes_of(value: Any) -> int:
    return value.nbytes if isinstance(value, np.ndarray) else 0


def _partners(a: LayerGraph, b: LayerGraph) -> dict[str, str]:
    """B's tensor -> A's tensor, by name; outputs that were renamed by position."""
    outputs = match_names(a.output_names(a.model), b.output_names(b.model), "outputs")
    partners = {name: name for name in b.producers if name in a.producers}
    partners |= {y: x for x, y in outputs.items() if x in a.producers and y in b.producers}
    return partners


def measure(expected: Any, actual: Any, tolerance: Tolerance, precision: str | None = None) -> Measured | None:
    """How far a tensor of B is from its partner in A; None when they are not tensors (sequences, maps).

    Args:
        expected: A's.
        actual: B's.
        tolerance: for floats.
        precision: the half-precision type that A computes in.
    """
    if not isinstance(expected, np.ndarray) or not isinstance(actual, np.ndarray):
        return None
    if expected.shape != actual.shape or (expected.dtype.kind in "OUS") != (actual.dtype.kind in "OUS"):
        return Measured(np.inf, np.inf, False, actual.shape, other=True)
    if expected.size == 0:
        return Measured(0.0, 0.0, True, actual.shape)
    if expected.dtype.kind in "OUSbiu" and actual.dtype.kind in "OUSbiu":
        return _exact(expected, actual)
    if (expected.dtype.kind in "biu") != (actual.dtype.kind in "biu"):
        return Measured(np.inf, np.inf, False, actual.shape, other=True)
    # float32 is enough for telling how far tensors are apart, and four times as fast as the care that a verdict takes.
    a, b = (x.astype(np.float32, copy=False).ravel() for x in (expected, actual))
    with np.errstate(all="ignore"):
        error = np.abs(a - b)
        finite = np.isfinite(a)
        if not finite.all() or not np.isfinite(error).all():
            error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.where(np.isnan(error), np.inf, error))
        largest = float(error.max())
        if largest == 0:
            return Measured(0.0, 0.0, True, actual.shape)
        # Within the relative tolerance alone: no need to look at columns.
        near = largest < np.inf and bool((error <= 0.99 * tolerance.rtol * np.abs(a)).all())
        ok = near or agrees(expected, actual, tolerance, precision)
        relative = _relative(error[finite], a[finite]) if largest < np.inf else np.inf
        return Measured(largest, relative, ok, actual.shape)


def _relative(error: np.ndarray, a: np.ndarray) -> float:
    """Ratio of the 2-norms; in float64 only where float32 leaves its range."""
    noise, norm = float(np.dot(error, error)), float(np.dot(a, a))
    if not (0 < noise < np.inf and 0 < norm < np.inf):
        noise = float(np.dot(error.astype(np.float64), error.astype(np.float64)))
        norm = float(np.dot(a.astype(np.float64), a.astype(np.float64)))
    return math.sqrt(noise / norm) if norm > 0 else math.inf


def _exact(expected: np.ndarray, actual: np.ndarray) -> Measured:
    different = int(np.count_nonzero(expected != actual))
    if expected.dtype.kind in "OUS":
        largest = np.inf if different else 0.0
    else:
        largest = float(np.abs(expected.astype(np.float64) - actual.astype(np.float64)).max())
    return Measured(largest, different / expected.size, different == 0, actual.shape)


def _sketch(side: TensorStream, name: str, value: Any) -> None:
    found = sketch(value)
    if found is not None:
        side.sketches[name] = found


def _match_by_value(left: TensorStream, right: TensorStream) -> dict[str, str]:
    """B's tensor -> A's tensor of the same shape and, as far as the sketches tell, the same content."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for y, ours in right.sketches.items():
        for x, other in left.sketches.items():
            if x not in taken and ours.shape == other.shape and ours.distance(other) <= 1:
                found[y] = x
                taken.add(x)
                break
    return found
