"""Does `compare --layers` name the node with the wrong weight?

    python benchmarks/layers_blame.py MODEL|bert [--trials 20] [--optimize extended] [--first 1] [--seed 0]

"bert" is a BERT of 12 layers, 128 wide, with random weights, built with transformers and torch.onnx.
Each trial changes one element of one weight of a random node, optionally optimizes the damaged model, compares it with
the original, and asks whether the node is among the first `--first` suspects of the original's nodes. Also: the model
against itself, and the time of a layered comparison as a multiple of two plain runs (sessions included in both).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import onnxtool
from onnxtool.equality.layers.compare_layers import compare_layers
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.model.domains import input_domains
from onnxtool.model.io import load
from onnxtool.runtime.feeds import random_feeds
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT

# Nodes that read a weight only for its shape or type are not damaged by its content.
_INDIFFERENT = ("Shape", "CastLike", "Size")


def weights(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Initializers and Constant nodes, by the name that readers use."""
    found = {t.name: t for t in model.graph.initializer}
    constants = [n for n in model.graph.node if n.op_type == "Constant" and n.attribute[0].name == "value"]
    return found | {n.output[0]: n.attribute[0].t for n in constants}


def candidates(model: onnx.ModelProto) -> list[tuple[str, str]]:
    """(node, weight) of every float weight with more than one element that exactly one node reads."""
    floats = {n for n, t in weights(model).items() if t.data_type == 1 and np.prod(t.dims) > 1}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            if name in floats and node.op_type not in _INDIFFERENT:
                readers.setdefault(name, []).append(node)
    return [(n[0].name or n[0].output[0], w) for w, n in readers.items() if len(n) == 1]


def damage(model: onnx.ModelProto, weight: str, generator: np.random.Generator) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    tensor = weights(copy)[weight]
    values = numpy_helper.to_array(tensor).copy()
    values.reshape(-1)[generator.integers(values.size)] += np.abs(values).max() * 0.5 + 0.1
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return copy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--optimize")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the weights that are damaged")
    arguments = parser.parse_args()
    path = arguments.model
    if str(path) == "bert":
        sys.path.insert(0, str(Path(__file__).parent))
        import layers_cost

        path = Path(tempfile.mkdtemp()) / "bert.onnx"
        layers_cost.build(
            path, hidden_size=128, num_hidden_layers=12, num_attention_heads=4, intermediate_size=512, vocab_size=3000
        )
    model = onnx.load(path)
    runner = OnnxRunner.open(path, EXACT)
    feeds = random_feeds(runner.inputs, 0, domains=input_domains(load(path)), length=32)
    began = time.perf_counter()
    for _ in range(2):
        OnnxRunner.open(path, EXACT).run(feeds)
    plain = time.perf_counter() - began
    began = time.perf_counter()
    layers = compare_layers(path, path, feeds, Tolerance())
    taken = time.perf_counter() - began
    print(f"itself: {len(layers.tensors)} tensors, {'equal' if layers.culprit is None else 'DIFFERENT'}; ", end="")
    print(f"{taken:.2f} s, {taken / plain:.1f}x two plain runs with their sessions, {layers.passes} passes")
    generator = np.random.default_rng(arguments.seed)
    pool = candidates(model)
    named = 0
    with tempfile.TemporaryDirectory() as folder:
        bad = Path(folder) / "bad.onnx"
        for _ in range(arguments.trials):
            node, weight = pool[generator.integers(len(pool))]
            onnx.save(damage(model, weight, generator), bad)
            if arguments.optimize:
                onnxtool.optimize(bad, bad, level=arguments.optimize)
            found = compare_layers(path, bad, feeds, Tolerance())
            suspects = found.culprit.suspects if found.culprit else found.changed
            original = [s.node for s in suspects if found.culprit is None or "A" in s.model]
            hit = node in original[: arguments.first]
            named += hit
            if not hit:
                told = original[:5]
                print(f"missed {node} ({weight}): {found.culprit.tensor if found.culprit else 'nothing'}, {told}")
    print(f"named {named} of {arguments.trials}")
    sys.exit(0 if named >= 0.9 * arguments.trials and layers.culprit is None else 1)


if __name__ == "__main__":
    main()
