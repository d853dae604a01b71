"""Reading Keras files: `.keras` archives, whole-model HDF5, and weights with a factory. Refuses code in files."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from onnxtool.conversion.factory import call_factory
from onnxtool.conversion.frameworks import KerasLayer
from onnxtool.conversion.source import Source
from onnxtool.conversion.tensorflow.environment import quiet, reason
from onnxtool.errors import InputError, OnnxToolError, ResourceError, UnsafeError, UsageError, needs_extra, one_line
from onnxtool.options.convert import ConvertOptions
from onnxtool.runtime.worker.isolation import guarded
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
    with needs_extra(str(source), "h5py", "keras"):
        import h5py
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


# Settings of layers in .h5 files that Keras 2 wrote, which Keras 3 (3.15 still) no longer has and refuses to read: what
# is at its default says nothing, and is left out. Setting -> the value at which it does nothing, and the layers.
_GONE: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "groups": (
        1,
        (
            *("DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D"),
            *("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"),
        ),
    ),
    "time_major": (False, ("LSTM", "GRU", "SimpleRNN", "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")),
}


def readers(keras: ModuleType) -> dict[str, Any]:
    """For `custom_objects` of keras.saving.load_model: the layers' classes, whose `from_config` takes old settings."""
    return {
        name: type(name, (), {"from_config": classmethod(_reader(getattr(keras.layers, name), setting, idle))})
        for setting, (idle, names) in _GONE.items()
        for name in names
        if hasattr(keras.layers, name)
    }


def _reader(layer: KerasLayer, setting: str, idle: Any) -> Any:
    def from_config(_cls: type, config: Mapping[str, Any], **more: Any) -> Any:
        if config.get(setting, idle) != idle:
            raise ValueError(f"{layer.__name__} has {setting}={config[setting]!r}, which Keras 3 does not have")
        return layer.from_config({k: v for k, v in config.items() if k != setting}, **more)

    return from_config


WEIGHTS = "model.weights.h5"
# HDF5 can take a dataset's bytes from any file of the machine (external storage, external links, virtual datasets), and
# a declared dataset takes no room until it is read.
_UNPACKED_LIMIT = 1 << 30  # bytes; as for archives: beyond this and so many times the file it is taken for a bomb
_RATIO_LIMIT = 200
_COMPRESSED_LIMIT = 1 << 26  # a compressed member is unpacked as a whole


def verify_structure(source: Source, h5py: ModuleType) -> None:
    """Walk over the groups and datasets of an HDF5 file, or of the weights in a `.keras` archive.

    Raises:
        InputError: damaged.
        UnsafeError: it refers to another file.
        ResourceError: its datasets declare very much more than the file holds.
    """
    try:
        with guarded("reading the structure of the HDF5 file", source.size):
            if not source.zip_names():
                with h5py.File(source.path, "r") as file:
                    _walk(source, file, h5py)
            elif WEIGHTS in source.zip_names():
                assert source.path is not None
                with zipfile.ZipFile(source.path) as archive:
                    _walk_member(source, archive, h5py)
    except OnnxToolError:
        raise
    except Exception as error:  # h5py raises OSError, RuntimeError, KeyError, ValueError, ... on damaged files
        text = one_line(error, 200)
        raise InputError(f"{source}: the HDF5 file is damaged or cut off ({text}).") from error


def _walk_member(source: Source, archive: zipfile.ZipFile, h5py: ModuleType) -> None:
    member = archive.getinfo(WEIGHTS)
    if member.compress_type == zipfile.ZIP_STORED:
        with archive.open(member) as stream, h5py.File(stream, "r") as file:
            _walk(source, file, h5py)
    elif member.file_size <= _COMPRESSED_LIMIT:
        with h5py.File(io.BytesIO(archive.read(member)), "r") as file:
            _walk(source, file, h5py)


def _walk(source: Source, file: Any, h5py: ModuleType) -> None:
    declared = 0
    pending, seen = [file], set()
    while pending:
        group = pending.pop()
        for name in group:
            link = group.get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                raise UnsafeError(f"{source}: {name!r} in it is a link to another file, {link.filename!r}.")
            if isinstance(link, h5py.SoftLink):
                continue  # it leads to what is found elsewhere in this file
            item = group[name]
            if item.id in seen:
                continue
            seen.add(item.id)
            if isinstance(item, h5py.Group):
                pending.append(item)
            elif isinstance(item, h5py.Dataset):
                if item.external or item.is_virtual:
                    raise UnsafeError(f"{source}: the dataset {name!r} in it takes its values from other files.")
                declared += item.size * item.dtype.itemsize if item.size else 0
    if declared > max(_UNPACKED_LIMIT, _RATIO_LIMIT * source.size):
        raise ResourceError(f"{source}: its datasets declare {declared} bytes, far more than the file holds.")
