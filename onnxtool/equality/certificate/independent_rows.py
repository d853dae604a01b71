"""Are the rows of a batch independent? Decided in exact arithmetic, at random points of a finite field.

Two things are held at each size. The row of an output is what the model gives for that row alone. And no element of any
tensor depends on two rows: a sum over the batch that is subtracted again is zero for exact numbers, not for floats.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper

from onnxtool.equality.certificate import operators
from onnxtool.equality.certificate.field import Field
from onnxtool.equality.certificate.interpreter import Interpreter, Item, NotCoveredError, Value
from onnxtool.equality.certificate.sizes import (
    Sizes,
    dim_key,
    free_inputs,
    input_shapes,
    turning_sizes,
    usual_sizes,
)

operators.register()
_MOST_ELEMENTS = 1 << 26  # of all tensors of a run together
_OTHER_SIZES = 3
_EACH = 3  # rows of a batch that are each held against each other
Feeds = Mapping[str, Value]


def row_dependence(model: onnx.ModelProto, most: int, seconds: float = 20.0) -> str:
    """What keeps the rows of a model from being certified as independent; "" where they are.

    Args:
        model: with the data of its weights.
        most: rows of the largest batch.
        seconds: that this may take; a model that takes longer is not certified.
    """
    until = time.monotonic() + seconds
    try:
        batch = _batch_keys(model)
        usual = usual_sizes(model, ())
        turning, unlike, _ = turning_sizes(model, model, usual[0], time.thread_time() + seconds / 4)
        if unlike is not None:
            return "the shapes of its outputs differ from run to run"
        tried: list[Sizes] = [{**sizes, **dict.fromkeys(batch, n)} for sizes in usual[:1] for n in (2, 3, most)]
        tried += [{**sizes, **dict.fromkeys(batch, 2)} for sizes in usual[1 : 1 + _OTHER_SIZES]]
        for sizes in turning:
            rows = min(max(*(sizes[key] for key in batch), 2), most)
            tried.append({**sizes, **dict.fromkeys(batch, rows)})
        for sizes in [s for i, s in enumerate(tried) if 0 not in s.values() and s not in tried[:i]]:
            if reason := _Rows(model, sizes, batch, until).dependence():
                return reason
    except NotCoveredError as error:
        return f"was not decided: {error}"
    except (MemoryError, RecursionError, OverflowError) as error:
        return f"was not decided: {type(error).__name__}"
    return ""


def _batch_keys(model: onnx.ModelProto) -> set[str]:
    """The dims that come first in the inputs."""
    keys, others = set[str](), set[str]()
    for info in free_inputs(model):
        dims = info.type.tensor_type.shape.dim
        if not dims or dims[0].HasField("dim_value"):
            raise NotCoveredError(f"input {info.name!r} has a fixed first dim")
        keys.add(dim_key(info, 0, dims[0]))
        others |= {dim_key(info, k, d) for k, d in enumerate(dims) if k}
    if not keys or keys & others:
        raise NotCoveredError("the batch is not the first dim alone")
    return keys


class _Rows:
    """A model at one size and one random point."""

    def __init__(self, model: onnx.ModelProto, sizes: Sizes, batch: set[str], until: float) -> None:
        self._model, self._sizes, self._until = model, sizes, until
        self._count = sizes[next(iter(batch))]
        self._point = Field(secrets.randbits(48))

    def dependence(self) -> str:
        """The first node that mixes rows, or the output whose row is another one alone; "" for none."""
        feeds = self._feeds("")
        other = self._feeds("other")
        expected, outputs = self._run(feeds)
        touched = [np.zeros(np.shape(data), bool) for _, data in expected]
        rows = [*range(self._count)]
        groups = [[row] for row in rows]
        if self._count > _EACH:  # one row beside all others
            rows = [secrets.randbelow(self._count)]
            groups = [rows, [row for row in range(self._count) if row != rows[0]]]
        for group in groups:
            found, _ = self._run({name: _replaced(value, other[name], group) for name, value in feeds.items()})
            if len(found) != len(expected):
                return "its steps depend on the rows"
            for index, ((node, was), (_, now)) in enumerate(zip(expected, found, strict=True)):
                if was.shape != now.shape:
                    return f"the shape of what {node} gives depends on the rows"
                changed = was != now
                if (changed & touched[index]).any():
                    return f"{node} mixes the rows of a batch"
                touched[index] |= changed
        for row in rows:
            _, alone = self._run({name: _cut(value, row) for name, value in feeds.items()})
            for name, whole in outputs.items():
                one = alone[name]
                fits = whole.shape[:1] == (self._count,) and one.shape[:1] == (1,)
                if not fits or not np.array_equal(whole[row : row + 1], one):
                    return f"a row of output {name!r} is another one in a batch than alone"
        return ""

    def _feeds(self, mark: str) -> dict[str, Value]:
        found = {}
        for info, shape in input_shapes(self._model, self._sizes):
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))
            if dtype.kind in "OUS":
                raise NotCoveredError(f"input {info.name!r} of texts")
            found[info.name] = Value(self._point.draw(info.name + mark, shape), dtype, False)
        return found

    def _run(self, feeds: Feeds) -> tuple[list[tuple[str, np.ndarray]], dict[str, np.ndarray]]:
        """What every node gives, with its name, and the outputs."""
        seen = list[tuple[str, np.ndarray]]()
        count = 0

        def see(node: onnx.NodeProto, name: str, value: Item) -> None:
            nonlocal count
            if time.monotonic() > self._until:
                raise NotCoveredError("the time is over")
            data = _data(value)
            count += data.size
            if count > _MOST_ELEMENTS:
                raise NotCoveredError(f"its tensors have more than {_MOST_ELEMENTS} elements")
            seen.append((f"{node.op_type} {node.name or name!r}", data))

        outputs = Interpreter(self._model, self._point, see=see).run(feeds)
        return seen, {name: _data(value) for name, value in outputs.items()}


def _data(value: Item) -> np.ndarray:
    if not isinstance(value, Value):
        raise NotCoveredError("a sequence or an optional")
    return value.data


def _replaced(value: Value, other: Value, rows: list[int]) -> Value:
    data = value.data.copy()
    data[rows] = other.data[rows]
    return Value(data, value.dtype, False)


def _cut(value: Value, row: int) -> Value:
    return Value(value.data[row : row + 1], value.dtype, False)
