"""inspect: counts held against independent ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.errors import InputError, UsageError
from onnxtool.model import io
from onnxtool.model.inspect import inspect
from onnxtool.model.provenance.metadata import add_history


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def single(
    operator: str,
    shapes: list[list[int]],
    output: list[int] | None = None,
    domain: str = "",
    **attributes: object,
) -> onnx.ModelProto:
    """One node; its first input is the graph's, the rest are weights."""
    weights = [numpy_helper.from_array(np.ones(s, np.float32), f"w{i}") for i, s in enumerate(shapes[1:])]
    node = helper.make_node(operator, ["x", *(w.name for w in weights)], ["y"], domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shapes[0])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_counts_of_the_digits_model_match_pytorch(digits_onnx: Path, fixtures: Path) -> None:
    torch = pytest.importorskip("torch")
    state = torch.load(fixtures / "digits_cnn.pt", weights_only=True)
    learned = sum(v.numel() for k, v in state.items() if not k.endswith("num_batches_tracked"))
    report = inspect(digits_onnx)
    # By hand: 3x3 convolutions on 8x8, the third after... each output element takes 9 * C_in products.
    convolutions = 64 * 32 * 9 * 1 + 64 * 64 * 9 * 32 + 64 * 64 * 9 * 64
    gemms = 1024 * 64 + 64 * 10
    assert report.macs == convolutions + gemms
    assert report.flops == 2 * report.macs
    assert report.uncounted == 0
    assert report.parameters == learned
    assert report.dynamic_dims == ("batch",)
    assert report.assumed_dims == {"batch": 1}


def test_batch_scales_the_compute(digits_onnx: Path) -> None:
    one = inspect(digits_onnx)
    four = inspect(digits_onnx, input_shapes=["image:4,1,8,8"])
    assert four.macs == 4 * one.macs
    assert four.assumed_dims == {}


@pytest.mark.parametrize(
    ("model", "macs"),
    [
        (single("Conv", [[1, 8, 10, 10], [16, 2, 3, 3]], group=4, strides=[2, 2], pads=[1, 1, 1, 1]), 16 * 25 * 2 * 9),
        (single("ConvTranspose", [[1, 3, 5, 5], [3, 4, 2, 2]], strides=[2, 2]), 3 * 25 * 4 * 4),
        (single("Gemm", [[5, 7], [7, 3]]), 5 * 7 * 3),
        (single("Gemm", [[7, 5], [3, 7]], transA=1, transB=1), 5 * 7 * 3),
        (single("MatMul", [[2, 3, 5, 7], [7, 4]]), 2 * 3 * 5 * 7 * 4),
        (single("MatMul", [[3, 5, 7], [7]]), 3 * 5 * 7),
        (single("MatMul", [[7], [7, 4]]), 7 * 4),
        (single("LSTM", [[6, 2, 5], [1, 16, 5], [1, 16, 4]], hidden_size=4), 6 * 2 * (16 * 5 + 16 * 4)),
    ],
)
def test_multiply_accumulates(model: onnx.ModelProto, macs: int, tmp_path: Path) -> None:
    report = inspect(saved(model, tmp_path))
    assert (report.macs, report.uncounted) == (macs, 0)


