"""LightGBM fitted on a frame with columns of categories: the file takes the categories themselves, not their numbers.

Source: LightGBM 4, python-package, `_data_from_pandas`: a category is its place among those of the fit, and others are
missing values.
"""

from __future__ import annotations

import copy
import re
from itertools import groupby
from typing import Any

import numpy as np

from onnxtool.conversion.boosting.dropped_options import text_of
from onnxtool.conversion.frameworks import Estimator, copy_with


def category_columns(estimator: Estimator) -> dict[str, list[Any]]:
    """The categories of each column that LightGBM splits by them; {} where there are none, or not of texts or integers.

    Args:
        estimator: of LightGBM, or any other.
    """
    known = getattr(getattr(estimator, "_Booster", None), "pandas_categorical", None)
    if not known:
        return {}
    found = re.search(r"^\[categorical_feature: ([\d,]+)\]$", text_of(estimator), re.MULTILINE)
    places = [int(place) for place in found[1].split(",")] if found else []
    plain = all({type(value) for value in values} in ({str}, {int}) and values == sorted(values) for values in known)
    if len(places) != len(known) or not plain:  # ordered categories are numbered too, and split as numbers
        return {}
    return {str(estimator.feature_names_in_[place]): values for place, values in zip(places, known, strict=True)}


def with_encoder(estimator: Estimator, categories: dict[str, list[Any]]) -> Any:
    """The estimator behind an encoder of its categories, as a fitted pipeline that does the same.

    Args:
        estimator: of LightGBM.
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
    numbered = copy.copy(estimator._Booster)
    numbered.pandas_categorical = None
    head = ColumnTransformer(parts, sparse_threshold=0).fit(frame)
    return Pipeline([("encode", head), ("predict", copy_with(estimator, _Booster=numbered))])
