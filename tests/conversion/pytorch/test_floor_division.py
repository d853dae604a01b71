"""Sizes that Python rounds down are rounded down in the graph, and only where that is another number."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import onnxruntime
import pytest

torch = pytest.importorskip("torch")

from onnxtool.conversion.convert import convert  # noqa: E402
from onnxtool.conversion.pytorch.floor_division import round_down  # noqa: E402


class Cropped(torch.nn.Module):
    def forward(self, x):
        top = (x.shape[1] - 5) // 2
        return x[:, top : top + 5]


class RoundedUp(torch.nn.Module):
    def forward(self, x):
        return x[:, -(-x.shape[1] // 3) :].sum(1)


class Halved(torch.nn.Module):
    def forward(self, x):
        return x[:, : x.shape[1] // 2].sum(1)


@pytest.mark.parametrize("kind", [Cropped, RoundedUp])
def test_sizes_below_zero_round_down(kind: type, tmp_path: Path) -> None:
    assert convert(kind(), tmp_path / "out.onnx", input_shapes={"x": ("b", "n")}).ok
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    for length in (2, 3, 4, 7, 8, 9):
        x = torch.arange(2.0 * length).reshape(2, length)
        (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        assert found.tolist() == kind()(x).tolist()


def test_sizes_that_are_never_below_zero_are_divided_as_before(tmp_path: Path) -> None:
    assert convert(Halved(), tmp_path / "out.onnx", input_shapes={"x": ("b", "n")}).ok
    assert "Mod" not in [n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node]


def graph(numerator: str) -> ir.Model:
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[n] x) => (int64[1] y) { s = Shape(x)  '
        f"k = Constant <value_ints = [3]> ()  m = Constant <value_ints = [-3]> ()  {numerator}  y = Div(t, k) }}"
    )
    model.graph[-1].name = "node_floordiv_1"
    return model


@pytest.mark.parametrize(
    ("numerator", "changed"),
    [
        ("t = Identity(s)", 0),
        ("a = Add(s, k)  t = Mul(a, k)", 0),
        ("t = Sub(s, k)", 1),
        ("t = Neg(s)", 1),
        ("t = Add(s, m)", 1),
        ("f = Cast <to = 7> (x)  o = Constant <value_ints = [0]> ()  t = Gather(f, o)", 1),
    ],
)
def test_what_may_be_below_zero(numerator: str, changed: int) -> None:
    assert round_down(graph(numerator)) == changed


def test_other_divisions_stay() -> None:
    model = graph("t = Sub(s, k)")
    model.graph[-1].name = "node_div_1"
    assert round_down(model) == 0
