"""XGBoost's classifiers of several labels: the sum of each label's trees becomes a probability and a label.

onnxmltools 1.16 writes a classifier of two classes for them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.conversion.boosting.linear_booster import booster_of, learner_of
from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.node_writer import INT64

if TYPE_CHECKING:
    from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter


def has_several_labels(estimator: Estimator) -> bool:
    """Whether an estimator of XGBoost gives several independent labels."""
    booster = booster_of(estimator)
    learner = learner_of(booster)
    several = int(learner["learner_model_param"].get("num_target", "1")) > 1
    return booster is not estimator and several and learner["objective"]["name"] == "binary:logistic"


def sums_of(estimator: Estimator) -> Any:
    """A regressor with the same trees, which gives what the probabilities are made of.

    Args:
        estimator: with several labels; not changed.
    """
    import xgboost

    model = json.loads(bytes(booster_of(estimator).save_raw("json")))
    learner = model["learner"]
    chances = np.atleast_1d(np.array(json.loads(learner["learner_model_param"]["base_score"]), np.float64))
    begins = np.log(chances) - np.log1p(-chances)  # XGBoost keeps the probability that its sums begin with
    learner["learner_model_param"]["base_score"] = json.dumps(begins.tolist())
    learner["objective"] = {"name": "reg:squarederror", "reg_loss_param": {"scale_pos_weight": "1"}}
    found = xgboost.XGBRegressor()
    found._Booster = xgboost.Booster(model_file=bytearray(json.dumps(model), "utf-8"))
    found.n_estimators, found.missing = estimator.n_estimators, estimator.missing
    return found


def give_labels(write: NodeWriter, sums: str, label: str, probabilities: str) -> None:
    """Add what makes probabilities and labels of sums.

    Args:
        write: adds nodes to the graph.
        sums, label, probabilities: names of tensors, the first of which is there.
    """
    write.add("Sigmoid", sums, name=probabilities)
    above = write.add("Greater", sums, np.zeros(1, np.float32))
    write.cast(above, INT64, name=label)
