"""What loops over a dynamic size do while torch.export follows a model: one step, followed once, for all of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import onnxscript
import torch
from torch.onnx._internal.exporter._torchlib.ops import hop
from torch.utils import _pytree as trees

op = onnxscript.opset18
Step = Callable[..., tuple[Any, ...]]


class UnfollowedError(BaseException):
    """A loop does what a step that is followed once cannot; torch has to pass this on at once."""


class _Unset:
    """Stands for a variable that has no value yet."""


@dataclass
class _Numbers:
    """What is known of the number of a step.

    Attributes:
        tries: the first step is tried.
        asked: it has compared its number.
        begins: the first steps stand apart from the loop, which begins with this one.
    """

    tries: bool = False
    asked: bool = False
    begins: int = 0


unbind = torch.Tensor.unbind
UNSET = _Unset()
_NUMBERS = _Numbers()


def _no_items() -> Sequence[Any]:
    raise UnfollowedError("what a loop goes through is read elsewhere")


class Dynamic:
    """What a loop goes through, so many times as a dynamic size says.

    Args:
        count: how many.
        at: the item of a step by its number, an int or a 0-dim int64 tensor.
        counts: an item is the number of its step, or has it.
        plain: the items, which makes a number of the size; without it they are read by a loop alone.
    """

    def __init__(
        self,
        count: Any,
        at: Callable[[Any], Any],
        *,
        counts: bool = False,
        plain: Callable[[], Sequence[Any]] = _no_items,
    ) -> None:
        self.count, self.at, self.counts, self.plain = count, at, counts, plain

    def __iter__(self) -> Iterator[Any]:
        look()
        return iter(self.plain())

    def __getitem__(self, place: Any) -> Any:
        return self.plain()[place]

    def __len__(self) -> int:
        return len(self.plain())


def look() -> None:
    """Called where a dynamic size is about to be made a number by a loop; `loops` listens."""


class Collected:
    """What all steps of a loop have added to a list, in place of so many tensors.

    Attributes:
        values: [steps, ...].
    """

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    def flipped(self) -> Collected:
        """From the last to the first."""
        return Collected(self.values.flip(0))

    @classmethod
    def __torch_function__(cls, function: Any, _kinds: Any, args: Any = (), kwargs: Any = None) -> torch.Tensor:
        """Of functions that join tensors, the same of these."""
        named = dict(zip(("tensors", "dim"), args, strict=False)) | (kwargs or {})
        joins = {torch.stack: cls._stacked, torch.cat: cls._joined, torch.concat: cls._joined}
        if function not in joins or not named.keys() <= {"tensors", "dim"}:
            raise UnfollowedError(f"{function} of what steps of a loop have made")
        dim = named.get("dim", 0)
        return torch.cat([joins[function](part, dim) for part in named["tensors"]], dim)

    @staticmethod
    def _stacked(part: Any, dim: int) -> torch.Tensor:
        return part.values.movedim(0, dim) if isinstance(part, Collected) else part.unsqueeze(dim)

    @staticmethod
    def _joined(part: Any, dim: int) -> torch.Tensor:
        if not isinstance(part, Collected):
            return part
        axis = dim % (part.values.dim() - 1)
        return part.values.movedim(0, axis).flatten(axis, axis + 1)


class Collection(list[Any]):
    """A list that a loop has added to."""

    def __getitem__(self, place: Any) -> Any:
        last = super().__getitem__(-1)
        if place == -1:
            return last.values[-1] if isinstance(last, Collected) else last
        if place == slice(None, None, -1):
            return Collection(p.flipped() if isinstance(p, Collected) else p for p in reversed(self))
        raise UnfollowedError(f"item {place} of what steps of a loop have made")

    def reverse(self) -> None:
        """From the last to the first."""
        self[:] = self[::-1]

    def __len__(self) -> int:
        raise UnfollowedError("the number of what steps of a loop have made")


def value(read: Callable[[], Any]) -> Any:
    """Of a variable, or `UNSET`."""
    try:
        return read()
    except NameError:
        return UNSET


def is_dynamic(size: Any) -> bool:
    """Whether a size is none of a number: the module's code may hold any other for one."""
    return isinstance(size, torch.SymInt) and size.node.maybe_as_int() is None


