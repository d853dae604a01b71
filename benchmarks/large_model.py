"""Peak memory and time of the commands that only look at a model, on one of several gigabytes of external data.

python benchmarks/large_model.py [--gigabytes 3] [--folder DIR]
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

WIDTH = 8192
COMMANDS = (["inspect"], ["verify"], ["check"])


def make(folder: Path, gigabytes: float) -> tuple[Path, int]:
    """Layers of 8192 x 8192 float32 weights, a quarter of a gigabyte each, and the bytes of all files."""
    layers = max(1, round(gigabytes * 1e9 / (4 * WIDTH * WIDTH)))
    path, data = folder / "large.onnx", folder / "large.onnx.data"
    generator = np.random.default_rng(0)
    tensors, nodes = [], []
    with open(data, "wb") as file:
        for layer in range(layers):
            tensor = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH])
            tensor.data_location = TensorProto.EXTERNAL
            entries = {"location": data.name, "offset": file.tell(), "length": 4 * WIDTH * WIDTH}
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=str(value))
            for _ in range(8):
                part = generator.standard_normal((WIDTH // 8, WIDTH), dtype=np.float32)
                file.write((part / WIDTH**0.5).tobytes())
            tensors.append(tensor)
            nodes.append(helper.make_node("MatMul", [f"h{layer}", f"w{layer}"], [f"h{layer + 1}"]))
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", WIDTH]) for n in ("h0", f"h{layers}")]
    graph = helper.make_graph(nodes, "large", values[:1], values[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path, path.stat().st_size + data.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=3.0)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        path, size = make(Path(name), options.gigabytes)
        for command in COMMANDS:
            began = time.monotonic()
            done = subprocess.Popen([sys.executable, "-m", "onnxtool", *command, path, "-q"], stderr=subprocess.PIPE)
            assert done.stderr is not None
            errors = done.stderr.read().decode().strip()
            _, status, usage = os.wait4(done.pid, 0)
            done.returncode = os.waitstatus_to_exitcode(status)
            seconds, busy = time.monotonic() - began, usage.ru_utime + usage.ru_stime
            peak = usage.ru_maxrss * 1024
            print(
                f"{' '.join(command):8} exit {done.returncode}  peak {peak / 1e9:.2f} GB = {peak / size:.2f}x of "
                f"{size / 1e9:.2f} GB  {seconds:.1f} s, {busy:.1f} s of them busy  {errors}",
                flush=True,
            )


if __name__ == "__main__":
    main()
