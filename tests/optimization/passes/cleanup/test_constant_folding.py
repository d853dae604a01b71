"""Constant folding: what is folded, what must not be, and that values are those of the runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxtool.model import io
from onnxtool.model.ir.queries import operator_counts
from onnxtool.optimization.passes.cleanup import constant_folding
from onnxtool.optimization.pipeline import optimize_model
from tests.optimization.conftest import model_from

FOLD = ("lift-constants", "fold-constants", "eliminate-dead-code")


def test_folds_a_chain_of_constants(optimized) -> None:
    result = optimized(
        """g (float[b, 3] x) => (float[b, 3] y) {
            one = Constant <value = float {1.0}> ()
            e = Exp (one)
            s = Sqrt (e)
            y = Mul (x, s)
        }""",
        *FOLD,
    )
    assert result.after == {"Mul": 1}


@pytest.mark.parametrize("operator", ["RandomNormal <shape = [2, 3]>", "RandomUniform <shape = [2, 3]>"])
def test_never_folds_random_numbers(optimized, operator: str) -> None:
    result = optimized(f"g (float[2, 3] x) => (float[2, 3] y) {{ r = {operator} () y = Add (x, r) }}", compare=False)
    assert result.after == result.before


def test_never_folds_what_is_drawn_from_a_constant(optimized) -> None:
    result = optimized(
        "g (float[2, 3] x) => (float[2, 3] y) { r = RandomNormalLike (w) y = Add (x, r) }",
        weights={"w": np.zeros((2, 3), np.float32)},
        compare=False,
    )
    assert result.after == {"RandomNormalLike": 1, "Add": 1}


def test_keeps_the_type_of_a_constant_float(optimized) -> None:
    # Defect in another optimizer: Constant(value_float) became a double, and the model no longer loaded.
    result = optimized(
        """g (float[b, 3] x) => (float[b, 3] y) {
            c = Constant <value_float = 1.5> ()
            d = Constant <value_floats = [1.0, 2.0, 3.0]> ()
            s = Add (c, d)
            y = Mul (x, s)
        }""",
        *FOLD,
    )
    assert result.after == {"Mul": 1}
    assert {t.data_type for t in result.proto.graph.initializer} == {onnx.TensorProto.FLOAT}


def test_overridable_defaults_are_no_constants(optimized) -> None:
    result = optimized(
        """g (float[b, 3] x, float[3] w) => (float[b, 3] y) { e = Exp (w) y = Mul (x, e) }""",
        weights={"w": np.ones(3, np.float32)},
        feeds=[{"x": np.ones((2, 3), np.float32)}],
    )
    assert result.after == {"Exp": 1, "Mul": 1}
    assert [i.name for i in result.proto.graph.input] == ["x", "w"]


def test_an_overridable_shape_is_not_believed(optimized) -> None:
    result = optimized(
        "g (float[b, 6] x, int64[2] s) => (float[p, q] y) { a = Reshape (x, s) c = Relu (a) y = Reshape (c, s) }",
        weights={"s": np.array([-1, 3])},
        feeds=[{"x": np.ones((2, 6), np.float32)}],
    )
    assert result.after["Reshape"] >= 1
    assert "s" in result.proto.graph.node[0].input


def test_folding_never_grows_the_file(optimized) -> None:
    text = """g (float[1000, 1000] x) => (float[1000, 1000] y) {
        r = Range (zero, thousand, one)
        c = Unsqueeze (r, axis)
        w = Add (c, r)
        y = Mul (x, w)
    }"""
    weights = {
        "zero": np.array(0, np.float32),
        "thousand": np.array(1000, np.float32),
        "one": np.array(1, np.float32),
        "axis": np.array([1]),
    }
    result = optimized(text, weights=weights)
    assert result.after["Add"] == 1
    assert len(result.proto.SerializeToString()) < 5000


def test_folds_what_no_longer_grows_the_file(optimized) -> None:
    """The weight's second reader goes with the branch that is never taken, a round after the first attempt."""
    text = """g (float[64, 64] x) => (float[64, 64] y) {
        yes = Constant <value = bool {1}> () turned = Transpose <perm = [1, 0]> (w)
        y = If (yes) <
            then_branch = t () => (float[64, 64] p) { p = Mul (x, turned) },
            else_branch = e () => (float[64, 64] q) { q = Mul (x, w) }
        >
    }"""
    weights = {"w": np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)}
    result = optimized(text, "fold-constants", "inline-constant-if", "eliminate-dead-code", weights=weights)
    assert result.after == {"Mul": 1}
    assert len(result.proto.graph.initializer) == 1


