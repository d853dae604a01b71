"""The label-free judge of `quantize` on outputs whose truth is known.

    python benchmarks/judge_outputs.py [--seeds 3] [--only known|units|fresh|heldout]

Each of the outputs below is made with a task of its own (classes, targets of different units, boxes, vectors that are
searched, ...), and disturbed in ways that rounding to integers disturbs outputs: noise in proportion to the whole
tensor, to each column, to a few columns, to a few samples, a few levels. What the task itself loses is measured against
its truth, and the judge, which sees the two outputs and the graph alone, says whether the budget of one point is kept.

A verdict is wrong where the loss on these samples and the mean of several draws both say so: one flip among seven
alarms is no loss of a seventh.

    accepted wrongly   the judge keeps what loses more than two points
    refused wrongly    the judge refuses what loses less than a tenth of a point, although the noise is below -20 dB
                       everywhere (more noise than that in a column is refused whatever it costs)
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

sys.path.insert(0, str(Path(__file__).parent.parent))
from judged_outputs import OUTPUTS, Output
from judged_outputs_fresh import FRESH
from judged_outputs_further import FURTHER
from judged_outputs_heldout import HELDOUT
from judged_outputs_units import UNITS

from onnxtool.model import io
from onnxtool.model.spec import TensorSpec
from onnxtool.quantization.evaluation.criterion import AccuracyVerdict, Criterion
from onnxtool.quantization.evaluation.fidelity import FidelityEvaluator
from onnxtool.runtime.data.open_data import open_data
from tests.quantization.quant_models import build, weights


class Fixed:
    """A runner that gives one array."""

    def __init__(self, name: str, value: np.ndarray) -> None:
        self.inputs = (TensorSpec("x", np.dtype("float32"), ("n", 2)),)
        self.outputs = (TensorSpec(name, np.dtype("float32"), None),)
        self.name, self.value = name, value

    def run(self, _feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {self.name: self.value}


def disturbed(right: np.ndarray, rng: np.random.Generator) -> list[tuple[str, np.ndarray]]:
    """The same with the noise of rounding, of several sizes and kinds."""
    found = []
    noise = rng.normal(size=right.shape)
    whole, column = right.std(), right.reshape(-1, right.shape[-1]).std(0)
    for db in (10, 16, 20, 25, 30, 36, 45):
        size = 10 ** (-db / 20)
        found.append((f"{db} dB of the whole", right + size * whole * noise))
        found.append((f"{db} dB of each column", right + size * column * noise))
        some = np.zeros(right.shape[-1])
        some[rng.permutation(right.shape[-1])[: max(1, right.shape[-1] // 8)]] = 1
        found.append((f"{db} dB of an eighth of the columns", right + size * column * some * noise))
        rows = (rng.random(right.shape[0]) < 0.1).reshape(-1, *[1] * (right.ndim - 1))
        found.append((f"{db} dB of a tenth of the samples", right + size * column * rows * noise))
    low, high = right.min(), right.max()
    for levels in (256, 64, 16):
        step = (high - low) / (levels - 1)
        found.append((f"{levels} levels for the whole", np.round((right - low) / step) * step + low))
    return found


def cases(output: Output, *seed: int) -> tuple[np.ndarray, list[tuple[str, np.ndarray]]]:
    """The float model's values, float32, and what becomes of them."""
    rng = np.random.default_rng(seed)
    right = output.make(rng).astype(np.float32)
    tampered = output.tamper(right.astype(np.float64), rng) if output.tamper else []
    return right, [(kind, wrong.astype(np.float32)) for kind, wrong in [*disturbed(right, rng), *tampered]]


def losses(output: Output, seed: int) -> np.ndarray:
    """What each case loses, [2, cases]: on the samples that are judged, and on the mean of several draws."""
    drawn = [cases(output, seed, *([draw] if draw else [])) for draw in range(_DRAWS)]
    found = [[output.loss(*(v.astype(np.float64) for v in (a, b))) for _, b in wrong] for a, wrong in drawn]
    return np.stack([found[0], np.mean(found, axis=0)])


def noisiest_db(right: np.ndarray, wrong: np.ndarray) -> float:
    a, b = (v.reshape(-1, v.shape[-1]) for v in (right, wrong))
    live = a.var(0) > 0
    return float((-10 * np.log10(np.maximum(((a - b) ** 2).mean(0)[live] / a.var(0)[live], 1e-12))).min())


def graph_of(output: Output, right: np.ndarray) -> onnx.ModelProto:
    """A model whose last operators are those that make the output."""
    nodes, reads, tables = [], ["x"], {}
    *before, operator = output.made_by.split(", ")
    if output.made_by in ("Gemm", "LayerNormalization"):
        reads, tables = ["x", "w"], {"w": weights(2, 2)}
    elif operator == "Concat":
        reads = ["x", "x"]
    elif before:
        nodes, reads, tables = (
            [helper.make_node("MatMul", ["x", "w"], ["h"])],
            ["h"],
            {"w": weights(2, right.shape[-1])},
        )
    operator = {"Gemm": "MatMul", "Conv": "Relu"}.get(operator, operator)
    extra = {"axis": 1} if operator == "Concat" else {}
    nodes.append(helper.make_node(operator, reads, [output.called], **extra))
    return build(nodes, tables, {"x": [None] * right.ndim}, {output.called: [None, *right.shape[1:]]})


def judged(output: Output, right: np.ndarray, wrong: np.ndarray) -> AccuracyVerdict:
    data = open_data({"x": np.zeros((len(right), 2), np.float32)}, Fixed(output.called, right).inputs)
    proto = graph_of(output, right)
    judge = FidelityEvaluator(io.from_proto(proto), Fixed(output.called, right), data, batch=len(right))
    return Criterion().judge(judge.judge(Fixed(output.called, wrong)))


_DRAWS = 8
SETS = {"known": (*OUTPUTS, *FURTHER), "units": UNITS, "fresh": FRESH, "heldout": HELDOUT}
SETS["all"] = tuple(output for outputs in SETS.values() for output in outputs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--show", action="store_true", help="every wrong verdict")
    parser.add_argument("--only", choices=SETS, default="all", help="which outputs")
    options = parser.parse_args()
    print("| output | cases | kept | accepted wrongly | refused wrongly |\n|---|---|---|---|---|")
    total: Counter[str] = Counter()
    for output in SETS[options.only]:
        count: Counter[str] = Counter()
        for seed in range(options.seeds):
            right, found = cases(output, seed)
            for (kind, wrong), loss in zip(found, losses(output, seed).T, strict=True):
                said = judged(output, right, wrong)
                kept = said.kept
                worst = noisiest_db(right, wrong)
                verdict = (
                    "accepted"
                    if kept and min(loss) > 0.02 + 1e-9
                    else "refused"
                    if not kept and max(loss) < 0.001 and worst > 20
                    else ""
                )
                count.update(["cases", *(["kept"] if kept else []), *([verdict] if verdict else [])])
                if verdict and options.show:
                    why = "" if kept else f"; {said.worst.text}"
                    lost = f"loss {loss[0]:.4f} ({loss[1]:.4f}), {worst:.0f} dB"
                    print(f"    {output.name}: {kind}: {verdict} wrongly; {lost}{why}")
        total.update(count)
        print(
            f"| {output.name} | {count['cases']} | {count['kept']} | {count['accepted']} | {count['refused']} |",
            flush=True,
        )
    print(f"| **all** | {total['cases']} | {total['kept']} | {total['accepted']} | {total['refused']} |")


if __name__ == "__main__":
    main()
