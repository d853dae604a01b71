"""Families of Keras layers: converted, equal at several sizes, names and dims kept, no needless Transpose."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.conversion.convert import convert
from onnxtool.conversion.input_plan import name_dims, unique
from onnxtool.conversion.keras import trace
from onnxtool.conversion.tensorflow.environment import import_keras, quiet
from onnxtool.errors import UnsupportedError, UsageError, VerdictError
from onnxtool.model import io
from onnxtool.model.ir.queries import operator_counts
from onnxtool.runtime.runner import OnnxRunner
from tests.conversion.patched import hold_needed

import_keras("the tests")
with quiet():
    import keras
    from keras import layers

    from tests.conversion.keras.keras_models import FAMILIES, stack

# family -> what the ONNX file must take and give
INTERFACES = {
    "subclassed": (["x: float32[batch, 6]"], ["output: float32[batch, 3]"]),
    "LSTM with states": (
        ["steps: float32[batch, length, 4]"],
        ["sequence: float32[batch, length, 5]", "hidden: float32[batch, 5]", "cell: float32[batch, 5]"],
    ),
    "LSTM, masked": (["tokens: int32[batch, length]"], ["out: float32[batch, 2]"]),
    "GRU": (["steps: float32[batch, length, 6]"], ["out: float32[batch, 2]"]),
    "Bidirectional": (["steps: float32[batch, length, 6]"], ["out: float32[batch, 2]"]),
    "TimeDistributed": (["frames: float32[batch, length, 8, 8, 1]"], ["out: float32[batch, 2]"]),
    "group normalization of any size": (
        ["image: float32[batch, height, width, 4]"],
        ["out: float32[batch, height, width, 3]"],
    ),
    "TimeDistributed, masked": (["tokens: int32[batch, length]"], ["out: float32[batch, 4]"]),
    "TimeDistributed, masked inside": (["tokens: int32[batch, length, 5]"], ["out: float32[batch, length, 3]"]),
    "attention, causal": (["steps: float32[batch, length, 12]"], ["out: float32[batch, length, 2]"]),
    "attention, two lengths": (
        ["query: float32[batch, query_length, 8]", "value: float32[batch, value_length, 8]"],
        ["attended: float32[batch, query_length, 8]"],
    ),
    "transformer": (["tokens: int64[batch, 12]"], ["logits: float32[batch, 12, 60]"]),
    "embedding": (["tokens: int32[batch, length]"], ["out: float32[batch, 3]"]),
    "resize": (
        ["image: float32[batch, 8, 8, 3]"],
        [f"{name}: float32[batch, 16, 16, 3]" for name in ("bilinear", "nearest", "bicubic")],
    ),
    "transposed convolution": (["image: float32[batch, 8, 8, 3]"], ["picture: float32[batch, 34, 34, 4]"]),
    "depthwise convolution": (["image: float32[batch, 16, 16, 4]"], ["out: float32[batch, 3]"]),
    "grouped convolution": (["image: float32[batch, 8, 8, 8]"], ["out: float32[batch, 3]"]),
    "several inputs and outputs": (
        ["left: float32[batch, 4]", "right: float32[batch, 6]"],
        ["first: float32[batch, 2]", "second: float32[batch, 3]"],
    ),
    "dictionaries": (
        ["left: float32[batch, 4]", "right: float32[batch, 6]"],
        ["first: float32[batch, 2]", "second: float32[batch, 3]"],
    ),
    "operations": (
        ["x: float32[batch, 6, 4]"],
        [
            "joined: float32[batch, 6, 8]",
            "best: float32[batch, 3]",
            "index: int32[batch, 6]",
            "running: float32[batch, 6, 4]",
            "length: float32[batch, 6]",
            "chosen: float32[batch, 6, 4]",
        ],
    ),
    "image of any size": (["image: float32[batch, height, width, 3]"], ["out: float32[batch, 2]"]),
    "buckets": (["x: float32[batch, 3]"], ["out: float32[batch, 4]"]),
}


def save(model: Any, folder: Path) -> Path:
    with quiet():
        model.save(folder / "model.keras")
    return folder / "model.keras"


@pytest.mark.parametrize("family", INTERFACES)
def test_a_family_of_layers_is_equal_and_keeps_its_names(tmp_path: Path, family: str) -> None:
    keras.utils.set_random_seed(1)
    report = convert(save(FAMILIES[family](), tmp_path), tmp_path / "out.onnx")
    assert report.ok, report.comparison
    assert report.comparison is not None
    assert len(report.comparison.runs) == 3
    inputs, outputs = INTERFACES[family]
    assert [str(i) for i in report.inputs] == inputs
    assert [str(o) for o in report.outputs] == outputs


def test_a_seed_that_no_output_hangs_on_is_held(tmp_path: Path) -> None:
    """Some layers that augment pictures draw random numbers in inference too, and do not use them."""
    picture = keras.Input((4, 4, 3))
    augmented = keras.layers.RandomSaturation(0.7)(keras.layers.RandomGrayscale(0.5)(picture))
    assert convert(keras.Model(picture, augmented * 2), tmp_path / "out.onnx", effort="quick").ok

    class DrawsAlways(keras.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = keras.layers.Dropout(0.5)

        def call(self, x: Any) -> Any:
            return self.dropout(x, training=True)

    with pytest.raises(UnsupportedError, match="changes its own variables"):
        convert(keras.Model(picture, DrawsAlways()(augmented)), tmp_path / "draws.onnx", effort="quick")


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras' own, as it quantizes
def test_what_is_quantized_stays_so_in_float32(tmp_path: Path) -> None:
    dense = keras.layers.Dense(4, dtype="mixed_bfloat16")
    model = keras.Sequential([keras.Input((8,)), dense])
    dense.quantize("int8")

    assert convert(model, tmp_path / "out.onnx").ok

    rows = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    (found,) = runner.run({runner.inputs[0].name: rows}).values()
    expected = np.asarray(keras.ops.cast(model(rows), "float32"))  # of bfloat16, which has 8 bits
    np.testing.assert_allclose(found, expected, atol=0.05)


def test_float32_is_held_against_the_model_in_bfloat16(tmp_path: Path) -> None:
    class ByType(keras.Layer):
        def call(self, x: Any) -> Any:
            return x * (3 if self.compute_dtype == "bfloat16" else 1)

    image = keras.Input((8,))
    with pytest.raises(VerdictError, match=r"67% off .* what the model gives in bfloat16"):
        convert(keras.Model(image, ByType(dtype="bfloat16")(image)), tmp_path / "out.onnx", effort="quick")


@pytest.mark.parametrize("policy", ["bfloat16", "mixed_bfloat16"])
def test_bfloat16_is_computed_in_float32_and_the_model_stays_as_it_is(tmp_path: Path, policy: str) -> None:
    layers = keras.layers
    keras.config.set_dtype_policy(policy)
    try:
        image = keras.Input((8,), name="x")
        inner = keras.Sequential([layers.Dense(5), layers.BatchNormalization()])
        model = keras.Model(image, layers.Dense(4)(inner(keras.ops.tanh(layers.Dense(6)(image)))))
    finally:
        keras.config.set_dtype_policy("float32")
    before = np.asarray(keras.ops.cast(model(np.ones((2, 8), np.float32)), "float32"))

    report = convert(model, tmp_path / "out.onnx")

    assert report.ok
    assert report.outputs[0].dtype == "float32"
    assert any("bfloat16 is computed as float32" in note for note in report.notes)
    after = model(np.ones((2, 8), np.float32))
    assert keras.backend.standardize_dtype(after.dtype) == "bfloat16"
    np.testing.assert_array_equal(np.asarray(keras.ops.cast(after, "float32")), before)


def test_every_activation_is_equal_to_keras_on_a_grid(tmp_path: Path) -> None:
    model = FAMILIES["activations"]()
    report = convert(save(model, tmp_path), tmp_path / "out.onnx")
    assert report.ok, [vars(output) for output in report.comparison.outputs if not output.ok]
    x = np.linspace(-6, 6, 200, dtype=np.float32).reshape(20, 10)
    found = OnnxRunner.open(tmp_path / "out.onnx").run({"x": x})
    with quiet():
        expected = [keras.ops.convert_to_numpy(t) for t in model(x, training=False)]
    for name, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(found[name], right, rtol=1e-4, atol=1e-6, err_msg=name)


def test_squeeze_and_excite_with_hard_swish_needs_one_transpose(tmp_path: Path) -> None:
    image = keras.Input((16, 16, 3), name="image")
    x = layers.Conv2D(8, 3, padding="same")(image)
    x = layers.Activation("hard_silu")(x)
    x = x * (layers.ReLU(6.0)(x + 3.0) * (1.0 / 6.0))
    gate = layers.GlobalAveragePooling2D()(x)
    gate = layers.Conv2D(8, 1, activation="sigmoid")(layers.Reshape((1, 1, 8))(gate))
    x = layers.Conv2D(4, 3, padding="same")(layers.Multiply()([x, gate]))
    model = keras.Model(image, layers.GlobalAveragePooling2D(name="out")(x))
    assert convert(save(model, tmp_path), tmp_path / "out.onnx").ok
    assert operator_counts(io.load(tmp_path / "out.onnx"))["Transpose"] == 1


def test_nchw_layout_turns_the_interface(tmp_path: Path) -> None:
    model = stack(keras.Input((6, 8, 3), name="image"), layers.Conv2D(5, 3, padding="same", name="picture"))
    report = convert(save(model, tmp_path), tmp_path / "out.onnx", layout="nchw")
    assert report.ok
    assert [str(i) for i in report.inputs] == ["image: float32[batch, 3, 6, 8]"]
    assert [str(o) for o in report.outputs] == ["picture: float32[batch, 5, 6, 8]"]
    assert "Transpose" not in operator_counts(io.load(tmp_path / "out.onnx"))
    image = np.random.default_rng(0).standard_normal((2, 6, 8, 3)).astype(np.float32)
    found = OnnxRunner.open(tmp_path / "out.onnx").run({"image": image.transpose(0, 3, 1, 2)})["picture"]
    with quiet():
        expected = keras.ops.convert_to_numpy(model(image))
    np.testing.assert_allclose(found.transpose(0, 2, 3, 1), expected, rtol=1e-4, atol=1e-5)


def test_shapes_dtypes_and_names_can_be_given(tmp_path: Path) -> None:
    model = stack(keras.Input((None, 4), name="steps"), layers.GlobalAveragePooling1D(name="mean"))
    report = convert(
        save(model, tmp_path),
        tmp_path / "out.onnx",
        input_shapes={"steps": ("rows", 7, 4)},
        input_dtypes={"steps": np.dtype("float64")},
        input_names=("values",),
        output_names=("average",),
    )
    assert report.ok
    assert [str(i) for i in report.inputs] == ["values: float64[rows, 7, 4]"]
    assert [str(o) for o in report.outputs] == ["average: float32[rows, 4]"]


@pytest.mark.parametrize("opset", [13, 18, 21])
def test_the_opset_is_written_as_asked(fixtures: Path, tmp_path: Path, opset: int) -> None:
    report = convert(fixtures / "digits_keras.keras", tmp_path / "out.onnx", opset=opset)
    assert report.ok
    assert report.opset == opset


def test_a_subclassed_model_from_a_factory_needs_a_shape(tmp_path: Path) -> None:
    factory = tmp_path / "net.py"
    factory.write_text(
        "import keras\n"
        "class Net(keras.Model):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.dense = keras.layers.Dense(3)\n"
        "    def call(self, values):\n"
        "        return {'scores': self.dense(values)}\n"
    )
    settings: dict[str, Any] = {"factory": f"{factory}:Net"}
    with pytest.raises(UsageError, match="--input-shape"):
        convert(None, tmp_path / "out.onnx", **settings)
    report = convert(None, tmp_path / "out.onnx", input_shapes={"": ("batch", 5)}, **settings)
    assert report.ok
    assert [str(i) for i in report.inputs] == ["values: float32[batch, 5]"]
    assert [str(o) for o in report.outputs] == ["scores: float32[batch, 3]"]


def test_a_subclassed_model_takes_several_arguments(tmp_path: Path) -> None:
    class Scored(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(3)

        def call(self, query: Any, items: Any, scale: float = 2.0) -> Any:
            return keras.ops.einsum("bd,btd->bt", self.dense(query), items) * scale

    shapes: dict[str, tuple[int | str, ...]] = {"items": ("batch", 5, 3), "query": ("batch", 4)}
    with pytest.raises(UsageError, match="'items' is not known"):
        convert(Scored(), tmp_path / "out.onnx", input_shapes={"query": ("batch", 4)})
    report = convert(Scored(), tmp_path / "out.onnx", input_shapes=shapes)
    assert report.ok
    assert [str(i) for i in report.inputs] == ["query: float32[batch, 4]", "items: float32[batch, 5, 3]"]


def test_pictures_of_bytes_are_resized_to_floats_as_predict_does(tmp_path: Path) -> None:
    image = keras.Input((None, None, 3), dtype="uint8")
    model = keras.Model(image, keras.layers.Resizing(8, 8, crop_to_aspect_ratio=True)(image))
    report = convert(model, tmp_path / "out.onnx", effort="quick")
    assert report.ok
    assert str(report.outputs[0].dtype) == "float32"


class Doubled(keras.Model):  # type: ignore[misc]
    """Computes in the type that it is given."""

    def call(self, x: Any) -> Any:
        return x * 2


class Filtered(keras.Model):  # type: ignore[misc]
    """Takes floats alone."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = keras.layers.Conv1D(2, 2)

    def call(self, x: Any) -> Any:
        return self.filters(x)


