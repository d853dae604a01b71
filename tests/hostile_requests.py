"""Requests of the V2 protocol in which one or more places hold something else."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

_KEYS = ("name", "data", "shape", "datatype", "parameters", "binary_data_size", "binary_data", "binary_data_output")
_NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 2**31, 2**63, 2**64, 10**30, 1e308, 0.5, float("nan"), float("inf")])
_TEXTS = st.sampled_from(["", "FP32", "INT64", "BYTES", "BF16", "BOOL", "x", "false", "\ud800", "\0"]) | st.text(
    max_size=4
)
_LEAVES = st.none() | st.booleans() | _NUMBERS | _TEXTS
JUNK = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS) | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def hostile_requests(draw: st.DrawFn, name: str, shape: list[int], output: str) -> tuple[bytes, dict[str, str]]:
    """A body and headers, made of a good request for one input of zeros."""
    count = math.prod(shape)
    tensor = {"name": name, "datatype": "FP32", "shape": list(shape), "data": [0.0] * count, "parameters": {}}
    request: Any = {
        "id": "a",
        "parameters": {"binary_data_output": False},
        "inputs": [tensor],
        "outputs": [{"name": output, "parameters": {"binary_data": False}}],
    }
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(request))
        holder, key = draw(st.sampled_from(places))
        action = draw(st.sampled_from(["replace", "replace", "remove", "repeat"]))
        if action == "replace":
            holder[key] = copy.deepcopy(draw(JUNK))
        elif action == "remove":
            del holder[key]
        elif isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        if not list(_places(request)):
            break
    body = json.dumps(request).encode()
    body = body[: draw(st.sampled_from([len(body)] * 5 + [len(body) // 2]))] + draw(
        st.sampled_from([b""] * 5 + [b"\0" * 12])
    )
    length = draw(st.sampled_from([None, None, None, str(len(body)), str(len(body) - 12), "0", "-1", "x", "9" * 30]))
    return body, {} if length is None else {"Inference-Header-Content-Length": length}


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in nested lists and objects, as its holder and its key; of long lists the first two."""
    keys = list(value)[:40] if isinstance(value, dict) else range(min(len(value), 2)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])
