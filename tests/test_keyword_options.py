"""Options of convert, optimize and quantize: each is written once, in a dataclass."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any

import pytest

import onnxtool
from onnxtool.conversion.options import ConvertOptions
from onnxtool.errors import UsageError
from onnxtool.keyword_options import options_as_keywords, with_settings
from onnxtool.optimization.options import OptimizeOptions
from onnxtool.quantization.options import QuantizeOptions

COMMANDS = {"convert": ConvertOptions, "optimize": OptimizeOptions, "quantize": QuantizeOptions}
# Words of the command line for fields that the Python function calls otherwise.
WORDS = {
    "quantize": {"image": "images", "percentile": "coverage", "recipe": "recipe_file"},
    "optimize": {},
    "convert": {},
}


@dataclass(frozen=True)
class Options:
    """Two options.

    Attributes:
        size: how large.
        name: what it is called,
            in two lines.
    """

    size: int = 3
    name: str = ""


@options_as_keywords(Options)
def act(source: str, *, quick: bool = False, **settings: Any) -> Options:
    """Do it.

    Args:
        source: what to do it to.
        quick: in haste.
        settings: fields of Options.

    Raises:
        UsageError: no.
    """
    del source, quick
    return with_settings(Options(), settings, "act")


def test_fields_are_keywords_with_their_defaults_and_meaning() -> None:
    signature = inspect.signature(act)
    assert list(signature.parameters) == ["source", "size", "name", "quick"]
    assert signature.parameters["size"].default == 3
    assert act("x", size=5) == Options(5)
    doc = inspect.getdoc(act) or ""
    assert "        size: how large.\n        name: what it is called,\n            in two lines.\n\nRaises:" in doc


def test_an_option_that_there_is_not_is_named() -> None:
    with pytest.raises(UsageError, match="act has no option 'colour'; it has name, size"):
        act("x", colour=1)


@pytest.mark.parametrize("name", COMMANDS)
def test_public_functions_show_and_describe_every_field(name: str) -> None:
    function: Callable[..., object] = getattr(onnxtool, name)
    shown, doc = inspect.signature(function).parameters, inspect.getdoc(function) or ""
    for option in fields(COMMANDS[name]):
        assert f"        {option.name}:" in doc or f"        {option.name}, " in doc, option.name
        if option.default is not MISSING:
            assert shown[option.name].default == option.default


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_line_has_the_same_defaults(name: str) -> None:
    command = inspect.signature(importlib.import_module(f"onnxtool.cli.commands.{name}").command)
    defaults = {f.name: f.default for f in fields(COMMANDS[name])}
    compared = 0
    for word, parameter in command.parameters.items():
        field = WORDS[name].get(word, word)
        if field not in defaults or parameter.default in (None, inspect.Parameter.empty):
            continue
        given = getattr(parameter.default, "value", parameter.default)
        expected = getattr(defaults[field], "value", defaults[field])
        assert given == expected, word
        compared += 1
    assert compared > 3
