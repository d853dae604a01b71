"""Steps of a trace that jax2onnx lacks or has wrong, written with steps that it has right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from onnxtool.conversion.jax.complex_steps import ComplexParts, angle_of, complex_parts, fourier_transform

_MOST_ROWS = 16  # of a matrix, with some twenty nodes for each


def _bind(equation: Any, *inputs: Any, **changed: Any) -> Any:
    """The step as it is, with some of its options changed."""
    return equation.primitive.bind(*inputs, **{**equation.params, **changed})


def _lgamma(equation: Any, x: Any) -> Any:
    """Infinite at 0, -1, -2, ... and at both infinities."""
    endless = (x <= 0) & (jnp.floor(x) == x) | jnp.isinf(x)
    return jnp.where(endless, jnp.asarray(np.inf, x.dtype), _bind(equation, jnp.where(endless, 1, x)))


def _digamma(equation: Any, x: Any) -> Any:
    """NaN at 0, -1, -2, ...; by reflection below 1/2: psi(x) = psi(1 - x) - pi / tan(pi x).

    The tangent needs only the fraction of x.

    Source: Abramowitz and Stegun 1964, 6.3.7.
    """
    reflected = x < 0.5
    usual = _bind(equation, jnp.where(reflected, 1 - x, x))
    found = jnp.where(reflected, usual - np.pi / jnp.tan(np.pi * (x - jnp.floor(x))), usual)
    return jnp.where((x <= 0) & (jnp.floor(x) == x), jnp.asarray(np.nan, x.dtype), found)


def _convert(equation: Any, x: Any) -> Any:
    """Floats to integers as XLA does it: NaN is 0, and what does not fit is the nearest integer that does."""
    to = np.dtype(equation.params["new_dtype"])
    if to.kind == "c":
        return complex_parts(lax.convert_element_type(x, np.zeros(0, to).real.dtype))
    if not jnp.issubdtype(x.dtype, jnp.floating) or to.kind not in "iu":
        return _bind(equation, x)
    limits = np.iinfo(to)
    above, below = x >= float(limits.max), x <= float(limits.min)
    found = _bind(equation, jnp.where(above | below | jnp.isnan(x), 0, x))
    return jnp.where(above, to.type(limits.max), jnp.where(below, to.type(limits.min), found))


def _erf_inv(equation: Any, x: Any) -> Any:
    """Infinite at -1 and 1."""
    return jnp.where(jnp.abs(x) == 1, x * np.asarray(np.inf, x.dtype), _bind(equation, x))


def _round(equation: Any, x: Any) -> Any:
    """Halves go away from zero, or to the even number, as ONNX has it."""
    if equation.params["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN:
        return _bind(equation, x)
    size = jnp.abs(x)
    low = jnp.floor(size)
    return jnp.sign(x) * (low + (size - low >= 0.5).astype(x.dtype))


def _concatenate(equation: Any, *parts: Any) -> Any:
    """What holds something: ONNX's Reshape takes the size 0 for the one that a tensor had."""
    held = [part for part in parts if part.shape[equation.params["dimension"]] != 0]
    return _bind(equation, *held) if len(held) > 1 else (held or parts)[0]


def _less_in_total_order(_: Any, x: Any, y: Any) -> Any:
    """NaN stands after all numbers. Zeros of both signs are one number to the functions that sort and search."""
    return (x < y) | (jnp.isnan(y) & ~jnp.isnan(x))


def _dynamic_slice(equation: Any, x: Any, *starts: Any) -> Any:
    """A start beyond the end is moved back, so that the whole slice is in the array."""
    sizes = equation.params["slice_sizes"]
    return _bind(equation, x, *[_moved_in(s, *n) for s, *n in zip(starts, x.shape, sizes, strict=True)])


def _dynamic_update_slice(equation: Any, x: Any, update: Any, *starts: Any) -> Any:
    return _bind(equation, x, update, *[_moved_in(s, *n) for s, *n in zip(starts, x.shape, update.shape, strict=True)])


