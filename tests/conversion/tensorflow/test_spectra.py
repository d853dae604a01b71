"""Fourier transforms and complex numbers of TensorFlow are NumPy's; the copy in float64 tells of rounding alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxtool
from onnxtool.conversion.tensorflow.model import TensorFlowModel
from onnxtool.errors import InputError, UnsupportedError
from onnxtool.model.spec import TensorSpec
from onnxtool.options.convert import ConvertOptions
from onnxtool.runtime.runner import OnnxRunner

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tf2onnx")

SHAPE = (3, 5, 6)


def saved(function: Callable[[Any], Any], folder: Path) -> Path:
    module = tf.Module()
    spec = tf.TensorSpec([None, *SHAPE[1:]], tf.float32, name="x")
    module.call = tf.function(lambda x: {"y": function(x)}, input_signature=[spec])
    tf.saved_model.save(module, str(folder / "model"), signatures=module.call.get_concrete_function())
    return folder / "model"


def wide(x: Any) -> Any:
    return tf.complex(x, x + 1)


CASES: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "half of a spectrum": (lambda x: tf.math.imag(tf.signal.rfft(x)), lambda x: np.fft.rfft(x).imag),
    "cut off": (lambda x: tf.math.real(tf.signal.rfft(x, [5])), lambda x: np.fft.rfft(x, 5).real),
    "filled": (lambda x: tf.abs(tf.signal.rfft(x, [9])), lambda x: np.abs(np.fft.rfft(x, 9))),
    "of two dims": (
        lambda x: tf.math.real(tf.signal.rfft2d(x, [4, 7])),
        lambda x: np.fft.rfft2(x, (4, 7)).real,
    ),
    "of complex numbers": (lambda x: tf.math.imag(tf.signal.fft(wide(x))), lambda x: np.fft.fft(x + 1j * (x + 1)).imag),
    "back": (lambda x: tf.math.real(tf.signal.ifft2d(wide(x))), lambda x: np.fft.ifft2(x + 1j * (x + 1)).real),
    "back to real ones": (
        lambda x: tf.signal.irfft2d(wide(x), [5, 9]),
        lambda x: np.fft.irfft2(x + 1j * (x + 1), (5, 9)),
    ),
    "of a cast": (
        lambda x: tf.math.real(tf.signal.fft(tf.cast(x, tf.complex64))),
        lambda x: np.fft.fft(x).real,
    ),
    "angle": (lambda x: tf.math.angle(tf.math.conj(wide(x))), lambda x: -np.angle(x + 1j * (x + 1))),
    "product": (
        lambda x: tf.math.real(wide(x) * tf.constant(1 + 2j, tf.complex64)),
        lambda x: ((x + 1j * (x + 1)) * (1 + 2j)).real,
    ),
    "moved": (
        lambda x: tf.math.imag(tf.concat([tf.transpose(wide(x), [0, 2, 1])[:, 1:], -wide(x)[:, :, :5]], 1)),
        lambda x: np.concatenate([(x.transpose(0, 2, 1) + 1)[:, 1:], -(x + 1)[:, :, :5]], 1),
    ),
    "added": (
        lambda x: tf.math.imag(tf.reduce_mean(wide(x) + tf.reshape(wide(x), [-1, 5, 6]) - wide(x)[:, :1], 1)),
        lambda x: 2 * (x + 1).mean(1) - (x + 1)[:, 0],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_numpy_gives(name: str, tmp_path: Path) -> None:
    function, exact = CASES[name]
    assert onnxtool.convert(saved(function, tmp_path), tmp_path / "out.onnx", effort="quick").ok
    x = np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)
    (found,) = OnnxRunner.open(tmp_path / "out.onnx").run({"x": x}).values()
    np.testing.assert_allclose(found, exact(x.astype(np.float64)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("function", [lambda x: tf.abs(tf.sqrt(wide(x))), wide])
def test_another_operator_on_complex_numbers_is_refused(function: Callable[[Any], Any], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError):
        onnxtool.convert(saved(function, tmp_path), tmp_path / "out.onnx", effort="quick")
    assert not (tmp_path / "out.onnx").exists()


def loaded(function: Callable[[Any], Any]) -> TensorFlowModel:
    spec = TensorSpec("x", np.dtype("float32"), ("batch", *SHAPE[1:]))
    return TensorFlowModel.prepare(lambda x: [function(x)], [(spec, tf.float32)], ["y"], "code", ConvertOptions())


def test_a_copy_in_float64_is_the_same_function() -> None:
    weight = tf.constant(np.random.default_rng(1).standard_normal((6, 4)), tf.float32)
    model = loaded(lambda x: tf.nn.softmax(tf.einsum("bij,jk->bik", x, weight) * 3, -1))
    x = np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)
    (plain,), (wider,) = (m.run({"x": x}).values() for m in (model, model.rerounded()))
    scores = np.einsum("bij,jk->bik", x.astype(np.float64), np.float64(weight)) * 3
    exact = np.exp(scores - scores.max(-1, keepdims=True))
    exact /= exact.sum(-1, keepdims=True)
    assert wider.dtype == np.float32
    assert np.array_equal(wider, exact.astype(np.float32)) and not np.array_equal(plain, wider)


@pytest.mark.parametrize("apart", [False, True], ids=["in the graph", "in a function"])
@pytest.mark.parametrize("corners", [False, True], ids=["between pixels", "corners aligned"])
def test_a_copy_in_float64_resizes_at_exact_positions(apart: bool, corners: bool) -> None:
    def resize(x: tf.Tensor) -> tf.Tensor:
        given = tf.reshape(x, [-1, 1, 300, 1])
        return tf.raw_ops.ResizeBilinear(
            images=given, size=[1, 224], align_corners=corners, half_pixel_centers=not corners
        )

    spec = TensorSpec("x", np.dtype("float32"), ("batch", 300))
    called = tf.function(resize) if apart else resize
    function = lambda x: tf.cond(tf.reduce_sum(x) < 1e9, lambda: called(x) * 2, lambda: called(x))  # noqa: E731
    model = TensorFlowModel.prepare(lambda x: [function(x)], [(spec, tf.float32)], ["y"], "code", ConvertOptions())
    x = np.random.default_rng(3).standard_normal((2, 300)).astype(np.float32)
    (plain,), (wider,) = (m.run({"x": x}).values() for m in (model, model.rerounded()))
    places = np.arange(224) * 299 / 223 if corners else np.clip((np.arange(224) + 0.5) * 300 / 224 - 0.5, 0, 299)
    exact = np.stack([np.interp(places, np.arange(300), row) for row in x.astype(np.float64)]) * 2
    off, off_plain = (np.abs(found[:, 0, :, 0] - exact).max() for found in (wider, plain))
    assert off <= 2**-24 * np.abs(exact).max() < off_plain / 8


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * tf.random.uniform(tf.shape(x)),
        lambda x: tf.cast(tf.bitcast(x, tf.int32), tf.float32),
        lambda x: x * (x + 2.0**30 - 2.0**30),
    ],
)
def test_a_copy_in_float64_that_gives_something_else_tells_nothing(function: Callable[[Any], Any]) -> None:
    x = np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)
    with pytest.raises(InputError):
        loaded(function).rerounded().run({"x": x})
