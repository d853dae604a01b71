"""`compare`: two models, the same inputs, how far apart."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from onnxtool.errors import InputError
from onnxtool.model import io
from onnxtool.model.domains import Domain, input_domains
from onnxtool.report.compare import CompareReport
from onnxtool.runtime.feeds import adapt, read_npz
from onnxtool.runtime.runner import OnnxRunner, Runner
from onnxtool.runtime.session import SessionOptions
from onnxtool.validate.equality import compare_runners, probe_feeds
from onnxtool.validate.tolerance import Tolerance


def compare(
    a: str | os.PathLike[str] | Runner,
    b: str | os.PathLike[str] | Runner,
    *,
    data: str | os.PathLike[str] | Mapping[str, np.ndarray] | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    seed: int = 0,
    options: SessionOptions = SessionOptions(),  # noqa: B008  (frozen)
    names: tuple[str, str] | None = None,
) -> CompareReport:
    """Run two models on the same inputs and say how far their outputs are apart.

    Args:
        a: the reference: an .onnx file, or any Runner (`convert.api.open_source` makes one of a framework file).
        b: what is judged, likewise.
        data: inputs as an .npz file or named arrays; without it, seeded random inputs of three batch sizes
            that respect the dtypes, shapes and integer ranges found in the graph.
        rtol: relative tolerance for floats.
        atol: absolute tolerance for floats.
        seed: of the random inputs.
        options: how to run .onnx files.
        names: how to call the two in the report; their paths unless given.

    Raises:
        InputError: a file or the data cannot be used, or the models do not take the same inputs.
    """
    left, right = _runner(a, options), _runner(b, options)
    if data is None:
        domains: dict[str, Domain] = {}
        for source in (a, b):
            if isinstance(source, Runner):  # a framework model may know the domains of its inputs better than a graph
                domains = domains | dict(getattr(source, "feeds_hint", None) or {})
            else:
                domains = input_domains(io.load(source)) | domains
        feeds = probe_feeds(left.inputs, seed=seed, domains=domains)
        origin = f"random, seed {seed}"
    else:
        arrays = data if isinstance(data, Mapping) else read_npz(data)
        try:
            feeds = [adapt(left.inputs, arrays)]
        except InputError as error:
            raise InputError(f"{'data' if isinstance(data, Mapping) else data}: {error}") from error
        origin = "given arrays" if isinstance(data, Mapping) else str(data)
    return compare_runners(
        left, right, feeds, Tolerance(rtol, atol), names=names or (_name(a, "A"), _name(b, "B")), data=origin
    )


def _runner(source: str | os.PathLike[str] | Runner, options: SessionOptions) -> Runner:
    if isinstance(source, Runner):
        return source
    io.read_proto(source)  # refuses what is unsafe or damaged before the runtime sees it
    return OnnxRunner.open(Path(source), options)


def _name(source: str | os.PathLike[str] | Runner, default: str) -> str:
    return default if isinstance(source, Runner) else str(source)