def test_a_size_limit_allows_what_the_user_allows() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]> g (float[100, 100] x) => (float[100, 100] y)
        <int64[2] s = {100, 100}, float[100] v> { w = Expand (v, s) y = Mul (x, w) }"""
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(100, dtype=np.float32), "v"))
    for limit, folded in ((None, False), (100, False), (40_000, True)):
        model = io.from_proto(proto)
        optimize_model(model, only=["fold-constants"], max_folded_bytes=limit)
        assert ("Expand" not in operator_counts(model)) is folded, limit


def test_uniform_weights_stay_compact(optimized) -> None:
    result = optimized(
        """g (float[b, 200] x) => (float[b, 100] y) {
            w = ConstantOfShape <value = float[1] {0.5}> (s)
            v = Neg (w)
            y = MatMul (x, v)
        }""",
        weights={"s": np.array([200, 100])},
    )
    assert result.after == {"ConstantOfShape": 1, "MatMul": 1}
    assert len(result.proto.SerializeToString()) < 1000


def test_keeps_dequantized_weights_quantized(optimized) -> None:
    result = optimized(
        "g (float[b, 4] x) => (float[b, 4] y) { w = DequantizeLinear (q, s) y = MatMul (x, w) }",
        weights={"q": np.arange(16, dtype=np.int8).reshape(4, 4), "s": np.array(0.1, np.float32)},
    )
    assert result.after == {"DequantizeLinear": 1, "MatMul": 1}


def test_folds_strings(optimized) -> None:
    result = optimized(
        "g (string[b] x) => (string[b] y) { c = StringConcat (p, q) y = StringConcat (c, x) }",
        weights={"p": np.array(["a"], object), "q": np.array(["b"], object)},
    )
    assert result.after == {"StringConcat": 1}


def test_bfloat16_casts_give_what_the_runtime_gives(optimized) -> None:
    result = optimized(
        """g (float[b, 3] x) => (float[b, 3] y) {
            h = Cast <to = 16> (w)
            f = Cast <to = 1> (h)
            y = Add (x, f)
        }""",
        weights={"w": np.array([1.00390625, 3.14159, 1e30], np.float32)},
    )
    assert result.after == {"Add": 1}


def test_resize_is_folded_to_the_values_of_the_runtime(optimized) -> None:
    # The ONNX reference evaluator gives other values for half of Resize's modes; the runtime decides.
    result = optimized(
        """g (float[1, 1, 5, 5] x) => (float[1, 1, 5, 5] y) {
            r = Resize <mode = "cubic", coordinate_transformation_mode = "half_pixel", antialias = 0> (w, , , size)
            y = Add (x, r)
        }""",
        weights={
            "w": np.random.default_rng(0).normal(size=(1, 1, 4, 4)).astype(np.float32),
            "size": np.array([1, 1, 5, 5]),
        },
    )
    assert result.after == {"Add": 1}


def test_folds_dft_to_the_values_of_the_runtime(optimized) -> None:
    result = optimized(
        "g (float[1, 8, 2] x) => (float[1, 8, 2] y) { d = DFT (w, , axis) y = Add (x, d) }",
        weights={
            "w": np.random.default_rng(0).normal(size=(1, 8, 1)).astype(np.float32),
            "axis": np.array(1),
        },
    )
    assert result.after == {"Add": 1}


def test_folds_inside_subgraphs(optimized) -> None:
    result = optimized(
        """g (bool c, float[b, 2] x) => (float[b, 2] y) {
            y = If (c) <
                then_branch = t () => (float[b, 2] t) {
                    k = Constant <value = float {4.0}> () s = Sqrt (k) t = Mul (x, s)
                },
                else_branch = e () => (float[b, 2] e) { e = Neg (x) }
            >
        }""",
        feeds=[{"c": np.array(flag), "x": np.ones((2, 2), np.float32)} for flag in (True, False)],
    )
    assert result.after == {"If": 1, "Mul": 1, "Neg": 1}


def test_writes_out_repeated_weights_as_far_as_the_file_was_larger(optimized) -> None:
    # 30 nodes fold away; what they took pays for the smaller weight, not for the larger one.
    chain = " ".join(f"i{n} = Identity (i{n - 1})" for n in range(1, 400))
    result = optimized(
        f"""g (float[b, 64] x) => (float[b, 512] y) {{
            i0 = Neg (x) {chain}
            w = ConstantOfShape <value = float[1] {{0.5}}> (s) v = ConstantOfShape <value = float[1] {{0.25}}> (t)
            m = Mul (i399, w) y = MatMul (m, v)
        }}""",
        "eliminate-identity",
        "fold-constants",
        "eliminate-dead-code",
        weights={"s": np.array([32, 64]), "t": np.array([64, 512])},
        feeds=[{"x": np.ones((32, 64), np.float32)}],
    )
    assert result.after == {"ConstantOfShape": 1, "MatMul": 1, "Mul": 1, "Neg": 1}


def test_a_convolution_with_one_number_per_channel_stays_small(optimized) -> None:
    rng = np.random.default_rng(0)
    numbers = {n: rng.uniform(0.5, 1.5, 32).astype(np.float32) for n in ("a", "b", "c", "d", "e")}
    result = optimized(
        """g (float[b, 64, 5, 5] x) => (float[b, 32, 3, 3] y) {
            w = ConstantOfShape <value = float[1] {0.5}> (s)
            v = Conv (x, w)
            n = BatchNormalization (v, a, b, c, d)
            r = Reshape (e, t)
            y = Mul (n, r)
        }""",
        weights={"s": np.array([32, 64, 3, 3]), "t": np.array([32, 1, 1]), **numbers},
        feeds=[{"x": rng.uniform(0.1, 1, (2, 64, 5, 5)).astype(np.float32)}],
        exact=False,
    )
    # Scaled by channel, the weight no longer is one number 73,728 bytes long, but 32 of them.
    assert result.after == {"Conv": 1, "Expand": 1}
    assert result.proto.ByteSize() < 2000


def test_an_expand_that_is_compact_already_is_left_alone() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]> g (float[b, 8, 64, 64] x) => (float[b, 8, 64, 64] y)
        <int64[3] s = {8, 64, 64}> { e = Expand (v, s) y = Mul (x, e) }"""
    )
    rows = np.arange(8, dtype=np.float32).reshape(8, 1, 1)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(rows, "v"))
    model = io.from_proto(proto)
    statistics = optimize_model(model, only=["fold-constants"])
    assert operator_counts(model) == {"Expand": 1, "Mul": 1}
    assert statistics.rounds == 1


