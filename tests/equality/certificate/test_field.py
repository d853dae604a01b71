"""The field's arithmetic against Python's integers and fractions; its functions against the identities they keep."""

from fractions import Fraction

import numpy as np
import pytest

from onnxtool.equality.certificate.field import ONE, Field

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
