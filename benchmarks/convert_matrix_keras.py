"""Keras: 25 models of keras.applications and one model for each family of layers, converted and verified.

    python benchmarks/convert_matrix_keras.py [--only WORD ...] [--part applications|layers]

Every model has random weights, is saved as a .keras file, and goes through the real pipeline: recognition, export,
comparison at three batch sizes. One line for each: verdict, largest difference, seconds by stage, nodes, needless
Transposes. Exit 1 when one fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from onnxtool.conversion.convert import convert
from onnxtool.conversion.tensorflow.environment import import_keras, quiet
from onnxtool.model import io
from onnxtool.model.ir.queries import operator_counts

ROOT = Path(__file__).parent.parent

# name -> side of the input image: small, but not too small for the strides.
APPLICATIONS = {
    "MobileNet": 64,
    "MobileNetV2": 64,
    "MobileNetV3Small": 64,
    "MobileNetV3Large": 64,
    "EfficientNetB0": 64,
    "EfficientNetB1": 64,
    "EfficientNetB2": 64,
    "EfficientNetB3": 64,
    "EfficientNetV2B0": 64,
    "EfficientNetV2B1": 64,
    "EfficientNetV2B2": 64,
    "EfficientNetV2S": 64,
    "DenseNet121": 64,
    "DenseNet169": 64,
    "NASNetMobile": 64,
    "ResNet50": 64,
    "ResNet101": 64,
    "ResNet152": 64,
    "ResNet50V2": 64,
    "ResNet101V2": 64,
    "InceptionV3": 96,
    "InceptionResNetV2": 96,
    "Xception": 96,
    "ConvNeXtTiny": 64,
    "VGG16": 32,
}


def cases(part: str | None, words: list[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(name, function that builds the model)."""
    keras = import_keras("the benchmark")
    sys.path.insert(0, str(ROOT))
    with quiet():
        from tests.conversion.keras.keras_models import FAMILIES
    if part != "layers":
        for name, side in APPLICATIONS.items():
            if not words or any(w.lower() in name.lower() for w in words):
                build = getattr(keras.applications, name)
                yield name, lambda build=build, side=side: build(weights=None, input_shape=(side, side, 3), classes=10)
    if part != "applications":
        for name, build in FAMILIES.items():
            if not words or any(w.lower() in name.lower() for w in words):
                yield name, build


def judge(name: str, build: Callable[[], Any], folder: Path) -> bool:
    """Convert one and print its line."""
    keras = import_keras("the benchmark")
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    path, output = folder / "model.keras", folder / "out.onnx"
    with quiet():
        build().save(path)
    started = time.perf_counter()
    try:
        report = convert(path, output)
    except Exception as error:
        print(f"FAIL {name:36} {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
        return False
    seconds = time.perf_counter() - started
    worst = report.comparison.worst if report.comparison else None
    counts = operator_counts(io.load(output)) if report.ok else {}
    stages = ", ".join(f"{stage} {value:.1f}" for stage, value in report.seconds.items())
    error = worst.max_abs if worst else 0.0
    print(
        f"{'pass' if report.ok else 'FAIL'} {name:36} max abs {error:.1e}  {seconds:5.1f} s ({stages})"
        f"  {report.nodes} nodes, {counts.get('Transpose', 0)} Transpose, {counts.get('Loop', 0)} Loop",
        flush=True,
    )
    return report.ok


def main() -> int:
    """Run all; print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="words in names")
    parser.add_argument("--part", choices=["applications", "layers"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        verdicts = [judge(name, build, Path(folder)) for name, build in cases(arguments.part, arguments.only)]
    print(f"{sum(verdicts)} of {len(verdicts)} converted and equal")
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