def _moved_in(start: Any, dim: Any, size: Any) -> Any:
    """At least 0 and at most dim - size."""
    return lax.clamp(jnp.zeros_like(start), start, jnp.asarray(dim - size, start.dtype))


def _gather(equation: Any, x: Any, indices: Any) -> Any:
    """Indices beyond the table are moved to its ends, as XLA does it, or filled. Dynamic slices are rows."""
    params, numbers = equation.params, equation.params["dimension_numbers"]
    along, sizes = numbers.start_index_map, params["slice_sizes"]
    limits = [x.shape[d] - sizes[d] for d in along]
    fill = params["mode"] == lax.GatherScatterMode.FILL_OR_DROP
    known = all(isinstance(n, int) for n in limits)
    if known and (fill or min(limits, default=0) < 0):
        return _bind(equation, x, indices)
    kind = indices.dtype
    highest = np.asarray(limits, kind) if known else jnp.stack([jnp.asarray(n, kind) for n in limits])
    held = jnp.minimum(jnp.maximum(indices, 0), highest)
    if indices.ndim == 1 and not all(isinstance(n, int) for n in sizes) and not fill:
        for place, axis in enumerate(along):
            x = jnp.take(x, held[place] + lax.iota(kind, sizes[axis]), axis, mode="clip")
        return lax.squeeze(x, numbers.collapsed_slice_dims)
    found = _bind(equation, x, held, mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)
    if not fill:
        return found
    kept = jnp.expand_dims(jnp.all(held == indices, -1), numbers.offset_dims)
    return jnp.where(kept, found, jnp.asarray(_filling(params["fill_value"], np.dtype(x.dtype)), x.dtype))


def _filling(value: Any, dtype: np.dtype) -> Any:
    """What stands where an index is beyond the table: NaN, the least or the largest integer, True."""
    if value is not None:
        return value
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max
    return True if dtype.kind == "b" else np.nan


def _select(equation: Any, which: Any, *cases: Any) -> Any:
    """Of truth values, which the runtime's Where does not take, by logic."""
    if len(cases) != 2 or np.dtype(cases[0].dtype).kind != "b" or np.dtype(which.dtype).kind != "b":
        return _bind(equation, which, *cases)
    off, on = cases
    which = lax.broadcast(which, on.shape) if which.ndim < on.ndim else which
    return (which & on) | (~which & off)


def _shift(equation: Any, x: Any, count: Any) -> Any:
    """By unsigned integers, of which alone ONNX has shifts; a shift of all bits leaves none (or the sign)."""
    name, kind = equation.primitive.name, np.dtype(x.dtype)
    unsigned, bits = np.dtype(f"uint{max(8 * kind.itemsize, 32)}"), 8 * kind.itemsize
    if name == "shift_right_arithmetic" and kind.kind == "i":
        steps = jnp.clip(count, 0, bits - 1).astype(unsigned)
        high = x < 0
        found = lax.shift_right_logical(jnp.where(high, ~x, x).astype(unsigned), steps).astype(kind)
        return jnp.where(high, ~found, found)
    inside = (count >= 0) & (count < bits)
    steps = jnp.where(inside, count, 0).astype(unsigned)
    wide = x.astype(f"uint{bits}").astype(unsigned)
    moved = lax.shift_left(wide, steps) if name == "shift_left" else lax.shift_right_logical(wide, steps)
    return jnp.where(inside, moved.astype(f"uint{bits}").astype(kind), 0)


def _signed(x: Any) -> np.dtype:
    """The integers of the runtime's kernels that hold those of an array in their lowest bits."""
    return np.dtype(np.int64 if np.dtype(x.dtype).itemsize == 8 else np.int32)


def _by_signed(step: Callable[..., Any]) -> Callable[..., Any]:
    """Sums and products of integers, which in the lowest bits are those of wider and of signed ones."""

    def changed(equation: Any, x: Any) -> Any:
        return step(equation, x.astype(_signed(x))).astype(x.dtype) if x.dtype.kind in "iu" else step(equation, x)

    return changed


