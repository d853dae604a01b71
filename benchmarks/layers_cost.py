"""What `compare --layers` costs on BERT-base, as multiples of two plain runs of the same two models.

    python benchmarks/layers_cost.py [--model MODEL.onnx] [--batch 2] [--length 128] [--rounds 3]

Without --model, BERT-base (12 layers, 768 wide, 109 M random weights) is built with transformers and torch.onnx.
B is A with one weight changed in the middle. A plain run loads both models as they are into the runtime, runs each
once and keeps both until the end; each measurement is a process of its own, in turns, so that peaks of memory compare.
Peaks are told with and without what the libraries alone take.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

KINDS = ("plain", "layers")


def build(path: Path, **sizes: int) -> None:
    """BERT-base with random weights, as an .onnx file with dynamic batch and length; `sizes` are BertConfig's."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(**sizes)
    config._attn_implementation = "eager"
    bert = transformers.BertModel(config, add_pooling_layer=False)

    class Flat(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = bert

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.bert(input_ids=ids, attention_mask=mask, return_dict=False)[0]

    ids, mask = torch.randint(0, 3000, (2, 16)), torch.ones(2, 16, dtype=torch.int64)
    names = ["input_ids", "attention_mask"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Flat().eval(), (ids, mask), str(path), input_names=names, opset_version=17, dynamo=False,
            dynamic_axes={name: {0: "batch", 1: "length"} for name in names},
        )  # fmt: skip


def twin(source: Path, target: Path) -> None:
    """The model with one element of a weight in its middle changed."""
    import numpy as np
    import onnx
    from onnx import numpy_helper

    model = onnx.load(source)
    large = [t for t in model.graph.initializer if t.data_type == 1 and len(t.dims) == 2]
    tensor = large[len(large) // 2]
    values = numpy_helper.to_array(tensor).copy()
    values.reshape(-1)[0] += np.abs(values).max() + 0.1
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(model, target)


def measure(kind: str, a: Path, b: Path, batch: int, length: int) -> dict[str, float]:
    """One measurement, in this process: seconds, peak bytes, bytes before."""
    from onnxtool.equality.layers.compare_layers import compare_layers
    from onnxtool.equality.rule.tolerance import Tolerance
    from onnxtool.model.domains import input_domains
    from onnxtool.model.io import load
    from onnxtool.runtime.feeds import random_feeds
    from onnxtool.runtime.runner import OnnxRunner
    from onnxtool.runtime.timing.load_cost import peak_bytes, resident_bytes

    feeds_file = a.with_suffix(f".{batch}.{length}.npz")
    import numpy as np

    if not feeds_file.exists():
        specs = OnnxRunner.open(a).inputs
        np.savez(feeds_file, **random_feeds(specs, 0, batch=batch, length=length, domains=input_domains(load(a))))
        return {}
    with np.load(feeds_file) as loaded:
        feeds = dict(loaded)
    before, began = resident_bytes() or 0, time.perf_counter()
    told: dict[str, float] = {}
    if kind == "plain":
        runners = [OnnxRunner.open(a), OnnxRunner.open(b)]
        results = [runner.run(feeds) for runner in runners]
        told["outputs"] = len(results)
    else:
        layers = compare_layers(a, b, feeds, Tolerance())
        told |= {"tensors": len(layers.tensors), "parts": layers.passes, "blamed": float(layers.culprit is not None)}
    return {"seconds": time.perf_counter() - began, "peak": float(peak_bytes() or 0), "before": float(before), **told}


def in_process(*arguments: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    sizes = ("--batch", str(arguments.batch), "--length", str(arguments.length))
    if arguments.one:
        kind, a, b = arguments.one
        sys.stdout.write(json.dumps(measure(kind, Path(a), Path(b), arguments.batch, arguments.length)))
        return
    with tempfile.TemporaryDirectory() as folder:
        a, b = Path(folder) / "a.onnx", Path(folder) / "b.onnx"
        if arguments.model:
            a.symlink_to(arguments.model.resolve())
        else:
            build(a)
        twin(a, b)
        in_process("--one", "plain", str(a), str(b), *sizes)  # makes the inputs, and warms the disk's cache
        taken: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
        for _ in range(arguments.rounds):
            for kind in KINDS:
                taken[kind].append(in_process("--one", kind, str(a), str(b), *sizes))
    plain, layers = (taken[kind] for kind in KINDS)
    times = [y["seconds"] / x["seconds"] for x, y in zip(plain, layers, strict=True)]
    peaks = [max(r["peak"] for r in runs) for runs in (plain, layers)]
    grown = [max(r["peak"] - r["before"] for r in runs) for runs in (plain, layers)]
    print(f"batch {arguments.batch}, length {arguments.length}: {layers[0]['tensors']:.0f} tensors in ", end="")
    print(f"{layers[0]['parts']:.0f} parts; the changed weight was found: {bool(layers[0]['blamed'])}")
    seconds = [statistics.median(r["seconds"] for r in runs) for runs in (plain, layers)]
    print(f"time: {seconds[0]:.2f} s plain, {seconds[1]:.2f} s with layers; ratios {[round(t, 2) for t in times]}")
    for what, (x, y) in (("peak", peaks), ("peak without libraries", grown)):
        print(f"{what}: {x / 1e6:.0f} MB plain, {y / 1e6:.0f} MB with layers: {y / x:.2f}x")
    sys.exit(0 if statistics.median(times) < 4 and peaks[1] < 2 * peaks[0] else 1)


if __name__ == "__main__":
    main()
