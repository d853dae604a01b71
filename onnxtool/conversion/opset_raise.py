"""From the opset that a converter writes to the one that is wanted, where the operators mean the same in both."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from onnxtool.model.ir.queries import all_nodes

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
