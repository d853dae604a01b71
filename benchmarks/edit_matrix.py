"""Fixed batch to dynamic: how many of the models of `edit_models.py` become dynamic and right, beside other tools.

    python benchmarks/edit_matrix.py FOLDER [--peers PYTHON] [--only TEXT] [--markdown FILE] [--json FILE]

FOLDER is what edit_models.py has built. Every result is judged here by plain ONNX Runtime, without onnxtool: a batch
of 1, 2, 3 and 5 must give what the original gives for each row. PYTHON is the interpreter of an environment with the
other tools (pip install onnx onnxruntime onnxsim onnx-graphsurgeon sbi4onnx).

    dynamic  the file was written, and every batch is right
    refused  no file was written, and the message names a node
    unnamed  no file was written, and no node is named
    fails    a file was written, and a batch does not run
    wrong    a file was written, and a batch gives other values
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

_SIZES = (1, 2, 3, 5)
_TYPES = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16,
    "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(uint8)": np.uint8, "tensor(bool)": np.bool_,
}  # fmt: skip
_WORDS = ("dynamic", "refused", "unnamed", "fails", "wrong")


def session(path: Path) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def feeds(inputs: list[Any], batch: dict[str, int], size: int, seed: int) -> dict[str, np.ndarray]:
    """Random inputs with a batch; integers below 50 are good indices for every model here."""
    generator = np.random.default_rng(seed)
    made = {}
    for item in inputs:
        shape = [d if isinstance(d, int) else 64 for d in item.shape]
        if item.name in batch:
            shape[batch[item.name]] = size
        kind = _TYPES[item.type]
        if np.issubdtype(kind, np.floating):
            made[item.name] = generator.standard_normal(shape).astype(kind)
        else:
            made[item.name] = generator.integers(0, 50, shape).astype(kind) if shape else np.array(16000, kind)
    return made


def judge(original: Path, edited: Path, batch: dict[str, int]) -> tuple[str, str]:
    """("dynamic", ""), or ("fails" | "wrong", why)."""
    old = session(original)
    try:
        new = session(edited)
    except Exception as error:
        return "fails", " ".join(str(error).split())[:160]
    fixed = {i.name: i.shape[batch[i.name]] for i in old.get_inputs() if i.name in batch}
    names = [o.name for o in old.get_outputs()]
    for size in _SIZES:
        given = feeds(old.get_inputs(), batch, size, size)
        rows = []
        for row in range(size):
            own = {
                n: np.repeat(np.take(a, [row], batch[n]), fixed[n], batch[n]) if n in batch else a
                for n, a in given.items()
            }
            rows.append(old.run(names, own))
        try:
            results = new.run(names, given)
        except Exception as error:
            return "fails", f"batch {size}: {' '.join(str(error).split())[:140]}"
        count = next(iter(fixed.values()))
        for name, result, *parts in zip(names, results, *rows, strict=True):
            if not right(result, parts, count):
                return "wrong", f"batch {size}: {name} {list(result.shape)} for rows of {list(parts[0].shape)}"
    return "dynamic", ""


def right(result: np.ndarray, rows: tuple[np.ndarray, ...], fixed: int) -> bool:
    """Whether a result is the rows along some axis, or the same for every row."""
    first = rows[0]
    for axis in range(first.ndim):
        if first.shape[axis] % fixed:
            continue
        share = first.shape[axis] // fixed
        whole = np.concatenate([np.take(r, range(share), axis) for r in rows], axis)
        if whole.shape == result.shape and close(whole, result):
            return True
    return result.shape == first.shape and all(close(r, result) for r in rows)


def close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind not in "fc":
        return bool((a == b).all())
    scale = float(np.nanmax(np.abs(a))) if a.size else 1.0
    # A millionth is the rounding of a sigmoid or softmax near 0.
    return bool(np.allclose(a, b, 1e-3, max(1e-4 * scale, 1e-6), equal_nan=True))


def dims(path: Path, batch: dict[str, int]) -> dict[str, list[str]]:
    """Input -> its dims with the batch as a word."""
    found = {}
    for item in session(path).get_inputs():
        if item.name in batch:
            shape = [str(d) if d is not None else "?" for d in item.shape]
            shape[batch[item.name]] = "batch"
            found[item.name] = shape
    return found


def ours(path: Path, out: Path, batch: dict[str, int]) -> tuple[bool, str]:
    shapes = [part for n, d in dims(path, batch).items() for part in ("--set-shape", f"{n}:{','.join(d)}")]
    line = [sys.executable, "-m", "onnxtool", "edit", str(path), "-o", str(out), *shapes, "-q"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return done.returncode == 0, f"exit {done.returncode}: {' '.join(done.stderr.split())[:600]}"


_UPDATE = """
import sys, json, onnx
from onnx.tools import update_model_dims
source, target, batch = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
model = onnx.load(source)
weights = {t.name for t in model.graph.initializer}
def shape(v):
    return [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
ins = {v.name: shape(v) for v in model.graph.input}
for name, axis in batch.items():
    ins[name][axis] = "batch"
outs = {v.name: ["batch", *shape(v)[1:]] if shape(v) else [] for v in model.graph.output}
onnx.save(update_model_dims.update_inputs_outputs_dims(model, ins, outs), target)
"""
_SURGEON = """
import sys, json, onnx, numpy as np
import onnx_graphsurgeon as gs
source, target, batch = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
graph = gs.import_onnx(onnx.load(source))
for value in graph.inputs:
    if value.name in batch:
        value.shape = ["batch" if i == batch[value.name] else d for i, d in enumerate(value.shape)]
for value in graph.outputs:
    value.shape = ["batch", *value.shape[1:]] if value.shape else value.shape
for node in graph.nodes:  # what its users write: the first number of every Reshape's constant target becomes -1
    if node.op == "Reshape" and isinstance(node.inputs[1], gs.Constant):
        wanted = node.inputs[1].values.copy()
        if len(wanted) > 1 and -1 not in wanted:
            wanted[0] = -1
            node.inputs[1] = gs.Constant(node.name + "_target", wanted)
onnx.save(gs.export_onnx(graph.cleanup()), target)
"""
_SBI = """
import sys
from sbi4onnx import initialize
initialize(input_onnx_file_path=sys.argv[1], output_onnx_file_path=sys.argv[2], initialization_character_string="batch",
           non_verbose=True)
"""
PEERS = {"onnx update_model_dims": _UPDATE, "graphsurgeon + Reshape -1": _SURGEON, "sbi4onnx": _SBI}


def peer(python: str, script: str, path: Path, out: Path, batch: dict[str, int]) -> tuple[bool, str]:
    line = [python, "-c", script, str(path), str(out), json.dumps(batch)]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return False, "took more than 300 s"
    return done.returncode == 0 and out.exists(), " ".join(done.stderr.split())[-200:]


def measure(path: Path, batch: dict[str, int], python: str | None) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for tool in ("onnxtool edit", *(PEERS if python else ())):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out.onnx"
            began = time.perf_counter()
            if tool == "onnxtool edit":
                written, said = ours(path, out, batch)
            else:
                written, said = peer(python or "", PEERS[tool], path, out, batch)
            seconds = time.perf_counter() - began
            if written:
                verdict, why = judge(path, out, batch)
            else:
                named = tool == "onnxtool edit" and re.search(r": [A-Z]\w+ '", said)
                verdict, why = ("refused" if named else "unnamed"), said
            found[tool] = {"verdict": verdict, "why": why, "seconds": round(seconds, 2)}
    return found


def table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    tools = list(next(iter(results.values())))
    lines = [f"| model | {' | '.join(tools)} |", "|---" * (len(tools) + 1) + "|"]
    for name, row in results.items():
        lines.append(f"| {name} | {' | '.join(row[t]['verdict'] if t in row else '' for t in tools)} |")
    for word in _WORDS:
        counts = [Counter(row[t]["verdict"] for row in results.values() if t in row)[word] for t in tools]
        lines.append(f"| **{word}** | {' | '.join(f'**{c}** of {len(results)}' for c in counts)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peers", help="python of an environment with the other tools")
    parser.add_argument("--only", default="", help="models whose name holds this text")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    models = json.loads((options.folder / "models.json").read_text())
    results = {}
    for name, batch in models.items():
        if options.only not in name:
            continue
        results[name] = measure(options.folder / f"{name}.onnx", batch, options.peers)
        own = results[name]["onnxtool edit"]
        print(f"{name}: {own['verdict']} {own['seconds']} s {own['why'][:400]}", flush=True)
    text = table(results)
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
