"""Memory and time of `edit --extract`, `--opset` and `--set-shape` on a model larger than the memory they should take.

    python benchmarks/edit_large.py FOLDER [--gigabytes 5] [--layers 40]

Writes a chain of MatMul with external weights into FOLDER, cuts off its last node (converts it to
opset 21, makes its batch dynamic), and compares the time with copying the same bytes. Needs twice the space on
the disk.
"""

from __future__ import annotations

import argparse
import json
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
    print(f"copying {data.stat().st_size / 1e9:.2f} GB takes {before:.1f} s", flush=True)
    last = options.layers - 1
    for operation in (["--extract", f"x0:x{last}"], ["--opset", "21"], ["--set-shape", "x0:batch,WIDTH"]):
        width = onnx.load(path, load_external_data=False).graph.input[0].type.tensor_type.shape.dim[1].dim_value
        out = options.folder / "out.onnx"
        command = [*operation[:1], operation[1].replace("WIDTH", str(width))]
        line = [sys.executable, "-m", "onnxtool", "edit", str(path), "-o", str(out), *command, "--json", "-"]
        began = time.perf_counter()
        done = subprocess.run(line, check=False, stdout=subprocess.PIPE, text=True)
        seconds = time.perf_counter() - began
        # Of all children so far, the largest: run one operation alone for its own figure.
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        proof = json.loads(done.stdout)["steps"][0]["proof"] if done.returncode == 0 else None
        print(
            f"{' '.join(command)}: exit {done.returncode}, {seconds:.1f} s, {seconds / before:.2f} times copying, "
            f"largest process so far {peak / 1e6:.0f} MB; {proof['claim'] if proof else ''}",
            flush=True,
        )
        for file in options.folder.glob("out.onnx*"):
            file.unlink()


if __name__ == "__main__":
    main()
