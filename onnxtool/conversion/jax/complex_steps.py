"""Steps of a trace on complex numbers, which ONNX has not: both parts, each an array of its own.

Source: Oppenheim and Schafer, "Discrete-Time Signal Processing", 3rd edition, chapter 8 (discrete Fourier transforms).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from onnxtool.conversion.fourier_tables import waves

_LONGEST = 4096  # of a transform by a matrix


class ComplexParts(NamedTuple):
    """A complex array."""

    real: Any
    imag: Any


def complex_parts(value: Any) -> ComplexParts:
    """Of any array, real ones included."""
    if isinstance(value, ComplexParts):
        return value
    if np.dtype(value.dtype).kind == "c":  # a constant
        known = np.asarray(value)
        return ComplexParts(jnp.asarray(known.real), jnp.asarray(known.imag))
    return ComplexParts(value, jnp.zeros_like(value))


def _along(x: Any, axis: int, matrix: np.ndarray) -> Any:
    moved = jnp.moveaxis(x, axis, -1)
    return jnp.moveaxis(jnp.matmul(moved, jnp.asarray(matrix.astype(x.dtype))), -1, axis)


def _transformed(x: ComplexParts, axis: int, *, inverse: bool) -> ComplexParts:
    """All frequencies of an axis, or back."""
    length = x.real.shape[axis]
    cosines, sines = waves(length, length, length)
    if inverse:
        cosines, sines = cosines / length, -sines / length
    real, imag = ((_along(x.real, axis, matrix), _along(x.imag, axis, matrix)) for matrix in (cosines, sines))
    return ComplexParts(real[0] + imag[1], real[1] - imag[0])


def _spectrum(x: Any, axis: int) -> ComplexParts:
    """The frequencies from 0 on of a real array; the others are their conjugates."""
    length = x.shape[axis]
    cosines, sines = waves(length, length // 2 + 1, length, -1)
    return ComplexParts(_along(x, axis, cosines), _along(x, axis, sines))


def _real_signal(x: ComplexParts, axis: int, length: int) -> Any:
    """Back from these: each but the first, and the last of an even number, stands for its conjugate too."""
    cosines, sines = waves(length // 2 + 1, length, length)
    weights = np.full((length // 2 + 1, 1), 2 / length)
    weights[0] = 1 / length
    if length % 2 == 0:
        weights[-1] = 1 / length
    return _along(x.real, axis, weights * cosines) - _along(x.imag, axis, weights * sines)


def fourier_transform(equation: Any, x: Any) -> Any:
    """Transforms of the last axes, by matrices of cosines and sines."""
    lengths, kind = equation.params["fft_lengths"], equation.params["fft_type"]
    if not all(isinstance(n, int) and 0 < n <= _LONGEST for n in lengths):
        raise ValueError(f"Fourier transforms are converted up to length {_LONGEST}, not of {lengths}")
    last, others = -1, range(-len(lengths), -1)
    if kind == lax.FftType.RFFT:
        found, rest = _spectrum(x, last), others
    else:
        found, rest = complex_parts(x), others if kind == lax.FftType.IRFFT else range(-len(lengths), 0)
    for axis in rest:
        found = _transformed(found, axis, inverse=kind in (lax.FftType.IFFT, lax.FftType.IRFFT))
    return _real_signal(found, last, lengths[-1]) if kind == lax.FftType.IRFFT else found


def _product(a: ComplexParts, b: ComplexParts) -> ComplexParts:
    return ComplexParts(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)


def _quotient(a: ComplexParts, b: ComplexParts) -> ComplexParts:
    size = b.real * b.real + b.imag * b.imag
    top = _product(a, ComplexParts(b.real, -b.imag))
    return ComplexParts(top.real / size, top.imag / size)


def _exponential(x: ComplexParts) -> ComplexParts:
    size = jnp.exp(x.real)
    return ComplexParts(size * jnp.cos(x.imag), size * jnp.sin(x.imag))


def _whole_power(equation: Any, x: ComplexParts) -> ComplexParts:
    one = ComplexParts(jnp.ones_like(x.real), jnp.zeros_like(x.real))
    found = reduce(_product, [x] * abs(equation.params["y"]), one)
    return found if equation.params["y"] >= 0 else _quotient(one, found)


def _logarithm(x: ComplexParts) -> ComplexParts:
    return ComplexParts(jnp.log(jnp.hypot(x.real, x.imag)), angle_of(x.imag, x.real))


def _power(x: ComplexParts, y: ComplexParts) -> ComplexParts:
    """e^(y log x), 0 of 0."""
    found = _exponential(_product(y, _logarithm(x)))
    nothing = (x.real == 0) & (x.imag == 0)
    return ComplexParts(*(jnp.where(nothing, 0, part) for part in found))


def _root(x: ComplexParts) -> ComplexParts:
    """With a real part that is not negative."""
    size = jnp.sqrt((jnp.hypot(x.real, x.imag) + jnp.abs(x.real)) / 2)
    other = jnp.abs(x.imag) / jnp.where(size == 0, 1, 2 * size)
    real, imag = (jnp.where(x.real >= 0, *pair) for pair in ((size, other), (other, size)))
    return ComplexParts(real, jnp.where(is_negative(x.imag), -imag, imag))


def angle_of(y: Any, x: Any) -> Any:
    """The angle of (x, y), by the arc tangent of |y| / |x| and the signs, which zeros have too."""
    height, width = jnp.abs(y), jnp.abs(x)
    alike = height == width  # also both zero, or both infinite, whose quotient is NaN
    quotient = jnp.where(alike, jnp.where(height == 0, 0, 1).astype(x.dtype), lax.div(height, width))
    angle = lax.atan(quotient)
    angle = jnp.where(is_negative(x), jnp.asarray(np.pi, x.dtype) - angle, angle)
    return jnp.where(is_negative(y), -angle, angle)


def is_negative(x: Any) -> Any:
    """Also of -0.0, whose reciprocal is minus infinity."""
    return (x < 0) | (lax.div(jnp.ones_like(x), x) < 0)


def _by_part(equation: Any, *inputs: Any) -> ComplexParts:
    """Of a step that treats both parts alike."""
    real, imag = zip(*map(complex_parts, inputs), strict=True)
    return ComplexParts(*(equation.primitive.bind(*part, **equation.params) for part in (real, imag)))


def _chosen(equation: Any, which: Any, *cases: Any) -> ComplexParts:
    parts = zip(*map(complex_parts, cases), strict=True)
    return ComplexParts(*(equation.primitive.bind(which, *part, **equation.params) for part in parts))


def _indexed(equation: Any, x: ComplexParts, *places: Any) -> ComplexParts:
    return ComplexParts(*(equation.primitive.bind(part, *places, **equation.params) for part in x))


def _matrix_product(equation: Any, a: Any, b: Any) -> ComplexParts:
    params = {**equation.params, "preferred_element_type": None}

    def dot(x: Any, y: Any) -> Any:
        return equation.primitive.bind(x, y, **params)

    left, right = complex_parts(a), complex_parts(b)
    return ComplexParts(
        dot(left.real, right.real) - dot(left.imag, right.imag), dot(left.real, right.imag) + dot(left.imag, right.real)
    )


_STEPS: dict[str, Callable[..., Any]] = {
    "fft": fourier_transform,
    "real": lambda _, x: x.real,
    "imag": lambda _, x: x.imag,
    "conj": lambda _, x: ComplexParts(complex_parts(x).real, -complex_parts(x).imag),
    "abs": lambda _, x: jnp.hypot(x.real, x.imag),
    "mul": lambda _, a, b: _product(complex_parts(a), complex_parts(b)),
    "div": lambda _, a, b: _quotient(complex_parts(a), complex_parts(b)),
    "exp": lambda _, x: _exponential(x),
    "square": lambda _, x: _product(x, x),
    "integer_pow": _whole_power,
    "pow": lambda _, x, y: _power(complex_parts(x), complex_parts(y)),
    "log": lambda _, x: _logarithm(x),
    "sqrt": lambda _, x: _root(x),
    "dot_general": _matrix_product,
    "select_n": _chosen,
    "gather": _indexed,
    "dynamic_slice": _indexed,
    "convert_element_type": lambda step, x: x if np.dtype(step.params["new_dtype"]).kind == "c" else x.real,
    "copy": lambda _, x: x,
    **dict.fromkeys(
        (
            *("add", "add_any", "sub", "neg", "reduce_sum", "cumsum", "reshape", "transpose", "squeeze", "expand_dims"),
            *("broadcast_in_dim", "slice", "concatenate", "rev", "pad"),
        ),
        _by_part,
    ),
}


def complex_step(equation: Any, *inputs: Any) -> Any:
    """A step of which an input is complex.

    Raises:
        TypeError: there is no form for it here.
    """
    name = equation.primitive.name
    if name not in _STEPS:
        raise TypeError(f"{name} of complex numbers has no ONNX form here")
    return _STEPS[name](equation, *inputs)
