"""A model on another execution provider, held against the CPU; and which precision the provider computed in."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxtool.equality.compare_runners import compare_runners, make_feeds
from onnxtool.equality.reference import Reference, reference_of_file
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import OnnxToolError
from onnxtool.model import io
from onnxtool.report.compare import PrecisionLevels, ProviderProof
from onnxtool.runtime.feeds import Feeds, Outputs, flatten
from onnxtool.runtime.providers.known import FULL_PRECISION, Switch
from onnxtool.runtime.providers.resolve import CPU
from onnxtool.runtime.providers.spec import ProviderSpec, parse_providers, short_name
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions, requested_providers
from onnxtool.runtime.timing.node_costs import kernel_precision

# Larger models are held against the steps of the number formats themselves: their weights are not rounded on trial.
_LARGEST = 1 << 30
# A real computation also rounds what lies between the weights; measured on the zoo, that is up to five times as much
# as rounding weights and inputs. Neighbouring formats are a factor of eight apart.
_BEYOND = 16.0
_STEPS = PrecisionLevels(2.0**-22, 2.0**-12, 2.0**-9)
# Errors of this size say nothing of a format: float32 sums in another order give them.
_FLOAT32 = 3e-6


def prove_on_provider(
    model: str | os.PathLike[str],
    options: SessionOptions,
    *,
    feeds: Sequence[Feeds] | None = None,
    seed: int = 0,
    tolerance: Tolerance = Tolerance(),  # noqa: B008  (frozen)
    file: Path | None = None,
) -> ProviderProof:
    """Hold a model on a provider against the same file on the CPU, without the runtime's own optimizations.

    Where the provider's own kernels tell their precision, they are asked; else, where the error is as large as
    rounding to a smaller format makes it, the format is named. Where an option of the provider turns that off, it is
    tried.

    Args:
        model: an .onnx file.
        options: the providers, and how to run it.
        feeds: inputs; seeded random ones unless given.
        seed: of random inputs.
        tolerance: for floats (docs/equality.md).
        file: what to run on the provider, where that is not `model` itself but what the runtime saved of it.

    Raises:
        InputError: the model does not run on the CPU.
    """
    path = Path(model)
    plain = SessionOptions(threads=options.threads, optimization="off", custom_op_libraries=options.custom_op_libraries)
    exact = OnnxRunner.open(path, plain)
    given = make_feeds(exact, (path,), seed=seed).feeds if feeds is None else feeds
    expected = [flatten(exact.run(f)) for f in given]
    asked = parse_providers(options.provider)
    name = " ".join(map(str, asked))
    try:
        runner = OnnxRunner.open(file or path, options)
        actual = [flatten(runner.run(f)) for f in given]
        reference = reference_of_file(path, exact, plain)
        compared = compare_runners(reference, runner, given, tolerance)
    except OnnxToolError as failed:
        return ProviderProof(name, False, None, "", failure=str(failed))
    error = relative_error(expected, actual)
    if requested_providers(options) == (CPU,):
        return ProviderProof(name, not compared.differs, error, "other" if compared.differs else "float32")
    levels = precision_levels(path, given, expected, plain)
    told = kernel_precision(file or path, given[0], options) if short_name(asked[0].name) == "openvino" else ""
    precision = told if told in ("bfloat16", "float16") else recognise(error, levels, options)
    if told == "float32" and precision not in ("float32", "other"):
        precision = "other" if compared.differs else "float32"
    # Where the outputs prove little (probabilities that all are next to zero), a smaller format is not taken for equal.
    ok = not compared.differs and (
        precision in ("float32", "other")
        or (not compared.warnings and _kernel_error(reference, given, expected) < getattr(_STEPS, precision))
    )
    proof = ProviderProof(name, ok, error, precision, levels)
    return _with_option(proof, path, asked, given, expected, options)


def _kernel_error(reference: Reference, feeds: Sequence[Feeds], expected: Sequence[Outputs]) -> float:
    """How far the CPU's own kernels are off, as `relative_error` measures it."""
    if reference.exact is None:
        return 0.0
    return relative_error(expected, [reference.exact.outputs(f) or own for f, own in zip(feeds, expected, strict=True)])


def relative_error(expected: Sequence[Outputs], actual: Sequence[Outputs]) -> float:
    """Root mean square of the difference over that of the expected values, over all runs: the worst float output."""
    worst = 0.0
    for name in expected[0]:
        noise = signal = 0.0
        for a, b in zip(expected, actual, strict=True):
            x, y = np.asarray(a[name]), np.asarray(b.get(name))
            if x.dtype.kind != "f" and x.dtype != ml_dtypes.bfloat16:
                break
            if x.shape != y.shape:
                return math.inf
            x, y = x.astype(np.float64), y.astype(np.float64)
            kept = np.isfinite(x) & np.isfinite(y)
            noise += float(np.square(x - y, where=kept, out=np.zeros_like(x)).sum())
            signal += float(np.square(x, where=kept, out=np.zeros_like(x)).sum())
        if signal > 0:
            worst = max(worst, math.sqrt(noise / signal))
    return worst