def numbers(*given: Any) -> Any:
    """`range`, of dynamic sizes too."""
    if not any(map(is_dynamic, given)):
        return range(*given)
    start, stop, step = (0, *given, 1) if len(given) == 1 else (*given, 1)[:3]
    count = -((start - stop) // step)
    if not is_dynamic(count):
        return [start + i * step for i in range(count)]
    counts = isinstance(start, int) and (start, step) == (0, 1)
    return Dynamic(count, lambda at: at * step + start, counts=counts, plain=lambda: range(*given))


def pieces(tensor: Any, dim: int = 0) -> Any:
    """`torch.unbind`, along dynamic dims too."""
    if not isinstance(tensor, torch.Tensor) or not tensor.dim() or not is_dynamic(tensor.shape[dim]):
        return unbind(tensor, dim)
    return Dynamic(tensor.shape[dim], lambda at: part(tensor, dim, at), plain=lambda: unbind(tensor, dim))


def part(tensor: torch.Tensor, dim: int, at: Any) -> torch.Tensor:
    """`tensor.select(dim, at)`, at the number of a step too."""
    return _chosen(tensor, dim, at) if isinstance(at, torch.Tensor) else tensor.select(dim, at)


def numbered(items: Any, start: int = 0) -> Any:
    """`enumerate`."""
    items = _iterated(items)
    if not isinstance(items, Dynamic):
        return enumerate(items, start)
    return Dynamic(items.count, lambda at: (at + start, items.at(at)), counts=start == 0)


def together(*parts: Any, **named: Any) -> Any:
    """`zip`, of what goes on for equally many steps."""
    parts = tuple(map(_iterated, parts))
    dynamic = [part for part in parts if isinstance(part, Dynamic)]
    if not dynamic:
        return zip(*parts, strict=named.get("strict", False))
    if len(dynamic) < len(parts) or len({str(part.count) for part in dynamic}) > 1:
        raise UnfollowedError("zip of a dynamic size and another one")
    return Dynamic(dynamic[0].count, lambda at: tuple(part.at(at) for part in dynamic))


def backwards(items: Any) -> Any:
    """`reversed`."""
    items = _iterated(items)
    if isinstance(items, Dynamic):
        return Dynamic(items.count, lambda at: items.at(items.count - 1 - at))
    return items[::-1] if isinstance(items, Collection) else reversed(items)


def _iterated(items: Any) -> Any:
    if isinstance(items, Collection):
        items = torch.stack(items)
    return pieces(items) if isinstance(items, torch.Tensor) else items


class Window:
    """Some indices in a row, of which the first hangs on the number of a step."""

    def __init__(self, numbers: torch.Tensor) -> None:
        self.numbers = numbers


def window(begin: Any, width: int) -> Any:
    """`begin : begin + width` as an index."""
    return Window(begin + torch.arange(width)) if _is_number(begin) else slice(begin, begin + width)


def _is_number(part: Any) -> bool:
    """Whether an index is the number of a step."""
    return isinstance(part, torch.Tensor) and not part.dim() and part.dtype == torch.int64


def element(tensor: Any, index: Any) -> Any:
    """`tensor[index]`, where numbers of steps may stand among the indices."""
    found = _place(tensor, index)
    if found is None:
        return tensor[index]
    axis, at, rest = found
    return _chosen(tensor, axis, at)[rest]


def _chosen(tensor: torch.Tensor, axis: int, at: torch.Tensor) -> torch.Tensor:
    chosen = tensor.index_select(axis, at.reshape(-1))
    return chosen if at.dim() else chosen.squeeze(axis)


def put(tensor: Any, index: Any, given: Any) -> None:
    """`tensor[index] = given`, likewise."""
    found = _place(tensor, index)
    if found is None:
        parts = index if isinstance(index, tuple) else (index,)
        if {type(part) for part in parts} <= {torch.SymInt, int, slice} and isinstance(tensor, torch.Tensor):
            tensor[index].copy_(torch.as_tensor(given))  # else torch makes a number of the size
        else:
            tensor[index] = given
        return
    axis, at, rest = found
    if any(part != slice(None) for part in rest):
        whole = _chosen(tensor, axis, at)
        whole[rest] = given
        given = whole
    shape = [*tensor.shape[:axis], at.numel(), *tensor.shape[axis + 1 :]]
    given = torch.as_tensor(given, dtype=tensor.dtype)
    given = given.expand(shape) if at.dim() else given.expand(shape[:axis] + shape[axis + 1 :]).unsqueeze(axis)
    tensor.index_copy_(axis, at.reshape(-1), given)


def _place(tensor: Any, index: Any) -> tuple[int, torch.Tensor, tuple[Any, ...]] | None:
    """The axis at which a step's number stands, the number, and the indices of what is there; None for none."""
    parts = index if isinstance(index, tuple) else (index,)
    steps = [i for i, part in enumerate(parts) if _is_number(part) or isinstance(part, Window)]
    if not isinstance(tensor, torch.Tensor) or not steps:
        return None
    if len(steps) > 1:
        raise UnfollowedError("an index of several steps")
    at = steps[0]
    if ... in parts[:at]:
        whole = (slice(None),) * (tensor.dim() - sum(part is not None for part in parts) + 1)
        dots = parts.index(...)
        parts, at = (*parts[:dots], *whole, *parts[dots + 1 :]), at + len(whole) - 1
    number = parts[at].numbers if isinstance(parts[at], Window) else parts[at]
    number = torch.where(number < 0, number + tensor.shape[at], number)
    rest = parts[at + 1 :] if isinstance(parts[at], torch.Tensor) else (slice(None), *parts[at + 1 :])
    return at - sum(part is None for part in parts[:at]), number, (*parts[:at], *rest)


def compared(number: Any, relation: str, limit: Any) -> Any:
    """A comparison of what may be the number of a step: those of its first steps are decided."""
    if isinstance(limit, torch.Tensor):
        return getattr(operator, relation)(number, limit)
    if not _is_number(number):
        if _NUMBERS.tries:  # else nothing is changed: torch's compiler may be at work
            _NUMBERS.asked = True
        return getattr(operator, relation)(number, limit)
    first = _NUMBERS.begins  # all others are larger: they come out as it does where the limit lies below
    if not isinstance(limit, int) or limit > first or (limit == first and relation not in ("lt", "ge")):
        raise UnfollowedError("a branch on the number of a step")
    return getattr(operator, relation)(first, limit)


def loop(step: Step, items: Any, values: tuple[Any, ...], used: tuple[bool, ...]) -> tuple[Any, ...]:
    """Go through a loop.

    Args:
        step: its body: takes an item and the variables, and gives the variables.
        items: what it goes through.
        values: of the variables.
        used: which of them are read outside of the loop.

    Returns:
        The variables after the last step, and the last item.

    Raises:
        UnfollowedError: the loop goes on as long as a dynamic size says, and does what is not followed.
    """
    items = _iterated(items)
    if isinstance(items, Dynamic):
        try:
            return (*_followed(step, items, values, used), items.at(items.count - 1))
        except Exception as error:  # torch would go on with its other ways, which make a number of the size
            raise UnfollowedError(str(error)) from error
    item: Any = UNSET
    tried = _NUMBERS.tries
    if tried:
        _NUMBERS.tries = False
    for item in items:
        values = step(item, *values)
    if tried:
        _NUMBERS.tries = True
    return (*values, item)


def collect(make: Callable[[Any], Any], items: Any) -> list[Any]:
    """A list of what is made of each item."""

    def step(item: Any, made: list[Any]) -> tuple[list[Any]]:
        made.append(make(item))
        return (made,)

    found: list[Any] = loop(step, items, ([],), (True,))[0]
    return found


def _followed(step: Step, items: Dynamic, values: tuple[Any, ...], used: tuple[bool, ...]) -> tuple[Any, ...]:
    _NUMBERS.tries, _NUMBERS.asked, _NUMBERS.begins = True, False, 0
    after = step(items.at(0), *map(_own, values))
    _NUMBERS.tries = False
    # What is made in each step and read behind the last has to be handed on, whatever it is at first.
    start = [a if b is UNSET and keeps else b for b, a, keeps in zip(values, after, used, strict=True)]
    if _NUMBERS.asked and not items.counts:
        raise UnfollowedError("a branch on what a loop goes through")
    if _NUMBERS.asked or not all(map(_is_steady, start, after)):
        # A state that begins as None, a number or one row for all, or a first step that is unlike the others.
        _NUMBERS.begins = 1
        start = list(map(_with_counters, start, after))
        at = items.at
        items = Dynamic(items.count - 1, lambda number: at(number + 1))
    after = step(items.at(torch.zeros((), dtype=torch.int64)), *map(_own, start))
    start = list(map(_with_numbers, start, after))
    passing = [b is UNSET and not keeps for b, keeps in zip(values, used, strict=True)]
    start = [UNSET if p and not _is_steady(b, a) else b for p, b, a in zip(passing, start, after, strict=True)]
    return _scanned(step, items, start, after)


def _with_counters(before: Any, after: Any) -> Any:
    """A variable after the first step; as a tensor where it is a number that changes."""
    counts = {int: torch.int64, float: torch.float64}
    changes = type(before) is type(after) in counts and before != after
    return torch.tensor(after, dtype=counts[type(after)]) if changes else after


def _with_numbers(before: Any, after: Any) -> Any:
    """A variable; as a tensor where it is a number that becomes that of a step."""
    changes = isinstance(after, torch.Tensor) and not after.dim() and type(before) in (int, float)
    return torch.tensor(before, dtype=after.dtype) if changes else before


def _own(kept: Any) -> Any:
    """What a step may write to."""
    return trees.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, kept)


