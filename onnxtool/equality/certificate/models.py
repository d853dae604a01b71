"""Certificates of models as the rest of the tool holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxtool.equality.certificate.certify import certify
from onnxtool.errors import OnnxToolError
from onnxtool.model import io
from onnxtool.report.certificate import CertificateReport

_LARGE = 2**28  # bytes of weights of one model


def certify_models(
    a: ir.Model,
    b: ir.Model,
    examples: Sequence[Mapping[str, np.ndarray]] = (),
    *,
    names: tuple[str, str] = ("A", "B"),
    seconds: float = 10.0,
    most: int = 3,
) -> CertificateReport:
    """The certificate of two models in memory; "not tested" with a reason for what is too large or cannot be read.

    Args:
        a: what is right.
        b: what is judged.
        examples: inputs that A takes.
        names: how they are called in the report.
        seconds: no further size is taken after that.
        most: how many sizes.
    """
    if io.weight_bytes(a) + io.weight_bytes(b) > _LARGE:
        return CertificateReport(*names, "not tested", reason=f"more than {_LARGE >> 20} MiB of weights")
    try:
        return certify(io.to_proto(a), io.to_proto(b), examples, names=names, seconds=seconds, most=most)
    except (OnnxToolError, ValueError) as error:
        return CertificateReport(*names, "not tested", reason=str(error).splitlines()[0])
