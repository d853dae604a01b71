"""Where the changing dims of Reshape's input go in its target.

Reshape keeps the order of the elements, so a dim has a place in them: the product of the dims before it is the same in
the target. A size of 1 fits in several places; then there are alternatives, the likeliest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from onnxtool.editing.resizing.sizes import OldSizes
from onnxtool.model.operators.symbolic_dims import exact_divide, multiply
from onnxtool.model.operators.value_facts import Size, Sizes


def placements(
    data: Sizes, old_data: Sequence[int], old_target: Sequence[int], sizes: OldSizes, preferred: Sequence[int] = ()
) -> list[tuple[Size, ...]]:
    """The targets that carry every changing part of the data, the likeliest first.

    Args:
        data: dims of Reshape's input.
        old_data: what they were.
        old_target: the target's dims as they were, without 0 and -1.
        sizes: which dims change.
        preferred: indices that are 0 or -1 in the target as it stands, and so follow the data anyway.

    Returns:
        Dims of the output; empty when a changing part has no place.
    """
    found: list[list[Size]] = [list(old_target)]
    for axis, (size, old) in enumerate(zip(data, old_data, strict=True)):
        if not sizes.changes(size):
            continue
        start = prod(old_data[:axis])
        for part, number in sizes.factors(size, old):
            places = _places(old_target, start, start * old, number, axis, preferred)
            extended = []
            for target in found:
                for place in places:
                    own = target[place]
                    left = exact_divide(own, number)
                    if left is not None:
                        extended.append([*target[:place], multiply(left, part), *target[place + 1 :]])
                for place in () if places else _split(old_target, start, number):
                    left = exact_divide(target[place], old_target[place])
                    grown = sizes.quotient(part, number // old_target[place])
                    if left is not None and grown is not None:
                        extended.append([*target[:place], multiply(left, grown), *target[place + 1 :]])
            found = extended
    unique: dict[tuple[Size, ...], None] = dict.fromkeys(tuple(t) for t in found)
    return list(unique)


def _split(target: Sequence[int], start: int, number: int) -> list[int]:
    """Indices of the dims into which a dim is cut, as into windows: either their number grows or their size."""
    found = []
    for index, dim in enumerate(target):
        low = prod(target[:index])
        if start <= low < start * number and dim > 1:
            found.append(index)
    return found if prod(target[i] for i in found) == number else []


def _places(target: Sequence[int], start: int, end: int, number: int, axis: int, preferred: Sequence[int]) -> list[int]:
    """Indices of target dims that may hold a part of this size, which lies between two offsets in the elements."""
    ranked: list[tuple[tuple[int, ...], int]] = []
    last = len(target) - 1
    for index, dim in enumerate(target):
        low, high = prod(target[:index]), prod(target[: index + 1])
        if number == 0 or dim % number:
            continue
        within = start <= low <= end if number == 1 else start <= low < end  # a size of 1 may stand at the end, too
        exact = dim == number and within and high <= max(end, low * number)
        if exact:
            tier = 0
        elif low == start:
            tier = 1 if index < last or len(target) == 1 or number > 1 else 4
        elif low < start < high or (start < low < end):
            tier = 2
        elif high == start and number == 1:
            tier = 3
        else:
            continue
        ranked.append(((tier, index not in preferred, abs(index - axis), index), index))
    return [index for _, index in sorted(ranked)]


def moved_batch(
    data: Sizes, old_data: Sequence[int], old_target: Sequence[int], likeliest: Sequence[Size], sizes: OldSizes
) -> list[int] | None:
    """The order of dims, where a Reshape only moves the dim that changes from one place to another.

    With a size of 1 that is the same as a Transpose, and exporters write it so. None when a Reshape can carry the dim
    as it is, or when it does more.
    """
    changed = [i for i, d in enumerate(data) if sizes.changes(d)]
    if len(changed) != 1 or old_data[changed[0]] != 1 or len(old_data) != len(old_target):
        return None
    if any(sizes.changes(new) and old == 1 for new, old in zip(likeliest, old_target, strict=True)):
        return None
    rest = [i for i in range(len(data)) if i != changed[0]]
    for place, size in enumerate(old_target):
        if size == 1 and [old_data[i] for i in rest] == [*old_target[:place], *old_target[place + 1 :]]:
            return [*rest[:place], changed[0], *rest[place:]]
    return None


def turned_rows(
    data: Sizes, old_data: Sequence[int], old_target: Sequence[int], likeliest: Sequence[Size], sizes: OldSizes
) -> tuple[list[Size], int] | None:
    """Where [k * batch] is to become [batch, k] though the rows of the batch lie in turn.

    With a batch of 1 a Reshape does what takes a Transpose in between otherwise.

    Returns:
        (dims with k before the batch, place of k); None when this is not such a case.
    """
    for axis, size in enumerate(data):
        parts = sizes.factors(size, old_data[axis]) if sizes.changes(size) else []
        rest = sizes.rest(size, parts) if len(parts) == 1 else None
        if not isinstance(rest, int) or rest < 2 or parts[0][1] != 1:
            continue
        for place in range(len(old_target) - 1):
            if likeliest[place] == parts[0][0] and old_target[place : place + 2] == (1, rest):
                return [*likeliest[:place], rest, parts[0][0], *likeliest[place + 2 :]], place
    return None
