"""Operators that tf2onnx translates wrongly are right, and a model with state is refused in plain words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import onnxtool
from onnxtool.errors import UnsupportedError

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tf2onnx")


def saved(function: object, dtype: object, folder: Path) -> Path:
    module = tf.Module()
    module.count = tf.Variable(0, dtype=tf.int64)
    spec = tf.TensorSpec([None, 4], dtype, name="x")
    module.call = tf.function(lambda x: {"y": function(module, x)}, input_signature=[spec])  # type: ignore[operator]
    tf.saved_model.save(module, str(folder / "model"), signatures=module.call.get_concrete_function())
    return folder / "model"


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32"])
def test_division_and_remainder_round_down(dtype: str, tmp_path: Path) -> None:
    source = saved(lambda _, x: x // 3 + 100 * (x % -7), dtype, tmp_path)
    assert onnxtool.convert(source, tmp_path / "out.onnx", effort="quick").ok
    x = np.array([[-7, -3, -1, 0], [1, 2, 20, -21]]).astype(dtype)
    if dtype != "float32":
        x[0, 3], x[1, 3] = np.iinfo(dtype).min, np.iinfo(dtype).max
    found = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": x})[0]
    np.testing.assert_array_equal(found, x // 3 + 100 * (x % np.array(-7, dtype)))


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_remainders_of_large_quotients_are_exact(dtype: str, tmp_path: Path) -> None:
    source = saved(lambda _, x: tf.stack([x % 3, x % -3, tf.math.floormod(x + 1, 7)]), dtype, tmp_path)
    assert onnxtool.convert(source, tmp_path / "out.onnx", effort="quick").ok
    x = np.array([[-7e8, 7e8, -(2**30), 2**30 + 64], [3e8, -3e8, 0, -1]]).astype(dtype)
    found = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": x})[0]
    exact = np.stack([np.mod(x, np.array(3, dtype)), np.mod(x, np.array(-3, dtype)), np.mod(x + 1, np.array(7, dtype))])
    np.testing.assert_array_equal(found, exact)
    np.testing.assert_array_equal(exact[0], tf.math.floormod(x, np.array(3, dtype)).numpy())
    assert found[0, 0, 0] == 2  # not 0: -7e8 = -233333334 * 3 + 2


@pytest.mark.parametrize(("axis", "dtype"), [(-1, "float32"), (1, "int32"), (0, "bool")])
def test_one_hot_of_what_is_no_class_is_empty(axis: int, dtype: str, tmp_path: Path) -> None:
    source = saved(lambda _, x: tf.one_hot(x, 3, axis=axis, dtype=dtype, on_value=True if dtype == "bool" else 5,
                                           off_value=False if dtype == "bool" else 2), "int64", tmp_path)  # fmt: skip
    assert onnxtool.convert(source, tmp_path / "out.onnx", effort="quick").ok
    x = np.array([[-3, -1, 0, 2], [1, 3, 20, -21]])
    found = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": x})[0]
    on, off = (True, False) if dtype == "bool" else (5, 2)
    exact = np.moveaxis(np.where(x[..., None] == np.arange(3), on, off), -1, axis)
    np.testing.assert_array_equal(found, exact)


def test_the_logarithm_of_one_and_a_little_more(tmp_path: Path) -> None:
    source = saved(lambda _, x: tf.math.log1p(x), "float32", tmp_path)
    assert onnxtool.convert(source, tmp_path / "out.onnx", effort="quick").ok
    x = np.array([[1e-9, -1e-7, 1e-4, 0], [1, -0.5, 1e6, np.inf], [-1, -2, -np.inf, np.nan]], np.float32)
    found = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": x})[0]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found, np.log1p(x.astype(np.float64)), rtol=1e-6)


def test_infinity_goes_where_it_is_chosen_alone(tmp_path: Path) -> None:
    def chosen(_: object, x: tf.Tensor) -> tf.Tensor:
        finite = tf.where(tf.math.is_inf(x) & (x > 0), tf.constant(5, x.dtype), x)
        return tf.concat([finite, tf.math.reduce_logsumexp(x, axis=-1, keepdims=True)], axis=-1)

    source = saved(chosen, "float32", tmp_path)
    assert onnxtool.convert(source, tmp_path / "out.onnx", effort="quick").ok
    x = np.array([[np.inf, 0, 1, 2], [-np.inf] * 4, [-np.inf, 0, 0, 0], [1, 2, 3, 4]], np.float32)
    found = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": x})[0]
    with np.errstate(all="ignore"):
        sums = np.logaddexp.reduce(x, axis=-1, keepdims=True)
    np.testing.assert_allclose(found, np.concatenate([np.where(x == np.inf, 5, x), sums], axis=-1), rtol=1e-6)


@pytest.mark.parametrize("method", ["nearest", "bilinear"])
@pytest.mark.parametrize("size", [(3, 1), (1, 4)])
def test_crops_sample_the_pixels_that_tensorflow_samples(method: str, size: tuple[int, int], tmp_path: Path) -> None:
    boxes = tf.constant([[0, 0, 1, 1], [0.1, 0.2, 0.6, 0.9], [-0.2, 0.3, 1.3, 0.1], [0.5, 0.5, 0.5, 0.5]], "float32")

    def cropped(_: object, x: tf.Tensor) -> tf.Tensor:
        images = tf.reshape(x, [2, 6, -1, 1])
        return tf.image.crop_and_resize(images, boxes, [0, 1, 1, 0], size, method=method, extrapolation_value=9)

    source = saved(cropped, "float32", tmp_path)
    onnxtool.convert(source, tmp_path / "out.onnx", verify_result=False)
    x = np.arange(72, dtype=np.float32).reshape(18, 4)
    found = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": x})[0]
    np.testing.assert_allclose(found, cropped(None, tf.constant(x)).numpy(), rtol=1e-6)
    if method == "nearest" and size == (3, 1):
        assert found[0, :, 0, 0].tolist() == [3, 3 + 3 * 6, 3 + 5 * 6]  # rows 0, 2.5 and 5, column 2.5


def test_a_model_that_counts_is_refused(tmp_path: Path) -> None:
    source = saved(lambda module, x: x * module.count.assign_add(1), "int64", tmp_path)
    with pytest.raises(UnsupportedError, match="changes its own variables"):
        onnxtool.convert(source, tmp_path / "out.onnx")


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "int16", "float32"])
def test_integers_are_compared_as_integers(dtype: str, tmp_path: Path) -> None:
    def compared(_: object, x: object) -> object:
        y = tf.roll(x, 1, 1)
        return tf.stack([x < y, x > y, x <= y, x >= y])

    assert onnxtool.convert(saved(compared, dtype, tmp_path), tmp_path / "out.onnx", effort="quick").ok
    top = 2**24 if dtype in ("int32", "int64", "float32") else 250
    x = np.array([[top, top + 1, top, -top], [top + 1, top + 1, top, top]]).astype(dtype)
    found = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": x})[0]
    y = np.roll(x, 1, 1)
    np.testing.assert_array_equal(found, np.stack([x < y, x > y, x <= y, x >= y]))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32"])
def test_integers_are_sorted_as_integers(dtype: str, tmp_path: Path) -> None:
    source = saved(
        lambda _, x: tf.concat(
            [tf.math.top_k(x, 2)[0], tf.sort(x), tf.cast(tf.argsort(x, direction="DESCENDING", stable=True), x.dtype)],
            1,
        ),
        dtype,
        tmp_path,
    )
    assert onnxtool.convert(source, tmp_path / "out.onnx", effort="quick").ok
    high = min(2**24, np.iinfo(dtype).max - 1) if dtype != "float32" else 5
    x = np.array([[high, high + 1, 3, high], [0, 0, 1, 0]]).astype(dtype)
    found = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": x})[0]
    rows = np.sort(x, 1)
    exact = np.concatenate([rows[:, :-3:-1], rows, [[1, 0, 3, 2], [2, 0, 1, 3]]], 1)
    np.testing.assert_array_equal(found, exact)


def test_the_mean_of_a_segment_without_rows_is_zero(tmp_path: Path) -> None:
    source = saved(lambda _, x: tf.math.segment_mean(x, tf.cast(tf.sort(x[:, 0]), tf.int32)), "float32", tmp_path)
    onnxtool.convert(source, tmp_path / "out.onnx", verify_result=False)
    x = np.array([[0, 1, 2, 3], [0, 3, 2, 5], [3, 7, 8, 9]], np.float32)
    found = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": x})[0]
    np.testing.assert_array_equal(found, [[0, 2, 2, 4], [0] * 4, [0] * 4, [3, 7, 8, 9]])


def test_a_computed_size_of_zero_is_zero_and_others_stay(tmp_path: Path) -> None:
    def parts(_: object, x: object) -> object:
        """Rows of which the first number is positive, in pairs."""
        rows = tf.boolean_mask(x, x[:, 0] > 0)
        return tf.reshape(rows, tf.stack([2, tf.shape(rows)[0], 2]))

    source = saved(parts, "float32", tmp_path)
    assert onnxtool.convert(source, tmp_path / "out.onnx", effort="quick").ok
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert session.run(None, {"x": -x})[0].shape == (2, 0, 2)
    np.testing.assert_array_equal(session.run(None, {"x": x + 1})[0], (x + 1).reshape(2, 2, 2))
