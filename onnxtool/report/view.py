"""Where a model can be looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxtool.report.base import Report


@dataclass(frozen=True, repr=False)
class ViewReport(Report):
    """A page that is being served.

    Attributes:
        model: the file.
        url: what a browser opens; of this machine alone.
    """

    kind: ClassVar[str] = "view"

    model: str
    url: str
