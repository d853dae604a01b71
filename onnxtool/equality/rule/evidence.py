"""What is known of a reference beside its outputs: its rounding, its scores, its precision."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from onnxtool.equality.described_runner import DescribedRunner
from onnxtool.equality.equivalence_check import Evidence, precision_of
from onnxtool.equality.rule.kernel_errors import kernel_errors
from onnxtool.equality.rule.rounding import RoundingNoise, runtime_noise
from onnxtool.equality.rule.ties import TiedScores, choices
from onnxtool.model import io
from onnxtool.runtime.runner import OnnxRunner, Runner
from onnxtool.runtime.session.session import SessionOptions

if TYPE_CHECKING:
    import onnx_ir as ir

PathLike = str | os.PathLike[str]


def evidence_on(a: PathLike | Runner, b: PathLike | Runner, options: SessionOptions) -> Evidence:
    """What is known of A, the reference.

    A framework model tells its own roundings where it can (`rerounded`), and how far its quantized outputs may be off;
    the precision that it computes in shows in the file that was made of it.

    Args:
        a: the reference: an .onnx file or a Runner.
        b: what is judged.
        options: how .onnx files are run.
    """
    if not isinstance(a, Runner):
        return evidence_of_file(a, options)
    return evidence_of_source(a, None if isinstance(b, Runner) else io.load(b))


def evidence_of_file(path: PathLike, options: SessionOptions) -> Evidence:
    """What is known of an .onnx file as the reference; it is opened again only where it is asked for."""
    found = evidence_of_model(io.load(path), lambda: io.load(path), options)
    return replace(found, noise=runtime_noise(Path(path), options))


def evidence_of_model(model: ir.Model, load: Callable[[], ir.Model], options: SessionOptions) -> Evidence:
    """As `evidence_of_file`, of a model in memory, without its rounding.

    Args:
        model: looked at now and not kept.
        load: gives it again, where its inner tensors are asked for.
        options: how it is run.
    """
    return Evidence(
        ties=ties_of_model(model, load, options), precision=precision_of(model), kernel_errors=kernel_errors(model)
    )


def ties_of_model(model: ir.Model, load: Callable[[], ir.Model], options: SessionOptions) -> TiedScores | None:
    """Outputs that are indices of the largest: where their scores tie, rounding decides; None where there are none.

    Args:
        model, load, options: as of `evidence_of_model`.
    """
    found = choices(model)

    def with_scores(names: list[str]) -> tuple[Runner, Runner]:
        wider = load()
        known = {v.name: v for node in wider.graph for v in node.outputs}
        given = {v.name for v in wider.graph.outputs}
        wider.graph.outputs.extend(known[n] for n in names if n in known and n not in given)
        other = replace(options, optimization="off" if options.optimization != "off" else "basic")
        return OnnxRunner.open(wider, options), OnnxRunner.open(wider, other)

    return TiedScores(found, with_scores) if found else None


def evidence_of_source(source: Runner, graph: ir.Model | None) -> Evidence:
    """What a framework model tells of itself, and the graph that was made of it tells of the runtime.

    Args:
        source: a DescribedRunner tells its own roundings, and the steps of its quantized outputs.
        graph: what is judged, where it is at hand.
    """
    described = source if isinstance(source, DescribedRunner) else None
    return Evidence(
        noise=RoundingNoise(described.rerounded) if described is not None else None,
        precision=None if graph is None else precision_of(graph),
        quantized=dict(described.rounding) if described is not None else {},
        declared={s.name: s.dtype.name for s in source.outputs if _is_number(s.dtype)},
        kernel_errors={} if graph is None else kernel_errors(graph),
    )


def _is_number(dtype: object) -> TypeGuard[np.dtype[Any]]:
    return isinstance(dtype, np.dtype) and dtype.kind not in "OUS"
