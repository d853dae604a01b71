"""What converting a framework model gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxtool.report.base import NOT_IN_JSON, Report, TensorInfo
from onnxtool.report.certificate import suffices
from onnxtool.report.compare import CompareReport, ProviderProof


@dataclass(frozen=True, repr=False)
class ConvertReport(Report, kind="convert"):
    """A framework model turned into an ONNX file.

    Attributes:
        source: the file or folder converted; "the factory" when there was none.
        output: where the ONNX file is, or would have been.
        form: what the source was recognised as ("PyTorch state_dict").
        framework: framework and version ("torch 2.13.0").
        source_sha256: SHA-256 of the source in hex, "" without a file.
        inputs: of the ONNX file; a str dim is dynamic.
        outputs: likewise.
        opset: version of the standard operator set.
        nodes: number of nodes, subgraphs included.
        size_bytes: of the ONNX file with its external data; 0 when it was not written.
        comparison: source and ONNX on the same inputs; None when verification was switched off.
        notes: what was done that the user did not ask for in so many words.
        seconds: time for each stage: load, export, verify, save.
        written: the output file is there.
        kept: where a file that failed verification was kept for study.
        untested: what the proof left out although it may matter, in words; "" for nothing. The verdict says it.
        changed_rows: how many rows of the given sample come out differently, and of how many; None where no sample was
            given, where nothing differs, or where outputs have no rows.
        max_flips: how many of them may; a file within that is written, and nothing beyond the sample was tried.
        providers: the file on the other providers that were asked for, held against the CPU.
        require: the verdict that is good: "tested", or nothing less than "certified".
        result: the written model as an `onnx_ir.Model` where no output path was named; not part of the JSON form.
    """

    source: str
    output: str
    form: str
    framework: str
    source_sha256: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    opset: int
    nodes: int
    size_bytes: int
    comparison: CompareReport | None
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    written: bool = False
    kept: str | None = None
    untested: str = ""
    changed_rows: tuple[int, int] | None = None
    max_flips: int = 0
    providers: tuple[ProviderProof, ...] = ()
    require: str = "tested"
    result: Any = field(default=None, repr=False, compare=False, metadata=NOT_IN_JSON)

    @property
    def ok(self) -> bool:
        """True when the file was written, and agrees with its source (or nobody wanted to know), on each provider.
        False, too, where no run told anything of an output of numbers.

        Rows of the sample that differ count as agreeing up to the number that was allowed.
        """
        proven = self.comparison is None or self.comparison.ok or self.is_within_flips
        told = self.comparison is None or not self.comparison.is_untold
        enough = suffices("not tested" if self.comparison is None else self.comparison.verdict, self.require)
        return self.written and proven and told and enough and all(p.ok for p in self.providers)

    @property
    def is_within_flips(self) -> bool:
        """True when the file was written although rows of the sample differ: no more than were allowed."""
        return self.written and self.changed_rows is not None and self.changed_rows[0] <= self.max_flips
