"""The table of operators: ask here, and list them nowhere else."""

from __future__ import annotations

from typing import Any, Protocol

from onnxtool.model.operators import runtime, standard
from onnxtool.model.operators.operator import Operator

STANDARD = ("", "ai.onnx")
_ROWS = {(row.domain, row.name): row for row in (*standard.ROWS, *runtime.ROWS)}


class _Node(Protocol):
    """A node of protobuf or of onnx_ir."""

    @property
    def op_type(self) -> str: ...
    @property
    def domain(self) -> str: ...


def lookup(name: str, domain: str = "") -> Operator:
    """The row of an operator; one with every answer "no" for what the table does not know."""
    domain = "" if domain in STANDARD else domain
    return _ROWS.get((domain, name)) or Operator(name, domain)


def lookup_full(name: str) -> Operator:
    """The row of an operator called "Conv" or "com.microsoft.FusedConv"."""
    domain, _, own = name.rpartition(".")
    return lookup(own, domain)


def operator_of(node: _Node | None) -> Operator:
    """The row of a node's operator; of no operator where there is no node."""
    return Operator("") if node is None else lookup(node.op_type, node.domain)


def named(**answers: Any) -> frozenset[str]:
    """Names of the standard operators whose rows have these answers: `named(shape="reduce")`."""
    wanted = answers.items()
    return frozenset(n for (d, n), row in _ROWS.items() if not d and all(getattr(row, k) == v for k, v in wanted))
