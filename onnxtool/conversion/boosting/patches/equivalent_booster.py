"""Boosters that the exporters refuse, as boosters that they take and that predict the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxtool.conversion.boosting.linear_booster import booster_of, learner_of
from onnxtool.conversion.frameworks import Estimator, copy_with
from onnxtool.conversion.patches import Patch, substitute

# LightGBM's objectives that onnxmltools 1.16 does not know -> the operator that makes predictions of their sums.
# Source: LightGBM, src/objective/regression_objective.hpp and xentropy_objective.hpp (ConvertOutput).
LINKS: Mapping[str, str] = {"mape": "", "fair": "", "cross_entropy": "Sigmoid", "cross_entropy_lambda": "Softplus"}
RAW_SUMS = "binary:logitraw"


def equivalent(estimator: Estimator) -> Any:
    """The same model in a form that onnxmltools takes: a copy, or the estimator itself where it needs no change.

    Args:
        estimator: of XGBoost or LightGBM, or their Booster.
    """
    return substitute(PATCHES, estimator)


def _is_of(estimator: Estimator, package: str) -> bool:
    return type(estimator).__module__.partition(".")[0] == package


def _without_dropout(estimator: Estimator) -> Any:
    """XGBoost's DART is a sum of trees of which each has a weight."""
    if not _is_of(estimator, "xgboost"):
        return estimator
    import xgboost

    booster = booster_of(estimator)
    if learner_of(booster)["gradient_booster"]["name"] != "dart":
        return estimator
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
    return copy_with(estimator, _Booster=weighted, booster="gbtree")


def _with_chances(estimator: Estimator) -> Any:
    """XGBoost's objectives that the exporter does not know, as those that make the same predictions of the sums.

    A classifier that was to give labels gives probabilities, as `predict_proba` of it does. Cox's hazards and the times
    of accelerated failure are exponentials, as Poisson's rates are (XGBoost, src/objective, PredTransform).
    """
    if not _is_of(estimator, "xgboost"):
        return estimator
    import xgboost

    booster = booster_of(estimator)
    known = {"survival:cox": "count:poisson", "survival:aft": "count:poisson"}
    if booster is not estimator:
        known["multi:softmax"] = "multi:softprob"
    objective = known.get(learner_of(booster)["objective"]["name"])
    if gives_chances(estimator):
        return sums_of(estimator)
    if objective is None:
        return estimator
    model = json.loads(bytes(booster.save_raw("json")))
    model["learner"]["objective"]["name"] = objective
    model["learner"]["objective"].setdefault("poisson_regression_param", {"max_delta_step": "0"})
    renamed = xgboost.Booster(model_file=bytearray(json.dumps(model), "utf-8"))
    return renamed if booster is estimator else copy_with(estimator, _Booster=renamed, objective=objective)


