"""The checker of certificates, which shares no code with onnxtool: it confirms what is certified, and nothing else."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from onnxtool.equality.certificate.certify import certify
from tests.corpus.pairs import pairs

PROGRAM = Path(__file__).parents[2] / "examples" / "check_certificate.py"
TEXT = """<ir_version: 10, opset_import: ["" : 20]> m (float[n, 3, 8, 8] x) => (float[n, 5] y)
<float[4, 3, 3, 3] w, float[4] s, float[4] b, float[4] m, float[4] v, float[4, 5] k, float[5] c>
{
    h = Conv <pads = [1, 1, 1, 1]> (x, w)
    g = BatchNormalization (h, s, b, m, v)
    r = Relu (g)
    p = GlobalAveragePool (r)
    f = Flatten (p)
    q = MatMul (f, k)
    l = Add (q, c)
    y = Softmax (l)
}"""
FOLDED = """<ir_version: 10, opset_import: ["" : 20]> m (float[n, 3, 8, 8] x) => (float[n, 5] y)
<float[4, 3, 3, 3] w, float[4] b, float[4, 5] k, float[5] c>
{
    h = Conv <pads = [1, 1, 1, 1]> (x, w, b)
    r = Relu (h)
    p = GlobalAveragePool (r)
    f = Flatten (p)
    y0 = Gemm (f, k, c)
    y = Softmax <axis = 1> (y0)
}"""


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_certificate", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model(text: str, weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in weights.items())
    return proto


@pytest.fixture(scope="module")
def both() -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A network, and the same with its normalization folded into the convolution."""
    rng = np.random.default_rng(4)
    shapes = {"w": (4, 3, 3, 3), "s": (4,), "b": (4,), "m": (4,), "k": (4, 5), "c": (5,)}
    given = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    given["v"] = rng.uniform(0.5, 2, 4).astype(np.float32)
    factor = given["s"].astype(np.float64) / np.sqrt(given["v"] + np.float64(np.float32(1e-5)))
    folded = {
        "w": (given["w"] * factor.reshape(-1, 1, 1, 1)).astype(np.float32),
        "b": (given["b"] - given["m"] * factor).astype(np.float32),
        "k": given["k"],
        "c": given["c"],
    }
    return model(TEXT, given), model(FOLDED, folded)


def test_what_is_certified_is_confirmed_and_one_bit_is_not(
    checker: ModuleType, both: tuple[onnx.ModelProto, onnx.ModelProto]
) -> None:
    a, b = both
    certificate = certify(a, b, seconds=20).to_dict()
    assert certificate["verdict"] == "certified" and len(certificate["constants"]) == 2
    said = checker.check(certificate, a, b)
    assert "confirmed" in said and "2 constants within" in said
    for name in ("k", "c"):  # weights that are A's own: each last bit counts
        changed = onnx.ModelProto.FromString(b.SerializeToString())
        held = next(t for t in changed.graph.initializer if t.name == name)
        array = numpy_helper.to_array(held).copy()
        array.reshape(-1)[2] = np.nextafter(array.reshape(-1)[2], np.float32(9))
        held.CopyFrom(numpy_helper.from_array(array, held.name))
        with pytest.raises(checker.NotConfirmedError, match="not shown to be the same"):
            checker.check(certificate, a, changed)
    changed = onnx.ModelProto.FromString(b.SerializeToString())
    held = next(t for t in changed.graph.initializer if t.name == "w")
    held.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(held) * np.float32(1.00001), "w"))
    with pytest.raises(checker.NotConfirmedError, match="ulp"):  # not rounded from what the certificate says
        checker.check(certificate, a, changed)


def test_two_implementations_agree(checker: ModuleType) -> None:
    """What onnxtool certifies among pairs of the corpus is confirmed, or has an operator that the program lacks."""
    confirmed = 0
    for pair in list(pairs())[5::25]:
        a, b = (ir.to_proto(m) for m in pair.models())
        found = certify(a, b, seconds=5)
        if found.verdict != "certified":
            continue
        try:
            with np.errstate(all="ignore"):
                checker.check(found.to_dict(), a, b)
            confirmed += 1
        except checker.NotConfirmedError as error:
            assert pair.equal, (pair.name, str(error))
    assert confirmed >= 10


