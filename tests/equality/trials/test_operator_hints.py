"""What operators list, cut at, round to and measure against is read off them."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnxtool.equality.trials.graph_hints import GraphHints, read_facts
from tests.equality.search.test_counterexample import graph


def facts(
    body: str, inputs: str = "float[b,4] x", output: str = "float[b,4] y", imports: str = '"" : 20'
) -> GraphHints:
    text = f'<ir_version: 10, opset_import: [{imports}, "ai.onnx.ml" : 3]> g ({inputs}) => ({output}) {{ {body} }}'
    return read_facts(ir.from_onnx_text(text))


def test_what_sizes_are_divided_by_is_taken_for_one() -> None:
    """A factor that grows with the length beyond the longest that was trained."""
    body = "k = Constant <value_float = 4000.0> () n = Size (x) f = Cast <to = 1> (n) g = Div (f, k) y = Mul (x, g)"
    assert facts(body).sizes == [4000]
    assert facts("k = Constant <value_float = 4000.0> () y = Div (k, x)").sizes == []


def test_numbers_in_attributes_beyond_which_something_changes() -> None:
    assert facts("y = Shrink <lambd = 12.5> (x)").values == [12.5]
    assert facts("y = ThresholdedRelu <alpha = 3.25> (x)").values == [3.25]
    assert facts("y = ThresholdedRelu(x)").values == [1.0]
    assert facts("y = ai.onnx.ml.Binarizer <threshold = 321.5> (x)").values == [321.5]
    body = "y, h = RNN <hidden_size = 4, clip = 9.5> (x, w, w)"
    assert facts(body, "float[n,b,4] x, float[1,4,4] w", "float[n,1,b,4] y").values == [9.5, -9.5]


@pytest.mark.parametrize(
    ("body", "known"),
    [
        ("y = ai.onnx.ml.LabelEncoder <keys_floats = [0.5, 7.25], values_floats = [1.0, 2.0]> (x)", {0.5, 7.25}),
        ("y = ai.onnx.ml.Imputer <imputed_value_floats = [1.0], replaced_value_float = -999.0> (x)", {-999}),
        ("c = Constant <value_floats = [3.5, 4.5]> ()  q = Equal(x, c)  y = Cast <to = 1> (q)", {3.5, 4.5}),
        ("c = Constant <value_floats = [3.5, 4.5]> ()  y = Add(x, c)", set()),
        ("y = ai.onnx.ml.OneHotEncoder <cats_int64s = [3, 4242]> (x)", {3, 4242}),
    ],
)
def test_numbers_that_are_listed(body: str, known: set[float]) -> None:
    found = facts(body)
    assert {*found.values, *found.integers} == known


def test_rows_that_inputs_are_measured_against() -> None:
    vectors = "coefficients = [1.0, -1.0], kernel_params = [1.0, 0.0, 3.0], n_supports = 2, rho = [0.5]"
    body = f"y = ai.onnx.ml.SVMRegressor <{vectors}, support_vectors = [1.0, 2.0, 3.0, 4.0]> (x)"
    assert facts(body, "float[b,2] x", "float[b,1] y").points == [(1, 2), (3, 4)]
    body = "c = Constant <value = float[2,1,2] {1.0, 2.0, 3.0, 4.0}> ()  y = {}(x, c)"
    assert facts(body.replace("{}", "Sub"), "float[b,2] x", "float[2,b,2] y").points == [(1, 2), (3, 4)]
    assert facts(body.replace("{}", "Mul"), "float[b,2] x", "float[2,b,2] y").points == []


def test_delimiters_and_patterns_of_texts() -> None:
    split = 'y, c = StringSplit <delimiter = ";"> (x)'
    assert facts(split, "string[b] x", "string[b,n] y").delimiters == [";"]
    assert facts("y, c = StringSplit(x)", "string[b] x", "string[b,n] y").delimiters == [" "]
    assert facts('y = RegexFullMatch <pattern = "a+"> (x)', "string[b] x", "bool[b] y").patterns == ["a+"]


def test_integers_that_nan_becomes_are_left_open_where_nothing_asks_for_it() -> None:
    cast = "i = Cast <to = 7> (x)  y = Cast <to = 1> (i)"
    assert facts(cast).unspecified == ("missing", "missing rows")
    assert facts("n = IsNaN(x)  w = Where(n, x, x)  " + cast.replace("(x)", "(w)", 1)).unspecified == ()
    assert facts("y = Cast <to = 1> (x)").unspecified == ()


def test_recurrences_need_rows_and_usual_operators_do_not() -> None:
    assert not facts("y = Neg(x)").rows_needed
    assert GraphHints().rows_needed
    body = "y, h = RNN <hidden_size = 4> (x, w, w)"
    assert facts(body, "float[n,b,4] x, float[1,4,4] w", "float[n,1,b,4] y").rows_needed
    assert read_facts(graph("g (float[b,4] x) => (float[b,4] y)", "y = Relu(x)")).rows_needed is False


def test_the_inputs_that_make_a_known_word_are_told() -> None:
    joined = 's = Constant <value_string = "_"> ()  h = StringConcat(p, s)  k = StringConcat(h, q)'
    reads = 'y = ai.onnx.ml.LabelEncoder <keys_strings = ["a_x", "b_c_y", "z"], values_int64s = [1, 2, 3]>'
    both = "string[n] p, string[n] q", "int64[n] y"
    assert facts(f"{joined} {reads} (k)", *both).joined == [(("p", "a"), ("q", "x")), (("p", "b"), ("q", "c_y"))]
    assert facts(f"{joined} {reads} (p)", *both).joined == []


def test_a_place_from_the_end_and_a_far_diagonal_are_numbers_that_sizes_are_compared_with() -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n, m] x) => (float[n, p] y)'
        " <int64[1] a = {0}, int64[1] b = {-700}, int64[1] c = {1}, int64 k = {-600}>"
        " { s = Slice(x, a, b, c) y = Trilu(s, k) }"
    )
    assert read_facts(ir.from_onnx_text(text)).sizes == [700, 600]
