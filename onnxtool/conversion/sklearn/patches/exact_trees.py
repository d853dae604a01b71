"""What exporters of trees lose of thresholds in doubles."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from onnxtool.conversion.patches import Patch, replaced

_ZERO = np.float64(np.float32(-1e-35))
_ENDLESS = 1e300


def rounded_down(threshold: float) -> float:
    """The largest float32 that is not above a threshold.

    For every x in float32, x <= threshold is x <= the float32 that this gives. A threshold rounded to the nearest
    float32 may lie above it, and then takes in numbers that it should not.
    """
    with np.errstate(over="ignore"):
        nearest = np.float32(threshold)
    if np.isnan(nearest) or float(nearest) <= float(threshold):  # as doubles: numpy would compare in float32
        return float(nearest)
    return float(np.nextafter(nearest, np.float32(-np.inf)))


def _rounding_down(module: str) -> AbstractContextManager[object]:
    """Where a library collects nodes."""
    if module.partition(".")[0] not in sys.modules:  # onnxmltools imports its own only when it converts
        return nullcontext()
    container = import_module(module).ModelComponentContainer
    return replaced(container, "add_node", _with_thresholds(container.add_node))


def _with_thresholds(plain: Any) -> Any:
    """Doubles that are to become a node's float32 thresholds are rounded down."""

    def add_node(self: Any, *arguments: Any, **attributes: Any) -> Any:
        values, modes = attributes.get("nodes_values"), attributes.get("nodes_modes")
        if isinstance(values, list) and modes is not None and len(modes) == len(values):
            attributes["nodes_values"] = [
                rounded_down(of_lightgbm(v)) if m == "BRANCH_LEQ" else v for v, m in zip(values, modes, strict=True)
            ]
        return plain(self, *arguments, **attributes)

    return add_node


def of_lightgbm(threshold: float) -> float:
    """LightGBM 4 takes numbers of up to 1e-35 for zero (kZeroThreshold) before it compares them with its thresholds, of
    which -1e-35 is one wherever a feature holds zeros. It parts missing values from all others, infinity among them, by
    an infinite threshold, for which its JSON form has a large number.
    """
    if threshold >= _ENDLESS:
        return float("inf")
    return float(np.nextafter(_ZERO, -np.inf)) if threshold == _ZERO else float(threshold)


LIGHTGBM = Patch(
    "onnxmltools",
    "1.17",
    "onnxmltools 1.16 rounds the thresholds of LightGBM to the nearest float32",
    partial(_rounding_down, "onnxmltools.convert.common._container"),
)