def test_a_subclassed_model_computes_in_the_type_that_it_is_given(tmp_path: Path) -> None:
    options: dict[str, Any] = {"input_shapes": {"": ("batch", 4)}, "input_dtypes": {"": np.dtype("int32")}}
    report = convert(Doubled(), tmp_path / "out.onnx", **options)
    assert report.ok
    assert str(report.outputs[0]) == "output: int32[batch, 4]"


def test_a_subclassed_model_that_takes_floats_alone_says_that_integers_are_cast(tmp_path: Path) -> None:
    options: dict[str, Any] = {"input_shapes": {"": (2, 4, 3)}, "input_dtypes": {"": np.dtype("uint8")}}
    report = convert(Filtered(), tmp_path / "out.onnx", **options)
    assert report.ok
    assert str(report.inputs[0]) == "x: uint8[2, 4, 3]"
    assert "the model does not take uint8: its inputs are cast to float32" in report.notes


def test_images_of_any_size_are_enlarged_between_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = keras.Input((None, None, 2))
    model = keras.Model(image, keras.layers.UpSampling2D(2, interpolation="bilinear")(image))
    hold_needed(trace.SIZES, lambda: convert(model, tmp_path / "out.onnx").ok, monkeypatch)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "area"])
def test_images_of_any_size_are_resized(interpolation: str, tmp_path: Path) -> None:
    image = keras.Input((None, None, 2))
    model = keras.Model(image, keras.layers.Resizing(5, 7, interpolation=interpolation)(image))
    assert convert(model, tmp_path / "out.onnx").ok