def _division(equation: Any, x: Any, y: Any) -> Any:
    """Of integers, as XLA has it: x / 0 is -1 (all bits) with the remainder x, and the least one / -1 is itself."""
    known = not isinstance(y, jax.core.Tracer) and not np.isin(y, (0, -1)).any()
    if np.dtype(x.dtype).kind not in "iu" or known:
        return _bind(equation, x, y)
    quotient = equation.primitive.name == "div"
    zero, odd = y == 0, y == 0
    if np.dtype(x.dtype).kind == "i":
        odd |= y == -1  # at the least one / -1 the processor stops
    found = _bind(equation, x, jnp.where(odd, 1, y))
    found = jnp.where(odd, 0 - x if quotient else 0, found)
    return jnp.where(zero, ~jnp.zeros_like(x) if quotient else x, found)


def _dot_general(equation: Any, a: Any, b: Any) -> Any:
    """Integers and booleans, which the runtime does not multiply, and products without a sum, element by element; two
    matrices as ONNX multiplies them.
    """
    (over_a, over_b), (batch_a, batch_b) = equation.params["dimension_numbers"]
    kind = np.dtype(a.dtype).kind
    if kind in "biu" or not over_a:
        wide = np.dtype(a.dtype) if kind == "f" else _signed(a)

        def ordered(x: Any, batch: Any, over: Any) -> Any:
            kept = [d for d in range(x.ndim) if d not in (*batch, *over)]
            return lax.transpose(x, (*batch, *kept, *over)).astype(wide), len(kept)

        (left, rows), (right, columns) = ordered(a, batch_a, over_a), ordered(b, batch_b, over_b)
        first = len(batch_a)
        left = jnp.expand_dims(left, tuple(range(first + rows, first + rows + columns)))
        right = jnp.expand_dims(right, tuple(range(first, first + rows)))
        total = jnp.sum(left * right, tuple(range(first + rows + columns, left.ndim)), dtype=wide)
        wanted = np.dtype(equation.outvars[0].aval.dtype)
        return total > 0 if wanted.kind == "b" else total.astype(wanted)
    a, b = (x.astype(equation.outvars[0].aval.dtype) for x in (a, b))  # half precision may be added up in float32
    if a.ndim == b.ndim == 2 and not batch_a and len(over_a) == 1:
        a, over_a = (a if tuple(over_a) == (1,) else lax.transpose(a, (1, 0))), (1,)
        b, over_b = (b if tuple(over_b) == (0,) else lax.transpose(b, (1, 0))), (0,)
    return _bind(equation, a, b, dimension_numbers=((over_a, over_b), (batch_a, batch_b)))


def _running(reduction: Callable[..., Any], neutral: float) -> Callable[..., Any]:
    """Of each place, the reduction of those up to it, by way of all pairs of places; place by place where the axis is
    dynamic.
    """

    def step(equation: Any, x: Any) -> Any:
        axis, count = equation.params["axis"], x.shape[equation.params["axis"]]
        if not isinstance(count, int):
            rows = lax.rev(x, (axis,)) if equation.params["reverse"] else x
            rows = jnp.moveaxis(rows, axis, 0)

            def next_place(state: Any, row: Any) -> Any:
                total = reduction(jnp.stack([state, row]), 0)
                return total, total

            found = lax.scan(next_place, jnp.full_like(rows[0], neutral), rows)[1]
            found = jnp.moveaxis(found, 0, axis)
            return lax.rev(found, (axis,)) if equation.params["reverse"] else found
        upto = np.tri(count, dtype=bool)
        upto = upto.T if equation.params["reverse"] else upto
        pairs = upto.reshape((1,) * axis + (count, count) + (1,) * (x.ndim - axis - 1))
        each = jnp.where(pairs, jnp.expand_dims(x, axis), jnp.asarray(neutral, x.dtype))
        return reduction(each, axis + 1)

    return step


