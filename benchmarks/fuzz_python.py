"""Mutated node tests of the onnx package through the Python functions: no process may die, hang, or end in a bug.

    python benchmarks/fuzz_python.py [--seed 0] [--minutes 10] [--keep FOLDER]

Each model goes through check, inspect, run, optimize, compare, edit and quantize in a process that takes one model
after the other. Prints what died, hung for four minutes or raised something else than an error of ours, and leaves the
file in FOLDER.
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
import threading
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

_SECONDS = 240
_MODELS = 100  # that one process takes
_CHANGES = ("attribute", "type", "dim", "rank", "left out", "dynamic", "constant", "opset", "branch", "function")
_CHILD = """
import sys, warnings
warnings.simplefilter("ignore")
import onnx, onnxtool
from onnxtool.errors import OnnxToolError
for line in sys.stdin:
    path = line.strip()
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
    print("done", flush=True)
"""


def mutant(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    """A copy with up to two changes that a damaged or hostile file may have."""
    made = copy.deepcopy(model)
    graph = made.graph
    for kind in rng.choices(_CHANGES, k=rng.randrange(3)):
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
        elif kind == "constant" and value in graph.input and tensor.elem_type:
            shape = [dim.dim_value or 2 for dim in tensor.shape.dim]
            numbers = np.random.default_rng(0).integers(-3, 4, shape)
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            if dtype.kind not in "OUS":
                graph.initializer.append(numpy_helper.from_array(numbers.astype(dtype), value.name))
                graph.input.remove(value)
        elif kind == "opset":
            made.opset_import[0].version = rng.randrange(7, max(made.opset_import[0].version, 7) + 1)
        elif kind == "branch":
            _into_branch(graph)
        elif kind == "function" and not made.functions:
            _into_function(made)
    return made


def _into_branch(graph: onnx.GraphProto) -> None:
    """All nodes in both branches of an If whose condition is an input."""
    taken = helper.make_graph(list(graph.node), "taken", [], [copy.deepcopy(o) for o in graph.output])
    names = [o.name for o in graph.output]
    condition = helper.make_tensor_value_info("fuzz_condition", onnx.TensorProto.BOOL, [])
    made = helper.make_node("If", ["fuzz_condition"], names, then_branch=taken, else_branch=copy.deepcopy(taken))
    del graph.node[:]
    graph.node.append(made)
    graph.input.append(condition)


def _into_function(model: onnx.ModelProto) -> None:
    """All nodes in a function of the model."""
    graph = model.graph
    inputs, outputs = ([v.name for v in values] for values in (graph.input, graph.output))
    imports = [copy.deepcopy(i) for i in model.opset_import]
    model.functions.append(helper.make_function("fuzz", "F", inputs, outputs, list(graph.node), imports))
    model.opset_import.append(helper.make_opsetid("fuzz", 1))
    del graph.node[:]
    graph.node.append(helper.make_node("F", inputs, outputs, domain="fuzz"))


class Child:
    """A process that takes models one after the other, and is started anew where it died or took many."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._taken = 0

    def run(self, path: Path) -> tuple[str, list[str]]:
        """How the process ended ("alive", "-11", "hang"), and what it printed."""
        if self._process is None or self._taken == _MODELS:
            self.close()
            command = [sys.executable, "-c", _CHILD]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
            )
            self._taken = 0
        process, self._taken = self._process, self._taken + 1
        assert process.stdin is not None and process.stdout is not None
        hung = threading.Timer(_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        hung.start()
        process.stdin.write(f"{path}\n")
        process.stdin.flush()
        lines = []
        for line in process.stdout:
            if line == "done\n":
                hung.cancel()
                return "alive", lines
            lines.append(line.rstrip())
        self._process = None
        ended = "hang" if hung.finished.is_set() else str(process.wait())
        hung.cancel()
        process.wait()
        return ended, lines

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--keep", type=Path, default=Path("fuzz_python"))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    cases, rng, count = collect_testcases(None), random.Random(asked.seed), Counter[str]()
    ends, child = time.monotonic() + 60 * asked.minutes, Child()
    while time.monotonic() < ends:
        case = rng.choice(cases)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "m.onnx"
            onnx.save(mutant(case.model, rng), path)
            ended, printed = child.run(path)
            count[ended] += 1
            if sum(count.values()) % 500 == 0:
                print(dict(count), flush=True)
            bugs = [line for line in printed if line.startswith("BUG")]
            if ended != "alive" or bugs:
                step = [line for line in printed if line.startswith("step")][-1:]
                print(f"{case.name}: ended with {ended}; {bugs or step}", flush=True)
                asked.keep.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, asked.keep / f"{asked.seed}_{sum(count.values())}.onnx")
    child.close()
    print("| models | ended with |\n|---|---|")
    for ended, models in count.most_common():
        print(f"| {models} | {ended} |")


if __name__ == "__main__":
    main()
