"""What compare measures beyond the tolerance, and what it excuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from onnxtool.equality import compare as compare_module
from onnxtool.equality.compare import compare
from onnxtool.equality.rule.difference import Difference, ulp_distance
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import InputError, UsageError
from onnxtool.options.session import SessionOptions
from onnxtool.report.certificate import CertificateReport
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.runner import OnnxRunner


def difference(a: np.ndarray, b: np.ndarray) -> Difference:
    made = Difference("t", Tolerance())
    made.add(a, b)
    return made


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_ulp_distance_counts_representable_floats(dtype: type) -> None:
    one = np.array([1.0], dtype)
    step = np.nextafter(one, dtype(2))
    assert ulp_distance(one, one) == 0
    assert ulp_distance(one, step) == 1
    tiny = np.nextafter(np.zeros(1, dtype), dtype(1))
    assert ulp_distance(tiny, -tiny) == 2
    assert ulp_distance(np.zeros(1, dtype), -np.zeros(1, dtype)) == 0
    assert ulp_distance(np.array([np.nan], dtype), one) == 0


def test_top_1_agreement_is_over_all_runs() -> None:
    found = Difference("t", Tolerance())
    found.add(np.array([[1, 2], [3, 1]], np.float32), np.array([[1, 2], [0, 1]], np.float32))
    found.add(np.array([[1, 2], [3, 1]], np.float32), np.array([[1, 2], [3, 1]], np.float32))
    assert found.result().top1 == 0.75
    assert difference(np.zeros(3, np.float32), np.zeros(3, np.float32)).result().top1 is None


def test_nan_and_infinities_are_counted_on_both_sides() -> None:
    found = difference(np.array([np.nan, 1, np.inf], np.float32), np.array([np.nan, np.nan, 3], np.float32)).result()
    assert found.nans == (1, 2)
    assert found.infinities == (1, 0)
    assert not found.ok


def saved(folder: Path, name: str, nodes: list[onnx.NodeProto]) -> Path:
    def info(tensor: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(tensor, TensorProto.FLOAT, ["n", 3])

    graph = helper.make_graph(nodes, "g", [info("x")], [info("y"), info("z")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), folder / name)
    return folder / name


def test_random_operators_are_no_false_failure(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
        helper.make_node("Neg", ["x"], ["z"]),
    ]
    path = saved(tmp_path, "random.onnx", nodes)
    report = compare(path, path)
    assert report.ok and all(o.compared for o in report.outputs)
    assert any("RandomNormalLike" in w and "same fixed draws" in w for w in report.warnings)
    other = saved(tmp_path, "other.onnx", [*nodes[:2], helper.make_node("Abs", ["x"], ["z"])])
    assert not compare(path, other).ok


@pytest.mark.parametrize(("scale", "verdict"), [(1.0, "certified"), (3.0, "not tested")])
def test_noise_in_a_loop_counts_where_both_draw_alike(tmp_path: Path, scale: float, verdict: str) -> None:
    """The draws of a loop cannot be fixed, so that another scale of them shows in no run."""
    paths = tmp_path / "a.onnx", tmp_path / "b.onnx"
    for path, factor in zip(paths, (1.0, scale), strict=True):
        model = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
            g (float[3] x) => (float[3] y, float[3] z) {{
              n = Constant <value_int = 3> ()
              t = Constant <value = bool {{1}}> ()
              z = Relu (x)
              y = Loop <body = b (int64 i, bool c, float[3] a) => (bool c2, float[3] a2) {{
                c2 = Identity (c)
                r = RandomNormalLike (a)
                k = Constant <value_float = {factor}> ()
                q = Mul (r, k)
                a2 = Add (a, q)
              }}> (n, t, x)
            }}""")
        onnx.save(model, path)
    report = compare(*paths)
    assert (report.verdict, report.ok) == (verdict, verdict == "certified")


