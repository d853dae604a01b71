"""Reading the native files of XGBoost, LightGBM and CatBoost. None of them holds code."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.conversion.boosting.boosters import learner_of
from onnxtool.conversion.boosting.catboost_categories import asks_for_categories
from onnxtool.conversion.graph_interface import described_rows, named
from onnxtool.conversion.sklearn.model import Compute, SklearnModel, as_column, zipped
from onnxtool.conversion.sklearn.prepare import category_advice
from onnxtool.conversion.sklearn.schema import BATCH
from onnxtool.conversion.source import Source
from onnxtool.conversion.tensorflow.environment import quiet
from onnxtool.errors import InputError, UnsupportedError, UsageError, first_line, needs_extra, one_line
from onnxtool.model.spec import TensorSpec
from onnxtool.options.convert import ConvertOptions
from onnxtool.runtime.worker.isolation import guarded, native_silence

_FLOAT = np.dtype("float32")
_XGBOOST_KEYS = {"learner", "version"}
_CATBOOST_KEYS = {"oblivious_trees", "features_info"}
_HEADER = 1 << 24
_LIGHTGBM_CLASSES = ("binary", "multiclass", "multiclassova", "softmax", "ova", "cross_entropy")


def form_of(source: Source) -> str | None:
    """ "XGBoost (JSON)", "XGBoost (UBJSON)", "LightGBM", "CatBoost", "CatBoost (JSON)", or None."""
    head = source.head(4096)
    if head.startswith(b"tree\n") and b"\nversion=v" in head:
        return "LightGBM"
    if head.startswith(b"CBM1"):
        return "CatBoost"
    if head.startswith(b"{") and b"learner" in head[:64] and not source.is_text:
        return "XGBoost (UBJSON)"
    if head.lstrip()[:1] == b"{" and not source.zip_names():
        document = source.json()
        if isinstance(document, dict) and set(document) >= _XGBOOST_KEYS:
            return "XGBoost (JSON)"
        if isinstance(document, dict) and set(document) >= _CATBOOST_KEYS:
            return "CatBoost (JSON)"
    return None


def load(source: Source, form: str, options: ConvertOptions) -> SklearnModel:
    """Load a native file.

    Raises:
        MissingExtraError: its package is not installed.
        InputError: damaged.
        UnsupportedError: an objective or a feature without an ONNX form.
    """
    loader = {"XGBoost": _xgboost, "LightGBM": _lightgbm, "CatBoost": _catboost}[form.split(" ")[0]]
    # LightGBM's native code says itself what it finds wrong, with texts from the file, before it raises or crashes.
    with quiet(options.verbose), nullcontext() if options.verbose else native_silence():
        return loader(source, form, options)


def load_booster(source: Source, options: ConvertOptions) -> SklearnModel:
    """Load a native booster that is in memory, through its own file format.

    Raises:
        UsageError: the object cannot be saved as such a file.
        UnsupportedError: as `load`.
    """
    with tempfile.TemporaryDirectory(prefix="onnxtool-") as folder:
        suffix = {"xgboost": "json", "lightgbm": "txt"}.get(type(source.model).__module__.partition(".")[0], "model")
        path = Path(folder) / f"booster.{suffix}"
        try:
            source.model.save_model(str(path))
        except Exception as error:
            raise UsageError(f"{source}: this booster cannot be saved: {one_line(error, 200)}") from error
        saved = Source(path)
        form = form_of(saved)
        if form is None:
            raise UsageError(f"{source}: this is not a booster of XGBoost or LightGBM.")
        return load(saved, form, options)


def _model(
    model: Any,
    width: int,
    classes: Sequence[Any] | None,
    computes: tuple[Compute, ...],
    form: str,
    framework: str,
    options: ConvertOptions,
) -> SklearnModel:
    """The common shape of the three: one matrix in; label and probabilities, or a prediction, out."""
    inputs = described_rows([TensorSpec("X", _FLOAT, (BATCH, width))], options)
    first = inputs[0].shape[0] if inputs[0].shape else BATCH
    if classes is None:
        outputs = [TensorSpec("prediction", _FLOAT, (first, None))]
    else:
        kind: np.dtype | str = "string" if any(isinstance(c, str) for c in classes) else np.dtype("int64")
        chances = TensorSpec("probabilities", _FLOAT, (first, len(classes)))
        if options.zipmap:
            chances = TensorSpec("probabilities", "seq(map)", None)
            computes = (computes[0], zipped(computes[1], classes))
        outputs = [TensorSpec("label", kind, (first,)), chances]
    return SklearnModel(
        estimator=model,
        inputs=inputs,
        outputs=named(outputs, options.output_names, "--output-names"),
        computes=computes,
        columns=(),
        classes=tuple(classes or ()),
        form=f"{form} model",
        framework=framework,
    )


def _xgboost(source: Source, form: str, options: ConvertOptions) -> SklearnModel:
    xgboost = _import(source, "xgboost", "XGBoost")
    assert source.path is not None
    if "UBJSON" in form and not is_whole(source.path.read_bytes()):
        raise InputError(f"{source}: the UBJSON file is damaged or cut off.")
    booster = _read(source, lambda path: xgboost.Booster(model_file=path))
    is_classifier = learner_of(booster)["objective"]["name"].startswith(("binary:logistic", "multi:"))
    model = (xgboost.XGBClassifier if is_classifier else xgboost.XGBRegressor)()
    _read(source, model.load_model)
    booster = model.get_booster()
    booster.feature_names = None  # the ONNX file takes a matrix, and so does the reference
    framework = f"xgboost {xgboost.__version__}"
    width = booster.num_features()
    if not is_classifier:
        return _model(model, width, None, (lambda x: as_column(model.predict(x)),), form, framework, options)
    classes = list(range(max(int(model.n_classes_), 2)))
    return _model(model, width, classes, (model.predict, model.predict_proba), form, framework, options)


def _lightgbm(source: Source, form: str, options: ConvertOptions) -> SklearnModel:
    lightgbm = _import(source, "lightgbm", "LightGBM")
    _check_complete(source)
    booster = _read(source, lambda path: lightgbm.Booster(model_file=path))
    objective = str(booster.dump_model().get("objective", "regression")).split(" ")[0]
    framework = f"lightgbm {lightgbm.__version__}"
    width = booster.num_feature()
    if objective not in _LIGHTGBM_CLASSES:
        return _model(booster, width, None, (lambda x: as_column(booster.predict(x)),), form, framework, options)
    count = max(booster.num_model_per_iteration(), 2)

    def chances(rows: Any) -> np.ndarray:
        found = np.asarray(booster.predict(rows))
        return np.column_stack([1 - found, found]) if found.ndim == 1 else found

    computes: tuple[Compute, ...] = (lambda rows: chances(rows).argmax(axis=1), chances)
    return _model(booster, width, list(range(count)), computes, form, framework, options)


def _check_complete(source: Source) -> None:
    """LightGBM 4.7 crashes the process on a file that is cut off among the trees."""
    assert source.path is not None
    content = source.path.read_bytes()
    sizes = next((line for line in content[:_HEADER].split(b"\n") if line.startswith(b"tree_sizes=")), b"=")
    counted = sum(int(size) for size in sizes.split(b"=")[1].split() if size.isdigit())
    end = content.find(b"\nend of trees")
    if end < counted or content.count(b"\nTree=") != len(sizes.split(b"=")[1].split()):
        raise InputError(f"{source}: the file is damaged or cut off among the trees.")


def _catboost(source: Source, form: str, options: ConvertOptions) -> SklearnModel:
    catboost = _import(source, "catboost", "CatBoost")
    kind = "json" if "JSON" in form else "cbm"
    plain = _read(source, lambda path: catboost.CatBoost().load_model(path, format=kind))
    classes = list(plain.classes_)
    framework = f"catboost {catboost.__version__}"
    width = len(plain.feature_names_)
    model = (catboost.CatBoostClassifier if classes else catboost.CatBoostRegressor)()
    _read(source, lambda path: model.load_model(path, format=kind))
    if asks_for_categories(model):
        if options.sample is None:
            raise UnsupportedError(f"{source}: {category_advice(model)}")
        return SklearnModel.prepare(source, model, f"{form} model", [], options)
    if not classes:
        return _model(model, width, None, (lambda x: as_column(model.predict(x)),), form, framework, options)
    labels = [c.item() if hasattr(c, "item") else c for c in classes]
    computes: tuple[Compute, ...] = (lambda x: np.asarray(model.predict(x)).reshape(-1), model.predict_proba)
    return _model(model, width, labels, computes, form, framework, options)


def _import(source: Source, name: str, title: str) -> Any:
    with needs_extra(str(source), title, "boosting"):
        return __import__(name)


def _read(source: Source, reader: Callable[[str], Any]) -> Any:
    try:
        with guarded("reading the trees", source.size):
            return reader(os.fspath(source.path or ""))
    except Exception as error:
        reason = first_line(error)
        raise InputError(f"{source}: damaged, or written by a newer version: {reason[:200]}") from error


# Marker -> size in bytes and struct format of numbers.
_NUMBERS = {b"i": "b", b"U": "B", b"I": ">h", b"l": ">i", b"L": ">q", b"d": ">f", b"D": ">d", b"C": "c"}
_EMPTY = (b"Z", b"N", b"T", b"F")
_DEEPEST = 64


def is_whole(data: bytes) -> bool:
    """True when the bytes are exactly one well-formed UBJSON value."""
    try:
        return _value(data, 0, 0) == len(data)
    except (ValueError, IndexError, struct.error, RecursionError):
        return False


def _value(data: bytes, place: int, depth: int) -> int:
    """The place after the value that begins at `place`."""
    marker = data[place : place + 1]
    place += 1
    if marker in _EMPTY:
        return place
    if marker in _NUMBERS:
        return _skip(data, place, struct.calcsize(_NUMBERS[marker]))
    if marker in (b"S", b"H"):
        return _text(data, place)
    if marker in (b"[", b"{"):
        return _container(data, place, marker == b"{", depth + 1)
    raise ValueError(marker)


def _container(data: bytes, place: int, keyed: bool, depth: int) -> int:
    if depth > _DEEPEST:
        raise ValueError("nested too deep")
    kind = b""
    if data[place : place + 1] == b"$":
        kind = data[place + 1 : place + 2]
        place += 2
    if data[place : place + 1] == b"#":
        count, place = _integer(data, place + 1)
        if kind in _NUMBERS and not keyed:
            return _skip(data, place, count * struct.calcsize(_NUMBERS[kind]))
        if kind:
            raise ValueError("typed objects do not occur")
        for _ in range(count):
            place = _value(data, _text(data, place) if keyed else place, depth)
        return place
    end = b"}" if keyed else b"]"
    while data[place : place + 1] != end:
        place = _value(data, _text(data, place) if keyed else place, depth)
    return place + 1


def _text(data: bytes, place: int) -> int:
    length, place = _integer(data, place)
    return _skip(data, place, length)


def _integer(data: bytes, place: int) -> tuple[int, int]:
    layout = (
        _NUMBERS[bytes(data[place : place + 1])] if data[place : place + 1] in (b"i", b"U", b"I", b"l", b"L") else ""
    )
    if not layout:
        raise ValueError("a length is expected")
    (value,) = struct.unpack_from(layout, data, place + 1)
    if value < 0:
        raise ValueError("a negative length")
    return int(value), place + 1 + struct.calcsize(layout)


def _skip(data: bytes, place: int, size: int) -> int:
    if place + size > len(data):
        raise ValueError("cut off")
    return place + size
