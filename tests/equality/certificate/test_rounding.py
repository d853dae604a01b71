"""What is the same real function is certified only where it rounds as finely, and treats NaN in the same way."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxtool.equality.certificate.certify import certify
from onnxtool.equality.certificate.rounding import COARSER, in_doubles, integers_divide, rounding_inputs
from onnxtool.report.certificate import PartRounding

SQUARES = "m = ReduceMean(x, o) e = Mul(x, x) f = ReduceMean(e, o) g = Mul(m, m) y = Sub(f, g)"
DIFFERENCES = "m = ReduceMean(x, o) d = Sub(x, m) e = Mul(d, d) y = ReduceMean(e, o)"


def model(nodes: str) -> onnx.ModelProto:
    """With the constants that the pairs below read."""
    constants = (
        "o = Constant<value_ints = [1]>() two = Constant<value_float = 2.0>() one = Constant<value_float = 1.0>()"
    )
    text = f'<ir_version: 9, opset_import: ["" : 20]> g (float[n, 8] x) => (float y) {{ {constants} {nodes} }}'
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize(
    ("fine", "coarse"),
    [
        (DIFFERENCES, SQUARES),
        ("y = Tanh(x)", "t = Mul(x, two) s = Sigmoid(t) u = Mul(s, two) y = Sub(u, one)"),
        ("y = Identity(x)", "s = Add(x, one) y = Sub(s, one)"),
    ],
)
def test_a_coarser_formula_is_not_certified_and_a_finer_one_is(fine: str, coarse: str) -> None:
    found = certify(model(fine), model(coarse))
    assert found.verdict != "certified"
    assert "the same real function, but B rounds" in found.reason
    assert found.coarser > COARSER
    assert certify(model(coarse), model(fine)).ok


def test_a_wrong_shape_that_the_file_records_of_a_weight_does_not_count() -> None:
    a, b = model("h = Mul(x, w) t = Tanh(h) y = Mul(t, w)"), model("h = Add(x, x) t = Tanh(h) y = Add(t, t)")
    a.graph.initializer.append(onnx.numpy_helper.from_array(np.full(8, 2, np.float32), "w"))
    a.graph.value_info.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [5]))
    assert certify(a, b).ok


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("z = Sub(x, x) y = Add(one, z)", "z = Sub(two, one) h = Mul(x, z) i = Sub(h, x) y = Sub(one, i)"),
        ("c = Less(x, one) y = Where(c, x, one)", "c = Greater(one, x) y = Where(c, x, one)"),
    ],
)
def test_nan_that_goes_the_same_way_is_certified(a: str, b: str) -> None:
    assert certify(model(a), model(b)).ok


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("r = Relu(x) z = Sub(x, x) y = Add(r, z)", "y = Relu(x)"),
        ("c = Less(x, one) y = Where(c, x, one)", "c = GreaterOrEqual(x, one) y = Where(c, one, x)"),
    ],
)
def test_nan_or_infinity_in_one_alone_is_told(a: str, b: str) -> None:
    found = certify(model(a), model(b))
    assert found.verdict != "certified"
    assert "finite in one alone" in found.reason


def test_parts_are_measured_between_shared_values_once_a_kind() -> None:
    """Two layers, each in another form: one kind of part, whose inputs are the layer's."""
    layer = "{h} = Mul({x}, two) {y} = Div({h}, one)"
    other = "{y} = Add({x}, {x})"
    chain = [{"x": "x", "h": "h", "y": "t"}, {"x": "s", "h": "k", "y": "y"}]
    a, b = (" s = Softmax(t) ".join(text.format(**names) for names in chain) for text in (layer, other))
    found = certify(model(a), model(b))
    assert found.ok, found.reason
    assert [(r.a, r.b) for r in found.rounding] == [("Mul Div", "Add")]


def test_a_model_in_doubles_has_no_narrower_float() -> None:
    made = in_doubles(model("k = Cast<to = 1>(o) h = Add(x, k) y = Mul(h, two)"))
    kinds = {a.t.data_type for n in made.graph.node for a in n.attribute if a.HasField("t")}
    assert kinds == {onnx.TensorProto.DOUBLE}
    x = np.full((1, 8), 1 + 2.0**-40)
    found = onnx.reference.ReferenceEvaluator(made).run(None, {"x": x})
    assert (np.asarray(found[0]) == 2 * (x + 1)).all()


@pytest.mark.parametrize(("ulps", "ok"), [(64.0, True), (65.0, False)])
def test_six_bits_of_rounding_may_be_lost_and_no_more(ulps: float, ok: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = [PartRounding("y", "Mul", "Add", 1.0, ulps, "numbers")]
    monkeypatch.setattr("onnxtool.equality.certificate.certify.rounding_of", lambda *_: measured)
    assert certify(model("y = Mul(x, two)"), model("y = Add(x, x)")).ok is ok


def test_nan_is_given_to_no_model_that_may_divide_integers_made_of_it() -> None:
    """A quotient of such integers ends the process."""
    feeds = {"x": np.ones((2, 8), np.float32)}
    careful, free = ({label for label, _ in rounding_inputs(feeds, c)} for c in (True, False))
    assert free - careful == {"NaN", "infinity", "minus infinity"} and "zeros" in careful
    assert integers_divide(model("k = Cast<to = 7>(x) d = Div(k, k) y = Cast<to = 1>(d)"))
    assert not integers_divide(model("y = Div(x, x)"))


def test_a_long_part_is_told_in_a_few_words() -> None:
    told = str(PartRounding("y", "Add " * 20, "LSTM", 1.0, 1.0))
    assert told == f"'y' ({'Add ' * 8}and 12 more against LSTM)"


def test_each_part_is_measured_of_a_kind_that_is_coarse_for_some_numbers() -> None:
    """2 sigmoid(2x) - 1 for tanh(x): nothing is lost where x is beside 100, 5 % where it is small."""
    far = "hundred = Constant<value_float = 100.0>() far = Add(x, hundred) "
    fine = far + "h = Tanh(far) t = Tanh({near}) y = Add(h, t)"
    tanh = "{0}d = Mul({1}, two) {0}s = Sigmoid({0}d) {0}m = Mul({0}s, two) {0} = Sub({0}m, one) "
    coarse = far + tanh.format("h", "far") + tanh.format("t", "{near}") + "y = Add(h, t)"
    fine, coarse = (text.replace("y = Add(h, t)", "y = Concat<axis = 1>(h, t)") for text in (fine, coarse))
    found = certify(model(fine.format(near="x")), model(coarse.format(near="x")))
    assert found.same_function and not found.ok and found.coarser > COARSER
    both = (model(text.replace("{near}", "far")) for text in (fine, coarse))
    assert certify(*both).ok
