"""What TensorFlow computes is written down by its own graph: right files are certified, wrong ones never."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

pytest.importorskip("tf2onnx")
import keras
import tensorflow as tf
from keras import layers

import onnxtool
from onnxtool.conversion.adapter import SourceModel
from onnxtool.conversion.convert import open_source
from onnxtool.equality.certificate.sources import certify_source
from onnxtool.errors import UnsupportedError
from onnxtool.runtime.runner import OnnxRunner

RNG = np.random.default_rng(3)


def image() -> Any:
    x = keras.Input((9, 9, 3))
    y = layers.Conv2D(4, 3, strides=2, padding="same", use_bias=False)(x)
    y = layers.ReLU()(layers.BatchNormalization(epsilon=1e-2)(y))
    y = layers.MaxPooling2D(2)(layers.DepthwiseConv2D(3, padding="same")(y))
    y = layers.UpSampling2D(2)(layers.Conv2DTranspose(4, 3, strides=2, padding="same")(y))
    return keras.Model(x, layers.Dense(3, activation="softmax")(layers.GlobalAveragePooling2D()(y)))


def text() -> Any:
    x = keras.Input((None,), dtype="int32")
    y = layers.Embedding(12, 8)(x)
    y = layers.LayerNormalization(epsilon=1e-3)(y + layers.MultiHeadAttention(2, 4)(y, y))
    return keras.Model(x, layers.Dense(2, activation="gelu")(y))


def series() -> Any:
    x = keras.Input((7, 4))
    y = layers.Conv1D(4, 3, padding="causal", dilation_rate=2, activation="tanh")(x)
    return keras.Model(x, layers.Dense(2)(layers.Flatten()(layers.AveragePooling1D(3, 2, padding="same")(y))))


@dataclass
class Made:
    """A model with weights other than those of the start, an input, and its file."""

    source: SourceModel
    feeds: dict[str, np.ndarray]
    file: Path
    proto: onnx.ModelProto

    def verdict(self, proto: onnx.ModelProto) -> str:
        return certify_source(self.source, ir.from_proto(proto), [self.feeds], seconds=1).verdict


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    @cache
    def made(name: str) -> Made:
        model = {"image": image, "text": text, "series": series}[name]()
        for weight in model.weights:
            signs = 1 if "variance" in weight.path else RNG.choice([-1, 1], weight.shape)
            weight.assign(RNG.uniform(0.3, 1.3, weight.shape) * signs)
        file = tmp_path_factory.mktemp(name) / "out.onnx"
        onnxtool.convert(model, file, effort="quick")
        source: Any = open_source(model)
        (spec,) = source.inputs
        shape = [2, *(d if isinstance(d, int) else 5 for d in spec.shape[1:])]
        numbers = RNG.normal(size=shape) if spec.dtype.kind == "f" else RNG.integers(0, 12, shape)
        return Made(source, {spec.name: numbers.astype(spec.dtype)}, file, onnx.load(file))

    return made


@pytest.mark.parametrize("name", ["image", "text", "series"])
def test_the_trace_gives_what_the_source_gives_and_certifies_its_file(
    name: str, models: Callable[[str], Made], tmp_path: Path
) -> None:
    made = models(name)
    ir.save(made.source.operator_trace(made.feeds), tmp_path / "trace.onnx")
    found, expected = OnnxRunner.open(tmp_path / "trace.onnx").run(made.feeds), made.source.run(made.feeds)
    for output, array in expected.items():
        np.testing.assert_allclose(found[output], array, rtol=1e-4, atol=1e-5)
    report = certify_source(made.source, ir.load(made.file), [made.feeds])
    assert report.verdict == "certified", report.reason
    assert report.points


@pytest.mark.parametrize("name", ["image", "text"])
def test_a_changed_last_bit_is_never_certified(name: str, models: Callable[[str], Made]) -> None:
    made, changed = models(name), 0
    inner: Any = getattr(made.source, "_model", made.source)
    own = {np.sort(w.numpy().reshape(-1)).tobytes() for w in inner.model.weights}
    for k, tensor in enumerate(made.proto.graph.initializer):
        array = numpy_helper.to_array(tensor).copy()
        # What is added to all keys moves all scores of a query alike: that is the same function.
        if array.dtype != np.float32 or array.size < 2 or "key" in tensor.name:
            continue
        at = int(RNG.integers(array.size))
        steps = 1 if np.sort(array.reshape(-1)).tobytes() in own else 1000  # folded ones may be rounded either way
        for _ in range(steps):
            array.reshape(-1)[at] = np.nextafter(array.reshape(-1)[at], np.float32(9))
        mutant = onnx.ModelProto.FromString(made.proto.SerializeToString())
        mutant.graph.initializer[k].CopyFrom(numpy_helper.from_array(array, tensor.name))
        assert made.verdict(mutant) != "certified", f"{tensor.name}[{at}]"
        changed += 1
    assert changed > 5


@pytest.mark.parametrize(
    ("name", "kind", "attribute"),
    [("image", "Conv", "pads"), ("image", "ConvTranspose", "pads"), ("image", "MaxPool", "strides"),
     ("text", "Softmax", "axis"), ("text", "Transpose", "perm"), ("series", "Conv", "dilations"),
     ("series", "AveragePool", "count_include_pad")],
)  # fmt: skip
def test_a_wrong_conversion_is_never_certified(
    name: str, kind: str, attribute: str, models: Callable[[str], Made]
) -> None:
    made = models(name)
    proto = onnx.ModelProto.FromString(made.proto.SerializeToString())
    node = next(n for n in proto.graph.node if n.op_type == kind)
    held = {a.name: a for a in node.attribute}
    if attribute in held and held[attribute].ints:  # the other way round, or larger where all are alike
        ints = list(held[attribute].ints)
        held[attribute].ints[:] = [*ints[1:], ints[0]] if len(set(ints)) > 1 else [n + 1 for n in ints]
    else:
        for old in [a for a in node.attribute if a.name == attribute]:
            node.attribute.remove(old)
        node.attribute.append(onnx.helper.make_attribute(attribute, 1))
    assert made.verdict(proto) != "certified"


@pytest.mark.parametrize("epsilon", [1e-3, 1.0001e-2])
def test_another_epsilon_is_never_certified(epsilon: float, models: Callable[[str], Made], tmp_path: Path) -> None:
    made = models("image")
    inner: Any = getattr(made.source, "_model", made.source)
    layer = next(i for i in inner.model.layers if isinstance(i, layers.BatchNormalization))
    right, layer.epsilon = layer.epsilon, epsilon
    try:
        onnxtool.convert(inner.model, tmp_path / "wrong.onnx", effort="quick")
    finally:
        layer.epsilon = right
    assert made.verdict(onnx.load(tmp_path / "wrong.onnx")) != "certified"


def traced(function: Callable[..., Any], *specs: Any, folder: Path) -> SourceModel:
    module = tf.Module()
    module.call = tf.function(function, input_signature=list(specs))
    tf.saved_model.save(module, str(folder / "model"), signatures=module.call.get_concrete_function())
    return open_source(folder / "model")


def test_loops_of_known_length_are_unrolled_and_those_that_the_data_ends_are_refused(tmp_path: Path) -> None:
    x = tf.TensorSpec([None, 3], name="x")
    source = traced(lambda x: {"y": tf.scan(lambda a, r: a * 0.5 + r, x)}, x, folder=tmp_path / "known")
    feeds = {"x": RNG.normal(size=(4, 3)).astype(np.float32)}
    ir.save(source.operator_trace(feeds), tmp_path / "trace.onnx")
    np.testing.assert_allclose(
        OnnxRunner.open(tmp_path / "trace.onnx").run(feeds)["y"], source.run(feeds)["y"], rtol=1e-6
    )
    doubled = traced(
        lambda x: {"y": tf.while_loop(lambda v: tf.reduce_sum(v) < 9, lambda v: [v * 2], [x])[0]},
        x,
        folder=tmp_path / "data",
    )
    with pytest.raises(UnsupportedError, match="the end of a loop of its graph is decided by the data"):
        doubled.operator_trace({"x": np.ones((1, 3), np.float32)})


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (tf.math.lgamma, "operation Lgamma has no exact form here"),
        (lambda x: x + tf.random.uniform(tf.shape(x)), "operation RandomUniform draws random numbers"),
        (lambda x: tf.boolean_mask(x, x[:, 0] > 0), "operation Where has no exact form here"),
    ],
)
def test_what_has_no_exact_form_is_said_in_one_line(
    function: Callable[[Any], Any], reason: str, tmp_path: Path
) -> None:
    source = traced(lambda x: {"y": function(x)}, tf.TensorSpec([None, 3], name="x"), folder=tmp_path)
    with pytest.raises(UnsupportedError, match=reason) as caught:
        source.operator_trace({"x": np.ones((2, 3), np.float32)})
    assert "\n" not in str(caught.value)


def test_moves_come_from_where_tensorflow_takes_them(tmp_path: Path) -> None:
    """Elements that are moved, cut, padded or repeated, against TensorFlow's own kernels."""

    def moved(x: Any) -> dict[str, Any]:
        return {
            "cut": x[:, ::-2, tf.newaxis],
            "padded": tf.pad(x, [[0, 0], [2, 1], [0, 0]], constant_values=7.0),
            "mirrored": tf.pad(x, [[0, 0], [2, 1], [1, 1]], "REFLECT"),
            "rolled": tf.roll(x, [1, 2], [1, 2]),
            "parts": tf.stack(tf.split(x, 2, axis=2)[::-1]),
            "band": tf.linalg.band_part(x, 1, 0),
            "diagonal": tf.linalg.diag(x[:, 0]),
            "taken": tf.gather(x, [3, 0, 0], axis=1),
            "scattered": tf.tensor_scatter_nd_update(x, [[0, 1], [1, 2]], x[0, :2]),
            "patches": tf.image.extract_patches(x[..., None], [1, 2, 3, 1], [1, 1, 2, 1], [1, 1, 1, 1], "SAME"),
            "nearest": tf.image.resize(x[..., None], [3, 9], "nearest"),
        }

    source = traced(moved, tf.TensorSpec([None, 4, 4], name="x"), folder=tmp_path)
    feeds = {"x": RNG.normal(size=(2, 4, 4)).astype(np.float32)}
    ir.save(source.operator_trace(feeds), tmp_path / "trace.onnx")
    found = OnnxRunner.open(tmp_path / "trace.onnx").run(feeds)
    for name, array in moved(tf.constant(feeds["x"])).items():
        np.testing.assert_array_equal(found[name], array.numpy(), err_msg=name)
