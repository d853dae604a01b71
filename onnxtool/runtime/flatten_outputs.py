"""Model outputs as plain named arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def flatten(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Sequences become name[0], name[1], ...; lists of maps (ZipMap) become one tensor for each key."""
    flat: dict[str, Any] = {}
    for name, value in outputs.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}[{key}]": item for key, item in value.items()})
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
            flat.update({f"{name}[{key}]": np.array([row[key] for row in value]) for key in value[0]})
        elif isinstance(value, (list, tuple)):
            flat.update({f"{name}[{index}]": item for index, item in enumerate(value)})
        elif value is None:
            flat[name] = np.array([], dtype=np.float32)
        else:
            flat[name] = value
    return flat
