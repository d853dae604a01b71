"""What the commands report that show or serve models until they are ended."""

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


@dataclass(frozen=True)
class ServedModel:
    """One model that was served."""

    name: str
    version: str
    path: str


@dataclass(frozen=True, repr=False)
class ServeReport(Report, kind="serve"):
    """A server that has ended in order.

    Attributes:
        url: where it was.
        models: what it served.
        requests: answers given, of any status.
        failures: those that were errors.
        seconds: from listening to the end.
    """

    url: str
    models: tuple[ServedModel, ...]
    requests: int
    failures: int
    seconds: float
