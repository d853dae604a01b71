"""Common subexpressions and duplicate initializers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from onnxtool.model import io
from onnxtool.optimization.pipeline import optimize_model

CSE = "eliminate-common-subexpressions"
MERGE = "merge-duplicate-initializers"


def test_computes_equal_nodes_once(optimized) -> None:
    result = optimized("g (float[b] x) => (float[b] y) { a = Exp (x) c = Exp (x) y = Add (a, c) }", CSE)
    assert result.after == {"Exp": 1, "Add": 1}


def test_other_attributes_or_inputs_are_other_nodes(optimized) -> None:
    result = optimized(
        """g (float[b, 4] x) => (float[b, 4] y) {
            a = LeakyRelu <alpha = 0.1> (x) c = LeakyRelu <alpha = 0.2> (x) d = LeakyRelu <alpha = 0.1> (a)
            e = Add (a, c) y = Add (d, e)
        }""",
        CSE,
    )
    assert result.rewrites == 0


def test_both_outputs_keep_their_names(optimized) -> None:
    result = optimized("g (float[b] x) => (float[b] y, float[b] z) { y = Exp (x) z = Exp (x) }", CSE)
    assert [o.name for o in result.proto.graph.output] == ["y", "z"]


def test_random_nodes_are_never_merged(optimized) -> None:
    result = optimized(
        """g (float[2] x) => (float[2] y) {
            a = RandomNormalLike (x) c = RandomNormalLike (x) d = Bernoulli (x) e = Bernoulli (x)
            f = Sum (a, c, d, e) y = Add (x, f)
        }""",
        compare=False,
    )
    assert result.after["RandomNormalLike"] == 2
    assert result.after["Bernoulli"] == 2


def test_a_branch_uses_what_was_computed_before_it(optimized) -> None:
    result = optimized(
        """g (bool c, float[b, 2] x) => (float[b, 2] y) {
            a = Exp (x)
            z = If (c) <
                then_branch = t () => (float[b, 2] t) { s = Exp (x) t = Neg (s) },
                else_branch = e () => (float[b, 2] e) { e = Neg (x) }
            >
            y = Add (a, z)
        }""",
        CSE,
        feeds=[{"c": np.array(flag), "x": np.ones((2, 2), np.float32)} for flag in (True, False)],
    )
    assert result.after["Exp"] == 1


def test_one_branch_never_uses_the_other(optimized) -> None:
    result = optimized(
        """g (bool c, float[b, 2] x) => (float[b, 2] y) {
            y = If (c) <
                then_branch = t () => (float[b, 2] t) { s = Exp (x) t = Neg (s) },
                else_branch = e () => (float[b, 2] e) { u = Exp (x) e = Abs (u) }
            >
        }""",
        CSE,
        feeds=[{"c": np.array(flag), "x": np.ones((2, 2), np.float32)} for flag in (True, False)],
    )
    assert result.after["Exp"] == 2


def test_stores_equal_weights_once(optimized) -> None:
    weight = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    result = optimized(
        "g (float[b, 4] x) => (float[b, 4] y) { a = MatMul (x, v) c = MatMul (a, w) y = MatMul (c, u) }",
        MERGE,
        weights={"v": weight, "w": weight.copy(), "u": weight + 1},
    )
    assert len(result.proto.graph.initializer) == 2


def test_equal_bytes_of_another_type_or_shape_are_other_weights(optimized) -> None:
    result = optimized(
        """g (float[b, 4] x) => (float[b, 4] y) {
            a = Add (x, v) c = Add (a, w) d = Cast <to = 1> (u) e = Add (c, d) y = Add (e, e)
        }""",
        MERGE,
        weights={"v": np.zeros(4, np.float32), "w": np.zeros((1, 4), np.float32), "u": np.zeros(4, np.int32)},
    )
    assert len(result.proto.graph.initializer) == 3


def test_positive_and_negative_zero_are_not_the_same(optimized) -> None:
    result = optimized(
        "g (float[b, 1] x) => (float[b, 1] y, float[b, 1] z) { y = Div (x, p) z = Div (x, n) }",
        MERGE,
        weights={"p": np.array([0.0], np.float32), "n": np.array([-0.0], np.float32)},
    )
    assert len(result.proto.graph.initializer) == 2


def test_large_weights_that_agree_at_both_ends_are_still_compared_in_full(optimized) -> None:
    weight = np.random.default_rng(0).normal(size=(32, 32)).astype(np.float32)
    other = weight.copy()
    other[16, 16] += 1
    result = optimized(
        "g (float[b, 32] x) => (float[b, 32] y) { a = MatMul (x, v) c = MatMul (a, w) y = MatMul (c, u) }",
        MERGE,
        weights={"v": weight, "w": other, "u": weight.copy()},
    )
    assert len(result.proto.graph.initializer) == 2


def test_weights_in_external_data_are_compared_without_being_mapped(tmp_path: Path) -> None:
    """A mapped page counts as memory of the process, and a look at one byte may map 2 MB."""
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]>
        g (float[b, 32] x) => (float[b, 32] y) { a = MatMul (x, v) c = MatMul (a, w) y = MatMul (c, u) }"""
    )
    weight = np.random.default_rng(0).normal(size=(32, 32)).astype(np.float32)
    for name, array in {"v": weight, "w": weight + 1, "u": weight}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    model = io.load(tmp_path / "m.onnx", in_place=True)
    optimize_model(model, "basic", only=[MERGE])
    tensors = [v.const_value for v in model.graph.initializers.values()]
    assert len(tensors) == 2
    assert all(isinstance(t, ir.ExternalTensor) and t.raw is None for t in tensors)