def _running_extreme(reduction: Callable[..., Any], last: str) -> Callable[..., Any]:
    """Of numbers, which begin at infinity or at the `last` integer ("min", "max"); truth values are jax2onnx's."""

    def step(equation: Any, x: Any) -> Any:
        kind = np.dtype(x.dtype)
        if kind.kind == "b":
            return _bind(equation, x)
        limit = getattr(np.iinfo(kind), last) if kind.kind in "iu" else np.inf if last == "max" else -np.inf
        return _running(reduction, limit)(equation, x)

    return step


def _of_truth(logic: Callable[..., Any]) -> Callable[..., Any]:
    """What ONNX has for numbers alone: the larger of two truth values is their disjunction, and so on."""
    return lambda step, x, y: logic(x, y) if np.dtype(x.dtype).kind == "b" else _bind(step, x, y)


def _reshape(equation: Any, x: Any) -> Any:
    """Read off in another order of its dims, as `order="F"` has it."""
    order = equation.params["dimensions"]
    return _bind(equation, x if order is None else lax.transpose(x, order), dimensions=None)


def _sort(equation: Any, *arrays: Any) -> Any:
    """By several keys: by each alone, the last first; what is equal keeps its order."""
    for key in reversed(range(equation.params["num_keys"])):
        order = [key, *(k for k in range(len(arrays)) if k != key)]
        found = _bind(equation, *(arrays[k] for k in order), num_keys=1, is_stable=True)
        arrays = tuple(found[order.index(k)] for k in range(len(arrays)))
    return list(arrays)


def _logarithm_of_sum(x: Any, axis: int) -> Any:
    largest = jnp.max(x, axis, keepdims=True)
    finite = jnp.where(jnp.isfinite(largest), largest, 0)
    return jnp.log(jnp.sum(jnp.exp(x - finite), axis)) + jnp.squeeze(finite, axis)


def _pad(equation: Any, x: Any, value: Any) -> Any:
    """Also between the elements: a row of values after each, of which the last goes."""
    config = equation.params["padding_config"]
    for axis, (_, _, inside) in enumerate(config):
        if inside:
            wide = jnp.expand_dims(x, axis + 1)
            steps = [(0, inside if d == axis + 1 else 0, 0) for d in range(wide.ndim)]
            shape = tuple(n * (inside + 1) if d == axis else n for d, n in enumerate(x.shape))
            x = lax.reshape(lax.pad(wide, value, steps), shape)
            x = lax.slice_in_dim(x, 0, shape[axis] - inside, axis=axis)
    return _bind(equation, x, value, padding_config=tuple((low, high, 0) for low, high, _ in config))


def _padded(x: Any, value: Any, pads: Sequence[tuple[Any, Any]], windows: Sequence[int]) -> Any:
    """Padding by numbers that a dynamic size decides: by all that a window can need, less what is too much."""
    most = [(w - 1, w - 1) if not _known(pair) else pair for pair, w in zip(pads, windows, strict=True)]
    wide = lax.pad(x, jnp.asarray(value, x.dtype), [(low, high, 0) for low, high in most])
    for axis, (pair, (low, _)) in enumerate(zip(pads, most, strict=True)):
        if not _known(pair):
            start = low - pair[0]
            wide = lax.slice_in_dim(wide, start, start + x.shape[axis] + pair[0] + pair[1], axis=axis)
    return wide


def _known(pair: tuple[Any, Any]) -> bool:
    return all(isinstance(number, int) for number in pair)


