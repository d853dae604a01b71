"""Names and dims of graph inputs and outputs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from onnxtool.conversion.graph_interface import align, described, named, observe_output_dims
from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.model import io
from onnxtool.model.spec import TensorSpec
from onnxtool.options.convert import ConvertOptions

F32 = np.dtype("float32")


def spec(name: str, *shape: int | str | None) -> TensorSpec:
    return TensorSpec(name, F32, shape)


def graph(text: str) -> ir.Model:
    return ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]> g {text}')


def run(model: ir.Model, **feeds: np.ndarray) -> list[np.ndarray]:
    session = ort.InferenceSession(io.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)  # type: ignore[no-any-return]


def test_renames_by_position_and_names_dims() -> None:
    model = graph("(float[s0, 3] arg0) => (float[s0, 3] y) { y = Relu(arg0) }")
    align(model, [spec("image", "batch", 3)], [spec("logits", "batch", 3)])
    assert [v.name for v in model.graph.inputs] == ["image"]
    assert str(model.graph.outputs[0].shape) == "[SymbolicDim('batch'), 3]" or model.graph.outputs[0].shape == [
        "batch",
        3,
    ]
    np.testing.assert_array_equal(run(model, image=-np.ones((2, 3), F32))[0], np.zeros((2, 3)))


def test_orders_by_name_where_the_names_are_the_same() -> None:
    model = graph("(float[2] b, float[2] a) => (float[2] y) { y = Sub(a, b) }")
    align(model, [spec("a", 2), spec("b", 2)], [spec("y", 2)])
    assert [v.name for v in model.graph.inputs] == ["a", "b"]
    a, b = np.array([5, 5], F32), np.array([1, 2], F32)
    np.testing.assert_array_equal(run(model, a=a, b=b)[0], a - b)


def test_inner_tensor_makes_room_for_a_name() -> None:
    model = graph("(float[2] x) => (float[2] z) { output = Relu(x) z = Neg(output) }")
    align(model, [spec("input", 2)], [spec("output", 2)])
    np.testing.assert_array_equal(run(model, input=np.array([-1, 4], F32))[0], [0, -4])


def test_swapped_names() -> None:
    model = graph("(float[2] a, float[2] b) => (float[2] c, float[2] d) { c = Neg(a) d = Relu(b) }")
    align(model, [spec("a", 2), spec("b", 2)], [spec("first", 2), spec("c", 2)])
    x, y = np.array([1, 2], F32), np.array([-3, 4], F32)
    assert [v.name for v in model.graph.outputs] == ["first", "c"]
    np.testing.assert_array_equal(run(model, a=x, b=y)[1], [0, 4])


def test_output_that_is_an_input_and_one_given_twice() -> None:
    model = graph("(float[2] x) => (float[2] x, float[2] y) { y = Neg(x) }")
    model.graph.outputs.append(model.graph.outputs[1])
    align(model, [spec("in", 2)], [spec("same", 2), spec("neg", 2), spec("again", 2)])
    x = np.array([1, 2], F32)
    for have, want in zip(run(model, **{"in": x}), (x, -x, -x), strict=True):
        np.testing.assert_array_equal(have, want)


def test_refuses_another_number_of_outputs() -> None:
    model = graph("(float[2] x) => (float[2] y) { y = Neg(x) }")
    with pytest.raises(UnsupportedError, match=r"gave 1 outputs \(y\), the model has 2 \(a, b\)"):
        align(model, [spec("x", 2)], [spec("a", 2), spec("b", 2)])


def test_what_the_user_says_of_inputs_goes_over_what_is_known() -> None:
    options = ConvertOptions(
        input_shapes={"pixels": ("n", 3)}, input_dtypes={"x": np.dtype("int64")}, input_names=("pixels", "mask")
    )
    got = described([spec("x", None, 3), spec("m", 4)], options)
    assert got == (TensorSpec("pixels", np.dtype("int64"), ("n", 3)), spec("mask", 4))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (ConvertOptions(input_shapes={"": (1,)}), "needs a name"),
        (ConvertOptions(input_shapes={"z": (1,)}), "no input 'z'"),
        (ConvertOptions(input_shapes={"x": (1, 2, 3)}), "has 2 dims, 3 given"),
        (ConvertOptions(input_dtypes={"": F32}), "needs a name"),
        (ConvertOptions(input_dtypes={"z": F32}), "no input 'z'"),
        (ConvertOptions(input_names=("a",)), "gives 1 names; the model has 2: x, m"),
        (ConvertOptions(input_names=("a", "a")), "a name twice"),
    ],
)
def test_refuses_what_does_not_fit(options: ConvertOptions, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        described([spec("x", None, 3), spec("m", 4)], options)


def test_no_names_keep_the_models_own() -> None:
    assert named([spec("x", 1)], (), "--output-names") == (spec("x", 1),)


class TestObservedOutputDims:
    """Sizes that were seen correct what the exporter declared."""

    inputs = (spec("x", "batch", "length"),)

    def shapes(self, declared: str, *seen: tuple[int, ...]) -> list[int | str | None]:
        model = graph(f"(float[batch, length] x) => (float[{declared}] y) {{ y = Neg(x) }}")
        sizes = ((2, 16), (1, 9), (5, 23))
        runs = [({"x": np.zeros(s)}, {"y": np.zeros(o)}) for s, o in zip(sizes, seen, strict=True)]
        observe_output_dims(model, self.inputs, runs)
        shape = model.graph.outputs[0].shape
        assert shape is not None
        return [d if isinstance(d, int) else d.value for d in shape]

    def test_frozen_dim_is_named_after_the_input_dim_it_follows(self) -> None:
        assert self.shapes("2, 16", (2, 16), (1, 9), (5, 23)) == ["batch", "length"]

    def test_frozen_dim_that_follows_none_gets_a_name(self) -> None:
        assert self.shapes("batch, 32", (2, 32), (1, 18), (5, 46)) == ["batch", "y_dim_1"]

    def test_nameless_dim_that_never_changes_is_fixed(self) -> None:
        assert self.shapes("batch, y_dim_1", (2, 7), (1, 7), (5, 7)) == ["batch", 7]

    def test_what_the_exporter_proved_stays(self) -> None:
        assert self.shapes("batch, 7", (2, 7), (1, 7), (5, 7)) == ["batch", 7]
        model = graph("(float[batch, length] x) => (float[batch, n] y) { y = Neg(x) }")
        model.graph.outputs[0].shape = ir.Shape(["batch", "2*length"])
        observe_output_dims(model, self.inputs, [({"x": np.zeros((2, 4))}, {"y": np.zeros((2, 8))})] * 2)
        assert model.graph.outputs[0].shape == ir.Shape(["batch", "2*length"])