def test_an_operator_without_an_onnx_form_is_named(tmp_path: Path) -> None:
    factory = tmp_path / "odd.py"
    factory.write_text(
        "import keras, tensorflow as tf\n"
        "class Odd(keras.layers.Layer):\n"
        "    def call(self, x):\n"
        "        return tf.math.bessel_i0e(x)\n"
        "def make():\n"
        "    return keras.Sequential([keras.Input((3,), name='x'), Odd()])\n"
    )
    with pytest.raises(UnsupportedError, match="BesselI0e"):
        convert(None, tmp_path / "out.onnx", factory=f"{factory}:make", adapter="keras")
    assert not (tmp_path / "out.onnx").exists()


def test_unknown_dims_get_names_that_say_what_they_are() -> None:
    assert name_dims({"x": (None, None, 4)}) == {"x": ("batch", "length", 4)}
    assert name_dims({"x": (None, None, None, 3)}) == {"x": ("batch", "height", "width", 3)}
    assert name_dims({"a": (None, None), "b": (None, None)}) == {"a": ("batch", "a_length"), "b": ("batch", "b_length")}
    assert name_dims({"a": (None, None), "b": (2, 3)}) == {"a": ("batch", "length"), "b": (2, 3)}


def test_names_that_come_again_get_numbers() -> None:
    assert unique(["a", "b", "a", "a_1"]) == ["a", "b", "a_1", "a_1_1"]
    assert max(Counter(unique(["x"] * 5)).values()) == 1


def test_layers_that_keras_quantized_keep_their_integers(tmp_path: Path) -> None:
    entry, dense = keras.Input((16,)), [layers.Dense(32, activation="relu"), layers.Dense(4)]
    model = keras.Model(entry, dense[1](dense[0](entry)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of its own
        for layer in dense:
            layer.quantize("int8")
    assert convert(model, tmp_path / "out.onnx", effort="quick").ok
    model = io.load(tmp_path / "out.onnx")
    assert operator_counts(model)["MatMulInteger"] == 2
    stored = {tuple(v.shape) for v in model.graph.initializers.values() if v.dtype == ir.DataType.INT8}
    assert stored >= {(16, 32), (32, 4)}
