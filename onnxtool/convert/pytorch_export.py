"""torch's two ONNX exporters, tried in order, kept quiet, and their failures put into one line."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch

from onnxtool.convert.adapter import ConvertOptions
from onnxtool.convert.opset import target_opset
from onnxtool.convert.pytorch_model import TorchModel
from onnxtool.convert.pytorch_program import dim_labels, relabel
from onnxtool.convert.pytorch_tidy import tidy
from onnxtool.errors import ResourceError, UnsupportedError, UsageError
from onnxtool.model import io as model_io

# What each exporter can write: torch.export's begins at the opset its operator library is written in.
DYNAMO_OPSETS = (18, 23)
TORCHSCRIPT_OPSETS = (9, 20)
_FILE_LINE = re.compile(r"\(?([\w./\\-]+\.py):(\d+) in (\w+)\)?")
_FILE_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\w+)')


def export(model: TorchModel, options: ConvertOptions) -> ir.Model:
    """Export a loaded model.

    Raises:
        UnsupportedError: neither exporter can do it.
    """
    opset = target_opset(options, max(DYNAMO_OPSETS[1], TORCHSCRIPT_OPSETS[1]))
    with quiet(options.verbose):
        graph = _export(model, options, opset)
        tidy(graph, keep_metadata=options.keep_metadata)
    return graph


def _export(model: TorchModel, options: ConvertOptions, opset: int) -> ir.Model:
    scripted = isinstance(model.module, torch.jit.ScriptModule)
    only_torchscript = scripted or opset < DYNAMO_OPSETS[0] or options.exporter == "torchscript"
    if model.program is not None:
        return _from_program(model.program, opset)
    if only_torchscript:
        if opset < DYNAMO_OPSETS[0] and not scripted:
            model.notes.append(f"exported by the TorchScript exporter, the one that writes opset {opset}")
        try:
            return _torchscript(model, options, opset)
        except Exception as error:
            raise _failure(error) from error
    try:
        return _dynamo(model, opset)
    except Exception as error:
        if options.exporter == "dynamo" or _is_final(error):
            raise _failure(error) from error
        first = error
    try:
        graph = _torchscript(model, options, opset)
    except Exception as error:
        raise UnsupportedError(
            f"both exporters fail. torch.export's: {_reason(first)} TorchScript's: {_reason(error)}"
        ) from first
    model.notes.append(f"exported by the TorchScript exporter, because torch.export's failed: {_reason(first)}")
    return graph


def _dynamo(model: TorchModel, opset: int) -> ir.Model:
    dims: dict[str, Any] = {}
    shapes = tuple(
        {axis: _dim(dim, dims) for axis, dim in enumerate(spec.shape or ()) if not isinstance(dim, int)}
        for spec in model.inputs
    )
    flat, inputs = model.flat(), model.trace_inputs()
    labels: dict[str, str] = {}
    try:
        program = torch.export.export(flat, inputs, dynamic_shapes={"tensors": shapes})
    except Exception as error:
        if not dims or not _is_constraint(error):
            raise
        # A dim depends on another or must be a multiple: let torch work out the relation. The comparison at other
        # sizes shows whether a dim that the user wanted dynamic was frozen.
        free = tuple(dict.fromkeys(entry, torch.export.Dim.AUTO) for entry in shapes)
        program = torch.export.export(flat, inputs, dynamic_shapes={"tensors": free})
        model.notes.append(f"dims are related or restricted: {_reason(error)}")
    graph = _translate(program, opset)
    for node, spec in zip(_tensor_placeholders(program), model.inputs, strict=False):
        for symbol, dim in zip(node.meta["val"].shape, spec.shape or (), strict=True):
            if isinstance(dim, str) and not isinstance(symbol, int):
                labels.setdefault(str(symbol), dim)
    _relabel(graph, labels)
    return graph


def _tensor_placeholders(program: torch.export.ExportedProgram) -> list[Any]:
    names = set(program.graph_signature.user_inputs)
    return [n for n in program.graph.nodes if n.op == "placeholder" and n.name in names]


def _relabel(graph: ir.Model, labels: dict[str, str]) -> None:
    """Give dims of inputs and outputs their names ("batch") in place of torch's symbols ("s95")."""
    for value in (*graph.graph.inputs, *graph.graph.outputs):
        if value.shape is not None:
            dims = [d if isinstance(d, int) else relabel(d.value, labels) if d.value else None for d in value.shape]
            value.shape = ir.Shape(dims)


def _dim(dim: Any, known: dict[str, Any]) -> Any:
    if not isinstance(dim, str):
        return torch.export.Dim.DYNAMIC
    if dim not in known:
        known[dim] = torch.export.Dim(re.sub(r"\W", "_", dim), min=1)
    return known[dim]


def _translate(program: torch.export.ExportedProgram, opset: int) -> ir.Model:
    exported = torch.onnx.export(program, dynamo=True, opset_version=opset, verbose=False)
    assert exported is not None
    graph: ir.Model = exported.model
    return graph


def _from_program(program: torch.export.ExportedProgram, opset: int) -> ir.Model:
    try:
        graph = _translate(program, opset)
    except Exception as error:
        raise _failure(error) from error
    _relabel(graph, dim_labels(program))
    return graph


