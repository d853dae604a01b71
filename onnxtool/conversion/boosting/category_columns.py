"""Boosters fitted on a frame with columns of categories: the file takes the categories themselves, not their numbers.

Source: LightGBM 4, python-package, `_data_from_pandas`: a category is its place among those of the fit, and others are
missing values. XGBoost 3.1, src/data/cat_container.h: the same, and others are errors.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import combinations, groupby, pairwise
from math import comb
from typing import Any

import numpy as np

from onnxtool.conversion.boosting.boosters import booster_of, text_of
from onnxtool.conversion.boosting.catboost_categories import categories_in, with_categories
from onnxtool.conversion.frameworks import Booster, Estimator, copy_with
from onnxtool.conversion.sklearn.schema import numbers_of
from onnxtool.errors import InputError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.table import DataTable

_FEW_WAYS = 10_000
_PLAIN = (str, int, float, np.number, np.bool_)
# XGBoost 3.2, include/xgboost/json.h, `ValueKind`: types of arrays, from 7 on.
_FIRST_TYPE, _XGBOOST_TYPES = 7, ("f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")


def category_columns(estimator: Estimator, sample: object = None) -> dict[str, list[Any]]:
    """The categories of each column that a booster splits by; {} where there are none, or not of texts or numbers.

    Args:
        estimator: of LightGBM or XGBoost, or any other.
        sample: a table tells what the booster does not.
    """
    known = numbered_categories(estimator, sample)
    plain = all(len({*map(type, values)}) == 1 and np.asarray(values).dtype.kind in "Uiuf" for values in known)
    if not known or not plain or not hasattr(estimator, "feature_names_in_"):
        return {}
    if hasattr(estimator, "get_booster"):
        places = [place for place, kind in enumerate(booster_of(estimator).feature_types) if kind == "c"]
    else:
        names = list(map(str, estimator.feature_names_in_))
        places = _places_in_lightgbm(text_of(estimator), known, lambda place, v: _cells(sample, names[place], v))
    if len(places) != len(known):
        return {}
    return {str(estimator.feature_names_in_[place]): values for place, values in zip(places, known, strict=True)}


def _places_in_lightgbm(model: str, known: list[list[Any]], cells_of: Callable[..., set[Any]]) -> list[int]:
    """The columns of these categories. Ordered ones are numbered too and split as numbers, and LightGBM does not say
    which columns they are: those whose numbers may be their places, and whose cells are such, if only these can be
    meant.
    """
    found = re.search(r"^\[categorical_feature: ([\d,]+)\]$", model, re.MULTILINE)
    places = [int(place) for place in found[1].split(",")] if found else []
    if len(places) == len(known):
        return places
    infos = re.search(r"^feature_infos=(.*)$", model, re.MULTILINE)
    ranges = [re.fullmatch(r"\[(\d+):(\d+)\]", info) for info in (infos[1].split() if infos else ())]
    last = {place: int(ends[2]) for place, ends in enumerate(ranges) if ends and place not in places}
    columns = sorted([*places, *last])
    if comb(len(columns), len(known)) > _FEW_WAYS:
        return places
    fits = cache(lambda place, n: last.get(place, 0) < len(known[n]) and cells_of(place, known[n]) <= {*known[n]})
    ways = [
        way
        for way in combinations(columns, len(known))
        if set(places) <= {*way} and all(fits(place, n) for n, place in enumerate(way))
    ]
    return list(ways[0]) if len(ways) == 1 else places


def _cells(sample: object, name: str, values: list[Any]) -> set[Any]:
    """What a table has in a column, in the type of some values, without missing ones; nothing where there is no table.

    What the column has of another type are none of the values.
    """
    if not isinstance(sample, DataTable) or name not in sample.names:
        return set()
    kind = "string" if isinstance(values[0], str) else np.dtype(np.float64)
    try:
        cells = sample.arrays([TensorSpec(name, kind, (None,))])[name]
    except InputError:
        return {None}
    return {cell for cell in cells.tolist() if cell == cell and cell != ""}


def numbered_categories(estimator: Estimator, sample: object = None) -> list[list[Any]]:
    """The categories of each column of the frame that a booster was fitted on, in the order of their numbers; [None]
    where neither the booster nor the sample has them.
    """
    if getattr(estimator, "_numbered", False):  # by a step in front of it
        return []
    if type(estimator).__module__.startswith("xgboost."):
        fitted = not hasattr(estimator, "get_booster") or estimator.__sklearn_is_fitted__()
        return _of_xgboost(booster_of(estimator), sample) if fitted else []
    booster = getattr(estimator, "_Booster", None) or estimator
    return list(getattr(booster, "pandas_categorical", None) or ())


def category_notes(estimator: Estimator) -> list[str]:
    """How the ONNX file takes the categories of the table that a booster was fitted on."""
    if getattr(estimator, "_numbered", False):
        lost = [None] in _of_xgboost(booster_of(estimator), None)
        return [
            "a category that the fit has not seen is a missing value (XGBoost raises an error)",
            *["texts that XGBoost has cut short are those of the sample: it must be the table of the fit"] * lost,
        ]
    known = numbered_categories(estimator)
    if [None] in known:
        return [
            "XGBoost cuts categories with letters beyond ASCII short, so the ONNX file takes their numbers, in "
            "the order of the fit (frame[column].cat.codes); it takes the texts where --sample has all of them"
        ]
    shown = [", ".join(f"{value} is {code}" for code, value in enumerate(values[:5])) for values in known]
    return [f"categories are given to the ONNX file as numbers: {text}" for text in shown]


def _of_xgboost(booster: Booster, sample: object) -> list[list[Any]]:
    if "c" not in (booster.feature_types or ()):
        return []
    body = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]
    encoded = body.get("gbtree", body)["model"].get("cats", {}).get("enc", ())
    found: list[list[Any]] = []
    for name, column in zip(booster.feature_names or map(str, range(len(encoded))), encoded, strict=True):
        values, ends = column["values"], column.get("offsets")
        if values and ends is not None:
            found.append(_texts(values, ends, _cells(sample, name, [""])))
        elif values:  # the frame that it predicts for must have the type of the fit's
            found.append(list(np.array(values, _XGBOOST_TYPES[column["type"] - _FIRST_TYPE])))
    return found


def _texts(values: list[int], ends: list[int], cells: set[str]) -> list[str | None]:
    """Texts, one behind the other. XGBoost 3.2 counts their letters and keeps so many bytes: of letters beyond ASCII,
    which have several, the last texts are cut or gone. The cells of a table stand for them where each fits one alone.
    """
    joined = bytes(value % 256 for value in values).decode(errors="ignore")
    parts = [(joined[start:end], end - start) for start, end in pairwise(ends)]
    cells = cells - {part for part, length in parts if len(part) == length}
    found = [
        [part] if len(part) == length else [c for c in cells if len(c) == length and c.startswith(part)]
        for part, length in parts
    ]
    texts = [fitting[0] for fitting in found if len(fitting) == 1]
    return list(texts) if len({*texts}) == len(found) and cells <= {*texts} else [None]


def categories_apart(estimator: Estimator, sample: object = None) -> tuple[Any, dict[str, list[Any]]]:
    """An estimator in which the categories of boosters are numbered by steps in front of these, wherever they are given
    its rows (votes, stacks, one for each target, calibration); of scikit-learn's histograms behind other steps, too.

    Args:
        estimator: fitted.
        sample: as of `category_columns`.

    Returns:
        (itself where there are none, the categories that LightGBM and XGBoost want in pandas' type).

    Raises:
        UnsupportedError, InputError: as of `categories_in`.
    """
    columns: dict[str, list[Any]] = {}
    named = hasattr(estimator, "feature_names_in_")

    def change(step: Any, *, is_given_rows: bool) -> Any:
        if type(step).__name__ == "FrozenEstimator":  # which has all attributes of what is in it
            return change(step.estimator, is_given_rows=is_given_rows)
        if hasattr(step, "_predictors") and getattr(step, "_preprocessor", None) is not None:
            return _histograms_apart(step)
        if is_given_rows and (named or step is estimator) and (known := categories_in(step, sample)):
            return with_encoder(step, known)
        if is_given_rows and (own := category_columns(step, sample)):
            columns.update(own)
            return with_encoder(_that_takes_numbers(step), own)
        return _with_members(step, partial(change, is_given_rows=is_given_rows))

    return change(estimator, is_given_rows=True), columns


def _that_takes_numbers(booster: Estimator) -> Any:
    if hasattr(booster, "get_booster"):
        return copy_with(booster, _numbered=True)
    numbered = copy.copy(booster._Booster)  # LightGBM's number what they are given once more
    numbered.pandas_categorical = None
    return copy_with(booster, _Booster=numbered)


def _histograms_apart(model: Estimator) -> Any:
    from sklearn.pipeline import Pipeline

    inner = model._preprocessor
    encoder, chosen = inner.named_transformers_["encoder"], inner.transformers_[0][2]
    known = [[c for c in values if c is not None and c == c] for values in encoder.categories_]  # missing is unknown
    if not all(known) or not all(isinstance(c, _PLAIN) for values in known for c in values):
        return model  # dates, say, which the ONNX file could not be given
    places, rest = np.flatnonzero(chosen).tolist(), np.flatnonzero(np.logical_not(chosen)).tolist()
    own = copy_with(encoder, categories_=list(map(_known, known)), _missing_indices={})
    parts = [("encoder", own, places), *([("numerical", "passthrough", rest)] if rest else [])]
    head = copy_with(inner, transformers_=parts)
    return Pipeline([("encode", head), ("predict", copy_with(model, _preprocessor=None))])


def _with_members(estimator: Any, change: Callable[..., Any]) -> Any:
    """A copy in which the estimators inside are changed; itself where none is. Steps are not given the rows, but for a
    first one.
    """
    changed = {}
    for name in ("steps", "estimators_", "calibrated_classifiers_", "regressor_", "estimator", "estimator_"):
        inner: Any = vars(estimator).get(name) if hasattr(estimator, "__dict__") else None
        # Others have a template there, and selectors what is asked for its weights alone.
        told = hasattr(estimator, "get_support") or (name == "estimator" and not hasattr(estimator, "calibrators"))
        if inner is None or told:
            continue
        listed = inner if isinstance(inner, list) else [inner]
        names, members = zip(*listed, strict=True) if name == "steps" else (None, listed)
        made = [change(m, is_given_rows=False) if names and place else change(m) for place, m in enumerate(members)]
        if any(new is not old for new, old in zip(made, members, strict=True)):
            made = list(zip(names, made, strict=True)) if names else made
            changed[name] = made if isinstance(inner, list) else made[0]
    return copy_with(estimator, **changed) if changed else estimator


def columns_apart(estimator: Estimator) -> Any:
    """An encoder of texts and of numbers behind a ColumnTransformer, so that each column is an input of its own type;
    any other estimator as it is.
    """
    steps = list(getattr(estimator, "steps", None) or [("encode", estimator)])
    encoder, known = steps[0][1], getattr(steps[0][1], "categories_", None) or ()
    if hasattr(encoder, "steps") and (apart := columns_apart(encoder)) is not encoder:
        return copy_with(estimator, steps=[(steps[0][0], apart), *steps[1:]])
    if len({numbers_of(c).dtype.kind in "OUS" for c in known}) < 2 or not hasattr(encoder, "transform"):
        return estimator
    from sklearn.frozen import FrozenEstimator
    from sklearn.pipeline import Pipeline

    names = list(getattr(encoder, "feature_names_in_", range(len(known))))
    categories = dict(zip(names, map(list, known), strict=True))
    head = _fitted([("encode", FrozenEstimator(encoder), names)], names, categories)
    head.sparse_output_ = bool(getattr(encoder, "sparse_output", False))
    split = [("columns", head), *steps[1:]]
    return copy_with(estimator, steps=split) if len(steps) > 1 else Pipeline(split)


def with_encoder(estimator: Estimator, categories: dict[str, list[Any]]) -> Any:
    """An estimator that takes numbers of categories, behind an encoder of these, as a fitted pipeline.

    Args:
        estimator: of CatBoost, LightGBM or XGBoost.
        categories: of its columns by name, in the order of the fit.
    """
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OrdinalEncoder

    fitted = estimator.feature_names_in_ if hasattr(estimator, "feature_names_in_") else estimator.feature_names_
    names = [str(name) for name in fitted]
    parts: list[Any] = []
    for encoded, group in groupby(names, categories.__contains__):
        columns = list(group)
        values = [_known(categories[name]) for name in columns * encoded]
        encoder = OrdinalEncoder(categories=values, handle_unknown="use_encoded_value", unknown_value=np.nan)
        parts.append((str(len(parts)), encoder if encoded else "passthrough", columns))
    if hasattr(estimator, "get_metadata"):
        estimator = with_categories(estimator, categories)
    return Pipeline([("encode", _fitted(parts, names, categories)), ("predict", estimator)])


def _known(values: list[Any]) -> np.ndarray:
    """Categories for an OrdinalEncoder, which takes numbers in another order than their own as objects alone."""
    ordered = not isinstance(values[0], str) and values == sorted(values)
    return np.array(values if ordered else np.array(values).tolist(), None if ordered else object)


def _fitted(parts: list[Any], names: list[Any], categories: Mapping[Any, list[Any]]) -> Any:
    """A ColumnTransformer of columns by name, or by place."""
    import pandas
    from sklearn.compose import ColumnTransformer

    frame = pandas.DataFrame({name: _known(categories.get(name, [0.0]))[:1] for name in names})
    named = all(isinstance(name, str) for name in names)
    return ColumnTransformer(parts, sparse_threshold=0).fit(frame if named else frame.to_numpy())
