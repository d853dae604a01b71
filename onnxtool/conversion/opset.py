"""Which opset to write."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import suppress

import onnx
import onnx_ir as ir

from onnxtool.errors import OnnxToolError, UsageError
from onnxtool.model.ir.queries import all_nodes
from onnxtool.options.convert import ConvertOptions
from onnxtool.runtime.session.session import create_session

OLDEST = 9
_COMPLETE = 17  # every runtime that onnxtool accepts has all of this opset
_OPEN = 2**31 - 1


def target_opset(options: ConvertOptions, newest_of_exporter: int) -> int:
    """The opset that an exporter should write.

    Args:
        options: `options.opset` if the user asked for one.
        newest_of_exporter: the newest that the exporter itself can write.

    Raises:
        UsageError: an opset was asked for that the embedded runtime or the exporter does not have.
    """
    limit = min(newest_runtime_opset(), newest_of_exporter)
    if options.opset is None:
        return limit
    if not OLDEST <= options.opset <= limit:
        raise UsageError(f"--opset {options.opset}: this exporter and the embedded runtime have {OLDEST} to {limit}.")
    return options.opset


def export_at(options: ConvertOptions, newest: int, notes: list[str], export: Callable[[int], ir.Model]) -> ir.Model:
    """What an exporter writes, at the opset that is wanted even where it does not reach that itself.

    Args:
        options: the opset that was asked for, if one was.
        newest: opset of the exporter.
        notes: told when an opset that was asked for could not be reached.
        export: given an opset.
    """
    wanted = target_opset(options, newest_runtime_opset())
    return raise_opset(export(min(wanted, newest)), wanted, notes if options.opset else None)


@functools.cache
def newest_runtime_opset() -> int:
    """The newest opset of the standard domain that the embedded runtime fully supports.

    The runtime loads newer opsets too, but has no kernel for the newest version of some operators there (in
    ONNX Runtime 1.31: RoiAlign, GlobalLpPool and the random ones from opset 22 on), and fails on a model that uses
    them. So this is the last opset before an operator that has kernels lacks one.
    """
    kernels = _kernel_versions()
    lost = {
        schema.since_version
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.domain == ""
        and not schema.deprecated
        and schema.since_version > _COMPLETE
        and schema.name in kernels
        and not any(_covers(span, schema.since_version) for span in kernels[schema.name])
    }
    return min([version - 1 for version in lost] or [_loadable()])


def _kernel_versions() -> Mapping[str, list[tuple[int, int]]]:
    """Operator -> version spans of its kernels on the CPU."""
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    spans: dict[str, list[tuple[int, int]]] = {}
    for kernel in native.get_all_opkernel_def():
        if kernel.domain in ("", "ai.onnx") and kernel.provider == "CPUExecutionProvider":
            spans.setdefault(kernel.op_name, []).append(tuple(kernel.version_range))
    return spans


def _covers(span: tuple[int, int], version: int) -> bool:
    # A span without an end serves the operator version it begins at, and no later one.
    first, last = span
    return first == version or (last != _OPEN and first <= version <= last)


def _loadable() -> int:
    """The newest opset that the runtime agrees to load."""
    for version in range(onnx.defs.onnx_opset_version(), _COMPLETE, -1):
        value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
        result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
        node = onnx.helper.make_node("Identity", ["x"], ["y"])
        graph = onnx.helper.make_graph([node], "probe", [value], [result])
        imports = [onnx.helper.make_opsetid("", version)]
        probe = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
        with suppress(OnnxToolError):
            create_session(probe)
            return version
    return _COMPLETE


# Below this, onnxscript's version converter has no adapters.
_ADAPTED = 18
# Operators that from opset 9 to 18 only came to take more element types, or options whose default is the old way.
_WIDENED_NAMES = """
    Abs Add And ArgMax ArgMin Cast Ceil Concat Constant ConstantOfShape Div Equal Erf Exp Expand Flatten Floor Gather
    Gemm Greater Identity Less Log MatMul Max Min Mul Neg Not Or Pow Reciprocal Relu Reshape Shape Sigmoid Sign Sqrt
    Sub Sum Tanh Transpose Where
"""
_WIDENED = frozenset(_WIDENED_NAMES.split())


def raise_opset(model: ir.Model, wanted: int, notes: list[str] | None = None) -> ir.Model:
    """Raise the opset of the standard domain.

    Args:
        model: unchanged.
        wanted: the opset to reach; a model that has it, or a newer one, is given back as it is.
        notes: told when the opset could not be reached.

    Returns:
        A model of the wanted opset, or the given one when an operator of it changed its meaning in between and no
        adapter is known.
    """
    current = model.opset_imports.get("", 0)
    if current >= wanted:
        return model
    operators = {node.op_type for node in all_nodes(model) if node.domain in ("", "ai.onnx")}
    raised = model.clone()
    if not operators or _unchanged(operators, current, wanted):
        _declare(raised, wanted)
        return raised
    if current >= _ADAPTED or _unchanged(operators, current, _ADAPTED):
        _declare(raised, max(current, _ADAPTED))
        try:
            from onnxscript import version_converter

            version_converter.convert_version(raised, target_version=wanted, fallback=False)
        except Exception:  # it raises what it likes on operators that it has no adapter for
            raised = model
        else:
            _declare(raised, raised.opset_imports.get("", current))
    else:
        raised = model
    reached = raised.opset_imports.get("", 0)
    if reached < wanted and notes is not None:
        notes.append(f"opset {reached}, not {wanted}: operators in it changed their meaning in between")
    return raised


def _unchanged(operators: set[str], first: int, last: int) -> bool:
    """Whether the operators are the same in both opsets."""
    if first >= 9 and last <= _ADAPTED:
        operators = operators - _WIDENED
    try:
        return all(_since(name, first) == _since(name, last) for name in operators)
    except onnx.defs.SchemaError:
        return False


def _since(name: str, opset: int) -> int:
    return int(onnx.defs.get_schema(name, max_inclusive_version=max(opset, 1), domain="").since_version)


def _declare(model: ir.Model, opset: int) -> None:
    model.graph.opset_imports[""] = opset
    for function in model.functions.values():
        if "" in function.opset_imports:
            function.opset_imports[""] = opset
    for node in all_nodes(model):
        if node.domain == "" and node.version is not None:
            node.version = opset
    needed = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)], ignore_unknown=True)
    model.ir_version = max(model.ir_version, needed)
