"""Mutated node tests of the onnx package through the Python functions: no process may die, hang, or end in a bug.

    python benchmarks/fuzz_python.py [--seed 0] [--minutes 10] [--keep FOLDER]

Each model goes through check, inspect, run, optimize, compare, edit and quantize in a process of its own. Prints what
died, hung for four minutes or raised something else than an error of ours, and leaves the file in FOLDER.
"""

from __future__ import annotations

import argparse
import copy
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

_SECONDS = 240
_CHANGES = ("attribute", "type", "dim", "rank", "left out", "dynamic", "constant")
_CHILD = """
import sys, warnings
warnings.simplefilter("ignore")
import onnx, onnxtool
from onnxtool.errors import OnnxToolError
path = sys.argv[1]
inputs = onnx.load(path).graph.input
steps = {
    "check": lambda: onnxtool.check(path),
    "inspect": lambda: onnxtool.inspect(path),
    "run": lambda: onnxtool.run(path),
    "optimize": lambda: onnxtool.optimize(path, path + ".optimized.onnx"),
    "compare": lambda: onnxtool.compare(path, path, effort="quick"),
    "edit": lambda: inputs and onnxtool.edit(path, path + ".edited.onnx", ["set-shape=%s:0=n" % inputs[0].name]),
    "quantize": lambda: onnxtool.quantize(path, path + ".quantized.onnx", mode="dynamic"),
}
for name, step in steps.items():
    print("step", name, flush=True)
    try:
        step()
    except OnnxToolError:
        pass
    except Exception as error:
        print("BUG", name, type(error).__name__, str(error)[:200].replace("\\n", " "), flush=True)
"""


def mutant(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    """A copy with up to two changes that a damaged or hostile file may have."""
    made = copy.deepcopy(model)
    graph = made.graph
    for kind in rng.choices(
        ("attribute", "type", "dim", "rank", "left out", "dynamic", "constant"), k=rng.randrange(3)
    ):
        node, value = rng.choice(graph.node), rng.choice(graph.input or graph.output)
        tensor = value.type.tensor_type
        if kind == "attribute" and node.attribute:
            attribute = rng.choice(node.attribute)
            if attribute.type == onnx.AttributeProto.INT:
                attribute.i = rng.choice((0, -1, 1, 2, -2, 7, 2**31 - 1, -(2**31), 2**40))
            elif attribute.type == onnx.AttributeProto.INTS and attribute.ints:
                attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice((0, -1, 1, 2, 3, 1000, 2**31))
            elif attribute.type == onnx.AttributeProto.FLOAT:
                attribute.f = rng.choice((0.0, -1.0, 1e30, float("nan")))
            else:
                node.attribute.remove(attribute)
        elif kind == "type":
            tensor.elem_type = rng.choice((1, 2, 3, 6, 7, 9, 10, 11, 16))
        elif kind == "dim" and tensor.shape.dim:
            rng.choice(tensor.shape.dim).dim_value = rng.choice((0, 1, 2, 3, 5, 1000))
        elif kind == "rank":
            tensor.shape.dim.add().dim_value = 2
        elif kind == "left out" and len(node.input) > 1:
            node.input[rng.randrange(len(node.input))] = ""
        elif kind == "dynamic":
            for k, dim in enumerate(tensor.shape.dim):
                dim.dim_param = f"d{k}"
        elif kind == "constant" and value in graph.input:
            shape = [dim.dim_value or 2 for dim in tensor.shape.dim]
            numbers = np.random.default_rng(0).integers(-3, 4, shape)
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            if dtype.kind not in "OUS":
                graph.initializer.append(numpy_helper.from_array(numbers.astype(dtype), value.name))
                graph.input.remove(value)
    return made


def run(path: Path) -> tuple[str, str]:
    """How the process ended ("0", "-11", "hang"), and what it printed."""
    with tempfile.TemporaryFile() as out:
        command = [sys.executable, "-c", _CHILD, str(path)]
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            ended = str(process.wait(_SECONDS))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            ended = "hang"
        out.seek(0)
        return ended, out.read().decode(errors="replace")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--keep", type=Path, default=Path("fuzz_python"))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    cases, rng, count = collect_testcases(None), random.Random(asked.seed), Counter[str]()
    ends = time.monotonic() + 60 * asked.minutes
    while time.monotonic() < ends:
        case = rng.choice(cases)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "m.onnx"
            onnx.save(mutant(case.model, rng), path)
            ended, printed = run(path)
            count[ended] += 1
            bugs = [line for line in printed.splitlines() if line.startswith("BUG")]
            if ended != "0" or bugs:
                step = [line for line in printed.splitlines() if line.startswith("step")][-1:]
                print(f"{case.name}: ended with {ended}; {bugs or step}", flush=True)
                asked.keep.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, asked.keep / f"{asked.seed}_{sum(count.values())}.onnx")
    print("| models | ended with |\n|---|---|")
    for ended, models in count.most_common():
        print(f"| {models} | {ended} |")


if __name__ == "__main__":
    main()
