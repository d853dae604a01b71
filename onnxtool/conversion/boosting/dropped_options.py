"""What exporters of boosted trees leave out of a model, by name."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import Booster, Estimator

_LIGHTGBM = {"linear_tree": "\nis_linear=1", "boosting=rf": "\naverage_output"}


def dropped_options(estimator: Estimator) -> list[str]:
    """Options that the exporters are known to drop, of a booster or an estimator: "linear_tree"."""
    package = type(estimator).__module__.partition(".")[0]
    if package == "lightgbm":
        text = text_of(estimator)
        found = [name for name, mark in _LIGHTGBM.items() if mark in text]
        # Bits 2 and 3 of a decision say what stands for a missing value: 1 is zero (LightGBM, include/LightGBM/tree.h).
        decisions = [w for line in text.splitlines() if line.startswith("decision_type=") for w in line[14:].split()]
        found += ["zero_as_missing"] * any(int(d) >> 2 & 3 == 1 for d in decisions)
        return [*found, f"objective={_objective_of(text)}"]
    if package == "xgboost":
        return _xgboost(estimator)
    if package == "catboost":
        return [f"loss_function={loss_of(estimator)}"]
    return []


def missing_number(estimator: Estimator) -> float | None:
    """The number that an estimator of XGBoost takes for a missing value, besides NaN."""
    missing = getattr(estimator, "missing", None)
    return float(missing) if isinstance(missing, (int, float)) and not np.isnan(missing) else None


def text_of(estimator: Estimator) -> str:
    """A LightGBM model in its own file format."""
    booster = getattr(estimator, "booster_", estimator)
    return str(booster.model_to_string())


def _objective_of(text: str) -> str:
    """The objective that a LightGBM model names in its own file format, with its parameters."""
    lines = (line for line in text.splitlines() if line.startswith("objective="))
    return next(lines, "objective=").partition("=")[2]


def booster_of(estimator: Estimator) -> Any:
    """The Booster of an estimator of XGBoost, or the Booster that it is."""
    return estimator.get_booster() if hasattr(estimator, "get_booster") else estimator


def learner_of(booster: Booster) -> dict[str, Any]:
    """How XGBoost made a Booster, without its trees."""
    learner: dict[str, Any] = json.loads(booster.save_config())["learner"]
    return learner


def loss_of(estimator: Estimator) -> str:
    """CatBoost's loss function without its parameters."""
    try:
        return str(estimator.get_all_params().get("loss_function", "")).partition(":")[0]
    except Exception:  # models read from a file know less
        return ""


def _xgboost(estimator: Estimator) -> list[str]:
    learner = learner_of(booster_of(estimator))
    found = []
    kind = learner["gradient_booster"]["name"]
    if kind != "gbtree":
        found.append(f"booster={kind}")
    if int(learner["learner_model_param"].get("num_target", "1")) > 1:
        found.append("several targets")
    gap = missing_number(estimator)
    if gap is not None:
        found.append(f"missing={gap:g}")
    return [*found, f"objective={learner['objective']['name']}"]
