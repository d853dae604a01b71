"""The proof that a batch is one: N rows give what N runs of one row give."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.equality.rule.difference import Difference, agrees
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import InputError, OnnxToolError
from onnxtool.model.domains import Domain, input_domains
from onnxtool.model.ir.queries import input_specs
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds, Outputs, random_feeds
from onnxtool.runtime.flatten_outputs import flatten
from onnxtool.runtime.probes import find_probes
from onnxtool.runtime.runner import OnnxRunner

Axes = Mapping[str, int]
_SOME = 100
_NODE = re.compile(r"Name:\s*'([^']*)'")


@dataclass(frozen=True)
class Fault:
    """Why a batch is not one.

    Attributes:
        reason: one line.
        node: the node that fails, as the runtime names it; empty when it says none.
        size: the batch at which it showed.
    """

    reason: str
    node: str = ""
    size: int = 2


@dataclass
class BatchRun:
    """What was compared.

    Attributes:
        sizes: the batches.
        runs: how many runs of both models.
        largest: largest absolute difference of a float output.
        axes: output -> the axis of the batch; outputs without one are the same for every row.
    """

    sizes: tuple[int, ...]
    runs: int = 0
    largest: float = 0.0
    axes: dict[str, int] | None = None


class BatchProof:
    """Runs of the model as it was, one row at a time, to hold a batch against.

    Args:
        before: the model with the fixed batch.
        batch: input -> axis of the batch.
        old: the fixed size.
        context: how to run, tolerance, seed.

    Raises:
        InputError: the model itself does not run.
    """

    def __init__(self, before: ir.Model, batch: Axes, old: int, context: EditContext) -> None:
        self.batch, self.old, self.context = dict(batch), old, context
        self._domains = input_domains(before)
        self._model = before.clone()
        self._rounded: dict[int, list[Outputs]] = {}
        self._before = OnnxRunner.open(before, context.options)
        specs = input_specs(before)
        advice = "Nothing was written; --no-verify takes the risk."
        probe = find_probes(self._before, specs, context.seed, self._domains, wanted=1, advice=advice)[0]
        self._specs = [TensorSpec(s.name, s.dtype, tuple(np.shape(probe.feeds[s.name]))) for s in specs]
        self._widen_integers()
        self._cases: dict[int, tuple[Feeds, list[dict[str, Any]]]] = {}

    def _widen_integers(self) -> None:
        """Integers of which the graph says nothing lie in [0, 2) elsewhere; rows of few numbers are much alike."""
        open_at = {
            s.name: Domain(0, _SOME)
            for s in self._specs
            if isinstance(s.dtype, np.dtype) and s.dtype.kind in "iu" and s.shape and s.name not in self._domains
        }
        if not open_at:
            return
        wider = {**self._domains, **open_at}
        try:
            self._before.run(random_feeds(self._specs, self.context.seed, domains=wider))
        except OnnxToolError:
            return
        self._domains = wider

    def case(self, size: int) -> tuple[Feeds, list[dict[str, Any]]]:
        """Inputs for a batch, and what the old model gives for each of its rows."""
        if size not in self._cases:
            feeds = self._draw(size)
            rows = []
            for row in range(size):
                rows.append({n: _copied(a) for n, a in flatten(self._before.run(self._row(feeds, row))).items()})
            self._cases[size] = feeds, rows
        return self._cases[size]

    def _draw(self, size: int) -> Feeds:
        specs = []
        for spec in self._specs:
            dims = list(spec.shape or ())
            if spec.name in self.batch:
                dims[self.batch[spec.name]] = size
            specs.append(TensorSpec(spec.name, spec.dtype, tuple(dims)))
        feeds = random_feeds(specs, self.context.seed + size, domains=self._domains)
        if size >= 4:
            for name, axis in self.batch.items():
                feeds[name] = _varied(feeds[name], axis, self._domains.get(name))
        return feeds

    def fault(self, after: ir.Model, sizes: Sequence[int], run: BatchRun | None = None) -> Fault | None:
        """What is wrong with the model whose batch is dynamic; None when nothing is."""
        try:
            runner = OnnxRunner.open(after, self.context.options)
        except OnnxToolError as error:
            return Fault(str(error), failing_node(error))
        for size in sizes:
            try:
                feeds, rows = self.case(size)
                actual = flatten(runner.run(feeds))
            except InputError as error:
                return Fault(f"a batch of {size} does not run: {error}", failing_node(error), size)
            if set(actual) != set(rows[0]):
                return Fault("the outputs have other names", size=size)
            for name, array in actual.items():
                reason, axis, largest = self._judge(name, np.asarray(array), [np.asarray(r[name]) for r in rows])
                if reason:
                    return Fault(f"a batch of {size} gives something else than {size} runs: {reason}", size=size)
                if run is not None:
                    run.largest = max(run.largest, largest)
                    if axis is not None and run.axes is not None and size > 1:
                        run.axes[name] = axis
            if run is not None:
                run.runs += 1 + size
        return None

    def _rerounded(self, size: int) -> list[Outputs]:
        """What the old model gives for each row with other roundings: the runtime's optimizations, on one thread."""
        if size not in self._rounded:
            feeds, rows = self.case(size)
            options = replace(self.context.options, optimization="all", threads=1)
            try:
                other = OnnxRunner.open(self._model, options)
                self._rounded[size] = [flatten(other.run(self._row(feeds, row))) for row in range(len(rows))]
            except OnnxToolError:
                self._rounded[size] = []
        return self._rounded[size]

    def _again(self, name: str, actual: np.ndarray, size: int, row: int | None) -> Any:
        """An output with other roundings: of one row, or of the batch; None where it is not known."""
        rows = [np.asarray(outputs[name]) for outputs in self._rerounded(size)]
        if not rows:
            return None
        return rows[row] if row is not None else joined(actual, rows, self.old)[1]

    def _row(self, feeds: Feeds, row: int) -> Feeds:
        """One row of a batch, as often as the old model wants it."""
        return {
            n: np.repeat(np.take(a, [row], self.batch[n]), self.old, self.batch[n]) if n in self.batch else a
            for n, a in feeds.items()
        }

    def _judge(self, name: str, actual: np.ndarray, rows: list[np.ndarray]) -> tuple[str, int | None, float]:
        """(what is wrong, axis of the batch, largest difference) of one output."""
        axis, expected = joined(actual, rows, self.old)
        if expected is None:
            told = f"{list(actual.shape)} for rows of {list(rows[0].shape)}"
            return f"output {name!r} has shape {told}", None, 0.0
        together = axis is not None or len(rows) == 1
        for row, wanted in enumerate([expected] if together else rows):
            entry = Difference(name, self.context.tolerance)
            entry.add(wanted, actual, partial(self._again, name, actual, len(rows), None if together else row))
            if entry.note or entry.mismatched != entry.excused:
                told = entry.note or f"{entry.expected} became {entry.actual} (max abs {entry.max_abs:.3g})"
                return f"output {name!r} differs: {told}", axis, entry.max_abs
        return "", axis, entry.max_abs


