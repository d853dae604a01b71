"""Steps that jax2onnx lacks or has wrong, at values and sizes that show it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxtool
from onnxtool.errors import UnsupportedError
from onnxtool.runtime.runner import OnnxRunner

jax = pytest.importorskip("jax", reason="the extra jax is not installed")
pytest.importorskip("jax2onnx", reason="the extra jax is not installed")
from jax import lax  # noqa: E402
from jax import numpy as jnp  # noqa: E402

RANDOM = np.random.default_rng(0).normal(size=(3, 9, 8, 2)).astype(np.float32)
SPECIAL = np.float32(
    [[-0.0, 0.0, -2.0, 3.0, 2.5], [np.nan, np.inf, -np.inf, 1e30, -5000.7], [-1.5, 0.3, -0.0, 300, -300]]
)
WHOLE = np.array([[2**31 - 1, -(2**31), 0], [-1, 7, 1]], np.int32)


def check(function: Any, folder: Path, shape: tuple[int | str, ...], *rows: np.ndarray) -> None:
    """The file and the function give the same for each of several inputs, which the proof would not draw."""
    report = onnxtool.convert(
        function, folder / "m.onnx", input_shapes={"x": shape}, input_dtypes={"x": str(rows[0].dtype)}, effort="quick"
    )
    assert report.ok
    runner = OnnxRunner.open(folder / "m.onnx")
    for x in rows:
        found = runner.run({"x": x})
        for name, expected in function(jnp.asarray(x)).items():
            assert found[name].dtype == expected.dtype
            np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


def numbers(x: Any) -> Any:
    return {
        "lgamma": lax.lgamma(x),
        "digamma": lax.digamma(x),
        "angle": lax.atan2(x, x[:, ::-1]),
        "int8": x.astype(jnp.int8),
        "int32": x.astype(jnp.int32),
        "place": jnp.searchsorted(jnp.array([-1.5, 0.0, 2.5, 2.5]), x, side="right"),
        "first_place": jnp.searchsorted(jnp.array([-1.5, 0.0, 2.5, 2.5]), x),
        "part": lax.dynamic_slice(x, (0, jnp.sum(x > 0)), (x.shape[0], 2)),
        "away": lax.round(x),
        "even": jnp.round(x),
        "ends": lax.erf_inv(jnp.clip(x, -1, 1)),
        "edges": jnp.pad(x, ((0, 0), (2, 1)), mode="edge"),
        "so far": lax.cummax(jnp.where(x < 0, -jnp.inf, jnp.where(jnp.isnan(x), 0, x)), axis=1),
        "so small": lax.cummin(jnp.where(jnp.isnan(x), jnp.inf, x), axis=1, reverse=True),
        "sum so far": jnp.cumsum(jnp.where(jnp.isfinite(x), x, 0), 1),
        "outer": jnp.einsum("bi,bj->bij", x[:, :3], x),
        "halves": lax.dot_general(
            jnp.where(jnp.abs(x) < 9, x, 0).astype(jnp.float16),
            jnp.full((5, 2), 1.001, jnp.float16),
            (((1,), (0,)), ((), ())),
            preferred_element_type=jnp.float32,
        ),
        "between": lax.pad(x, jnp.float32(9), ((0, 0, 0), (-1, 2, 1))),
        "turned": jnp.ravel(x, order="F"),
        "keys": jnp.lexsort((x[:, 0], jnp.sign(x[:, 1]), x[:, 2] > 0)),
        "integers so far": lax.cummax(jnp.clip(x, -9, 9).astype(jnp.int32) - 100, axis=1),
        "integers so small": lax.cummin(jnp.clip(x, -9, 9).astype(jnp.int32) + 100, axis=1),
        "truth": jnp.stack([f(x > 0, x[:, ::-1] > 1) for f in (lax.max, lax.min, lax.lt, lax.le, lax.gt, lax.ge)], 1),
    }


def running(x: Any) -> Any:
    state, states = lax.scan(lambda s, r: (s * 0.9 + r, s), jnp.zeros(x.shape[0]), x.T, reverse=True)
    which = jnp.clip(jnp.round(x[0, 0]), 0, 2).astype(jnp.int32)
    return {
        "product": lax.cumprod(x, axis=1, reverse=True),
        "logarithm": lax.cumlogsumexp(30 * x, axis=1),
        "last": state,
        "states": states,
        "chosen": lax.switch(which, [lambda v: v, lambda v: v * 2, lambda v: -v], x),
        "noise": x + jax.random.normal(jax.random.key(3), x.shape[1:]),
        "second": jnp.einsum("bi,bj->ij", x, x),
        "first": jnp.einsum("bi,ci->bc", x, x),
    }


def integers(x: Any) -> Any:
    return {
        "left": x << 3,
        "right": x >> 3,
        "logical": lax.shift_right_logical(x, jnp.full_like(x, 3)),
        "beyond": lax.shift_left(x, jnp.full_like(x, 32)),
        "signs": lax.shift_right_arithmetic(x, jnp.full_like(x, 40)),
        "down": x // 3,
        "rest": x % -4,
        "both": jnp.einsum("bi,bj->bij", x > 0, x > 1),
        "any": jnp.einsum("bi,ci->bc", x > 0, x > 1),
        "total": jnp.einsum("bi,bj->ij", x % 7, x % 5),
        "row": jnp.arange(7)[x],
        "cases": jnp.where(x > 0, x > 1, x < -1),
        "times": lax.div(x, x[:, ::-1]),
        "left over": lax.rem(x, x[:, ::-1]),
        "by nothing": x // (x // 8),
        "turned": lax.div(x, jnp.full_like(x, -1)),
    }


def bytes_and_bits(x: Any) -> Any:
    """Integers of which the runtime has few kernels."""
    small, large = x.astype(jnp.int8), x.astype(jnp.uint32)
    return {
        "sums": jnp.cumsum(small, 1),
        "products": jnp.cumprod(small, 1),
        "matrix": lax.dot_general(small, small, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32),
        "cube": small**3,
        "negative": -large,
        "sum of large": jnp.cumsum(large, 1),
        "product of large": jnp.prod(large % 7, 1),
    }


def of_dynamic_rows(x: Any) -> Any:
    """Along an axis of any size: places beyond it, parts, running results and orders."""
    place = jnp.clip(x, -9, 9).astype(jnp.int32)
    return {
        "rows": x[place[:, 0]],
        "elements": x[jnp.arange(x.shape[0]), place[:, 0]],
        "along": jnp.take_along_axis(x, place, 0),
        "filled": x.at[place[:, 0]].get(mode="fill", fill_value=7.0),
        "whole": place.at[place[:, 0] + 5].get(mode="fill"),
        "part": lax.dynamic_slice(x, (place[0, 0], 0), (1, 8)),
        "written": lax.dynamic_update_slice(x, x[:1] * 2, (place[0, 0], 0)),
        "but the last": x[:-1],
        "last two": x[-2:],
        "between": x[1:-1, 2],
        "largest": lax.cummax(x, 0),
        "smallest": lax.cummin(x, 0, reverse=True),
        "ordered": jnp.sort(x, 0),
        "order": jnp.argsort(jnp.round(x), 0),
    }


def images(x: Any) -> Any:
    kernel = jnp.arange(36, dtype=jnp.float32).reshape(3, 3, 2, 2) / 30
    dims = ("NHWC", "HWIO", "NHWC")
    largest, total = ((1, 3, 2, 1), (1, 2, 2, 1), "SAME"), ((1, 3, 3, 1), (1, 2, 3, 1), "SAME")
    return {
        "convolution": lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=dims),
        "dilated": lax.conv_general_dilated(x, kernel, (3, 2), "SAME", rhs_dilation=(1, 2), dimension_numbers=dims),
        "cut": lax.conv_general_dilated(x, kernel, (1, 1), ((0, 2), (3, -1)), dimension_numbers=dims),
        "turned": lax.conv_general_dilated(
            x, kernel.transpose(3, 0, 1, 2), (1, 2), "SAME", dimension_numbers=("NHWC", "OHWI", "NHWC")
        ),
        "largest": lax.reduce_window(x, -jnp.inf, lax.max, *largest),
        "smallest": lax.reduce_window(x, jnp.inf, lax.min, *largest),
        "sum": lax.reduce_window(x, 0.0, lax.add, *total),
        "each": jax.vmap(lambda row: lax.reduce_window(row, -jnp.inf, lax.max, (2, 2, 1), (2, 2, 1), "SAME"))(x),
    }


def test_numbers(tmp_path: Path) -> None:
    check(numbers, tmp_path, ("batch", 5), SPECIAL, SPECIAL[::-1].copy())


def test_running(tmp_path: Path) -> None:
    check(running, tmp_path, ("batch", 8), RANDOM[0, :, :, 0], RANDOM[1, :1, :, 0] + 1)


def test_axes_of_any_size(tmp_path: Path) -> None:
    rows = RANDOM[0, :, :, 0]
    check(of_dynamic_rows, tmp_path, ("batch", 8), rows[:1], rows * 3, rows[:4] * 30)


def test_integers(tmp_path: Path) -> None:
    check(integers, tmp_path, ("batch", 3), WHOLE, WHOLE[:1])
    check(bytes_and_bits, tmp_path, ("batch", 3), WHOLE, WHOLE % 251)


def test_images_of_dynamic_sizes(tmp_path: Path) -> None:
    check(images, tmp_path, ("batch", "height", "width", 2), RANDOM, RANDOM[:1, :6, :5], RANDOM[:, :5, :6])


def matrices(x: Any) -> Any:
    """Batches, of which the last has its largest numbers off the diagonal."""
    return {
        "solution": jnp.linalg.solve(x, x[..., :1]),
        "determinant": jnp.linalg.det(x),
        "root": jnp.linalg.cholesky(x @ jnp.swapaxes(x, -1, -2) + jnp.eye(3)),
    }


def test_linear_systems_of_batches(tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(3, 3, 3)).astype(np.float32) + 3 * np.eye(3, dtype=np.float32)[[2, 0, 1]]
    converted = onnxtool.convert(
        matrices, tmp_path / "m.onnx", input_shapes={"x": ("batch", 3, 3)}, verify_result=False
    )
    assert converted.written
    for rows in (x, x[2:], x[:, ::-1].copy(), np.zeros_like(x[:1]) + np.eye(3, dtype=np.float32)):
        found = OnnxRunner.open(tmp_path / "m.onnx").run({"x": rows})
        for name, expected in matrices(jnp.asarray(rows)).items():
            np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


def test_the_function_runs_in_float64() -> None:
    from onnxtool.conversion.jax.evaluation import evaluate_in_float64

    x = np.float32([[3e-7, 5.0]])
    (found,) = evaluate_in_float64(jax.make_jaxpr(lambda v: jnp.exp(v) - 1)(x), [x])
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, np.expm1(x.astype(np.float64)), rtol=1e-8)


def _signal(x: Any) -> Any:
    return jax.scipy.signal.istft(jax.scipy.signal.stft(x, nperseg=8)[2], nperseg=8)[1]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.abs(jnp.fft.fft(x)),
        lambda x: jnp.fft.irfft(jnp.fft.rfft(x[:, :15]) * jnp.exp(-0.3j * jnp.arange(8.0)), 15),
        lambda x: jnp.fft.irfft2(jnp.fft.rfft2(x.reshape(-1, 4, 4)) * 2),
        lambda x: (jnp.fft.fft(x) / (jnp.fft.fft(x[:, ::-1]) + 30 + 2j)).imag,
        lambda x: jnp.fft.rfft(x, norm="ortho").real ** 2,
        lambda x: jnp.angle(jnp.fft.rfft(x))[:, ::8],
        lambda x: (jnp.fft.fft(x) @ jnp.ones((16, 3), jnp.complex64)).real,
        lambda x: jnp.abs(jnp.where(jnp.arange(9) < 4, jnp.fft.rfft(x) ** 2, 0)),
        lambda x: (lax.complex(x[:, :8], x[:, 8:]) * jnp.exp(1j * jnp.arange(8.0))).imag,
        lambda x: jnp.log(lax.complex(x[:, :8], x[:, 8:])).imag,
        lambda x: jnp.sqrt(jnp.concatenate([x + 0j, lax.complex(-jnp.abs(x), x)], 1)).imag,
        lambda x: (jnp.concatenate([x + 1j, 0j * x], 1) ** 2.5).real,
        lambda x: (lax.complex(x, x[:, ::-1]) ** -2).real,
        _signal,
    ],
    ids=[
        *("fft", "irfft", "rfft2", "quotient", "ortho", "real", "product", "choice", "rotation"),
        *("log", "root", "power", "inverse", "short time"),
    ],
)
def test_complex_numbers_are_two_arrays(function: Callable[[Any], Any], tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
    report = onnxtool.convert(
        function, output=tmp_path / "m.onnx", input_shapes={"x": ("batch", 16)}, verify_result=False
    )
    assert report.ok
    (found,) = OnnxRunner.open(tmp_path / "m.onnx").run({"x": rows}).values()
    np.testing.assert_allclose(found, jax.jit(function)(rows), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("function", "length", "reason"),
    [
        (lambda x: jnp.fft.fft(x) + 1, 16, "it gives complex numbers"),
        (lambda x: jnp.abs(jnp.tanh(jnp.fft.rfft(x))), 16, "tanh of complex numbers has no ONNX form"),
        (lambda x: jnp.abs(jnp.fft.rfft(x)), "length", "up to length 4096, not of"),
    ],
)
def test_other_steps_on_complex_numbers_are_named(
    function: Callable[[Any], Any], length: int | str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        onnxtool.convert(function, tmp_path / "m.onnx", input_shapes={"x": ("batch", length)})
