"""Golden files: inputs and outputs of a model, recorded once and held against later versions of it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool import __version__
from onnxtool.equality.compare_runners import compare_runners, make_feeds
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import InputError, ResourceError, UsageError
from onnxtool.model import io
from onnxtool.model.io.atomic import write_atomic
from onnxtool.model.provenance.metadata import versions
from onnxtool.model.spec import TensorSpec
from onnxtool.report.compare import CompareReport
from onnxtool.runtime.data.archive import read_npz
from onnxtool.runtime.feeds import flatten
from onnxtool.runtime.output_files import write_npz
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions

MANIFEST = "golden.json"
_FORMAT = "onnxtool/golden/1"
_INPUT, _OUTPUT = "input/", "output/"


def record(
    model: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | Mapping[str, np.ndarray] | None = None,
    batches: Sequence[int] = (),
    seed: int = 0,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    options: SessionOptions = SessionOptions(),  # noqa: B008  (frozen)
) -> CompareReport:
    """Write a model's inputs and outputs into a folder: case0.npz, case1.npz, ... and golden.json with their hashes.

    Args:
        model: an .onnx file.
        folder: made when it is not there; must not hold other golden files' remains.
        data, batches, seed, options: as for `compare`.
        rtol, atol: kept for the comparison that is made at once, of the recording with the model.

    Raises:
        InputError: the model or the data cannot be used.
        UsageError: `folder` is a file.
        ResourceError: it cannot be written.
    """
    io.read_proto(model)
    runner = OnnxRunner.open(Path(model), options)
    given = make_feeds(runner, (model,), data=data, seed=seed, batches=batches)
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise UsageError(f"--record {folder}: is a file, not a folder.") from error
    except OSError as error:
        raise ResourceError(f"--record {folder}: cannot be made ({error.strerror}).") from error
    cases = []
    for index, feed in enumerate(given.feeds):
        path = place / f"case{index}.npz"
        outputs = flatten(runner.run(feed))
        write_npz(path, {_INPUT + n: a for n, a in feed.items()} | {_OUTPUT + n: a for n, a in outputs.items()})
        cases.append({"file": path.name, "sha256": io.sha256(path)})
    manifest = {
        "format": _FORMAT,
        "model": Path(model).name,
        "model_sha256": io.sha256(model),
        "data": given.origin if data is None else "given data",
        "versions": {"onnxtool": __version__, **versions("onnx", "onnxruntime")},
        "cases": cases,
    }
    try:
        write_atomic(place / MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())
    except OSError as error:
        raise ResourceError(f"{place / MANIFEST}: cannot be written ({error.strerror}).") from error
    return golden(model, folder, rtol=rtol, atol=atol, options=options)


def golden(
    model: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    tolerances: Mapping[str, Tolerance] | None = None,
    options: SessionOptions = SessionOptions(),  # noqa: B008  (frozen)
) -> CompareReport:
    """Hold a model against what `record` wrote; A is the recording.

    Raises:
        InputError: no golden files, a changed one, or a model that does not take the recorded inputs.
    """
    place = Path(folder)
    manifest = _manifest(place)
    recorded = [_case(place, case) for case in manifest["cases"]]
    io.read_proto(model)
    runner = OnnxRunner.open(Path(model), options)
    report = compare_runners(
        _Recording(recorded),
        runner,
        [inputs for inputs, _ in recorded],
        Tolerance(rtol, atol),
        names=(str(folder), str(model)),
        data=str(folder),
        tolerances=tolerances,
    )
    if manifest.get("model_sha256") == io.sha256(model):
        report = replace(report, warnings=(*report.warnings, "this is the very model that was recorded"))
    return report


class _Recording:
    """A Runner that gives the recorded outputs, one case after the other."""

    def __init__(self, cases: Sequence[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]) -> None:
        first_inputs, first_outputs = cases[0]
        self.inputs = tuple(TensorSpec(n, a.dtype, None) for n, a in first_inputs.items())
        self.outputs = tuple(TensorSpec(n, a.dtype, None) for n, a in first_outputs.items())
        self._outputs = iter([outputs for _, outputs in cases])

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """What was recorded for the next case."""
        del feeds
        return dict(next(self._outputs))


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(
            f"{folder}: there is no {MANIFEST}. Make one with: onnxtool compare MODEL --record DIR"
        ) from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as JSON.") from error
    cases = manifest.get("cases") if isinstance(manifest, dict) and manifest.get("format") == _FORMAT else None
    if not cases or not all(isinstance(c, dict) and {"file", "sha256"} <= c.keys() for c in cases):
        raise InputError(f"{path}: is not a manifest of golden files ({_FORMAT}).")
    return dict(manifest)


def _case(folder: Path, case: Mapping[str, str]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    name = str(case["file"])
    if Path(name).name != name:
        raise InputError(f"{folder / MANIFEST}: {name!r} is not in the folder itself.")
    path = folder / name
    arrays = read_npz(path)
    if io.sha256(path) != case["sha256"]:
        raise InputError(f"{path}: was changed since it was recorded (its SHA-256 is another).")
    inputs = {n.removeprefix(_INPUT): a for n, a in arrays.items() if n.startswith(_INPUT)}
    outputs = {n.removeprefix(_OUTPUT): a for n, a in arrays.items() if n.startswith(_OUTPUT)}
    return inputs, outputs