def test_compute_behind_a_computed_shape_is_counted(tmp_path: Path) -> None:
    # Flatten as exporters write it; ONNX's own inference loses the shape at the Mod.
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Constant", [], ["zero"], value_ints=[0]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Constant", [], ["rest"], value_ints=[-1]),
        helper.make_node("Constant", [], ["big"], value_ints=[1000]),
        helper.make_node("Mod", ["n", "big"], ["m"]),
        helper.make_node("Concat", ["m", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones((20, 3), np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    report = inspect(saved(model, tmp_path), input_shapes=["2,4,5"])
    assert (report.macs, report.uncounted) == (2 * 20 * 3, 0)
    assert report.node_count == 9  # what was computed on the way is not taken out of the count


def test_compute_behind_a_shape_that_is_computed_in_floats_is_counted(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["width"], start=1),
        helper.make_node("Cast", ["width"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["wide", "half"], ["halved"]),
        helper.make_node("Floor", ["halved"], ["whole"]),
        helper.make_node("Cast", ["whole"], ["columns"], to=TensorProto.INT64),
        helper.make_node("Concat", ["rest", "columns"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["y"]),
    ]
    arrays = {"half": np.float32([0.6]), "rest": np.array([-1]), "w": np.ones((4, 3), np.float32)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    assert inspect(saved(model, tmp_path), input_shapes=["3,8"]).macs == 3 * 2 * 4 * 3


def test_compute_behind_a_dim_that_inference_names_first_is_counted(tmp_path: Path) -> None:
    # As exporters slice a table of positions to the length: at the first look the dim gets a placeholder ("unk__0"),
    # which inference keeps once the end of the slice is known. And the assumed length of 128 is beyond the table.
    nodes = [
        helper.make_node("Shape", ["ids"], ["length"], start=1),
        helper.make_node("Slice", ["table", "from", "length", "axis"], ["positions"]),
        helper.make_node("Gather", ["words", "positions"], ["embedded"]),
        helper.make_node("Gather", ["words", "ids"], ["looked"]),
        helper.make_node("Add", ["looked", "embedded"], ["sum"]),
        helper.make_node("MatMul", ["sum", "w"], ["y"]),
    ]
    arrays = {
        "table": np.arange(32, dtype=np.int64)[None],
        "from": np.array([0]),
        "axis": np.array([1]),
        "words": np.ones((40, 4), np.float32),
        "w": np.ones((4, 3), np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "sequence"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    assert inspect(saved(model, tmp_path), input_shapes=["2,8"]).macs == 2 * 8 * 4 * 3
    assumed = inspect(saved(model, tmp_path))
    assert assumed.uncounted == 0
    assert assumed.macs == assumed.assumed_dims["sequence"] * 4 * 3
    assert assumed.assumed_dims["sequence"] <= 32


def test_a_huge_computed_tensor_is_not_made(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["s"], value_ints=[1 << 20, 1 << 20]),
        helper.make_node("ConstantOfShape", ["s"], ["c"]),
        helper.make_node("MatMul", ["x", "c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1 << 20])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    assert inspect(saved(model, tmp_path)).macs == 1 << 40


def test_operator_versions_histogram_and_largest(relu_proto: onnx.ModelProto, tmp_path: Path) -> None:
    report = inspect(saved(relu_proto, tmp_path), nodes=True)
    assert [(o.name, o.since, o.count, o.parameters) for o in report.operators] == [
        ("MatMul", 13, 1, 6),
        ("Relu", 14, 1, 0),
    ]
    assert [(w.name, w.shape, w.bytes) for w in report.largest] == [("w", (3, 2), 24)]
    assert [(n.operator, n.output_shapes) for n in report.nodes] == [("MatMul", ((1, 2),)), ("Relu", ((1, 2),))]
    assert report.dtypes == {"float32": 24}


def test_subgraphs_and_functions_are_counted(tmp_path: Path) -> None:
    def branch(name: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node("com.f", ["x"], [name], domain="local")], name, [], [out])

    body = helper.make_function(
        "local", "com.f", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 20)]
    )
    node = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=branch("t"), else_branch=branch("e"))
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("c", TensorProto.BOOL, []), helper.make_tensor_value_info("x", 1, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=[body])
    report = inspect(saved(model, tmp_path), nodes=True)
    assert {o.name: o.count for o in report.operators} == {"local.com.f": 2, "If": 1, "Relu": 1}
    assert "main/choice.then_branch" in {n.graph for n in report.nodes}
    assert report.functions == ("local.com.f",)


def test_history_and_metadata(relu_proto: onnx.ModelProto, tmp_path: Path) -> None:
    model = io.from_proto(relu_proto)
    model.metadata_props["licence"] = "Apache-2.0"
    add_history(model, "optimize", {"level": "basic"})
    io.save(model, tmp_path / "m.onnx")
    report = inspect(tmp_path / "m.onnx")
    assert report.metadata == {"licence": "Apache-2.0"}
    assert [s["command"] for s in report.history] == ["optimize"]
    assert report.sha256 == io.sha256(tmp_path / "m.onnx")


def test_refuses_what_does_not_fit(digits_onnx: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="4 dims"):
        inspect(digits_onnx, input_shapes=["image:1,2"])
    with pytest.raises(InputError, match="no such file"):
        inspect(tmp_path / "none.onnx")


def test_compute_behind_the_runtimes_own_operators_and_in_functions_is_counted(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1, "own" : 1]>
        g (float[2, 3, 8] x, float[6, 8] w, float[6] s, float[6, 5] v) => (float[2, 3, 5] y) {
            a = com.microsoft.FusedMatMul <transB = 1> (x, w)
            b, mean, deviation, sum = com.microsoft.SkipLayerNormalization (a, a, s)
            c = com.microsoft.Gelu (sum)
            y = own.twice (c, v)
        }
        <opset_import: ["" : 20], domain: "own"> twice (p, q) => (r) {
            t = MatMul (p, q)
            r = Add (t, t)
        }"""
    )
    report = inspect(saved(model, tmp_path))
    assert (report.macs, report.uncounted) == (2 * 3 * 6 * 8 + 2 * 3 * 6 * 5, 0)
    assert {use.name for use in report.operators} >= {"own.twice", "MatMul"}


def test_attention_of_the_runtime_has_its_shape(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
        g (float[1, 4, 8] x, float[8, 24] w, float[24] b, float[1, 6, 8] k, float[1, 6, 16] v, float[16, 2] o)
        => (float[1, 4, 2] y) {
            a = com.microsoft.Attention <num_heads = 2> (x, w, b)
            c = com.microsoft.MultiHeadAttention <num_heads = 2> (a, k, v)
            y = MatMul (c, o)
        }"""
    )
    shapes = {n.operator: n.output_shapes[0] for n in inspect(saved(model, tmp_path), nodes=True).nodes}
    assert shapes["com.microsoft.Attention"] == (1, 4, 8)
    assert shapes["com.microsoft.MultiHeadAttention"] == (1, 4, 16)


def test_older_models_whose_weights_are_made_by_nodes_are_counted() -> None:
    """SqueezeNet multiplies 349 million times; dims were lost where only one of two inferences knew them."""
    light = Path(onnx.__file__).parent / "backend/test/data/light/light_squeezenet.onnx"
    if not light.exists():
        pytest.skip("onnx was installed without its light models")
    report = inspect(light)
    assert (report.uncounted, report.macs) == (0, 349_151_936)
