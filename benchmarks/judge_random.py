"""The label-free judge on random outputs, against what their users lose of a population that the judge does not see.

    python benchmarks/judge_random.py [--outputs 200] [--seed 1] [--show]

Every output is drawn: its kind, columns, units, distribution, the operator that makes it, its name (which may mislead),
and one or two faults. The judge sees 256 samples; what users lose is counted on 4,096 others of the same making. Each
output has the uses that its kind admits: the judge knows none of them, and has to be right for every one.

    accepted wrongly   kept, and some use loses more than two points
    over the budget    kept, and some use loses more than one point (a bound of 95 % allows one in twenty of all)
    refused wrongly    refused, and no use loses more than half a point

What is between is left to the judge, and what its 256 samples do not hold (a tail that is cut off) it cannot see.

Uses, by what they lose (0.01 is a point):

    values             1 - R2 against float, of the worst column or channel
    perceived          the same of maps and series, a point at 25 dB in place of 20: they may be looked at or heard
    proportions        the same of logarithms, for amounts above zero whose logarithms spread more evenly than they do
    order              pairs of samples that change places, of those a tenth of the spread apart (Kendall's tau)
    classes            accuracy against labels drawn by float's own probabilities
    chances            Brier skill against the same labels, of probabilities (Brier 1950)
    decisions          F1 against labels drawn by float's own scores, at each threshold from 0.3 to 0.9
    neighbours         nearest other sample that is none of the two nearest
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from judge_outputs import judged
from judged_outputs import Output, flips_that_cost, neighbours, r2_of, ranks

SEEN, POPULATION = 256, 4096
_MOST_VALUES = 40_000_000
Rng = np.random.Generator
Use = Callable[[np.ndarray, np.ndarray], float]
Fault = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Drawn:
    """An output of float for all samples, what makes it, and what it may be used for."""

    text: str
    values: np.ndarray
    made_by: str
    name: str
    uses: dict[str, Use]


def order(expected: np.ndarray, actual: np.ndarray) -> float:
    """Of the column whose samples change places most."""
    some = slice(None, None, max(1, len(expected) // 600))
    columns = range(0, expected.shape[1], max(1, expected.shape[1] // 8))
    return max(ranks(expected[some, c], actual[some, c]) for c in columns)


def proportions(expected: np.ndarray, actual: np.ndarray) -> float:
    floor = 1e-6 * np.abs(expected).max(0)
    return r2_of()(*(np.log(np.maximum(v, floor)) for v in (expected, actual)))


def perceived(use: Use) -> Use:
    """A point where the noise is 25 dB below the channel's spread: what is looked at or heard."""
    return lambda a, b: 10**0.5 * use(a, b)


def channels(expected: np.ndarray, actual: np.ndarray) -> float:
    return r2_of()(*(np.moveaxis(v, 1, -1) for v in (expected, actual)))


def brier(expected: np.ndarray, actual: np.ndarray) -> float:
    """Of labels that float's chances draw, what the candidate's Brier score is worse, of what float's is better than
    that of the mean chances.
    """
    mean = expected.reshape(-1, expected.shape[-1]).mean(0)
    return float(((expected - actual) ** 2).sum() / ((expected - mean) ** 2).sum())


def decisions(expected: np.ndarray, actual: np.ndarray) -> float:
    """Expected F1 that is lost at the worst threshold that at least one in five hundred scores exceed."""
    worst = 0.0
    for threshold in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        found = [v > threshold for v in (expected, actual)]
        if found[0].mean() >= 0.002:
            f1 = [2 * expected[f].sum() / (f.sum() + expected.sum()) for f in found]
            worst = max(worst, float(f1[0] - f1[1]))
    return worst


def few_rows(use: Use, most: int = 1024) -> Use:
    return lambda a, b: use(a[:most], b[:most])


def _targets(rng: Rng) -> Drawn:
    count = int(rng.choice([1, 1, 2, 3, 5, 8, 13, 30, 70, 128, 300, 1000]))
    decades, level = rng.choice([0, 0, 0.5, 1, 2, 4]), rng.choice([0, 1, 5])
    causes = rng.normal(size=(SEEN + POPULATION, 4)) @ rng.normal(size=(4, count))
    own = rng.normal(size=(SEEN + POPULATION, count))
    form = rng.choice(["normal", "uniform", "laplace", "two heaps", "few causes", "skewed", "amounts", "often zero"])
    values = {
        "normal": own,
        "uniform": rng.uniform(-1.7, 1.7, own.shape),
        "laplace": rng.laplace(size=own.shape) / 1.4,
        "two heaps": own * 0.4 + rng.choice([-1, 1], own.shape),
        "few causes": causes / 2 + 0.2 * own,
        "skewed": rng.gamma(2, 0.7, own.shape),
        "amounts": np.exp(rng.uniform(0.4, 1.2) * own),
        "often zero": np.maximum(own, 0),
    }[form]
    uses: dict[str, Use] = {"values": r2_of()}
    if form == "amounts":
        uses["proportions"] = proportions
    else:
        values = values + level
        uses["order"] = order
    values = values * 10 ** rng.permutation(np.linspace(-decades / 2, decades / 2, count))
    made = rng.choice(["Gemm", "Identity", "Concat", "MatMul, Relu"] if values.min() >= 0 else ["Gemm", "Identity"])
    name = rng.choice(["y", "output", "features", "logits", "embedding", "scores", "forecast"])
    return Drawn(f"{count} {form} over {decades:g} decades, level {level}", values, made, name, uses)


