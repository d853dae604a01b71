"""Boosters fitted on a frame with columns of categories: the file takes the categories themselves, not their numbers.

Source: LightGBM 4, python-package, `_data_from_pandas`: a category is its place among those of the fit, and others are
missing values. XGBoost 3.1, src/data/cat_container.h: the same, and others are errors.
"""

from __future__ import annotations

import copy
import json
import re
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from onnxtool.conversion.boosting.dropped_options import booster_of, text_of
from onnxtool.conversion.frameworks import Booster, Estimator, copy_with


def category_columns(estimator: Estimator) -> dict[str, list[Any]]:
    """The categories of each column that a booster splits by; {} where there are none, or not of texts or integers.

    Args:
        estimator: of LightGBM or XGBoost, or any other.
    """
    known = numbered_categories(estimator)
    plain = all({type(value) for value in values} in ({str}, {int}) and values == sorted(values) for values in known)
    if not known or not plain or not hasattr(estimator, "feature_names_in_"):
        return {}
    if hasattr(estimator, "get_booster"):
        places = [place for place, kind in enumerate(booster_of(estimator).feature_types) if kind == "c"]
    else:
        found = re.search(r"^\[categorical_feature: ([\d,]+)\]$", text_of(estimator), re.MULTILINE)
        places = [int(place) for place in found[1].split(",")] if found else []
    if len(places) != len(known):  # ordered categories are numbered too, and split as numbers
        return {}
    return {str(estimator.feature_names_in_[place]): values for place, values in zip(places, known, strict=True)}


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
    known = [values for values in numbered_categories(estimator) if values != [None]]
    if encoded:
        return ["a category that the fit has not seen is a missing value (XGBoost raises an error)"] if known else []
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


def with_encoder(estimator: Estimator, categories: dict[str, list[Any]]) -> Any:
    """The estimator behind an encoder of its categories, as a fitted pipeline that does the same.

    Args:
        estimator: of LightGBM or XGBoost.
        categories: of its columns by name, in the order of the fit.
    """
    import pandas
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OrdinalEncoder

    names = [str(name) for name in estimator.feature_names_in_]
    frame = pandas.DataFrame({name: categories.get(name, [0.0])[:1] for name in names})
    parts: list[tuple[str, Any, list[str]]] = []
    for encoded, group in groupby(names, categories.__contains__):
        columns = list(group)
        values = [
            np.array(categories[n], object if isinstance(categories[n][0], str) else None) for n in columns * encoded
        ]
        encoder = OrdinalEncoder(categories=values, handle_unknown="use_encoded_value", unknown_value=np.nan)
        parts.append((str(len(parts)), encoder if encoded else "passthrough", columns))
    if not hasattr(estimator, "get_booster"):  # LightGBM's number what they are given once more
        numbered = copy.copy(estimator._Booster)
        numbered.pandas_categorical = None
        estimator = copy_with(estimator, _Booster=numbered)
    head = ColumnTransformer(parts, sparse_threshold=0).fit(frame)
    return Pipeline([("encode", head), ("predict", estimator)])
