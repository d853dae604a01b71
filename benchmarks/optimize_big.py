"""What large models cost the optimizer: seconds and peak memory of the whole process.

    python benchmarks/optimize_big.py [--folder FOLDER] [--gigabytes 2.25] [--bert] [--peer PYTHON]

Two models, made here with random weights: one with external data (linear layers with an Identity and an unused branch
between them), and with `--bert` BERT-base from the TorchScript exporter (440 MB in one file; needs torch and
transformers). `--peer` names a Python that has onnxscript, to run its optimizer beside ours on the second.

Peak memory is the largest resident set of the process, mapped pages of files included. The model's files are removed
at the end, unless the folder was given.
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

_WIDTH = 4096
_PEER = "import sys, onnx, onnxscript.optimizer as o; onnx.save(o.optimize(onnx.load(sys.argv[1])), sys.argv[2])"


def build_external(folder: Path, gigabytes: float) -> Path:
    """Linear layers of 64 MB each, their weights in one file beside the model, written one after the other."""
    layers = max(1, round(gigabytes * 1e9 / (4 * _WIDTH * _WIDTH)))
    path, data = folder / "external.onnx", folder / "external.data"
    rng = np.random.default_rng(0)
    nodes, weights, offset = [], [], 0
    with open(data, "wb") as file:
        for layer in range(layers):
            array = rng.standard_normal((_WIDTH, _WIDTH), dtype=np.float32) / np.float32(_WIDTH**0.5)
            file.write(array.tobytes())
            weight = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=array.shape)
            weight.data_location = TensorProto.EXTERNAL
            for key, value in (("location", data.name), ("offset", offset), ("length", array.nbytes)):
                weight.external_data.add(key=key, value=str(value))
            offset += array.nbytes
            weights.append(weight)
            nodes += [
                helper.make_node("Identity", [f"x{layer}"], [f"i{layer}"]),
                helper.make_node("MatMul", [f"i{layer}", f"w{layer}"], [f"m{layer}"]),
                helper.make_node("Neg", [f"m{layer}"], [f"unused{layer}"]),
                helper.make_node("Relu", [f"m{layer}"], [f"x{layer + 1}"]),
            ]
    ends = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, ["batch", _WIDTH]) for i in (0, layers)]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def build_bert(folder: Path) -> Path:
    """BERT-base with random weights, from the TorchScript exporter without its constant folding."""
    import torch
    import transformers

    sys.path.insert(0, str(Path(__file__).parent))
    import models

    torch.manual_seed(0)
    config = transformers.BertConfig()
    config._attn_implementation = "eager"
    dims = {0: "batch", 1: "length"}
    names = {"input_ids": dims, "attention_mask": dims}
    inputs = (torch.randint(0, 2000, (2, 16)), torch.ones(2, 16, dtype=torch.int64))
    path = folder / "bert.onnx"
    models._export(
        models._First(transformers.BertModel(config), *names), inputs, list(names), names, path, "torchscript"
    )
    return path


def measure(command: list[str]) -> str:
    """Run a process: seconds on the clock, of the processors, and its peak memory."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        return f"failed: {errors.strip().splitlines()[-1] if errors.strip() else status}"
    cpu = usage.ru_utime + usage.ru_stime
    scale = 1 if sys.platform == "darwin" else 1024
    return f"{seconds:.1f} s, {cpu:.1f} s of processor time, {usage.ru_maxrss * scale / 1e6:.0f} MB"


def optimizer(source: Path, *options: str) -> list[str]:
    """The command, with a result beside the source."""
    target = source.with_name(f"{source.stem}.out.onnx")
    return [sys.executable, "-m", "onnxtool", "optimize", str(source), "-o", str(target), "-q", "--no-bench", *options]


def _size(path: Path) -> float:
    return sum(f.stat().st_size for f in path.parent.glob(f"{path.stem}.*") if ".out." not in f.name) / 1e6


def run(folder: Path, arguments: argparse.Namespace) -> None:
    """Build, measure, print."""
    source = build_external(folder, arguments.gigabytes)
    print(f"external data, {_size(source):.0f} MB")
    print(f"  without comparison: {measure(optimizer(source, '--no-verify'))}", flush=True)
    print(f"  with comparison: {measure(optimizer(source))}", flush=True)
    for left in folder.glob("external*"):
        left.unlink()
    if arguments.bert:
        source = build_bert(folder)
        print(f"BERT-base in one file, {_size(source):.0f} MB")
        print(f"  with comparison: {measure(optimizer(source))}", flush=True)
        print(f"  without comparison: {measure(optimizer(source, '--no-verify'))}", flush=True)
        if arguments.peer:
            target = str(folder / "bert.peer.onnx")
            print(f"  onnxscript: {measure([arguments.peer, '-c', _PEER, str(source), target])}", flush=True)
        for left in folder.glob("bert*"):
            left.unlink()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the models go (needs twice their size)")
    parser.add_argument("--gigabytes", type=float, default=2.25)
    parser.add_argument("--bert", action="store_true")
    parser.add_argument("--peer", help="a Python with onnxscript")
    arguments = parser.parse_args()
    if arguments.folder is not None:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        run(arguments.folder, arguments)
        return
    with tempfile.TemporaryDirectory() as scratch:
        run(Path(scratch), arguments)


if __name__ == "__main__":
    main()
