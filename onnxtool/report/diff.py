"""How two model files differ in structure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnxtool.report.base import Report


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        what: "header", "metadata", "input", "output", "initializer", "node" or "function".
        kind: "added" (only in B), "removed" (only in A), "changed" or "renamed".
        name: of the thing; for a node its operator and name.
        before: what it is in A; empty when it is not there.
        after: what it is in B; empty when it is not there.
    """

    what: str
    kind: str
    name: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True, repr=False)
class DiffReport(Report, kind="diff"):
    """The structural difference of two models. Nothing is run.

    Attributes:
        a, b: the files.
        changes: in the order header, metadata, inputs, outputs, initializers, functions, nodes.
        operators: operator -> (nodes in A, nodes in B), where the numbers differ.
    """

    a: str
    b: str
    changes: tuple[Change, ...]
    operators: Mapping[str, tuple[int, int]]

    @property
    def ok(self) -> bool:
        """True when there is no difference."""
        return not self.changes
