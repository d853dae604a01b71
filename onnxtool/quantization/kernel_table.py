"""This machine's times of compute kernels by shape and type, measured once, for choosing recipes elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from onnxtool import progress
from onnxtool.errors import InputError, UsageError
from onnxtool.model.io import check_output, write_atomic
from onnxtool.model.json_file import read_json
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.node_cost import conv_kind
from onnxtool.runtime import cpu
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.timing.timing import clock_for, measure

SCHEMA = "onnxtool/kernel_table/1"
# Nodes in a row: what stands at the ends (conversions) is then a small part.
_CHAIN = 4
_BUDGET = 0.25  # seconds for each shape
LINEAR = "linear"
# kind -> (channels, size) of each measured shape: rows of a linear layer, or height and width of a picture.
_SHAPES: Mapping[str, Sequence[tuple[int, int]]] = {
    LINEAR: ((64, 1), (256, 1), (256, 16), (512, 64), (768, 128)),
    "pointwise Conv": ((16, 14), (64, 14), (128, 28), (256, 28)),
    "spatial Conv": ((8, 14), (32, 14), (64, 28), (128, 28)),
    "depthwise Conv": ((16, 14), (64, 28), (128, 56)),
}
_KERNEL = {"pointwise Conv": 1, "spatial Conv": 3, "depthwise Conv": 3}


@dataclass(frozen=True)
class KernelTime:
    """One shape of one kind of node.

    Attributes:
        kind: "linear", "pointwise Conv", "spatial Conv" or "depthwise Conv".
        macs: multiply-accumulates of one node.
        float32, static, dynamic: seconds of one node; dynamic is None where there is no such kernel.
    """

    kind: str
    macs: float
    float32: float
    static: float
    dynamic: float | None


@dataclass(frozen=True)
class KernelTable:
    """What `doctor --measure` writes.

    Attributes:
        cpu: model name of the processor.
        features: its instruction sets, as `doctor` calls them.
        threads: of the measurement.
        rows: kind by kind, smaller shapes first.
    """

    cpu: str
    features: tuple[str, ...]
    threads: int
    rows: tuple[KernelTime, ...]

    def seconds(self, kind: str, macs: float, how: str) -> float:
        """Time of a node: between measured shapes by logarithms; beyond the largest at its rate.

        Args:
            kind: of `KernelTime`; unknown ones count as spatial Conv.
            macs: of the node.
            how: "float", "static", "dynamic", or "blocks" (weights alone, which computes in float).
        """
        rows = [r for r in self.rows if r.kind == kind] or [r for r in self.rows if r.kind == "spatial Conv"]
        points = [(r.macs, self._of(r, how)) for r in rows]
        sizes, times = (np.log([p[i] for p in points]) for i in (0, 1))
        wanted = np.log(max(macs, 1.0))
        if wanted <= sizes[0]:
            return float(np.exp(times[0]))  # what is smaller takes what starting a node takes
        if wanted >= sizes[-1]:
            return float(np.exp(times[-1] + wanted - sizes[-1]))
        return float(np.exp(np.interp(wanted, sizes, times)))

    @staticmethod
    def _of(row: KernelTime, how: str) -> float:
        if how == "static":
            return row.static
        return row.dynamic if how == "dynamic" and row.dynamic is not None else row.float32


def measure_kernels(target: Path, threads: int = 1) -> KernelTable:
    """Time float, static and dynamic kernels of several shapes on this machine, and write the table.

    Args:
        target: a JSON file.
        threads: intra-op threads.

    Raises:
        UsageError: the output cannot be a file.
    """
    check_output(target)
    rows = []
    with progress.task("measuring kernels", sum(map(len, _SHAPES.values()))) as task:
        for kind, shapes in _SHAPES.items():
            for channels, size in shapes:
                rows.append(_row(kind, channels, size, threads))
                task.advance()
    present = tuple(f.name for f in cpu.features() if f.present)
    table = KernelTable(cpu.model_name(), present, threads, tuple(sorted(rows, key=lambda r: (r.kind, r.macs))))
    content = {"schema": SCHEMA, **asdict(table)}
    write_atomic(target, (json.dumps(content, indent=2) + "\n").encode())
    return table


def read_table(path: Path) -> KernelTable:
    """A table that `measure_kernels` wrote.

    Raises:
        InputError: it cannot be read, or is no such table.
    """
    loaded = read_json(path)
    if loaded.get("schema") != SCHEMA:
        raise InputError(f"{path}: is no table of onnxtool doctor --measure ({SCHEMA}).")
    try:
        rows = tuple(
            KernelTime(
                str(r["kind"]),
                _positive(r["macs"]),
                _positive(r["float32"]),
                _positive(r["static"]),
                None if r["dynamic"] is None else _positive(r["dynamic"]),
            )
            for r in loaded["rows"]
        )
        if not any(r.kind == "spatial Conv" for r in rows):
            raise ValueError("rows are missing")
        return KernelTable(str(loaded["cpu"]), tuple(map(str, loaded["features"])), int(loaded["threads"]), rows)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is a damaged table of kernels ({error}).") from error


def _positive(value: Any) -> float:
    number = float(value)
    if not 0 < number < float("inf"):
        raise ValueError(f"{value} is no time")
    return number


def estimate_by(
    table: KernelTable, nodes: Sequence[ir.Node], cost: Mapping[str, float]
) -> Callable[[QuantRecipe], float]:
    """Latency ratio of a recipe's compute nodes by measured times.

    Args:
        table: of the machine that the model is for.
        nodes: compute nodes.
        cost: their multiply-accumulates, by name.
    """
    kinds = {n.name or "": conv_kind(n) if n.op_type == "Conv" else LINEAR for n in nodes}

    def seconds(name: str, how: str) -> float:
        return table.seconds(kinds.get(name, LINEAR), cost[name], how)

    total = sum(seconds(name, "float") for name in cost) or 1.0

    def estimate(recipe: QuantRecipe) -> float:
        plan = recipe.plan or {}
        return sum(seconds(name, plan.get(name, "float")) for name in cost) / total

    return estimate


def _row(kind: str, channels: int, size: int, threads: int) -> KernelTime:
    forms = ["float32", "static"] + (["dynamic"] if kind == LINEAR else [])
    options = SessionOptions(threads=threads, spinning="runs")
    shape = (size, channels) if kind == LINEAR else (1, channels, size, size)
    feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    runners = [OnnxRunner.open(_model(kind, channels, shape, form), options) for form in forms]
    calls = [lambda r=r: r.session.run(None, feeds) for r in runners]
    timings = measure(calls, budget=_BUDGET, minimum=5, warmup=2, clock=clock_for(threads))
    times = {form: t.median / _CHAIN for form, t in zip(forms, timings, strict=True)}
    places = size if kind == LINEAR else size * size
    window = _KERNEL.get(kind, 1) ** 2
    macs = float(places * channels * window * (1 if kind == "depthwise Conv" else channels))
    return KernelTime(kind, macs, times["float32"], times["static"], times.get("dynamic"))


def _model(kind: str, channels: int, shape: tuple[int, ...], form: str) -> onnx.ModelProto:
    """A chain of equal nodes, in float or quantized."""
    numbers = np.random.default_rng(1)
    inner = 1 if kind == "depthwise Conv" else channels
    window = _KERNEL.get(kind, 1)
    dims = (channels, channels) if kind == LINEAR else (channels, inner, window, window)
    arrays: dict[str, np.ndarray] = {"s": np.array(0.05, np.float32), "z": np.array(128, np.uint8)}
    nodes: list[onnx.NodeProto] = []
    node = helper.make_node

    def through(value: str, place: str) -> str:
        nodes.append(node("QuantizeLinear", [value, "s", "z"], [f"q{place}"]))
        nodes.append(node("DequantizeLinear", [f"q{place}", "s", "z"], [f"d{place}"]))
        return f"d{place}"

    value = "x" if form != "static" else through("x", "in")
    for i in range(_CHAIN):
        if form == "float32":
            arrays[f"w{i}"] = (numbers.standard_normal(dims) / np.sqrt(inner * window**2)).astype(np.float32)
        else:
            arrays |= {f"i{i}": numbers.integers(-127, 128, dims).astype(np.int8), "ws": np.array(0.01, np.float32)}
        if form == "dynamic":
            nodes += [
                node("DynamicQuantizeLinear", [value], [f"a{i}", f"as{i}", f"az{i}"]),
                node("MatMulInteger", [f"a{i}", f"i{i}", f"az{i}"], [f"m{i}"]),
                node("Cast", [f"m{i}"], [f"f{i}"], to=TensorProto.FLOAT),
                node("Mul", [f"as{i}", "ws"], [f"ms{i}"]),
                node("Mul", [f"f{i}", f"ms{i}"], [f"y{i}"]),
            ]
            value = f"y{i}"
            continue
        weight = f"w{i}"
        if form == "static":
            arrays["wz"] = np.array(0, np.int8)
            nodes.append(node("DequantizeLinear", [f"i{i}", "ws", "wz"], [weight]))
        if kind == LINEAR:
            nodes.append(node("MatMul", [value, weight], [f"y{i}"]))
        else:
            groups = channels if kind == "depthwise Conv" else 1
            nodes.append(node("Conv", [value, weight], [f"y{i}"], group=groups, pads=[window // 2] * 4))
        value = f"y{i}" if form != "static" else through(f"y{i}", str(i))
    graph = helper.make_graph(
        nodes,
        "kernels",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def table_named(name: str) -> KernelTable | None:
    """The table in a file that --target names; None where the name is a kind of processor.

    Raises:
        UsageError: a .json file that is not there.
        InputError: as `read_table`.
    """
    if not name.endswith(".json"):
        return None
    if not Path(name).is_file():
        raise UsageError(f"--target {name}: no such file; onnxtool doctor --measure {name} writes one on the machine.")
    return read_table(Path(name))
