"""torch's two ONNX exporters, tried in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import onnx_ir as ir
import torch

from onnxtool.conversion.opset import target_opset
from onnxtool.conversion.patches import applied, replaced
from onnxtool.conversion.pytorch import export_errors as blame
from onnxtool.conversion.pytorch.cleanup import clean_up
from onnxtool.conversion.pytorch.custom_operators import Table, with_custom_operators
from onnxtool.conversion.pytorch.dynamic_quantized import in_standard_operators, rounding_of
from onnxtool.conversion.pytorch.exported_program import dim_labels, relabel
from onnxtool.conversion.pytorch.guards import fixing_line, recorded_guards
from onnxtool.conversion.pytorch.model import TorchModel
from onnxtool.conversion.pytorch.patches import constant_steps, exact_patterns, fourier
from onnxtool.conversion.pytorch.patches.loop_steps import UnfollowedError
from onnxtool.conversion.pytorch.patches.loops import FollowedLoops, LoopFoundError
from onnxtool.conversion.pytorch.patches.traced_operators import OF_MODULES
from onnxtool.conversion.pytorch.static_quantized import on_standard_steps, rounds_inside, steps_of
from onnxtool.conversion.pytorch.torchscript import ADVICE, TORCHSCRIPT_OPSETS, export_torchscript, scripted
from onnxtool.conversion.quiet import quiet
from onnxtool.errors import OnnxToolError, ResourceError, UnsupportedError
from onnxtool.model.spec import TensorSpec
from onnxtool.options.convert import ConvertOptions
from onnxtool.runtime.feeds import Feeds

# What torch.export's exporter can write: it begins at the opset its operator library is written in.
DYNAMO_OPSETS = (18, 23)


def export(model: TorchModel, options: ConvertOptions) -> ir.Model:
    """Export a loaded model: with torch.export's exporter, or where that fails and it is sound with TorchScript's.

    Raises:
        UnsupportedError: no exporter can do it; says which operator or line is to blame.
        ResourceError: out of memory.
    """
    opset = target_opset(options, max(DYNAMO_OPSETS[1], TORCHSCRIPT_OPSETS[1]))
    try:
        with in_standard_operators(model.module) as replaced, on_standard_steps(model.module) as static:
            graph = _export(model, options, opset)
            if static or rounds_inside(model.module):
                model.rounding = steps_of(lambda: model.run(model.sample), static)
    except Exception as error:
        if blame.is_memory(error):
            raise ResourceError("out of memory while exporting.") from error
        known = isinstance(error, OnnxToolError)
        if known and not (model.random and isinstance(error, UnsupportedError)):
            raise
        first = f"{model.random}. Besides, " if model.random else ""
        why = error if known else f"the model cannot be exported: {blame.reason(error)}"
        raise UnsupportedError(f"{first}{why}") from error
    if replaced:
        # One range holds for all numbers: NaN, and what stands where a mask leaves nothing in, change every row.
        model.limits = ("missing", "missing rows", "empty mask")
        model.rounding = rounding_of(model.run(model.sample))
        model.notes.append(f"{replaced} dynamically quantized linear layers in operators that round as they do")
    elif model.rounding:
        model.notes.append("quantized layers are kept as QuantizeLinear and DequantizeLinear pairs")
        model.notes += [
            f"output {name} may be {off:.3g} off: values half-way between two quantization steps go either way"
            for name, off in model.rounding.items()
        ]
    clean_up(graph, keep_metadata=options.keep_metadata)
    return graph


def export_otherwise(model: TorchModel, options: ConvertOptions, other_side: Feeds | None) -> ir.Model | None:
    """After the graph of torch.export's failed the proof: at sizes that take the other side of a comparison, which may
    serve both (padding by what may be nothing); or with TorchScript's exporter.

    Returns:
        None where the first was TorchScript's own, the user chose one, or this one fails.
    """
    if other_side is not None:
        return export(model, options) if model.sample_at(other_side) else None
    opset = target_opset(options, TORCHSCRIPT_OPSETS[1])
    if model.program is not None or model.guards is None or options.exporter != "auto":
        return None
    try:
        with in_standard_operators(model.module), on_standard_steps(model.module):
            graph = export_torchscript(model, options, opset)
    except OnnxToolError:
        raise
    except Exception:  # the first exporter's failure is what will be told
        return None
    model.guards, model.advice = None, ADVICE
    model.notes.append("exported by the TorchScript exporter, because the graph of torch.export's failed the proof")
    clean_up(graph, keep_metadata=options.keep_metadata)
    return graph


@dataclass(frozen=True)
class ExportRequest:
    """What is asked of torch.export's exporter: the opset, what to do with custom operators, whether to say steps."""

    opset: int
    table: Table
    talk: bool


