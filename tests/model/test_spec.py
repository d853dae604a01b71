"""--input-shape and dtype names."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtool.errors import UsageError
from onnxtool.model.spec import TensorSpec, apply_input_shapes, parse_dtype, parse_input_shape, parse_input_shapes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("image:1,3,224,224", ("image", (1, 3, 224, 224))),
        ("image:batch,3,?,224", ("image", ("batch", 3, None, 224))),
        ("1,3,8,8", (None, (1, 3, 8, 8))),
        ("a:b:0:2, 4", ("a:b:0", (2, 4))),
        ("scalar:", ("scalar", ())),
        ("x: 2 , n ", ("x", (2, "n"))),
    ],
)
def test_parses_shapes(text: str, expected: tuple[object, object]) -> None:
    assert parse_input_shape(text) == expected


@pytest.mark.parametrize("text", ["x:-1,3", "x:1.5", "x:1;2", "x:a b"])
def test_refuses_what_is_no_dim(text: str) -> None:
    with pytest.raises(UsageError, match="is not a dimension"):
        parse_input_shape(text)


def test_refuses_an_input_named_twice() -> None:
    with pytest.raises(UsageError, match="twice"):
        parse_input_shapes(["x:1", "x:2"])


def test_applies_shapes_by_name_and_to_a_lone_input() -> None:
    spec = TensorSpec("x", np.dtype("float32"), ("n", 3))
    assert apply_input_shapes([spec], {None: (4, 3)})[0].shape == (4, 3)
    assert apply_input_shapes([spec], {"x": ("batch", 3)})[0].dynamic_dims == ("batch",)
    with pytest.raises(UsageError, match="no input 'y'"):
        apply_input_shapes([spec], {"y": (4, 3)})
    with pytest.raises(UsageError, match="2 dims, 1 given"):
        apply_input_shapes([spec], {"x": (4,)})
    with pytest.raises(UsageError, match="needs a name"):
        apply_input_shapes([spec, TensorSpec("y", "string", None)], {None: (1, 3)})


def test_dtype_names() -> None:
    assert parse_dtype("Half") == np.dtype("float16")
    assert parse_dtype("string") == "string"
    assert str(TensorSpec("x", parse_dtype("bfloat16"), (1, "n", None)).info()) == "x: bfloat16[1, n, ?]"
    with pytest.raises(UsageError, match="is not a dtype"):
        parse_dtype("float31")
