"""Reading Keras files: `.keras` archives, whole-model HDF5, and weights with a factory. Refuses code in files."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from onnxtool.conversion.factory import call_factory
from onnxtool.conversion.keras.hdf5 import verify_structure
from onnxtool.conversion.keras.keras2 import readers
from onnxtool.conversion.source import Source
from onnxtool.conversion.tensorflow.environment import quiet, reason
from onnxtool.errors import InputError, MissingExtraError, OnnxToolError, UnsafeError, UsageError
from onnxtool.options.convert import ConvertOptions
from onnxtool.user_code import importable

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_ARCHIVE_ENTRIES = {"config.json", "metadata.json"}
# Layers whose configuration holds code (marshalled or pickled), which runs when the model is loaded.
_CODE = {
    "Lambda": "Lambda layer",
    "__lambda__": "lambda function",
    "TorchModuleWrapper": "TorchModuleWrapper layer",
    "TFSMLayer": "TFSMLayer",  # loads a SavedModel from a path of the file's choice
}


def is_archive(source: Source) -> bool:
    """A `.keras` zip: its configuration beside its weights."""
    return set(source.zip_names()) >= _ARCHIVE_ENTRIES


def is_hdf5(source: Source) -> bool:
    """An HDF5 file: a whole model or its weights."""
    return source.head(8) == HDF5_MAGIC


def read_model(source: Source, options: ConvertOptions, keras: ModuleType) -> tuple[Any, str, list[str]]:
    """Load what lies in a `.keras` or HDF5 file.

    Returns:
        (Keras model, what was recognised, things to say aloud).

    Raises:
        InputError: damaged, or Keras cannot load it.
        UnsafeError: it holds code, and `options.trust` is not set.
        UsageError: weights without their architecture.
    """
    if source.model is not None:
        return source.model, "Keras model in memory", []
    if source.path is None:
        return _from_factory(options, keras), "Keras model from --factory", []
    if options.factory is not None:
        return _with_factory(source, options, keras)
    archive = is_archive(source)
    if not archive:  # here the configuration lies in the HDF5 file too
        verify_structure(source, _h5py(source))
    config, form = _configuration(source)
    if config is None:
        raise UsageError(
            f"{source}: these are Keras weights without the model. Name what builds it: --factory file.py:function."
        )
    notes = _check_code(source, config, options)
    if archive:
        verify_structure(source, _h5py(source))
    with quiet(options.verbose), importable(options.python_path):
        try:
            with _named(source) as path:
                # The older format is HDF5, which Keras 2 wrote too.
                old = {} if archive else {"custom_objects": readers(keras)}
                model = keras.saving.load_model(path, compile=False, safe_mode=not options.trust, **old)
        except Exception as error:
            raise _cannot_load(source, error, keras) from error
    return model, form, notes


def _with_factory(source: Source, options: ConvertOptions, keras: ModuleType) -> tuple[Any, str, list[str]]:
    verify_structure(source, _h5py(source))
    model = _from_factory(options, keras)
    with quiet(options.verbose):
        try:
            with _named(source) as path:
                model.load_weights(path)
        except Exception as error:
            raise InputError(
                f"{source}: these weights do not fit the model of --factory {options.factory}: {reason(error)}"
            ) from error
    return model, "Keras weights + factory", []


@contextmanager
def _named(source: Source) -> Iterator[Path]:
    """The file under a name that Keras reads it by: it tells its formats apart by their suffixes alone."""
    assert source.path is not None
    suffix = ".keras" if is_archive(source) else _hdf5_suffix(source)
    if source.path.name.endswith(suffix):
        yield source.path
        return
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / f"model{suffix}"
        try:
            os.symlink(source.path.resolve(), link)
        except OSError:  # not every system lets every user make links
            shutil.copyfile(source.path, link)
        yield link


def _hdf5_suffix(source: Source) -> str:
    with _h5py(source).File(source.path, "r") as file:
        whole_or_old = "model_config" in file.attrs or "layer_names" in file.attrs
        return ".h5" if whole_or_old else ".weights.h5"


def _from_factory(options: ConvertOptions, keras: ModuleType) -> Any:
    with quiet(options.verbose):
        model = call_factory(options)
    if not isinstance(model, keras.Model):
        raise InputError(f"--factory {options.factory}: gives a {type(model).__name__}, not a keras.Model.")
    return model


def _configuration(source: Source) -> tuple[Any, str]:
    """The model's configuration (None when the file holds only weights) and what the form is called."""
    if is_archive(source):
        config = source.json("config.json")
        if not isinstance(config, dict):
            raise InputError(f"{source}: its config.json is damaged.")
        metadata = source.json("metadata.json")
        version = metadata.get("keras_version", "3") if isinstance(metadata, dict) else "3"
        return config, f"Keras {version} archive (.keras)"
    h5py = _h5py(source)
    try:
        with h5py.File(source.path, "r") as file:
            text = file.attrs.get("model_config")
            version = file.attrs.get("keras_version", "")
    except (OSError, RuntimeError, KeyError) as error:
        raise InputError(f"{source}: the HDF5 file is damaged or cut off.") from error
    if text is None:
        return None, "Keras weights (HDF5)"
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: its model_config is damaged.") from error
    version = version.decode() if isinstance(version, bytes) else version
    return config, f"Keras {version} model (HDF5)" if version else "Keras model (HDF5)"


def _h5py(source: Source) -> Any:
    try:
        import h5py
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(source), "h5py", "keras") from error
    return h5py


def _check_code(source: Source, config: Any, options: ConvertOptions) -> list[str]:
    found = sorted(set(_code_in(config)))
    if not found:
        return []
    listed = ", ".join(found)
    if not options.trust:
        raise UnsafeError(
            f"{source}: this model holds code ({listed}), which runs when it is loaded. "
            "Pass --trust if you trust where it comes from, or rebuild the layer with keras.ops."
        )
    return [f"code in the file was trusted: {listed}"]


def _code_in(config: Any) -> Iterator[str]:
    pending = [config]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            name = item.get("class_name")
            if isinstance(name, str) and name in _CODE:
                inner = item.get("config")
                title = inner.get("name") if isinstance(inner, dict) else None
                yield f"{_CODE[name]} {title!r}" if isinstance(title, str) else _CODE[name]
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)


def _cannot_load(source: Source, error: Exception, keras: ModuleType) -> OnnxToolError:
    text = reason(error)
    if "Could not locate" in str(error) or "Unknown layer" in str(error) or "Unknown object" in str(error):
        return InputError(
            f"{source}: it uses a class of your own: {text} Build the model in a function and name it with "
            "--factory file.py:function; the weights are read from this file."
        )
    return InputError(f"{source}: Keras {keras.__version__} cannot load it: {text}")
