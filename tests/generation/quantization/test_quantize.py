"""Quantizing bundles: what is written keeps the budget, and runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.errors import UsageError
from onnxtool.generation.bundle import Bundle, history
from onnxtool.generation.decoder import Decoder
from onnxtool.generation.quantization.block_weights import WeightPlan, head_of, products, write_blocks
from onnxtool.generation.quantization.calibration import LayerGroup, groups_of, widest_within
from onnxtool.generation.quantization.perplexity import load_split_text, load_text, perplexity
from onnxtool.generation.quantization.quantize import _PlanSearch, quantize_bundle
from onnxtool.model import io
from onnxtool.model.ir.queries import operator_counts
from onnxtool.quantization.algorithms.weight_only import BlockFormat, BlockStore


def test_eight_bits_keep_the_default_budget(bundle: Path, tmp_path: Path) -> None:
    report = quantize_bundle(bundle, tmp_path / "small", mode="int8")
    chosen = report.chosen
    assert (
        report.ok
        and chosen is not None
        and chosen.judged
        and chosen.high <= 1.01
        and chosen.low <= chosen.ratio <= chosen.high
    )
    assert chosen.bytes < 0.6 * report.bytes_before
    assert report.runtime is not None and report.runtime.ok
    assert [s["command"] for s in history(tmp_path / "small")] == ["convert", "quantize"]
    counts = operator_counts(io.load(Bundle.open(tmp_path / "small").model))
    assert counts["com.microsoft.MatMulNBits"] == 11 and counts["com.microsoft.GatherBlockQuantized"] == 1
    assert "MatMul" not in counts


def test_the_text_that_chooses_is_another_than_the_one_that_judges(tmp_path: Path) -> None:
    for path in (None, tmp_path / "own.txt"):
        if path is not None:
            path.write_text("one\ntwo\nthree\nfour")
        choosing, judging = (set(text.split("\n")) - {""} for _, text in load_split_text(path))
        assert choosing and judging and not choosing & judging
    every = [text for _, text in load_split_text(None)]
    for kind in ("ALGERNON", "def ", "Corbeau", "König", "Bennet"):
        assert all(kind in text for text in every), kind


def test_four_bits_go_where_the_budget_allows_them(bundle: Path, tmp_path: Path) -> None:
    report = quantize_bundle(bundle, tmp_path / "small", max_perplexity=0.03)
    assert report.ok and report.sensitivities
    mixed = [c for c in report.candidates if "int4" in c.plan]
    assert mixed and min(c.bytes for c in mixed) < min(c.bytes for c in report.candidates if "int4" not in c.plan)
    assert all(c.within_budget == (c.high <= 1.03) for c in report.candidates)


def test_nothing_is_written_beyond_the_budget(bundle: Path, tmp_path: Path) -> None:
    report = quantize_bundle(bundle, tmp_path / "small", mode="int8", max_bytes=1000)
    assert not report.ok and report.chosen is None
    assert list(tmp_path.iterdir()) == []


def test_a_mode_of_other_models_is_refused(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="auto, int8, int4"):
        quantize_bundle(bundle, tmp_path / "small", mode="static")


@pytest.mark.parametrize("how", [BlockFormat(8, 32), BlockFormat(8, 128, False), BlockFormat(4, 16, False)], ids=str)
def test_logits_stay_near_the_float_ones(bundle: Path, tmp_path: Path, how: BlockFormat) -> None:
    """Blocks that are longer than a row, zero points, a head that shares its weight with the embedding."""
    import shutil

    copy = shutil.copytree(bundle, tmp_path / "copy", ignore=shutil.ignore_patterns("model.onnx*"))
    model = io.load(bundle / "model.onnx")
    write_blocks(model, WeightPlan(how, how, how), BlockStore())
    io.save(model, copy / "model.onnx", external=True)
    tokens = np.arange(40)
    logits = []
    for folder in (bundle, copy):
        decoder = Decoder(Bundle.open(folder))
        decoder.start(40)
        logits.append(decoder.run(tokens))
    error = np.sqrt(((logits[0] - logits[1]) ** 2).mean()) / logits[0].std()
    assert 0 < error < (0.05 if how.bits == 8 else 0.4)


def test_a_head_of_fewer_bits_leaves_the_lookup_as_it_is(bundle: Path) -> None:
    model = io.load(bundle / "model.onnx")
    eight, four = BlockFormat(8, 32), BlockFormat(4, 32)
    head = str(head_of(model, products(model)).name)  # type: ignore[union-attr]
    write_blocks(model, WeightPlan(eight, eight, eight, {head: four}), BlockStore())
    bits = {
        n.op_type: n.attributes["bits"].as_int()
        for n in model.graph
        if n.domain == "com.microsoft" and "bits" in n.attributes
    }
    assert bits["GatherBlockQuantized"] == 8
    assert [n.attributes["bits"].as_int() for n in model.graph if n.name == head] == [4]


def test_smoothing_changes_nothing_before_weights_are_rounded(bundle: Path, tmp_path: Path) -> None:
    search = _PlanSearch(Bundle.open(bundle), tmp_path, load_text(None), 0.01, None)
    search._calibrate("auto")
    assert search.smoothed
    names = {str(n.inputs[1].name) for n in products(io.load(search.float.model)) if n.inputs[1] is not None}
    assert sum("smoothed" in n for n in names) >= 8 and names == set(search.store.moments)
    assert operator_counts(io.load(search.float.model)) == operator_counts(io.load(bundle / "model.onnx"))
    assert np.isclose(
        perplexity(Decoder(search.float), search.tokenizer, *search.text)[0].value, search.perplexity.value
    )


def test_only_the_layers_may_be_quantized(bundle: Path) -> None:
    model = io.load(bundle / "model.onnx")
    counts = write_blocks(model, WeightPlan(BlockFormat(4, 32), None), BlockStore())
    assert counts == {"int4 in 32s": 10, "float32": 1}
    assert operator_counts(model)["Gather"] == 2  # the embedding's own, and one of the mask


def test_products_are_grouped_by_kind_and_depth() -> None:
    def product(name: str) -> ir.Node:
        weight = ir.Value(name="w", const_value=ir.tensor(np.zeros((4, 8), np.float32)))
        return ir.node("MatMul", [ir.Value(name="x"), weight], name=name)

    names = [f"/model/layers.{i}/mlp/up_proj/MatMul" for i in range(6)] + ["/lm_head/MatMul"]
    groups = groups_of([product(n) for n in names], 6)
    spans = [(0, 1), (2, 2), (3, 3), (4, 4), (5, 5)]
    assert [g.name for g in groups] == [f"up_proj of layers {a} to {b}" for a, b in spans]
    assert [g.weights for g in groups] == [64, 32, 32, 32, 32]


def test_the_widest_choice_within_the_budget_is_found() -> None:
    groups = [LayerGroup(str(i), (), 1) for i in range(15)]
    for limit in range(16):
        tried = widest_within(groups, len, lambda count, limit=limit: count <= limit, lambda: False)
        assert len(tried) <= 5 and max([c for c in tried if c <= limit], default=0) == limit
