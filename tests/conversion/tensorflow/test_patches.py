"""Every correction of tf2onnx is needed by the version that is installed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

pytest.importorskip("tf2onnx")
import keras
import tensorflow as tf

import onnxtool
from onnxtool.conversion.patches import Patch
from onnxtool.conversion.tensorflow.patches import added_scalars, images, lite_operators, spectra, tensor_lists, texts
from onnxtool.conversion.tensorflow.patches.op_handlers import PATCHES
from onnxtool.errors import UnsupportedError
from onnxtool.runtime.runner import OnnxRunner
from tests.conversion.patched import hold_needed, patches_of

SMALL = np.array([[1e-7, -1e-7, 3e-5, 0.5]], np.float32)
SIGNS = np.array([[-0.0, 0.0, -2.0, 3.0]], np.float32)
LARGE = np.array([[2**24, 2**24 + 1, 2**24, 2**24 + 1]])
COLOURS = np.random.default_rng(0).integers(-2, 5, (60, 4)).astype(np.float32) / 4
TEXTS = np.array([["The cat, SAT!", "don't", "", "the"], ["  a b\tthe ", "\u00c4!", "the", "!!"]], object)
INTEGERS = np.array([[-7, -3, -1, 20], [1, 2, 5, -21]])


def saved(function: Callable[[Any], Any], rows: np.ndarray, folder: Path) -> Path:
    module = tf.Module()
    module.call = tf.function(lambda x: {"y": function(x)}, input_signature=[tf.TensorSpec([None, 4], rows.dtype)])
    tf.saved_model.save(module, str(folder / "model"), signatures=module.call.get_concrete_function())
    return folder / "model"


def lite_agrees(function: Callable[[Any], Any], rows: np.ndarray, folder: Path) -> bool:
    """Of a TensorFlow Lite file, on inputs of one shape."""
    call = tf.function(function, input_signature=[tf.TensorSpec(rows.shape, rows.dtype)])
    content = tf.lite.TFLiteConverter.from_concrete_functions([call.get_concrete_function()], call).convert()
    (folder / "model.tflite").write_bytes(content)
    onnxtool.convert(folder / "model.tflite", folder / "out.onnx", verify_result=False)
    runner = OnnxRunner.open(folder / "out.onnx")
    (found,) = runner.run({runner.inputs[0].name: rows}).values()
    return np.allclose(found, function(tf.constant(rows)).numpy(), rtol=1e-5, atol=1e-6)


def agrees(function: Callable[[Any], Any], rows: np.ndarray, folder: Path, atol: float = 1e-30) -> bool:
    onnxtool.convert(saved(function, rows, folder), folder / "out.onnx", verify_result=False)
    runner = OnnxRunner.open(folder / "out.onnx")
    (found,) = runner.run({runner.inputs[0].name: rows}).values()
    expected = function(tf.constant(rows)).numpy()
    right = found.shape == expected.shape and np.allclose(found, expected, rtol=1e-5, atol=atol)
    if not right:
        logging.getLogger(__name__).warning("%s in place of %s", found, expected)  # shown where the test fails
    return right


def patches(x: Any, padding: str = "SAME", rate: int = 1) -> Any:
    """Of pictures of 2 x 2 pixels, in tiles of 3 x 3."""
    pixels = tf.tile(tf.reshape(x, [-1, 2, 2, 1]), [1, 3, 3, 2])
    return tf.image.extract_patches(pixels, [1, 2, 3, 1], [1, 1, 2, 1], [1, rate, 1, 1], padding)


def volumes_in_groups(folder: Path) -> bool:
    model = keras.Sequential([keras.Input([2, 2, 2, 4]), keras.layers.Conv3D(6, 2, groups=2)])
    onnxtool.convert(model, folder / "out.onnx", verify_result=False)
    runner, x = OnnxRunner.open(folder / "out.onnx"), np.ones((3, 2, 2, 2, 4), np.float32)
    (found,) = runner.run({runner.inputs[0].name: x}).values()
    return np.allclose(found, model(x), atol=1e-6)


def vectorizes(folder: Path, **options: Any) -> bool:
    """Keras' layer of texts, on texts of its vocabulary and others."""
    layer = keras.layers.TextVectorization(**options)
    layer.adapt(["The cat sat, on the mat!", "a dog sat here; don't", "Hello   world"])
    model = keras.Sequential([keras.Input([1], dtype="string"), layer])
    onnxtool.convert(model, folder / "out.onnx", verify_result=False)
    runner = OnnxRunner.open(folder / "out.onnx")
    for rows in (
        TEXTS.reshape(-1, 1),
        TEXTS[:1, 2:3],
        np.array([["SAT on\x0bon the, unk"], ["mat! [UNK] a,b"]], object),
    ):
        (found,) = runner.run({runner.inputs[0].name: rows}).values()
        if not np.allclose(found, model(tf.constant(rows)).numpy(), rtol=1e-6):
            return False
    return True


