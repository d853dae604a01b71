"""Other quantizers' versions of one model, for `quantize_zoo.py --peers`: whatever this interpreter has.

    python benchmarks/quantize_peers.py MODEL CALIB.npz|FOLDER FOLDER [--seconds 120] [--without WORD ...]

Writes FOLDER/NAME.onnx for every configuration that works and prints JSON: name -> file and seconds, or the error.
onnxruntime's quantizer runs after its own pre-processing in 13 configurations; NNCF, in an interpreter that has it
(`pip install nncf onnxruntime onnx`), in three. Entropy and percentile calibration keep all activations, so that they
get fewer samples. The file stands alone, so that an interpreter without onnxtool can run it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import logging
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

SAMPLES, FEW = 48, 16
Maker = Callable[[Path, Path, list[dict[str, np.ndarray]]], None]


def feeds_of(model: Path, data: Path) -> list[dict[str, np.ndarray]]:
    """One sample each, in the dtypes that the model takes: slices of arrays in a file, or the files of a folder."""
    import onnxruntime as ort

    if data.is_dir():
        paths = sorted(data.glob("*.npz"))
        chosen = np.linspace(0, len(paths) - 1, min(SAMPLES, len(paths))).astype(int)
        return [dict(np.load(paths[i])) for i in chosen]
    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    with np.load(data) as archive:
        arrays = {i.name: archive[i.name] for i in session.get_inputs()}
    floats = {i.name for i in session.get_inputs() if i.type == "tensor(float)"}
    count = min(SAMPLES, *(len(a) for a in arrays.values()))
    chosen = np.linspace(0, min(len(a) for a in arrays.values()) - 1, count).astype(int)
    return [{n: a[i : i + 1].astype("f4") if n in floats else a[i : i + 1] for n, a in arrays.items()} for i in chosen]


def static(activations: str, weights: str, *, few: bool = False, form: str = "QDQ", **options: Any) -> Maker:
    """onnxruntime's `quantize_static`."""

    def make(source: Path, target: Path, feeds: list[dict[str, np.ndarray]]) -> None:
        from onnxruntime.quantization import (
            CalibrationDataReader,
            CalibrationMethod,
            QuantFormat,
            QuantType,
            quantize_static,
        )

        class Reader(CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self.rows: Iterator[dict[str, np.ndarray]] = iter(feeds[:FEW] if few else feeds)

            def get_next(self) -> dict[str, np.ndarray] | None:
                return next(self.rows, None)

        kinds = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8}
        method = CalibrationMethod[options.pop("method", "MinMax")]
        quantize_static(
            str(source),
            str(target),
            Reader(),
            quant_format=QuantFormat[form],
            activation_type=kinds[activations],
            weight_type=kinds[weights],
            calibrate_method=method,
            **options,
        )

    return make


def dynamic(**options: Any) -> Maker:
    """onnxruntime's `quantize_dynamic`."""

    def make(source: Path, target: Path, _: list[dict[str, np.ndarray]]) -> None:
        from onnxruntime.quantization import quantize_dynamic

        quantize_dynamic(str(source), str(target), **options)

    return make


def nncf(**options: Any) -> Maker:
    """NNCF's `quantize` on ONNX."""

    def make(source: Path, target: Path, feeds: list[dict[str, np.ndarray]]) -> None:
        import nncf as library
        import onnx

        names = {k: getattr(getattr(library, kind), value) for k, (kind, value) in options.items()}
        quantized = library.quantize(onnx.load(source), library.Dataset(feeds), subset_size=len(feeds), **names)
        onnx.save(quantized, target)

    return make


LINEAR = ["MatMul", "Gemm"]
ONNXRUNTIME: dict[str, Maker] = {
    "static u8s8 per-tensor": static("u8", "s8"),
    "static u8s8 per-channel": static("u8", "s8", per_channel=True),
    "static s8s8 per-channel": static("s8", "s8", per_channel=True),
    "static u8u8 per-tensor": static("u8", "u8"),
    "static QOperator u8s8": static("u8", "s8", form="QOperator"),
    "static u8s8 per-channel entropy": static("u8", "s8", few=True, per_channel=True, method="Entropy"),
    "static u8s8 per-channel percentile": static("u8", "s8", few=True, per_channel=True, method="Percentile"),
    "static u8s8 MatMul": static("u8", "s8", per_channel=True, op_types_to_quantize=LINEAR),
    "static u8s8 Conv": static("u8", "s8", per_channel=True, op_types_to_quantize=["Conv"]),
    "dynamic per-tensor": dynamic(),
    "dynamic per-channel": dynamic(per_channel=True),
    "dynamic MatMul per-tensor": dynamic(op_types_to_quantize=LINEAR),
    "dynamic MatMul per-channel": dynamic(op_types_to_quantize=LINEAR, per_channel=True),
}
NNCF: dict[str, Maker] = {
    "NNCF": nncf(),
    "NNCF mixed": nncf(preset=("QuantizationPreset", "MIXED")),
    "NNCF transformer": nncf(model_type=("ModelType", "TRANSFORMER")),
}


def prepared(model: Path, folder: Path) -> tuple[Path, str]:
    """The model after onnxruntime's pre-processing, or as it is, and why."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    model, folder = model.resolve(), folder.resolve()
    try:
        with contextlib.chdir(folder):  # where it fails it leaves sym_shape_infer_temp.onnx in the folder at hand
            quant_pre_process(str(model), str(folder / "prepared.onnx"))
    except Exception as error:
        return model, f"{type(error).__name__}: {str(error)[:80]}"
    return folder / "prepared.onnx", ""


def expire(*_: object) -> None:
    raise TimeoutError("took too long")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=int, default=120, help="for one configuration")
    parser.add_argument("--without", nargs="*", default=[], help="leave out configurations with these words in them")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    feeds = feeds_of(options.model, options.data)
    results: dict[str, dict[str, object]] = {}
    has_nncf = importlib.util.find_spec("nncf") is not None
    source = options.model
    if not has_nncf:
        source, why = prepared(options.model, options.folder)
        results |= {"pre-processing": {"error": why}} if why else {}
    signal.signal(signal.SIGALRM, expire)
    for name, make in (NNCF if has_nncf else ONNXRUNTIME).items():
        if any(word in name for word in options.without):
            continue
        target = options.folder / f"peer {name}.onnx".replace(" ", "_")
        began, used = time.perf_counter(), time.process_time()
        signal.alarm(options.seconds)
        try:
            make(source, target, feeds)
            clock = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - used}
            results[name] = {"file": str(target), "samples": len(feeds), **clock}
        except Exception as error:
            results[name] = {"error": f"{type(error).__name__}: {str(error)[:80]}"}
        finally:
            signal.alarm(0)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
