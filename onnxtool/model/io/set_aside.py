"""What onnx_ir cannot read, or reads slowly, is put aside while it reads a graph: types of maps, and large tables.

onnx_ir 1.1 cannot represent sequences of maps, which classifiers from scikit-learn give (ZipMap): their type is taken
off the protobuf, kept with the value, and put back on the way out.

It converts each number of a forest's lists by itself (`int(v) for v in ...`), 1.6 s for a forest of 88 MB;
protobuf gives the same Python numbers at once, in a third of that. So those lists go past it: while onnx_ir reads the
graph they are references without a value, and the values are put in their place afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import onnx

if TYPE_CHECKING:
    import onnx_ir as ir


# Elements from which on a list is worth the detour.
_LARGE = 10_000
_FIELDS = {onnx.AttributeProto.INTS: "ints", onnx.AttributeProto.FLOATS: "floats"}


@contextmanager
def large_lists(proto: onnx.ModelProto) -> Iterator[list[tuple[int, onnx.AttributeProto]]]:
    """Inside the block, large lists of the main graph's nodes are references.

    Yields:
        The place of the node and its attribute, of each.
    """
    found = [
        (place, attribute)
        for place, node in enumerate(proto.graph.node)
        for attribute in node.attribute
        if attribute.type in _FIELDS
        and not attribute.ref_attr_name
        and len(getattr(attribute, _FIELDS[attribute.type])) >= _LARGE
    ]
    for _, attribute in found:
        attribute.ref_attr_name = "table"
    try:
        yield found
    finally:
        for _, attribute in found:
            attribute.ClearField("ref_attr_name")


def put_back(model: ir.Model, found: list[tuple[int, onnx.AttributeProto]]) -> None:
    """Give the nodes of a model that was read within `large_lists` their lists."""
    nodes = list(model.graph) if found else []
    for place, attribute in found:
        nodes[place].attributes.add(_table_type()(attribute))


@cache
def _table_type() -> Callable[[onnx.AttributeProto], ir.Attr]:
    import onnx_ir as ir

    class AttributeTable(ir.Attr):
        """An attribute whose numbers are known to be of the right type."""

        __slots__ = ("_table",)

        def __init__(self, proto: onnx.AttributeProto) -> None:
            super().__init__(proto.name, ir.AttributeType(proto.type), None, doc_string=proto.doc_string or None)
            self._table = tuple(getattr(proto, _FIELDS[proto.type]))

        @property
        def value(self) -> tuple[int | float, ...]:
            return self._table

    return AttributeTable


_KEY = "onnxtool.map_type"


@contextmanager
def hidden_maps(proto: onnx.ModelProto) -> Iterator[dict[str, bytes]]:
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
