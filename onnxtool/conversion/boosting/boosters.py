"""What boosters say of themselves."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import Booster, Estimator


def booster_of(estimator: Estimator) -> Any:
    """The Booster of an estimator of XGBoost, or the Booster that it is."""
    return estimator.get_booster() if hasattr(estimator, "get_booster") else estimator


def learner_of(booster: Booster) -> dict[str, Any]:
    """How XGBoost made a Booster, without its trees."""
    learner: dict[str, Any] = json.loads(booster.save_config())["learner"]
    return learner


def missing_number(estimator: Estimator) -> float | None:
    """The number that an estimator of XGBoost takes for a missing value, besides NaN."""
    missing = getattr(estimator, "missing", None)
    return float(missing) if isinstance(missing, (int, float)) and not np.isnan(missing) else None


def text_of(estimator: Estimator) -> str:
    """A LightGBM model in its own file format."""
    booster = getattr(estimator, "booster_", estimator)
    return str(booster.model_to_string())
