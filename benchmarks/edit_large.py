"""Memory and time of `edit --extract` on a model larger than the memory it may take.

    python benchmarks/edit_large.py FOLDER [--gigabytes 5] [--layers 40]

Writes a chain of MatMul with external weights into FOLDER, cuts off its last node, and compares the time with copying
the same bytes. Needs twice the space on the disk.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper


def build(folder: Path, gigabytes: float, layers: int) -> Path:
    """A chain of square MatMuls, float32, with all weights in one external file."""
    width = int((gigabytes * 1e9 / layers / 4) ** 0.5) // 64 * 64
    path, data = folder / "large.onnx", folder / "large.onnx.data"
    size = width * width * 4
    nodes, tensors = [], []
    row = np.random.default_rng(0).standard_normal((64, width)).astype(np.float32) / width**0.5
    with open(data, "wb") as file:
        for layer in range(layers):
            for _ in range(width // 64):
                file.write(row.tobytes())
            tensor = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=[width, width])
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", data.name), ("offset", layer * size), ("length", size)):
                tensor.external_data.add(key=key, value=str(value))
            tensors.append(tensor)
            nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"x{layer + 1}"], name=f"m{layer}"))
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [1, width])],
        [helper.make_tensor_value_info(f"x{layers}", TensorProto.FLOAT, [1, width])],
        tensors,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def copied(source: Path, target: Path) -> float:
    """Seconds that copying takes, with the data on the disk at the end."""
    began = time.perf_counter()
    with open(source, "rb") as left, open(target, "wb") as right:
        shutil.copyfileobj(left, right, 1 << 22)
        right.flush()
        os.fsync(right.fileno())
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--layers", type=int, default=40)
    options = parser.parse_args()
    path = build(options.folder, options.gigabytes, options.layers)
    data = path.with_name(path.name + ".data")
    copy = options.folder / "copy.bin"
    before = copied(data, copy)
    copy.unlink()
    out = options.folder / "part.onnx"
    line = [sys.executable, "-m", "onnxtool", "edit", str(path), "-o", str(out)]
    began = time.perf_counter()
    subprocess.run([*line, "--extract", f"x0:x{options.layers - 1}"], check=True)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    size = out.with_name(out.name + ".data").stat().st_size
    print(f"{data.stat().st_size / 1e9:.2f} GB -> {size / 1e9:.2f} GB")
    print(f"extract {seconds:.1f} s, copying {before:.1f} s, ratio {seconds / before:.2f}")
    print(f"largest process {peak / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
