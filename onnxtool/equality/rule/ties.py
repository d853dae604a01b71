"""Indices of the largest (ArgMax, TopK): two models may choose differently where the reference's own scores tie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from onnxtool.equality.rule.rounding import FACTOR
from onnxtool.equality.rule.tolerance import most_rounding, rounding_step
from onnxtool.errors import OnnxToolError
from onnxtool.runtime.feeds import Feeds

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxtool.runtime.runner import Runner

# What hands an index on as it is, or only in another type.
_PASSING = {"Identity", "Cast"}


@dataclass(frozen=True)
class Choice:
    """Where an output's indices come from.

    Attributes:
        scores: the tensor that was searched.
        axis: along which.
        keepdims: whether the output still has that axis (TopK always has).
    """

    scores: str
    axis: int
    keepdims: bool


def choices(model: ir.Model) -> dict[str, Choice]:
    """Outputs that are indices of the largest or smallest, with the scores that were searched."""
    found = {}
    for output in model.graph.outputs:
        node = output.producer()
        place = output.index()
        while node is not None and node.domain == "" and node.op_type in _PASSING and node.inputs[0] is not None:
            place, node = node.inputs[0].index(), node.inputs[0].producer()
        if node is None or node.domain != "" or not node.inputs or node.inputs[0] is None or output.name is None:
            continue
        scores = node.inputs[0].name
        if scores is None:
            continue
        axis = node.attributes.get_int("axis", -1 if node.op_type == "TopK" else 0)
        if node.op_type in ("ArgMax", "ArgMin"):
            found[output.name] = Choice(scores, axis, bool(node.attributes.get_int("keepdims", 1)))
        elif node.op_type == "TopK" and place == 1:
            found[output.name] = Choice(scores, axis, True)
    return found


@dataclass
class TiedScores:
    """The scores behind index outputs of the reference; nothing is run before it is asked for.

    Attributes:
        choices: see `choices`.
        open: makes two Runners of the reference that give these tensors too, with other roundings.
    """

    of_inputs: ClassVar[bool] = False  # inputs and whole numbers, which nothing rounds, may tie too
    choices: Mapping[str, Choice]
    open: Callable[[list[str]], tuple[Runner, Runner]]
    _runners: tuple[Runner, Runner] | None = field(default=None, repr=False)

    def excused(self, feeds: Feeds, name: str, a: np.ndarray, b: np.ndarray) -> int:
        """How many indices of `b` are not `a`'s, but have a score that ties with that of `a`'s within rounding.

        Args:
            feeds: of this run.
            name: of the output.
            a, b: indices, of one shape.
        """
        choice = self.choices.get(name)
        if choice is None:
            return 0
        if choice.scores in feeds:  # nothing rounds an input: of equal numbers ONNX says which is chosen
            given = feeds[choice.scores]
            return tied(given, given, a, b, choice) if self.of_inputs else 0
        try:
            if self._runners is None:
                self._runners = self.open(sorted({c.scores for c in self.choices.values() if c.scores not in feeds}))
            scores, again = (np.asarray(r.run(feeds)[choice.scores]) for r in self._runners)
        except (OnnxToolError, KeyError):
            return 0
        if not self.of_inputs and _are_whole(scores) and np.array_equal(scores, again):
            return 0  # counts and comparisons: nothing rounds them, and of equal numbers ONNX says which is chosen
        return tied(scores, again, a, b, choice)


def _are_whole(scores: np.ndarray) -> bool:
    with np.errstate(all="ignore"):
        return scores.dtype.kind in "biu" or bool((scores == np.round(scores)).all())


_NUDGES = 48  # several elements may tie at once, and each time another one of them is the largest
_FIRST = 8  # without any confirmation among these there will be none
_STEPS = 8  # of the input's own rounding
_SEVERAL = 4  # different choices of the source for one index: so many elements tie that the graph's may not come up


@dataclass
class ConfirmedTies(TiedScores):
    """Ties of a source whose scores cannot be seen, from the graph that was made of it.

    A wrong graph may well have scores that tie. So the source has to confirm it: moved by a few rounding steps of its
    inputs, it chooses as the graph does, or each time another one.

    Attributes:
        source: the reference.
    """

    of_inputs: ClassVar[bool] = True
    source: Runner | None = None

    def excused(self, feeds: Feeds, name: str, a: np.ndarray, b: np.ndarray) -> int:
        """As of TiedScores; nothing unless the source confirms every index that differs."""
        differs = a != b
        assert self.source is not None
        if super().excused(feeds, name, a, b) != int(differs.sum()):
            return 0
        confirmed = np.zeros(a.shape, bool)
        choices = a[None]
        for seed in range(_NUDGES):
            try:
                moved = np.asarray(self.source.run(nudged(feeds, seed))[name])
            except (OnnxToolError, KeyError):
                return 0
            if moved.shape == b.shape:
                confirmed |= moved == b
                choices = np.concatenate([choices, moved[None]])
                confirmed |= 1 + (np.diff(np.sort(choices, axis=0), axis=0) != 0).sum(axis=0) >= _SEVERAL
            if confirmed[differs].all():
                return int(differs.sum())
            if seed + 1 >= _FIRST and not confirmed[differs].any():
                return 0
        return 0


def nudged(feeds: Feeds, seed: int) -> dict[str, np.ndarray]:
    """Inputs whose floats are moved by a few rounding steps, at random; zeros by steps of the largest number."""
    generator = np.random.default_rng(seed)
    moved = dict(feeds)
    for name, array in feeds.items():
        if array.dtype.kind == "f" and array.size:
            exact = np.nan_to_num(np.abs(array.astype(np.float64)), nan=0.0, posinf=0.0)
            size = np.where(exact > 0, exact, exact.max() or 1.0)
            step = _STEPS * float(np.finfo(array.dtype).eps) * size * generator.uniform(-1, 1, array.shape)
            moved[name] = (array.astype(np.float64) + step).astype(array.dtype)
    return moved


def tied(scores: np.ndarray, again: np.ndarray, a: np.ndarray, b: np.ndarray, choice: Choice) -> int:
    """How many indices differ although rounding alone decides between the two scores.

    Args:
        scores: what was searched, of the reference.
        again: the same with other roundings.
        a, b: indices that the reference and the other model chose.
        choice: along which axis.
    """
    if scores.ndim == 0 or not -scores.ndim <= choice.axis < scores.ndim or again.shape != scores.shape:
        return 0
    axis = choice.axis % scores.ndim
    ours, theirs = (i.astype(np.int64) if choice.keepdims else np.expand_dims(i.astype(np.int64), axis) for i in (a, b))
    length = scores.shape[axis]
    if ours.ndim != scores.ndim or any(((i < 0) | (i >= length)).any() for i in (ours, theirs)):
        return 0
    ordered = np.sort(theirs, axis=axis)
    if (np.diff(ordered, axis=axis) == 0).any():
        return 0  # the same element twice among the largest
    x, y = (np.take_along_axis(scores, i, axis) for i in (ours, theirs))
    if scores.dtype.kind in "biu":
        close = x == y
    else:
        with np.errstate(all="ignore"):
            moved = np.abs(scores.astype(np.float64) - again.astype(np.float64)).max(axis=axis, keepdims=True)
            wide = np.abs(scores.astype(np.float64))
            size = wide.max(axis=axis, keepdims=True)
            scale = np.sqrt((wide**2).mean(axis=axis, keepdims=True))
            noise = np.minimum(FACTOR * moved, most_rounding(scores.dtype.name) * scale)
            # Each of the two scores may have moved.
            limit = 2 * np.maximum(noise, rounding_step(scores.dtype) * size)
            close = np.abs(x.astype(np.float64) - y.astype(np.float64)) <= limit
    return int(((ours != theirs) & close).sum())
