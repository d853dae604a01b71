"""What a framework's file may take: limits that begin after the imports, and a watch over every pass of the model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from onnxtool.conversion import convert, supervised_model
from onnxtool.conversion.adapter import LayeredModel, SourceModel
from onnxtool.conversion.pytorch.adapter import PyTorchAdapter
from onnxtool.conversion.sklearn.adapter import SklearnAdapter
from onnxtool.conversion.source import Source
from onnxtool.equality.rule.evidence import evidence_of_source
from onnxtool.model.spec import TensorSpec
from onnxtool.options.convert import ConvertOptions
from onnxtool.runtime.runner import Runner
from onnxtool.runtime.worker.isolation import FRAMEWORK, OWN
from tests.conftest import FIXTURES

NOTHING = Source(None)


class Doubling(LayeredModel):
    """A source with layers."""

    form = framework = "a test"
    inputs = (TensorSpec("x", np.dtype("float32"), ("batch", 3)),)
    outputs = inputs

    def __init__(self) -> None:
        self.notes = ["as it is"]

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {"x": 2 * feeds["x"]}

    def layers(self, feeds: Mapping[str, np.ndarray], see: Any) -> None:
        see("double", "Doubling", 2 * feeds["x"])


def test_every_pass_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    @contextmanager
    def guarded(*arguments: Any) -> Iterator[None]:
        calls.append(arguments)
        yield

    monkeypatch.setattr(supervised_model, "guarded", guarded)
    model = supervised_model.supervised(Doubling(), "running the model", 77, FRAMEWORK)
    feeds = {"x": np.ones((2, 3), np.float32)}
    seen: list[Any] = []
    assert isinstance(model, Runner) and isinstance(model, LayeredModel)
    assert model.notes == ["as it is"]
    assert not calls
    assert (model.run(feeds)["x"] == 2).all()
    model.layers(feeds, lambda *what: seen.append(what))
    assert seen[0][0] == "double"
    assert calls == [("running the model", 77, 24, FRAMEWORK)] * 2
    model.drop_tied_rows(feeds)
    assert len(calls) == 3  # it runs the model


def test_a_model_without_layers_does_not_get_them() -> None:
    class Plain(SourceModel):
        form = framework = "a test"
        inputs = outputs = Doubling.inputs
        notes: ClassVar[list[str]] = []

        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            return dict(feeds)

    assert not isinstance(supervised_model.supervised(Plain(), "running", 1, FRAMEWORK), LayeredModel)


def test_only_the_users_own_code_has_the_long_limits() -> None:
    assert convert._pace(PyTorchAdapter(), ConvertOptions(), NOTHING) == FRAMEWORK
    assert convert._pace(SklearnAdapter(), ConvertOptions(), NOTHING) == FRAMEWORK
    assert convert._pace(PyTorchAdapter(), ConvertOptions(factory="net.py:make"), NOTHING) == OWN
    assert convert._pace(SklearnAdapter(), ConvertOptions(trust=True), NOTHING) == OWN

    class Foreign(PyTorchAdapter):
        imports_in_prepare = False

    assert convert._pace(Foreign(), ConvertOptions(), NOTHING).scale > 1


def test_inputs_count_with_small_numbers_for_what_is_dynamic() -> None:
    specs = [TensorSpec("x", np.dtype("float32"), ("n", 3, None)), TensorSpec("s", "string", (5,))]
    assert supervised_model.declared_bytes(specs) == 2 * 3 * 32 * 4 + 5


def test_the_limits_begin_when_the_framework_is_imported(tmp_path: Path) -> None:
    script = f"""
import sys
from onnxtool.runtime.worker import isolation
isolation._process.channel = -1
isolation._tell = lambda m: m.get("what") and print(m["what"], *(n in sys.modules for n in ("skops.io", "skl2onnx")))
from onnxtool.conversion.convert import convert
convert({str(FIXTURES / "digits_forest.skops")!r}, {str(tmp_path / "m.onnx")!r}, verify_result=False)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert "loading the model with sklearn True False" in lines, done.stderr
    assert "exporting the model with sklearn True True" in lines


def test_what_a_model_tells_of_itself_is_told_under_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else `compare` would not excuse what `convert` puts down to rounding."""
    model, again = Doubling(), Doubling()
    monkeypatch.setattr(model, "rerounded", lambda: again, raising=False)
    monkeypatch.setattr(model, "rounding", {"x": 0.5}, raising=False)
    watched = supervised_model.supervised(model, "running the model", 77, FRAMEWORK)
    assert watched.rerounded() is again and watched.rounding == {"x": 0.5}
    evidence = evidence_of_source(watched, None)
    assert evidence.quantized == {"x": 0.5} and evidence.noise is not None and evidence.noise.open() is again
