"""Pairs of the corpus in exact arithmetic: what is certified is equal, and nothing that differs is certified."""

from __future__ import annotations

import logging

import onnx_ir as ir
import pytest

from onnxtool.equality.certificate.certify import certify
from tests.corpus.pairs import Pair, pairs

FRESH = [pair for pair in pairs() if pair.name.startswith("fresh")]
# Equal for reasons that no identity of the field tells: the sign of a factor, a remainder, the order of a table's keys;
# or beside what the field does not evaluate, or what sizes of two dims choose from a table.
NOT_DECIDED = (
    "a scale folded before or after Relu",
    "modulo of a prime",
    "a string that one table misses",
    "a key of two texts",
    "infinities of one sign",
    "NMS keeps fewer",
    "TopK of as many",
    "padding beside a NonZero",
    "a table chosen late",
)


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("onnx_ir").setLevel(logging.CRITICAL)


@pytest.mark.parametrize("pair", FRESH, ids=[pair.name for pair in FRESH])
def test_what_is_certified_is_equal(pair: Pair) -> None:
    a, b = (ir.to_proto(model) for model in pair.models())
    found = certify(a, b)
    if not pair.equal:
        assert found.verdict != "certified"
        assert found.reason
    elif not any(name in pair.name for name in NOT_DECIDED):
        assert found.verdict == "certified", found.reason
