"""The field's arithmetic against Python's integers and fractions; its functions against the identities they keep."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from onnxtool.equality.certificate import operators
from onnxtool.equality.certificate.field import ONE, Field
from onnxtool.equality.certificate.interpreter import Interpreter
from onnxtool.equality.certificate.values import Value

operators.register()
F = Field(1)
RNG = np.random.default_rng(0)


def _elements(*shape: int) -> np.ndarray:
    return np.concatenate([[0, 1, F.p - 1], RNG.integers(0, F.p, int(np.prod(shape)))])[-int(np.prod(shape)) :].reshape(
        shape
    )


def _residue(x: Fraction) -> int:
    return x.numerator * pow(x.denominator, -1, F.p) % F.p


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_floats_are_their_fractions(kind: type) -> None:
    values = np.concatenate(
        [RNG.normal(size=50), [0, -0.0, 1, -1, np.finfo(kind).max, np.finfo(kind).smallest_subnormal]]
    )
    values = values.astype(kind)
    assert F.from_float(values).tolist() == [_residue(Fraction(float(v))) for v in values]


def test_powers_of_two_are_apart() -> None:
    for salt in range(5):
        field = Field(salt)
        assert len(set(field.from_float(np.float64(2.0) ** np.arange(-1000, 1000)).tolist())) == 2000


def test_arithmetic_is_that_of_integers() -> None:
    a, b = _elements(300), _elements(300)[::-1]
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    assert F.add(a, b).tolist() == [(x + y) % F.p for x, y in pairs]
    assert F.sub(a, b).tolist() == [(x - y) % F.p for x, y in pairs]
    assert F.mul(a, b).tolist() == [x * y % F.p for x, y in pairs]
    nonzero = np.where(b == 0, 7, b)
    assert F.div(a, nonzero).tolist() == [
        x * pow(int(y), -1, F.p) % F.p for x, y in zip(a.tolist(), nonzero, strict=True)
    ]
    assert F.power(a, 5).tolist() == [pow(x, 5, F.p) for x in a.tolist()]


def test_matmul_at_the_largest_elements() -> None:
    a, b = np.full((2, 3000), F.p - 1), np.full((3000, 2), F.p - 2)
    assert (F.matmul(a, b) == (F.p - 1) * (F.p - 2) * 3000 % F.p).all()
    a, b = _elements(3, 4, 7), _elements(7, 5)
    assert (F.matmul(a, b) == (a.astype(object) @ b.astype(object)) % F.p).all()


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bti,ij,bsj->bts", ((2, 3, 4), (4, 2), (2, 5, 2))),
        ("ab,bc,cd,d", ((2, 3), (3, 2), (2, 3), (3,))),  # without an arrow: what stands once, in order
        (" zi, i, iy ", ((2, 3), (3,), (3, 2))),
        ("ii,ij,j->", ((3, 3), (3, 2), (2,))),
    ],
)
def test_einsum_of_several_arrays_is_that_of_integers(equation: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    generator = np.random.default_rng(3)
    parts = [generator.integers(0, F.p, shape) for shape in shapes]
    expected = np.einsum(equation, *(x.astype(object) for x in parts)) % F.p
    np.testing.assert_array_equal(F.einsum(equation, *parts), np.asarray(expected, np.int64))


def test_conv_is_a_sum_of_products() -> None:
    x, w = _elements(2, 4, 7, 6), _elements(6, 2, 3, 2)
    got = F.conv(x, w, (2, 1), (1, 2), (1, 0, 2, 1), 2)
    padded = np.pad(x.astype(object), ((0, 0), (0, 0), (1, 2), (0, 1)))
    for n, m, i, j in np.ndindex(*got.shape):
        part = padded[n, (m // 3) * 2 : (m // 3) * 2 + 2, 2 * i : 2 * i + 3, j : j + 3 : 2]
        assert got[n, m, i, j] == sum(int(a) * int(b) for a, b in zip(part.flat, w[m].flat, strict=True)) % F.p


def test_transposed_conv_is_the_adjoint() -> None:
    x, y, w = _elements(1, 4, 9, 6), _elements(1, 6, 5, 4), _elements(6, 2, 3, 2)
    forward = F.conv(x, w, (2, 1), (1, 2), (1, 0, 1, 0), 2)
    back = F.conv_transpose(y, w, (2, 1), (1, 2), (1, 0), (9, 6), 2)
    assert F.sum(F.mul(forward, y)) == F.sum(F.mul(back, x))


def test_functions_keep_true_identities_and_no_others() -> None:
    x, y = _elements(200), _elements(200)
    assert (F.maximum(x, y) == F.maximum(y, x)).all() and (F.maximum(x, x) == x).all()
    assert (F.add(F.maximum(x, y), F.minimum(x, y)) == F.add(x, y)).all()
    assert (F.abs(x) == F.abs(F.neg(x))).all() and not (F.abs(x) == F.relu(x)).any()
    assert (F.mul(F.exp(x), F.exp(F.neg(x))) == 1).all()
    assert (F.sigmoid(F.neg(x)) == F.sub(ONE, F.sigmoid(x))).all()
    six, three = F.from_float(6.0), F.from_float(3.0)
    hard = F.clip(F.add(F.div(x, six), F.from_float(0.5)), 0, 1)
    assert (F.mul(hard, six) == F.clip(F.add(x, three), 0, 6)).all()
    assert (F.softmax(x.reshape(20, 10), 1) == F.softmax(F.add(x.reshape(20, 10), y[:20, None]), 1)).all()
    top = F.reduce_max(x.reshape(20, 10), 1, keepdims=True)
    powers = F.shifted_exp(x.reshape(20, 10), top, 1)
    assert (F.div(powers, F.sum(powers, 1, keepdims=True)) == F.softmax(x.reshape(20, 10), 1)).all()
    assert (F.add(F.less(x, y), F.less(y, x)) != 1).all()


def test_every_row_of_a_table_is_read() -> None:
    table, ids = _elements(50, 3), _elements(2, 4)
    changed = table.copy()
    changed[49, 1] ^= 1
    a, b = F.take(table, ids), F.take(changed, ids)
    assert a.shape == (2, 4, 3) and (a[..., 0] == b[..., 0]).all() and (a[..., 1] != b[..., 1]).all()


def test_another_salt_is_another_point() -> None:
    x = np.arange(100)
    assert not (F.hash("f", x) == Field(2).hash("f", x)).any()
    assert not (F.hash("f", x) == F.hash("g", x)).any() and not (F.hash("f", x, x + 1) == F.hash("f", x + 1, x)).any()


UNARY = (
    *("Abs", "Neg", "Ceil", "Floor", "Round", "Sign", "Relu", "Exp", "Log", "Sqrt", "Reciprocal", "Erf", "Sin", "Cos"),
    *("Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "Sigmoid", "Softplus"),
    *("Softsign", "HardSwish", "Mish", "Gelu", "Elu", "Selu", "LeakyRelu", "HardSigmoid", "ThresholdedRelu"),
)
Unary, Binary = Callable[[Any], Any], Callable[[Any, Any], Any]
# Of a function f at x: two terms that are equal for some functions.
LAWS: dict[
    str, Callable[[Unary, Any, Unary, Callable[[Any, Any], Any], Callable[[Any, Any], Any]], tuple[Any, Any]]
] = {
    "even": lambda f, x, minus, plus, times: (f(minus(x)), f(x)),
    "odd": lambda f, x, minus, plus, times: (f(minus(x)), minus(f(x))),
    "adds up to one": lambda f, x, minus, plus, times: (plus(f(x), f(minus(x))), 1 + 0 * x),
    "multiplies to one": lambda f, x, minus, plus, times: (times(f(x), f(minus(x))), 1 + 0 * x),
    "doubles": lambda f, x, minus, plus, times: (f(plus(x, x)), plus(f(x), f(x))),
    "once is enough": lambda f, x, minus, plus, times: (f(f(x)), f(x)),
    "is its own inverse": lambda f, x, minus, plus, times: (f(f(x)), x),
    "nothing of nothing": lambda f, x, minus, plus, times: (f(0 * x), 0 * x),
    "one of nothing": lambda f, x, minus, plus, times: (f(0 * x), 1 + 0 * x),
    "nothing of one": lambda f, x, minus, plus, times: (f(1 + 0 * x), 0 * x),
    "one of one": lambda f, x, minus, plus, times: (f(1 + 0 * x), 1 + 0 * x),
}


@pytest.mark.parametrize("kind", UNARY)
def test_no_law_holds_in_the_field_that_does_not_hold_for_real_numbers(kind: str) -> None:
    """Else two models would be certified that are equal only by that law."""
    text = f'<ir_version: 10, opset_import: ["" : 22]> g (double[n] x) => (double[n] y) {{ y = {kind}(x) }}'
    model = onnx.parser.parse_model(text)
    plain = ReferenceEvaluator(model)

    def real(x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(plain.run(None, {"x": x})[0])

    def element(x: np.ndarray) -> np.ndarray:
        return Interpreter(model, F).run({"x": Value(x, np.dtype("f8"), False)})["y"].data

    x, z = RNG.normal(size=20), _elements(20)
    for name, law in LAWS.items():
        first, second = law(element, z, F.neg, F.add, F.mul)
        if (first == second).all():
            first, second = law(real, x, np.negative, np.add, np.multiply)
            assert np.allclose(first, second, equal_nan=True), name


def test_what_stands_for_something_else_is_no_number() -> None:
    """NaN, both infinities, and the inverse of zero."""
    symbols = [int(F.from_float(x)) for x in (np.nan, np.inf, -np.inf)] + [int(F.inverse(np.array(0)))]
    assert len({*symbols, *range(-4, 5)}) == 4 + 9
    assert F.from_float(np.float64([np.nan, -np.inf])).tolist() == [symbols[0], symbols[2]]


def test_a_number_beside_that_of_a_formula_is_its_own() -> None:
    """Only sqrt(2), 1 / 6 and the like, as they are rounded, stand for what they are rounded from."""
    for exact in (1 / 6, 0.044715, 2**0.5, 0.5**0.5, 0.7978845608028654):
        for number in (exact, float(np.float32(exact))):
            assert F.scalar(number) != F.from_float(number)
        for number in (np.nextafter(exact, 1), float(np.nextafter(np.float32(exact), np.float32(9)))):
            assert F.scalar(number) == F.from_float(number)
    assert all(F.scalar(x) == F.from_float(x) for x in (0.1, 0.5, 1 / 3, 2 / 3, 1.702, 3.14))


def test_equal_both_ways_and_not_less() -> None:
    x, y = _elements(200), _elements(200)[::-1]
    assert (F.equal(x, y) == F.equal(y, x)).all() and (F.equal(x, x) == 1).all()
    assert not (F.equal(x, y)[x != y] == F.less(x, y)[x != y]).any()


def test_a_hash_of_a_tensor_knows_its_shape_and_a_digest_its_length() -> None:
    x = _elements(2, 6)
    assert F.fingerprint(x) != F.fingerprint(x.reshape(6, 2))
    assert (F.digest(x) != F.digest(np.append(x, np.zeros((2, 1), np.int64), 1))).all()  # zeros behind count
    assert (F.opaque("f", "a", [x], (3,)) != F.opaque("f", "b", [x], (3,))).all()
    assert (F.function("Pow", x, x, attributes=1) != F.function("Pow", x, x, attributes=2)).all()


def test_bounds_in_the_wrong_order_give_the_upper_one() -> None:
    assert (F.clip(_elements(9), 2.0, 1.0) == F.from_float(1.0)).all()
