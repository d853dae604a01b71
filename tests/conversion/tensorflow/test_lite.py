"""TensorFlow Lite files: names, sizes, quantized models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxtool.conversion.convert import convert, open_source
from onnxtool.conversion.tensorflow import lite as tensorflow_lite
from onnxtool.conversion.tensorflow.environment import import_keras, import_tensorflow, quiet
from onnxtool.conversion.tensorflow.lite import export_lite
from onnxtool.model.ir.queries import constant_array
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


class TestQuantized:
    """int8 models: their integers become QuantizeLinear and DequantizeLinear pairs."""

    @pytest.fixture(scope="class")
    @classmethod
    def digits(cls, fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """The trained digits network, calibrated on real pictures: integers inside, floats or uint8 outside."""
        folder = tmp_path_factory.mktemp("digits")
        samples = np.load(fixtures / "calib.npz")["image"].reshape(-1, 1, 8, 8, 1).astype(np.float32)
        with quiet():
            converter = tf.lite.TFLiteConverter.from_keras_model(
                keras.saving.load_model(fixtures / "digits_keras.keras", compile=False)
            )
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = lambda: ([sample] for sample in samples)
            (folder / "float.tflite").write_bytes(converter.convert())
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            converter.inference_input_type = converter.inference_output_type = tf.uint8
            (folder / "uint8.tflite").write_bytes(converter.convert())
        return folder

    @pytest.mark.parametrize("kind", ["float", "uint8"])
    def test_gives_what_the_interpreter_gives(self, digits: Path, fixtures: Path, tmp_path: Path, kind: str) -> None:
        report = convert(digits / f"{kind}.tflite", tmp_path / "out.onnx")
        assert report.ok, report.comparison
        assert report.form == "TensorFlow Lite model, quantized"
        operators = {n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node}
        assert {"QuantizeLinear", "DequantizeLinear"} <= operators

        runner = OnnxRunner.open(tmp_path / "out.onnx")
        (spec,) = runner.inputs
        assert np.dtype(spec.dtype) == np.dtype("float32" if kind == "float" else "uint8")
        images = np.load(fixtures / "eval.npz")["image"].reshape(-1, 8, 8, 1).astype(np.float32)
        with quiet():
            interpreter = tf.lite.Interpreter(str(digits / f"{kind}.tflite"))
        (given,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
        if kind == "uint8":
            scale, zero = given["quantization"]
            images = np.clip(np.round(images / scale) + zero, 0, 255).astype(np.uint8)
        interpreter.resize_tensor_input(given["index"], images.shape)
        interpreter.allocate_tensors()
        interpreter.set_tensor(given["index"], images)
        interpreter.invoke()
        expected = interpreter.get_tensor(result["index"])
        (found,) = runner.run({spec.name: images}).values()
        assert (
            found.dtype == expected.dtype
            and np.ptp(expected.astype(float)) > 20 * np.unique(np.diff(np.unique(expected))).min()
        )
        assert (found.argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.99

    def test_is_proven_on_inputs_of_its_whole_range(self, digits: Path) -> None:
        hints = {kind: open_source(digits / f"{kind}.tflite").feeds_hint for kind in ("float", "uint8")}
        (whole,), (clipped,) = (h.values() for h in (hints["uint8"] or {}, hints["float"] or {}))
        assert (whole.low, whole.high) == (0, 256)
        assert clipped.low <= 0 < clipped.high < 100

    def test_an_output_more_than_two_steps_off_is_not_written(
        self, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def shifted(model: Any, *arguments: Any) -> Any:
            graph = export_lite(model, *arguments)
            zero = graph.graph.outputs[0].producer().inputs[2]
            assert constant_array(zero) == 0
            zero.const_value = ir.tensor(np.array(40, np.uint8), name=zero.name)
            return graph

        monkeypatch.setattr(tensorflow_lite, "export_lite", shifted)
        report = convert(digits / "uint8.tflite", tmp_path / "out.onnx")
        assert not report.ok and not (tmp_path / "out.onnx").exists()
        assert report.comparison is not None and report.comparison.outputs[0].max_abs >= 3


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
