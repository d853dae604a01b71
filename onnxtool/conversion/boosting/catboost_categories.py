"""CatBoost's columns of categories -> the numbers that its trees compare.

A model holds hashes of categories alone. Which texts have these hashes is told by a table, and the file looks up what
each known category, or each combination of several, has learned.

Source: CatBoost, catboost/libs/model/model_export/resources/ctr_calcer.py ("python" form of a model), which computes
the hash of a combination and the statistic of a hash.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from onnxtool.conversion.boosting.ensembles import BoosterGraph
from onnxtool.conversion.frameworks import Estimator
from onnxtool.errors import UnsupportedError
from onnxtool.runtime.data.table import DataTable

_FACTOR = np.uint64(0x4906BA494954CB65)
_NO_HASH = str(2**64 - 1)  # of a place in the table that is empty
_MOST = 1 << 22  # combinations that are looked at
_COUNTS = ("Counter", "FeatureFreq")
_MEANS = ("BinarizedTargetMeanValue", "FloatTargetMeanValue")
_METADATA = "onnxtool.categories"
Categories = Mapping[str, Sequence[str | int]]


def asks_for_categories(estimator: Estimator) -> bool:
    """Whether it is CatBoost's, and has learned from categories that are not known."""
    if not hasattr(estimator, "get_cat_feature_indices") or not estimator.is_fitted():
        return False
    return bool(estimator.get_cat_feature_indices()) and not known_categories(estimator)


def known_categories(estimator: Estimator) -> dict[str, list[str | int]]:
    """What `with_categories` has told a model of CatBoost."""
    found: dict[str, list[str | int]] = json.loads(estimator.get_metadata().get(_METADATA, "{}"))
    return found


def with_categories(estimator: Estimator, categories: Categories) -> Any:
    """A copy that takes the places of these categories, by the columns' names."""
    numbered = estimator.copy()
    numbered.get_metadata()[_METADATA] = json.dumps(categories)
    return numbered


def categories_in(estimator: Estimator, table: object) -> dict[str, list[str | int]]:
    """The categories that a table has, of each column that a model of CatBoost has learned from as such.

    Returns:
        {} of other models, and where there is no table.

    Raises:
        UnsupportedError: a category is a fraction, or missing.
        InputError: the table has no such column.
    """
    if not asks_for_categories(estimator) or not isinstance(table, DataTable):
        return {}
    found = {}
    for name in (str(estimator.feature_names_[place]) for place in estimator.get_cat_feature_indices()):
        column = table.column(name)
        if column.dtype.kind == "f":
            raise UnsupportedError(
                f"{table.label}: column {name!r} has fractions or gaps, which CatBoost has not learned."
            )
        found[name] = np.unique(column).tolist()
    return found


def model_json(estimator: Estimator) -> dict[str, Any]:
    """A model in its JSON form, with the hashes of the categories that are known."""
    pool, categories = None, known_categories(estimator)
    if categories:
        import catboost
        import pandas

        length = max(map(len, categories.values()))
        numbers = dict.fromkeys(estimator.feature_names_, np.zeros(length))
        texts = {name: np.resize(np.array(values, object), length) for name, values in categories.items()}
        pool = catboost.Pool(pandas.DataFrame(numbers | texts), cat_features=list(categories))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trees.json"
        estimator.save_model(str(path), format="json", pool=pool)
        model: dict[str, Any] = json.loads(path.read_text())
    return model