def _classes(rng: Rng) -> Drawn:
    count, margin = int(rng.choice([2, 3, 5, 10, 40, 200, 1000])), rng.uniform(1, 10)
    places = ((), (), (12,), (6, 6))[rng.integers(4)] if count < 50 else ()
    shape = ((SEEN + POPULATION) // max(1, int(np.prod(places)) // 4), *places)
    values = rng.normal(size=(*shape, count))
    priors = rng.dirichlet(np.full(count, rng.choice([0.3, 5.0])))
    right = rng.choice(count, shape, p=priors)
    np.put_along_axis(values, right[..., None], margin + rng.normal(size=(*shape, 1)), -1)
    uses: dict[str, Use] = {"classes": flips_that_cost}
    if rng.random() < 0.5:
        values = np.exp(values - values.max(-1, keepdims=True))
        uses["chances"] = brier
        return Drawn(f"{count} likely, {margin:.0f}", values / values.sum(-1, keepdims=True), "Softmax", "y", uses)
    uses["values"] = r2_of()
    return Drawn(f"{count} logits, {margin:.0f}", values, "Gemm", str(rng.choice(["y", "logits"])), uses)


def _vectors(rng: Rng) -> Drawn:
    width, apart = int(rng.choice([16, 48, 128, 384])), rng.uniform(0.2, 0.6)
    base = np.repeat(rng.normal(size=((SEEN + POPULATION) // 4, width)), 2, 0)
    values = base + apart * rng.normal(size=base.shape)
    if rng.random() < 0.5:
        values = values / np.linalg.norm(values, axis=1, keepdims=True)
        return Drawn(f"unit vectors of {width}", values, "LpNormalization", "y", {"neighbours": few_rows(neighbours)})
    made = str(rng.choice(["ReduceMean", "LayerNormalization"]))
    return Drawn(f"vectors of {width}", values, made, "pooled", {"neighbours": few_rows(neighbours)})


def _scores(rng: Rng) -> Drawn:
    count, share = int(rng.choice([1, 5, 20, 60])), 10 ** rng.uniform(-2.3, -0.3)
    height, spread = rng.uniform(1, 4), rng.uniform(0.3, 2)
    shape = (SEEN + POPULATION, count)
    found = rng.random(shape) < share
    values = np.where(found, rng.normal(height, spread, shape), rng.normal(-rng.uniform(2, 5), 1, shape))
    text = f"{count} scores, {share:.3f} at {height:.1f} +- {spread:.1f}"
    return Drawn(text, 1 / (1 + np.exp(-values)), "Sigmoid", "y", {"decisions": decisions})


def _maps(rng: Rng) -> Drawn:
    count, size = int(rng.choice([1, 2, 8, 32])), int(rng.choice([8, 16]))
    total = min(SEEN + POPULATION, _MOST_VALUES // (count * size * size) // 4)
    coarse = rng.normal(size=(total, count, size // 4, size // 4)).repeat(4, 2).repeat(4, 3)
    values = coarse + 0.2 * rng.normal(size=coarse.shape)
    if rng.random() < 0.4:
        values = 1 / (1 + np.exp(-rng.uniform(2, 8) * (values - rng.uniform(0, 1.5))))
        return Drawn(f"masks, {count} of {size}", values, "Sigmoid", "mask", {"decisions": decisions})
    units = 10 ** rng.permutation(np.linspace(0, rng.choice([0, 2]), count))
    return Drawn(
        f"maps, {count} of {size}", values * units[:, None, None], "Conv", "y", {"perceived": perceived(channels)}
    )


def _series(rng: Rng) -> Drawn:
    steps, count = int(rng.choice([24, 100])), int(rng.choice([1, 3, 12]))
    time = np.arange(steps)[None, :, None]
    phase, speed = (rng.uniform(0, 6, (1500, 1, count)) for _ in range(2))
    values = np.sin(phase + time * speed / 20) * rng.gamma(3, 0.4, (1500, 1, count)) + 0.1 * rng.normal(
        size=(1500, steps, count)
    )
    return Drawn(f"series, {count} of {steps}", values, "Identity", "y", {"perceived": perceived(r2_of())})


_KINDS = (_targets, _targets, _classes, _vectors, _scores, _maps, _series)


def fault(right: np.ndarray, rng: Rng) -> tuple[str, Fault]:
    """What one quantization does to an output, the same for all samples: its sizes come from those that are seen."""
    flat = right.reshape(-1, right.shape[-1])
    mean, spread, whole = flat.mean(0), flat.std(0), right.std()
    size = 10 ** (-rng.uniform(15, 50) / 20)
    db, columns = f"{-20 * np.log10(size):.0f} dB", right.shape[-1]
    some = np.isin(np.arange(columns), rng.permutation(columns)[: max(1, columns // 8)])
    step, low = np.ptp(right) / (2 ** rng.integers(5, 9) - 1), right.min()
    share = 1 - 10 ** rng.uniform(-4, -1.5)
    ends = np.quantile(right, (1 - share, share))

    def row(v: np.ndarray, width: int = 1) -> np.ndarray:
        return rng.normal(size=(*v.shape[:-1], width))

    def rare(v: np.ndarray) -> np.ndarray:
        return (rng.random(len(v)) < 0.1).reshape(-1, *[1] * (v.ndim - 1))

    choices: list[tuple[str, Fault]] = [
        (f"{db} of the whole", lambda v: v + size * whole * row(v, columns)),
        (f"{db} of each column", lambda v: v + size * spread * row(v, columns)),
        (f"{db} of an eighth of the columns", lambda v: v + size * spread * some * row(v, columns)),
        (f"{db} of a tenth of the samples", lambda v: v + size * spread * rare(v) * row(v, columns)),
        (f"{db} in proportion", lambda v: v * (1 + size * row(v, columns))),
        (f"{db} shared by all columns", lambda v: v + size * spread * row(v)),
        (f"{db} of a shift", lambda v: v + size * spread),
        (f"{db} of the next column", lambda v: v + size * np.roll(v - mean, 1, -1)),
        (f"a gain of {1 - size:.3f}", lambda v: mean + (1 - size) * (v - mean)),
        (f"scaled by {1 - size:.3f}", lambda v: (1 - size) * v),
        (f"steps of {step:.3g}", lambda v: np.round((v - low) / step) * step + low),
        (f"clipped to {share:.4f}", lambda v: np.clip(v, *ends)),
    ]
    return choices[int(rng.choice(len(choices), p=[0.16, 0.16] + [0.068] * 10))]


def _nothing(_: Rng) -> np.ndarray:
    return np.zeros(0)


def cases(count: int, seed: int) -> Iterator[tuple[Drawn, str, np.ndarray, bool, str, dict[str, float]]]:
    """Every output, what was done to it, the candidate's, the verdict with its reason, what its uses lose."""
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        drawn = _KINDS[number % len(_KINDS)](rng)
        seen, rest = drawn.values[:SEEN].astype(np.float32), drawn.values[SEEN:].astype(np.float32)
        texts, wrong, later = [], seen.astype(np.float64), rest.astype(np.float64)
        for _ in range(rng.integers(1, 3)):
            text, broken = fault(wrong, rng)
            texts.append(text)
            wrong, later = broken(wrong), broken(later)
        if drawn.made_by == "Sigmoid":
            wrong, later = np.clip(wrong, 0, 1), np.clip(later, 0, 1)
        if drawn.made_by == "Softmax":
            wrong, later = (np.maximum(v, 0) / np.maximum(v, 1e-12).sum(-1, keepdims=True) for v in (wrong, later))
        output = Output(drawn.text, drawn.name, drawn.made_by, _nothing, r2_of())
        said = judged(output, seen, wrong.astype(np.float32))
        losses = {name: use(rest.astype(np.float64), later) for name, use in drawn.uses.items()}
        yield drawn, " and ".join(texts), wrong, said.kept, "" if said.kept else said.worst.text, losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--outputs", type=int, default=210)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="every wrong verdict")
    options = parser.parse_args()
    counts: dict[str, Counter[str]] = {}
    for drawn, text, _, kept, why, losses in cases(options.outputs, options.seed):
        use, loss = max(losses.items(), key=lambda item: item[1])
        verdict = "" if kept == (loss <= 0.01) else "over the budget" if kept else "between"
        verdict = "accepted wrongly" if kept and loss > 0.02 else verdict
        verdict = "refused wrongly" if not kept and loss < 0.005 else verdict
        kind = drawn.text.split()[0] if drawn.made_by != "Gemm" else "Gemm"
        kind = {"Sigmoid": "scores", "Softmax": "classes", "Conv": "maps"}.get(drawn.made_by, kind)
        kind = "targets" if kind.isdigit() else kind.rstrip(",")
        counts.setdefault(kind, Counter()).update(
            ["outputs", "kept" if kept else "refused", verdict, "fine" if loss < 0.005 else "other"]
        )
        if options.show and verdict in ("accepted wrongly", "refused wrongly", "over the budget"):
            print(f"    {drawn.text} ({drawn.made_by}, {drawn.name}): {text}: {verdict}; {use} {loss:.4f}; {why}")
    print(
        "| outputs | drawn | no use loses half a point | kept | accepted wrongly | over the budget | refused wrongly |"
    )
    print("|---|---|---|---|---|---|---|")
    total = sum(counts.values(), Counter())
    for name, c in [*sorted(counts.items()), ("**all**", total)]:
        columns = ("outputs", "fine", "kept", "accepted wrongly", "over the budget", "refused wrongly")
        print(f"| {name} | " + " | ".join(str(c[k]) for k in columns) + " |")


if __name__ == "__main__":
    main()
