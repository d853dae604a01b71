"""Certificates of models as the rest of the tool holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from onnxtool.equality.certificate.certify import certify
from onnxtool.equality.certificate.independent_rows import FixedBatch, RowDependence, row_dependence
from onnxtool.errors import OnnxToolError
from onnxtool.model import io
from onnxtool.report.certificate import CertificateReport

MOST_WEIGHTS = 2**27  # bytes of one model: beyond this their elements do not fit into 2 GB of memory


def certify_models(
    a: ir.Model,
    b: ir.Model,
    examples: Sequence[Mapping[str, np.ndarray]] = (),
    *,
    names: tuple[str, str] = ("A", "B"),
    seconds: float = 10.0,
    patience: float = 0.0,
    most: int = 3,
) -> CertificateReport:
    """The certificate of two models in memory; "not tested" with a reason for what is too large or cannot be read.

    Args:
        a: what is right.
        b: what is judged.
        examples: inputs that A takes.
        names: how they are called in the report.
        seconds: no further size is taken after that.
        patience: seconds beyond that for what there is no certificate without.
        most: how many sizes.
    """
    if max(io.weight_bytes(a), io.weight_bytes(b)) > MOST_WEIGHTS:
        return CertificateReport(*names, "not tested", reason=f"more than {MOST_WEIGHTS >> 20} MiB of weights")
    try:
        return certify(
            with_weights(a), with_weights(b), examples, names=names, seconds=seconds, patience=patience, most=most
        )
    except (OnnxToolError, ValueError) as error:
        return CertificateReport(*names, "not tested", reason=str(error).splitlines()[0])


def certify_rows(
    before: ir.Model, after: ir.Model, batch: Mapping[str, int], size: int, seconds: float = 20.0
) -> RowDependence:
    """Whether a batch gives for each row what the model with a fixed batch gave for it alone.

    Args:
        before: the model whose batch is fixed.
        after: the same one with a dynamic batch.
        batch: input -> axis of the batch.
        size: the fixed batch.
        seconds: that this may take.
    """
    if io.weight_bytes(after) > MOST_WEIGHTS:
        return RowDependence(f"was not decided: more than {MOST_WEIGHTS >> 20} MiB of weights", decided=False)
    try:
        with np.errstate(all="ignore"):
            return row_dependence(with_weights(after), size + 4, seconds, FixedBatch(with_weights(before), batch, size))
    except (OnnxToolError, ValueError) as error:
        return RowDependence(f"was not decided: {str(error).splitlines()[0]}", decided=False)


def with_weights(model: ir.Model) -> onnx.ModelProto:
    """A model with the weights that are still on the disk."""
    whole = onnx.ModelProto()
    whole.ParseFromString(io.to_bytes(model))
    return whole
