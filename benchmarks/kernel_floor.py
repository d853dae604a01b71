"""What integers can give at best: each compute node in float or on integers, whichever is faster, conversions free.

    python benchmarks/kernel_floor.py MODEL.onnx... [--threads 1]

The float times are those of the nodes of the model itself, from the runtime's profiler. Each convolution and matrix
product is then run alone as QLinearConv or QLinearMatMul on uint8, of the same shapes, and its kernel's time taken. The
floor is the time of the model if every node had the faster of its two kernels and nothing had to be converted
or laid out anew in between: no placement of this runtime's kernels can be faster. What is above 0.75 cannot reach 0.75.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxtool.runtime.probes import runnable_feeds
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.fused_node_names import label
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.timing.profile import profile

_RUNS = 10


def main() -> None:
    """Print one table for each model, and the floors."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    for path in arguments.models:
        floor(path, SessionOptions(threads=arguments.threads))


def floor(path: Path, options: SessionOptions) -> None:
    """One model."""
    runner = OnnxRunner.open(path, options)
    feeds = runnable_feeds(runner, runner.inputs, 0, batch=1)[0]
    shapes = tensor_shapes(path, feeds)
    model = onnx.load(path)
    weights = {t.name: tuple(t.dims) for t in model.graph.initializer}
    nodes = {label(n): n for n in model.graph.node if n.op_type in ("Conv", "MatMul", "Gemm")}
    measured = profile(path, feeds, options, runs=_RUNS)
    kinds: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0, 0.0])
    known: dict[tuple[object, ...], float] = {}
    for time in measured.nodes:
        node = next((nodes[o] for o in time.originals if o in nodes), None)
        kind, integer = "(other)", time.seconds
        if node is not None and node.input[1] in weights and node.input[0] in shapes:
            kind = kind_of(node, weights[node.input[1]])
            key = (kind, shapes[node.input[0]], weights[node.input[1]], str(node.attribute))
            if key not in known:
                known[key] = integer_seconds(node, shapes[node.input[0]], weights[node.input[1]], options)
            integer = known[key]
        own = kinds[kind]
        for place, value in enumerate((1, time.seconds, integer, min(time.seconds, integer))):
            own[place] += value
    total, best = (sum(k[i] for k in kinds.values()) for i in (1, 3))
    print(f"\n### {path.parent.name if path.stem == 'model' else path.stem}: floor {best / total:.2f} of float\n")
    print("| nodes | number | share of float's time | integers over float |")
    print("|---|---|---|---|")
    for kind, (number, seconds, integer, _) in sorted(kinds.items(), key=lambda k: -k[1][1]):
        ratio = "" if kind == "(other)" else f"{integer / seconds:.2f}"
        print(f"| {kind} | {number} | {seconds / total:.1%} | {ratio} |", flush=True)


def tensor_shapes(path: Path, feeds: dict[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    """The shapes that tensors really have, from one run with all of them as outputs."""
    model = onnx.load(path)
    made = [o for n in model.graph.node if n.op_type in ("Conv", "MatMul", "Gemm") for o in n.input[:1]]
    given = {o.name for o in model.graph.output} | {i.name for i in model.graph.input}
    names = [n for n in dict.fromkeys(made) if n not in given and n not in {t.name for t in model.graph.initializer}]
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    found = OnnxRunner.open(model, SessionOptions(optimization="off")).run(feeds)
    return {n: np.shape(a) for n, a in (found | feeds).items()}


def kind_of(node: onnx.NodeProto, dims: tuple[int, ...]) -> str:
    """ "depthwise Conv", "pointwise Conv", "spatial Conv" or "linear"."""
    if node.op_type != "Conv":
        return "linear"
    groups = next((a.i for a in node.attribute if a.name == "group"), 1)
    if groups > 1:
        return "depthwise Conv" if dims[1] == 1 else "grouped Conv"
    return "pointwise Conv" if all(d == 1 for d in dims[2:]) else "spatial Conv"


def integer_seconds(
    node: onnx.NodeProto, shape: tuple[int, ...], dims: tuple[int, ...], options: SessionOptions
) -> float:
    """Time of the same node's integer kernel."""
    numbers = np.random.default_rng(0)
    turned = next((a.i for a in node.attribute if a.name == "transB"), 0)
    weight = numbers.integers(-127, 128, dims[::-1] if turned else dims).astype(np.int8)
    one, zero = np.array(0.05, np.float32), np.array(128, np.uint8)
    scale, none = np.array(0.01, np.float32), np.array(0, np.int8)
    arrays = {"s": one, "z": zero, "w": weight, "ws": scale, "wz": none}
    inputs = ["x", "s", "z", "w", "ws", "wz", "s", "z"]
    kept = [a for a in node.attribute if a.name not in ("transB", "transA", "alpha", "beta", "activation")]
    made = helper.make_node("QLinearConv" if node.op_type == "Conv" else "QLinearMatMul", inputs, ["y"], "kernel")
    made.attribute.extend(kept if node.op_type == "Conv" else [])
    graph = helper.make_graph(
        [made],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.onnx"
        onnx.save(model, path)
        feeds = {"x": numbers.integers(0, 256, shape).astype(np.uint8)}
        return sum(n.seconds for n in profile(path, feeds, options, runs=_RUNS).nodes)


if __name__ == "__main__":
    main()
