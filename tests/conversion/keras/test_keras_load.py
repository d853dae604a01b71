"""Keras files through the real command and through the adapter: every form, names kept, code refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxtool.conversion.convert import convert, open_source
from onnxtool.conversion.tensorflow.environment import import_keras, quiet
from onnxtool.errors import InputError, UnsafeError, UsageError
from onnxtool.runtime.runner import OnnxRunner
from tests.conftest import Result

FACTORY = """
import keras

def make():
    return keras.Sequential([
        keras.Input((8, 8, 1), name="image"),
        keras.layers.Flatten(),
        keras.layers.Dense(4, name="scores"),
    ])

def dense():
    return keras.Sequential([keras.Input((3,), name="x"), keras.layers.Dense(2, name="y")])
"""


@pytest.fixture(scope="module")
def keras() -> Any:
    return import_keras("the tests")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, keras: Any) -> Path:
    """A folder with one model in every form."""
    folder = tmp_path_factory.mktemp("keras")
    (folder / "factory.py").write_text(FACTORY)
    namespace: dict[str, Any] = {}
    exec(FACTORY, namespace)
    keras.utils.set_random_seed(3)
    with quiet():
        model = namespace["make"]()
        model.save(folder / "model.keras")
        model.save_weights(folder / "model.weights.h5")
        model.save(folder / "model.h5")
        lambdas = keras.Sequential([keras.Input((3,), name="x"), keras.layers.Lambda(lambda x: x * 2, name="twice")])
        lambdas.save(folder / "code.keras")
        lambdas.save(folder / "code.h5")
        np.savez(folder / "reference.npz", *model.get_weights())
    return folder


def reference(files: Path, image: np.ndarray) -> np.ndarray:
    """The model's arithmetic in numpy."""
    with np.load(files / "reference.npz") as arrays:
        kernel, bias = arrays["arr_0"], arrays["arr_1"]
    return np.asarray(image.reshape(len(image), -1) @ kernel + bias)


