"""Does `bench` say "same" of a model and itself, and "slower" of a twin that does a tenth more work?

    python benchmarks/bench_verdicts.py [MODEL] [--trials 20] [--budget 1.0]

The twin has a chain of matrix products of its own beside the model's, sized once so that the two differ by about 10 %
in a long measurement; that measured ratio is printed. Latencies are on one thread.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxtool.benchmark.bench import bench
from onnxtool.report.measurement.bench import Latency

DIGITS = Path(__file__).parent.parent / "fixtures" / "digits_cnn.onnx"


def burdened(model: onnx.ModelProto, products: int, width: int) -> onnx.ModelProto:
    """The model with `products` square matrix products more, of a constant that the runtime cannot fold."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    generator = np.random.default_rng(0)
    square = (generator.standard_normal((width, width)) / width**0.5).astype(np.float32)
    graph.initializer.append(numpy_helper.from_array(square, "burden_w"))
    graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), "burden_zero"))
    graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), "burden_flat"))
    graph.initializer.append(numpy_helper.from_array(np.array([0], np.int64), "burden_first"))
    result = graph.output[0].name
    graph.node.append(helper.make_node("Reshape", [graph.input[0].name, "burden_flat"], ["burden_x"]))
    graph.node.append(helper.make_node("Gather", ["burden_x", "burden_first"], ["burden_seed"]))
    graph.node.append(helper.make_node("Add", ["burden_seed", "burden_w"], ["burden_0"]))
    for i in range(products):
        graph.node.append(helper.make_node("MatMul", [f"burden_{i}", "burden_w"], [f"burden_{i + 1}"]))
    graph.node.append(helper.make_node("ReduceMean", [f"burden_{products}"], ["burden_mean"], keepdims=0))
    graph.node.append(helper.make_node("Mul", ["burden_mean", "burden_zero"], ["burden_nothing"]))
    for node in graph.node:
        node.output[:] = ["burden_before" if name == result else name for name in node.output]
        node.input[:] = ["burden_before" if name == result else name for name in node.input]
    graph.node.append(helper.make_node("Add", ["burden_before", "burden_nothing"], [result]))
    return copy


def second(a: Path, b: Path, budget: float) -> Latency:
    return bench([a, b], threads=(1,), budget=budget).latencies[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", default=DIGITS)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--budget", type=float, default=1.0)
    arguments = parser.parse_args()
    model = onnx.load(arguments.model)
    with tempfile.TemporaryDirectory() as folder:
        twin = Path(folder) / "twin.onnx"
        ratio = 1.0
        for width in (8, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 384):
            onnx.save(burdened(model, 2, width), twin)
            ratio = second(arguments.model, twin, 0.5).ratio or 1.0
            if ratio >= 1.09:
                break
        ratio = second(arguments.model, twin, 4.0).ratio or 1.0
        print(f"twin: 2 products of {width}x{width} more, ratio {ratio:.3f} in a long measurement")
        same = Counter(
            second(arguments.model, arguments.model, arguments.budget).verdict for _ in range(arguments.trials)
        )
        print(f"the model and itself: {dict(same)}")
        slower = Counter(second(arguments.model, twin, arguments.budget).verdict for _ in range(arguments.trials))
        print(f"the model and its slower twin: {dict(slower)}")
    sys.exit(0 if same["same"] >= 0.95 * arguments.trials and slower["slower"] >= 0.9 * arguments.trials else 1)


if __name__ == "__main__":
    main()
