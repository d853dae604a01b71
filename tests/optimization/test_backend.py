"""A fixed choice of ONNX's own node tests still gives its expected outputs after optimization."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "backend_suite.py"


@pytest.fixture(scope="module")
def suite() -> ModuleType:
    spec = importlib.util.spec_from_file_location("backend_suite", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["backend_suite"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("level", ["basic", "all"])
def test_150_backend_tests_give_their_expected_outputs(suite: ModuleType, level: str) -> None:
    outcome = suite.run(suite.sample(suite.collect(), 150), level)

    assert outcome.broken == {}
    assert outcome.run >= 90
    assert outcome.changed >= 15
