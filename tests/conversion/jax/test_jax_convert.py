"""Functions and modules of JAX become files that compute the same; a wrong file is not written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import onnxtool
from onnxtool.errors import InputError, UnsupportedError, UsageError, VerdictError
from onnxtool.runtime.runner import OnnxRunner

jax = pytest.importorskip("jax", reason="the extra jax is not installed")
pytest.importorskip("jax2onnx", reason="the extra jax is not installed")
Shapes = dict[str, tuple[int | str, ...]]


def perceptron() -> tuple[Any, Shapes]:
    """Flax NNX with dropout and statistics of batches."""
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.dense, self.norm = nnx.Linear(6, 16, rngs=rngs), nnx.BatchNorm(16, rngs=rngs)
            self.drop, self.head = nnx.Dropout(0.5, rngs=rngs), nnx.Linear(16, 3, rngs=rngs)
            self.norm.mean[...] = jax.random.normal(jax.random.key(1), (16,))

        def __call__(self, x: Any) -> Any:
            return {"logits": self.head(self.drop(jax.nn.gelu(self.norm(self.dense(x)))))}

    return Net(nnx.Rngs(0)), {"x": ("batch", 6)}


def recurrent() -> tuple[Any, Shapes]:
    """Flax Linen with its variables: cells that split random keys for a state of zeros."""
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any, train: bool) -> Any:
            x = nn.RNN(nn.GRUCell(4))(x)
            return nn.Dense(2)(nn.Dropout(0.5, deterministic=not train)(x))

    module = Net()
    variables = module.init(jax.random.key(0), np.zeros((1, 5, 3), np.float32), train=False)
    return (module, variables), {"x": ("batch", "length", 3)}


def attention() -> tuple[Any, Shapes]:
    """Equinox, over a batch."""
    import equinox

    layer = equinox.nn.MultiheadAttention(2, 8, key=jax.random.key(0))
    return jax.vmap(lambda x: layer(x, x, x)), {"x": ("batch", "length", 8)}


def indices() -> tuple[Any, Shapes]:
    """A plain function of whole numbers and numbers."""
    table = jax.random.normal(jax.random.key(3), (30, 8))
    return lambda ids, x: (table[ids] * x[:, None]).sum(1), {"ids": ("batch", "length"), "x": ("batch", 8)}


@pytest.mark.parametrize("make", [perceptron, recurrent, attention, indices])
def test_the_file_computes_what_the_function_computes(make: Callable[[], tuple[Any, Shapes]], tmp_path: Path) -> None:
    model, shapes = make()
    report = onnxtool.convert(model, output=tmp_path / "m.onnx", input_shapes=shapes, effort="quick")
    assert report.ok
    assert {o.name for o in report.outputs} == ({"logits"} if make is perceptron else {"output"})
    runner = OnnxRunner.open(tmp_path / "m.onnx")
    assert [spec.shape for spec in runner.inputs] == list(shapes.values())


@pytest.mark.parametrize("fault", ["negated weight", "larger epsilon", "swapped axes", "another function"])
def test_a_wrong_file_is_not_written(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What jax2onnx gives is damaged before it is compared."""
    from onnxtool.conversion.jax import export

    weight = np.eye(4, dtype=np.float32) * 2 + 0.1

    def net(x: Any) -> Any:
        def step(state: Any, row: Any) -> tuple[Any, Any]:
            state = jax.numpy.tanh(state + row)
            return state, state

        states = jax.lax.scan(step, jax.numpy.zeros((4, 4)), x)[1]
        return jax.numpy.swapaxes(states, 1, 2) / jax.numpy.sqrt((x * x).mean() + 1e-3) @ weight

    convert = export.jax2onnx.to_onnx

    def damaged(*args: Any, **kwargs: Any) -> ir.Model:
        model = convert(*args, **kwargs)
        done = False
        for node in model.graph.all_nodes():
            for value in node.inputs:
                tensor = None if value is None else value.const_value
                if tensor is None:
                    continue
                array = tensor.numpy()
                if fault == "negated weight" and array.shape == (4, 4) and array.any():
                    value.const_value, done = ir.tensor(-array), True
                elif fault == "larger epsilon" and array.size == 1 and np.isclose(array, 1e-3).all():
                    value.const_value, done = ir.tensor(np.full_like(array, 2e-3)), True
            if fault == "swapped axes" and node.op_type == "Transpose" and len(node.attributes["perm"].value) == 3:
                node.attributes["perm"], done = ir.AttrInt64s("perm", [0, 1, 2]), True
            elif fault == "another function" and node.op_type == "Tanh":
                node.op_type, done = "Erf", True
        assert done
        return model

    monkeypatch.setattr(export.jax2onnx, "to_onnx", damaged)
    report = onnxtool.convert(net, output=tmp_path / "m.onnx", input_shapes={"x": (5, 4, 4)}, effort="quick")
    assert not report.ok
    assert not report.written
    assert not (tmp_path / "m.onnx").exists()


