"""`run`: a model once, on given or random inputs."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.errors import InputError, UsageError
from onnxtool.model.file import ModelFile
from onnxtool.model.image_options import parse_options
from onnxtool.model.io.in_memory import ModelLike, takes_models
from onnxtool.model.spec import TensorSpec
from onnxtool.report.run import ArraySummary, RunReport
from onnxtool.runtime.data.archive import read_npz
from onnxtool.runtime.data.frames import as_table, frame_like, is_frame
from onnxtool.runtime.data.read_feeds import GivenInputs, read_feeds
from onnxtool.runtime.feeds import adapt, flatten
from onnxtool.runtime.output_files import Columns, check_output_file, table_columns, write_outputs
from onnxtool.runtime.probes import runnable_feeds
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import DEFAULT, SessionOptions, provider_names
from onnxtool.runtime.worker.errors import OutOfTableError
from onnxtool.runtime.worker.isolation import is_supervised

_SHOWN = 8


@takes_models("model")
def run(
    model: ModelLike,
    *,
    data: Any = None,
    inputs: Mapping[str, str | os.PathLike[str]] | None = None,
    output: str | os.PathLike[str] | None = None,
    batch: int | None = None,
    seed: int = 0,
    options: SessionOptions = DEFAULT,
    images: str = "",
    require_provider: bool = False,
) -> RunReport:
    """Run a model once.

    Args:
        model: an .onnx file, or a model in memory.
        data: inputs as an .npz or .npy file, a folder of .npy files named after the inputs, a table's file, pictures,
            a data frame (pandas, Polars, Arrow), a list of rows, or arrays or columns by name. Samples that do not fit
            into one run are run one after the other, and their outputs joined.
        inputs: one .npy file for each input, by name; goes before `data`. What is in neither is an error, unless
            both are left out: then the inputs are seeded random ones.
        output: file for the outputs, as of `write_outputs`.
        batch: size of the first dim of random inputs where it is dynamic.
        seed: of random inputs.
        options: how to run the model.
        images: how pictures become tensors (see `image_options.parse_options`).
        require_provider: make it a bad verdict when a node does not run on the provider asked for.

    Returns:
        A report that also carries the output arrays (`values`) and, where the data were a frame, a frame (`frame`).

    Raises:
        InputError: the model or the data cannot be used, or a node fails.
        UnsupportedError: the runtime does not have an operator.
        UsageError: the output cannot be a file, or not one of this format.
    """
    file = ModelFile.of(model)
    if output is not None:
        check_output_file(Path(output))
    file.verify()
    if data is None and not inputs and not is_supervised():
        from onnxtool.runtime.worker.apart import try_in_child  # loads onnx_ir, which the command line does without

        try_in_child(file.path, options, seed)
    began = time.perf_counter()
    runner = OnnxRunner.open(file, replace(options, spinning="always"))
    loaded = time.perf_counter()
    given = chosen_feeds(runner, data, inputs, batch, seed, images)
    started = time.perf_counter()
    try:
        values = _joined([flatten(runner.run(feeds)) for feeds in given.feeds])
    except OutOfTableError as error:
        raise InputError(f"{given.origin}: {error}") from error
    ended = time.perf_counter()
    names = {s.name: s.columns for s in runner.outputs if s.columns}
    if output is not None:
        write_outputs(Path(output), values, names)
    summaries = tuple(summarise(name, value) for name, value in values.items())
    return RunReport(
        model=str(file),
        data=given.origin,
        provider=provider_names(options),
        inputs=tuple(summarise(name, value) for name, value in given.joined().items()),
        outputs=summaries,
        load_seconds=loaded - began,
        run_seconds=ended - started,
        written=None if output is None else str(output),
        warnings=(*given.notes, *_complaints(summaries)),
        values=values,
        columns=names,
        frame=_frame(data, values, names, runner.inputs),
        fallbacks=_fallbacks(file, given.feeds[0], options) if require_provider else (),
    )


def _frame(data: Any, values: Mapping[str, Any], names: Columns, specs: Sequence[TensorSpec]) -> Any:
    """Outputs as a frame like that of the inputs; None where these were no table in Python, or the outputs are none."""
    if not is_frame(data) and (isinstance(data, (str, os.PathLike)) or as_table(data, specs) is None):
        return None
    try:
        return frame_like(data, table_columns(values, names))
    except UsageError:
        return None


def _joined(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The outputs of several runs, along their first dim; of a scalar, one element for each run."""
    if len(runs) == 1:
        return dict(runs[0])
    return {name: np.concatenate([np.atleast_1d(r[name]) for r in runs]) for name in runs[0]}