def test_a_large_weight_that_others_read_is_not_copied_only_to_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []
    evaluate = constant_folding.evaluate
    monkeypatch.setattr(constant_folding, "evaluate", lambda n, *rest: computed.append(n.op_type) or evaluate(n, *rest))

    def left(text: str, weight: np.ndarray) -> list[str]:
        computed.clear()
        model = io.from_proto(model_from(text, {"w": weight}))
        optimize_model(model, "basic", only=FOLD, exact=False)
        return [node.op_type for node in model.graph]

    weight = np.random.default_rng(0).standard_normal((600, 512)).astype(np.float32)
    tied = """g (int64[b] ids) => (float[b, 600] y) {
        e = Gather (w, ids)
        t = Transpose <perm = [1, 0]> (w)
        y = MatMul (e, t)
    }"""
    assert left(tied, weight) == ["Gather", "Transpose", "MatMul"] and not computed
    # Small, compact, or nobody else reads it: computed, as ever.
    assert left(tied, np.full_like(weight, 0.5)) != ["Gather", "Transpose", "MatMul"] and computed
    alone = "g (float[b, 512] x) => (float[b, 600] y) { t = Transpose <perm = [1, 0]> (w) y = MatMul (x, t) }"
    assert left(alone, weight) == ["MatMul"] and computed


GATES = """a = Slice (w, n0, n16, axis) c = Slice (w, n16, n48, axis) d = Slice (w, n48, n64, axis)
    r = Concat <axis = 0> (d, a, c)"""
GATE_WEIGHTS = {
    "w": np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32),
    "axis": np.array([0]),
    **{f"n{n}": np.array([n]) for n in (0, 16, 48, 64)},
}


def test_a_weight_that_is_only_put_together_anew_is_stored_anew(optimized) -> None:
    # As exporters do with the gates of an LSTM: three nodes read the weight, and all go with the last.
    text = f"g (float[b, 1, 64] x) => (float[b, 64, 64] y) {{ {GATES} y = Mul (x, r) }}"
    result = optimized(text, "fold-constants", "eliminate-dead-code", weights=GATE_WEIGHTS)
    assert result.after == {"Mul": 1}
    assert len(result.proto.graph.initializer) == 1


def test_a_weight_that_others_read_as_well_is_not_stored_twice(optimized) -> None:
    text = f"g (float[b, 1, 64] x) => (float[b, 64, 64] y) {{ {GATES} m = Mul (x, r) y = Mul (m, w) }}"
    result = optimized(text, "fold-constants", "eliminate-dead-code", weights=GATE_WEIGHTS)
    assert result.after["Slice"] == 3


def test_what_was_refused_is_folded_once_another_reader_is_gone(optimized) -> None:
    text = f"""g (float[b, 64] x) => (float[b, 64] y) {{
        {GATES} m = MatMul (x, r)
        y = If (yes) <
            then_branch = t () => (float[b, 64] t) {{ t = Relu (m) }},
            else_branch = e () => (float[b, 64] e) {{ e = MatMul (m, w) }}
        >
    }}"""
    weights = {**GATE_WEIGHTS, "yes": np.array(True)}
    result = optimized(text, weights=weights, exact=False)
    assert result.after == {"MatMul": 1, "Relu": 1}