def test_bfloat16_is_computed_in_float32(tmp_path: Path) -> None:
    """Also what a loop carries; what is only rounded to bfloat16 is."""
    weight = np.eye(6, dtype=np.float32)[::-1] * 0.3

    def net(x: Any) -> Any:
        w, rows = jax.numpy.asarray(weight, jax.numpy.bfloat16), x.astype(jax.numpy.bfloat16)
        last, _ = jax.lax.scan(lambda s, row: (jax.numpy.tanh(s + row @ w), None), rows[0], rows)
        return last

    rows = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    report = onnxtool.convert(net, tmp_path / "m.onnx", input_shapes={"x": ("length", 6)}, effort="quick")
    assert report.ok
    assert report.notes == ("bfloat16 is computed as float32, which holds its weights exactly",)
    (found,) = OnnxRunner.open(tmp_path / "m.onnx").run({"x": rows}).values()
    expected = rows[0]
    for row in rows:
        expected = np.tanh(expected + row @ weight.astype(jax.numpy.bfloat16).astype(np.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-5)

    def rounded(x: Any) -> Any:
        return x.astype(jax.numpy.bfloat16).astype(jax.numpy.float32)

    assert not onnxtool.convert(rounded, tmp_path / "m.onnx", input_shapes={"x": ("length", 6)}, effort="quick").notes
    (found,) = OnnxRunner.open(tmp_path / "m.onnx").run({"x": rows}).values()
    np.testing.assert_array_equal(found, rounded(jax.numpy.asarray(rows)))


def test_float32_is_held_against_the_function_in_bfloat16(tmp_path: Path) -> None:
    def coarse(x: Any) -> Any:
        return (x.astype(jax.numpy.bfloat16) + 256) - 256  # whose next neighbour is 258

    with pytest.raises(VerdictError, match=r"% off .* what the model gives in bfloat16"):
        onnxtool.convert(coarse, tmp_path / "m.onnx", input_shapes={"x": ("rows", 6)}, effort="quick")


def test_what_cannot_be_converted_is_said_in_a_line(tmp_path: Path) -> None:
    from flax import linen

    with pytest.raises(UsageError, match="has no weights of its own"):
        onnxtool.convert(linen.Dense(3), output=tmp_path / "m.onnx", input_shapes={"inputs": (2, 3)})
    with pytest.raises(UnsupportedError, match="jax2onnx cannot convert this function"):
        onnxtool.convert(lambda x: jax.lax.linalg.schur(x)[0], output=tmp_path / "m.onnx", input_shapes={"x": (3, 3)})
    with pytest.raises(InputError, match="cannot be called with these inputs"):
        onnxtool.convert(lambda x: x @ x, output=tmp_path / "m.onnx", input_shapes={"x": (2, 3)})
    assert list(tmp_path.iterdir()) == []


def test_outputs_are_named_after_the_keys_of_what_is_returned(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnxtool.convert(lambda x: {"sum": x.sum(-1), "double": 2 * x}, output=path, input_shapes={"x": ("batch", 6)})
    x = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    outputs = OnnxRunner.open(path).run({"x": x})
    np.testing.assert_allclose(outputs["sum"], x.sum(-1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(outputs["double"], 2 * x)


def test_an_output_with_the_key_of_an_input_gets_another_name(tmp_path: Path) -> None:
    report = onnxtool.convert(lambda x: {"x": 2 * x}, output=tmp_path / "m.onnx", input_shapes={"x": ("batch", 6)})
    assert [o.name for o in report.outputs] == ["x_output"]
    assert any("'x' is called 'x_output'" in note for note in report.notes)
    x = np.ones((3, 6), np.float32)
    np.testing.assert_array_equal(OnnxRunner.open(tmp_path / "m.onnx").run({"x": x})["x_output"], 2 * x)


def test_a_decision_by_a_dynamic_size_and_inputs_of_64_bits_are_refused(tmp_path: Path) -> None:
    shapes: Shapes = {"x": ("batch", 6)}
    with pytest.raises(UnsupportedError, match="decides by a dynamic size"):
        onnxtool.convert(lambda x: x + 1 if x.shape[0] > 4 else x, output=tmp_path / "m.onnx", input_shapes=shapes)
    with pytest.raises(UnsupportedError, match=r"decides by a dynamic size.*--input-shape"):
        onnxtool.convert(lambda x: sum(x[i] for i in range(x.shape[0])), tmp_path / "m.onnx", input_shapes=shapes)
    with pytest.raises(UsageError, match="x:int32"):
        onnxtool.convert(
            jax.jit(lambda x: x + 1), tmp_path / "m.onnx", input_shapes=shapes, input_dtypes={"x": "int64"}
        )
    assert list(tmp_path.iterdir()) == []
