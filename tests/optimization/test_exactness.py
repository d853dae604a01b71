"""Level basic gives the same bits as its source, on the runtime without its own optimizations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxtool
from onnxtool.model import io
from onnxtool.model.ir.queries import operator_counts
from onnxtool.optimization import registry
from onnxtool.optimization.pass_base import Level
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.pipeline import optimize_model
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT

# Sizes at which the runtime's kernel for packed weights rounds differently from the other one.
ROWS, INNER, COLUMNS = 17, 300, 65
WEIGHTED = {
    "transposed": "t = Transpose <perm = [1, 0]> (w) y = MatMul (x, t)",
    "twice transposed": "s = Transpose (w) r = Transpose (s) t = Transpose (r) y = MatMul (x, t)",
    "copied": "i = Identity (v) y = MatMul (x, i)",
    "scaled by one": "i = Mul (v, one) y = MatMul (x, i)",
    "computed": "i = Sqrt (v) y = Gemm (x, i, b)",
    "transposed for Gemm": "t = Transpose (w) y = Gemm (x, t, b)",
    "input transposed": "t = Transpose (x) u = Transpose <perm = [1, 0]> (t) y = Gemm (u, v, b)",
    "reshaped": "t = Reshape (flat, shape) y = MatMul (x, t)",
}


def write(path: Path, body: str) -> Path:
    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 20]>\ng (float[n, {INNER}] x) => (float[n, {COLUMNS}] y) {{ {body} }}'
    )
    wide = rng.uniform(0.1, 1, (INNER, COLUMNS)).astype(np.float32)
    weights: dict[str, Any] = {
        "w": np.ascontiguousarray(wide.T), "v": wide, "b": wide[0], "one": np.ones(1, np.float32),
        "flat": wide.reshape(-1), "shape": np.array([INNER, COLUMNS]),
    }  # fmt: skip
    for name, array in weights.items():
        if any(name in node.input for node in proto.graph.node):
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.checker.check_model(proto)
    onnx.save(proto, path)
    return path


@pytest.mark.parametrize("body", WEIGHTED.values(), ids=list(WEIGHTED))
def test_basic_keeps_every_bit_of_a_product_with_a_computed_weight(body: str, tmp_path: Path) -> None:
    # Folding alone gives the right weight. But the runtime packs weights that are constants, and the packed product
    # adds up in another order.
    source = write(tmp_path / "m.onnx", body)
    model = io.load(source)
    optimize_model(model, "basic")

    for rows in (1, 3, ROWS):
        feeds = {"x": np.random.default_rng(rows).normal(size=(rows, INNER)).astype(np.float32)}
        want = OnnxRunner.open(source, EXACT).run(feeds)["y"]
        np.testing.assert_array_equal(OnnxRunner.open(model, EXACT).run(feeds)["y"], want)


@pytest.mark.parametrize("body", WEIGHTED.values(), ids=list(WEIGHTED))
def test_extended_folds_the_weight_all_the_same(body: str, tmp_path: Path) -> None:
    model = io.load(write(tmp_path / "m.onnx", body))
    optimize_model(model, "extended")

    assert sum(operator_counts(model).values()) == 1


def test_basic_keeps_every_bit_of_recurrent_layers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]>
        g (float[4, n, 24] x) => (float[4, 1, n, 32] y) {
            r = Transpose <perm = [0, 2, 1]> (u) y = LSTM <hidden_size = 32> (x, w, r)
        }"""
    )
    for name, shape in {"w": (1, 128, 24), "u": (1, 32, 128)}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    model = io.from_proto(proto)
    optimize_model(model, "basic")

    feeds = {"x": rng.normal(size=(4, 3, 24)).astype(np.float32)}
    want, have = OnnxRunner.open(proto, EXACT).run(feeds)["y"], OnnxRunner.open(model, EXACT).run(feeds)["y"]
    np.testing.assert_array_equal(have, want)


class AlmostRight:
    """Swaps the order of two additions, which moves a last bit."""

    name = "almost"
    level = Level.BASIC

    def apply(self, model: Any, context: PassContext) -> int:
        """(a + b) + c becomes a + (b + c)."""
        for node in context.nodes(model, "Add"):
            first = node.inputs[0].producer()
            if first is not None and first.op_type == "Add":
                a, b = first.inputs
                context.replace_op(node, "Add", [a, context.insert(node, "Add", [b, node.inputs[1]], base="late")])
                return 1
        return 0


def test_basic_is_verified_to_the_last_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built_in = registry.all_passes()
    monkeypatch.setattr(registry, "all_passes", lambda: ((AlmostRight(), "test"), *built_in))
    text = "g (float[b, n] x, float[b, n] z, float[b, n] w) => (float[b, n] y) { s = Add (x, z) y = Add (s, w) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]>\n{text}'), tmp_path / "m.onnx")

    strictly = onnxtool.optimize(tmp_path / "m.onnx", tmp_path / "o.onnx", level="basic", bench=False)
    roughly = onnxtool.optimize(tmp_path / "m.onnx", tmp_path / "o.onnx", level="extended", bench=False)

    assert [d.name for d in strictly.dropped] == ["almost"]
    assert strictly.comparison is not None
    assert (strictly.comparison.rtol, strictly.comparison.atol) == (0.0, 0.0)
    assert strictly.ok
    assert not roughly.dropped
