"""Numbers in a graph that may stand for a size that becomes dynamic: 40, 39, 1/40, the square root of 40, its half.

What a number was made of cannot be seen from one size. So each number of a node that the sizes reach needs an
explanation of its own (`ordinary_numbers.py`): a formula's constant, a size that stays, a few decimals that somebody
wrote. Where it has none, or also fits what exporters make of the size, that it is *not* made of it is an assumption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from math import ceil, e, log, pi, prod, sqrt

import numpy as np
import onnx
import onnx_ir as ir

from onnxtool.editing.resizing.growing_sums import GrowingSums
from onnxtool.editing.resizing.ordinary_numbers import WRITTEN_DIGITS, OrdinaryNumbers, digits_of
from onnxtool.editing.resizing.resize_context import MOST_SEEN, Resizing, hangs_on, node_label
from onnxtool.editing.resizing.targets import met_size
from onnxtool.model.ir.queries import attribute, constant_array, producer, walk
from onnxtool.model.operators.layout_rules import axes_of
from onnxtool.model.operators.symbolic_dims import Expr, content
from onnxtool.model.operators.table import STANDARD, operator_of
from onnxtool.model.operators.value_facts import elements_of, integers, sizes_of
from onnxtool.report.proof import Assumption

_LEARNED = 3  # so many different floats in one tensor were learned, or written
_FEW = 16  # elements; larger tensors are weights, unless all their elements are equal
_TELLING = 4  # an inner dim of fewer elements fits too many numbers by chance
_POSITIONS = 3  # further places are never taken for a difference of neighbours
_NARROW = 4  # windows and strides of up to so many elements are usual
_BASE_DILATION = 6  # the first of a ladder of dilations: 2, 4, 8 or 6, 12, 18
_WHOLE_WINDOWS = 8  # a pool that leaves so few elements may be an adaptive one
_ALIGNED = 8  # padding is often up to a multiple of this
_TO_THE_END = 1 << 30
_OTHER_ROOT = 513  # sizes that a model may have been trained at: scales are ratios of logarithms
_PARTS = 16  # a float that is one of so many whole parts of a size may be made of it
_SHARES = 64  # a scale of so many parts of a size is no accident
_CLOSE = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-6}
_AXES = ("axes", "axis")  # what ONNX calls operands that are no amounts


@dataclass
class Lengths:
    """The sizes that become dynamic, as they were.

    Attributes:
        roots: of inputs, with the symbol of each.
        inner: of other tensors, and products of dims that are reduced or joined.
    """

    roots: dict[int, str]
    inner: set[int] = field(default_factory=set)

    def fits(self, number: float, *, whole: bool, close: float = 1e-6, place: bool = False) -> str:
        """What a number may be made of: "1 / 40"; "" where nothing fits.

        Args:
            number: itself.
            whole: it is an integer.
            close: how far off rounding may have it, relative.
            place: it meets places along the dim, of which it may be any part.
        """
        for size in (*self.roots, *sorted(self.inner - set(self.roots))):
            if size < _TELLING and size not in self.roots:
                continue
            for told, value in _made_of(size, whole=whole, root=size in self.roots):
                if abs(abs(number) - value) <= close * value:
                    return told
        for size, other in () if whole else permutations(self.roots, 2):
            if abs(abs(number) - size / other) <= close * size / other:
                return f"{size} / {other}"
        if place or not whole:
            return self.part(number)
        return ""

    def part(self, number: float) -> str:
        """Of how many equal parts of a size a number is one: 40 / 8; "" where it is none."""
        for size in self.roots:
            part = round(size / abs(number))
            if 1 < part <= _PARTS and size % part == 0 and size // part >= _POSITIONS and abs(number) == size // part:
                return f"{size} / {part}"
        return ""

    def shorter(self, number: float, close: float) -> str:
        """What a decimal takes fewer digits as: 1.4 is 1 + 40 * 0.01; "" where nobody would write it otherwise.

        The shorter of two descriptions is the likelier one (minimum description length).
        """
        digits = digits_of(number, close)
        if digits > WRITTEN_DIGITS or (digits > 2 and self.shares(number)):
            return "a function of its length"
        for size in self.roots:
            for told, value in (
                (f"{size} * {number / size:.4g}", number / size),
                (f"{number * size:.4g} / {size}", number * size),
                (f"1 + {size} * {(number - 1) / size:.4g}", (number - 1) / size),
                (f"1 + {(number - 1) * size:.4g} / {size}", (number - 1) * size),
                *((f"{number * part:.4g} / {part}", number * part) for part in (size - 1, size + 1)),
            ):
                if size > 1 and value and digits_of(value, close) < digits:
                    return told
        return ""

    def shares(self, number: float) -> str:
        """Of how many 40ths a scale is: 5 / 40; "" where that is not a whole number of them."""
        for size in {*self.roots, *self.inner}:
            for parts in (size, size - 1, size + 1):
                for told, value in (
                    (f"{number * parts:.0f} / {parts}", number * parts),
                    (f"{parts} / {parts / number:.0f}", parts / number),
                ):
                    if parts > 1 and 1 <= abs(value) <= _SHARES and abs(value - round(value)) <= 1e-5 * abs(value):
                        return told
        return ""


def _made_of(size: int, *, whole: bool, root: bool) -> Iterator[tuple[str, float]]:
    """What exporters make of a size."""
    yield f"{size}", size
    yield f"{size} - 1", size - 1
    if size > 1 and not whole:
        yield from ((f"1 {sign} 1 / {size}", 1 + part / size) for sign, part in (("-", -1), ("+", 1)))
        yield from ((f"{size} / {part}", size / part) for part in (3, 4) if root)
    if whole:
        for told, value in ((f"{size} + 1", size + 1), (f"{size} - 2", size - 2), (f"2 * {size}", 2 * size)):
            yield told, value
        yield f"2 * {size} - 1", 2 * size - 1
        yield f"{size} / 2 - 1", size // 2 - 1
        yield from ((f"{size} / {part}", value) for part in (2, 3, 4) for value in (size // part, ceil(size / part)))
        return
    for told, value in ((f"{size}", size), (f"({size} - 1)", size - 1), (f"({size} + 1)", size + 1)):
        for name, factor in (("1", 1.0), ("2", 2.0), ("pi", pi), ("2 pi", 2 * pi)):
            yield f"{name} / {told}", factor / max(value, 1)
            if root:
                yield f"{told} / {name}", value / factor
    if root:
        for other in range(2, _OTHER_ROOT):
            ratio = log(size) / log(other) if size > 1 else 1.0
            if abs(12 * ratio - round(12 * ratio)) > 1e-3:  # simple numbers are made of nothing
                yield f"log({size}) / log({other})", ratio
    powers: dict[str, float] = {f"sqrt({size})": sqrt(size)}
    if root:
        powers |= {f"{size} ** {told}": size**power for told, power in (("2", 2), ("1/4", 1 / 4), ("1/3", 1 / 3))}
        powers |= {f"log{base or ''}({size})": log(size, base or e) for base in (None, 2, 10) if size > 1}
    for told, power in powers.items():
        yield told, power
        yield f"1 / {told}", 1 / power


class BakedNumbers:
    """Looks through a model whose dims have become dynamic.

    Args:
        model: the result, with its sizes.
        state: of the rewriting.
        batch: the symbol that is proven by runs, and so is left out.
    """

    def __init__(self, model: ir.Model, state: Resizing, batch: str | None) -> None:
        self._model, self._state, self._batch = model, state, batch
        self._lengths = Lengths({n: s for s, n in state.old.roots.items() if s != batch})
        self._sums = GrowingSums(self._axes, self._still)
        self._means: set[ir.Value] = set()  # over the dim, scaled or in another shape
        self._found: list[Assumption] = []
        self._reached: set[ir.Value] = {v for v in model.graph.inputs if self._axes(v)}
        self._moving = {v for graph in model.graphs() for v in graph.inputs}  # what is no constant
        kept: set[int] = set()
        limits: set[float] = set()
        self._dilations: set[int] = set()
        self._windows: dict[tuple[str, int], int] = {}  # operator and elements -> the largest dim that one goes over
        self._slices: dict[int, set[ir.Node]] = {}  # bound -> nodes
        for node in walk(model.graph):
            for value in (*node.inputs, *node.outputs):
                self._measure(value)
                changed = self._axes(value)
                kept |= {d for a, d in enumerate(sizes_of(value) or ()) if isinstance(d, int) and a not in changed}
            if any(v in self._reached for v in node.inputs):
                self._reached |= set(node.outputs)
            if self._moves(node):
                self._moving |= set(node.outputs)
            if node.op_type == "Clip":
                arrays = (constant_array(v) for v in node.inputs[1:])
                limits |= {float(a.reshape(-1)[0]) for a in arrays if a is not None and a.size == 1}
            if node.op_type == "Slice":
                for operand in node.inputs[1:3]:
                    for bound in integers(operand) or ():
                        self._slices.setdefault(bound, set()).add(node)
            self._dilations |= set(attribute(node, "dilations") or ())
            if self._rules().get(node.op_type) == self._window:
                sizes = (self._state.old.of(node.inputs[0]) or ())[2:]
                for elements, size in zip(_window_of(node), sizes, strict=False):
                    window = node.op_type, elements
                    self._windows[window] = max(size, self._windows.get(window, 0))
        self._hidden = {attribute(n, "hidden_size", 0) for n in walk(model.graph)}
        self._operands = self._short_operands()
        self._ordinary = OrdinaryNumbers(frozenset(self._lengths.roots), frozenset(kept), frozenset(limits))

    def assumptions(self) -> list[Assumption]:
        """That numbers, and places along the dim, are not made of its old size."""
        if not self._lengths.roots:
            return []
        for size, symbol in self._lengths.roots.items():
            if size == 1:
                self._assume(
                    None,
                    f"nothing in the model is made for {symbol} 1, at which everything is the last, the first and all",
                )
        for node, told in self._state.assumed:
            self._assume(node, told)
        self._taken_whole()
        for value in self._model.graph.outputs:
            if value not in self._moving:
                self._assume(None, f"the output {value.name!r}, which hangs on no input, is the same at every size")
        for node, base in self._state.bases:
            usual = digits_of(base, 1e-6) == 1 and f"{base:e}"[0] in "15"  # 10000, 500000
            if not usual:
                self._assume(node, f"{base:g}, the base of its frequencies, is not made of the old size")
            self._amount(node, base, np.dtype(np.float64), name="the base of its frequencies", alone=True)
        for node in walk(self._model.graph):
            if node.domain not in STANDARD and any(f[:2] == (node.domain, node.op_type) for f in self._model.functions):
                self._assume(node, "the function has no number that is made of the old size")
            self._places(node)
            self._amounts(node)
            self._follow_means(node)
        return list(dict.fromkeys(self._found))

    # -- what changes ---------------------------------------------------------------------------------------

    def _follows(self, size: object) -> bool:
        """Whether a dim depends on what becomes dynamic, other than the batch."""
        if not isinstance(size, Expr) or not self._state.old.changes(size):
            return False
        return any(name != self._batch for monomial, _ in size.terms for name in monomial)

    def _axes(self, value: ir.Value | None) -> dict[int, int]:
        """The axes of a value that change, each with its old size."""
        old = self._state.old.of(value) or ()
        sizes = sizes_of(value) or ()
        return {a: old[a] for a, s in enumerate(sizes) if self._follows(s) and a < len(old)}

    def _grows(self, value: ir.Value | None) -> bool:
        return any(self._follows(size) for size in sizes_of(value) or ())

    def _measure(self, value: ir.Value | None) -> None:
        changed = [n for n in self._axes(value).values() if n < 100_000]
        self._lengths.inner |= {*changed, prod(changed)} - {1}

    def _assume(self, node: ir.Node | None, claim: str) -> None:
        self._found.append(
            Assumption(claim, "unproven", "no run can tell", node_label(node) if node is not None else "")
        )

    # -- places along the dim -------------------------------------------------------------------------------

    def _places(self, node: ir.Node) -> None:
        """Indices, bounds, parts and windows that are numbers."""
        if node.domain not in STANDARD or not node.inputs:
            return
        if node.op_type == "Concat":
            self._joined(node)
        axes = self._axes(node.inputs[0])
        if axes and node.op_type == "Tile" and set(self._elements(node.inputs[1])) == {1}:
            self._idle(node)
        rule = self._rules().get(node.op_type)
        if rule is not None and axes:
            rule(node, axes)

    def _rules(self) -> dict[str, Callable[[ir.Node, dict[int, int]], None]]:
        """For operators whose operands after the first, and attributes, are places along dims of the first."""
        return {
            "Gather": self._index, "GatherElements": self._index, "ScatterElements": self._index,
            "Scatter": self._index, "GatherND": self._nd_index, "ScatterND": self._nd_index,
            "Slice": self._slice, "Split": self._split, "TopK": self._top_k, "Pad": self._pad,
            "Reshape": self._reshape, "Resize": self._resize, "Upsample": self._resize, "Squeeze": self._squeeze,
            "GridSample": self._grid,
            "Compress": self._compress, "Trilu": self._diagonal, "EyeLike": self._diagonal,
            "CenterCropPad": self._crop,
            "Conv": self._window, "MaxPool": self._window, "AveragePool": self._window, "LpPool": self._window,
            "ConvTranspose": self._window,
        }  # fmt: skip

    def _taken_whole(self) -> None:
        """Ends and sizes that were those of the dim, of what nothing needs to be as large as the dim is now."""
        for node, axis in self._state.whole:
            size = self._axes(node.inputs[0]).get(axis)
            if size is not None and met_size(self._state, node.outputs[0], axis, size) is None:
                self._assume(node, f"{size} is all of the dim, and no size of its own")

    def _place(self, node: ir.Node, number: int, size: int) -> None:
        """A position along the dim."""
        if number in (0, 1, -1) and size > 2:
            return
        self._assume(node, f"place {number} of a dim of {size} is the same at every size")

    def _elements(self, value: ir.Value | None) -> Sequence[object]:
        """What a short operand holds, also if constants make it: numbers, and sizes that are computed now."""
        known = elements_of(value)
        if known is not None:
            return known.elements
        array = self._still(value)
        return () if array is None or array.dtype.kind not in "iu" or array.size > _FEW else array.reshape(-1).tolist()

    def _shifted(self, node: ir.Node, bound: int) -> bool:
        """Whether another node cuts as much from the other end, as a difference of neighbours does."""
        return abs(bound) <= _POSITIONS and bool(self._slices.get(-bound, set()) - {node})

    def _index(self, node: ir.Node, axes: dict[int, int]) -> None:
        rank = len(sizes_of(node.inputs[0]) or ())
        axis = attribute(node, "axis", 0) % max(rank, 1)
        if axis in axes:
            self._indices(node, self._still(node.inputs[1]), axes[axis])

    def _indices(self, node: ir.Node, array: np.ndarray | None, size: int) -> None:
        places = node.inputs[1]
        if array is None and node.graph is self._model.graph and self._state.is_of_sizes(places):
            known = sizes_of(places)  # places of sizes and constants: they count on, or are as many as they were
            if known is not None and prod(n for n in known if isinstance(n, int)) > 1 and not self._grows(places):
                self._assume(node, f"{' x '.join(map(str, known))} places of a dim of {size} are right at every size")
        if array is None or not array.size:
            return
        if array.size > _FEW:
            self._assume(node, f"{array.size} places of a dim of {size} are the same at every size")
        for number in np.unique(array) if array.size <= _FEW else ():
            self._place(node, int(number), size)

    def _nd_index(self, node: ir.Node, axes: dict[int, int]) -> None:
        array, first = self._still(node.inputs[1]), attribute(node, "batch_dims", 0)
        rank = len(sizes_of(node.inputs[0]) or ())
        for axis, size in axes.items():
            if (sizes_of(node.inputs[1]) or (0,))[-1] in range(axis - first + 1, rank + 1) and axis >= first:
                self._indices(node, None if array is None else array[..., axis - first], size)

    def _slice(self, node: ir.Node, axes: dict[int, int]) -> None:
        attributes = len(node.inputs) == 1
        bounds = [
            attribute(node, n) if attributes else self._elements(node.inputs[i])
            for i, n in ((1, "starts"), (2, "ends"))
        ]
        where = attribute(node, "axes") if attributes else (integers(node.inputs[3]) if len(node.inputs) > 3 else None)
        if len(node.inputs) > 4:
            bounds.append(self._elements(node.inputs[4]))
        for place, elements in enumerate(bounds):
            rank = len(sizes_of(node.inputs[0]) or ())
            for axis, number in zip(where if where is not None else range(len(elements)), elements, strict=False):
                if axis % rank not in axes or not isinstance(number, int) or abs(number) >= _TO_THE_END:
                    continue
                if not (abs(number) == 2 if place == 2 else self._shifted(node, number)):
                    self._place(node, number, axes[axis % rank])

    def _split(self, node: ir.Node, axes: dict[int, int]) -> None:
        axis = attribute(node, "axis", 0) % len(sizes_of(node.inputs[0]) or (0,))
        parts = attribute(node, "split") or (self._elements(node.inputs[1]) if len(node.inputs) > 1 else None)
        if axis in axes and parts:
            self._assume(
                node, f"parts of {', '.join(map(str, parts))} of a dim of {axes[axis]} are the same at every size"
            )

    def _top_k(self, node: ir.Node, axes: dict[int, int]) -> None:
        axis = attribute(node, "axis", -1) % len(sizes_of(node.inputs[0]) or (0,))
        counts = self._elements(node.inputs[1]) if len(node.inputs) > 1 else (attribute(node, "k"),)
        count = next(iter(counts), None)
        if axis in axes and isinstance(count, int) and (count != 1 or axes[axis] < _TELLING):
            told = Lengths({axes[axis]: ""}).fits(count, whole=True) or self._lengths.fits(count, whole=True)
            part = digits_of(axes[axis] / count, 1e-6) == 1  # the 100 largest of 8,400 boxes are as many at every size
            if told or part or count % 10:
                self._assume(node, f"the {count} largest are not made of the old size ({told or 'a part of all'})")

    def _pad(self, node: ir.Node, axes: dict[int, int]) -> None:
        if not any(any(self._padding(node, axis)) for axis in range(len(sizes_of(node.inputs[0]) or ()))):
            self._idle(node)
        for axis, size in axes.items():
            before, after = self._padding(node, axis)
            aligned = (size + before + after) % _ALIGNED == 0
            if self._fills_window(node.outputs[0], axis, before + after):
                continue
            if (before or after) and (before != after or aligned or before > _POSITIONS):
                self._assume(node, f"{before} and {after} more at the ends of a dim of {size} are right at every size")

    def _idle(self, node: ir.Node) -> None:
        """What was worked out for the old size, at which there was nothing to do."""
        self._assume(node, "it does nothing at every size")

    def _padding(self, node: ir.Node, axis: int) -> tuple[int, int]:
        """What a Pad adds to the ends of a dim."""
        rank = len(sizes_of(node.inputs[0]) or ())
        pads = attribute(node, "pads") or (self._still(node.inputs[1]) if len(node.inputs) > 1 else None)
        return (int(pads[axis]), int(pads[axis + rank])) if pads is not None and len(pads) == 2 * rank else (0, 0)

    def _fills_window(self, padded: ir.Value, axis: int, more: int) -> bool:
        """Whether padding is what the windows of a next layer with stride 1 lose, at every size."""
        users = [u.node for u in padded.uses()]
        return bool(users) and all(
            u.op_type in ("Conv", "MaxPool", "AveragePool") and self._lost(u, axis - 2) == more for u in users
        )

    @staticmethod
    def _lost(node: ir.Node, place: int) -> int:
        """By how much the windows of a layer with stride 1 make a dim smaller; -1 at other strides."""
        kernel = _window_of(node)
        if not 0 <= place < len(kernel) or (attribute(node, "strides") or [1] * len(kernel))[place] != 1:
            return -1
        return int((attribute(node, "dilations") or [1] * len(kernel))[place] * (kernel[place] - 1))

    def _reshape(self, node: ir.Node, axes: dict[int, int]) -> None:
        data = sizes_of(node.inputs[0]) or ()
        still = prod(d if isinstance(d, int) else content(d) for d in data) or 1
        items = elements_of(node.inputs[1]) if len(node.inputs) > 1 else None
        target = items.elements if items is not None else attribute(node, "shape", ())
        if data == sizes_of(node.outputs[0]) and any(size in data for size in axes.values()):
            self._assume(node, f"the dims of its target are in the order of the data's {', '.join(map(str, data))}")
        for number in target:
            if isinstance(number, int) and number > 1 and still % number:
                self._assume(node, f"{number} of the target is not made of {', '.join(map(str, axes.values()))}")

    def _resize(self, node: ir.Node, axes: dict[int, int]) -> None:
        where = attribute(node, "axes") or range(len(sizes_of(node.inputs[0]) or ()))
        for operand in node.inputs[1:]:
            array = self._still(operand)
            if array is None or array.size != len(where):
                continue
            for place, axis in enumerate(where):
                factor = float(array[place])
                if axis not in axes or factor == 1:
                    continue
                back = axes[axis] * factor in self._lengths.roots and factor.is_integer()  # what strides have taken
                usual = (factor.is_integer() and factor <= _TELLING) or 1 / factor in (2, 4)
                if array.dtype.kind in "iu" or not (usual or (back and axes[axis] not in self._lengths.roots)):
                    self._assume(node, f"{factor:g} for a dim of {axes[axis]} is the same at every size")

    def _grid(self, node: ir.Node, axes: dict[int, int]) -> None:
        """Places of a picture, made for its old size, or so many whatever its size is."""
        follows = self._axes(node.inputs[1])
        sizes = sizes_of(node.inputs[1]) or ()
        for axis, size in axes.items():
            if axis > 1 and axis - 1 not in follows and axis - 1 < len(sizes):
                self._assume(node, f"{sizes[axis - 1]} places along a dim of {size} are the same at every size")

    def _joined(self, node: ir.Node) -> None:
        """Equal rows in front of the dim or behind it are padding, which is often up to a size."""
        axis = attribute(node, "axis", 0) % len(sizes_of(node.outputs[0]) or (0,))
        for value in node.inputs if axis in self._axes(node.outputs[0]) else ():
            array = self._still(value)
            if array is not None and array.shape[axis] > 1 and (array == array.take([0], axis)).all():
                self._assume(node, f"{array.shape[axis]} equal rows beside a dim that grows are right at every size")

    def _compress(self, node: ir.Node, axes: dict[int, int]) -> None:
        for axis in axes if attribute(node, "axis") is None else {attribute(node, "axis")} & axes.keys():
            if self._still(node.inputs[1]) is not None:
                self._assume(node, f"a choice of elements of a dim of {axes[axis]} is the same at every size")

    def _diagonal(self, node: ir.Node, axes: dict[int, int]) -> None:
        (number,) = (self._elements(node.inputs[1]) if len(node.inputs) > 1 else ()) or (attribute(node, "k", 0),)
        if isinstance(number, int):
            self._place(node, number, max(axes.values()))

    def _crop(self, node: ir.Node, axes: dict[int, int]) -> None:
        where = attribute(node, "axes") or range(len(sizes_of(node.inputs[0]) or ()))
        for axis, number in zip(where, self._elements(node.inputs[1]), strict=False):
            if axis % len(sizes_of(node.inputs[0]) or (0,)) in axes:
                self._assume(node, f"{number} in the middle of the dim are the same at every size")

    def _squeeze(self, node: ir.Node, axes: dict[int, int]) -> None:
        gone = axes_of(node)
        for axis in axes if gone is None else [a for a in gone if a in axes]:
            self._place(node, 0, axes[axis])

    def _window(self, node: ir.Node, axes: dict[int, int]) -> None:
        """A kernel over the whole dim, or a part of it; padding that was worked out for the old size."""
        after = self._state.old.of(node.outputs[0]) or ()
        rank = len(sizes_of(node.inputs[0]) or ()) - 2
        kernel = _window_of(node)
        strides, pads = attribute(node, "strides") or [1] * rank, attribute(node, "pads") or [0] * (2 * rank)
        if "Pool" in node.op_type and {*kernel, *strides} == {1}:
            self._idle(node)
        if attribute(node, "output_shape"):
            self._assume(node, "its output_shape is the same at every size")
        for axis, size in axes.items():
            place = axis - 2
            if not 0 <= place < min(rank, len(kernel)) or axis >= len(after) or kernel[place] == 1:
                continue
            widest = self._windows[node.op_type, kernel[place]]
            few = after[axis] <= _WHOLE_WINDOWS and widest <= _WHOLE_WINDOWS * kernel[place]
            adaptive = "Pool" in node.op_type and kernel[place] == strides[place] and few
            part = (
                "Pool" in node.op_type and kernel[place] >= _ALIGNED and self._lengths.fits(kernel[place], whole=True)
            )
            whole = max(size, _NARROW + 1) <= kernel[place] >= widest
            if after[axis] == 1 or (adaptive and size % kernel[place] == 0) or part or whole:
                self._assume(node, f"a kernel of {kernel[place]} over a dim of {size} is the same at every size")
            self._spread(node, place, int(kernel[place]), size)
            if pads[place] != pads[place + rank] and pads[place] + pads[place + rank] != self._lost(node, place):
                self._assume(
                    node, f"padding of {pads[place]} and {pads[place + rank]} is right for other sizes than {size}"
                )

    def _spread(self, node: ir.Node, place: int, kernel: int, size: int) -> None:
        """Dilations, strides, padding and windows of a pool that other layers of their kind would not have."""
        dilation, stride, pads = (
            (attribute(node, name) or [usual] * (2 * place + 2))[place]
            for name, usual in (("dilations", 1), ("strides", 1), ("pads", 0))
        )
        reach = dilation * (kernel - 1) + 1
        ladder = any(
            d not in (1, dilation) and min(d, dilation) <= _BASE_DILATION and max(d, dilation) % min(d, dilation) == 0
            for d in self._dilations
        )
        schedule = dilation == 1 or 2 * pads == reach - 1 or pads == reach - 1 or bool(self._dilations - {1, dilation})
        pad = producer(node.inputs[0], "Pad")
        schedule = schedule or (pad is not None and sum(self._padding(pad, place + 2)) == reach - 1)
        same = dilation % 2 and kernel % 2 and 2 * pads == kernel - 1
        shares = {n for m in range(2, _SHARES // _NARROW + 1) for n in (size // m, ceil(size / m)) if n > _NARROW}
        part = not shares.isdisjoint((kernel, stride))
        found = {
            f"a dilation of {dilation}": not schedule if dilation <= _POSITIONS else not ladder,
            f"a stride of {stride}": stride > max(reach, _NARROW),
            f"padding of {pads}": pads > reach // 2 and pads != reach - 1 and node.op_type != "ConvTranspose",
            f"a window of {kernel}": "Pool" in node.op_type and part and not same,
        }
        for what, unusual in found.items():
            if unusual:
                self._assume(node, f"{what} over a dim of {size} is the same at every size")

    # -- amounts --------------------------------------------------------------------------------------------

    def _amounts(self, node: ir.Node) -> None:
        """Constants that a node computes with."""
        operator = operator_of(node)
        if operator.compares:
            self._decision(node)
        if operator.integer != "no" or node.outputs[0] in self._operands:
            return
        if node.outputs[0] in self._state.sizes:
            return
        fitting = self._fitting(node)
        if fitting is None:
            return
        judged = len(node.inputs)
        if node.domain in STANDARD and node.op_type in self._rules():
            judged = node.op_type == "Gather"  # its table; other operands are places
        scales = node.op_type in ("Mul", "Div") and any(v in self._means for v in node.inputs)
        for value, name in zip(node.inputs[:judged], _operand_names(node), strict=False):
            computed = value is not None and value.name in self._state.computed
            array = self._numbers(value, few=not computed) if name not in _AXES else None
            if array is None or array.dtype.kind not in "iuf":
                continue
            alone = computed or (array.size == 1 and self._meets(node, value))
            place = any(self._state.is_of_sizes(v) and self._grows(v) for v in node.inputs)
            numbers = np.unique(array)
            if array.dtype.kind == "f" and len(numbers) > _LEARNED and not computed:
                continue
            for number in numbers:
                if number in fitting and number not in self._lengths.roots:
                    continue
                own = (value.name if value is not None else "") or ""
                self._amount(node, number, array.dtype, name=own, alone=alone, place=place)
                if scales and (told := self._lengths.shares(float(number))):
                    self._assume(node, f"{number:.6g}, a scale of a mean, is not made of the old size ({told})")
        for item in node.attributes.values():
            amount = operator.accumulates or item.name in ("alpha", "epsilon", "scale")
            if amount and item.type == ir.AttributeType.FLOAT and not item.is_ref():
                self._amount(node, item.as_float(), np.dtype(np.float32), name=item.name, alone=True)

    def _fitting(self, node: ir.Node) -> set[int] | None:
        """Numbers that what a Concat joins into a shape has to fit; None where all of them have to, as in a target."""
        users = [u.node for u in node.outputs[0].uses() if u.idx in operator_of(u.node).sizes]
        if node.op_type != "Concat" or not users or len(users) < len(node.outputs[0].uses()):
            return set()
        if all(u.op_type == "Reshape" for u in users):
            return None
        kept = [self._hidden, *(set(sizes_of(u.inputs[0]) or ()) for u in users if u.op_type in ("Expand", "Resize"))]
        return {n for sizes in kept for n in sizes if isinstance(n, int)}

    def _short_operands(self) -> set[ir.Value]:
        """What constants alone make of few integers, as padding: it is judged where it is read."""
        found: set[ir.Value] = set()
        for node in reversed([*walk(self._model.graph)]):
            for value in () if self._moves(node) else node.outputs:
                array = self._still(value)
                short = array is not None and array.ndim == 1 and array.dtype.kind in "iu" and array.size <= _FEW
                users = [u.node for u in value.uses()]
                if users and all(short if self._moves(u) else found.issuperset(u.outputs) for u in users):
                    found.add(value)
        return found

    def _moves(self, node: ir.Node) -> bool:
        """False for a node that constants alone decide; a body may capture anything."""
        return hangs_on(node, self._moving)

    def _still(self, value: ir.Value | None) -> np.ndarray | None:
        """What a value is, of which no input decides anything."""
        return None if value in self._moving else self._state.array(value)

    def _numbers(self, value: ir.Value | None, *, few: bool) -> np.ndarray | None:
        """What a constant is made of, if that is few numbers or the same one everywhere."""
        tensor = value.const_value if value is not None else None
        array = self._still(value) if tensor is None or tensor.size <= MOST_SEEN else None
        if array is None or not array.size or array.dtype.kind not in "iuf":
            return None
        if not few or array.size <= _FEW:
            return array
        flat = array.reshape(-1)
        return flat[:1] if flat[0] == flat[-1] and (flat == flat[0]).all() else None

    def _meets(self, node: ir.Node, constant: ir.Value | None) -> bool:
        """Whether a number meets data of the dim, and is not the bias of the one channel that there is."""
        others = [v for v in node.inputs if v is not constant and v in self._reached]
        shape = sizes_of(constant) or ()
        bias = bool(shape) and node.op_type != "Concat"
        learned = bias and any((sizes_of(v) or ())[-len(shape) :][:1] == (1,) for v in others)
        scales = any((p := v.producer()) is not None and p.op_type == "DynamicQuantizeLinear" for v in others)
        return bool(others) and not learned and not scales

    def _decision(self, node: ir.Node) -> None:
        """A size that is compared with a number: what follows was never seen beyond that number."""
        elements = [found.elements for v in node.inputs if (found := elements_of(v)) is not None]
        numbers = [e for known in elements for e in known if isinstance(e, int) and e > 1]
        if numbers and any(self._follows(e) for known in elements for e in known):
            self._assume(node, f"{numbers[0]}, with which a size is compared, is not made of the old size")

    def _amount(
        self, node: ir.Node, number: float, dtype: np.dtype, *, name: str | None, alone: bool, place: bool = False
    ) -> None:
        """One number that a node computes with.

        Args:
            node: what computes.
            number: itself.
            dtype: how closely it is known.
            name: of the constant or the attribute.
            alone: it is one number for all elements, and so none that was learned for a channel.
            place: it meets places along the dim.
        """
        whole = dtype.kind in "iu"
        if not np.isfinite(number) or number == 0 or abs(number) in (1, None if whole else np.finfo(dtype).max):
            return
        if whole and abs(number) < _TELLING:
            return
        close = 0.0 if whole else _CLOSE.get(dtype, 1e-3)
        part = place and self._lengths.part(float(number))
        scales = node.op_type in ("Mul", "Div")
        if not whole and not part and self._ordinary.explains(float(number), close, scales=scales):
            return
        told = self._lengths.fits(float(number), whole=whole, close=close, place=place)
        if not told and not whole and alone:
            told = self._lengths.shorter(float(number), close)
        if told:
            self._assume(node, f"{number:.6g} ({name}) is not made of the old size ({told})")

    def _follow_means(self, node: ir.Node) -> None:
        """Note over how many elements a node reduces, and what a mean goes into."""
        source = node.inputs[0] if node.inputs else None
        axes = self._axes(source)
        if operator_of(node).shape == "reduce" and axes:
            old = self._state.old.of(source) or ()
            reduced = axes_of(node)
            gone = [a % len(old) for a in reduced] if reduced is not None else range(len(old))
            if any(a in axes for a in gone):
                self._lengths.inner.add(prod(old[a] for a in gone))
                self._means |= set(node.outputs)
        elif any(v in self._means for v in node.inputs) and (
            operator_of(node).moves or node.op_type in ("Mul", "Div", "Sqrt", "Cast")
        ):
            self._means |= set(node.outputs)
        met = self._sums.meets(node)
        if met is not None:
            self._assume(node, f"{met.name!r}, which meets a sum over the dim, is not made of the old size")


def _window_of(node: ir.Node) -> Sequence[int]:
    """How many elements the windows of a convolution or a pool have along each dim."""
    weights = node.inputs[1].const_value if len(node.inputs) > 1 and node.inputs[1] is not None else None
    return attribute(node, "kernel_shape") or (weights.shape.numpy()[2:] if weights is not None else ())


def _operand_names(node: ir.Node) -> Sequence[str]:
    """What ONNX calls the operands of a node."""
    try:
        schema = onnx.defs.get_schema(node.op_type, 24, "") if node.domain in STANDARD else None
    except onnx.defs.SchemaError:
        schema = None
    names = [i.name for i in schema.inputs] if schema is not None else []
    return [*names, *[names[-1] if names else ""] * (len(node.inputs) - len(names))]
