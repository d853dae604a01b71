"""Which adapter takes a source: the built-in ones, and those of installed packages (entry points)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec

from onnxtool.conversion.adapter import Adapter
from onnxtool.conversion.source import Source
from onnxtool.errors import InputError, UnsupportedError, UsageError
from onnxtool.installed_extensions import installed_extensions
from onnxtool.options.convert import ConvertOptions

ENTRY_POINTS = "onnxtool.adapters"


# name -> "module:Class"; in the order in which they are asked. A class is imported when it is asked.
BUILTIN: Mapping[str, str] = {
    "pytorch": "onnxtool.conversion.pytorch.adapter:PyTorchAdapter",
    "keras": "onnxtool.conversion.keras.adapter:KerasAdapter",
    "tensorflow": "onnxtool.conversion.tensorflow.adapter:TensorFlowAdapter",
    "paddle": "onnxtool.conversion.paddle.adapter:PaddleAdapter",
    "sklearn": "onnxtool.conversion.sklearn.adapter:SklearnAdapter",
    "jax": "onnxtool.conversion.jax.adapter:JaxAdapter",
    "boosting": "onnxtool.conversion.boosting.adapter:BoostingAdapter",
}


def adapters() -> Iterator[Adapter]:
    """All adapters: the built-in ones, then those of installed packages (entry points "onnxtool.adapters")."""
    for target in BUILTIN.values():
        module, _, attribute = target.partition(":")
        if find_spec(module) is not None:
            yield getattr(import_module(module), attribute)()
    for extension in installed_extensions(ENTRY_POINTS):
        adapter = extension.make()
        if not isinstance(adapter, Adapter):
            raise UsageError(f"{extension} does not derive from onnxtool.extension.Adapter.")
        yield adapter


def find_adapter(source: Source, options: ConvertOptions) -> Adapter:
    """The adapter for a source.

    Raises:
        InputError: nobody recognises it; says what it looks like.
        UnsupportedError: `options.adapter` names none.
    """
    known = list(adapters())
    if options.adapter is not None:
        for adapter in known:
            if adapter.name == options.adapter:
                return adapter
        raise UnsupportedError(
            f"no adapter is called {options.adapter!r}; there are {', '.join(a.name for a in known) or 'none'}."
        )
    for adapter in known:
        if adapter.recognises(source, options):
            return adapter
    raise InputError(f"{source}: {_impression(source)}")


# Files of frameworks without an adapter, and the way that there is.
_ROUTES = {
    ".params": "MXNet has an exporter of its own: mxnet.onnx.export_model(symbol, params, shapes).",
    ".caffemodel": "caffe2onnx converts Caffe's files; compare what it writes with Caffe's own outputs.",
    ".mat": "MATLAB writes ONNX itself: exportONNXNetwork(net, 'net.onnx').",
    ".mlmodel": "Convert the model that it was made from: onnxmltools 1.16 has a converter, whose imports fail.",
}


def _impression(source: Source) -> str:
    if source.suffix in _ROUTES:
        return f"onnxtool does not convert this form. {_ROUTES[source.suffix]}"
    if source.is_folder:
        return "this folder holds no model in a form that is known (SavedModel, Hugging Face, PaddlePaddle)."
    if source.suffix == ".onnx":
        return "this is an ONNX file already; check, optimize and quantize take it as it is."
    if source.is_text:
        return "this is a text file, not a model."
    if source.head(2) == b"PK" and not source.zip_names():
        return "this archive is damaged or cut off."
    return "this is not a model in a form that is known, or it is damaged."
