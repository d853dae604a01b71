"""`certificate`: two files, their certificate, and what running them says where there is none."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from onnxtool.equality.compare import compare
from onnxtool.model import io
from onnxtool.report.certificate import CertificateReport


def certificate(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> CertificateReport:
    """Decide by exact arithmetic whether two ONNX files are the same real function.

    Args:
        a: the file that is right.
        b: the file to judge.

    Raises:
        InputError: a file cannot be read, or the two do not take the same inputs.
    """
    compared = compare(a, b)
    found = compared.certificate or CertificateReport(str(a), str(b), "not tested", reason="they differ where they run")
    verdict = compared.verdict
    if verdict == "tested" and found.change and any(o.max_abs > 0 or o.mismatched for o in compared.outputs):
        verdict = "different"
    found = replace(found, a=str(a), b=str(b), verdict=verdict)
    return replace(found, a_sha256=io.sha256(Path(a)), b_sha256=io.sha256(Path(b)))