@pytest.mark.parametrize(
    ("node", "shape", "change"),
    [
        ("h = HardSigmoid (x)", "2,4", ("moid (x)", "moid <alpha = 0.3> (x)")),
        (
            "i = Constant <value = int64[2,2] {0, 3, 1, 0}> () h = GatherElements <axis=1> (x, i)",
            "2,2",
            ("3, 1", "3, 2"),
        ),
        (
            'n = Constant <value_ints = [3, 8]> () h = Resize <nearest_mode = "floor"> (x, , , n)',
            "3,8",
            ("floor", "ceil"),
        ),
    ],
)
def test_operators_with_usual_attributes_and_places(
    checker: ModuleType, node: str, shape: str, change: tuple[str, str]
) -> None:
    text = f'<ir_version: 10, opset_import: ["" : 17]> g (float[2,4] x) => (float[{shape}] y) {{ {node} y = Exp (h) }}'
    a = onnx.parser.parse_model(text)
    b = onnx.parser.parse_model(text.replace("y = Exp (h)", "k = Identity (h) y = Exp (k)"))
    other = onnx.parser.parse_model(text.replace(*change))
    certificate = certify(a, b, seconds=5).to_dict()
    assert "confirmed" in checker.check(certificate, a, b)
    with pytest.raises(checker.NotConfirmedError):
        checker.check(certificate, a, other)


def test_a_table_is_held_against_how_a_rounds_it_itself_and_not_against_made_up_steps(checker: ModuleType) -> None:
    """The cosine of float32's pi / 2 is millions of units in the last place from what the real numbers give."""
    head = '<ir_version: 10, opset_import: ["" : 17]> g (float[2] x) => (float[2] y)'
    angles, big = np.array([0.5, 1.0], np.float32), np.array([1e8, 1e8], np.float32)
    table = "t = Mul (k, p) c = Cos (t) y = Mul (x, c) z = Add (k, b)"
    a = model(f"{head} {{ {table} }}", {"k": angles, "p": np.array(np.pi, np.float32), "b": big})
    cosines = np.cos((angles * np.float32(np.pi)).astype(np.float64)).astype(np.float32)
    b = model(f"{head} {{ y = Mul (x, c) }}", {"c": cosines})
    certificate = certify(a, b, seconds=5).to_dict()
    assert "1 constants within 0 ulp" in checker.check(certificate, a, b)
    assert certificate["constants"][0]["ulps"] == 0

    lost = [("Add", ["k", "b"], "more", {}), ("Sub", ["more", "b"], "back", {})]  # (k + b) - b is k, and rounds to 0
    steps = [dict(zip(("operator", "inputs", "output", "attributes"), step, strict=True)) for step in lost]
    made_up = {**certificate, "steps": steps, "constants": [{"name": "c", "source": "back", "factor": ""}]}
    product, none = (model(f"{head} {{ y = Mul (x, {n}) }}", {n: v}) for n, v in (("k", angles), ("c", 0 * angles)))
    product.graph.initializer.append(numpy_helper.from_array(big, "b"))
    with pytest.raises(checker.NotConfirmedError, match="ulp from"):
        checker.check(made_up, product, none)


@pytest.mark.parametrize("name", ["Relu of a difference", "another slope"])
def test_a_certificate_that_was_written_by_hand_is_not_confirmed(
    checker: ModuleType, both: tuple[onnx.ModelProto, onnx.ModelProto], name: str
) -> None:
    a, b = both
    certificate = certify(a, b, seconds=20).to_dict()
    other = TEXT.replace("Relu (g)", "Abs (g)" if name == "another slope" else "Sub (g, g)")
    liar = model(other, {t.name: numpy_helper.to_array(t) for t in a.graph.initializer})
    with pytest.raises(checker.NotConfirmedError):
        checker.check({**certificate, "constants": [], "steps": []}, a, liar)


