"""Operators of ai.onnx.ml that encode categories, in the field: sums over `x == key`, each of which is 0 or 1.

Source: ONNX, `ai.onnx.ml` OneHotEncoder version 1 and LabelEncoder versions 2 to 4.
"""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from onnxtool.equality.certificate.interpreter import Interpreter
from onnxtool.equality.certificate.values import Array, Attributes, Item, NotCoveredError, Tag, Value, exact, is_float


def one_hot(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    """[..., categories] of float32; with zeros = 0 another input is an error, which is another function."""
    if is_float(i[0].dtype):
        raise NotCoveredError("OneHotEncoder of floats, which it rounds")
    found = _is_each(m, i[0], _listed(a, ("cats_strings", "cats_int64s")))
    if not a.get("zeros", 1):
        found = m.field.mul(found, m.field.hash("one of these", m.field.sum(found, -1, keepdims=True)))
    m.note_choices(found, (0.0, 1.0))
    return m.symbol(found, np.float32)


def labels(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    """The value of the key that x is, or the default."""
    if is_float(i[0].dtype):
        raise NotCoveredError("LabelEncoder of floats")
    keys = _listed(a, ("keys_strings", "keys_int64s", "keys_tensor"))
    values = _listed(a, ("values_strings", "values_int64s", "values_floats", "values_tensor"))
    if len(keys) != len(values) or len(set(keys.tolist())) < len(keys):
        raise NotCoveredError("LabelEncoder with a key that is there twice")
    texts = values.dtype == object
    usual = {"O": b"_Unused", "i": -1, "f": -0.0}[values.dtype.kind]
    tensor = a.get("default_tensor")
    names = {"O": "default_string", "i": "default_int64", "f": "default_float"}
    default = a.get(names[values.dtype.kind], usual) if tensor is None else numpy_helper.to_array(tensor).reshape(-1)[0]
    default = default.decode() if isinstance(default, bytes) else default
    if texts:
        pairs = sorted((k, v) for k, v in zip(keys.tolist(), values.tolist(), strict=True) if v != default)
        return m.symbol(m.field.hash("labels", m.elements(i[0]), attributes=(pairs, default)), object)
    f = m.field
    begin = m.elements(exact(np.array(default, values.dtype)))
    steps = f.sub(m.elements(exact(values)), begin)
    found = f.add(f.matmul(_is_each(m, i[0], keys), steps), begin)
    choices = sorted({*values.tolist(), np.array(default).item()})
    m.note_choices(found, tuple(map(float, choices)))
    short = values.dtype.kind == "i" and max(map(abs, choices)) < 2**31
    tag: Tag = ("bool",) if choices == [0, 1] else ("whole", np.dtype(np.int32)) if short else ()
    return m.symbol(found, values.dtype, tag)


def _is_each(m: Interpreter, x: Value, values: Array) -> Array:
    return m.field.equal(m.elements(x)[..., None], m.elements(exact(values)))


def _listed(attributes: Attributes, names: tuple[str, ...]) -> Array:
    """The one of some attributes that is given: texts, integers or floats."""
    given = [(n, v) for n in names if (v := attributes.get(n)) is not None]
    if len(given) != 1:
        raise NotCoveredError("an encoder of several kinds of values")
    name, value = given[0]
    found = numpy_helper.to_array(value).reshape(-1) if name.endswith("tensor") else np.asarray(value)
    if found.dtype.kind in "SOU":
        texts = [v.decode() if isinstance(v, bytes) else str(v) for v in found.tolist()]
        return np.array(texts, object)
    return found.astype(np.float32) if name.endswith("floats") else found
