"""Rules on the weights: numerics (OT4xx) and size (OT5xx)."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from itertools import chain

import numpy as np
import onnx

from onnxtool.lint.rule import LintRule
from onnxtool.model.model_view import ModelView
from onnxtool.model.safety.limits import PROTOBUF_LIMIT
from onnxtool.model.safety.tensors import declared_bytes, external_ref
from onnxtool.report.check import Finding, Severity

_W, _N = Severity.WARNING, Severity.NOTE
_FLOAT16_MAX = 65504.0
_PIECE = 1 << 20
_SAMPLE, _SAMPLED = 1 << 15, 1 << 22  # bytes looked at of one weight, and of all
_WORTH_PACKING = 1 << 16
_LARGE = 4096  # bytes; smaller tensors are not worth a word about size

NAN = LintRule(
    "OT401",
    _W,
    "NaN in a weight",
    "NaN spreads to every output that depends on it.",
    "Look at the training run and at the export; retrain or repair the checkpoint.",
)
INFINITE = LintRule(
    "OT402",
    _N,
    "infinities in a weight",
    "Meant in attention masks (-inf), a defect elsewhere. float16 conversion and quantization cannot represent them.",
    "Use a large finite number for masks, such as -10000.",
)
DENORMAL = LintRule(
    "OT403",
    _N,
    "many denormal numbers in a weight",
    "Numbers below 1.2e-38 are up to a hundred times slower on some processors and carry no information.",
    "Set them to zero before exporting.",
)
HALF_OVERFLOW = LintRule(
    "OT404",
    _N,
    "a weight beyond the range of float16",
    "Values beyond 65504 become infinite when the model is converted to float16.",
    "Keep the nodes that read it in float32.",
)
BAD_SCALE = LintRule(
    "OT405",
    _W,
    "a scale that is not positive",
    "QuantizeLinear divides by its scale: zero, negative or NaN scales give nonsense.",
    "Calibrate again, on data that reaches this tensor.",
)
UNUSED = LintRule(
    "OT501",
    _W,
    "an initializer that nothing reads",
    "It only makes the file larger.",
    "Run: onnxtool optimize.",
)
DUPLICATE = LintRule(
    "OT502",
    _N,
    "initializers with the same content",
    "One of them would do.",
    "Run: onnxtool optimize.",
)
UNIFORM = LintRule(
    "OT503",
    _N,
    "a large tensor of one value",
    "A scalar that is broadcast, or a ConstantOfShape, says the same in a few bytes.",
    "Replace it by a scalar.",
)
NEAR_LIMIT = LintRule(
    "OT504",
    _W,
    "close to protobuf's limit of 2 GB",
    "A file beyond 2 GB cannot be read at all unless its weights are external data.",
    "Save it with external data: any onnxtool command that writes a model does so near the limit.",
)
HALF_EXACT = LintRule(
    "OT505",
    _N,
    "float32 weights that float16 holds exactly",
    "They take twice the room they need.",
    "Store them as float16.",
)
COMPRESSIBLE = LintRule(
    "OT506",
    _N,
    "weights that compress well",
    "General compression takes them to less than half: many zeros, or few different values. The file carries the rest "
    "along, and the runtime multiplies by it.",
    "Ship the file compressed; or make use of it: prune whole channels, quantize, or drop what is zero.",
)
RULES = (
    NAN,
    INFINITE,
    DENORMAL,
    HALF_OVERFLOW,
    BAD_SCALE,
    UNUSED,
    DUPLICATE,
    UNIFORM,
    NEAR_LIMIT,
    HALF_EXACT,
    COMPRESSIBLE,
)


def numerics(view: ModelView) -> Iterator[Finding]:
    """NaN, infinities, denormals, float16 range, quantization scales; also what shrinks without loss."""
    scales = {
        n.input[1] for n in view.nodes if n.op_type in ("QuantizeLinear", "DequantizeLinear") and len(n.input) > 1
    }
    halves = total = 0
    for tensor, values in view.weights():
        if tensor.name in scales and values.dtype.kind == "f" and not np.all(values > 0):
            yield BAD_SCALE.finding(f"the smallest scale is {values.min()}", tensor.name)
        if values.dtype.kind == "f" and values.size:
            yield from _floats(tensor, values)
        if values.dtype == np.float32 and values.nbytes >= _LARGE:
            total += values.nbytes
            halves += values.nbytes if _exact_in_half(values) else 0
        if values.nbytes >= _LARGE and values.size > 1 and _uniform(values):
            yield UNIFORM.finding(f"{values.nbytes} bytes, every value {values.reshape(-1)[0]}", tensor.name)
    if halves > total / 2 > 0:
        yield HALF_EXACT.finding(f"{halves} of {total} bytes of float32 weights are exact in float16")


def _floats(tensor: onnx.TensorProto, values: np.ndarray) -> Iterator[Finding]:
    # min and max pass NaN on and make no copy of a large weight; the counts are made only when there is something.
    with np.errstate(all="ignore"):
        low, high = float(values.min()), float(values.max())
        if np.isnan(low):
            yield NAN.finding(f"{int(np.isnan(values).sum())} of {values.size} values are NaN", tensor.name)
            return
        if np.isinf(low) or np.isinf(high):
            yield INFINITE.finding(f"{int(np.isinf(values).sum())} of {values.size} values are infinite", tensor.name)
        elif values.dtype != np.float16 and max(-low, high) > _FLOAT16_MAX:
            yield HALF_OVERFLOW.finding(f"values from {low:.3g} to {high:.3g}, float16 ends at 65504", tensor.name)
        if values.dtype == np.float32 and values.size >= 64:
            count = _denormals(values)
            if count > values.size / 100:
                yield DENORMAL.finding(f"{count} of {values.size} values are denormal", tensor.name)


def _denormals(values: np.ndarray) -> int:
    """Numbers below the smallest normal one, counted piece by piece: a copy of a large weight would cost its size."""
    flat = values.reshape(-1)
    tiny = np.finfo(np.float32).tiny
    pieces = (flat[start : start + _PIECE] for start in range(0, flat.size, _PIECE))
    return sum(int(np.count_nonzero((np.abs(piece) < tiny) & (piece != 0))) for piece in pieces)


def _exact_in_half(values: np.ndarray) -> bool:
    # Trained weights fail in the first few values already: look at a sample before the whole.
    flat = values.reshape(-1)
    pieces = (flat[start : start + _PIECE] for start in range(0, flat.size, _PIECE))
    with np.errstate(all="ignore"):
        return all(
            np.array_equal(piece.astype(np.float16).astype(np.float32), piece) for piece in chain([flat[:256]], pieces)
        )


def _uniform(values: np.ndarray) -> bool:
    flat = values.reshape(-1)
    return bool(flat[0] == flat[-1] and np.all(flat[:64] == flat[0]) and np.all(flat == flat[0]))


def size(view: ModelView) -> Iterator[Finding]:
    """Unused and duplicate initializers, the 2 GB limit."""
    graph = view.proto.graph
    seen: dict[tuple[int, bytes], str] = {}
    for tensor in graph.initializer:
        if tensor.name not in view.readers and tensor.name not in view.output_names:
            yield UNUSED.finding(f"{declared_bytes(tensor) or 0} bytes that nothing reads", tensor.name)
        if external_ref(tensor) is None and (declared_bytes(tensor) or 0) >= _LARGE:
            digest = hashlib.sha256(tensor.raw_data or tensor.SerializeToString()[: 1 << 30])
            digest.update(str((list(tensor.dims), tensor.data_type)).encode())
            first = seen.setdefault((len(tensor.raw_data), digest.digest()), tensor.name)
            if first != tensor.name:
                yield DUPLICATE.finding(f"the same content as {first!r}, {declared_bytes(tensor)} bytes", tensor.name)
    yield from _compressible(view)
    inline = view.path.stat().st_size
    if inline > 0.9 * PROTOBUF_LIMIT:
        yield NEAR_LIMIT.finding(f"{inline} of the {PROTOBUF_LIMIT} bytes that one file can hold")


def _compressible(view: ModelView) -> Iterator[Finding]:
    """Judged by a sample from the middle of each large weight; one value alone is a finding of its own."""
    total, packed = 0.0, 0.0
    looked_at = 0
    for _, values in view.weights():
        if values.nbytes < _LARGE or values.dtype == object or _uniform(values):
            continue
        total += values.nbytes
        flat = values.reshape(-1)
        middle = max(flat.size // 2 - _SAMPLE // values.itemsize // 2, 0)
        sample = flat[middle : middle + _SAMPLE // values.itemsize].tobytes()
        looked_at += len(sample)
        packed += values.nbytes * len(zlib.compress(sample, 1)) / len(sample)
        if looked_at > _SAMPLED:
            break
    if total >= _WORTH_PACKING and packed < total / 2:
        yield COMPRESSIBLE.finding(f"{total:.0f} bytes of weights would take about {packed:.0f}, by samples of them")
