"""The proof that a batch is one: N rows give what N runs of one row give."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.editing.resizing.resize_context import Resizing, node_label
from onnxtool.equality.certificate.independent_rows import RowDependence
from onnxtool.equality.certificate.models import certify_rows
from onnxtool.equality.proof import Proof
from onnxtool.equality.reference import Reference, precision_of
from onnxtool.equality.rule.difference import agrees
from onnxtool.equality.rule.exact_kernels import exact_kernels
from onnxtool.equality.rule.rounding import RoundingNoise
from onnxtool.equality.rule.rule import Rule
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.equality.trials.telling import telling_feeds
from onnxtool.errors import OnnxToolError
from onnxtool.model.domains import Domain, input_domains
from onnxtool.model.ir.queries import input_specs
from onnxtool.model.spec import TensorSpec
from onnxtool.report.compare import CompareReport
from onnxtool.report.proof import Assumption
from onnxtool.runtime.feeds import Feeds, flatten, random_feeds
from onnxtool.runtime.probes import Probe, find_probes
from onnxtool.runtime.runner import Runner

Axes = Mapping[str, int]
_QUICK = (2, 3)
_SOME = 100
_NODE = re.compile(r"Name:\s*'([^']*)'")
_ROWS = 3  # of such an input
_ROUGHLY = Tolerance(1e-2, 1e-2)  # where rounding alone moves an output further, it tells nothing


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
        axes: output -> the axis of the batch; None where it is the same for every row.
    """

    sizes: tuple[int, ...]
    runs: int = 0
    largest: float = 0.0
    axes: dict[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A batch, and what the model gives for each of its rows alone."""

    feeds: Feeds
    rows: Sequence[Mapping[str, Any]]


class OneByOne:
    """A Runner: a model runs on each row of a batch alone, and its outputs are put together the way a batch has them.

    Args:
        model: with a fixed batch.
        batch: input -> axis of the batch.
        old: the fixed batch; a row is given as often.
        axes: output -> axis of the batch; None where every row must give the same.
    """

    def __init__(self, model: Runner, batch: Axes, old: int, axes: Mapping[str, int | None] | None = None) -> None:
        self.inputs, self.outputs = model.inputs, model.outputs
        self._model, self._batch, self._old, self.axes = model, batch, old, dict(axes or {})

    def rows(self, feeds: Feeds) -> list[dict[str, Any]]:
        """What it gives for each row."""
        (size,) = {np.shape(feeds[name])[axis] for name, axis in self._batch.items()}
        return [flatten(self._model.run(self._row(feeds, row))) for row in range(size)]

    def _row(self, feeds: Feeds, row: int) -> Feeds:
        return {
            n: np.repeat(np.take(a, [row], self._batch[n]), self._old, self._batch[n]) if n in self._batch else a
            for n, a in feeds.items()
        }

    def joined(self, rows: Sequence[Mapping[str, Any]], first: int = 0) -> dict[str, Any]:
        """The rows as one batch; of outputs without an axis, the row `first`."""
        result = {}
        for name, axis in self.axes.items():
            arrays = [np.asarray(row[name]) for row in rows]
            if axis is None:
                result[name] = arrays[first]
            else:
                share = arrays[0].shape[axis] // self._old
                result[name] = np.concatenate([np.take(a, range(share), axis) for a in arrays], axis)
        return result

    def run(self, feeds: Feeds) -> dict[str, Any]:
        """What a batch has to give."""
        return self.joined(self.rows(feeds))


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
        self._before = context.runner(before)
        specs = input_specs(before)
        advice = "--no-verify takes the risk."
        probe = find_probes(self._before, specs, context.seed, self._domains, wanted=1, advice=advice)[0]
        self._open = [(s.name, i) for s in specs for i, d in enumerate(s.shape or ()) if not isinstance(d, int)]
        self._specs = [TensorSpec(s.name, s.dtype, tuple(np.shape(probe.feeds[s.name]))) for s in specs]
        self._widen_integers()
        self._cases: dict[int, Case] = {}
        self._telling: list[Case] | None = None
        self._silent: dict[str, str] = {}
        self._dependence = RowDependence("", decided=False)

    def dependence(self, after: ir.Model, state: Resizing) -> RowDependence:
        """What exact arithmetic says of the rows of a model whose batch is dynamic.

        They are held against the model as it was, or, where constants are computed that it has rounded, alone.
        """
        before, size = (after, 1) if state.rounded else (self._model, self.old)
        return certify_rows(before, after, self.batch, size)

    def trial(self, after: ir.Model, state: Resizing) -> Fault | None:
        """What is wrong with an attempt: two quick batches, and more where exact arithmetic cannot decide it."""
        fault = self.fault(after, _QUICK)
        if fault is None:
            self._dependence = self.dependence(after, state)
            if not self._dependence.decided:
                return self.fault(after, (), cases=self.telling())
        return fault

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

    def case(self, size: int) -> Case:
        """Inputs for a batch, and what the old model gives for each of its rows.

        Rows are as unlike as can be, unless exact arithmetic has shown that none matters to another: what is left to
        see then is how rows of silence round.
        """
        if size not in self._cases:
            feeds = self._draw(size)
            if size >= 4 and (self._dependence.reason or not self._dependence.decided):
                for name, axis in self.batch.items():
                    feeds[name] = _varied(feeds[name], axis, self._domains.get(name))
            case = self._run(feeds)
            if size >= 4 and not self._is_steady(case):
                case = self._run(self._draw(size))
            self._cases[size] = case
        return self._cases[size]

    def _is_steady(self, case: Case) -> bool:
        """Whether rounding leaves the outputs as they are: silence, normalized, is nothing but rounding."""
        again = OneByOne(self._rerounded(), self.batch, self.old).rows(case.feeds)
        pairs = ((row[name], other[name]) for row, other in zip(case.rows, again, strict=True) for name in row)
        return all(np.shape(a) == np.shape(b) and _same(np.asarray(a), np.asarray(b), _ROUGHLY) for a, b in pairs)

    def _rerounded(self) -> Runner:
        """The model as it was, with the runtime's optimizations, on one thread."""
        return self.context.runner(self._model, replace(self.context.options, optimization="all", threads=1))

    def _run(self, feeds: Feeds) -> Case:
        rows = OneByOne(self._before, self.batch, self.old).rows(feeds)
        return Case(feeds, [{n: copy.copy(a) for n, a in row.items()} for row in rows])

    def _draw(self, size: int) -> dict[str, np.ndarray]:
        return random_feeds(self._sized(size), self.context.seed + size, domains=self._domains)

    def _sized(self, size: int) -> list[TensorSpec]:
        """The inputs with a batch of this size."""
        return [
            replace(s, shape=tuple(size if self.batch.get(s.name) == i else d for i, d in enumerate(s.shape or ())))
            for s in self._specs
        ]

    # -- inputs that tell something -------------------------------------------------------------------------

    def telling(self) -> list[Case]:
        """Inputs for which every output is finite and another one for each row, as far as such are found.

        An output that is alike in every row, empty or not a number is the same whatever becomes of the rows.
        """
        if self._telling is None:
            self._telling, self._silent = [], {}
            told = {name: _silence(self.case(_ROWS), name) for name in self.case(_ROWS).rows[0]}
            self._silent = quiet = {name: why for name, why in told.items() if why}
            open_at = [(name, axis) for name, axis in self._open if self.batch.get(name) != axis]
            specs = self._sized(_ROWS)
            for feeds in telling_feeds(specs, open_at, self.context.seed, self._domains, self.batch) if quiet else ():
                try:
                    case = self._run(feeds)
                except OnnxToolError:
                    continue
                heard = [n for n in self._silent if n in case.rows[0] and not _silence(case, n)]
                if heard:
                    self._telling.append(case)
                    self._silent = {n: why for n, why in self._silent.items() if n not in heard}
                if not self._silent:
                    break
        return self._telling

    def assumptions(self, state: Resizing) -> list[Assumption]:
        """That the rows of the last trial are independent, where exact arithmetic does not show it and runs cannot.

        Args:
            state: of its rewriting, which has recorded the nodes that seem to mix rows.
        """
        claim = "each row of {} depends on its own row of the input alone"
        found = self._dependence
        suspects = list(dict.fromkeys(f"{node_label(n)} {why}" for n, why in state.suspects if n.graph is not None))
        blame = f"; {', '.join(suspects)}" if suspects else ""
        if not found.reason:
            return []
        if found.decided:
            return [Assumption(claim.format("an output"), "unproven", f"{found.reason}{blame}", found.node)]
        if suspects and not self._silent:
            return [Assumption(claim.format("an output"), "unproven", f"{found.reason}{blame}")]
        return [
            Assumption(claim.format(f"output {name!r}"), "unproven", f"in every run it was {why}{blame}")
            for name, why in self._silent.items()
        ]

    # -- judgement ------------------------------------------------------------------------------------------

    def final_fault(self, after: ir.Model, run: BatchRun) -> Fault | None:
        """What is wrong with the result, at all of a run's sizes and on the inputs that tell something."""
        return self.fault(after, run.sizes, run, self._telling or ())

    def fault(
        self, after: ir.Model, sizes: Sequence[int], run: BatchRun | None = None, cases: Sequence[Case] = ()
    ) -> Fault | None:
        """What is wrong with the model whose batch is dynamic; None when nothing is."""
        try:
            runner = self.context.runner(after)
        except OnnxToolError as error:
            return Fault(str(error), failing_node(error))
        axes: dict[str, int | None] = {}
        ordered = sorted(sizes, key=lambda s: s in (1, self.old))  # at these, no axis shows
        for size, given in (*((s, None) for s in ordered), *((len(c.rows), c) for c in cases)):
            try:
                case = given or self.case(size)
                actual = flatten(runner.run(case.feeds))
                if set(actual) != set(case.rows[0]):
                    return Fault("the outputs have other names", size=size)
                for name, array in actual.items():
                    rows = [np.asarray(r[name]) for r in case.rows]
                    told = f"output {name!r} has shape {list(np.shape(array))} for rows of {list(rows[0].shape)}"
                    if axes.get(name) is None:
                        axis, fits = batch_axis(np.asarray(array), rows, self.old)
                        if not fits:
                            return Fault(f"a batch of {size} gives something else than {size} runs: {told}", size=size)
                        if size not in (1, self.old):
                            axes[name] = axis
                report = self._compare(runner, case, {name: axes.get(name) for name in actual})
            except OnnxToolError as error:
                return Fault(f"a batch of {size} does not run: {error}", failing_node(error), size)
            for item in report.outputs:
                if not item.ok:
                    told = item.note or f"{item.expected} became {item.actual} (max abs {item.max_abs:.3g})"
                    reason = f"output {item.name!r} differs: {told}"
                    return Fault(f"a batch of {size} gives something else than {size} runs: {reason}", size=size)
            if run is not None:
                run.largest = max(run.largest, *(item.max_abs for item in report.outputs), 0.0)
                run.axes.update(axes)
                run.runs += 1 + size
        return None

    def _compare(self, runner: Runner, case: Case, axes: Mapping[str, int | None]) -> CompareReport:
        """A batch beside its rows; an output without an axis is held against each of them."""
        singly = partial(OneByOne, batch=self.batch, old=self.old, axes=axes)
        reference, noise = singly(self._before), RoundingNoise(lambda: singly(self._rerounded()))
        exact = exact_kernels(self._model, self._model.clone, self.context.options, singly)
        right = Reference(reference, noise, precision=precision_of(self._model), exact=exact)
        count = len(case.rows) if None in axes.values() else 1
        probes = [Probe(dict(case.feeds), reference.joined(case.rows, row)) for row in range(count)]
        rule = Rule(self.context.tolerance, names=("single rows", "the batch"))
        return Proof(right, probes, rule).judge_usual(runner)


def batch_axis(actual: np.ndarray, rows: Sequence[np.ndarray], old: int) -> tuple[int | None, bool]:
    """Along which axis an output holds the rows of a batch.

    Args:
        actual: what the batch gave.
        rows: what each row gave, repeated `old` times.
        old: the fixed batch of the model that gave the rows.

    Returns:
        (axis, fits): axis None when the output has the shape that it has for one row; fits False when no axis does.
    """
    first = rows[0].shape
    if any(r.shape != first for r in rows) or actual.ndim != len(first):
        return None, False
    differ = [axis for axis in range(actual.ndim) if actual.shape[axis] != first[axis]]
    if not differ:
        return None, True
    fits = len(differ) == 1 and first[differ[0]] % old == 0
    return differ[0], fits and actual.shape[differ[0]] == first[differ[0]] // old * len(rows)


def _silence(case: Case, name: str) -> str:
    """Why an output tells nothing of a batch: "empty"; "" where it does."""
    rows = [np.asarray(row[name]) for row in case.rows]
    if not any(r.size for r in rows):
        return "empty"
    if rows[0].dtype.kind in "fV" and not any(np.isfinite(r.astype(np.float64)).any() for r in rows):
        return "not a number"
    return "" if any(r.shape != rows[0].shape for r in rows) or _differ(rows) else "alike in every row"


def _differ(rows: Sequence[np.ndarray] | np.ndarray) -> bool:
    return any(not _same(rows[0], row) for row in rows[1:])


def _same(a: np.ndarray, b: np.ndarray, tolerance: Tolerance = Tolerance()) -> bool:  # noqa: B008  (frozen)
    return bool(np.array_equal(a, b)) if a.dtype.kind in "OUSbiu" else agrees(a, b, tolerance)


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


def failing_node(error: Exception) -> str:
    """The node that the runtime's message names."""
    found = _NODE.search(f"{error} {error.__cause__ or ''}")
    return found[1] if found else ""
