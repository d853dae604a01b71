"""The pipeline: passes in order, again and again until nothing changes, with an account of what each did."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import onnx_ir as ir

from onnxtool import progress
from onnxtool.errors import OnnxToolError
from onnxtool.model.operators.shape_inference import infer_shapes
from onnxtool.optimization.normalize import prepare
from onnxtool.optimization.pass_base import FaultyPassError, FinishingPass, Level, Pass, parse_level
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.registry import select
from onnxtool.optimization.type_inference import infer_types, may_repeat, message_bytes
from onnxtool.report.optimize import PassResult, PipelineResult

__all__ = ["Level", "Pass", "optimize_model", "run_passes"]

_MAX_ROUNDS = 30


def optimize_model(
    model: ir.Model,
    level: Level | str = Level.EXTENDED,
    *,
    only: Collection[str] | None = None,
    max_folded_bytes: int | None = None,
    exact: bool | None = None,
) -> PipelineResult:
    """Optimize a model in place. Nothing is read or written, and nothing is compared: see `optimization.optimize`.

    Inputs, outputs and their names stay as they are, dynamic dims too. Weights that no pass touches are not read
    from external data.

    Args:
        model: changed in place.
        level: how far to go.
        only: run just these passes; None runs all of the level.
        max_folded_bytes: how much larger than what it replaces a folded tensor may be; None lets no folding grow
            the file noticeably.
        exact: keep results equal to the last bit on the runtime without its own optimizations; None does so when all
            passes are of level basic.

    Returns:
        What each pass did.

    Raises:
        UsageError: an unknown level or pass.
        FaultyPassError: a pass raised an error; the model may be half rewritten.
    """
    level = parse_level(level)
    passes = select(level, only)
    if exact is None:
        exact = all(p.level is Level.BASIC for p in passes)
    size = message_bytes(model, shapes=True) if may_repeat(model) else 0
    budget = prepare(model)
    context = PassContext(
        model, max_folded_bytes=max_folded_bytes, growth_budget=budget, source_bytes=size, exact=exact
    )
    infer_types(model)
    return run_passes(model, passes, context, level)


def run_passes(model: ir.Model, passes: Collection[Pass], context: PassContext, level: Level) -> PipelineResult:
    """Run the passes in order until a whole round changes nothing.

    Lower levels settle before higher ones start, so that fusions see a graph without leftovers.
    """
    began = time.perf_counter()
    rewrites = {p.name: 0 for p in passes}
    seconds = {p.name: 0.0 for p in passes}
    rounds, settled = 0, True
    stale = True  # what is known of shapes is of an earlier graph
    with progress.task("optimizing") as task:
        for rank in range(level.rank + 1):
            current = [p for p in passes if p.level.rank <= rank or rank == level.rank]
            if rank and len(current) == len([p for p in passes if p.level.rank < rank]):
                continue
            changed = True
            while changed:
                if rounds >= _MAX_ROUNDS:
                    settled = False
                    break
                rounds += 1
                changed = False
                if stale:
                    infer_shapes(model)
                for one in current:
                    start = time.perf_counter()
                    count = _guarded(one, one.apply, model, context)
                    seconds[one.name] += time.perf_counter() - start
                    rewrites[one.name] += count
                    changed = changed or count > 0
                stale = changed
                task.advance()
    for one in passes:
        if isinstance(one, FinishingPass):
            rewrites[one.name] += _guarded(one, one.finish, model, context)
    infer_shapes(model)
    results = tuple(PassResult(p.name, p.level.value, rewrites[p.name], seconds[p.name]) for p in passes)
    return PipelineResult(level.value, results, rounds, time.perf_counter() - began, settled)


def _guarded(one: Pass, function: Callable[[ir.Model, PassContext], int], model: ir.Model, context: PassContext) -> int:
    try:
        return function(model, context)
    except (OnnxToolError, MemoryError):
        raise
    except Exception as error:  # whatever it is, it must not cost the user the other passes
        raise FaultyPassError(one.name, error) from error
