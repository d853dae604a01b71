"""Values at which two models may part: several scales, both signs, the ends of a range, what stands for nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from onnxtool.equality.rule.non_finite import missing_values
from onnxtool.equality.trials.graph_hints import GraphHints
from onnxtool.equality.trials.texts import text_values
from onnxtool.equality.trials.trial import EXACTLY, Changed, cast, is_kind, is_mask
from onnxtool.equality.trials.whole_numbers import counts, fitting, in_order, integer_values, named_numbers
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec
from onnxtool.report.proof import ODD_MASK, TrialKind
from onnxtool.runtime.feeds import Feeds


def _uniform(array: np.ndarray) -> np.ndarray:
    """Standard normal numbers -> numbers from 0 to 1 in the same order."""
    return np.asarray(1 / (1 + np.exp(-1.7 * array)))


def _nearly_alike(array: np.ndarray) -> np.ndarray:
    """Each second number a little larger than the one before it: which of them is the largest is a matter of digits."""
    if not array.ndim:
        return array
    made = array.copy()
    pairs = made.shape[-1] // 2 * 2
    made[..., 1:pairs:2] = made[..., 0:pairs:2] * (1 + _NEAR)
    return made


def _shares(array: np.ndarray) -> np.ndarray:
    """Numbers from 0 to 1 that add up to 1 along the last dim, as probabilities do."""
    powers = array**2
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True)) if array.ndim else array


def _halves(array: np.ndarray, first: int) -> np.ndarray:
    """Numbers that end on a half, behind even and odd whole numbers by turns; `first` is 1 to begin with an odd one."""
    odd = (np.arange(array.size).reshape(array.shape) + first) % 2
    return np.asarray(2 * np.floor(2 * array) + odd + 0.5)


# Which ways of rounding take to either side, and rounding errors do not.
_HALVES = ("values that end on a half", "values that end on a half of a power of two")
# (label, what becomes of standard normal numbers)
_FLOATS = (
    ("values of scale 30", lambda x: 30 * x),
    ("values below zero", lambda x: -np.abs(x)),
    ("values from 0 to 255", lambda x: np.floor(256 * _uniform(x))),
    ("values of scale 0.001", lambda x: 1e-3 * x),
    ("zeros", np.zeros_like),
    ("values from 0 to 1", _uniform),
    ("values of scale 1000", lambda x: 1e3 * x),
    ("values from 0 to 10,000", lambda x: 1e4 * _uniform(x)),
    ("values above zero", np.abs),
    ("values of 10,000 and -10,000", lambda x: np.copysign(1e4, x)),
    ("mostly zeros", lambda x: np.where(np.abs(x) > 1.5, x, 0)),
    ("one value of 100 among small ones", lambda x: np.where(x == x.max(initial=0), 100, 0.1 * x)),
    ("values below zero, of scale 100", lambda x: -100 * np.abs(x)),
    ("equal values", np.ones_like),
    ("values of scale 100,000", lambda x: 1e5 * x),
    ("values in ascending order", lambda x: np.sort(x, axis=-1) if x.ndim else x),
    # By turns, so that a threshold at any small number lies between some of them.
    ("values of scale 1e-7 and far below", lambda x: x * 10.0 ** (-7 - 14 * (np.arange(x.size) % 3)).reshape(x.shape)),
    ("values in pairs nearly alike", _nearly_alike),
    (_HALVES[0], lambda x: _halves(x, 0)),
    (_HALVES[1], lambda x: _halves(x, 1) * 2.0 ** -(np.arange(x.size) % 9).reshape(x.shape)),
    ("probabilities", _shares),
    ("values in descending order", lambda x: -np.sort(-x, axis=-1) if x.ndim else x),
    ("rows in ascending order", lambda x: np.sort(x, axis=0) if x.ndim else x),
    ("zeros below zero", lambda x: -np.zeros_like(x)),
)
_PADDINGS = ("padded on the right", "padded on the left", "of random ones", "with an empty row", "of every other one")
_MOST_STATES = 4
_MOST = 64  # numbers of the graph that are tried one by one
_BESIDE = 0.05  # how far from a point of the graph rows are that are beside it
_NEAR = 2.0**-12  # of a number: far more than float32 rounds away, less than float16 can tell
_EXTREME = 1e20  # the square of which is beyond float32
_FAR = 1000.0  # deviations from zero, where a variance by squares has lost most of its digits
_ROWS = 512  # of a batch that holds thresholds
_MOST_PARTS = 12  # such batches


def value_changes(
    specs: Sequence[TensorSpec], feeds: Feeds, facts: GraphHints, generator: np.random.Generator
) -> Iterator[Changed]:
    """Inputs of the sizes of `feeds`, with other values; the most telling first, kinds in turns.

    Args:
        specs: the inputs.
        feeds: on which the reference runs.
        facts: what is known of the inputs.
        generator: of random numbers.
    """
    kinds = [
        _masks(specs, feeds),
        _booleans(specs, feeds),
        _thresholds(specs, feeds, facts, generator),
        _floats(specs, feeds, facts, generator),
        integer_values(specs, feeds, facts, generator),
        in_order(specs, feeds, facts),
        named_numbers(specs, feeds, facts, generator),
        _alike(specs, feeds),
        counts(specs, feeds, facts),
        text_values(specs, feeds, facts, generator),
        missing_values(specs, feeds, generator) if not facts.endless else iter(()),
    ]
    while kinds:
        for kind in list(kinds):
            try:
                label, what, made = next(kind)
            except StopIteration:
                kinds.remove(kind)
            else:
                # NumPy turns what it computes of arrays without dims into scalars, which no runtime takes.
                yield label, what, {name: np.asarray(array) for name, array in made.items()}


def _floats(
    specs: Sequence[TensorSpec], feeds: Feeds, facts: GraphHints, generator: np.random.Generator
) -> Iterator[Changed]:
    listed = {name for name, domain in facts.domains.items() if domain.values}
    own = [s for s in specs if is_kind(s, "fV") and not is_mask(s) and s.name not in listed]
    if not own:
        return
    base = {s.name: generator.standard_normal(np.shape(feeds[s.name])) for s in own}
    for label, change in _FLOATS:
        # A root or a logarithm of one graph says nothing of what the other makes of numbers below zero.
        domains = {n: d for n, d in facts.domains.items() if d.low <= 0 or "below zero" not in label}
        made = {s.name: _within(change(base[s.name]), domains.get(s.name)) for s in own}
        yield label, TrialKind.THRESHOLDS if label in _HALVES else TrialKind.VALUES, {**feeds, **cast(own, made)}
    for spec in own:
        points = np.array([p for p in facts.points if [len(p)] == [*base[spec.name].shape[-1:]]])
        for label, by in (("at", 0.0), ("beside", _BESIDE)) if len(points) else ():
            array = np.resize(generator.permutation(points), base[spec.name].shape) + by * base[spec.name]
            made = {**feeds, **cast([spec], {spec.name: array})}
            yield f"{spec.name}: rows {label} points of the graph", TrialKind.VALUES, made
    for value in facts.values[:_MOST]:
        for word, shift in (("around", 0.0), ("above", 1.0), ("below", -1.0)):
            step = 0.2 * max(1.0, abs(value))
            made = {s.name: value + step * (shift * 3 + base[s.name]) for s in own}
            yield f"values {word} {value:.6g}", TrialKind.VALUES, {**feeds, **cast(own, made)}
        made = {s.name: np.full_like(base[s.name], value) for s in own}
        yield f"{EXACTLY} {value:.6g}", TrialKind.THRESHOLDS, {**feeds, **cast(own, made)}
    bounds = sorted(dict.fromkeys(facts.values[:_MOST]))
    for low, high in pairwise(bounds):
        made = {s.name: low + (high - low) * _uniform(base[s.name]) for s in own}
        yield f"values between {low:.6g} and {high:.6g}", TrialKind.VALUES, {**feeds, **cast(own, made)}
    wide = [s for s in own if is_kind(s, "f") and s.dtype != np.float16 and s.name not in facts.domains]
    if wide and not facts.endless:
        made = {s.name: _EXTREME * base[s.name] for s in wide}
        yield f"values of scale {_EXTREME:g}", TrialKind.EXTREME_VALUES, {**feeds, **cast(wide, made)}
        made = {s.name: _FAR + base[s.name] for s in wide}
        yield f"values around {_FAR:,.0f}, close together", TrialKind.EXTREME_VALUES, {**feeds, **cast(wide, made)}


def _within(array: np.ndarray, domain: Domain | None) -> np.ndarray:
    """Values for an input whose usual ones lie in a domain: as many, below, in and above it."""
    if domain is None:
        return array
    if domain.low > 0:  # roots and logarithms: only what is above zero means anything
        return np.asarray(np.abs(array) * domain.high)
    middle, half = (domain.low + domain.high) / 2, (domain.high - domain.low) / 2
    if not np.isfinite(half) or half == 0:
        return array
    return array if abs(middle) <= half else middle + half * np.clip(array, -1e3, 1e3)


def _alike(specs: Sequence[TensorSpec], feeds: Feeds) -> Iterator[Changed]:
    """Inputs of one shape and type with the same values, rows of a batch all alike, all inputs but one zero."""
    own = [s for s in specs if is_kind(s, "fiuV") and not is_mask(s) and np.size(feeds[s.name])]
    for place, spec in enumerate(own):
        same = [
            s
            for s in own[place + 1 :]
            if np.shape(feeds[s.name]) == np.shape(feeds[spec.name]) and s.dtype == spec.dtype
        ]
        if same:
            yield "inputs alike", TrialKind.VALUES, {**feeds, **{s.name: np.array(feeds[spec.name]) for s in same}}
            if is_kind(spec, "f"):  # the difference of two such inputs is lost where they lose half of their digits
                step = 1 + np.sqrt(np.finfo(feeds[spec.name].dtype).eps) * (1 + np.arange(len(same)))
                made = {s.name: feeds[spec.name] * step[place] for place, s in enumerate(same)}
                yield "inputs nearly alike", TrialKind.VALUES, {**feeds, **cast(same, made)}
            break
    if any(np.ndim(feeds[s.name]) > 1 and len(feeds[s.name]) > 1 for s in own):
        made = {s.name: np.repeat(feeds[s.name][:1], len(feeds[s.name]), axis=0) for s in own if np.ndim(feeds[s.name])}
        yield "rows alike", TrialKind.VALUES, {**feeds, **made}
    floats = [s for s in specs if is_kind(s, "fV") and not is_mask(s)]
    for spec in floats[:_MOST_STATES] if len(floats) > 1 else ():  # as the states of a first step are
        zeros = {s.name: np.zeros_like(feeds[s.name]) for s in floats if s is not spec}
        yield f"zeros but for {spec.name}", TrialKind.VALUES, {**feeds, **zeros}


def _booleans(specs: Sequence[TensorSpec], feeds: Feeds) -> Iterator[Changed]:
    own = [s for s in specs if is_kind(s, "b") and not is_mask(s)]
    for value in (True, False) if own else ():
        made = {s.name: np.full(np.shape(feeds[s.name]), value) for s in own}
        yield f"booleans all {value}", TrialKind.VALUES, {**feeds, **made}
    for spec in own if len(own) > 1 else ():
        for value in (True, False):
            yield (
                f"{spec.name} {value}",
                TrialKind.VALUES,
                {**feeds, spec.name: np.full(np.shape(feeds[spec.name]), value)},
            )


def _masks(specs: Sequence[TensorSpec], feeds: Feeds) -> Iterator[Changed]:
    own = [s for s in specs if is_mask(s)]
    for padding in _PADDINGS if own else ():
        made = {s.name: padded(np.shape(feeds[s.name]), padding).astype(s.dtype) for s in own}
        yield (
            f"mask {padding}",
            TrialKind.EMPTY_MASK if padding.endswith("empty row") else TrialKind.MASK,
            {**feeds, **made},
        )
    whole = [s for s in own if is_kind(s, "iu")]
    for number in (2, -1) if whole else ():
        made = {}
        for spec in whole:
            array = padded(np.shape(feeds[spec.name]), "of random ones")
            made[spec.name] = np.where(array > 0, fitting(spec, number), 0).astype(spec.dtype)
        yield f"{ODD_MASK}{number}", TrialKind.MASK_VALUES, {**feeds, **made}


def padded(shape: tuple[int, ...], padding: str) -> np.ndarray:
    """A mask of ones and zeros: along the last dim, rows have different lengths."""
    mask = np.ones(shape)
    rows = mask.reshape(-1, shape[-1])
    length = shape[-1]
    generator = np.random.default_rng(length)
    for row in range(len(rows)):
        gone = max(1, length // 3) * (1 + row % 2)
        gone = min(gone, length - 1)
        if padding.endswith("right"):
            rows[row, length - gone :] = 0
        elif padding.endswith("left"):
            rows[row, :gone] = 0
        elif padding == "of random ones":
            rows[row] = generator.integers(0, 2, length)
            rows[row, row % length] = 1
    if padding == "of every other one":
        rows[:, 1::2] = 0
    if padding == "with an empty row":
        rows[-1] = 0
    return mask


def _thresholds(
    specs: Sequence[TensorSpec], feeds: Feeds, facts: GraphHints, generator: np.random.Generator
) -> Iterator[Changed]:
    """Rows with each feature at thresholds of trees, and next to them; the others over their own range."""
    for spec in specs:
        own = facts.thresholds.get(spec.name)
        shape = np.shape(feeds[spec.name])
        if not own or len(shape) != 2 or not is_kind(spec, "f") or max(own) >= shape[1]:
            continue
        rows = _ROWS if spec.shape and not isinstance(spec.shape[0], int) else shape[0]
        assert isinstance(spec.dtype, np.dtype)
        table = np.empty((rows, shape[1]), spec.dtype)
        for feature in range(shape[1]):
            table[:, feature] = _over_range(own.get(feature), rows, generator)
        yield (
            f"{spec.name}: each feature over its own range",
            TrialKind.VALUES,
            _batch_of(specs, feeds, spec.name, table),
        )
        ends = np.array([np.inf, -np.inf], spec.dtype)
        at = [(f, spec.dtype.type(t)) for f, found in own.items() for t in found]
        places = [(f, x) for f, t in at for x in (t, *np.nextafter(t, ends))]
        chosen = generator.permutation(np.resize(np.arange(len(places)), max(rows, len(places))))
        for start in range(0, min(len(chosen), _MOST_PARTS * rows), rows):
            near = table.copy()
            for row, place in enumerate(chosen[start : start + rows]):
                feature, value = places[place]
                near[row, feature] = value
            yield f"{spec.name}: features at thresholds", TrialKind.THRESHOLDS, _batch_of(specs, feeds, spec.name, near)
        if facts.missing:
            holed = table.copy()
            holed[generator.random(holed.shape) < 0.3] = np.nan
            yield f"{spec.name}: missing values", TrialKind.MISSING, _batch_of(specs, feeds, spec.name, holed)


def _over_range(found: np.ndarray | None, rows: int, generator: np.random.Generator) -> np.ndarray:
    if found is None or not len(found):
        return generator.standard_normal(rows)
    low, high = float(found.min()), float(found.max())
    margin = 0.25 * (high - low) or 0.5 * abs(high) or 1.0
    return generator.uniform(low - margin, high + margin, rows)


def _batch_of(specs: Sequence[TensorSpec], feeds: Feeds, name: str, table: np.ndarray) -> Feeds:
    """`feeds` with `table` for one input, and as many rows of the others that have a dynamic batch."""
    made = dict(feeds)
    for spec in specs:
        if spec.name != name and spec.shape and not isinstance(spec.shape[0], int):
            made[spec.name] = np.resize(feeds[spec.name], (len(table), *np.shape(feeds[spec.name])[1:]))
    made[name] = table
    return made
