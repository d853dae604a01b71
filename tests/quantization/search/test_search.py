"""`auto` on the real model: it keeps the budget, replays, and says so when nothing is worth writing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import onnxtool
from onnxtool.errors import InputError, UsageError
from onnxtool.model import io
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.evaluator import CandidateEvaluator
from onnxtool.quantization.search.stages import RecipeSearch, SearchOutcome
from onnxtool.quantization.targets import this_machine
from onnxtool.report.quantize import QuantizeReport
from onnxtool.runtime.runner import OnnxRunner
from tests.quantization.quant_models import build, weights

pytestmark = pytest.mark.usefixtures("no_timing")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("auto")


@pytest.fixture(scope="module")
def found(no_timing: Any, fixtures: Path, digits_onnx: Path, folder: Path) -> QuantizeReport:
    report: QuantizeReport = onnxtool.quantize(
        digits_onnx,
        folder / "auto.onnx",
        data=fixtures / "calib.npz",
        eval_data=fixtures / "eval.npz",
        labels="label",
        recipe_file=folder / "recipe.json",
        time_limit=300,
    )
    return report


def test_keeps_the_budget(found: QuantizeReport, fixtures: Path) -> None:
    data = np.load(fixtures / "eval.npz")
    assert found.output is not None
    logits = OnnxRunner.open(found.output).run({"image": data["image"]})["logits"]
    assert (logits.argmax(axis=1) == data["label"]).mean() >= 716 / 719 - 0.01
    assert found.metric is not None
    assert found.metric.drop <= 0.01
    assert "1 point below float on the labelled data" in found.budget


def test_the_frontier_holds_what_was_tried_and_the_winner_is_the_fastest_within_budget(found: QuantizeReport) -> None:
    (chosen,) = [c for c in found.frontier if c.chosen]
    assert chosen.within_budget
    assert chosen.latency is not None
    assert chosen.latency.high < 1
    assert len(found.frontier) >= 6
    assert {"static", "dynamic"} <= {w for c in found.frontier for w in c.recipe.replace("+", " ").split()}
    assert all(c.latency is None or c.bytes > 0 for c in found.frontier)
    json.dumps(found.to_dict())


def test_a_saved_recipe_gives_the_same_bytes_without_data(
    found: QuantizeReport, digits_onnx: Path, folder: Path, tmp_path: Path
) -> None:
    again = onnxtool.quantize(digits_onnx, tmp_path / "again.onnx", recipe_file=folder / "recipe.json")
    assert again.recipe == found.recipe
    assert (tmp_path / "again.onnx").read_bytes() == (folder / "auto.onnx").read_bytes()


def test_a_recipe_for_another_model_is_refused(found: QuantizeReport, folder: Path, tmp_path: Path) -> None:
    other = build([helper.make_node("MatMul", ["a", "w"], ["b"])], {"w": weights(4, 4)}, {"a": [1, 4]}, {"b": [1, 4]})
    io.save(io.from_proto(other), tmp_path / "other.onnx")
    with pytest.raises(InputError, match="for another model"):
        onnxtool.quantize(tmp_path / "other.onnx", tmp_path / "q.onnx", recipe_file=folder / "recipe.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(InputError, match="not a quantization recipe"):
        onnxtool.quantize(tmp_path / "other.onnx", tmp_path / "q.onnx", recipe_file=tmp_path / "bad.json")


def fragile() -> onnx.ModelProto:
    """A model that int8 ruins: it returns what is left when two large equal terms are taken from each other."""
    node = helper.make_node
    big = (np.eye(16) * 1000).astype(np.float32)
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Add", ["x", "a"], ["b"]),
        node("MatMul", ["b", "v"], ["c"]),
        node("MatMul", ["x", "v"], ["d"]),
        node("Sub", ["c", "d"], ["y"]),
    ]
    arrays = {"w": weights(16, 16, scale=1e-4), "v": big}
    return build(nodes, arrays, {"x": ["n", 16]}, {"y": ["n", 16]})


@pytest.fixture(scope="module")
def refused(no_timing: Any, folder: Path) -> Iterator[QuantizeReport]:
    """What keeps the budget takes longer than the float model, as with products as small as these."""
    io.save(io.from_proto(fragile()), folder / "fragile.onnx")
    data = {"x": np.random.default_rng(0).standard_normal((32, 16)).astype(np.float32)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(no_timing, "gain", -0.05)
        yield onnxtool.quantize(folder / "fragile.onnx", folder / "no.onnx", data=data, time_limit=300)


def test_writes_nothing_when_nothing_keeps_the_budget_and_beats_float(refused: QuantizeReport, folder: Path) -> None:
    assert not refused.ok
    assert refused.output is None
    assert not (folder / "no.onnx").exists()
    assert "nothing was written" in refused.verdict
    assert refused.frontier, "what was tried is told all the same"
    assert not any(c.chosen for c in refused.frontier)


def test_without_labels_the_budget_is_fidelity_on_held_out_samples(refused: QuantizeReport) -> None:
    assert "held-out" in refused.budget


@pytest.mark.parametrize("options", [{"op_types": ("Gemm",)}, {"exclude": ("getitem*",)}])
def test_what_is_left_out_stays_float_in_every_candidate(
    fixtures: Path, digits_onnx: Path, tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[ir.Model] = []
    build_one = CandidateEvaluator.build

    def keep(evaluator: CandidateEvaluator, recipe: QuantRecipe) -> ir.Model:
        built.append(build_one(evaluator, recipe))
        return built[-1]

    monkeypatch.setattr(CandidateEvaluator, "build", keep)
    data = {"data": fixtures / "calib.npz", "samples": 32, "time_limit": 300, "smallest": True}
    report = onnxtool.quantize(digits_onnx, tmp_path / "q.onnx", **data, **options)
    assert report.quantized.get("Conv", (0, 3))[0] == 0
    assert len(built) >= 5  # each family once; what noise in timing would build again is none of its own
    quantized = 0
    for model in built:
        quantized += any(n.op_type in ("DequantizeLinear", "DynamicQuantizeLinear") for n in model.graph)
        convs = [n for n in model.graph if "Conv" in n.op_type]
        assert len(convs) == 3 and not any("Integer" in n.op_type or "QLinear" in n.op_type for n in convs)
        makers = [v.producer() for n in convs for v in n.inputs if v is not None]
        assert not any(m is not None and m.op_type == "DequantizeLinear" for m in makers)
    assert quantized >= 4, "others are quantized"


@pytest.mark.parametrize(
    ("target", "activations", "reduced"), [("avx2", "u8", True), ("vnni", "u8", False), ("arm64", "s8", False)]
)
def test_a_target_is_chosen_for_without_timing(
    fixtures: Path, digits_onnx: Path, tmp_path: Path, target: str, activations: str, reduced: bool
) -> None:
    report = onnxtool.quantize(
        digits_onnx, tmp_path / "q.onnx", data=fixtures / "calib.npz", target=target, time_limit=300, samples=16
    )
    assert report.recipe["activations"] == activations
    assert report.recipe["reduced"] is reduced
    assert all(c.latency is None for c in report.frontier if not c.chosen)
    assert any("nothing was timed" in w for w in report.warnings)
    weights = [
        onnx.numpy_helper.to_array(t)
        for t in onnx.load(tmp_path / "q.onnx").graph.initializer
        if t.data_type == onnx.TensorProto.INT8 and len(t.dims) > 1
    ]
    assert weights
    assert max(int(np.abs(w.astype(int)).max()) for w in weights) == (63 if reduced else 127)


def test_machines_without_vnni_get_seven_bits() -> None:
    assert this_machine({"AVX2"}, arm=False).reduced
    assert not this_machine({"AVX2", "AVX512-VNNI"}, arm=False).reduced
    assert not this_machine(set(), arm=True).reduced
    with pytest.raises(UsageError, match="--target z80"):
        onnxtool.quantize("a.onnx", "b.onnx", target="z80")


def test_weights_in_external_data_are_taken_along(tmp_path: Path) -> None:
    arrays = {"w": weights(256, 256), "b": weights(256), "v": weights(256, 256)}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    proto = build(nodes, arrays, {"x": ["n", 256]}, {"y": ["n", 256]})
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    data = {"x": np.random.default_rng(0).standard_normal((16, 256)).astype(np.float32)}
    found = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", data=data, time_limit=300, smallest=True)
    assert [c.note for c in found.frontier if c.fidelity is None and c.latency is None] == []
    assert {c.fidelity.samples for c in found.frontier if c.within_budget and c.fidelity} == {16}
    assert found.ok and sorted(p.name for p in tmp_path.iterdir()) == ["m.data", "m.onnx", "q.onnx"]


def test_small_models_are_judged_on_more_samples_than_are_held_out(tmp_path: Path) -> None:
    proto = build([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weights(64, 64)}, {"x": ["n", 64]}, {"y": []})
    onnx.save(proto, tmp_path / "m.onnx")
    data = {"x": np.random.default_rng(0).standard_normal((300, 64)).astype(np.float32)}
    found = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", data=data, time_limit=300, smallest=True)
    assert max(c.fidelity.samples for c in found.frontier if c.fidelity) == 256


def test_the_first_candidate_within_the_budget_is_in_place_when_the_search_is_stopped(
    monkeypatch: pytest.MonkeyPatch, no_timing: Any, digits_onnx: Path, fixtures: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(no_timing, "gain", 0.05)

    def stop(_self: RecipeSearch, _stage: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RecipeSearch, "_move", stop)
    known, new = tmp_path / "known.onnx", tmp_path / "new.onnx"
    known.write_bytes(b"what was there")
    for output in (known, new):
        with pytest.raises(KeyboardInterrupt):
            onnxtool.quantize(digits_onnx, output, data=fixtures / "calib.npz", time_limit=300)
    assert known.read_bytes() == b"what was there", "what exists is replaced once, by the choice"
    data = np.load(fixtures / "eval.npz")
    logits = OnnxRunner.open(new).run({"image": data["image"]})["logits"]
    assert (logits.argmax(axis=1) == data["label"]).mean() >= 716 / 719 - 0.01
    assert any("Integer" in n.op_type or n.op_type == "DequantizeLinear" for n in io.load(new).graph)


@pytest.mark.parametrize("error", [InputError("broken"), None])
def test_the_first_candidate_is_taken_away_where_nothing_is_to_be_written(
    monkeypatch: pytest.MonkeyPatch,
    no_timing: Any,
    digits_onnx: Path,
    fixtures: Path,
    tmp_path: Path,
    error: InputError | None,
) -> None:
    monkeypatch.setattr(no_timing, "gain", 0.05)
    placed: list[bool] = []
    output = tmp_path / "new.onnx"
    original = RecipeSearch._choose
    monkeypatch.setattr(RecipeSearch, "_move", lambda _self, _stage: None)

    def choose(self: RecipeSearch) -> SearchOutcome:
        placed.append(output.exists())
        if error is not None:
            raise error
        return replace(original(self), best=None, smallest=None, verdict="none")

    monkeypatch.setattr(RecipeSearch, "_choose", choose)
    if error is None:
        report = onnxtool.quantize(digits_onnx, output, data=fixtures / "calib.npz", time_limit=300)
        assert report.output is None
    else:
        with pytest.raises(InputError):
            onnxtool.quantize(digits_onnx, output, data=fixtures / "calib.npz", time_limit=300)
    assert placed == [True] and not output.exists()