def joined(actual: np.ndarray, rows: Sequence[np.ndarray], old: int) -> tuple[int | None, np.ndarray | None]:
    """The rows put together the way the batch has them.

    Args:
        actual: what the batch gave.
        rows: what each row gave, repeated `old` times.
        old: the fixed batch of the model that gave the rows.

    Returns:
        (axis, array): axis None when the output is the same for every row; array None when the shapes do not fit.
    """
    count, first = len(rows), rows[0]
    if any(r.shape != first.shape for r in rows) or actual.ndim != first.ndim:
        return None, None
    for axis in range(actual.ndim):
        others = [i for i in range(actual.ndim) if i != axis]
        if first.shape[axis] % old or not first.shape[axis]:
            continue
        share = first.shape[axis] // old
        if actual.shape[axis] != share * count or any(actual.shape[i] != first.shape[i] for i in others):
            continue
        if share * count == first.shape[axis] and count > 1 and old == 1:
            continue
        parts = [np.take(r, range(share), axis) for r in rows]
        whole = np.concatenate(parts, axis)
        if actual.shape != first.shape or np.array_equal(whole, actual) or count == old == 1:
            return axis, whole
        if count == old and not _same(first, actual):
            return axis, whole
    return (None, first) if actual.shape == first.shape else (None, None)


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.array_equal(a, b)) if a.dtype.kind in "OUSbiu" else agrees(a, b, Tolerance())


def _varied(array: np.ndarray, axis: int, domain: Domain | None) -> np.ndarray:
    """Rows of very different size: zeros, one number, large and small ones; what mixes rows shows."""
    if array.dtype.kind != "f" or domain is not None:
        return array
    result = np.moveaxis(array.copy(), axis, 0)
    result[0] = 0
    result[1] = 1
    result[2] *= 10
    result[3] *= np.asarray(0.01, array.dtype)
    return np.ascontiguousarray(np.moveaxis(result, 0, axis))


def _copied(value: Any) -> Any:
    return np.array(value) if isinstance(value, np.ndarray) else value


def failing_node(error: Exception) -> str:
    """The node that the runtime's message names."""
    found = _NODE.search(f"{error} {error.__cause__ or ''}")
    return found[1] if found else ""
