"""Sources that hide a fault from random inputs, through their exporter alone and through `convert`.

Each source is run, apart from onnxtool, on inputs that take its other sides; what either way wrote is held against
that. "right": equal on all of them; "wrong": a file that is not, without a word; "said": such a file with a warning
that names where it may differ; "refused": no file. Those whose name has "sound" in it hide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import onnxtool
from onnxtool.errors import OnnxToolError
from tests.corpus.sources import fitted, frozen, further, layers, models, outside, programs, tables

RANDOM = np.random.default_rng(0)
Feeds = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """One source.

    Attributes:
        name: what it hides.
        source: the model in memory, made anew.
        settings: arguments of `convert`.
        inputs: on which its answers are known.
        alone: its exporter writes a file.
        run: its own answers.
    """

    name: str
    source: Callable[[], Any]
    settings: dict[str, Any]
    inputs: list[Feeds]
    alone: Callable[[Any, Path, Case], None]
    run: Callable[[Any, Feeds], Any]


def torch_alone(net: torch.nn.Module, path: Path, case: Case) -> None:
    """torch.onnx.export as its documentation has it."""
    samples, axes = [], []
    for name, shape in case.settings["input_shapes"].items():
        sizes = [d if isinstance(d, int) else 2 if not i else 16 for i, d in enumerate(shape)]
        whole = case.inputs[0][name].dtype.kind in "iu"
        samples.append(torch.randint(0, 2, sizes) if whole else torch.randn(sizes))
        axes.append({i: torch.export.Dim(str(d)) for i, d in enumerate(shape) if isinstance(d, str)})
    torch.onnx.export(net, tuple(samples), str(path), dynamo=True, dynamic_shapes=tuple(axes), verbose=False)


def torch_run(net: torch.nn.Module, feeds: Feeds) -> Any:
    """The module's own answer."""
    with torch.no_grad():
        return net(*(torch.from_numpy(x.copy()) for x in feeds.values()))


def classical_alone(estimator: Any, path: Path, case: Case) -> None:
    """skl2onnx as its documentation has it, with our converters for boosters."""
    from skl2onnx import to_onnx

    from onnxtool.conversion.boosting.export import register_estimators

    register_estimators()
    (rows,) = case.inputs[0].values()
    options = {id(estimator): {"zipmap": False}} if hasattr(estimator, "classes_") else None
    model = to_onnx(estimator, rows[:2].astype(np.float32), options=options, target_opset={"": 15, "ai.onnx.ml": 3})
    path.write_bytes(model.SerializeToString())


def classical_run(estimator: Any, feeds: Feeds) -> Any:
    """Probabilities, a prediction, or the transformed rows."""
    (rows,) = feeds.values()
    name = next(n for n in ("predict_proba", "predict", "transform") if hasattr(estimator, n))
    return np.asarray(getattr(estimator, name)(rows.astype(np.float64)))


def keras_alone(model: Any, path: Path, _: Case) -> None:
    """Keras' own export."""
    model.export(str(path), format="onnx", verbose=False)


def keras_run(model: Any, feeds: Feeds) -> Any:
    """The model's own answer."""
    return model(*feeds.values(), training=False)


def cases() -> Iterator[Case]:
    """All sources."""
    for name, kind, inputs in models.torch_sources():
        shape = (*("batch", "length", "depth")[: inputs[0].ndim - 1], inputs[0].shape[-1])
        feeds = [{"x": x} for x in inputs]
        settings = {"input_shapes": {"x": shape}}
        yield Case(name, lambda kind=kind: kind().eval(), settings, feeds, torch_alone, torch_run)
    for name, make, inputs in models.classical_sources():
        feeds = [{"X": x.astype(np.float32)} for x in inputs]
        yield Case(name, make, {}, feeds, classical_alone, classical_run)
    for found in further.torch_further():
        yield Case(*found, torch_alone, torch_run)
    for found in (*frozen.torch_frozen(), *outside.torch_outside(), *programs.torch_programs()):
        yield Case(*found, torch_alone, torch_run)
    for found in (*further.classical_further(), *fitted.classical_fitted(), *tables.classical_tables()):
        yield Case(*found, classical_alone, classical_run)
    for found in (*further.keras_further(), *fitted.keras_fitted(), *layers.keras_layers()):
        yield Case(*found, keras_alone, keras_run)


def flat(value: Any) -> list[np.ndarray]:
    """All tensors of an answer, in order."""
    if value is None:
        return []
    if isinstance(value, dict):
        return [a for key in value for a in flat(value[key])]
    if isinstance(value, (list, tuple)):
        return [a for item in value for a in flat(item)]
    return [value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)]


def close(found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether two outputs are equal but for rounding."""
    if found.dtype.kind in "OUS" or found.size != expected.size:
        return False
    finite = expected[np.isfinite(expected)].astype(float)
    scale = float(np.sqrt(np.mean(finite**2))) if finite.size else 1.0
    shaped = found.reshape(expected.shape)
    return np.allclose(shaped, expected, 1e-3, 1e-4 * max(scale, 1e-30), equal_nan=True)


def judged(case: Case, path: Path) -> str:
    """Whether a file is right on the inputs whose answers are known."""
    if not path.exists():
        return "refused"
    try:
        session = onnxruntime.InferenceSession(path)
    except Exception:
        return "refused"
    names = [i.name for i in session.get_inputs()]
    wide = {i.name for i in session.get_inputs() if i.type == "tensor(double)"}
    for feeds in case.inputs:
        try:
            expected = flat(case.run(case.source(), feeds))
        except Exception:  # the source does not take it
            continue
        try:
            given = {n: feeds.get(n, x) for n, x in zip(names, feeds.values(), strict=False)}
            given = {n: x.astype(np.float64) if n in wide else x for n, x in given.items()}
            found = [np.asarray(a) for a in session.run(None, given)]
        except Exception:
            return "wrong"
        if len(expected) == 1:  # a classifier gives labels beside probabilities
            same = any(close(a, expected[0]) for a in found)
        else:
            same = len(found) == len(expected) and all(map(close, found, expected))
        if not same:
            return "wrong"
    return "right"


def exported(case: Case, folder: Path) -> str:
    """The exporter alone."""
    path = folder / "alone.onnx"
    path.unlink(missing_ok=True)
    try:
        case.alone(case.source(), path, case)
    except Exception:
        return "refused"
    return judged(case, path)


def converted(case: Case, folder: Path) -> str:
    """`convert`."""
    path = folder / "converted.onnx"
    path.unlink(missing_ok=True)
    try:
        report = onnxtool.convert(case.source(), path, **case.settings)
    except OnnxToolError:
        return "refused"
    verdict = judged(case, path)
    said = any("differ" in note or "equal where run" in note for note in report.notes)
    return "said" if verdict == "wrong" and said else verdict