@pytest.mark.parametrize(
    ("name", "settings", "form"),
    [
        ("model.keras", {}, "archive"),
        ("model.h5", {}, "HDF5"),
        ("model.weights.h5", {"factory": "make"}, "weights"),
        ("model.keras", {"factory": "make"}, "weights"),
    ],
)
def test_every_form_gives_the_same_numbers_and_keeps_the_names(
    files: Path, tmp_path: Path, name: str, settings: dict[str, Any], form: str
) -> None:
    if "factory" in settings:
        settings = {"factory": f"{files / 'factory.py'}:make"}
    report = convert(files / name, tmp_path / "out.onnx", **settings)
    assert report.ok
    assert form in report.form
    assert report.comparison is not None
    assert sorted(run["image"][0] for run in report.comparison.runs) == [1, 2, 5]
    assert "None" not in onnx.load(tmp_path / "out.onnx").producer_version
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    assert [str(s.info()) for s in runner.inputs] == ["image: float32[batch, 8, 8, 1]"]
    assert [str(s.info()) for s in runner.outputs] == ["scores: float32[batch, 4]"]
    image = np.random.default_rng(1).standard_normal((6, 8, 8, 1)).astype(np.float32)
    np.testing.assert_allclose(runner.run({"image": image})["scores"], reference(files, image), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_a_renamed_file_is_recognised_by_its_content(files: Path, tmp_path: Path, name: str) -> None:
    copy = tmp_path / "model.bin"
    copy.write_bytes((files / name).read_bytes())
    image = np.ones((2, 8, 8, 1), np.float32)
    np.testing.assert_allclose(
        open_source(copy).run({"image": image})["scores"], reference(files, image), rtol=1e-4, atol=1e-5
    )


def test_renamed_weights_are_recognised_by_their_content(files: Path, tmp_path: Path) -> None:
    copy = tmp_path / "weights.bin"
    copy.write_bytes((files / "model.weights.h5").read_bytes())
    image = np.ones((2, 8, 8, 1), np.float32)
    model = open_source(copy, factory=f"{files / 'factory.py'}:make")
    np.testing.assert_allclose(model.run({"image": image})["scores"], reference(files, image), rtol=1e-4, atol=1e-5)


def test_the_command_says_what_it_found_and_nothing_else(
    fixtures: Path, tmp_path: Path, onnxtool: Callable[..., Result]
) -> None:
    result = onnxtool("convert", fixtures / "digits_keras.keras", "-o", tmp_path / "out.onnx")
    assert result.returncode == 0, result.stderr
    text = result.stdout + result.stderr
    assert "image: float32[batch, 8, 8, 1]" in text
    assert "probabilities: float32[batch, 10]" in text
    for noise in ("Warning", "WARNING", "oneDNN", "absl", "cuda", "tf2onnx", "TensorFlow binary"):
        assert noise not in text
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"), full_check=True)


def test_the_converted_digits_are_as_accurate_as_the_original(fixtures: Path, tmp_path: Path) -> None:
    assert convert(fixtures / "digits_keras.keras", tmp_path / "out.onnx").ok
    with np.load(fixtures / "eval_keras.npz") as data:
        images, labels = data["image"], data["label"]
    found = OnnxRunner.open(tmp_path / "out.onnx").run({"image": images})["probabilities"].argmax(axis=1)
    assert int((found == labels).sum()) == 710


@pytest.mark.parametrize("name", ["code.keras", "code.h5"])
def test_code_in_the_file_is_refused_without_trust(files: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafeError, match=r"Lambda layer 'twice'.*--trust"):
        convert(files / name, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("name", ["code.keras", "code.h5"])
def test_trusted_code_runs_and_is_said_aloud(files: Path, tmp_path: Path, name: str) -> None:
    report = convert(files / name, tmp_path / "out.onnx", trust=True)
    assert any("Lambda layer 'twice'" in note for note in report.notes)
    x = np.array([[1.0, -2.0, 3.0]], np.float32)
    np.testing.assert_array_equal(OnnxRunner.open(tmp_path / "out.onnx").run({"x": x})["twice"], 2 * x)


def test_weights_alone_ask_for_a_factory(files: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--factory"):
        convert(files / "model.weights.h5", tmp_path / "out.onnx")


def test_a_factory_alone_is_told_from_what_it_gives(tmp_path: Path, onnxtool: Callable[..., Result]) -> None:
    (tmp_path / "net.py").write_text(FACTORY + "\nprint('built once')\n")
    output = tmp_path / "out.onnx"
    env = {"KERAS_BACKEND": "torch"}  # of the user's; the conversion needs TensorFlow's
    result = onnxtool("convert", "--factory", f"{tmp_path / 'net.py'}:make", "-o", output, env=env)
    assert result.returncode == 0, result.stderr
    assert "Keras model from --factory" in result.stdout and "not on torch" in result.stdout
    assert (result.stdout + result.stderr).count("built once") == 1
    assert [i.name for i in onnx.load(output).graph.input] == ["image"]


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_a_file_saved_on_another_backend_converts(tmp_path: Path, backend: str) -> None:
    pytest.importorskip(backend, reason=f"{backend} is not installed")
    (tmp_path / "net.py").write_text(FACTORY)
    save = (
        "import keras, numpy as np, net\n"
        "keras.utils.set_random_seed(5)\n"
        "model = net.make()\n"
        "model.save('model.keras')\n"
        "x = np.random.default_rng(0).normal(size=(3, 8, 8, 1)).astype('float32')\n"
        "np.savez('seen.npz', x=x, y=model.predict(x, verbose=0), backend=keras.backend.backend())\n"
    )
    env = {**os.environ, "KERAS_BACKEND": backend}
    subprocess.run([sys.executable, "-W", "ignore", "-c", save], check=True, cwd=tmp_path, env=env, capture_output=True)
    output = tmp_path / "out.onnx"
    assert convert(tmp_path / "model.keras", output, effort="quick").ok
    with np.load(tmp_path / "seen.npz") as seen:
        assert seen["backend"] == backend
        found = OnnxRunner.open(output).run({"image": seen["x"]})["scores"]
        np.testing.assert_allclose(found, seen["y"], rtol=1e-4, atol=1e-5)


def test_weights_that_do_not_fit_the_factory_are_an_input_error(files: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="do not fit"):
        convert(files / "model.weights.h5", tmp_path / "out.onnx", factory=f"{files / 'factory.py'}:dense")


def test_a_damaged_archive_and_a_cut_off_hdf5_are_input_errors(files: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.keras"
    with zipfile.ZipFile(broken, "w") as archive:
        archive.writestr("config.json", "{")
        archive.writestr("metadata.json", "{}")
    with pytest.raises(InputError, match=r"config\.json is damaged"):
        convert(broken, tmp_path / "out.onnx")
    cut = tmp_path / "cut.h5"
    cut.write_bytes((files / "model.h5").read_bytes()[:2000])
    with pytest.raises(InputError, match="damaged or cut off"):
        convert(cut, tmp_path / "out.onnx")


def test_without_tensorflow_the_extra_is_named(fixtures: Path, tmp_path: Path, onnxtool: Callable[..., Result]) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['tensorflow'] = None\n")
    result = onnxtool(
        "convert", fixtures / "digits_keras.keras", "-o", tmp_path / "out.onnx", env={"PYTHONPATH": str(tmp_path)}
    )
    assert result.returncode == 4
    assert 'pip install ".[keras]"' in result.stderr
    assert "Traceback" not in result.stderr


def as_keras_2(path: Path, layer: str, **settings: Any) -> Path:
    """An .h5 file as Keras 2 wrote it: plain names of types, and settings that Keras 3 no longer has."""
    import h5py

    with h5py.File(path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        for entry in config["config"]["layers"]:
            for key in ("module", "registered_name", "build_config"):
                entry.pop(key, None)
            if isinstance(entry["config"].get("dtype"), dict):
                entry["config"]["dtype"] = "float32"
            if entry["class_name"] == layer:
                entry["config"].update(settings)
        file.attrs["model_config"] = json.dumps(config)
        file.attrs["keras_version"] = "2.15.0"
    return path


@pytest.mark.filterwarnings("ignore")
def test_files_of_keras_2_with_settings_that_are_gone(keras: Any, tmp_path: Path) -> None:
    layers = keras.layers
    with quiet():
        image = keras.Sequential([keras.Input((6, 6, 2)), layers.DepthwiseConv2D(3), layers.Flatten(), layers.Dense(2)])
        image.save(tmp_path / "image.h5")
        steps = keras.Sequential([keras.Input((5, 4)), layers.LSTM(3), layers.Dense(2)])
        steps.save(tmp_path / "steps.h5")
    for model, layer, shape, setting in (
        (image, "DepthwiseConv2D", (2, 6, 6, 2), {"groups": 1}),
        (steps, "LSTM", (2, 5, 4), {"time_major": False}),
    ):
        path = as_keras_2(tmp_path / ("image.h5" if model is image else "steps.h5"), layer, **setting)
        assert convert(path, tmp_path / "m.onnx").ok
        given = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        runner = OnnxRunner.open(tmp_path / "m.onnx")
        (found,) = runner.run({runner.inputs[0].name: given}).values()
        np.testing.assert_allclose(found, np.asarray(model(given)), rtol=1e-4, atol=1e-5)
    as_keras_2(tmp_path / "steps.h5", "LSTM", time_major=True)
    with pytest.raises(InputError, match="time_major=True, which Keras 3 does not have"):
        convert(tmp_path / "steps.h5", tmp_path / "n.onnx")


def test_numbers_are_looked_up(keras: Any, tmp_path: Path) -> None:
    number = keras.Input((2,), dtype="int64", name="number")
    found = keras.layers.IntegerLookup(vocabulary=[3, 500, -9], num_oov_indices=1)(number)
    with quiet():
        keras.Model(number, found).save(tmp_path / "m.keras")
    assert convert(tmp_path / "m.keras", tmp_path / "m.onnx", effort="quick").ok
    given = np.array([[3, 500], [-9, 0], [9, -3]])
    np.testing.assert_array_equal(
        *OnnxRunner.open(tmp_path / "m.onnx").run({"number": given}).values(), [[1, 2], [3, 0], [0, 0]]
    )


def test_words_are_looked_up(keras: Any, tmp_path: Path) -> None:
    words = keras.Input((1,), dtype="string", name="word")
    found = keras.layers.StringLookup(vocabulary=["cat", "dog", "fish"])(words)
    vectors = keras.layers.Flatten()(keras.layers.Embedding(5, 4)(found))
    model = keras.Model(words, keras.layers.Dense(2)(vectors))
    with quiet():
        model.save(tmp_path / "m.keras")
    assert convert(tmp_path / "m.keras", tmp_path / "m.onnx").ok
    given = np.array([["cat"], ["dog"], ["fish"], ["zebra"], [""]], dtype=object)
    import tensorflow as tf

    expected = np.asarray(model(tf.constant(given.astype(str))))
    assert len(np.unique(expected.round(5), axis=0)) == 4
    runner = OnnxRunner.open(tmp_path / "m.onnx")
    (made,) = runner.run({runner.inputs[0].name: given}).values()
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)
