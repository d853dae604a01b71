"""Boosters fitted on a frame with columns of categories: the file takes the categories themselves, not their numbers.

Source: LightGBM 4, python-package, `_data_from_pandas`: a category is its place among those of the fit, and others are
missing values. XGBoost 3.1, src/data/cat_container.h: the same, and others are errors.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from itertools import combinations, groupby, pairwise
from math import comb
from typing import Any

import numpy as np

from onnxtool.conversion.boosting.boosters import booster_of, text_of
from onnxtool.conversion.boosting.catboost_categories import with_categories
from onnxtool.conversion.frameworks import Booster, Estimator, copy_with
from onnxtool.conversion.sklearn.schema import numbers_of

_FEW_WAYS = 10_000
_PLAIN = (str, int, float, np.number, np.bool_)


def category_columns(estimator: Estimator) -> dict[str, list[Any]]:
    """The categories of each column that a booster splits by; {} where there are none, or not of texts or numbers.

    Args:
        estimator: of LightGBM or XGBoost, or any other.
    """
    known = numbered_categories(estimator)
    plain = all({type(value) for value in values} in ({str}, {int}, {float}) for values in known)
    if not known or not plain or not hasattr(estimator, "feature_names_in_"):
        return {}
    if hasattr(estimator, "get_booster"):
        places = [place for place, kind in enumerate(booster_of(estimator).feature_types) if kind == "c"]
    else:
        places = _places_in_lightgbm(text_of(estimator), [len(values) for values in known])
    if len(places) != len(known):
        return {}
    return {str(estimator.feature_names_in_[place]): values for place, values in zip(places, known, strict=True)}


def _places_in_lightgbm(model: str, sizes: list[int]) -> list[int]:
    """The columns of categories, of so many each. Ordered ones are numbered too and split as numbers, and LightGBM does
    not say which columns they are: those whose numbers may be places of so many categories, if only these can be meant.
    """
    found = re.search(r"^\[categorical_feature: ([\d,]+)\]$", model, re.MULTILINE)
    places = [int(place) for place in found[1].split(",")] if found else []
    if len(places) == len(sizes):
        return places
    infos = re.search(r"^feature_infos=(.*)$", model, re.MULTILINE)
    ranges = [re.fullmatch(r"\[(\d+):(\d+)\]", info) for info in (infos[1].split() if infos else ())]
    last = {place: int(ends[2]) for place, ends in enumerate(ranges) if ends and place not in places}
    columns = sorted([*places, *last])
    if comb(len(columns), len(sizes)) > _FEW_WAYS:
        return places
    ways = [
        way
        for way in combinations(columns, len(sizes))
        if set(places) <= {*way} and all(last.get(place, 0) < size for place, size in zip(way, sizes, strict=True))
    ]
    return list(ways[0]) if len(ways) == 1 else places


def numbered_categories(estimator: Estimator) -> list[list[Any]]:
    """The categories of each column of the frame that a booster was fitted on, in the order of their numbers."""
    if type(estimator).__module__.startswith("xgboost."):
        fitted = not hasattr(estimator, "get_booster") or estimator.__sklearn_is_fitted__()
        return _of_xgboost(booster_of(estimator)) if fitted else []
    booster = getattr(estimator, "_Booster", None) or estimator
    return list(getattr(booster, "pandas_categorical", None) or ())


def category_notes(estimator: Estimator, *, encoded: bool = False) -> list[str]:
    """How the ONNX file takes the categories of the table that a booster was fitted on.

    Args:
        estimator: the booster.
        encoded: the categories are given as they are, not as numbers.
    """
    if encoded:
        strict = hasattr(estimator, "get_booster")
        return ["a category that the fit has not seen is a missing value (XGBoost raises an error)"] * strict
    known = numbered_categories(estimator)
    if [None] in known:
        return [
            "XGBoost cuts categories with letters beyond ASCII short, so the ONNX file takes their numbers, in "
            "the order of the fit (frame[column].cat.codes)"
        ]
    shown = [", ".join(f"{value} is {code}" for code, value in enumerate(values[:5])) for values in known]
    return [f"categories are given to the ONNX file as numbers: {text}" for text in shown]


def _of_xgboost(booster: Booster) -> list[list[Any]]:
    if "c" not in (booster.feature_types or ()):
        return []
    body = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]
    found = []
    for column in body.get("gbtree", body)["model"].get("cats", {}).get("enc", ()):
        values, ends = column["values"], column.get("offsets")
        if values and ends is not None:  # texts, one behind the other; XGBoost 3.2 cuts those beyond ASCII short
            cut = min(values) < 0
            values = [None] if cut else [bytes(values[start:end]).decode() for start, end in pairwise(ends)]
        found += [values] if values else []
    return found


def preprocessing_apart(estimator: Estimator) -> Any:
    """scikit-learn's histogram boosting with the numbers of its categories given by a step in front of it; any other
    estimator as it is.

    Args:
        estimator: fitted; a pipeline may end with the booster.
    """
    steps = list(getattr(estimator, "steps", None) or ())
    model = steps[-1][1] if steps else estimator
    inner = getattr(model, "_preprocessor", None)
    if inner is None or not hasattr(model, "_predictors"):
        return estimator
    from sklearn.pipeline import Pipeline

    encoder, chosen = inner.named_transformers_["encoder"], inner.transformers_[0][2]
    known = [[c for c in values if c is not None and c == c] for values in encoder.categories_]  # missing is unknown
    if not all(known) or not all(isinstance(c, _PLAIN) for values in known for c in values):
        return estimator  # dates, say, which the ONNX file could not be given
    names = list(getattr(inner, "feature_names_in_", range(inner.n_features_in_)))
    columns = [name for name, one in zip(names, chosen, strict=True) if one]
    rest = [name for name in names if name not in columns]
    categories = dict(zip(columns, known, strict=True))
    parts = [_encoder(categories), *([("numbers", "passthrough", rest)] if rest else [])]
    split = [("encode", _fitted(parts, names, categories)), ("predict", copy_with(model, _preprocessor=None))]
    return copy_with(estimator, steps=[*steps[:-1], *split]) if steps else Pipeline(split)


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
        estimator: of CatBoost, or as of `numbered_alike`.
        categories: of its columns by name, in the order of the fit.
    """
    from sklearn.pipeline import Pipeline

    fitted = estimator.feature_names_in_ if hasattr(estimator, "feature_names_in_") else estimator.feature_names_
    names = [str(name) for name in fitted]
    parts: list[Any] = []
    for encoded, group in groupby(names, categories.__contains__):
        columns = list(group)
        own = {name: categories[name] for name in columns * encoded}
        parts.append(_encoder(own, str(len(parts))) if encoded else (str(len(parts)), "passthrough", columns))
    if hasattr(estimator, "get_metadata"):
        estimator = with_categories(estimator, categories)
    return Pipeline([("encode", _fitted(parts, names, categories)), ("predict", estimator)])