def _export(model: TorchModel, options: ConvertOptions, opset: int) -> ir.Model:
    talk = options.verbose >= 2
    if model.program is not None:
        with quiet(options.verbose):
            program = model.program
            return with_custom_operators(
                lambda table: _from_program(program, ExportRequest(opset, table, talk)),
                bool(options.custom_op_libraries),
            )
    if scripted(model) or options.exporter == "torchscript" or opset < DYNAMO_OPSETS[0]:
        if opset < DYNAMO_OPSETS[0] and not scripted(model):
            model.notes.append(f"exported by the TorchScript exporter, the one that writes opset {opset}")
        return export_torchscript(model, options, opset)
    try:
        with quiet(options.verbose):
            return with_custom_operators(
                lambda table: _dynamo(model, ExportRequest(opset, table, talk)), bool(options.custom_op_libraries)
            )
    except Exception as error:
        # Tracing would hide a branch on the data by freezing one side of it.
        final = (blame.is_data_dependent, blame.is_memory, blame.is_custom)
        if options.exporter == "dynamo" or any(test(error) for test in final):
            raise
        first = error
    try:
        graph = export_torchscript(model, options, opset)
    except OnnxToolError:
        raise
    except Exception as error:
        raise UnsupportedError(
            f"both exporters fail. torch.export's: {blame.reason(first)} TorchScript's: {blame.reason(error)}"
        ) from first
    model.notes.append(f"exported by the TorchScript exporter, because torch.export's failed: {blame.reason(first)}")
    model.advice = f"{ADVICE}. It was used because torch.export's exporter failed: {blame.reason(first)}"
    return graph


def _dynamo(model: TorchModel, request: ExportRequest) -> ir.Model:
    named: dict[str, Any] = {}
    shapes = tuple(_dynamic_axes(spec, named) for spec in model.inputs)
    flat, inputs = model.flat(), model.trace_inputs()
    try:
        return _captured(model, flat, inputs, shapes, request)
    except blame.FixedDimError as error:
        if not model.fix_usual_dim(error):
            raise
        return _dynamo(model, request)
    except Exception as error:
        if not named or not blame.is_constraint(error):
            raise
        # A dim depends on another or must be a multiple: let torch work out the relation.
        free = tuple(dict.fromkeys(axes, torch.export.Dim.AUTO) for axes in shapes)
        graph = _captured(model, flat, inputs, free, request)
        model.notes.append(f"torch restricts the dims: {blame.relations(error)}")
    return graph


def _captured(
    model: TorchModel,
    flat: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    shapes: tuple[dict[int, Any], ...],
    request: ExportRequest,
) -> ir.Model:
    loops, exported = FollowedLoops(), None
    while exported is None:
        corrected = applied(OF_MODULES, flat, request.opset)
        try:
            with recorded_guards() as guards, corrected, applied((fourier.PATCH,)), loops.applied():
                exported = _exported(request, flat, inputs, dynamic_shapes={"tensors": shapes})
        except (Exception, LoopFoundError, UnfollowedError) as error:
            if not loops.changed(blame.chain(error)):
                raise
    graph: ir.Model = exported.model
    program = exported.exported_program
    labels: dict[str, str] = {}
    for node, spec in zip(_placeholders(program), model.inputs, strict=False):
        for symbol, dim in zip(node.meta["val"].shape, spec.shape or (), strict=True):
            if isinstance(dim, str) and isinstance(symbol, int):
                raise blame.FixedDimError(spec.name, dim, symbol, fixing_line(guards, symbol))
            if isinstance(dim, str):
                labels.setdefault(str(symbol), dim)
    model.decided(guards, labels)
    _relabel(graph, labels)
    return graph


def _dynamic_axes(spec: TensorSpec, named: dict[str, Any]) -> dict[int, Any]:
    axes: dict[int, Any] = {}
    for axis, dim in enumerate(spec.shape or ()):
        if isinstance(dim, str):
            named.setdefault(dim, torch.export.Dim(re.sub(r"\W", "_", dim), min=1))
            axes[axis] = named[dim]
    return axes


def _placeholders(program: torch.export.ExportedProgram) -> list[Any]:
    names = set(program.graph_signature.user_inputs)
    return [n for n in program.graph.nodes if n.op == "placeholder" and n.name in names]


def _from_program(program: torch.export.ExportedProgram, request: ExportRequest) -> ir.Model:
    graph: ir.Model = _exported(request, program).model
    _relabel(graph, dim_labels(program))
    return graph


def _exported(request: ExportRequest, *source: object, **shapes: object) -> torch.onnx.ONNXProgram:
    with _operators_listed_once(), applied((exact_patterns.PATCH, constant_steps.PATCH)):
        exported = torch.onnx.export(
            *source,
            dynamo=True,
            opset_version=request.opset,
            verbose=request.talk,
            custom_translation_table=dict(request.table),
            **shapes,
        )
    assert exported is not None
    return exported


@contextmanager
def _operators_listed_once() -> Iterator[None]:
    """Inside the block, torch goes through the operators of each namespace once, and onnxscript parses none.

    torch 2.13 does so some hundred times in an export, each time through all that are registered: a sixth of a small
    export in a new process, half of one where much is loaded. onnxscript 0.7 parses the source of its 500 functions to
    learn their domain, which is their opset's: 0.3 s.
    """
    from onnxscript._internal.values import TracedOnnxFunction
    from torch._export import utils

    domain_alone = property(lambda function: SimpleNamespace(domain=function.opset.domain))
    with ExitStack() as stack:
        stack.enter_context(replaced(TracedOnnxFunction, "function_ir", domain_alone))
        for name in ("_materialize_cpp_cia_ops", "_collect_all_valid_cia_ops_for_namespace"):
            if hasattr(utils, name):
                stack.enter_context(replaced(utils, name, cache(getattr(utils, name))))
        yield


def _relabel(graph: ir.Model, labels: dict[str, str]) -> None:
    """Give dims of inputs and outputs their names ("batch") in place of torch's symbols ("s95")."""
    for value in (*graph.graph.inputs, *graph.graph.outputs):
        if value.shape is not None:
            dims = [d if isinstance(d, int) else relabel(d.value, labels) if d.value else None for d in value.shape]
            value.shape = ir.Shape(dims)