class CategoryFeatures:
    """Further columns [rows, 1] of a graph beside a matrix "X", in which columns of categories have their places.

    Args:
        graph: where they are computed.
        model: in its JSON form, with hashes.
        categories: what the places stand for, by the columns' names; what is none of them is NaN.
    """

    def __init__(self, graph: BoosterGraph, model: Mapping[str, Any], categories: Categories) -> None:
        info = model["features_info"]
        self._graph, self._tables = graph, model.get("ctr_data", {})
        self._floats = {f["feature_index"]: f for f in info.get("float_features") or ()}
        self._texts = {f["feature_index"]: f for f in info.get("categorical_features") or ()}
        hashes = {known["value"]: known["hash"] for known in info.get("cat_features_hash") or ()}
        self._hashes = {
            index: np.array([hashes[str(value)] for value in categories.get(feature["feature_id"], ())], np.uint32)
            for index, feature in self._texts.items()
        }
        # Splits are numbered: by numbers and by single categories first, then these.
        before = [
            f.get(kind) or ()
            for kind, part in (("borders", self._floats), ("values", self._texts))
            for f in part.values()
        ]
        self._first = sum(map(len, before))
        self._splits = [(statistic, border) for statistic in info.get("ctrs") or () for border in statistic["borders"]]
        self._columns: dict[Any, int] = {}
        self._made: list[str] = []
        self._keys: dict[str, tuple[str, np.ndarray]] = {}

    def split(self, given: Mapping[str, Any]) -> tuple[int, float]:
        """(column, bound) of a split that is no number's: above the bound it goes right.

        Raises:
            UnsupportedError: texts or embeddings, or a category that is not known.
        """
        if given["split_type"] == "OneHotFeature":
            feature, value = given["cat_feature_index"], given["value"]
            return self._column((feature, value), lambda: self._is(feature, value)), 0.5
        if given["split_type"] != "OnlineCtr":
            raise UnsupportedError("CatBoost: splits on texts or embeddings have no ONNX form; encode them before.")
        statistic, border = self._splits[given["split_index"] - self._first]
        return self._column(id(statistic), lambda: self._learned(statistic)), float(border)

    def matrix(self) -> str:
        """The numbers with the columns that were asked for behind them."""
        return self._graph.add("Concat", "X", *self._made, axis=1) if self._made else "X"

    def _column(self, key: Any, make: Callable[[], str]) -> int:
        if key not in self._columns:
            self._columns[key] = len(self._floats) + len(self._texts) + len(self._made)
            self._made.append(make())
        return self._columns[key]

    def _is(self, feature: int, value: int) -> str:
        places = np.flatnonzero(self._hashes[feature] == value % 2**32)  # given with its sign
        if not len(places):
            raise self._refusal([{"cat_feature_index": feature}], 1)
        return self._looked_up(self._place(feature), places, np.ones(len(places)), 0.0)

    def _learned(self, statistic: Mapping[str, Any]) -> str:
        """What a statistic of the target, or a count, is for each row."""
        table = self._tables[statistic["identifier"]]
        stride, cells = table["hash_stride"], table["hash_map"]
        rows = [cells[start : start + stride] for start in range(0, len(cells), stride)]
        rows = [row for row in rows if str(row[0]) != _NO_HASH]
        learned = np.array([int(row[0]) for row in rows], np.uint64)
        key, hashes = self._key(statistic["elements"])
        order = np.argsort(hashes)
        found = np.searchsorted(hashes, learned, sorter=order)
        places = order[np.minimum(found, len(order) - 1)]
        if lost := int((hashes[places] != learned).sum()):
            raise self._refusal(statistic["elements"], lost)
        # The last one is what a row has of which nothing is known.
        values = _values(statistic, np.array([row[1:] for row in rows] + [[0] * (stride - 1)], np.float32), table)
        return self._looked_up(key, places, values[:-1], values[-1])

    def _key(self, elements: Sequence[Mapping[str, Any]]) -> tuple[str, np.ndarray]:
        """The number of a row's combination, int64 [rows, 1], and the hashes of all combinations in their order."""
        name = json.dumps(elements)
        if name in self._keys:
            return self._keys[name]
        key = ""
        hashes: np.ndarray = np.zeros(1, np.uint64)
        for part, own in map(self._element, elements):
            if len(hashes) * len(own) > _MOST:
                raise UnsupportedError(
                    f"CatBoost: {self._named(elements)} have too many combinations for an ONNX file. Fit it with "
                    "max_ctr_complexity=1, which looks at one column at a time."
                )
            hashes = np.ravel(_FACTOR * (hashes[:, None] + _FACTOR * own))  # modulo 2^64
            key = self._graph.add("Add", self._graph.add("Mul", key, np.array([len(own)])), part) if key else part
        self._keys[name] = key, hashes
        return key, hashes

    def _element(self, element: Mapping[str, Any]) -> tuple[str, np.ndarray]:
        """A part of a combination: its number int64 [rows, 1], and what each number brings to the hash, uint64."""
        kind = element["combination_element"]
        if kind == "cat_feature_value":
            hashes = self._hashes[element["cat_feature_index"]].view(np.int32).astype(np.int64)
            # Beyond 32 bits: of a category that is not known, and that nothing was learned from.
            return self._place(element["cat_feature_index"]), np.append(hashes, 1 << 40).view(np.uint64)
        if kind == "float_feature":
            feature, border = self._floats[element["float_feature_index"]], float(element["border"])
            number = self._graph.add("Gather", "X", np.array([feature["flat_feature_index"]]), axis=1)
            missing_below = feature["nan_value_treatment"] != "AsTrue"
            met = self._graph.add("Greater" if missing_below else "LessOrEqual", number, border)
            met = met if missing_below else self._graph.add("Not", met)
        else:
            met = self._is(element["cat_feature_index"], element["value"])
        return self._graph.add("Cast", met, to=TensorProto.INT64), np.array([0, 1], np.uint64)

    def _place(self, feature: int) -> str:
        """The place of a row's category, int64 [rows, 1]; behind the last one of what is none of them."""
        place = self._graph.add("Gather", "X", np.array([self._texts[feature]["flat_feature_index"]]), axis=1)
        known = self._graph.add("Where", self._graph.add("IsNaN", place), float(len(self._hashes[feature])), place)
        return self._graph.add("Cast", known, to=TensorProto.INT64)

    def _looked_up(self, key: str, keys: np.ndarray, values: np.ndarray, unknown: float) -> str:
        found = {"keys_int64s": keys.tolist(), "values_floats": values.tolist(), "default_float": float(unknown)}
        return self._graph.add("LabelEncoder", key, domain="ai.onnx.ml", **found)

    def _named(self, elements: Sequence[Mapping[str, Any]]) -> str:
        features = [self._texts[e["cat_feature_index"]] for e in elements if "cat_feature_index" in e]
        return "categories of column " + ", ".join(repr(feature["feature_id"]) for feature in features)

    def _refusal(self, elements: Sequence[Mapping[str, Any]], count: int) -> UnsupportedError:
        return UnsupportedError(
            f"CatBoost: the sample lacks {self._named(elements)} that it has learned from ({count} entries of its "
            "tables). Give the table that it was fitted on."
        )


def _values(statistic: Mapping[str, Any], counts: np.ndarray, table: Mapping[str, Any]) -> np.ndarray:
    """What rows of counts, float32 [rows, classes], come to, in float32 as there."""
    kind, border = statistic["ctr_type"], statistic["target_border_idx"]
    if kind in _COUNTS:
        part, whole = counts[:, 0], np.full(len(counts), table["counter_denominator"], np.float32)
    elif kind in _MEANS:
        part, whole = counts[:, 0], counts[:, 1]
    else:
        part = counts[:, border] if kind == "Buckets" else counts[:, border + 1 :].sum(axis=1)
        whole = counts.sum(axis=1)
    names = ("prior_numerator", "prior_denomerator", "shift", "scale")
    prior, more, shift, scale = (np.float32(statistic[name]) for name in names)
    values: np.ndarray = ((part + prior) / (whole + more) + shift) * scale
    return values
