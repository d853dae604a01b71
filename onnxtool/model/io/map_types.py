"""Sequences of maps, which classifiers from scikit-learn give (ZipMap): onnx_ir 1.1 cannot represent their type.

The type is taken off the protobuf while onnx_ir reads it, kept with the value, and put back on the way out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import onnx

if TYPE_CHECKING:
    import onnx_ir as ir

_KEY = "onnxtool.map_type"


@contextmanager
def hidden(proto: onnx.ModelProto) -> Iterator[dict[str, bytes]]:
    """Inside the block, outputs and inner values of the main graph have no type where it is about maps.

    Yields:
        Name -> serialized TypeProto of those.
    """
    _ignore_untyped_values()
    taken = [v for v in (*proto.graph.output, *proto.graph.value_info) if _holds_map(v.type)]
    types = [onnx.TypeProto.FromString(v.type.SerializeToString()) for v in taken]
    for value in taken:
        value.ClearField("type")
    try:
        yield {v.name: t.SerializeToString() for v, t in zip(taken, types, strict=True)}
    finally:
        for value, kind in zip(taken, types, strict=True):
            value.type.CopyFrom(kind)


def remember(model: ir.Model, types: dict[str, bytes]) -> None:
    """Keep the types with the graph outputs that have those names."""
    for value in model.graph.outputs:
        if value.name in types:
            value.meta[_KEY] = types[value.name]


def kind_of(value: ir.Value) -> str | None:
    """What a value is whose type was taken off: "sequence", "map" or "optional"; None for all others."""
    kind = value.meta.get(_KEY)
    found = None if kind is None else onnx.TypeProto.FromString(kind).WhichOneof("value")
    return None if found is None else str(found).removesuffix("_type")


def restore(model: ir.Model, proto: onnx.ModelProto) -> onnx.ModelProto:
    """Put remembered types back into a protobuf made of `model`; returns it."""
    for value, info in zip(model.graph.outputs, proto.graph.output, strict=True):
        kind = value.meta.get(_KEY)
        if kind is not None:
            info.type.ParseFromString(kind)
    return proto


@cache
def _ignore_untyped_values() -> None:
    """onnx_ir warns on the terminal of each inner value whose shape is known and whose type is not (results of
    ai.onnx.ml operators, mostly). Such a value is written without type information, which is allowed.
    """
    logging.getLogger("onnx_ir.serde").addFilter(
        lambda record: not record.getMessage().startswith("The value type for shape")
    )


def _holds_map(kind: onnx.TypeProto) -> bool:
    which = kind.WhichOneof("value")
    if which == "map_type":
        return True
    if which == "sequence_type":
        return _holds_map(kind.sequence_type.elem_type)
    return which == "optional_type" and _holds_map(kind.optional_type.elem_type)
