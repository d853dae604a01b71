"""JSON by orjson and by the standard library: the same values, the same refusals."""

from __future__ import annotations

import json
import sys

import pytest

from onnxtool.runtime.protocol_v2 import fast_json

TEXTS = (
    '{"data": [[0.1, 1e-45], [1.0000000000000002, -0.0]], "n": [9007199254740993, -9223372036854775808]}',
    '{"a:b": [1, "x::", {"c": ["\\u003a", ":"], "d": {}}], "": ":", "t": [[1, 2], ["u:"]], "n": null}',
    r'[{"\u003a": ":"}, {":": 1}]',
    "[" * 600 + '{"a": 1}' + "]" * 600,
    '["z\\u00fcrich", "\U0001f642"]',
)


@pytest.mark.parametrize("text", TEXTS)
def test_reads_what_the_standard_library_reads(text: str) -> None:
    assert repr(fast_json.loads(text.encode())) == repr(json.loads(text))


@pytest.mark.parametrize("text", ["", "{", "[1,]", "nul", '{"a" 1}', "[" * 100_000])
def test_refuses_what_the_standard_library_refuses(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        fast_json.loads(text.encode())


@pytest.mark.parametrize(
    "text", ["NaN", "[1, -Infinity]", '{"a": Infinity}', "[1e400]", "[-1e400]", r'["\u00e9", "a\ud800b"]']
)
@pytest.mark.parametrize("fast", [True, False])
def test_refuses_what_is_no_finite_number_and_no_character(
    text: str, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON has no other numbers, and one beyond a double's range would become infinite in silence."""
    if not fast:
        monkeypatch.setitem(sys.modules, "orjson", None)
    with pytest.raises(ValueError, match=r"number|\\ud800 is half of a character"):
        fast_json.loads(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        r'{"a": ":", "b": [{}, {"c": 1, "\u0063": "::"}]}',
        '{"a": {"b": 1, "c": 2}, "a": {"d:": 3}}',
        r'[{"x": "\u003a", "x": 1}]',
        r'{"x": "\u003A", "x": "\u003a"}',
    ],
)
@pytest.mark.parametrize("coding", ["utf-8", "utf-16-le", None])
def test_refuses_a_name_that_stands_twice(text: str, coding: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two values a proxy may have looked at the other one."""
    if coding is None:
        monkeypatch.setitem(sys.modules, "orjson", None)
    with pytest.raises(ValueError, match=r"the name '[acx]' stands twice"):
        fast_json.loads(text.encode(coding or "utf-8"))


@pytest.mark.parametrize("coding", ["utf-8", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("text", ['["\ud800"]', r'["\ud800"]'])
def test_refuses_half_a_character_in_every_coding(text: str, coding: str) -> None:
    with pytest.raises(ValueError, match=r"surrogate|invalid continuation byte|not in range|half of a character"):
        fast_json.loads(text.encode(coding, "surrogatepass"))
    assert fast_json.loads('["a"]'.encode(coding)) == ["a"]


@pytest.mark.parametrize("value", [{"a": [1, 2.5, None, True, "ü"]}, [1e300, 5e-324, -0.0], {"b": 2**70}])
def test_writes_what_can_be_read_again(value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(fast_json.dumps(value)) == value
    monkeypatch.setitem(sys.modules, "orjson", None)
    assert json.loads(fast_json.dumps(value)) == value
    assert fast_json.loads(b"[1]") == [1]
