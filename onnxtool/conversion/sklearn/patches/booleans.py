"""Booleans among the integers that describe a histogram gradient boosting's trees."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from onnxtool.conversion.patches import Patch, replaced


def _as_integers() -> AbstractContextManager[None]:
    from skl2onnx.common._container import ModelComponentContainer

    original = ModelComponentContainer.add_node

    def add_node(self: Any, *arguments: Any, **attributes: Any) -> Any:
        for key, value in attributes.items():
            # The types first: a forest's attributes hold millions of numbers.
            if isinstance(value, list) and not {bool, np.bool_}.isdisjoint(set(map(type, value))):
                attributes[key] = [int(v) for v in value]
        return original(self, *arguments, **attributes)

    return replaced(ModelComponentContainer, "add_node", add_node)


PATCH = Patch(
    "skl2onnx", "1.21", "skl2onnx 1.20 gives onnx booleans for integers, which onnx 1.23 refuses", _as_integers
)