def _torchscript(model: TorchModel, options: ConvertOptions, opset: int) -> ir.Model:
    written = min(opset, TORCHSCRIPT_OPSETS[1])
    names = [f"onnxtool_input_{i}" for i in range(len(model.inputs))]
    axes = {
        name: {a: d or f"{spec.name}_dim_{a}" for a, d in enumerate(spec.shape or ()) if not isinstance(d, int)}
        for name, spec in zip(names, model.inputs, strict=True)
    }
    with tempfile.TemporaryDirectory(prefix="onnxtool-") as scratch:
        path = Path(scratch) / "model.onnx"
        module, args, kwargs = _for_tracing(model)
        torch.onnx.export(
            module,
            args,
            str(path),
            kwargs=kwargs,
            dynamo=False,
            opset_version=written,
            input_names=names,
            dynamic_axes={n: a for n, a in axes.items() if a},
        )
        graph = model_io.load(path)
        ir.external_data.load_to_model(graph)
    _name_output_dims(model, graph)
    if options.opset is not None and options.opset > written:
        _raise_opset(graph, options.opset)
    return graph


def _for_tracing(model: TorchModel) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any] | None]:
    """Scripted modules go in as they are, so that their branches and loops are kept; others in their flat form."""
    if not isinstance(model.module, torch.jit.ScriptModule):
        return model.flat(), model.trace_inputs(), None
    args, kwargs = model.plan.call(model.trace_inputs())
    return model.module, args, kwargs or None


def _name_output_dims(model: TorchModel, graph: ir.Model) -> None:
    """The tracer leaves traced sizes in the outputs' shapes: find out which dims follow the inputs'."""
    dynamic = {d for s in model.inputs for d in s.shape or () if not isinstance(d, int)}
    for spec, value in zip(model.outputs, graph.graph.outputs, strict=False):
        if dynamic and value.shape is not None:
            dims = [d.value if isinstance(d, ir.SymbolicDim) else d for d in value.shape]
            # An int may be a traced size that is really dynamic; without knowing, it must not be promised.
            value.shape = ir.Shape([_output_dim(model, d, f"{spec.name}_dim_{i}") for i, d in enumerate(dims)])


def _output_dim(model: TorchModel, dim: int | str | None, fallback: str) -> int | str:
    wanted = {d for s in model.inputs for d in s.shape or () if isinstance(d, str)}
    if isinstance(dim, int):
        traced = {
            size
            for s in model.inputs
            for size, d in zip(model.sample[s.name].shape, s.shape or (), strict=True)
            if not isinstance(d, int)
        }
        return fallback if dim in traced else dim
    return dim if dim in wanted else fallback


def _raise_opset(graph: ir.Model, opset: int) -> None:
    import onnxscript.version_converter

    onnxscript.version_converter.convert_version(graph, opset)
    reached = graph.opset_imports.get("", 0)
    if reached != opset:
        raise UsageError(f"--opset {opset}: the TorchScript exporter ends at opset {reached} for this model.")


@contextlib.contextmanager
def quiet(verbose: int) -> Iterator[None]:
    """Keep exporters' warnings, logs and prints off the terminal, unless -vv."""
    if verbose >= 2:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            yield
        return
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in found:
        found.append(current)
        current = current.__cause__ or current.__context__
    return found


def _is_constraint(error: BaseException) -> bool:
    text = str(error)
    return "Constraints violated" in text or "not all values" in text or "Suggested fixes" in text


def _is_data_dependent(error: BaseException) -> bool:
    return any(
        type(e).__name__ in ("GuardOnDataDependentSymNode", "UserError") and "data-dependent" in str(e)
        for e in _chain(error)
    )


def _is_final(error: BaseException) -> bool:
    """Tracing would hide the problem: a branch on data would be frozen, an unknown operator is unknown to both."""
    return _is_data_dependent(error) or any(isinstance(e, MemoryError) for e in _chain(error))


def _failure(error: BaseException) -> Exception:
    if any(isinstance(e, MemoryError) for e in _chain(error)):
        return ResourceError("out of memory while exporting.")
    if isinstance(error, UsageError):
        return error
    return UnsupportedError(f"the model cannot be exported: {_reason(error)}")


def _reason(error: BaseException) -> str:
    """One sentence: what, where, and what to do."""
    for link in _chain(error):
        text = str(link)
        if "data-dependent" in text:
            return (
                f"the model's control flow depends on the data{_where(text)}. Rewrite that branch with torch.where or "
                "torch.cond, or save the module as TorchScript (torch.jit.script), which keeps branches."
            )
        missing = re.search(r"No (?:ONNX function|decompositions).*?op='([\w:.]+)'", text)
        missing = missing or re.search(r"operator '([\w:]+)' (?:to ONNX|is not)", text)
        if missing:
            return f"operator {missing[1]} has no ONNX counterpart in this exporter."
    roots = [e for e in _chain(error) if str(e).strip()]
    root = roots[-1] if roots else error
    lines = [" ".join(line.split()) for line in str(root).splitlines() if line.strip()]
    return f"{type(root).__name__}: {(lines[0] if lines else '')[:300].rstrip('.')}."


def _where(text: str) -> str:
    for pattern in (_FILE_LINE, _FILE_FRAME):
        own = [m for m in pattern.findall(text) if "/torch/" not in m[0] and "onnxtool" not in m[0]]
        if own:
            file, line, function = own[-1]
            return f" ({Path(file).name} line {line}, in {function})"
    return ""