def _fallbacks(file: ModelFile, feeds: Mapping[str, np.ndarray], options: SessionOptions) -> tuple[str, ...]:
    from onnxtool.runtime.providers.placement import placement

    found = placement(file, feeds, options).fallbacks
    return tuple(f"{n.node} ({n.operator}) runs on {n.provider}: {n.reason}" for n in found)


def chosen_feeds(
    runner: OnnxRunner,
    data: Any,
    inputs: Mapping[str, str | os.PathLike[str]] | None,
    batch: int | None,
    seed: int,
    images: str,
) -> GivenInputs:
    """The inputs of a run and where they come from: `data`, `inputs` (one .npy file for each), or random ones."""
    specs = runner.inputs
    if data is None and not inputs:
        return GivenInputs((runnable_feeds(runner, specs, seed, batch=batch)[0],), f"random, seed {seed}")
    if data is not None and not inputs:
        return read_feeds(data, specs, parse_options(images))
    arrays: dict[str, np.ndarray] = {}
    origins = []
    if data is not None:
        rest = [s for s in specs if s.name not in (inputs or {})]
        given = read_feeds(data, rest, parse_options(images))
        arrays.update(given.joined())
        origins.append(given.origin)
    known = {s.name for s in specs}
    for name, file in (inputs or {}).items():
        if name not in known:
            raise UsageError(f"--input {name}: the model takes {', '.join(str(s.info()) for s in specs)}.")
        loaded = read_npz(file)
        if "" not in loaded:
            raise InputError(f"{file}: --input takes .npy files; give an .npz file to --data.")
        arrays[name] = loaded[""]
        origins.append(str(file))
    try:
        return GivenInputs((adapt(specs, arrays),), ", ".join(origins))
    except InputError as error:
        raise InputError(f"{', '.join(origins)}: {error}") from error


def summarise(name: str, value: Any) -> ArraySummary:
    """Shape, range and oddities of an array."""
    array = np.asarray(value)
    shape = tuple(array.shape)
    first = tuple(_plain(v) for v in array.reshape(-1)[:_SHOWN])
    if array.dtype.kind in "OUSc" or array.size == 0:
        return ArraySummary(name, "string" if array.dtype.kind in "OUS" else array.dtype.name, shape, first=first)
    wide = array if array.dtype.kind in "biu" else array.astype(np.float64)
    finite = np.isfinite(wide)
    kept = wide[finite]
    nans = int(np.isnan(wide).sum())
    return ArraySummary(
        name,
        array.dtype.name,
        shape,
        minimum=float(kept.min()) if kept.size else None,
        maximum=float(kept.max()) if kept.size else None,
        mean=float(kept.mean()) if kept.size else None,
        nans=nans,
        infinities=int(array.size - finite.sum()) - nans,
        first=first,
    )


def _plain(value: Any) -> Any:
    plain = value.item() if hasattr(value, "item") else value
    return plain if isinstance(plain, (bool, int, float, str)) else str(plain)


def _complaints(outputs: Sequence[ArraySummary]) -> list[str]:
    lines = []
    for item in outputs:
        if item.nans or item.infinities:
            lines.append(f"output {item.name} holds {item.nans} NaN and {item.infinities} infinite values")
    return lines