def test_single_outputs_may_have_their_own_tolerance(tmp_path: Path) -> None:
    one = helper.make_node("Constant", [], ["c"], value_float=0.01)
    base = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Identity", ["x"], ["z"])]
    moved = [one, helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Add", ["x", "c"], ["z"])]
    a, b = saved(tmp_path, "a.onnx", base), saved(tmp_path, "b.onnx", moved)
    assert [o.ok for o in compare(a, b).outputs] == [True, False]
    report = compare(a, b, tolerances={"z": Tolerance(0, 0.1, absolute=True)})
    assert report.ok
    assert report.outputs[1].atol == 0.1
    with pytest.raises(UsageError, match="no output 'q'"):
        compare(a, b, tolerances={"q": Tolerance()})


def test_batches_choose_the_runs(digits_onnx: Path) -> None:
    report = compare(digits_onnx, digits_onnx, batches=(1, 7))
    assert [run["image"][0] for run in report.runs] == [1, 7]


def test_samples_and_edge_inputs(digits_onnx: Path) -> None:
    assert len(compare(digits_onnx, digits_onnx, samples=7).runs) == 7
    report = compare(digits_onnx, digits_onnx, edge=True)
    assert report.ok
    sizes = [run["image"][0] for run in report.runs]
    assert sizes[3:7] == [2, 2, 2, 2]
    told = [line for line in report.warnings if "empty batch" in line]
    assert len(told) + sizes[7:].count(0) == 1  # compared, or said why not


def test_large_values_are_tried_without_being_asked_for(tmp_path: Path) -> None:
    base = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Identity", ["x"], ["z"])]
    limit = [
        helper.make_node("Neg", ["x"], ["y"]),
        helper.make_node("Constant", [], ["low"], value_float=-50.0),
        helper.make_node("Constant", [], ["high"], value_float=50.0),
        helper.make_node("Clip", ["x", "low", "high"], ["z"]),
    ]
    a, b = saved(tmp_path, "a.onnx", base), saved(tmp_path, "b.onnx", limit)
    report = compare(a, b)
    assert not report.ok and report.counterexample is not None and report.counterexample.kind == "values"


def test_top_k_tells_how_many_of_the_largest_are_the_same(tmp_path: Path) -> None:
    a = np.tile(np.arange(10, dtype=np.float32), (4, 1))
    b = a.copy()
    b[0, [9, 0]] = b[0, [0, 9]]  # one of three largest is another one
    b[1] = a[1][::-1]  # none is the same
    difference = Difference("y", Tolerance(), top_k=3)
    difference.add(a, b)
    found = difference.result()
    assert found.top_k == pytest.approx((2 / 3 + 0 + 1 + 1) / 4)
    assert found.top1 == 0.5
    ties = Difference("y", Tolerance(), top_k=2)
    ties.add(np.array([[1, 1, 1, 0]], np.float32), np.array([[0, 1, 1, 0.5]], np.float32))
    assert ties.result().top_k == 1.0  # equal elements stand in for one another
    short = Difference("y", Tolerance(), top_k=5)
    short.add(a[:, :5], b[:, :5])
    assert short.result().top_k is None


def test_sizes_at_which_exact_arithmetic_tells_two_apart_are_run(tmp_path: Path) -> None:
    """One more sample of padding before a stride of 96: a window more at every 96th length."""
    text = """<ir_version: 10, opset_import: ["" : 20]> m (float[b, 1, n] x) => (float[b, 2, t] y)
    <float[2, 1, 4] w> { y = Conv <strides = [96], pads = [0, PAD]> (x, w) }"""
    weight = numpy_helper.from_array(np.arange(8, dtype=np.float32).reshape(2, 1, 4), "w")
    for name, pad in (("a", "3"), ("b", "4")):
        model = onnx.parser.parse_model(text.replace("PAD", pad))
        model.graph.initializer.append(weight)
        onnx.save(model, tmp_path / f"{name}.onnx")
    report = compare(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert report.verdict == "different" and report.certificate is not None
    assert report.certificate.unlike["x"][2] % 96 == 0
    assert report.counterexample is not None and "exact arithmetic" in report.counterexample.label


def test_what_exact_arithmetic_doubts_is_not_called_equal(tmp_path: Path) -> None:
    """A bound that no input reaches: no run differs, and the last line says that nothing is shown."""
    text = '<ir_version: 10, opset_import: ["" : 20]> m (float[n] x) => (float[n] y) { %s }'
    body = "h = Constant <value_float = %s> () s = Sigmoid (x) y = Min (s, h)"
    for name, bound in (("a", "1.5"), ("b", "2.5")):
        onnx.save(onnx.parser.parse_model(text % (body % bound)), tmp_path / f"{name}.onnx")
    report = compare(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert report.ok and report.verdict == "tested" and report.certificate is not None and report.certificate.unlike


@pytest.mark.parametrize("body", ["s = Sqrt(x) y = Mul(s, s)", "s = Log(x) y = Exp(s)"])
def test_a_root_of_the_judged_model_does_not_keep_numbers_below_zero_away(tmp_path: Path, body: str) -> None:
    text = '<ir_version: 10, opset_import: ["" : 20]> m (float[b, 4] x) => (float[b, 4] y) { %s }'
    for name, nodes in (("a.onnx", "y = Identity(x)"), ("b.onnx", body)):
        onnx.save(onnx.parser.parse_model(text % nodes), tmp_path / name)
    report = compare(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert report.verdict == "different"
    assert report.counterexample is not None
    assert "below zero" in report.counterexample.label
    swapped = compare(tmp_path / "b.onnx", tmp_path / "a.onnx")
    assert any("gives NaN or infinity" in line for line in swapped.warnings)


def test_what_the_runtimes_own_optimizer_makes_equal_is_different() -> None:
    """It moves zeros that a Pad adds into MaxPool, where they are -infinity."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,2,6,6] x) => (float[n,2,m,k] y)
        <int64[8] p = {0,0,1,1,0,0,1,1}> { %s }"""
    zeros, infinity = (
        onnx.parser.parse_model(text % body)
        for body in (
            "q = Pad(x, p) y = MaxPool<kernel_shape = [3, 3]>(q)",
            "y = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)",
        )
    )
    assert compare(zeros, infinity).verdict == "different"
    assert not compare(zeros, zeros).differs


def test_a_changed_weight_is_not_put_down_to_kernels_of_8_bit_activations() -> None:
    """With its optimizations the runtime computes DequantizeLinear and MatMul in less than float32."""
    weight = np.random.default_rng(0).integers(-100, 100, (64, 32)).astype(np.int8)
    changed = weight.copy()
    changed[3, 5] += 1
    models = []
    for values in (weight, changed):
        nodes = [
            helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1),
            helper.make_node("MatMul", ["x", "d"], ["y"]),
        ]
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 32])
        kept = [numpy_helper.from_array(values, "w"), numpy_helper.from_array(np.full(32, 0.01, np.float32), "s")]
        graph = helper.make_graph(nodes, "g", [x], [y], kept)
        models.append(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert compare(models[0], models[1]).verdict == "different"


@pytest.mark.parametrize("changed", [False, True])
def test_a_kernel_of_8_bit_activations_is_named_where_it_alone_makes_a_difference(changed: bool) -> None:
    weights = np.random.default_rng(3).integers(0, 255, (16, 16)).astype(np.uint8)
    scale, zero = np.linspace(0.01, 0.02, 16, dtype=np.float32), np.full(16, 128, np.uint8)
    text = '<ir_version: 10, opset_import: ["" : 20]> g (float[b, 16] x) => (float[b, 16] y) {{ {} y = MatMul(x, w) }}'
    a, b = (
        parser.parse_model(text.format("w = DequantizeLinear<axis = 1>(q, s, z)")),
        parser.parse_model(text.format("")),
    )
    a.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in (("q", weights), ("s", scale), ("z", zero))
    )
    exact = (weights.astype(np.float32) - 128) * scale * (1.01 if changed else 1)
    b.graph.initializer.append(numpy_helper.from_array(exact.astype(np.float32), "w"))
    report = compare(a, b)
    assert report.differs
    assert any("without its own optimizations" in line for line in report.warnings) != changed


def test_the_model_that_does_not_run_is_named() -> None:
    text = """<ir_version: 9, opset_import: ["" : 20]> g (float[5,4,3] x, int64[3] i) => (float[k,l,m] y) { y = %s }"""
    first, second, reshaped = (
        onnx.parser.parse_model(text % body)
        for body in ("Gather<axis = 0>(x, i)", "Gather<axis = 1>(x, i)", "Reshape(x, i)")
    )
    with pytest.raises(InputError, match=r"^b\.onnx fails where a\.onnx runs: input 'i' holds 4"):
        compare(first, second, names=("a.onnx", "b.onnx"))
    with pytest.raises(InputError, match=r"^a\.onnx: .* Give inputs that it takes with --data"):
        compare(reshaped, second, names=("a.onnx", "b.onnx"))


def test_the_model_that_fails_beyond_usual_inputs_is_named(tmp_path: Path) -> None:
    """A convolution in the place of a pooling does not take what is smaller than its window."""
    head = '<ir_version: 9, opset_import: ["" : 20]> g (float[n,1,h,w] x) => (float[n,1,i,j] y) '
    pooled = head + "{ y = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(x) }"
    padded = head + "<float[1,1,2,2] k = {0.25, 0.25, 0.25, 0.25}> { y = Conv<strides = [2, 2]>(x, k) }"
    for name, text in (("a.onnx", pooled), ("b.onnx", padded)):
        onnx.save(onnx.parser.parse_model(text), tmp_path / name)
    with pytest.raises(InputError, match=r"b\.onnx fails where .*a\.onnx runs"):
        compare(tmp_path / "a.onnx", tmp_path / "b.onnx")


@pytest.mark.parametrize(("read", "verdict"), [("g", "certified"), ("k", "different")])
def test_an_input_with_a_default_is_given_another_value(tmp_path: Path, read: str, verdict: str) -> None:
    """A model that ignores it gives the same by default."""
    head = '<ir_version: 10, opset_import: ["" : 20]> m (float[n, 4] x, float[4] g) => (float[n, 4] y)'
    for name, factor in (("a", "g"), ("b", read)):
        made = parser.parse_model(f"{head} {{ y = Mul (x, {factor}) }}")
        made.graph.initializer.extend(numpy_helper.from_array(np.float32([1, 2, 0, 4]), n) for n in "gk")
        onnx.save(made, tmp_path / f"{name}.onnx")
    report = compare(tmp_path / "a.onnx", tmp_path / "b.onnx", effort="quick")
    assert report.verdict == verdict
    assert any("inputs are given that have a default: g" in w for w in report.warnings) == (verdict == "different")


@pytest.mark.parametrize(("changed", "verdict"), [(1.01e-6, "different"), (1.0000001e-6, "tested")])
def test_where_one_constant_differs_a_small_column_is_measured_by_itself(changed: float, verdict: str) -> None:
    """One per cent of a column of 1e-6 is less than float32 knows of one of 1e6 beside it."""
    assert compare(of_three_columns(1e-6), of_three_columns(changed)).verdict == verdict


def of_three_columns(last: float) -> onnx.ModelProto:
    """Of a million, of one, and of another scale."""
    head = '<ir_version: 10, opset_import: ["" : 21]> g (float[n, 3] x) => (float[n, 3] y) '
    return parser.parse_model(f"{head}<float[3] k = {{1e6, 1, {last}}}> {{ y = Mul(x, k) }}")


def one_step(body: str, names: str = "x y") -> onnx.ModelProto:
    """A model of one input and one output."""
    x, y = names.split()
    return parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (float[n, 3] {x}) => (float[n, 3] {y})
        <float low = {{-50}}, float high = {{50}}> {{ {y} = {body} }}"""
    )


@pytest.mark.parametrize("same", [False, True])
def test_a_certificate_that_runs_contradict_is_taken_back(monkeypatch: pytest.MonkeyPatch, same: bool) -> None:
    """Whatever exact arithmetic says: numbers that differ are different."""
    found = CertificateReport("a", "b", "certified", same_function=same)
    monkeypatch.setattr(compare_module, "certify_models", lambda *_, **__: found)
    report = compare(one_step("Identity(x)"), one_step("Clip(x, low, high)"))
    assert report.verdict == "different" and report.certificate is not None
    assert report.certificate.verdict == "not tested" and "their numbers differ" in report.certificate.reason
    assert compare(one_step("Neg(x)"), one_step("Neg(x)")).certificate is found


@pytest.mark.parametrize("body", ["Identity(x)", "Clip(x, low, high)"])
def test_a_runner_is_held_against_a_file_without_a_certificate(body: str) -> None:
    runner = OnnxRunner.open(one_step("Identity(x)"))
    report = compare(runner, one_step(body))
    assert report.certificate is None and report.differs == (body != "Identity(x)")
    swapped = compare(one_step(body), runner)
    assert swapped.certificate is None and swapped.differs == report.differs


def test_a_file_on_another_provider_has_its_precision_told_on_the_usual_inputs_in_its_own_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    onnx.save(one_step("Neg(x)"), tmp_path / "a.onnx")
    onnx.save(one_step("Neg(u)", "u v"), tmp_path / "b.onnx")
    asked: list[tuple[Path, list[str], int, Tolerance]] = []

    def told(path: Path, options: SessionOptions, *, feeds: list[Feeds], tolerance: Tolerance) -> None:
        asked.append((path, sorted(feeds[0]), len(feeds), tolerance))

    monkeypatch.setattr(compare_module, "prove_on_provider", told)
    files = tmp_path / "a.onnx", tmp_path / "b.onnx"
    report = compare(*files, options_b=SessionOptions(), edge=True)
    assert any("'x' with 'u'" in line and "'y' with 'v'" in line for line in report.warnings)
    assert not asked  # it is the CPU's
    monkeypatch.setattr(compare_module, "requested_providers", lambda _: ("NpuExecutionProvider",))
    compare(*files)
    assert not asked
    compare(*files, options_b=SessionOptions(), edge=True)
    assert asked == [(files[1], ["u"], 3, Tolerance())]  # without the edge inputs
    asked.clear()
    for path, k in zip(files, (1e-6, 1.0000001e-6), strict=True):  # held to more than that, for their one change
        onnx.save(of_three_columns(k), path)
    compare(*files, options_b=SessionOptions())
    assert asked[0][3] == Tolerance()


def test_layers_are_of_files_and_of_models_that_show_theirs(tmp_path: Path) -> None:
    onnx.save(one_step("Neg(x)"), tmp_path / "a.onnx")
    onnx.save(one_step("Abs(x)"), tmp_path / "b.onnx")
    files = tmp_path / "a.onnx", tmp_path / "b.onnx"
    runner = OnnxRunner.open(files[0])
    assert compare(*files).layers is None
    assert compare(*files, layers=True).layers is not None
    bisected = compare(*files, bisect=tmp_path / "part.onnx").layers
    assert bisected is not None and bisected.reproducer is not None and (tmp_path / "part.onnx").exists()
    with pytest.raises(UsageError, match=r"takes an \.onnx file as B"):
        compare(files[0], runner, layers=True)
    with pytest.raises(UsageError, match="A is none of these"):
        compare(runner, files[1], layers=True)
    with pytest.raises(UsageError, match=r"takes two \.onnx files"):
        compare(runner, files[1], bisect=tmp_path / "other.onnx")
    with pytest.raises(UsageError, match=r"takes an \.onnx file as A"):
        compare(runner, files[1], reference=True)
