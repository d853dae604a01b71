"""torch's older exporter, which traces a module or takes a scripted one with its branches and loops."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from onnxtool.conversion.opset import raise_opset
from onnxtool.conversion.patches import applied
from onnxtool.conversion.pytorch.custom_operators import with_custom_symbolics
from onnxtool.conversion.pytorch.model import FlatModule, TorchModel
from onnxtool.conversion.pytorch.patches import traced_operators
from onnxtool.conversion.pytorch.traced_branches import FrozenBranches
from onnxtool.conversion.quiet import quiet
from onnxtool.conversion.source_code import caught_errors
from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.model import io as model_io
from onnxtool.options.convert import ConvertOptions

# What it can write.
TORCHSCRIPT_OPSETS = (9, 20)
# Where a graph fails at sizes other than the traced ones.
ADVICE = (
    "The TorchScript exporter takes a size that it cannot follow (after int(), say) for a constant: give that dim as a "
    "number in --input-shape"
)
_OTHER = "torch.export's exporter, which follows more (--opset 18 or newer, --exporter dynamo)"


class DistinctOutputs(torch.nn.Module):  # type: ignore[misc]
    """Gives each tensor once: the exporter would write a graph with one output's name twice, which nothing loads.

    Attributes:
        places: for each output of the flat module, where it stands among the distinct ones; known after a pass.
    """

    def __init__(self, flat: FlatModule) -> None:
        super().__init__()
        self.onnxtool_source = flat.onnxtool_source
        self._flat_forward = flat.forward
        self.places: list[int] = []

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """One pass through the flat module."""
        outputs = self._flat_forward(*tensors)
        distinct: list[torch.Tensor] = []
        self.places = []
        for output in outputs:
            known = [place for place, other in enumerate(distinct) if other is output]
            if not known:
                distinct.append(output)
            self.places.append(known[0] if known else len(distinct) - 1)
        return tuple(distinct)


def scripted(model: TorchModel) -> bool:
    """Whether the model came as TorchScript."""
    return isinstance(model.module, torch.jit.ScriptModule)


def export_torchscript(model: TorchModel, options: ConvertOptions, opset: int) -> ir.Model:
    """Export with the TorchScript-based exporter, at most at its newest opset.

    Raises:
        UsageError: `options.opset` is beyond what it and the version converter can write.
        UnsupportedError: the module's code catches an operator's error, which ends the process of who traces it.
        Exception: whatever the exporter raises.
    """
    written = min(opset, TORCHSCRIPT_OPSETS[1])
    names = [f"onnxtool_input_{i}" for i in range(len(model.inputs))]
    axes = {
        name: {axis: dim for axis, dim in enumerate(spec.shape or ()) if isinstance(dim, str)}
        for name, spec in zip(names, model.inputs, strict=True)
    }
    module, args, kwargs = _for_tracing(model)
    # torch 2.13 and before read a null pointer where an operator fails while it is traced.
    with torch.no_grad():
        errors = [] if scripted(model) else caught_errors(lambda: module(*args), "torch")
    if errors:
        raise UnsupportedError(
            f"the model's code catches an error of torch ({errors[0]}), so what it computes depends on which sizes "
            "torch takes. An ONNX file cannot do that: test the sizes instead of trying."
        )
    with tempfile.TemporaryDirectory(prefix="onnxtool-") as scratch:
        path = Path(scratch) / "model.onnx"
        with quiet(options.verbose, native=True) as caught, applied(traced_operators.PATCHES, model.module, written):
            with_custom_symbolics(
                lambda: torch.onnx.export(
                    module,
                    args,
                    str(path),
                    kwargs=kwargs,
                    dynamo=False,
                    opset_version=written,
                    do_constant_folding=False,  # it copies tied weights
                    input_names=names,
                    dynamic_axes={n: a for n, a in axes.items() if a},
                ),
                bool(options.custom_op_libraries),
            )
        graph = model_io.load(path)
        ir.external_data.load_to_model(graph)
    _restore_inputs(graph, names, model)
    if isinstance(module, DistinctOutputs):
        _repeat_outputs(graph, module.places)
    _note_frozen(model, caught)
    model.advice = f"{ADVICE}." if scripted(model) else f"{ADVICE}, or use {_OTHER}."
    _forget_traced_sizes(model, graph)
    if options.opset is not None and options.opset > written:
        graph = raise_opset(graph, options.opset)
        if graph.opset_imports.get("", 0) != options.opset:
            raise UsageError(f"--opset {options.opset}: the TorchScript exporter ends at opset {written}.")
    return graph


def _for_tracing(model: TorchModel) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any] | None]:
    """Scripted modules go in as they are, so that their branches and loops are kept; others in their flat form."""
    if not scripted(model):
        flat = DistinctOutputs(model.flat())
        flat.eval()
        return flat, model.trace_inputs(), None
    args, kwargs = model.plan.call(model.trace_inputs())
    return model.module, args, kwargs or None


def _restore_inputs(graph: ir.Model, names: list[str], model: TorchModel) -> None:
    """Give back the inputs that nothing reads, which the exporter leaves out."""
    found = {value.name: value for value in graph.graph.inputs}
    if not set(found) <= set(names):
        return
    for name, spec in zip(names, model.inputs, strict=True):
        if name not in found and isinstance(spec.dtype, np.dtype):
            kind = ir.TensorType(ir.DataType.from_numpy(spec.dtype))
            found[name] = ir.Value(name=name, type=kind, shape=None if spec.shape is None else ir.Shape(spec.shape))
    graph.graph.inputs[:] = [found[name] for name in names if name in found]


def _repeat_outputs(graph: ir.Model, places: list[int]) -> None:
    """Give back the outputs that `DistinctOutputs` left out."""
    distinct = list(graph.graph.outputs)
    if len(places) == len(distinct):
        return
    used: set[int] = set()
    outputs: list[ir.Value] = []
    for place in places:
        value = distinct[place]
        if place in used:
            node = ir.Node("", "Identity", [value], name=f"{value.name}_again_{len(outputs)}")
            graph.graph.append(node)
            copy = node.outputs[0]
            copy.name, copy.type, copy.shape = node.name, value.type, value.shape
            value = copy
        used.add(place)
        outputs.append(value)
    graph.graph.outputs[:] = outputs


def _note_frozen(model: TorchModel, caught: Iterable[warnings.WarningMessage]) -> None:
    """Tracing keeps one side of a Python branch, and one number of many, and warns; the proof has to try the others."""
    model.frozen = FrozenBranches(caught)
    for places, what in (
        (model.frozen.booleans, "tracing kept one side of the branch at"),
        (model.frozen.others, "tracing took numbers computed from inputs for constants at"),
    ):
        lines = sorted({f"{Path(file).name} line {line}" for file, line in places})
        if lines:
            more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
            model.notes.append(f"{what} {', '.join(lines[:3])}{more}")


def _forget_traced_sizes(model: TorchModel, graph: ir.Model) -> None:
    """The tracer declares sizes it saw as fixed output dims; any that could come from a dynamic dim is withdrawn."""
    traced = {
        size
        for spec in model.inputs
        for size, dim in zip(model.sample[spec.name].shape, spec.shape or (), strict=True)
        if isinstance(dim, str)
    }
    known = {dim for spec in model.inputs for dim in spec.shape or () if isinstance(dim, str)}
    for spec, value in zip(model.outputs, graph.graph.outputs, strict=False):
        if not known or value.shape is None:
            continue
        dims: list[int | str] = []
        for axis, dim in enumerate(value.shape):
            name = dim if isinstance(dim, int) else dim.value
            sure = (isinstance(name, int) and name not in traced) or name in known
            dims.append(name if sure and name is not None else f"{spec.name}_dim_{axis}")
        value.shape = ir.Shape(dims)
