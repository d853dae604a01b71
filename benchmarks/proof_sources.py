"""Sources that hide a fault from random inputs, through their exporter alone and through `convert`.

    python benchmarks/proof_sources.py [--only WORD ...] [--json FILE]

Each source is run, apart from onnxtool, on inputs that take its other sides; what either way wrote is held against
that. "right": equal on all of them; "wrong": a file that is not, without a word; "said": such a file with a warning
that names where it may differ; "refused": no file.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import proof_source_models as models
import torch

import onnxtool
from onnxtool.errors import OnnxToolError

warnings.simplefilter("ignore")
logging.disable(logging.ERROR)
RANDOM = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """One source.

    Attributes:
        name: what it hides.
        source: the model in memory, made anew.
        shapes: of its inputs; none where the model knows them.
        inputs: on which its answers are known.
        alone: its exporter writes a file.
        run: its own answer.
        sound: nothing is hidden; it should be converted.
    """

    name: str
    source: Callable[[], Any]
    shapes: dict[str, tuple[int | str, ...]]
    inputs: tuple[np.ndarray, ...]
    alone: Callable[[Any, Path, Any], None]
    run: Callable[[Any, np.ndarray], np.ndarray]
    sound: bool = False


def torch_alone(net: torch.nn.Module, path: Path, case: Case) -> None:
    """torch.onnx.export as its documentation has it."""
    (shape,) = case.shapes.values()
    sample = torch.randn([d if isinstance(d, int) else 2 if not i else 16 for i, d in enumerate(shape)])
    axes = {i: torch.export.Dim(f"d{i}") for i, d in enumerate(shape) if isinstance(d, str)}
    torch.onnx.export(net, (sample,), str(path), dynamo=True, dynamic_shapes=(axes,), verbose=False)


def torch_run(net: torch.nn.Module, x: np.ndarray) -> np.ndarray:
    """The module's own answer."""
    with torch.no_grad():
        return np.asarray(net(torch.from_numpy(x.copy())))


def of_torch(name: str, kind: type[torch.nn.Module], *inputs: np.ndarray, sound: bool = False) -> Case:
    """A module whose input is named x, with all dims before the last dynamic."""
    dims = ("batch", "length", "depth")[: inputs[0].ndim - 1]
    return Case(
        name,
        lambda: kind().eval(),
        {"x": (*dims, inputs[0].shape[-1])},
        inputs,
        torch_alone,
        torch_run,
        sound,
    )


def classical_alone(estimator: Any, path: Path, case: Case) -> None:
    """skl2onnx, with onnxmltools' converters for boosters, as their documentation has it."""
    from skl2onnx import to_onnx

    from onnxtool.conversion.boosting.export import register_estimators

    register_estimators()
    options = {id(estimator): {"zipmap": False}} if hasattr(estimator, "classes_") else None
    model = to_onnx(
        estimator, case.inputs[0][:2].astype(np.float32), options=options, target_opset={"": 15, "ai.onnx.ml": 3}
    )
    path.write_bytes(model.SerializeToString())


def classical_run(estimator: Any, x: np.ndarray) -> np.ndarray:
    """Probabilities, a prediction, or the transformed rows."""
    name = next(n for n in ("predict_proba", "predict", "transform") if hasattr(estimator, n))
    return np.asarray(getattr(estimator, name)(x.astype(np.float64)))


def classical(name: str, make: Callable[[], Any], *inputs: np.ndarray) -> Case:
    """A fitted estimator."""
    return Case(name, make, {}, tuple(i.astype(np.float32) for i in inputs), classical_alone, classical_run)


def cases() -> Iterator[Case]:
    """All sources."""
    for name, kind, inputs in models.torch_sources():
        yield of_torch(name, kind, *inputs, sound=name.startswith("sound"))
    for name, make, inputs in models.classical_sources():
        yield classical(name, make, *inputs)


def judged(case: Case, path: Path) -> str:
    """Whether a file is right on the inputs whose answers are known."""
    if not path.exists():
        return "refused"
    try:
        session = onnxruntime.InferenceSession(path)
    except Exception:
        return "refused"
    for x in case.inputs:
        try:
            expected = case.run(case.source(), x)
        except Exception:  # the source does not take it
            continue
        try:
            found = session.run(None, {session.get_inputs()[0].name: x})[-1]
        except Exception:
            return "wrong"
        if found.size != expected.size:
            return "wrong"
        scale = float(np.sqrt(np.nanmean(expected.astype(float) ** 2)))
        if not np.allclose(found.reshape(expected.shape), expected, 1e-3, 1e-4 * max(scale, 1e-30), equal_nan=True):
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
        report = onnxtool.convert(case.source(), path, input_shapes=case.shapes)
    except OnnxToolError:
        return "refused"
    verdict = judged(case, path)
    said = any("differ" in note or "equal where run" in note for note in report.notes)
    return "said" if verdict == "wrong" and said else verdict


def main() -> None:
    """Run all sources and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            if asked.only and not any(word in case.name for word in asked.only):
                continue
            rows.append((case.name, exported(case, Path(folder)), converted(case, Path(folder))))
            print("| {} | {} | {} |".format(*rows[-1]), flush=True)
    for place, what in ((1, "exporter alone"), (2, "onnxtool convert")):
        counts = {v: sum(row[place] == v for row in rows) for v in ("right", "refused", "said", "wrong")}
        print(f"{what}: {counts} of {len(rows)}")
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
