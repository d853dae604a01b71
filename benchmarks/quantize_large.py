"""Weight-only and float16 quantization of a model that is larger than memory should have to hold.

    python benchmarks/quantize_large.py [--gigabytes 3] [--modes int4 float16] [--folder FOLDER]

Makes a float32 model of random weights, layer by layer, with external data; quantizes it with the command line; watches
the memory that the process has of its own (what it maps from files, the kernel can take back at any time); loads and
runs the result in a process of its own. Needs about 1.6 times --gigabytes of disk, and removes it afterwards.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

WIDTH = 4096
CHECK = """
import sys, numpy as np, onnxruntime as ort
options = ort.SessionOptions()
options.add_session_config_entry("session.disable_prepacking", "1")
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
(spec,) = session.get_inputs()
kind = np.float16 if "16" in spec.type else np.float32
(result,) = session.run(None, {spec.name: np.linspace(-1, 1, 4096, dtype=kind)[None]})
print(result.shape, bool(np.isfinite(result).all()), float(np.abs(result.astype("f4")).mean()))
"""


def write_model(path: Path, gigabytes: float) -> int:
    """A chain of MatMul and Relu; gives the number of layers."""
    layers = max(1, round(gigabytes * 1e9 / (WIDTH * WIDTH * 4)))
    generator = np.random.default_rng(0)
    size = WIDTH * WIDTH * 4
    nodes, initializers = [], []
    with open(path.with_suffix(".data"), "wb") as file:
        for layer in range(layers):
            weight = generator.standard_normal((WIDTH, WIDTH), dtype=np.float32)
            weight *= np.float32(np.sqrt(2 / WIDTH))
            file.write(weight.data)
            tensor = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH])
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in {
                "location": path.with_suffix(".data").name,
                "offset": layer * size,
                "length": size,
            }.items():
                tensor.external_data.add(key=key, value=str(value))
            initializers.append(tensor)
            before = "x" if layer == 0 else f"r{layer - 1}"
            after = "y" if layer == layers - 1 else f"r{layer}"
            nodes += [
                helper.make_node("MatMul", [before, f"w{layer}"], [f"m{layer}"]),
                helper.make_node("Relu", [f"m{layer}"], [after]),
            ]
    shape = ["batch", WIDTH]
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        initializers,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return layers


def own_megabytes(process: int) -> dict[str, float]:
    """Memory of a process and its children: its own, and with mapped files."""
    total = {"RssAnon": 0.0, "VmRSS": 0.0}
    children = Path(f"/proc/{process}/task/{process}/children")
    for one in [process, *map(int, children.read_text(encoding="ascii").split())]:
        status = Path(f"/proc/{one}/status").read_text(encoding="ascii")
        for key in total:
            total[key] += int(status.split(f"{key}:")[1].split()[0]) / 1024
    return total


def watched(command: list[str]) -> tuple[int, float, float, float]:
    """Run a command; its exit code, seconds, and peak memory of its own and with mapped files, in MB."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    own = whole = 0.0
    while process.poll() is None:
        try:
            found = own_megabytes(process.pid)
        except (OSError, IndexError):
            continue
        own, whole = max(own, found["RssAnon"]), max(whole, found["VmRSS"])
        time.sleep(0.05)
    return process.returncode, time.perf_counter() - began, own, whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=3.0)
    parser.add_argument("--modes", nargs="*", default=["int4", "float16"])
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quantize-large-", dir=options.folder) as folder:
        source = Path(folder) / "float.onnx"
        layers = write_model(source, options.gigabytes)
        print(f"{layers} layers, {source.with_suffix('.data').stat().st_size / 1e9:.2f} GB of float32 weights")
        print("| mode | exit code | seconds | peak MB of its own | with mapped files | size ratio | result, run |")
        print("|---|---|---|---|---|---|---|")
        for mode in options.modes:
            place = Path(folder) / mode
            place.mkdir()
            target = place / "out.onnx"
            command = [
                sys.executable,
                "-m",
                "onnxtool",
                "quantize",
                str(source),
                "-o",
                str(target),
                "--mode",
                mode,
                "-q",
            ]
            code, seconds, own, whole = watched(command)
            ran = subprocess.run(
                [sys.executable, "-c", CHECK, str(target)], capture_output=True, text=True, check=False
            )
            told = ran.stdout.strip() or f"fails: {ran.stderr.strip()[-100:]}"
            size = sum(f.stat().st_size for f in place.iterdir()) / source.with_suffix(".data").stat().st_size
            print(f"| {mode} | {code} | {seconds:.0f} | {own:.0f} | {whole:.0f} | {size:.3f} | {told} |", flush=True)
            for file in place.iterdir():
                os.remove(file)


if __name__ == "__main__":
    main()
