"""Files are certified from the module's own code, and no file with another bit in a weight is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import onnxtool  # noqa: E402
from onnxtool.conversion.convert import open_source  # noqa: E402
from onnxtool.equality.certificate.sources import certify_source  # noqa: E402
from onnxtool.report.certificate import CertificateReport  # noqa: E402
from onnxtool.runtime.feeds import random_feeds  # noqa: E402
from tests.conversion.pytorch import torch_models as models  # noqa: E402
from tests.conversion.pytorch.test_operator_trace import Residual  # noqa: E402

SIZES = ({"batch": 2, "length": 5}, {"batch": 1, "length": 1}, {"batch": 3, "length": 8})


class Normed(nn.Module):  # type: ignore[misc]
    """A convolution whose weight is computed from two; fresh, that is one of the two, bit by bit."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(16, 8, 9), dim=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


class Resized(nn.Module):  # type: ignore[misc]
    """A picture made larger, and its mean, of which channels come last in memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        larger = functional.interpolate(x, (11, 5), mode="bicubic")
        return functional.adaptive_avg_pool2d(larger.to(memory_format=torch.channels_last), 1)


MODULES = {
    "weight norm": (Normed, {"x": ("batch", 16, 12)}),
    "bicubic": (Resized, {"x": ("batch", 3, 8, 8)}),
    "masked attention": (lambda: models.Weighing("bool"), {"x": ("batch", "length", 16)}),
    "residual": (Residual, {"x": ("batch", 3, 8, 8)}),
    "embedding": (lambda: models.Tied(40, 4), {"ids": ("batch", "length")}),
}


def certified(
    module: nn.Module, graph: ir.Model, shapes: dict[str, tuple[object, ...]], at: Sequence[dict[str, int]] = SIZES
) -> CertificateReport:
    source = open_source(module, input_shapes=shapes)
    return certify_source(source, graph, [random_feeds(source.inputs, 0, dims=sizes) for sizes in at])


def flipped(graph: onnx.ModelProto, index: int) -> onnx.ModelProto:
    """Another last bit of the first number of an initializer, which is none of a key's bias: a softmax loses that."""
    changed = onnx.ModelProto.FromString(graph.SerializeToString())
    tensor = changed.graph.initializer[index]
    bits = numpy_helper.to_array(tensor).copy()
    bits.reshape(-1).view(np.uint32)[0] ^= 1
    tensor.CopyFrom(numpy_helper.from_array(bits, tensor.name))
    return changed


@pytest.mark.parametrize("name", MODULES)
def test_a_module_certifies_its_file_and_none_with_another_bit(name: str, tmp_path: Path) -> None:
    build, shapes = MODULES[name]
    torch.manual_seed(0)
    module = build().eval()
    onnxtool.convert(module, tmp_path / "out.onnx", input_shapes=shapes, verify_result=False)
    graph = onnx.load(tmp_path / "out.onnx")
    found = certified(module, ir.from_proto(graph), shapes)
    assert found.verdict == "certified", found.reason
    sizes = {tuple(s.get(str(d), d) for d in next(iter(shapes.values()))) for s in SIZES}
    assert {shape for p in found.points for shape in p.shapes.values()} == sizes
    assert found.ulps <= (8 if name == "weight norm" else 2)  # sums over weights round more
    weights = [i for i, t in enumerate(graph.graph.initializer) if t.data_type == onnx.TensorProto.FLOAT and t.dims]
    for index in weights:
        mutant = certified(module, ir.from_proto(flipped(graph, index)), shapes, SIZES[:1])
        assert mutant.verdict == "not tested", graph.graph.initializer[index].name
        assert "the same real function" in mutant.reason


def test_a_recurrent_layer_is_its_steps() -> None:
    torch.manual_seed(0)
    module = nn.LSTM(3, 4, bidirectional=True)
    weights = {}
    for kind, name, parts in (("W", "weight_ih_l0", 1), ("R", "weight_hh_l0", 1), ("B", "bias_{}_l0", 2)):
        rows = []
        for suffix in ("", "_reverse"):
            names = [name.format(side) + suffix for side in ("ih", "hh")[:parts]]
            entry = [getattr(module, n).detach().numpy() for n in names]
            rows.append(np.concatenate([np.concatenate([g[k] for k in (0, 3, 1, 2)]) for e in entry
                                        for g in [np.split(e, 4)]]))  # fmt: skip
        weights[kind] = np.stack(rows)
    node = helper.make_node("LSTM", ["input", "W", "R", "B"], ["y", "h", "c"], hidden_size=4, direction="bidirectional")
    whole = helper.make_node("Reshape", ["moved", "shape"], ["output_0"])
    moved = helper.make_node("Transpose", ["y"], ["moved"], perm=[0, 2, 1, 3])
    ends = [helper.make_node("Identity", [n], [f"output_1.{i}"]) for i, n in enumerate("hc")]
    inputs = [helper.make_tensor_value_info("input", 1, ["length", "batch", 3])]
    outputs = [helper.make_tensor_value_info(n, 1, None) for n in ("output_0", "output_1.0", "output_1.1")]
    constants = [*weights.items(), ("shape", np.array([0, 0, 8]))]
    graph = helper.make_graph([node, moved, whole, *ends], "g", inputs, outputs,
                              [numpy_helper.from_array(a, n) for n, a in constants])  # fmt: skip
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    shapes: dict[str, tuple[object, ...]] = {"input": ("length", "batch", 3)}
    found = certified(module, ir.from_proto(file), shapes)
    assert found.verdict == "certified", found.reason
    for index in range(3):
        assert not certified(module, ir.from_proto(flipped(file, index)), shapes, SIZES[:1]).ok


def test_what_reads_the_data_is_not_certified() -> None:
    shapes: dict[str, tuple[object, ...]] = {"x": ("batch", 3)}
    graph = helper.make_graph([], "g", [], [])
    found = certified(models.Branching(), ir.from_proto(helper.make_model(graph)), shapes)
    assert found.verdict == "not tested"
    assert found.reason == "its Python code reads a value of the data (a branch, a size or a number)"


def test_convert_certifies_and_says_why_not(normal_effort: None, tmp_path: Path) -> None:
    target = tmp_path / "out.onnx"
    sure = onnxtool.convert(models.Scaled(4), target, input_shapes={"x": ("batch", 4)}).comparison
    assert sure.verdict == "certified"
    quick = onnxtool.convert(models.Scaled(4), target, input_shapes={"x": ("batch", 4)}, effort="quick").comparison
    assert (quick.verdict, quick.certificate) == ("tested", None)
    unsure = onnxtool.convert(Remainder(), target, input_shapes={"x": ("batch", 4)}).comparison
    assert unsure.verdict == "tested"
    assert unsure.certificate.reason == "operator aten.remainder.Scalar has no exact form here"


def test_weights_that_wait_on_the_disk_are_certified(
    normal_effort: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxtool.conversion.convert.SPILL", 100)
    report = onnxtool.convert(nn.Linear(300, 200).eval(), tmp_path / "out.onnx", input_shapes={"input": ("batch", 300)})
    assert report.comparison is not None and report.comparison.verdict == "certified"


class Remainder(nn.Module):  # type: ignore[misc]
    """Of an operator without an exact form."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.remainder(x, 3)
