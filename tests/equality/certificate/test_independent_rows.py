"""Rows that depend on each other are found, whatever the values at which they do; independent ones are certified."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from onnxtool.equality.certificate.independent_rows import FixedBatch, RowDependence, row_dependence
from onnxtool.runtime.runner import OnnxRunner

HEAD = '<ir_version: 10, opset_import: ["" : 20, "ai.onnx.ml" : 3]> m (float[n, 6] x) => (float[n, k] y) '


def model(body: str, head: str = HEAD) -> onnx.ModelProto:
    return parser.parse_model(head + body)


AXES = "a = Constant<value_ints = [0]>() "
OWN = (  # which element of all rows, one behind the other, is the largest of each
    "<int64[1] flat = {-1}, int64 zero = {0}, int64 one = {1}, int64 six = {6}, int64[1] e = {1}> "
    "{ f = Reshape(x, flat) a = ArgMax<axis = 1, keepdims = 0>(x) s = Shape<start = 0, end = 1>(x) n = Squeeze(s) "
    "r = Range(zero, n, one) o = Mul(r, six) i = Add(o, a) "
)
PAIR = "b = Unsqueeze(r, e) c = Unsqueeze(a, e) p = Concat<axis = 1>(b, c) g = GatherND(x, p) y = Unsqueeze(g, e) }"
COUNTED = (  # the element at a place that a count of each row's gives
    "<int64[1] flat = {-1}, int64 zero = {0}, int64 one = {1}, int64 six = {6}, int64[1] e = {1}, float c = {0}> "
    "{ f = Reshape(x, flat) g = Greater(x, c) t = Cast<to = 7>(g) k = ReduceSum<keepdims = 0>(t, e) l = Sub(k, one) "
    "s = Shape<start = 0, end = 1>(x) n = Squeeze(s) r = Range(zero, n, one) o = Mul(r, six) %s i = Add(o, q) "
    "h = Gather(f, i) y = Unsqueeze(h, e) }"
)
TREES = (  # of two classes, of which the leaves name one
    "{ l, y = ai.onnx.ml.TreeEnsembleClassifier<classlabels_int64s = [0, 1], class_ids = [1, 1], "
    "class_nodeids = [1, 2], class_treeids = [0, 0], class_weights = [0.25, 0.75], "
    "nodes_featureids = [2, 0, 0], nodes_nodeids = [0, 1, 2], "
    'nodes_falsenodeids = [2, 0, 0], nodes_truenodeids = [1, 0, 0], nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], '
    "nodes_treeids = [0, 0, 0], nodes_values = [0.5, 0.0, 0.0]>(x) }"
)
SCALED = f"y = ai.onnx.ml.Scaler<offset = {[1.0] * 18}, scale = {[2.0] * 18}>(t) }}"
SCATTERED = "<int64[1] k = {6}> { v, i = TopK<axis = 1>(x, k) y = ScatterElements<axis = %d>(x, i, v) }"
DEPENDENT = {
    "one behind the largest": OWN + "j = Add(i, one) g = Gather(f, j) y = Unsqueeze(g, e) }",
    "the largest of the row before": OWN + "d = Sub(r, one) q = Max(d, zero) " + PAIR.replace("(r, e)", "(q, e)"),
    "as many places on as are counted": COUNTED % "q = Identity(k)",  # one too far where it is all of them
    "one place back where none is counted": COUNTED % "q = Identity(l)",
    "as many places back": COUNTED % "m = Sub(six, l) q = Clip(m, zero)",
    "put into columns": SCATTERED % 0,
    "the same for all": "<float[1,6] w = {1, 2, 3, 4, 5, 6}> { s = Sub(x, x) y = Identity(w) }",  # no row is its own
    "the first of parts": "<int64 one = {1}, int64 zero = {0}> { s = SplitToSequence<axis = 0>(x, one) "
    "a = SequenceAt(s, zero) y = Add(x, a) }",
    "turned as a whole": "{ h = Exp(x) y = Transpose<perm = [1, 0]>(h) }",  # rows are not along the first axis
    "sum": "{ " + AXES + "s = ReduceSum(x, a) y = Add(x, s) }",
    # Zero for every usual value: no trial on random numbers shows it.
    "far threshold": "<float c = {1000}> { " + AXES + "d = Sub(x, c) r = Relu(d) s = ReduceSum(r, a) y = Add(x, s) }",
    "cancelled": "{ " + AXES + "s = ReduceSum(x, a) t = Neg(s) z = Add(s, t) y = Add(x, z) }",
    "norm": "{ " + AXES + "s = ReduceL2<keepdims = 1>(x, a) y = Div(x, s) }",
    "max": "{ " + AXES + "s = ReduceMax(x, a) y = Sub(x, s) }",
    "mean of all": "{ s = ReduceMean(x) y = Sub(x, s) }",
    "softmax": "{ y = Softmax<axis = 0>(x) }",
    "cumsum": "<int64 zero = {0}> { y = CumSum(x, zero) }",
    "dft": "<int64 zero = {0}> { b = Constant<value_ints = [0, 3, 2]>() h = Reshape(x, b) "
    "d = DFT(h, , zero) a = Constant<value_ints = [0, 6]>() y = Reshape(d, a) }",
    "top k": "<int64[1] one = {1}> { v, i = TopK<axis = 0>(x, one) y = Add(x, v) }",
    "first row": "<int64 zero = {0}> { r = Gather<axis = 0>(x, zero) y = Add(x, r) }",
    "turned": "<int64[1] b = {-1}, int64[1] e = {-9999}> { " + AXES + "y = Slice(x, b, e, a, b) }",
    "position": "{ s = Shape<start = 0, end = 1>(x) z = Squeeze(s) o = Constant<value_int = 1>() "
    "l = Constant<value_int = 0>() r = Range(l, z, o) f = Cast<to = 1>(r) q = Unsqueeze(f, o) y = Add(x, q) }",
    "gram": "{ t = Transpose<perm = [1, 0]>(x) g = MatMul(t, x) y = MatMul(x, g) }",
    "dynamic quantization": "{ q, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(q, s, z) }",
    "batch statistics": "<float[6] o = {1, 1, 1, 1, 1, 1}, float[6] v = {0, 0, 0, 0, 0, 0}> "
    "{ y, m1, v1 = BatchNormalization<training_mode = 1>(x, o, v, v, o) }",
    "scatter": "<int64[1,1] i = {0}> { w = Constant<value_ints = [0]>() h = Gather<axis = 0>(x, w) "
    'y = ScatterND<reduction = "add">(x, i, h) }',
    "l1": "{ " + AXES + "s = ReduceL1(x, a) y = Div(x, s) }",
    "log sum exp": "{ " + AXES + "s = ReduceLogSumExp(x, a) y = Sub(x, s) }",
    "product": "{ " + AXES + "s = ReduceProd(x, a) y = Mul(x, s) }",
    "sum of squares": "{ " + AXES + "s = ReduceSumSquare(x, a) r = Sqrt(s) y = Div(x, r) }",
    "least": "{ " + AXES + "s = ReduceMin(x, a) y = Sub(x, s) }",
    "log softmax": "{ y = LogSoftmax<axis = 0>(x) }",
    "largest row": "{ i = ArgMax<axis = 0, keepdims = 0>(x) f = Cast<to = 1>(i) y = Add(x, f) }",
    "sorted": "<int64 zero = {0}> { s = Shape<start = 0, end = 1>(x) y, i = TopK<axis = 0>(x, s) }",
    "backward cumsum": "<int64 zero = {0}> { y = CumSum<reverse = 1, exclusive = 1>(x, zero) }",
    "scattered": "<int64[1,6] i = {0, 0, 0, 0, 0, 0}, float[1,6] u = {1, 2, 3, 4, 5, 6}> "
    "{ y = ScatterElements<axis = 0>(x, i, u) }",
    "far maximum": "<float c = {1000}> { d = Sub(x, c) f = ReduceMax<keepdims = 0>(d) r = Relu(f) y = Add(x, r) }",
    "step far out": "<float c = {30000}> { " + AXES + "g = Greater(x, c) f = Cast<to = 1>(g) s = ReduceSum(f, a) "
    "y = Add(x, s) }",
    "rolled": "<int64[1] b = {1}, int64[1] e = {9999}, int64[1] zero = {0}> { " + AXES + "t = Slice(x, b, e, a) "
    "h = Slice(x, zero, b, a) y = Concat<axis = 0>(t, h) }",
    "moved into columns": "<int64[2] s = {6, -1}> { h = Reshape(x, s) c = Constant<value_ints = [1]>() "
    "r = ReduceSum<keepdims = 0>(h, c) y = Add(x, r) }",
    # The same at 1, 2, 3 and 16 rows.
    "factor by rows": "<float[17] t = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 1, 1, 1, 1}> "
    "{ s = Shape<start = 0, end = 1>(x) f = Gather(t, s) y = Mul(x, f) }",
}
INDEPENDENT = {
    "the largest of all rows' elements": OWN + "g = Gather(f, i) y = Unsqueeze(g, e) }",
    "the largest by row and column": OWN + PAIR,
    "the last that is counted": COUNTED % "q = Max(l, zero)",
    "the last that is counted, by bounds": COUNTED % "q = Clip(l, zero)",
    "the last from behind": COUNTED % "j = Clip(l, zero) d = Add(j, one) q = Sub(six, d)",
    "trees": TREES,
    "put into rows": SCATTERED % 1,
    "relu": "{ y = Relu(x) }",
    "linear": "<float[6,2] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}> { h = MatMul(x, w) y = Tanh(h) }",
    "softmax": "{ y = Softmax<axis = 1>(x) }",
    "parts": "<int64 three = {3}, int64 one = {1}, int64 zero = {0}> { s = SplitToSequence<axis = 1>(x, three) "
    "a = SequenceAt(s, zero) b = SequenceAt(s, one) y = Mul(a, b) }",
    "mean": "{ b = Constant<value_ints = [1]>() s = ReduceMean(x, b) y = Sub(x, s) }",
    "cut": "<int64[1] b = {1}, int64[1] e = {4}> { y = Slice(x, b, e, b) }",
    "reshaped": "<int64[3] s = {-1, 2, 3}, int64[2] t = {-1, 6}> "
    "{ h = Reshape(x, s) i = Transpose<perm = [0, 2, 1]>(h) y = Reshape(i, t) }",
    "convolution": "<int64[3] s = {-1, 2, 3}, int64[2] t = {-1, 4}, float[2,2,2] w = {1, 2, 3, 4, 5, 6, 7, 8}> "
    "{ h = Reshape(x, s) c = Conv(h, w) y = Reshape(c, t) }",
    "normed": "<float[6] o = {1, 2, 3, 4, 5, 6}> { y = LayerNormalization(x, o) }",
    "batch norm of inference": "<float[6] o = {1, 2, 3, 4, 5, 6}> { y = BatchNormalization(x, o, o, o, o) }",
    "cumsum": "<int64 one = {1}> { y = CumSum(x, one) }",
    "largest": "<int64[1] two = {2}> { y, i = TopK<axis = 1>(x, two) }",
    "gated": "<float c = {1000}> { g = Greater(x, c) n = Neg(x) y = Where(g, n, x) }",
    "two parts": "{ a, b = Split<axis = 1, num_outputs = 2>(x) y = Concat<axis = 1>(b, a) }",
    "attention of columns": "<int64[3] s = {-1, 2, 3}, int64[2] t = {-1, 6}> "
    "{ h = Reshape(x, s) k = Transpose<perm = [0, 2, 1]>(h) g = MatMul(h, k) p = Softmax(g) m = MatMul(p, h) "
    "y = Reshape(m, t) }",
    "turned over and back": "{ t = Transpose<perm = [1, 0]>(x) r = Exp(t) y = Transpose<perm = [1, 0]>(r) }",
    "same factor for any rows": "<float[6] t = {1, 2, 3, 4, 5, 6}> { s = Shape(x) f = Expand(t, s) y = Mul(x, f) }",
}

# Of ai.onnx.ml, by operator; what the table says of their rows is held against the runtime.
SIX = "[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]"
TABLES = {
    "Binarizer": "{ y = ai.onnx.ml.Binarizer<threshold = 0.5>(x) }",
    "FeatureVectorizer": "{ y = ai.onnx.ml.FeatureVectorizer<inputdimensions = [6, 6]>(x, x) }",
    "Imputer": "{ y = ai.onnx.ml.Imputer<imputed_value_floats = [1.0], replaced_value_float = 0.0>(x) }",
    "LinearClassifier": "{ l, y = ai.onnx.ml.LinearClassifier<classlabels_ints = [0, 1, 2], "
    f"coefficients = {SIX[:-1]}, {SIX[1:-1]}, {SIX[1:]}, intercepts = [0.5, 1.0, 2.0], "
    'post_transform = "SOFTMAX">(x) }',
    "LinearRegressor": f"{{ y = ai.onnx.ml.LinearRegressor<coefficients = {SIX}, intercepts = [0.5]>(x) }}",
    "Normalizer": '{ y = ai.onnx.ml.Normalizer<norm = "L1">(x) }',
    "Scaler": f"{{ y = ai.onnx.ml.Scaler<offset = {SIX}, scale = {SIX}>(x) }}",
    "SVMRegressor": f"{{ y = ai.onnx.ml.SVMRegressor<coefficients = [0.5], kernel_params = [0.1, 0.0, 3.0], "
    f'kernel_type = "RBF", n_supports = 1, rho = [0.2], support_vectors = {SIX}>(x) }}',
}
# Standard ones, of which nothing is known but whose rows they take.
FLAT = ", int64[2] all = {0, -1}> { "
STANDARD = {
    "GridSample": "<int64[4] s = {0, 1, 2, 3}, int64[4] g = {0, 1, 3, 2}" + FLAT + "h = Reshape(x, s) p = Tanh(h) "
    "q = Reshape(p, g) r = GridSample(h, q) y = Reshape(r, all)",
    "STFT": "<int64 step = {2}, float[4] w = {1, 2, 3, 4}, int64[3] s = {0, 6, 1}" + FLAT + "h = Reshape(x, s) "
    "r = STFT<onesided = 1>(h, step, w) y = Reshape(r, all)",
    "DFT": "<int64 n = {4}, int64[3] s = {0, 3, 2}" + FLAT + "h = Reshape(x, s) r = DFT(h, n) y = Reshape(r, all)",
    "Col2Im": "<int64[3] s = {0, 2, 3}, int64[2] n = {1, 4}, int64[2] k = {1, 2}" + FLAT + "h = Reshape(x, s) "
    "r = Col2Im(h, n, k) y = Reshape(r, all)",
    "DeformConv": "<int64[4] s = {0, 1, 2, 3}, float[1, 1, 1, 1] w = {2}, float[1] b = {1}"
    + FLAT + "h = Reshape(x, s) o = Concat<axis = 1>(h, h) m = Tanh(h) "
    "r = DeformConv(h, w, o, b, m) y = Reshape(r, all)",
    "QLinearConv": "<int64[3] s = {0, 2, 3}, float step = {0.02}, uint8 zero = {128}, int8 none = {0}, "
    "int8[2, 2, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}" + FLAT + "h = Reshape(x, s) q = QuantizeLinear(h, step, zero) "
    "c = QLinearConv(q, step, zero, w, step, none, step, zero) r = DequantizeLinear(c, step, zero) y = Reshape(r, all)",
    "Det": "<int64[3] s = {0, 2, 2}, int64[1] b = {0}, int64[1] e = {4}, int64[1] one = {1}" + FLAT
    + "c = Slice(x, b, e, one) h = Reshape(c, s) r = Det(h) y = Reshape(r, all)",
    "TfIdfVectorizer": "<int64[1] one = {1}" + FLAT + "c = Cast<to = 6>(x) r = TfIdfVectorizer<max_gram_length = 1, "
    'max_skip_count = 0, min_gram_length = 1, mode = "TF", ngram_counts = [0], ngram_indexes = [0, 1], '
    "pool_int64s = [0, 1]>(c) y = Reshape(r, all)",
}  # fmt: skip


@pytest.mark.parametrize("name", [*TABLES, *STANDARD])
def test_operators_that_take_each_row_alone(name: str) -> None:
    made = model(TABLES[name] if name in TABLES else STANDARD[name] + " }")
    assert row_dependence(made, 2).reason == ""
    session = OnnxRunner.open(made.SerializeToString())
    rows = np.random.default_rng(0).standard_normal((4, 6), np.float32)
    alone = [session.run({"x": rows[i : i + 1]})["y"] for i in range(4)]
    np.testing.assert_allclose(session.run({"x": rows})["y"], np.concatenate(alone), rtol=1e-5)


def test_an_operator_of_tables_is_not_by_rows_where_its_input_is_no_table() -> None:
    """Of one dim, all elements are a row."""
    text = '<ir_version: 10, opset_import: ["ai.onnx.ml" : 3]> m (float[n] x) => (float[n] y) '
    assert row_dependence(model('{ y = ai.onnx.ml.Normalizer<norm = "L1">(x) }', text), 4).reason


@pytest.mark.parametrize("name", DEPENDENT)
def test_rows_that_depend_on_each_other(name: str) -> None:
    assert row_dependence(model(DEPENDENT[name]), 16).reason


def test_the_place_of_a_row_is_nothing_wherever_it_is() -> None:
    """Of 16 rows one is held alone, and by no other values does the tenth show to be treated in another way."""
    text = """<int64[1] nine = {9}, int64[1] ten = {10}, int64[1] end = {9999}, float c = {1000}> {
        a = Constant<value_ints = [0]>() h = Slice(x, a, nine, a) m = Slice(x, nine, ten, a) t = Slice(x, ten, end, a)
        d = Sub(m, c) r = Relu(d) k = Add(m, r) y = Concat<axis = 0>(h, k, t) }"""
    assert all(row_dependence(model(text), 16).reason for _ in range(6))


@pytest.mark.parametrize("name", INDEPENDENT)
def test_rows_that_do_not(name: str) -> None:
    assert row_dependence(model(INDEPENDENT[name]), 4).reason == ""


def test_an_element_that_depends_on_two_rows_is_named() -> None:
    assert "ReduceSum" in row_dependence(model(DEPENDENT["cancelled"]), 2).node


def test_inputs_whose_batches_have_no_common_name_are_rows_of_one_batch() -> None:
    """As a table of columns that skl2onnx writes."""
    head = HEAD.replace("float[n, 6] x", "float[a, 6] x, float[b, 6] u, float[c, 6] v")
    assert row_dependence(model("{ t = Concat<axis = 1>(x, u, v) " + SCALED, head), 4).reason == ""
    assert row_dependence(model("{ " + AXES + "s = ReduceSum(u, a) y = Add(x, s) }", head), 4).reason
    assert row_dependence(model("{ y = Concat<axis = 0>(x, u, v) }", head), 4).reason


def test_texts_are_joined_row_by_row() -> None:
    head = HEAD.replace("float[n, 6] x", "string[n] x, string[n] u").replace("float[n, k] y", "string[n] y")
    assert row_dependence(model("{ y = StringConcat(x, u) }", head), 4).reason == ""
    first = "{ " + AXES + "r = Gather(u, a) y = StringConcat(x, r) }"
    assert row_dependence(model(first, head), 4).reason


def test_what_is_not_a_batch_is_not_certified() -> None:
    square = model("{ y = Relu(x) }", HEAD.replace("float[n, 6] x", "float[n, n] x"))
    assert "one dim alone" in row_dependence(square, 4).reason
    fixed = model("{ y = Relu(x) }", HEAD.replace("float[n, 6] x", "float[2, 6] x"))
    assert "fixed" in row_dependence(fixed, 4).reason
    # The rows agree in all but a size of the batch that is met at 4 rows.
    grows = (
        "<int64[1] b = {3}, int64[1] e = {9999}> { "
        + AXES
        + ("t = Slice(x, b, e, a) s = ReduceSum(t, a) y = Add(x, s) }")
    )
    assert row_dependence(model(grows), 16).reason


def test_rows_are_those_of_the_model_with_a_fixed_batch_wherever_the_batch_is() -> None:
    before = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 18]> g (float[3, 1] x) => (float[3, 1] y) '
                                     "<float c = {2.0}> { y = Mul(x, c) }")  # fmt: skip
    after, other = onnx.ModelProto(), onnx.ModelProto()
    for made in (after, other):
        made.CopyFrom(before)
        made.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "batch"
    fixed = FixedBatch(before, {"x": 1})
    assert row_dependence(after, 4, fixed=fixed) == RowDependence()
    other.graph.initializer[0].float_data[0] = 3.0
    assert "another one" in row_dependence(other, 4, fixed=fixed).reason


def test_a_fixed_length_is_that_of_the_fixed_model_and_others_are_told_from_single_rows() -> None:
    """The fixed model takes a length of 5 alone; a sum over the batch shows at any, other weights at 5."""
    head = '<ir_version: 9, opset_import: ["" : 18]> g (float[%s, 2] x) => (float[a, b, c] y) '
    body = "<int64[3] s = {%s, 2}, float c = {2.0}> { r = Reshape(x, s) y = Mul(r, c) }"
    before = onnx.parser.parse_model(head % "1, 5" + body % "1, 5")
    after = onnx.parser.parse_model(head % "batch, length" + body % "0, 0")
    fixed = FixedBatch(before, {"x": 0})
    assert row_dependence(after, 4, fixed=fixed) == RowDependence()
    after.graph.initializer[1].float_data[0] = 3.0
    assert "another one" in row_dependence(after, 4, fixed=fixed).reason
    mixed = "<int64[1] a = {0}> { s = ReduceSum(x, a) z = Sub(s, s) y = Add(x, z) }"
    summed = onnx.parser.parse_model(head % "batch, length" + mixed)
    assert "ReduceSum" in row_dependence(summed, 4, fixed=fixed).node


def test_a_shape_that_values_decide_is_not_taken_from_a_trial() -> None:
    """The threshold leaves no box for the values of a trial, and everything is equal to an empty tensor."""
    text = """<ir_version: 9, opset_import: ["" : 18]>
    g (float[n, 6, 4] x, float[n, 2, 6] s) => (float[k, 3] y)
    <int64[1] m = {3}, float[1] iou = {0.5}, float[1] least = {50.0}> {
        i = NonMaxSuppression(x, s, m, iou, least) y = Cast<to=1>(i)
    }"""
    found = row_dependence(onnx.parser.parse_model(text), 4)
    assert not found.decided
    assert "the data decides" in found.reason


def of_runtime(node: onnx.NodeProto, *weights: np.ndarray) -> onnx.ModelProto:
    """An operator of the runtime on rows of 16 numbers, and on what it is given besides."""
    float32 = onnx.TensorProto.FLOAT
    names = [name for name in node.input if name != "x"]
    values = [onnx.helper.make_tensor_value_info(name, float32, ["n", 16]) for name in ("x", "y")]
    held = [onnx.numpy_helper.from_array(array, name) for name, array in zip(names, weights, strict=True)]
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", values[:1], values[1:], held), opset_imports=opsets
    )


def test_operators_without_a_formula_mix_no_rows_where_the_table_of_operators_says_so() -> None:
    sizes = {"K": 16, "N": 16, "bits": 4, "block_size": 16}
    blocks = onnx.helper.make_node("MatMulNBits", ["x", "q", "s"], ["y"], domain="com.microsoft", **sizes)
    packed, scales = np.arange(128, dtype=np.uint8).reshape(16, 1, 8), np.ones(16, np.float32)
    assert row_dependence(of_runtime(blocks, packed, scales), 4) == RowDependence()
    one_scale = onnx.helper.make_node("DynamicQuantizeMatMul", ["x", "w", "s"], ["y"], domain="com.microsoft")
    found = row_dependence(of_runtime(one_scale, np.eye(16, dtype=np.uint8), np.float32(1)), 4)
    assert found.reason and not found.decided  # that it is not known says nothing of its rows
