"""`onnxtool certificate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxtool.cli.output import Output
    from onnxtool.options.certificate import CertificateCommand


def command(asked: CertificateCommand, out: Output) -> None:
    """Decide by exact arithmetic whether two ONNX files are the same real function, and write the certificate.

    Exit 0 when they are certified, 1 when they are not.
    """
    import json

    from onnxtool.cli.output import write_text
    from onnxtool.equality.file_certificate import certificate

    report = certificate(asked.a, asked.b)
    if asked.output is not None:
        write_text(asked.output, json.dumps(report.to_dict(), indent=1) + "\n")
    out.emit(report)
