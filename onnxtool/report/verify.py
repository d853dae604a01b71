"""What verifying a file's provenance gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxtool.report.base import Report
from onnxtool.report.compare import CompareReport


@dataclass(frozen=True, repr=False)
class VerifyReport(Report, kind="verify"):
    """Whether a file is as onnxtool wrote it, and from what.

    Attributes:
        model: the file.
        recorded: the digest that the file bears ("sha256:..."), of its bytes and its external data; None when it
            bears none, or something was appended to it.
        actual: the digest that it has.
        external: its external data files.
        history: the steps that made it, oldest first, as they recorded themselves.
        stale: why a form that a provider has compiled no longer fits what is installed, or what it was compiled from;
            empty when it fits, and for any other file.
        source: the file given to hold against the history.
        source_sha256: its SHA-256.
        source_step: the command of the step whose source it is; None when it is the source of none.
        signature: the file of the signature that was made or verified.
        signature_made: it was made just now.
        signature_fault: why it is not good for this model; None when it is, or none was asked for.
        replay: the proof that the history records, run again; None when it was not asked for.
    """

    model: str
    recorded: str | None
    actual: str | None
    external: tuple[str, ...]
    history: tuple[Mapping[str, Any], ...]
    source: str | None = None
    source_sha256: str | None = None
    source_step: str | None = None
    signature: str | None = None
    signature_made: bool = False
    signature_fault: str | None = None
    stale: tuple[str, ...] = ()
    replay: CompareReport | None = None

    @property
    def unchanged(self) -> bool:
        """The file has the digest that it bears."""
        return self.recorded is not None and self.recorded == self.actual

    @property
    def ok(self) -> bool:
        """Unchanged, not stale, made from the given source when there is one, and well signed when that was asked for.

        A signature also stands for a file that has no digest of onnxtool.
        """
        whole = self.unchanged or (self.signature is not None and self.recorded is None)
        known = self.source is None or self.source_step is not None
        proven = self.replay is None or self.replay.ok
        return whole and not self.stale and self.signature_fault is None and known and proven