def _with_single_trees(estimator: Estimator) -> Any:
    """XGBoost's forests that are boosted, as single trees: of the rounds that count, where training was to stop."""
    if not _is_of(estimator, "xgboost") or booster_of(estimator) is estimator:
        return estimator
    booster, best = booster_of(estimator), getattr(estimator, "best_iteration", None)
    trees = learner_of(booster)["gradient_booster"].get("gbtree_model_param", {})
    if int(trees.get("num_parallel_tree", "1")) < 2:
        return estimator
    counted = booster if best is None else booster[: best + 1]
    counted.set_attr(best_iteration=None)
    groups = max(1, int(learner_of(booster)["learner_model_param"]["num_class"]))
    return copy_with(estimator, _Booster=counted, n_estimators=len(counted.get_dump()) // groups)


def gives_chances(estimator: Estimator) -> bool:
    """Whether a regressor of XGBoost predicts probabilities."""
    booster = booster_of(estimator)
    if booster is estimator or hasattr(estimator, "predict_proba"):
        return False
    return learner_of(booster)["objective"]["name"] in ("reg:logistic", "binary:logistic")


def sums_of(estimator: Estimator) -> Any:
    """A regressor with the same trees, which gives what the probabilities are made of.

    Args:
        estimator: of XGBoost, with probabilities, or with sums that stand for them; not changed.
    """
    import xgboost

    model = json.loads(bytes(booster_of(estimator).save_raw("json")))
    learner = model["learner"]
    if learner["objective"]["name"] != RAW_SUMS:
        chances = np.atleast_1d(np.array(json.loads(learner["learner_model_param"]["base_score"]), np.float64))
        begins = np.log(chances) - np.log1p(-chances)  # XGBoost keeps the probability that its sums begin with
        learner["learner_model_param"]["base_score"] = json.dumps(begins.tolist())
    learner["objective"] = {"name": "reg:squarederror", "reg_loss_param": {"scale_pos_weight": "1"}}
    found = xgboost.XGBRegressor()
    found._Booster = xgboost.Booster(model_file=bytearray(json.dumps(model), "utf-8"))
    found.n_estimators, found.missing = estimator.n_estimators, estimator.missing
    return found


def _without_names(estimator: Estimator) -> Any:
    if not _is_of(estimator, "xgboost"):
        return estimator
    booster = booster_of(estimator)
    if booster is estimator or (booster.feature_names is None and booster.feature_types is None):
        return estimator
    numbered = booster.copy()
    numbered.feature_names = numbered.feature_types = None  # by its type, a feature's thresholds may be left unwritten
    return copy_with(estimator, _Booster=numbered)


def _with_known_objective(estimator: Estimator) -> Any:
    """An objective says nothing of the sums; one of the user's own gives them as they are."""
    if not _is_of(estimator, "lightgbm"):
        return estimator
    text = str(getattr(estimator, "booster_", estimator).model_to_string())
    objective = objective_of(text)
    if objective == "" and not hasattr(estimator, "classes_"):
        return _read_again(estimator, text.replace("\nfeature_names=", "\nobjective=regression\nfeature_names=", 1))
    if objective.partition(" ")[0] in LINKS:
        return _read_again(estimator, text.replace(f"\nobjective={objective}\n", "\nobjective=regression\n", 1))
    return estimator


def _without_mean(estimator: Estimator) -> Any:
    """A forest, which gives the mean of its trees, as trees that add up to it."""
    if not _is_of(estimator, "lightgbm"):
        return estimator
    text = str(getattr(estimator, "booster_", estimator).model_to_string())
    if "\naverage_output\n" not in text or "\nis_linear=1" in text:
        return estimator
    return _read_again(estimator, _summed(text))


def _read_again(estimator: Estimator, text: str) -> Any:
    """LightGBM's estimator, or Booster, with the model that a text describes."""
    import lightgbm

    booster = lightgbm.Booster(model_str=text)
    if not hasattr(estimator, "booster_"):
        return booster
    return copy_with(estimator, _Booster=booster, boosting_type="gbdt")


def _summed(text: str) -> str:
    """The text of a forest, with leaves that add up to the mean."""
    passes, lines = passes_of_forest(text), text.replace("\naverage_output\n", "\n", 1).splitlines()
    for place, line in enumerate(lines):
        name, _, values = line.partition("=")
        if name == "leaf_value":
            lines[place] = f"leaf_value={' '.join(repr(float(v) / passes) for v in values.split())}"
    # How many characters each tree has is told too, for reading them in parallel.
    return "\n".join(line for line in lines if not line.startswith("tree_sizes=")) + "\n"


def passes_of_forest(text: str) -> float:
    """How many trees a LightGBM model takes the mean of for each class; 1 of a sum."""
    lines = text.splitlines() if "\naverage_output\n" in text else []
    per_pass = [float(line.partition("=")[2]) for line in lines if line.startswith("num_tree_per_iteration=")]
    return sum(line.startswith("Tree=") for line in lines) / per_pass[0] if per_pass else 1.0


def objective_of(text: str) -> str:
    """The objective that a LightGBM model names in its own file format, with its parameters."""
    lines = (line for line in text.splitlines() if line.startswith("objective="))
    return next(lines, "objective=").partition("=")[2]


DROPOUT = Patch("onnxmltools", "1.17", "onnxmltools 1.16 writes no trees of XGBoost's DART", _without_dropout)
NAMES = Patch("onnxmltools", "1.17", "onnxmltools 1.16 knows XGBoost's features by numbers alone", _without_names)
SINGLE = Patch(
    "onnxmltools", "1.17", "onnxmltools 1.16 takes num_parallel_tree for a number of classes", _with_single_trees
)
CHANCES = Patch("onnxmltools", "1.17", "onnxmltools 1.16 refuses classifiers that give labels alone", _with_chances)
OBJECTIVE = Patch(
    "onnxmltools", "1.17", "onnxmltools 1.16 does not know all of LightGBM's objectives", _with_known_objective
)
MEAN = Patch(
    "onnxmltools",
    "1.17",
    "onnxmltools 1.16 takes the mean of what a forest's objective makes of the sum",
    _without_mean,
)
# Given an estimator or a Booster.
PATCHES = (DROPOUT, SINGLE, NAMES, CHANCES, OBJECTIVE, MEAN)
