"""What a rewrite takes for granted, and whether a run has shown it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Assumption:
    """Something that must hold for a rewritten model to be right.

    Attributes:
        claim: what is assumed, in one sentence: "dims named 'size' are equal".
        status: "held": a run in which it would show agreed; "broken": a run contradicts it; "unproven": no run could
            tell.
        reason: what showed it, or why nothing could.
        node: where it is assumed; empty where it is about the whole model.
    """

    claim: str
    status: Literal["held", "broken", "unproven"]
    reason: str = ""
    node: str = ""

    @property
    def holds(self) -> bool:
        """Whether a rewrite may rely on it."""
        return self.status == "held"

    def __str__(self) -> str:
        where = f"{self.node}: " if self.node else ""
        return f"{where}{self.claim}{f' ({self.reason})' if self.reason else ''}"
