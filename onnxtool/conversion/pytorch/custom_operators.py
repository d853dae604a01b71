"""Custom operators: kept in the ONNX graph under their own domain and name, for a runtime library that has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import onnx
import onnxscript
import torch
from torch.onnx import symbolic_helper

from onnxtool.conversion.pytorch import export_errors as blame
from onnxtool.conversion.pytorch.patches.translations import translations

_TYPES = sorted(
    f"tensor({name})"
    for name in (
        "float", "double", "float16", "bfloat16", "bool", "string", "complex64", "complex128",
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    )
)  # fmt: skip
_KINDS = {bool: "INT", int: "INT", float: "FLOAT", str: "STRING"}
# The same in torch's schemas -> the TorchScript exporter's letters.
_LETTERS = {"bool": "b", "int": "i", "float": "f", "str": "s"}
_MOST = 100  # custom operators of one model

Result = TypeVar("Result")
Table = Mapping[Any, Callable[..., Any]]


def with_custom_operators(export: Callable[[Table], Result], keep: bool) -> Result:
    """Call `export` with a translation table; each custom operator it stumbles over is added, and it is called again.

    Args:
        export: exports with the given table.
        keep: False calls it once, with the operators alone that torch's exporter lacks.
    """
    table = translations()
    most = len(table) + _MOST
    while True:
        try:
            return export(table)
        except Exception as error:
            found = blame.unknown_overload(error) if keep else None
            operator = None if found is None else _resolve(*found)
            if operator is None or operator in table or len(table) >= most:
                raise
            table[operator] = _translation(operator)


def with_custom_symbolics(export: Callable[[], Result], keep: bool) -> Result:
    """The same for the TorchScript exporter, whose table belongs to the whole process.

    Args:
        export: exports.
        keep: False calls it once.
    """
    added: list[str] = []
    while True:
        try:
            return export()
        except Exception as error:
            name = blame.unknown_operator(error) if keep else None
            operator = None if name is None else _resolve(name, "default")
            if name is None or operator is None or name in added or len(added) >= _MOST:
                raise
            # In version 1 of its domain, whatever the opset of the others. It stays: torch 2.13's function that takes
            # it back leaves an empty entry, on which the next export stumbles.
            torch.onnx.register_custom_op_symbolic(name, _symbolic(operator), 1)
            added.append(name)


def _symbolic(operator: Any) -> Callable[..., Any]:
    """As `_translation`, for the TorchScript exporter: an attribute's kind is the last letter of its name there."""
    schema = operator._schema

    def translate(graph: Any, *args: Any) -> Any:
        inputs, attributes = [], {}
        for argument, value in zip(schema.arguments, args, strict=False):
            kind = str(argument.type)
            if "Tensor" in kind:
                inputs.append(value)
                continue
            letter = _LETTERS.get(kind.removeprefix("Optional[").removeprefix("List[").rstrip("]"), "i")
            constant = symbolic_helper._get_const(value, f"{letter}s" if "List" in kind else letter, argument.name)
            if constant is not None:
                attributes[f"{argument.name}_{'i' if letter == 'b' else letter}"] = constant
        result = graph.op(schema.name, *inputs, **attributes, outputs=len(schema.returns))
        values = result if isinstance(result, (list, tuple)) else [result]
        for value, original in zip(values, graph.original_node.outputs(), strict=False):
            _set_dtype(value, original, inputs)
        return result

    return translate


def _set_dtype(value: Any, original: Any, inputs: Sequence[Any]) -> None:
    """The exporter goes by dtypes when it writes constants beside a value. A scripted module knows none: most operators
    give what they take, and the runtime refuses the graph where that is wrong.
    """
    known = [v.type().dtype() for v in (original, *inputs) if isinstance(v.type(), torch._C.TensorType)]
    dtype = next((d for d in known if d is not None), None)
    if dtype is not None and isinstance(value.type(), torch._C.TensorType):
        value.setType(value.type().with_dtype(dtype))


def _resolve(name: str, overload: str) -> Any:
    namespace, _, rest = name.partition("::")
    if namespace in blame.BUILT_IN:
        return None
    packet = getattr(getattr(torch.ops, namespace), rest, None)
    return getattr(packet, overload, None)


def _translation(operator: Any) -> Callable[..., Any]:
    """namespace::name(tensors, numbers) -> node `name` of domain `namespace`: tensors as inputs, the rest as
    attributes under the names in torch's schema.
    """
    schema = operator._schema
    domain, _, name = schema.name.partition("::")

    def translate(*args: Any, **kwargs: Any) -> Any:
        inputs, attributes = [], {}
        for index, argument in enumerate(schema.arguments):
            value = args[index] if index < len(args) else kwargs.get(argument.name, argument.default_value)
            if "Tensor" in str(argument.type):
                inputs.append(value)
            elif value is not None:
                attributes[argument.name] = value
        described = _describe(domain, name, len(inputs), len(schema.returns), attributes)
        return onnxscript.values.Op(onnxscript.values.Opset(domain, 1), name, described)(*inputs, **attributes)

    return translate


def _describe(domain: str, name: str, inputs: int, outputs: int, attributes: Mapping[str, Any]) -> onnx.defs.OpSchema:
    kinds = onnx.defs.OpSchema.AttrType
    parameter = onnx.defs.OpSchema.FormalParameter
    return onnx.defs.OpSchema(
        name,
        domain,
        1,
        inputs=[parameter(f"input_{i}", f"I{i}") for i in range(inputs)],
        outputs=[parameter(f"output_{i}", f"O{i}") for i in range(outputs)],
        type_constraints=[
            *((f"I{i}", _TYPES, "") for i in range(inputs)),
            *((f"O{i}", _TYPES, "") for i in range(outputs)),
        ],
        attributes=[
            onnx.defs.OpSchema.Attribute(key, getattr(kinds, _kind(value)), "", required=False)
            for key, value in attributes.items()
        ],
    )


def _kind(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"{_kind(value[0]) if value else 'INT'}S"
    return _KINDS[type(value)]
