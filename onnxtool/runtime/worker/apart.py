"""Runs that may end the process, or take all of its memory, happen in a child: of inputs that nobody gave."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.errors import InputError, ResourceError, UnsupportedError
from onnxtool.model import io
from onnxtool.model.domains import input_domains
from onnxtool.model.ir.editing import inlined
from onnxtool.model.ir.queries import all_nodes, bodies_of, constant_array
from onnxtool.model.operators.table import STANDARD, operator_of
from onnxtool.options.session import SessionOptions
from onnxtool.runtime.empty_inputs import runs_safely
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.probes import find_probes
from onnxtool.runtime.runner import Runner, closing
from onnxtool.runtime.worker.errors import WorkerDiedError, WorkerTimeoutError
from onnxtool.runtime.worker.isolation import is_supervised
from onnxtool.runtime.worker.worker import TrialWorker

_SMALL_SIZE = 16  # whatever is made of a few sizes up to this fits into memory
_MOST_TURNS = 1 << 20
_SECONDS = 2.0
_LARGE = 1024  # sizes from here on are tried where smaller ones do not fit, and some models take their square
_EXTREME = 2**31 - 1  # beyond it, the quotient of two integers may be none


@dataclass(frozen=True)
class Risks:
    """Inputs that native code may die of, as far as a graph tells, beside those without elements.

    Attributes:
        sizes: inputs that say how large something inside is.
        extremes: integers are divided, which for the smallest by -1 is a fault of the processor.
        endless: values decide when a loop ends, and nothing else does.
        open: dims without a size, as input and axis, where nothing else bounds the memory that a large size takes.
    """

    sizes: frozenset[str] = frozenset()
    extremes: bool = False
    endless: bool = False
    open: frozenset[tuple[str, int]] = frozenset()

    def meets(self, feeds: Feeds) -> bool:
        """Whether inputs are of such a kind."""
        if self.endless:
            return True
        for name, array in feeds.items():
            if not isinstance(array, np.ndarray):
                continue
            if any(size >= _LARGE and (name, axis) in self.open for axis, size in enumerate(array.shape)):
                return True
            if not array.size:
                return True
            if array.dtype.kind in "iu" or name in self.sizes:
                largest = max(abs(array.min().item()), abs(array.max().item()))
                if name in self.sizes and not largest <= _SMALL_SIZE:
                    return True
                if self.extremes and array.dtype.kind in "iu" and largest >= _EXTREME:
                    return True
        return False


class _Fatal:
    """A Runner in a child, whose death is no refusal of inputs."""

    def __init__(self, worker: TrialWorker) -> None:
        self.inputs, self.outputs, self._worker = worker.inputs, worker.outputs, worker

    def run(self, feeds: Feeds) -> dict[str, Any]:
        """One forward pass."""
        try:
            return self._worker.run(feeds)
        except WorkerDiedError as error:
            raise _ChildDiedError(str(error)) from error


class _ChildDiedError(Exception):
    pass


def try_in_child(model: str | os.PathLike[str], options: SessionOptions, seed: int = 0, *, runs: bool = True) -> None:
    """Load a model in a child and run it on random inputs, where its death would end a program that imported this.

    A command on the command line is watched from outside; models of well-known operators without loops are not tried.

    Args:
        model: the file.
        options: how it is run.
        seed: of the inputs, which are the first that a proof takes.
        runs: load and run it; else only load.

    Raises:
        InputError: the child died.
        ResourceError: at every size it took more time or memory than a run may.
    """
    if is_supervised() or runs_safely(model):
        return
    worker = TrialWorker(model, options)
    with closing(worker):
        try:
            if runs:
                with suppress(InputError, UnsupportedError):  # what it does not take
                    find_probes(_Fatal(worker), worker.inputs, seed, input_domains(io.load(Path(model))))
        except _ChildDiedError as error:
            raise InputError(f"{model}: {error} It was run on random inputs; give real ones with data.") from error
        except ResourceError as error:
            raise ResourceError(f"{model}: {error}") from error


def risks_of(models: Iterable[ir.Model]) -> Risks:
    """Read them off graphs; the models must be kept as they are by whoever asks."""
    found = Risks()
    for model in models:
        model = inlined(model) if model.functions else model  # noqa: PLW2901
        nodes = list(all_nodes(model))
        found = Risks(
            found.sizes | _sizing_inputs(model, nodes),
            found.extremes or any(n.op_type in ("Div", "Mod") and n.domain in STANDARD for n in nodes),
            found.endless or any(n.op_type == "Loop" and n.domain in STANDARD and _may_not_end(n) for n in nodes),
            found.open if is_supervised() else found.open | _open_dims(model),
        )
    return found


def _open_dims(model: ir.Model) -> frozenset[tuple[str, int]]:
    dims = ((v.name or "", axis, dim) for v in model.graph.inputs for axis, dim in enumerate(v.shape or ()))
    return frozenset((name, axis) for name, axis, dim in dims if not isinstance(dim, int))


def _sizing_inputs(model: ir.Model, nodes: Sequence[ir.Node]) -> frozenset[str]:
    """Inputs from which a path leads to an operand that is a size: a number of elements, or a factor of it."""
    stack = [n.inputs[p] for n in nodes for p in operator_of(n).sizes if p < len(n.inputs)]
    stack += [value for n in nodes if n.op_identifier() in model.functions for value in n.inputs]
    fed = {v: node.inputs for node in nodes for body in bodies_of(node) for v in body.inputs}
    seen: set[ir.Value] = set()
    while stack:
        value = stack.pop()
        if value is None or value in seen:
            continue
        seen.add(value)
        node = value.producer()
        if node is not None and node.op_type not in ("Shape", "Size"):
            stack += [*node.inputs, *(v for body in bodies_of(node) for v in body.outputs)]
        stack += fed.get(value, ())
    numbers = (v for v in model.graph.inputs if v in seen and v.dtype is not None and v.dtype != ir.DataType.STRING)
    return frozenset(v.name or "" for v in numbers if v.dtype != ir.DataType.BOOL)


def _may_not_end(loop: ir.Node) -> bool:
    """Without a number of turns, or with one that is as good as none."""
    turns = constant_array(loop.inputs[0])
    return loop.inputs[0] is None or (turns is not None and turns.size == 1 and turns.item() > _MOST_TURNS)


class Apart:
    """A Runner: usual inputs run in this process, those that it may die of in a child, started when it is needed.

    Args:
        runner: of the model, in this process.
        model: what the child loads.
        options: how it is run.
        risks: which inputs go to the child.
    """

    def __init__(
        self, runner: Runner, model: str | os.PathLike[str] | ir.Model, options: SessionOptions, risks: Risks
    ) -> None:
        self.inputs, self.outputs = runner.inputs, runner.outputs
        self._runner, self._model, self._options, self._risks = runner, model, options, risks
        self._worker: TrialWorker | None = None
        self._seconds: float | None = None  # for a run; little once one did not end

    def run(self, feeds: Feeds) -> dict[str, Any]:
        """One forward pass.

        Raises:
            InputError: the model does not take these inputs; its process may have died of them.
            ResourceError: it took more time or memory than a run may.
        """
        if not self._risks.meets(feeds):
            return self._runner.run(feeds)
        if self._worker is None:
            model = self._model
            source = io.to_bytes(model) if isinstance(model, ir.Model) else model
            self._worker = TrialWorker(source, self._options)
        try:
            return self._worker.run(feeds, self._seconds)
        except WorkerTimeoutError:
            self._seconds = _SECONDS
            raise
