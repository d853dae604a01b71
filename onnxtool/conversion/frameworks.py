"""What frameworks give, as far as it is used here; none of them has types of its own that could be imported lazily."""

from __future__ import annotations

import copy
from typing import Any, Protocol, TypeVar

EstimatorT = TypeVar("EstimatorT", bound="Estimator")


class Estimator(Protocol):
    """A fitted estimator of scikit-learn, or one built to its interface; what it has learned are attributes."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What it was made with."""

    def __getattr__(self, name: str) -> Any:
        """What it has learned; estimators differ in that."""


class Booster(Protocol):
    """Boosted trees of XGBoost, LightGBM or CatBoost without an estimator around them."""

    def predict(self, data: Any, **options: Any) -> Any:
        """One row of results for each of the data's."""

    def __getattr__(self, name: str) -> Any:
        """What its package gives besides."""


class KerasLayer(Protocol):
    """A Keras model, or a layer inside one."""

    name: str

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """One forward pass."""

    def __getattr__(self, name: str) -> Any:
        """What its class gives besides."""


def copy_with(estimator: EstimatorT, /, **attributes: object) -> EstimatorT:
    """A copy of an estimator with other attributes."""
    found = copy.copy(estimator)
    for name, value in attributes.items():
        setattr(found, name, value)
    return found