def precision_levels(
    path: Path, feeds: Sequence[Feeds], expected: Sequence[Outputs], options: SessionOptions
) -> PrecisionLevels:
    """What rounding weights and inputs to smaller formats does to this model's outputs, measured on the CPU.

    A network may amplify or average out its roundings: the same format gives 1e-2 in one and 1e-4 in another.
    """
    if io.total_bytes(path) > _LARGEST:
        return _STEPS
    found = []
    try:
        usual = OnnxRunner.open(path, replace(options, optimization="all"))
        found.append(relative_error(expected, [flatten(usual.run(f)) for f in feeds]))
        for bits in (11, 8):
            model = io.load(path)
            for value in model.graph.initializers.values():
                _round(value, bits)
            runner = OnnxRunner.open(model, options)
            moved = [flatten(runner.run({n: rounded(a, bits) for n, a in f.items()})) for f in feeds]
            found.append(relative_error(expected, moved))
    except OnnxToolError:
        return _STEPS
    return PrecisionLevels(*found)


def _round(value: ir.Value, bits: int) -> None:
    tensor = value.const_value
    if tensor is not None and tensor.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        value.const_value = ir.tensor(rounded(tensor.numpy(), bits), name=tensor.name)


def rounded(array: np.ndarray, bits: int) -> np.ndarray:
    """Floats rounded to a significand of so many bits, the exponent kept; other types as they are."""
    if array.dtype not in (np.float32, np.float64):
        return array
    fraction, exponent = np.frexp(array)
    steps = np.round(np.ldexp(fraction, bits))
    return np.asarray(np.ldexp(steps, exponent - bits), array.dtype)


def recognise(error: float, levels: PrecisionLevels, options: SessionOptions) -> str:
    """Which rounding an error is as large as: the nearest level, by factors.

    Source of the formats: IEEE 754-2019 (float16 has 11 bits); bfloat16 has 8, tf32 11.
    """
    if not math.isfinite(error) or error > _BEYOND * max(levels.bfloat16, _FLOAT32):
        return "other"
    if error <= max(_FLOAT32, 4 * levels.float32):
        return "float32"
    half, brain = max(levels.float16, _FLOAT32), max(levels.bfloat16, _FLOAT32)
    nearest = "bfloat16" if error > math.sqrt(half * brain) else "half"
    if nearest == "bfloat16":
        return nearest
    if error < half / 8:
        return "float32"
    reduced = FULL_PRECISION.get(short_name(parse_providers(options.provider)[0].name))
    names = [f for f in (reduced.reduced if reduced else ()) if f != "bfloat16"]
    return names[0] if len(names) == 1 else "tf32 or float16"


def _with_option(
    proof: ProviderProof,
    path: Path,
    asked: Sequence[ProviderSpec],
    feeds: Sequence[Feeds],
    expected: Sequence[Outputs],
    options: SessionOptions,
) -> ProviderProof:
    """The option that turns reduced precision off, tried; an error that it takes away is one of precision."""
    switch = FULL_PRECISION.get(short_name(asked[0].name))
    if switch is None or proof.error is None or proof.precision == "float32":
        return proof
    if asked[0].get(switch.key) is not None:
        return proof if asked[0].get(switch.key) != switch.value else replace(proof, precision="other")
    exact = tuple(map(str, (asked[0].having(switch.key, switch.value), *asked[1:])))
    try:
        runner = OnnxRunner.open(path, replace(options, provider=exact))
        rest = relative_error(expected, _run(runner, feeds))
    except OnnxToolError:
        return replace(proof, option=f"{switch.key}={switch.value}")
    option = f"{switch.key}={switch.value}"
    if rest >= proof.error / 4:  # where the model amplifies any rounding, only the kernels can tell
        told = kernel_precision(path, feeds[0], options) if proof.reduced else ""
        if told == proof.precision:
            return replace(proof, option=option, confirmed=False)
        return replace(proof, precision="other", confirmed=False)
    precision = _same_as(path, asked, switch, feeds, expected, proof, options)
    return replace(proof, precision=precision, option=option, confirmed=True)


def _same_as(
    path: Path,
    asked: Sequence[ProviderSpec],
    switch: Switch,
    feeds: Sequence[Feeds],
    expected: Sequence[Outputs],
    proof: ProviderProof,
    options: SessionOptions,
) -> str:
    """The format that gives the very same error when it is asked for; else the one that the error's size tells."""
    for name, value in switch.formats:
        try:
            spelled = tuple(map(str, (asked[0].having(switch.key, value), *asked[1:])))
            runner = OnnxRunner.open(path, replace(options, provider=spelled))
            error = relative_error(expected, _run(runner, feeds))
        except OnnxToolError:
            continue
        if proof.error is not None and abs(error - proof.error) <= 0.01 * proof.error:
            return name
    # An error beyond what rounding the weights shows is amplified: the coarsest format is the likeliest.
    return proof.precision if proof.reduced else switch.reduced[0]


def _run(runner: OnnxRunner, feeds: Sequence[Feeds]) -> list[dict[str, Any]]:
    return [flatten(runner.run(f)) for f in feeds]