def numbered_alike(estimator: Estimator) -> tuple[Any, dict[str, list[Any]]]:
    """An estimator that takes the numbers of its categories, and the categories; itself and {} where there are none.

    Args:
        estimator: a booster of LightGBM or XGBoost, or one that gives its own rows to such boosters alone: votes,
            stacks, one for each target, calibration.
    """
    if columns := category_columns(estimator):
        if hasattr(estimator, "get_booster"):
            return estimator, columns
        numbered = copy.copy(estimator._Booster)  # LightGBM's number what they are given once more
        numbered.pandas_categorical = None
        return copy_with(estimator, _Booster=numbered), columns
    steps: list[Any] = getattr(estimator, "steps", None) or []
    if len(steps) == 1:
        return numbered_alike(steps[0][1])
    for name in ("estimators_", "calibrated_classifiers_", "regressor_", "estimator"):
        inner: Any = vars(estimator).get(name)
        fitted = inner is not None and (name != "estimator" or hasattr(estimator, "calibrators"))
        if not fitted or getattr(estimator, "passthrough", False):  # a stack that gives its last one the rows, too
            continue
        members = inner if isinstance(inner, list) else [inner]
        found = [numbered_alike(member) for member in members if hasattr(member, "__dict__")]
        columns = found[0][1] if found else {}
        if columns and len(found) == len(members) and all(own == columns for _, own in found):
            changed = copy.copy(estimator)
            vars(changed)[name] = [m for m, _ in found] if isinstance(inner, list) else found[0][0]
            return changed, columns
    return estimator, {}


def _encoder(categories: Mapping[Any, list[Any]], name: str = "encoder") -> tuple[str, Any, list[Any]]:
    from sklearn.preprocessing import OrdinalEncoder

    values = [_known(v) for v in categories.values()]
    encoder = OrdinalEncoder(categories=values, handle_unknown="use_encoded_value", unknown_value=np.nan)
    return name, encoder, list(categories)


def _known(values: list[Any]) -> np.ndarray:
    """Categories for an OrdinalEncoder, which takes numbers in another order than their own as objects alone."""
    return np.array(values, None if not isinstance(values[0], str) and values == sorted(values) else object)


def _fitted(parts: list[Any], names: list[Any], categories: Mapping[Any, list[Any]]) -> Any:
    """A ColumnTransformer of columns by name, or by place."""
    import pandas
    from sklearn.compose import ColumnTransformer

    frame = pandas.DataFrame({name: _known(categories.get(name, [0.0]))[:1] for name in names})
    named = all(isinstance(name, str) for name in names)
    return ColumnTransformer(parts, sparse_threshold=0).fit(frame if named else frame.to_numpy())
