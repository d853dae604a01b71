"""Which fusions of level all stay: by timing on this machine, or by a table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxtool.errors import UsageError
from onnxtool.model import io
from onnxtool.optimization import fusion_selection
from onnxtool.optimization.optimize import optimize
from onnxtool.optimization.pass_base import Level
from onnxtool.optimization.registry import select
from onnxtool.options.shared import TARGETS
from onnxtool.quantization.targets import TARGETS as QUANTIZE_TARGETS
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.timing.timing import Ratio
from tests.optimization.conftest import model_from

F = np.float32
WEIGHTS = {"gamma": np.ones(8, F), "beta": np.linspace(0, 1, 8, dtype=F)}
TEXT = """g (float[b, s, 8] x, float[b, s, 8] z) => (float[b, s, 8] y) {
    c = Sigmoid (x) w = Mul (x, c) a = Add (w, z) y = LayerNormalization <axis = -1> (a, gamma, beta)
}"""
NAMES = [p.name for p in select(fusion_selection.Level.ALL)]
FIRING = ["fuse-quick-gelu", "fuse-skip-layernorm"]
Verdicts = dict[str, Ratio | None]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(model_from(TEXT, WEIGHTS), path)
    return path


@pytest.fixture
def verdict(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Ratio | None], None]:
    """Say what timing finds for the family whose operator is in the model that is tried."""
    given: Verdicts = {}

    def worst(candidate: object, best: object, feeds: object, options: SessionOptions) -> Ratio | None:
        assert options.threads == 1
        operators = {n.op_type for n in io_nodes[id(candidate)]}
        return next((given[name] for name in ("SkipLayerNormalization", "QuickGelu") if name in operators), None)

    io_nodes: dict[int, list[onnx.NodeProto]] = {}
    opened: list[object] = []
    original = fusion_selection._open

    def opening(candidate, options):
        runner = original(candidate, options)
        io_nodes[id(runner)] = list(io.to_proto(candidate).graph.node)
        opened.append(runner)  # an object that lives keeps its id
        return runner

    monkeypatch.setattr(fusion_selection, "_open", opening)
    monkeypatch.setattr(fusion_selection, "_worst", worst)
    return given.__setitem__


def choose(model: Path) -> fusion_selection.FusionChoice:
    feeds = [{name: np.ones((1, 4, 8), F) for name in ("x", "z")}]
    return fusion_selection.select_fusions(lambda: io.load(model), NAMES, feeds, SessionOptions(), None)


def test_a_slower_family_is_left_out_and_a_faster_one_stays(model: Path, verdict: Callable) -> None:
    verdict("QuickGelu", Ratio(0.9, 0.85, 0.95))
    verdict("SkipLayerNormalization", Ratio(1.5, 1.4, 1.6))
    choice = choose(model)
    assert [(t.name, t.kept, t.ratio) for t in choice.trials] == [
        ("fuse-quick-gelu", True, 0.9),
        ("fuse-skip-layernorm", False, 1.5),
    ]
    assert list(choice.names) == [n for n in NAMES if n != "fuse-skip-layernorm"]
    assert "1.50 times" in choice.trials[1].reason


def test_what_would_take_the_nodes_of_others_is_tried_last() -> None:
    grouped = ["fuse-grouped-attention", "fuse-masked-grouped-attention"]
    names = [p.name for p in select(Level.ALL)]
    assert fusion_selection.fusion_passes(names)[-2:] == grouped
    assert names.index(grouped[0]) < names.index(grouped[1]) < names.index("fuse-attention")


@pytest.mark.parametrize("found", [Ratio(1.2, 0.95, 1.4), Ratio(1.005, 1.001, 1.01), None])
def test_what_is_not_slower_for_certain_stays(model: Path, verdict: Callable, found: Ratio | None) -> None:
    verdict("QuickGelu", found)
    verdict("SkipLayerNormalization", found)
    choice = choose(model)
    assert [t.kept for t in choice.trials] == [True, True]
    assert list(choice.names) == NAMES


def test_timing_takes_the_sizes_that_the_model_accepts(model: Path) -> None:
    feeds = [{name: np.ones((1, n, w), F) for name in ("x", "z")} for n, w in ((4, 7), (3, 8), (2, 8), (5, 8))]
    choice = fusion_selection.select_fusions(lambda: io.load(model), NAMES, feeds, SessionOptions(), None)
    assert [t.name for t in choice.trials] == FIRING
    assert all(t.ratio is not None and t.ratio > 0 for t in choice.trials)


def test_the_worst_size_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([Ratio(0.7, 0.6, 0.8), Ratio(1.3, 1.2, 1.4), Ratio(1.6, 0.9, 2.0)])
    monkeypatch.setattr(fusion_selection, "measure", lambda *_a, **_k: [None, None])
    monkeypatch.setattr(fusion_selection, "ratio", lambda *_a: next(found))
    worst = fusion_selection._worst(None, None, [{}, {}, {}], SessionOptions(threads=1))  # type: ignore[arg-type]
    assert worst == Ratio(1.3, 1.2, 1.4)


def test_the_report_names_what_was_tried(model: Path, tmp_path: Path) -> None:
    report = optimize(model, tmp_path / "out.onnx", level="all")
    assert [f.name for f in report.families] == FIRING
    assert {d.name for d in report.dropped} == {f.name for f in report.families if not f.kept}
    assert report.ok
    fused = [o for o in report.after.operators if o.startswith("com.microsoft")]
    assert len(fused) == sum(f.kept for f in report.families)


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_decides_without_timing(
    model: Path, tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fusion_selection, "measure", None)
    report = optimize(model, tmp_path / "out.onnx", level="all", target=target, bench=False)  # so small: either may win
    assert report.target == target
    assert report.after.operators == {"com.microsoft.QuickGelu": 1, "Add": 1, "LayerNormalization": 1}
    left = [d for d in report.dropped if d.name == "fuse-skip-layernorm"]
    assert not left[0].fault
    assert target in left[0].reason
    assert report.families == fusion_selection.by_table(NAMES, target).trials


def test_targets_are_those_of_quantize() -> None:
    assert set(TARGETS) == {name for name, target in QUANTIZE_TARGETS.items() if not target.form}


@pytest.mark.parametrize(("level", "target"), [("extended", "avx2"), ("all", "z80")])
def test_a_target_that_does_not_fit_is_refused(model: Path, tmp_path: Path, level: str, target: str) -> None:
    with pytest.raises(UsageError, match="--target"):
        optimize(model, tmp_path / "out.onnx", level=level, target=target)
    assert not (tmp_path / "out.onnx").exists()
