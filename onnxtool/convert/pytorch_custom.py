"""Custom operators: kept in the ONNX graph under their own domain and name, for a runtime library that has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import onnx
import onnxscript
import torch

from onnxtool.convert import pytorch_blame as blame

_TYPES = sorted(
    f"tensor({name})"
    for name in (
        "float", "double", "float16", "bfloat16", "bool", "string", "complex64", "complex128",
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    )
)  # fmt: skip
_KINDS = {bool: "INT", int: "INT", float: "FLOAT", str: "STRING"}
_MOST = 100

Result = TypeVar("Result")
Table = Mapping[Any, Callable[..., Any]]


def with_custom_operators(export: Callable[[Table], Result], keep: bool) -> Result:
    """Call `export` with a translation table; each custom operator it stumbles over is added, and it is called again.

    Args:
        export: exports with the given table.
        keep: False calls it once, with an empty table.
    """
    table: dict[Any, Callable[..., Any]] = {}
    while True:
        try:
            return export(table)
        except Exception as error:
            found = blame.unknown_overload(error) if keep else None
            operator = None if found is None else _resolve(*found)
            if operator is None or operator in table or len(table) >= _MOST:
                raise
            table[operator] = _translation(operator)


def _resolve(name: str, overload: str) -> Any:
    namespace, _, rest = name.partition("::")
    if namespace in blame.BUILT_IN:
        return None
    packet = getattr(getattr(torch.ops, namespace), rest, None)
    return getattr(packet, overload, None)


def _translation(operator: Any) -> Callable[..., Any]:
    """namespace::name(tensors, numbers) -> node `name` of domain `namespace`: tensors as inputs, the rest as
    attributes under the names in torch's schema."""
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
