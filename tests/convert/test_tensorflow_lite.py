"""TensorFlow Lite files: names, sizes, quantized models refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxtool.convert.api import convert
from onnxtool.convert.tensorflow_quiet import import_keras, import_tensorflow, quiet
from onnxtool.errors import UnsupportedError
from onnxtool.runtime.runner import OnnxRunner
from tests.conftest import Result

tf = import_tensorflow("the tests")
keras = import_keras("the tests")


@pytest.fixture(scope="module")
def model() -> Any:
    keras.utils.set_random_seed(2)
    layers = keras.layers
    with quiet():
        image = keras.Input((8, 8, 3), name="image")
        x = layers.DepthwiseConv2D(3, padding="same", activation="relu")(image)
        x = layers.UpSampling2D(2)(layers.MaxPooling2D()(x))
        return keras.Model(image, layers.Dense(4, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


@pytest.fixture(scope="module")
def lite(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lite")
    with quiet():
        converter = tf.lite.TFLiteConverter.from_keras_model(model)
        (folder / "model.tflite").write_bytes(converter.convert())
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        samples = np.random.default_rng(0).standard_normal((4, 1, 8, 8, 3)).astype(np.float32)
        converter.representative_dataset = lambda: ([sample] for sample in samples)
        (folder / "integers.tflite").write_bytes(converter.convert())
    return folder


def test_a_lite_file_gives_what_keras_gives(lite: Path, model: Any, tmp_path: Path) -> None:
    report = convert(lite / "model.tflite", tmp_path / "out.onnx")
    assert report.ok
    assert report.form == "TensorFlow Lite model"
    assert [str(i) for i in report.inputs] == ["image: float32[batch, 8, 8, 3]"]
    image = np.random.default_rng(1).standard_normal((3, 8, 8, 3)).astype(np.float32)
    (found,) = OnnxRunner.open(tmp_path / "out.onnx").run({"image": image}).values()
    with quiet():
        expected = keras.ops.convert_to_numpy(model(image))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_quantized_lite_file_is_refused_in_words(lite: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="onnxtool quantize"):
        convert(lite / "integers.tflite", tmp_path / "out.onnx")


def test_a_damaged_lite_file_ends_in_one_line(lite: Path, tmp_path: Path, onnxtool: Callable[..., Result]) -> None:
    # TensorFlow Lite does not verify what it reads: it may crash, which the command survives.
    cut = tmp_path / "cut.tflite"
    cut.write_bytes((lite / "model.tflite").read_bytes()[:200])
    result = onnxtool("convert", cut, "-o", tmp_path / "out.onnx")
    assert result.returncode == 3, result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out.onnx").exists()


def test_the_command_stays_quiet(lite: Path, tmp_path: Path, onnxtool: Callable[..., Result]) -> None:
    result = onnxtool("convert", lite / "model.tflite", "-o", tmp_path / "out.onnx")
    assert result.returncode == 0, result.stderr
    for noise in ("INFO", "XNNPACK", "Warning", "deprecated"):
        assert noise not in result.stdout + result.stderr
