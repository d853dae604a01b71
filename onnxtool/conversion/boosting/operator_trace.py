"""What boosters of XGBoost and LightGBM compute, written down as ONNX nodes from their own dumps.

Source: XGBoost 3, its JSON format: a number below the threshold goes left, compared in float32. LightGBM 4, tree.h: a
number of at most the threshold goes left, compared in doubles, in which numbers of up to 1e-35 are zero.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from onnxtool.conversion.boosting.boosters import booster_of, learner_of, missing_number, text_of
from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.traced_trees import (
    TableTraceWriter,
    TracedTable,
    TracedTree,
    classified,
    to_float32,
    widened,
)
from onnxtool.errors import UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ZERO = float(np.float32(1e-35))  # LightGBM's kZeroThreshold
_ENDLESS = 1e300  # what stands for infinity in its JSON form


def boosted(write: TableTraceWriter, estimator: Estimator, table: TracedTable) -> list[str]:
    """The outputs of a booster, or of an estimator that holds one.

    Raises:
        UnsupportedError: an objective or an option without a form here.
    """
    xgboost = type(estimator).__module__.startswith("xgboost")
    return (_xgboost if xgboost else _lightgbm)(write, estimator, table)


def _xgboost(write: TableTraceWriter, estimator: Estimator, table: TracedTable) -> list[str]:
    booster = booster_of(estimator)
    config, model = learner_of(booster), json.loads(bytes(booster.save_raw("json")))["learner"]
    objective, counts = config["objective"]["name"], config["learner_model_param"]
    if config["gradient_booster"]["name"] != "gbtree" or missing_number(estimator) is not None:
        raise UnsupportedError("boosters other than gbtree, and missing numbers, have no exact form here")
    if int(counts.get("num_target", "1")) > 1:
        raise UnsupportedError("several targets have no exact form here")
    count = max(int(counts.get("num_class", "1")), 1)
    body = model["gradient_booster"]["model"]
    trees = [_xgboost_tree(t, target) for t, target in zip(body["trees"], body["tree_info"], strict=True)]
    score = np.atleast_1d(np.array(json.loads(counts["base_score"]), np.float32))
    if objective in ("binary:logistic", "reg:logistic"):
        score = -np.log(np.float32(1) / score - np.float32(1))
    sums = write.trees(table, trees, count, to_float32)
    begin = np.broadcast_to(score, count).astype(np.float64)
    sums = write.add("Add", sums, begin) if begin.any() else sums
    if objective in ("binary:logistic", "multi:softprob") and hasattr(estimator, "classes_"):
        label, chances = classified(write, widened(write, sums), count, estimator.classes_, equal=False)
        return [label, write.add("Cast", chances, to=TensorProto.FLOAT) if write.double else chances]
    if objective in ("reg:squarederror", "reg:absoluteerror", "reg:quantileerror", "reg:pseudohubererror"):
        return [sums]
    raise UnsupportedError(f"objective {objective} has no exact form here")


def _xgboost_tree(tree: Mapping[str, Any], target: int) -> TracedTree:
    if any(tree.get("split_type") or ()) or int(tree["tree_param"].get("size_leaf_vector", "1")) > 1:
        raise UnsupportedError("splits on categories and leaves of several numbers have no exact form here")
    numbers = np.array(tree["split_conditions"], np.float32).astype(np.float64)
    return TracedTree(
        features=np.array(tree["split_indices"], np.int64),
        thresholds=numbers,
        strict=True,
        missing_low=np.array(tree["default_left"], bool),
        low=np.array(tree["left_children"], np.int64),
        high=np.array(tree["right_children"], np.int64),
        values=numbers,
        target=int(target),
    )


def _lightgbm(write: TableTraceWriter, estimator: Estimator, table: TracedTable) -> list[str]:
    text = text_of(estimator)
    if "\naverage_output" in text or "\nis_linear=1" in text:
        raise UnsupportedError("LightGBM's forests and linear leaves have no exact form here")
    dump = getattr(estimator, "booster_", estimator).dump_model()
    count = int(dump["num_tree_per_iteration"])
    trees = [_lightgbm_tree(t["tree_structure"], i % count) for i, t in enumerate(dump["tree_info"])]
    objective = str(dump.get("objective", "")).split(" ")
    sums = widened(write, write.trees(table, trees, count, _without_specks))
    if objective[0] in ("regression", "regression_l1", "huber", "quantile", "mape", "fair") and "sqrt" not in objective:
        return [sums]
    classes = getattr(estimator, "classes_", np.arange(max(count, 2)))
    if objective[0] == "multiclass" or (objective[0] == "binary" and "sigmoid:1" in objective):
        return classified(write, sums, count, classes, equal=False)
    raise UnsupportedError(f"objective {' '.join(objective)} has no exact form here")


def _without_specks(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.abs(x) <= _ZERO, 0.0, x)


def _lightgbm_tree(root: Mapping[str, Any], target: int) -> TracedTree:
    rows: list[list[Any]] = []

    def leaf(value: float) -> list[Any]:
        return [0, 0.0, False, -1, -1, float(value)]

    pending: list[tuple[Mapping[str, Any], int, int]] = [(root, -1, 0)]
    while pending:
        node, parent, side = pending.pop(0)
        if parent >= 0:
            rows[parent][3 + side] = len(rows)
        if "split_index" not in node:
            rows.append(leaf(node["leaf_value"]))
            continue
        if node["decision_type"] != "<=" or node["missing_type"] == "Zero":
            raise UnsupportedError("LightGBM's categories and zero_as_missing have no exact form here")
        threshold = float(node["threshold"])
        threshold = np.inf if threshold >= _ENDLESS else threshold
        missing = bool(node["default_left"]) if node["missing_type"] == "NaN" else threshold >= 0
        rows.append([int(node["split_feature"]), threshold, missing, 0, 0, 0.0])
        pending += [(node["left_child"], len(rows) - 1, 0), (node["right_child"], len(rows) - 1, 1)]
    features, thresholds, missing_low, low, high, values = (np.array(c) for c in zip(*rows, strict=True))
    return TracedTree(features, thresholds, False, missing_low, low, high, values, target)
