"""What running a model once gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxtool.report.base import NOT_IN_JSON, Report


@dataclass(frozen=True)
class ArraySummary:
    """One array that went in or came out.

    Attributes:
        minimum, maximum, mean: over finite elements; None for strings and empty arrays.
        nans, infinities: counts.
        first: the first elements, flattened.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    nans: int = 0
    infinities: int = 0
    first: tuple[Any, ...] = ()


@dataclass(frozen=True, repr=False)
class RunReport(Report, kind="run"):
    """One run of one model.

    Attributes:
        model: the file.
        data: where the inputs came from ("random, seed 0" or files).
        provider: the execution provider that was asked for.
        load_seconds: making the session.
        run_seconds: the run itself, the first and cold one.
        written: the file with the outputs, None when none was asked for.
        fallbacks: nodes that do not run on the provider asked for, when that is required; each makes the verdict bad.
        values: the output arrays themselves, by name; not part of the JSON form.
        columns: what the elements of a row of an output are called, where the model says so (its classes); not part of
            the JSON form.
        frame: where the data were a table in Python and the outputs have a row for each of its: these as a frame, of
            the library of a given frame or else of pandas, with a column for each number or text of a row; not part of
            the JSON form.
    """

    model: str
    data: str
    provider: str
    inputs: tuple[ArraySummary, ...]
    outputs: tuple[ArraySummary, ...]
    load_seconds: float
    run_seconds: float
    written: str | None = None
    warnings: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False, metadata=NOT_IN_JSON)
    columns: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict, repr=False, compare=False, metadata=NOT_IN_JSON
    )
    frame: Any = field(default=None, repr=False, compare=False, metadata=NOT_IN_JSON)

    @property
    def ok(self) -> bool:
        """False when a node had to run on the provider asked for, and did not."""
        return not self.fallbacks