def by_segment(name: str, folder: Path, numbers: tuple[int, ...]) -> bool:
    """One of the segments has no rows; the unsorted form has a row of none."""
    sizes = {"num_segments": 4} if name.startswith("unsorted") else {}
    return agrees(lambda x: getattr(tf.math, name)(x, tf.constant(numbers), **sizes), INTEGERS, folder)


def looks_integers_up(folder: Path, **options: Any) -> bool:
    layer = keras.layers.IntegerLookup(vocabulary=[5, -7, 20], **options)
    model = keras.Sequential([keras.Input([4], dtype="int64"), layer])
    onnxtool.convert(model, folder / "out.onnx", verify_result=False)
    session = onnxruntime.InferenceSession(folder / "out.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: INTEGERS})
    return bool((found == layer(INTEGERS).numpy()).all())


def has_one_transpose(folder: Path) -> bool:
    layers = keras.layers
    image = keras.Input([16, 16, 4])
    x = layers.Activation("hard_silu")(layers.Conv2D(8, 3)(image))
    squeezed = layers.GlobalAveragePooling2D(keepdims=True)(x)
    x = layers.Multiply()([x, layers.Activation("hard_sigmoid")(layers.Conv2D(8, 1)(squeezed))])
    model = keras.Model(image, layers.GlobalAveragePooling2D()(layers.Conv2D(4, 1)(x)))
    onnxtool.convert(model, folder / "out.onnx", verify_result=False)
    return sum(node.op_type == "Transpose" for node in onnx.load(folder / "out.onnx").graph.node) == 1


def sign_bits(x: Any) -> Any:
    return tf.bitwise.bitwise_and(tf.bitcast(x, tf.int32), np.iinfo(np.int32).min)


def middle_pixels(x: Any) -> Any:
    """Of one column each, whose middle lies between two pixels."""
    boxes = tf.constant([[0.0, 0.0, 1.0, 1.0]])
    return tf.image.crop_and_resize(tf.reshape(x, [1, 1, -1, 1]), boxes, [0], (2, 1), method="nearest")


def resized(x: Any, method: str, width: int = 3) -> Any:
    """Images of one row and of a width that TensorFlow does not know."""
    rows = tf.shape(x)[0]
    return tf.image.resize(tf.reshape(x, [rows, 1, 4 + 0 * rows, 1]), (2, width), method=method)


def coloured(function: Callable[[Any], Any], folder: Path) -> bool:
    """Of three colours between -0.5 and 1, two of them alike in places."""
    return agrees(lambda x: function(x[:, :3]), COLOURS, folder)


def among_sorted(x: Any, side: str) -> Any:
    return tf.searchsorted(tf.constant([-2.0, 0.0, 0.0, 2.5]), x[0], "right" if side == "Upper" else "left")


CASES: dict[Patch[..., object], Callable[[Path], bool]] = {
    PATCHES["FakeQuantWithMinMaxArgs"]: partial(
        agrees, lambda x: tf.quantization.fake_quant_with_min_max_args(x, -1, 1), COLOURS * 5.3
    ),
    PATCHES["FakeQuantWithMinMaxVars"]: partial(
        agrees, lambda x: tf.quantization.fake_quant_with_min_max_vars(x, -2, 2, 4, narrow_range=True), COLOURS * 5.3
    ),
    PATCHES["FakeQuantWithMinMaxVarsPerChannel"]: partial(
        agrees,
        lambda x: tf.quantization.fake_quant_with_min_max_vars_per_channel(x, [-1, -2, -1.3, 0], [1, 3, 2, 6]),
        COLOURS * 5.3,
    ),
    tensor_lists.PATCH: partial(agrees, lambda x: tf.scan(lambda a, v: a * 0.9 + v, x), COLOURS[:5]),
    PATCHES["Erfc"]: lambda folder: agrees(tf.math.erfc, SMALL, folder),
    PATCHES["Expm1"]: lambda folder: agrees(tf.math.expm1, SMALL, folder),
    PATCHES["Log1p"]: lambda folder: agrees(tf.math.log1p, SMALL, folder),
    PATCHES["Xlogy"]: lambda folder: agrees(lambda x: tf.math.xlogy(tf.nn.relu(x), x), SIGNS, folder),
    PATCHES["Xdivy"]: lambda folder: agrees(lambda x: tf.math.xdivy(x, tf.abs(x) * x), SIGNS, folder),
    PATCHES["MulNoNan"]: lambda folder: agrees(lambda x: tf.math.multiply_no_nan(1 / x, x), SIGNS, folder),
    PATCHES["EuclideanNorm"]: lambda folder: agrees(
        lambda x: tf.math.reduce_euclidean_norm(x, 1, keepdims=True), SIGNS, folder
    ),
    **{
        PATCHES[f"{side}Bound"]: partial(agrees, partial(among_sorted, side=side), SIGNS) for side in ("Lower", "Upper")
    },
    PATCHES["LookupTableFindV2"]: looks_integers_up,
    PATCHES["shapes of SelectV2"]: partial(looks_integers_up, mask_token=-21, num_oov_indices=2),
    PATCHES["OneHot"]: lambda folder: agrees(lambda x: tf.one_hot(x, 3), INTEGERS, folder),
    PATCHES["DenseBincount"]: partial(
        agrees, lambda x: tf.math.bincount(abs(x), tf.cast(x, tf.float32), 22, 22, axis=-1), INTEGERS
    ),
    PATCHES["Bitcast"]: lambda folder: agrees(sign_bits, SIGNS, folder),
    PATCHES["Bucketize"]: lambda folder: agrees(
        lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[-1.0, 0.0, 2.0]), SIGNS, folder
    ),
    PATCHES["FloorDiv"]: lambda folder: agrees(lambda x: x // 3, INTEGERS, folder),
    PATCHES["Atan2"]: lambda folder: agrees(lambda x: tf.math.atan2(x, x), SIGNS, folder),
    **{
        PATCHES[name]: partial(agrees, lambda x, f=function: f(x, tf.roll(x, 1, 1)), LARGE)
        for name, function in {"Less": tf.less, "Greater": tf.greater}.items()
    },
    PATCHES["MatrixBandPart"]: lambda folder: agrees(
        lambda x: tf.linalg.band_part(tf.exp(tf.stack([x * 1e3, x], 1)), 0, 1), SIGNS, folder
    ),
    PATCHES["FloorMod"]: lambda folder: agrees(lambda x: x % 0.1, SIGNS * 1e6, folder),
    PATCHES["SelectV2"]: lambda folder: agrees(lambda x: tf.where(x > 0, x, tf.exp(x + 1e3)), SIGNS, folder),
    PATCHES["Select"]: lambda folder: agrees(
        lambda x: tf.compat.v1.where(x[:, 0] <= 0, x, tf.exp(x + 1e3)), SIGNS, folder
    ),
    images.PATCHES["CropAndResize"]: lambda folder: agrees(middle_pixels, SIGNS, folder),
    images.PATCHES["ResizeBicubic"]: lambda folder: agrees(lambda x: resized(x, "bicubic"), COLOURS[:2] + 3, folder),
    images.PATCHES["ResizeNearestNeighbor"]: lambda folder: agrees(lambda x: resized(x, "nearest", 41), SIGNS, folder),
    images.PATCHES["ResizeArea"]: lambda folder: agrees(lambda x: resized(x, "area"), SIGNS + 4, folder),
    images.PATCHES["ResizeBilinear"]: lambda folder: agrees(
        lambda x: tf.image.resize(tf.reshape(tf.tile(x, [1, 270]), [-1, 1, 1080, 1]), (1, 224)), SIGNS + 4, folder
    ),
    images.PATCHES["ScaleAndTranslate"]: lambda folder: agrees(
        lambda x: tf.image.resize(tf.reshape(x, [-1, 1, 4, 1]), (1, 3), antialias=True), SIGNS, folder
    ),
    images.PATCHES["RGBToHSV"]: partial(coloured, tf.image.rgb_to_hsv),
    images.PATCHES["HSVToRGB"]: partial(coloured, tf.image.hsv_to_rgb),
    images.PATCHES["AdjustSaturation"]: partial(coloured, lambda x: tf.image.adjust_saturation(x[:, None, None], 1.7)),
    **{
        PATCHES[name]: partial(agrees, function, np.abs(SIGNS) / 4 + 0.01)
        for name, function in {"Erfinv": tf.math.erfinv, "Lgamma": tf.math.lgamma, "Digamma": tf.math.digamma}.items()
    },
    PATCHES["Cross"]: partial(coloured, lambda x: tf.linalg.cross(x, x[:, ::-1])),
    PATCHES["BroadcastArgs"]: lambda folder: agrees(
        lambda x: tf.broadcast_to(x[:1], tf.broadcast_dynamic_shape(tf.shape(x), tf.stack([3 * tf.shape(x)[0], 1, 1]))),
        SIGNS,
        folder,
    ),
    PATCHES["Conv3D"]: volumes_in_groups,
    PATCHES["TruncateMod"]: lambda folder: agrees(lambda x: tf.truncatemod(x, 3), INTEGERS, folder),
    PATCHES["MatrixDiagV3"]: lambda folder: agrees(tf.linalg.diag, SIGNS, folder),
    PATCHES["Sum"]: lambda folder: agrees(
        lambda x: tf.reduce_sum(tf.cast(x, tf.int32) * 0 + 2**30, 1), INTEGERS, folder
    ),
    PATCHES["Prod"]: lambda folder: agrees(lambda x: tf.reduce_prod(tf.cast(x, tf.int32) * 999, 1), INTEGERS, folder),
    PATCHES["ScatterNd"]: lambda folder: agrees(lambda x: tf.scatter_nd([[1], [1]], x, [3, 4]), INTEGERS, folder),
    PATCHES["SegmentMean"]: lambda folder: agrees(
        lambda x: tf.math.segment_mean(x, tf.constant([0, 2])), SIGNS.repeat(2, 0), folder
    ),
    PATCHES["TopKV2"]: lambda folder: agrees(lambda x: tf.sort(x, 1) - 2**24, LARGE, folder),
    PATCHES["SegmentMax"]: lambda folder: by_segment("segment_max", folder, (0, 2)),
    PATCHES["SegmentMin"]: lambda folder: by_segment("segment_min", folder, (0, 2)),
    PATCHES["UnsortedSegmentMax"]: lambda folder: by_segment("unsorted_segment_max", folder, (-1, 2)),
    PATCHES["UnsortedSegmentMin"]: lambda folder: by_segment("unsorted_segment_min", folder, (-1, 2)),
    PATCHES["UnsortedSegmentSum"]: lambda folder: by_segment("unsorted_segment_sum", folder, (-1, 2)),
    PATCHES["UnsortedSegmentProd"]: lambda folder: by_segment("unsorted_segment_prod", folder, (-1, 2)),
    texts.PATCHES["StaticRegexReplace"]: lambda folder: agrees(
        lambda x: tf.cast(tf.strings.regex_replace(x, "[!,']", "") == "The cat SAT", tf.int32), TEXTS, folder
    ),
    texts.PATCHES["StringSplitV2"]: lambda folder: agrees(
        lambda x: tf.strings.split(x[:, 0]).row_lengths(), TEXTS, folder
    ),
    texts.PATCHES["RaggedTensorToTensor"]: vectorizes,
    texts.PATCHES["RaggedBincount"]: partial(vectorizes, output_mode="count"),
    **{
        texts.PATCHES[name]: partial(
            agrees,
            lambda x, f=function: tf.cast(tf.reduce_any(f(x)[:, :, None] == ["\u00c4!", "THE", "the"], 2), tf.int32),
            TEXTS,
        )
        for name, function in (("StringLower", tf.strings.lower), ("StringUpper", tf.strings.upper))
    },
    texts.PATCHES["Equal"]: lambda folder: agrees(lambda x: tf.cast(x == "the", tf.int32), TEXTS, folder),
    texts.PATCHES["NotEqual"]: lambda folder: agrees(lambda x: tf.cast(x != "the", tf.int32), TEXTS, folder),
    images.PATCHES["ExtractImagePatches"]: partial(agrees, patches, COLOURS),
    PATCHES["Cumprod"]: partial(agrees, lambda x: tf.math.cumprod(x, -1), COLOURS),
    PATCHES["XlaDynamicUpdateSlice"]: partial(
        agrees, lambda x: keras.ops.slice_update(x, (tf.shape(x)[0], 1), x[:1, :2] + 1), COLOURS
    ),
    PATCHES["casts"]: partial(agrees, lambda x: tf.cast(tf.cast(x, tf.int32), tf.bool), COLOURS),
    lite_operators.PATCHES["TFL_GELU"]: partial(lite_agrees, tf.nn.gelu, COLOURS),
    lite_operators.PATCHES["L2Normalization"]: partial(
        lite_agrees, lambda x: tf.nn.l2_normalize(x, 1), SIGNS * np.float32(1e-8)
    ),
    added_scalars.PATCH: has_one_transpose,
    spectra.PATCH: lambda folder: agrees(lambda x: tf.math.real(tf.signal.rfft(x)), SIGNS, folder),
}


def test_every_correction_has_a_case() -> None:
    assert set(CASES) == set(patches_of("onnxtool.conversion.tensorflow.patches"))


@pytest.mark.parametrize("patch", CASES, ids=lambda p: p.upstream)
def test_is_needed(patch: Patch[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hold_needed(patch, lambda: CASES[patch](tmp_path), monkeypatch)


@pytest.mark.parametrize(
    ("function", "rows"),
    [
        (partial(patches, padding="VALID", rate=3), np.array([[np.inf, 1, np.nan, -2]], np.float32)),
        (lambda x: tf.math.cumprod(x, -1, exclusive=True, reverse=True), COLOURS),
        (lambda x: tf.cast(tf.cast(x, tf.float16), tf.float32), SMALL),
        (lambda x: tf.cast(tf.cast(x, tf.float32), tf.int64), LARGE),
    ],
    ids=["patches", "product", "half", "integers"],
)
def test_rounding_and_places_are_kept(function: Callable[[Any], Any], rows: np.ndarray, tmp_path: Path) -> None:
    onnxtool.convert(saved(function, rows, tmp_path), tmp_path / "out.onnx", verify_result=False)
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    (found,) = runner.run({runner.inputs[0].name: rows}).values()
    np.testing.assert_array_equal(found, function(tf.constant(rows)).numpy())


@pytest.mark.parametrize(
    ("function", "rows"),
    [
        (lambda x: x // 3 + x % 4, INTEGERS.astype(np.int32)),
        (lambda x: tf.one_hot(x, 3), INTEGERS.astype(np.int32)),
        (lambda x: tf.math.top_k(x, 2)[0], LARGE.astype(np.int32)),
        (lambda x: tf.reduce_sum(x, 1), np.full((1, 4), 2**30, np.int32)),
        (partial(tf.nn.gelu, approximate=True), COLOURS),
    ],
    ids=["division", "classes", "order", "sum", "gelu"],
)
def test_lite_files_are_corrected_too(function: Callable[[Any], Any], rows: np.ndarray, tmp_path: Path) -> None:
    assert lite_agrees(function, rows, tmp_path)


def turned(x: Any) -> Any:
    """The last row first, in a loop that reads the same list as the one before."""
    decayed = [tf.scan(lambda a, v: a * 0.5 + v, x, tf.zeros(4), reverse=r) for r in (False, True)]
    return decayed[0] - 2 * decayed[1]


def own_results(x: Any) -> Any:
    """Each is half of the one before, and the next row."""
    rows = tf.TensorArray(tf.float32, tf.shape(x)[0], clear_after_read=False).write(0, x[0])

    def write(i: Any, rows: Any) -> Any:
        return i + 1, rows.write(i, rows.read(i - 1) * 0.5 + x[i])

    return tf.while_loop(lambda i, _: i < rows.size(), write, [1, rows])[1].concat()


def growing(x: Any) -> Any:
    """With one row before the loop."""
    rows = tf.TensorArray(tf.float32, 1, dynamic_size=True, clear_after_read=False).write(0, x[0])
    body = lambda i, rows: (i + 1, rows.write(i, rows.read(i - 1) * 0.5))  # noqa: E731
    return tf.while_loop(lambda i, _: i < 6, body, [1, rows])[1].stack()


def by_branch(x: Any) -> Any:
    """What is written hangs on the row."""
    rows = tf.TensorArray(tf.float32, tf.shape(x)[0])

    def write(i: Any, rows: Any) -> Any:
        return i + 1, tf.cond(x[i, 0] > 0, lambda: rows.write(i, x[i]), lambda: rows.write(i, -2 * x[i]))

    return tf.while_loop(lambda i, _: i < tf.shape(x)[0], write, [0, rows])[1].stack()


@pytest.mark.parametrize("function", [turned, own_results, growing, by_branch])
def test_loops_fill_and_read_lists_in_any_order(function: Callable[[Any], Any], tmp_path: Path) -> None:
    report = onnxtool.convert(saved(function, COLOURS, tmp_path), tmp_path / "out.onnx", effort="quick")
    assert report.ok
    for rows in (COLOURS, COLOURS[7:8], COLOURS[20:25]):
        (found,) = OnnxRunner.open(tmp_path / "out.onnx").run({"x": rows}).values()
        np.testing.assert_allclose(found, function(tf.constant(rows)), rtol=1e-5, atol=1e-6)


def test_rows_without_a_number_become_a_table(tmp_path: Path) -> None:
    onnxtool.convert(
        saved(lambda x: tf.RaggedTensor.from_tensor(x, padding=0.0).to_tensor(-1.0), COLOURS, tmp_path),
        tmp_path / "out.onnx",
        verify_result=False,
    )
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    assert runner.run({"x": np.zeros((3, 4), np.float32)})["y"].shape == (3, 0)
    (found,) = runner.run({"x": np.float32([[0, 0, 0, 0], [1, 0, 2, 0]])}).values()
    np.testing.assert_array_equal(found, [[-1, -1, -1], [1, 0, 2]])


@pytest.mark.parametrize("side", ["left", "right"])
def test_what_is_no_number_lies_where_tensorflow_has_it(side: str, tmp_path: Path) -> None:
    """Bins of a Discretization, and places in a sorted row."""
    rows = np.array([[np.nan, -np.inf, np.inf, 0.0]], np.float32)
    assert agrees(lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[-1.0, 0.0, 2.0]), rows, tmp_path)
    assert agrees(lambda x: tf.searchsorted(tf.constant([-2.0, 0.0, 0.0, 2.5]), x[0], side), rows, tmp_path)


@pytest.mark.parametrize("method", ["lanczos3", "lanczos5", "gaussian", "mitchellcubic", "bicubic", "bilinear"])
def test_images_are_resized_by_every_kernel(method: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((2, 300, 4)).astype(np.float32)

    def resize(x: Any) -> Any:
        image = tf.reshape(tf.tile(x, [1, 75]), [-1, 75, 4, 1])
        return tf.image.resize(image, (31, 7), method, antialias=True)

    # Weights of both signs cancel, and TensorFlow itself adds them in another order from run to run.
    assert agrees(resize, x[:, 0], tmp_path, atol=1e-6)


@pytest.mark.parametrize("size", [(8, 9), (21, 40)], ids=["smaller", "larger"])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("known", [True, False], ids=["to a known size", "to a computed size"])
def test_images_of_any_size_are_resized_to_the_bit(
    size: tuple[int, int], dtype: str, known: bool, tmp_path: Path
) -> None:
    spec = tf.TensorSpec([None, None, None, 3], dtype)
    module = tf.Module()
    module.call = tf.function(
        lambda x: {"y": tf.image.resize(x, size if known else tf.shape(x)[1:3] * 0 + size)}, input_signature=[spec]
    )
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.call.get_concrete_function())
    onnxtool.convert(tmp_path / "model", tmp_path / "out.onnx", verify_result=False)
    x = np.random.default_rng(0).uniform(0, 255, (2, 19, 30, 3)).astype(dtype)
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    (found,) = runner.run({runner.inputs[0].name: x}).values()
    np.testing.assert_array_equal(found, tf.image.resize(x, size).numpy())


@pytest.mark.parametrize(
    "options",
    [
        {"output_sequence_length": 5},
        {},
        {"standardize": "strip_punctuation"},
        {"standardize": None},
        {"split": None},
        {"output_mode": "multi_hot"},
        {"output_mode": "tf_idf"},
    ],
    ids=str,
)
def test_texts_are_vectorized_as_keras_does(tmp_path: Path, options: dict[str, Any]) -> None:
    assert vectorizes(tmp_path, **options)


@pytest.mark.parametrize(
    ("keys", "values", "default"),
    [
        (["the", "\u00c4!"], [1.5, 2.5], -1.0),
        (["the", "\u00c4!"], ["x", "\u00fc"], "none"),
        ([-7, 5], [1.5, 2.5], -1.0),
        ([-7, 5], ["x", "\u00fc"], "none"),
        (["the", "\u00c4!"], [2, 3], -1),
    ],
    ids=["text float", "text text", "integer float", "integer text", "text integer"],
)
@pytest.mark.parametrize("narrow", [False, True], ids=["int64", "int32"])
def test_tables_of_all_types(tmp_path: Path, keys: list[Any], values: list[Any], default: Any, narrow: bool) -> None:
    integers = tf.int32 if narrow else tf.int64
    kinds = [{str: tf.string, float: tf.float32, int: integers}[type(of[0])] for of in (keys, values)]
    given = tf.lookup.KeyValueTensorInitializer(tf.constant(keys, kinds[0]), tf.constant(values, kinds[1]))
    module = tf.Module()
    module.table = tf.lookup.StaticHashTable(given, default)
    signature = [tf.TensorSpec([None, 4], kinds[0])]
    module.call = tf.function(lambda x: {"y": module.table.lookup(x)}, input_signature=signature)
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.call.get_concrete_function())

    report = onnxtool.convert(tmp_path / "model", tmp_path / "out.onnx")  # compares the texts, too

    assert report.ok
    rows = TEXTS if kinds[0] == tf.string else INTEGERS.astype(kinds[0].as_numpy_dtype)
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    (found,) = runner.run({runner.inputs[0].name: rows}).values()
    want = module.table.lookup(tf.constant(rows)).numpy()
    assert found.tolist() == [[w.decode() if isinstance(w, bytes) else w for w in row] for row in want.tolist()]


def test_texts_are_changed_in_a_branch_too(tmp_path: Path) -> None:
    def cleaned(x: Any) -> Any:
        plain = tf.cond(tf.shape(x)[0] > 1, lambda: tf.strings.regex_replace(x, "[!,]", ""), lambda: x)
        return tf.cast(plain == "The cat SAT", tf.int32)

    assert agrees(cleaned, TEXTS, tmp_path)
    assert agrees(cleaned, TEXTS[:1], tmp_path)


def test_what_has_no_form_for_texts_is_refused() -> None:
    for options in ({"ngrams": 2}, {"split": "character"}):
        layer = keras.layers.TextVectorization(**options)
        layer.adapt(["a b"])
        with pytest.raises(UnsupportedError, match="no ONNX form is known for TensorFlow's"):
            onnxtool.convert(keras.Sequential([keras.Input([1], dtype="string"), layer]))