def test_the_program(both: tuple[onnx.ModelProto, onnx.ModelProto], tmp_path: Path) -> None:
    import hashlib

    a, b = both
    paths = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
    for proto, path in zip(both, paths, strict=True):
        onnx.save(proto, path)
    sums = [hashlib.sha256(p.read_bytes()).hexdigest() for p in paths]
    certificate = {**certify(a, b, seconds=20).to_dict(), "a_sha256": sums[0], "b_sha256": sums[1]}
    file = tmp_path / "certificate.json"
    file.write_text(json.dumps(certificate))

    def run(*arguments: Path) -> tuple[int, str]:
        done = subprocess.run([sys.executable, PROGRAM, *arguments], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    code, said = run(file, *paths)
    assert code == 0 and said.startswith("confirmed at")
    code, said = run(file, *reversed(paths))
    assert code == 1 and "is not the file that the certificate is of" in said
    assert run(tmp_path / "none.json", *paths)[0] == 2


def test_it_stays_short_and_needs_nothing_of_onnxtool() -> None:
    text = PROGRAM.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 800 and "import onnxtool" not in text and "from onnxtool" not in text


def test_an_input_with_a_default_is_given_in_both(checker: ModuleType) -> None:
    head = '<ir_version: 10, opset_import: ["" : 20]> m (float[n, 4] x, float[4] g) => (float[n, 4] y)'
    number = np.float32([1, 2, 3, 4])
    a, b = (model(f"{head} {{ y = Mul ({order}) }}", {"g": number}) for order in ("x, g", "g, x"))
    certificate = certify(a, b).to_dict()
    assert "confirmed" in checker.check(certificate, a, b)
    ignored = model(f"{head} {{ y = Mul (x, k) }}", {"g": number, "k": number})
    with pytest.raises(checker.NotConfirmedError, match="not shown to be the same"):
        checker.check(certificate, a, ignored)
    with pytest.raises(checker.NotConfirmedError, match="another default"):
        checker.check(certificate, a, model(f"{head} {{ y = Mul (g, x) }}", {"g": number + 1}))


@pytest.mark.parametrize(
    ("inputs", "one", "other"),
    [
        ("int32[4] x, int32[4] z", "s = Add(x, z) y = Cast<to = 11>(s)",
         "a = Cast<to = 11>(x) b = Cast<to = 11>(z) y = Add(a, b)"),
        ("int32[4] x, int32[4] z", "s = Add(x, x) y = Less(s, z)", "s = Sub(z, x) y = Less(x, s)"),
        ("int32[1] x, int32[1] z", "s = Concat<axis=0>(x, z) y = ReduceSum(s)", "y = Add(x, z)"),
        ("int32[4] x, float z", "r = Pow(x, minus) y = Cast<to = 11>(r)", "d = Cast<to = 11>(x) y = Reciprocal(d)"),
        ("float[4] x, float z", "y = d.f:one(x)", "y = d.f:other(x)"),
    ],
)  # fmt: skip
def test_what_wraps_around_or_is_rounded_and_functions_of_one_name_are_not_confirmed(
    checker: ModuleType, inputs: str, one: str, other: str
) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "d" : 1]> g ({}) => (float y)
    {{ minus = Constant<value_float = -1.0>() {} }}
    <opset_import: ["" : 20], domain: "d", overload: "one"> f (x) => (y) {{ y = Exp(x) }}
    <opset_import: ["" : 20], domain: "d", overload: "other"> f (x) => (y) {{ y = Neg(x) }}"""
    a, b = (onnx.parser.parse_model(text.format(inputs, nodes)) for nodes in (one, other))
    points = [{"shapes": {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in a.graph.input}}] * 2
    said = {"verdict": "certified", "points": points, "constants": [], "steps": []}
    assert checker.check(said, a, a).startswith("confirmed")
    with pytest.raises(checker.NotConfirmedError):
        checker.check(said, a, b)


def test_a_pad_of_old_opsets_is_not_confirmed(checker: ModuleType) -> None:
    a = onnx.parser.parse_model(
        '<ir_version: 5, opset_import: ["" : 10]> g (float[4] x) => (float y) { y = Pad<pads = [1, 1], value = 0.5>(x)}'
    )
    said = {"verdict": "certified", "points": [{"shapes": {"x": [4]}}] * 2, "constants": [], "steps": []}
    with pytest.raises(checker.NotConfirmedError, match="before opset 11"):
        checker.check(said, a, a)


X = "float[n, 4] x"
CROP = 'y = Resize<coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value={}>(x, roi, , d)'
DIFFERENT = {
    "a type within others": (
        "int8[n] x, float[n] z", "c = Cast<to=1>(x) j = Concat<axis=0>(c, z) k = Cast<to=3>(j) y = Cast<to=1>(k)",
        "c = Cast<to=1>(x) y = Concat<axis=0>(c, z)",
    ),
    "eight bits of another kind": (
        X, "q = QuantizeLinear<output_dtype=17>(x, half) y = DequantizeLinear(q, half)",
        "q = QuantizeLinear<output_dtype=19>(x, half) y = DequantizeLinear(q, half)",
    ),
    "eight bits that do not saturate": (
        X, "q = QuantizeLinear<output_dtype=17, saturate=0>(x, half) y = DequantizeLinear(q, half)",
        "q = QuantizeLinear<output_dtype=17>(x, half) y = DequantizeLinear(q, half)",
    ),
    "what lies beyond a crop": (X, CROP.format(0.5), CROP.format(0.25)),
    "bounds beyond what doubles hold": ("int64[n] x", "y = Clip(x, , big)", "y = Clip(x, , bigger)"),
    "the largest in no order": (
        X, "v, i = TopK<sorted=0>(x, three) y = Slice(v, naught, two, one)", "y, i = TopK<sorted=0>(x, two)"
    ),
    "nothing at all": (
        X, "r = Relu(x) y = Slice(r, naught, naught, one)", "r = Abs(x) y = Slice(r, naught, naught, one)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_another_function_is_not_confirmed_whatever_a_certificate_says(checker: ModuleType, name: str) -> None:
    inputs, *bodies = DIFFERENT[name]
    weights = {
        "half": np.float32(0.5), "roi": np.float32([0, -1, 1, 2]), "d": np.int64([2, 4]), "big": np.int64(2**53),
        "bigger": np.int64(2**53 + 1), **{n: np.int64([k]) for k, n in enumerate(("naught", "one", "two", "three"))},
    }  # fmt: skip
    head = f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => (float y)'
    a, b = (model(f"{head} {{ {nodes} }}", weights) for nodes in bodies)
    said = {"verdict": "certified", "points": [{"shapes": {"x": [2, 4][: 1 + (inputs == X)], "z": [2]}}] * 2}
    with pytest.raises(checker.NotConfirmedError):
        checker.check({**said, "constants": [], "steps": []}, a, b)


@pytest.mark.parametrize(
    ("inputs", "shape"), [("float[n, 4] x", [2, 1]), ("float[n, 4] x", [0, 4]), ("float[n, n] x", [4, 1])]
)
def test_sizes_have_to_be_those_of_the_model(checker: ModuleType, inputs: str, shape: list[int]) -> None:
    head = f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => (float y)'
    a, b = (model(f"{head} {{ y = {kind}(x, one) }}", {"one": np.int64([1])}) for kind in ("ReduceSum", "ReduceMean"))
    with pytest.raises(checker.NotConfirmedError):
        said = {"verdict": "certified", "points": [{"shapes": {"x": shape}}] * 2, "constants": [], "steps": []}
        checker.check(said, a, b)


@pytest.mark.parametrize("squares", [0, 5])
def test_numbers_that_cancel_hide_no_constant(checker: ModuleType, squares: int) -> None:
    """(w + c) - c is w, but for doubles it is 0 for a large c, and no number for an infinite one."""
    a, b = (
        model(
            f'<ir_version: 10, opset_import: ["" : 21]> g (float[n, 4] x) => (float y) {{ m = {kind} y = Max(m, c) }}',
            {"w": np.float32([1, 2, 3, 4]), "v": np.zeros(4, np.float32), "c": np.finfo(np.float32).min},
        )
        for kind in ("Mul(x, w)", "Mul(x, v)")
    )
    steps = [("Mul", ["c", "c"] if k == 0 else [f"c{k}"] * 2, f"c{k + 1}") for k in range(squares)]
    large = f"c{squares}" if squares else "c"
    steps += [("Add", ["w", large], "sum"), ("Sub", ["sum", large], "v w")]
    named = [{"operator": o, "inputs": i, "output": n, "attributes": {}} for o, i, n in steps]
    said = {"verdict": "certified", "points": [{"shapes": {"x": [2, 4]}}] * 2, "steps": named}
    with pytest.raises(checker.NotConfirmedError, match="ulp from its exact value"), np.errstate(all="ignore"):
        checker.check({**said, "constants": [{"name": "v", "source": "v w", "factor": ""}]}, a, b)


def test_integers_are_not_rounded(checker: ModuleType) -> None:
    head = '<ir_version: 10, opset_import: ["" : 21]> g (int64[n] x) => (int64 y)'
    a, b = (model(f"{head} {{ y = Sub(x, k) }}", {"k": np.int64(2**40 + n)}) for n in (0, 1000))
    said = {"verdict": "certified", "points": [{"shapes": {"x": [2]}}] * 2, "steps": []}
    with pytest.raises(checker.NotConfirmedError, match="int64"):
        checker.check({**said, "constants": [{"name": "k", "source": "k", "factor": ""}]}, a, b)
