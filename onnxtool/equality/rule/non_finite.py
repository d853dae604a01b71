"""NaN and infinity in inputs, and what two models make of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onnxtool.equality.trials.trial import Changed, is_kind, is_mask
from onnxtool.model.spec import TensorSpec
from onnxtool.report.proof import TrialKind
from onnxtool.runtime.feeds import Feeds, flatten

_NAN_PLACES: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("a row of NaN", (0,)),
    ("a column of NaN", (..., 0)),
    ("nothing but NaN", ()),
)


def missing_values(specs: Sequence[TensorSpec], feeds: Feeds, generator: np.random.Generator) -> Iterator[Changed]:
    """Inputs with NaN and infinity in places, in rows and columns, and throughout."""
    own = [s for s in specs if is_kind(s, "f") and not is_mask(s)]
    for label, value in (("NaN", np.nan), ("infinity", np.inf), ("minus infinity", -np.inf)) if own else ():
        for chosen in [own, *([s] for s in own if len(own) > 1)]:
            made = {}
            for spec in chosen:
                array = np.array(feeds[spec.name])
                if array.size:
                    array[generator.random(array.shape) < 0.2] = value
                    array.reshape(-1)[generator.integers(array.size)] = value
                made[spec.name] = array
            where = "" if chosen is own else f"{chosen[0].name}: "
            yield f"{where}some values {label}", TrialKind.MISSING, {**feeds, **made}
    mixed = {s.name: np.array(feeds[s.name]) for s in own}
    for array in mixed.values():
        drawn = generator.random(array.shape)
        array[drawn < 0.2], array[drawn > 0.85], array[drawn > 0.95] = np.nan, np.inf, -np.inf
    if own:
        yield "some values NaN and infinity", TrialKind.MISSING, {**feeds, **mixed}
    wide = [s for s in own if np.ndim(feeds[s.name]) > 1 and np.size(feeds[s.name])]
    for label, place in _NAN_PLACES if wide else ():
        made = {s.name: np.array(feeds[s.name]) for s in wide}
        for array in made.values():
            array[place] = np.nan
        yield label, TrialKind.MISSING_ROWS, {**feeds, **made}


def finite_in_one(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> bool:
    """Whether one of two models gives a number where the other gives NaN or infinity, or another integer or text.

    Which of NaN and infinities comes out of a sum depends on the order of its terms, and says nothing.

    Args:
        expected: of the reference.
        actual: of the other model, in the same order.
    """
    for own, other in zip(flatten(expected).values(), flatten(actual).values(), strict=False):
        a, b = np.asarray(own), np.asarray(other)
        if a.shape != b.shape:
            return True
        if a.dtype.kind in "fVc" and b.dtype.kind in "fVc":
            if (np.isfinite(a.astype(np.complex128)) != np.isfinite(b.astype(np.complex128))).any():
                return True
        elif (a.astype(str) != b.astype(str)).any():
            return True
    return False
