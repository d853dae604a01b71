"""Where a model can be looked at."""

from __future__ import annotations

from dataclasses import dataclass

from onnxtool.report.base import Report


@dataclass(frozen=True, repr=False)
class ViewReport(Report, kind="view"):
    """A page that is being served.

    Attributes:
        model: the file.
        url: what a browser opens; of this machine alone.
    """

    model: str
    url: str