def _window(equation: Any, x: Any, *start: Any) -> Any:
    """A reduction over windows: of those axes alone that it goes along, the others as rows.

    The runtime has pooling along three axes at most, and jax2onnx takes all.
    """
    params, name = equation.params, equation.primitive.name
    kind = params["jaxpr"].jaxpr.eqns[0].primitive.name if "jaxpr" in params else name.removeprefix("reduce_window_")
    neutral = {"max": -np.inf, "min": np.inf, "sum": 0, "add": 0}.get(kind)
    windows, strides, pads = params["window_dimensions"], params["window_strides"], params["padding"]
    dilation = params["window_dilation"]
    along = [
        d for d, pair in enumerate(pads)
        if (windows[d], strides[d], *(pair if _known(pair) else (1, 1))) != (1, 1, 0, 0)
    ]  # fmt: skip
    if neutral is None or np.dtype(x.dtype).kind != "f" or not along:
        return _bind(equation, x, *start)
    if not all(_known(pair) for pair in pads):
        x = _padded(x, neutral, pads, [d * (w - 1) + 1 for w, d in zip(windows, dilation, strict=True)])
        pads = ((0, 0),) * x.ndim
    rest = [d for d in range(x.ndim) if d not in along]
    order = (*rest, *along)
    moved = lax.transpose(x, order)
    rows: Any = reduce(mul, (x.shape[d] for d in rest), 1)
    flat = lax.reshape(moved, (rows, *moved.shape[len(rest) :]))
    chosen = {
        key: (unit, *(params[key][d] for d in along))
        for key, unit in (("window_dimensions", 1), ("window_strides", 1), ("base_dilation", 1), ("window_dilation", 1))
    }
    pads = ((0, 0), *(pads[d] for d in along))
    if kind == "min":
        found = -lax.reduce_window(-flat, -np.inf, lax.max, padding=pads, **chosen)
    else:
        found = _bind(equation, flat, *start, padding=pads, **chosen)
    back = lax.reshape(found, (*moved.shape[: len(rest)], *found.shape[1:]))
    return lax.transpose(back, tuple(int(i) for i in np.argsort(order)))


def _convolution(equation: Any, x: Any, kernel: Any) -> Any:
    """Padding that a dynamic size decides, and that takes rows away, is done before; so are other orders of a kernel's
    dims than jax2onnx knows.
    """
    params = equation.params
    numbers, usual = params["dimension_numbers"], tuple(range(x.ndim))
    if tuple(numbers.rhs_spec) not in (usual, (*usual[:-3:-1], *usual[:-2])):
        kernel = lax.transpose(kernel, numbers.rhs_spec)
        numbers = lax.ConvDimensionNumbers(numbers.lhs_spec, usual, numbers.out_spec)
        return _convolution(equation.replace(params={**params, "dimension_numbers": numbers}), x, kernel)
    pads, axes = params["padding"], params["dimension_numbers"].lhs_spec[2:]
    if all(_known(pair) and min(pair) >= 0 for pair in pads) or any(d != 1 for d in params["lhs_dilation"]):
        return _bind(equation, x, kernel)
    sizes = [kernel.shape[d] for d in params["dimension_numbers"].rhs_spec[2:]]
    reach = [d * (n - 1) + 1 for n, d in zip(sizes, params["rhs_dilation"], strict=True)]
    by_axis = dict(zip(axes, zip(pads, reach, strict=True), strict=True))
    whole = [by_axis.get(d, ((0, 0), 1)) for d in range(x.ndim)]
    x = _padded(x, 0, [pair for pair, _ in whole], [n for _, n in whole])
    return _bind(equation, x, kernel, padding=((0, 0),) * len(pads))


