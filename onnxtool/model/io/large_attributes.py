"""Tables in attributes: a forest's nodes lie in lists of millions of numbers.

onnx_ir 1.1 converts each number of such a list by itself (`int(v) for v in ...`), 1.6 s for a forest of 88 MB; protobuf
gives the same Python numbers at once, in a third of that. So those lists go past it: while onnx_ir reads the graph they
are references without a value, and the values are put in their place afterwards.
"""

from __future__ import annotations

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
def set_aside(proto: onnx.ModelProto) -> Iterator[list[tuple[int, onnx.AttributeProto]]]:
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
    """Give the nodes of a model that was read within `set_aside` their lists."""
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