def _is_list_grown(before: Any, after: Any) -> bool:
    return isinstance(before, list) and isinstance(after, list) and list.__len__(after) > list.__len__(before)


def _is_steady(before: Any, after: Any) -> bool:
    """Whether a step leaves a variable of the kind and shape that it found."""
    if before is UNSET or _is_list_grown(before, after):
        return True
    leaves, kind = trees.tree_flatten(before)
    others, other_kind = trees.tree_flatten(after)
    return kind == other_kind and all(map(_is_alike, leaves, others))


def _is_alike(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and list(map(str, a.shape)) == list(map(str, b.shape))
    return _is_same(a, b)


def _is_same(a: Any, b: Any) -> bool:
    """Two tensors, which may be any, or one thing twice."""
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
    return a is b or bool(a == b)


def _scanned(step: Step, items: Dynamic, start: Sequence[Any], after: Sequence[Any]) -> tuple[Any, ...]:
    """As torch's `scan`, which the exporter writes as a loop of ONNX."""
    from torch._higher_order_ops.scan import scan

    if not all(map(_is_steady, start, after)):
        raise UnfollowedError("a variable of another kind after each step")
    grows = [_is_list_grown(b, a) for b, a in zip(start, after, strict=True)]
    # Of a list that grows, a step may read the last item.
    states = [b[-1:] if grown else None if b is UNSET else b for b, grown in zip(start, grows, strict=True)]
    leaves, kind = trees.tree_flatten(states)
    moving = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def one(carried: Sequence[torch.Tensor], at: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        given = trees.tree_unflatten(_filled(leaves, moving, carried), kind)
        found = step(items.at(at), *(UNSET if b is UNSET else _own(g) for b, g in zip(start, given, strict=True)))
        kept = [
            f[-len(g) :] if grown and g else g if grown else None if b is UNSET else f
            for f, g, b, grown in zip(found, given, start, grows, strict=True)
        ]
        behind, others = trees.tree_flatten(kept)
        if others != kind or not all(map(_is_same, leaves, behind)):
            raise UnfollowedError("a variable of another kind after each step")
        added = [_as_one(f[len(g) :]) for f, g, grown in zip(found, given, grows, strict=True) if grown]
        return [*(_apart(behind[i]) for i in moving), *map(_apart, carried[len(moving) :])], [*map(_apart, added)]

    begin = [_apart(leaves[i]) for i in moving] or [torch.zeros(1)]
    ends, made = scan(one, begin, torch.arange(items.count))
    left, lists = trees.tree_unflatten(_filled(leaves, moving, ends), kind), iter(made)
    result = []
    for before, behind, grown, end in zip(start, after, grows, left, strict=True):
        if grown:
            several = list.__len__(behind) - list.__len__(before) > 1
            stacked = next(lists)
            result.append(Collection([*before, Collected(stacked.flatten(0, 1) if several else stacked)]))
        else:
            result.append(UNSET if before is UNSET else end)
    return tuple(result)


def _filled(leaves: Sequence[Any], places: Sequence[int], values: Sequence[Any]) -> list[Any]:
    filled = [*leaves]
    for i, value in zip(places, values, strict=False):
        filled[i] = value
    return filled


def _apart(tensor: torch.Tensor) -> torch.Tensor:
    """A copy, with strides that depend on the shape alone: torch's `scan` wants these."""
    return tensor.clone(memory_format=torch.contiguous_format)


def _as_one(added: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack([*added]) if len(added) > 1 else added[0]


def written(
    body: ir.Function,
    states: Sequence[ir.Value],
    items: Sequence[ir.Value],
    captured: Sequence[Any] | None = None,
    reverse: bool = False,
) -> Sequence[ir.Value]:
    """Translates torch's `scan` to Loop, which may end before its first step; the runtime's Scan fails there."""
    if reverse:
        scanned: Sequence[ir.Value] = hop.higher_order_scan(body, states, items, captured, reverse)
        return scanned
    step = ir.Value(name=f"{body.name}_step", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))
    goes_on = ir.Value(name=f"{body.name}_goes_on", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
    held = [ir.Value(name=f"{v.name}_{body.name}_in", shape=v.shape, type=v.type) for v in states]
    chosen = [ir.node("Gather", [v, step], {"axis": 0}, name=f"{v.name}_{body.name}_item") for v in items]
    still = ir.node("Identity", [goes_on], name=f"{body.name}_still")
    given = [*held, *(n.outputs[0] for n in chosen), *(captured or ())]
    call = ir.Node(body.domain, body.name, given, num_outputs=len(body.outputs))
    for node in (*chosen, still):
        node.outputs[0].name = f"{node.name}_value"
    for value, own in zip(call.outputs, body.outputs, strict=True):
        value.name = f"{own.name}_{body.name}"
    graph = ir.Graph(
        [step, goes_on, *held], [still.outputs[0], *call.outputs], nodes=[*chosen, still, call], name=body.name
    )
    count = op.Squeeze(op.Shape(items[0], start=0, end=1))
    made: Sequence[ir.Value] = hop.call_op("Loop", count, None, *states, _num_outputs=len(body.outputs), body=graph)
    return made