def _lu(equation: Any, a: Any) -> Any:
    """Elimination of batches [..., m, n], in which the largest of a column leads, the first of equal ones.

    Returns:
        Both factors in one, [..., m, n], the rows that were swapped and where each row came from.

    Source: Golub and Van Loan, "Matrix Computations", 4th edition, section 3.4.1.
    """
    rows, columns = a.shape[-2:]
    if a.ndim == 2 or not all(isinstance(n, int) and n <= _MOST_ROWS for n in (rows, columns)):
        return _bind(equation, a)
    places, swapped = np.arange(rows, dtype=np.int32), []
    order = jnp.broadcast_to(places, a.shape[:-1])
    for k in range(min(rows, columns)):
        best = jnp.argmax(jnp.where(places >= k, jnp.abs(a[..., k]), -1), -1).astype(np.int32)
        swapped.append(best)
        chosen, own = places == best[..., None], places == k

        def swap(x: Any, chosen: Any = chosen, own: Any = own, k: int = k) -> Any:
            shape = (*chosen.shape, *[1] * (x.ndim - chosen.ndim))
            lead = jnp.sum(jnp.where(chosen.reshape(shape), x, 0), chosen.ndim - 1, x.dtype, keepdims=True)
            first = lax.slice_in_dim(x, k, k + 1, axis=chosen.ndim - 1)
            return jnp.where(own.reshape(shape[chosen.ndim - 1 :]), lead, jnp.where(chosen.reshape(shape), first, x))

        a, order = swap(a), swap(order)
        column, below = a[..., k : k + 1], (places > k)[:, None]
        pivot = column[..., k : k + 1, :]
        factor = jnp.where(below, column / jnp.where(pivot == 0, 1, pivot), 0)
        later = np.arange(columns) > k
        a = jnp.where(below & (np.arange(columns) == k), factor, a - jnp.where(later, factor * a[..., k : k + 1, :], 0))
    return [a, jnp.stack(swapped, -1), order]


def _cholesky(equation: Any, a: Any) -> Any:
    """The lower factor of symmetric matrices [..., n, n], column by column."""
    size = a.shape[-1]
    if all(isinstance(n, int) for n in a.shape) or not isinstance(size, int) or size > _MOST_ROWS:
        return _bind(equation, a)
    columns = []
    for k in range(size):
        column = a[..., k : k + 1] / jnp.sqrt(a[..., k : k + 1, k : k + 1])
        columns.append(jnp.where((np.arange(size) >= k)[:, None], column, 0))
        a = a - columns[-1] * jnp.swapaxes(columns[-1], -1, -2)
    return jnp.concatenate(columns, -1)


STEPS: dict[str, Callable[..., Any]] = {
    "lgamma": _lgamma,
    "digamma": _digamma,
    "atan2": lambda _, y, x: angle_of(y, x),
    "fft": fourier_transform,
    "complex": lambda _, real, imag: ComplexParts(real, imag),
    "erf_inv": _erf_inv,
    "round": _round,
    "concatenate": _concatenate,
    "convert_element_type": _convert,
    "lt_to": _less_in_total_order,
    "le_to": lambda step, x, y: ~_less_in_total_order(step, y, x),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "select_n": _select,
    "shift_left": _shift,
    "shift_right_logical": _shift,
    "shift_right_arithmetic": _shift,
    "dot_general": _dot_general,
    "max": _of_truth(lambda x, y: x | y),
    "min": _of_truth(lambda x, y: x & y),
    "lt": _of_truth(lambda x, y: ~x & y),
    "le": _of_truth(lambda x, y: ~x | y),
    "gt": _of_truth(lambda x, y: x & ~y),
    "ge": _of_truth(lambda x, y: x | ~y),
    "reshape": _reshape,
    "sort": _sort,
    "cummax": _running_extreme(jnp.max, "min"),
    "cummin": _running_extreme(jnp.min, "max"),
    "cumprod": _by_signed(_running(jnp.prod, 1)),
    **dict.fromkeys(("neg", "reduce_prod", "cumsum", "integer_pow"), _by_signed(_bind)),
    "cumlogsumexp": _running(_logarithm_of_sum, -np.inf),
    "div": _division,
    "rem": _division,
    "lu": _lu,
    "cholesky": _cholesky,
    "pad": _pad,
    "reduce_window": _window,
    "reduce_window_max": _window,
    "reduce_window_min": _window,
    "reduce_window_sum": _window,
    "conv_general_dilated": _convolution,
}
