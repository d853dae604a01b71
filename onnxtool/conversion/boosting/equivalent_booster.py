"""Boosters that the exporters refuse, as boosters that they take and that predict the same."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from onnxtool.conversion.boosting.linear_booster import booster_of, learner_of

# LightGBM's objectives that onnxmltools 1.16 does not know -> the operator that makes predictions of their sums.
# Source: LightGBM, src/objective/regression_objective.hpp and xentropy_objective.hpp (ConvertOutput).
LINKS: Mapping[str, str] = {"mape": "", "fair": "", "cross_entropy": "Sigmoid", "cross_entropy_lambda": "Softplus"}


def equivalent(estimator: Any) -> Any:
    """The same model in a form that onnxmltools takes: a copy, or the estimator itself where it needs no change.

    XGBoost's DART is a sum of trees of which each has a weight; an objective says nothing of sums.

    Args:
        estimator: of XGBoost or LightGBM, or their Booster.
    """
    package = type(estimator).__module__.partition(".")[0]
    if package == "xgboost":
        return _with_chances(_without_dropout(estimator))
    if package == "lightgbm":
        return _plain(estimator)
    return estimator


def _without_dropout(estimator: Any) -> Any:
    import xgboost

    booster = booster_of(estimator)
    if learner_of(booster)["gradient_booster"]["name"] != "dart":
        return _without_names(estimator, booster)
    model = json.loads(bytes(booster.save_raw("json")))
    dart = model["learner"]["gradient_booster"]
    plain = dart["gbtree"]
    for tree, weight in zip(plain["model"]["trees"], dart["weight_drop"], strict=True):
        leaves = [i for i, child in enumerate(tree["left_children"]) if child == -1]
        for values in (tree["split_conditions"], tree["base_weights"]):
            for leaf in leaves:
                values[leaf] *= weight
    model["learner"]["gradient_booster"] = {**plain, "name": "gbtree"}
    weighted = xgboost.Booster(model_file=bytearray(json.dumps(model), "utf-8"))
    weighted.feature_names = None
    if booster is estimator:
        return weighted
    found = copy.copy(estimator)
    found._Booster, found.booster = weighted, "gbtree"
    return found


def _with_chances(estimator: Any) -> Any:
    """Of XGBoost: a classifier that was to give labels gives probabilities, as `predict_proba` of it does."""
    import xgboost

    booster = booster_of(estimator)
    if booster is estimator or learner_of(booster)["objective"]["name"] != "multi:softmax":
        return estimator
    model = json.loads(bytes(booster.save_raw("json")))
    model["learner"]["objective"]["name"] = "multi:softprob"
    found = copy.copy(estimator)
    found._Booster = xgboost.Booster(model_file=bytearray(json.dumps(model), "utf-8"))
    found.objective = "multi:softprob"
    return found


def _without_names(estimator: Any, booster: Any) -> Any:
    """Of XGBoost: onnxmltools 1.16 knows features by numbers alone, and a table's columns have names."""
    if booster.feature_names is None or booster is estimator:
        return estimator
    numbered = booster.copy()
    numbered.feature_names = None
    found = copy.copy(estimator)
    found._Booster = numbered
    return found


def _plain(estimator: Any) -> Any:
    """LightGBM: a sum of trees, of an objective that onnxmltools knows."""
    import lightgbm

    booster = getattr(estimator, "booster_", estimator)
    text = given = str(booster.model_to_string())
    objective = objective_of(text)
    if objective == "" and not hasattr(estimator, "classes_"):  # one of the user's own: it gives the sums
        text = text.replace("\nfeature_names=", "\nobjective=regression\nfeature_names=", 1)
    if objective.partition(" ")[0] in LINKS:
        text = text.replace(f"\nobjective={objective}\n", "\nobjective=regression\n", 1)
    if "\naverage_output\n" in text and "\nis_linear=1" not in text:
        text = _summed(text)
    if text == given:
        return estimator
    found = lightgbm.Booster(model_str=text)
    if booster is not estimator:
        found, plain = copy.copy(estimator), found
        found._Booster, found.boosting_type = plain, "gbdt"
    return found


def _summed(text: str) -> str:
    """A forest, which gives the mean of its trees, as trees that add up to it: onnxmltools 1.16 takes the mean of what
    the objective makes of the sum.
    """
    lines = text.replace("\naverage_output\n", "\n", 1).splitlines()
    per_pass = int(next(line for line in lines if line.startswith("num_tree_per_iteration=")).partition("=")[2])
    passes = sum(line.startswith("Tree=") for line in lines) / per_pass
    for place, line in enumerate(lines):
        name, _, values = line.partition("=")
        if name == "leaf_value":
            lines[place] = f"leaf_value={' '.join(repr(float(v) / passes) for v in values.split())}"
    # How many characters each tree has is told too, for reading them in parallel.
    return "\n".join(line for line in lines if not line.startswith("tree_sizes=")) + "\n"


def objective_of(text: str) -> str:
    """The objective that a LightGBM model names in its own file format, with its parameters."""
    lines = (line for line in text.splitlines() if line.startswith("objective="))
    return next(lines, "objective=").partition("=")[2]
