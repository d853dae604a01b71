"""Which weight explains that a fused operator has other weights than those it was made of.

An optimizer folds a BatchNormalization, or a product or sum with a constant, into the convolution or matrix product
before it. When the folded weights are not what A's own operators give, the change tells which of A's weights was
another one: a scale multiplies whole channels, a shift or a mean only moves the bias, one element of a convolution's
weight leaves the rest of its channel alone. Each weight is asked whether it, changed alone, explains all of the change;
the one that needs the fewest of its numbers changed is the likeliest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from onnxtool.equality.layers.graph import LayerGraph
from onnxtool.equality.layers.weight_chain import Chain, ChainStep, read_chain

# Folding rounds each weight once or twice; this is as a share of the largest weight of its channel.
_ROUNDINGS = 64


@dataclass(frozen=True)
class Explanation:
    """A node of A whose weights explain the change.

    Attributes:
        weights: those that, changed alone, do.
        changed: how many of its numbers must be others.
    """

    weights: tuple[str, ...]
    changed: int


def explanations(
    a: LayerGraph, b: LayerGraph, tensor: str, matches: Mapping[str, str], agreeing: set[str]
) -> dict[str, Explanation]:
    """Nodes of A that could alone have led to B's weights, by name; empty where the fold is not understood.

    Args:
        a, b: the two models.
        tensor: B's first wrong tensor.
        matches: B's tensor -> A's.
        agreeing: B's tensors that are as they should be.
    """
    ours = read_chain(a, matches[tensor], {matches[y] for y in agreeing})
    theirs = read_chain(b, tensor, agreeing)
    if ours is None or theirs is None or matches.get(theirs.source, theirs.source) != ours.source:
        return {}
    if ours.rows.shape != theirs.rows.shape:
        return {}
    with np.errstate(all="ignore"):
        return _explain(ours, theirs)


def _explain(a: Chain, b: Chain) -> dict[str, Explanation]:
    precision = _ROUNDINGS * max(a.precision, b.precision)
    expected, actual = a.rows * a.scale()[:, None], b.rows * b.scale()[:, None]
    error = precision * np.abs(expected).max(axis=1, initial=0.0)
    changed = int((np.abs(actual - expected) > error[:, None]).sum())
    allowed = precision * np.maximum(a.magnitude(), b.magnitude())
    found: dict[str, Explanation] = {}
    if changed and bool((np.abs(b.shift() - a.shift()) <= allowed).all()):
        found[a.node] = Explanation((a.weight,), changed)
    if changed:
        ratio = _ratio(expected, actual, error)
        scaled = [] if ratio is None else list(_scaled(a, b, ratio, precision))
    else:
        scaled = list(_shifted(a, b, allowed))
    for step, explanation in scaled:
        known = found.get(step.node)
        if known is None or explanation.changed < known.changed:
            found[step.node] = explanation
    return found


def _ratio(expected: np.ndarray, actual: np.ndarray, error: np.ndarray) -> np.ndarray | None:
    """What each channel was multiplied by; None when that is not all that happened to one."""
    power = (expected * expected).sum(axis=1)
    ratio = np.where(power > 0, (expected * actual).sum(axis=1) / np.where(power > 0, power, 1), 1.0)
    rest = np.abs(actual - expected * ratio[:, None]).max(axis=1, initial=0.0)
    return ratio if bool((rest <= error * np.maximum(1, np.abs(ratio))).all()) else None


def _scaled(a: Chain, b: Chain, ratio: np.ndarray, precision: float) -> Iterator[tuple[ChainStep, Explanation]]:
    """Steps whose scale, multiplied by `ratio`, gives B's weights and B's bias as well."""
    many = int((np.abs(ratio - 1) > precision).sum())
    for index, step in enumerate(a.steps):
        if not step.scaling or (step.single and np.ptp(ratio) > precision * np.abs(ratio).max()):
            continue
        steps = list(a.steps)
        steps[index] = replace(step, scale=step.scale * ratio)
        wanted = replace(a, steps=tuple(steps))
        if (np.abs(wanted.shift() - b.shift()) <= precision * np.maximum(wanted.magnitude(), b.magnitude())).all():
            yield step, Explanation(step.scaling, 1 if step.single else many)


def _shifted(a: Chain, b: Chain, allowed: np.ndarray) -> Iterator[tuple[ChainStep, Explanation]]:
    """Steps that, shifted elsewhere, give B's bias: the weights are the same."""
    moved = np.abs(b.shift() - a.shift()) > allowed
    many = int(moved.sum())
    for index, step in enumerate(a.steps if many else ()):
        behind = a.scale(index)
        if not step.shifting or bool((moved & (behind == 0)).any()):
            continue
        if step.single and not _same_everywhere((b.shift() - a.shift()) / behind, allowed / np.abs(behind)):
            continue
        yield step, Explanation(step.shifting, 1 if step.single else many)


def _same_everywhere(values: np.ndarray, allowed: np.ndarray) -> bool:
    return bool((np.abs(values - np.median(values)) <= allowed).all())
