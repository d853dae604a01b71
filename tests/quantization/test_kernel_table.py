"""A machine's table of kernel times: measured, read back, and chosen by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import onnxtool
from onnxtool.errors import InputError, UsageError
from onnxtool.model import io
from onnxtool.quantization import kernel_table as module
from onnxtool.quantization.kernel_table import (
    KernelTable,
    KernelTime,
    estimate_by,
    measure_kernels,
    read_table,
)
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.targets import find_target
from tests.quantization.quant_models import build, weights

ROWS = (
    KernelTime("depthwise Conv", 1e4, 1e-6, 2e-6, None),
    KernelTime("linear", 1e4, 1e-6, 2e-6, 3e-6),
    KernelTime("linear", 1e6, 1e-4, 1e-5, 2e-5),
    KernelTime("spatial Conv", 1e6, 1e-4, 4e-5, None),
)
TABLE = KernelTable("A processor", ("AVX512-VNNI",), 1, ROWS)


def written(path: Path, **changes: Any) -> Path:
    content = {
        "schema": module.SCHEMA,
        "cpu": TABLE.cpu,
        "features": list(TABLE.features),
        "threads": 1,
        "rows": [vars(r) for r in ROWS],
    }
    path.write_text(json.dumps(content | changes), encoding="utf-8")
    return path


def test_times_between_shapes_and_beyond_them() -> None:
    assert TABLE.seconds("linear", 1e5, "float") == pytest.approx(1e-5)
    assert TABLE.seconds("linear", 10, "float") == pytest.approx(1e-6), "what starting a node takes"
    assert TABLE.seconds("linear", 1e7, "static") == pytest.approx(1e-4), "at the rate of the largest"
    assert TABLE.seconds("linear", 1e6, "dynamic") == pytest.approx(2e-5)
    assert TABLE.seconds("linear", 1e6, "blocks") == pytest.approx(1e-4)
    assert TABLE.seconds("grouped Conv", 1e6, "static") == pytest.approx(4e-5)
    assert TABLE.seconds("depthwise Conv", 1e4, "dynamic") == pytest.approx(1e-6), "there is no such kernel"


def test_a_recipe_is_estimated_node_by_node() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "a"), helper.make_node("MatMul", ["h", "w"], ["y"], "b")]
    proto = build(nodes, {"w": weights(32, 32)}, {"x": ["n", 32]}, {"y": ["n", 32]})
    estimate = estimate_by(TABLE, list(io.from_proto(proto).graph), {"a": 1e6, "b": 1e4})
    assert estimate(QuantRecipe(mode="auto", plan={})) == pytest.approx(1.0)
    assert estimate(QuantRecipe(mode="auto", plan={"a": "static"})) == pytest.approx(1.1e-5 / 1.01e-4)
    assert estimate(QuantRecipe(mode="auto", plan={"a": "static", "b": "static"})) == pytest.approx(1.2e-5 / 1.01e-4)


def test_is_measured_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUDGET", 0.0)
    monkeypatch.setattr(
        module,
        "_SHAPES",
        {"linear": ((16, 2),), "spatial Conv": ((4, 5),), "depthwise Conv": ((4, 5),), "pointwise Conv": ((4, 5),)},
    )
    table = measure_kernels(tmp_path / "t.json")
    assert read_table(tmp_path / "t.json") == table
    sizes = {r.kind: r.macs for r in table.rows}
    assert sizes == {"linear": 512, "spatial Conv": 3600, "depthwise Conv": 900, "pointwise Conv": 400}
    assert [r.kind for r in table.rows if r.dynamic is not None] == ["linear"]


@pytest.mark.parametrize(
    "changes",
    [{"schema": "other"}, {"rows": []}, {"rows": [{"kind": "linear"}]}, {"rows": 3}, {"threads": None}],
)
def test_another_file_is_one_line(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"t\.json"):
        read_table(written(tmp_path / "t.json", **changes))


def test_times_that_are_none_are_refused(tmp_path: Path) -> None:
    rows = [vars(r) for r in ROWS]
    with pytest.raises(InputError, match="damaged"):
        read_table(written(tmp_path / "t.json", rows=[{**rows[0], "static": 0}, *rows[1:]]))


def test_is_a_target(tmp_path: Path) -> None:
    target = find_target(str(written(tmp_path / "t.json")))
    assert (target.name, target.activations, target.reduced) == ("A processor", "u8", False)
    assert find_target(str(written(tmp_path / "a.json", features=["NEON"]))).activations == "s8"
    assert find_target(str(written(tmp_path / "b.json", features=["AVX2"]))).reduced
    with pytest.raises(UsageError, match="doctor --measure"):
        find_target(str(tmp_path / "none.json"))


def test_auto_chooses_by_it(tmp_path: Path) -> None:
    """A machine on which integers take ten times as long gets float."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "v"], ["y"])]
    proto = build(nodes, {"w": weights(64, 64), "v": weights(64, 64)}, {"x": ["n", 64]}, {"y": ["n", 64]})
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    data = {"x": np.random.default_rng(0).standard_normal((160, 64)).astype(np.float32)}
    slow = [{**vars(r), "static": r.float32 * 10, "dynamic": r.dynamic and r.float32 * 10} for r in ROWS]
    for rows, quantized in (([vars(r) | {"static": r.float32 / 9} for r in ROWS], True), (slow, False)):
        table = written(tmp_path / "t.json", rows=rows)
        options = {"data": data, "target": str(table), "max_drop": 0.5}
        report = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", **options)
        assert (report.quantized.get("MatMul", (0, 0))[0] > 0) is quantized
        assert any("table of kernel times" in w for w in report.warnings)


@pytest.fixture(autouse=True)
def _kernels_that_do_not_saturate() -> None:
    """Nothing is computed here, and the runtime's exact kernels do not take weights that share a zero point."""
