"""What large models cost the optimizer: seconds and peak memory of the whole process.

    python benchmarks/optimize_big.py [--folder FOLDER] [--gigabytes 2.25] [--bert] [--peer PYTHON]

Two models, made here with random weights: one with external data (linear layers with an Identity and an unused branch
between them), and with `--bert` BERT-base from the TorchScript exporter (440 MB in one file; needs torch and
transformers). `--peer` names a Python that has onnxscript, whose optimizer then runs in turn with ours.

Peak memory is the largest resident set of the process, mapped pages of files included. The model's files are removed
at the end, unless the folder was given.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

_WIDTH = 4096
_PEER = "import sys, onnx, onnxscript.optimizer as o; onnx.save(o.optimize(onnx.load(sys.argv[1])), sys.argv[2])"
_PEER_EXTERNAL = """
import sys, onnx_ir as ir, onnxscript.optimizer as o
model = ir.load(sys.argv[1]); o.optimize(model); ir.save(model, sys.argv[2], external_data="external.peer.data")
"""
_ROUNDS = 3


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


@dataclass(frozen=True)
class Cost:
    """Seconds on the clock and of the processors, and the peak memory in bytes, of a process."""

    seconds: float
    cpu: float
    peak: int

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, {self.cpu:.1f} s of processor time, {self.peak / 1e6:.0f} MB"


def measure(command: list[str]) -> Cost:
    """Run a process, once what others wrote is on the disk."""
    os.sync()
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        sys.exit(f"failed: {errors.strip().splitlines()[-1] if errors.strip() else status}")
    scale = 1 if sys.platform == "darwin" else 1024
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * scale)


def in_turn(ours: list[str], peer: list[str], results: Callable[[], Iterable[Path]]) -> None:
    """Both commands in alternation, from a clean folder each: medians of the ratios."""
    costs: list[list[Cost]] = [[], []]
    for _ in range(_ROUNDS):
        for found, command in zip(costs, (ours, peer), strict=True):
            for left in results():
                left.unlink()
            found.append(measure(command))
    for name, found in zip(("onnxtool", "onnxscript"), costs, strict=True):
        print(f"    {name}: " + "; ".join(map(str, found)), flush=True)
    clock = statistics.median(a.seconds / b.seconds for a, b in zip(*costs, strict=True))
    cpu = statistics.median(a.cpu / b.cpu for a, b in zip(*costs, strict=True))
    print(f"    ratio, median of {_ROUNDS}: {clock:.2f} by the clock, {cpu:.2f} of processor time", flush=True)


def optimizer(source: Path, *options: str) -> list[str]:
    """The command, with a result beside the source."""
    target = source.with_name(f"{source.stem}.out.onnx")
    return [sys.executable, "-m", "onnxtool", "optimize", str(source), "-o", str(target), "-q", "--no-bench", *options]


def _size(path: Path) -> float:
    return (
        sum(
            f.stat().st_size
            for f in path.parent.glob(f"{path.stem}.*")
            if ".out." not in f.name and ".peer." not in f.name
        )
        / 1e6
    )


def in_child(kind: str, folder: Path, arguments: argparse.Namespace) -> Path:
    """Build a model in a process of its own: a measured one begins with the peak memory of the one that starts it."""
    line = [sys.executable, __file__, "--build", kind, "--folder", str(folder), "--gigabytes", str(arguments.gigabytes)]
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder / f"{kind}.onnx"


def run(folder: Path, arguments: argparse.Namespace) -> None:
    """Build, measure, print."""
    source = in_child("external", folder, arguments)
    print(f"external data, {_size(source):.0f} MB")
    print(f"  without comparison: {measure(optimizer(source, '--no-verify'))}", flush=True)
    print(f"  with comparison: {measure(optimizer(source))}", flush=True)
    if arguments.peer:
        print("  without comparison, in turn with onnxscript's optimizer")
        peer = [arguments.peer, "-c", _PEER_EXTERNAL, str(source), str(folder / "external.peer.onnx")]
        in_turn(
            optimizer(source, "--no-verify"),
            peer,
            lambda: [*folder.glob("external.out.*"), *folder.glob("external.peer.*")],
        )
    for left in folder.glob("external*"):
        left.unlink()
    if arguments.bert:
        source = in_child("bert", folder, arguments)
        print(f"BERT-base in one file, {_size(source):.0f} MB")
        print(f"  with comparison: {measure(optimizer(source))}", flush=True)
        print(f"  without comparison: {measure(optimizer(source, '--no-verify'))}", flush=True)
        if arguments.peer:
            print("  with comparison, in turn with onnxscript's optimizer, which has none")
            peer = [arguments.peer, "-c", _PEER, str(source), str(folder / "bert.peer.onnx")]
            in_turn(optimizer(source), peer, lambda: [*folder.glob("bert.out.*"), *folder.glob("bert.peer.*")])
        for left in folder.glob("bert*"):
            left.unlink()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the models go (needs twice their size)")
    parser.add_argument("--gigabytes", type=float, default=2.25)
    parser.add_argument("--bert", action="store_true")
    parser.add_argument("--peer", help="a Python with onnxscript")
    parser.add_argument("--build", choices=["external", "bert"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.build == "external":
        build_external(arguments.folder, arguments.gigabytes)
        return
    if arguments.build == "bert":
        build_bert(arguments.folder)
        return
    if arguments.folder is not None:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        run(arguments.folder, arguments)
        return
    with tempfile.TemporaryDirectory() as scratch:
        run(Path(scratch), arguments)


if __name__ == "__main__":
    main()
