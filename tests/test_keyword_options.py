"""Options of convert, optimize and quantize: each is written once, in a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any

import pytest

import onnxtool
from onnxtool.cli.app import COMMANDS as CLI_COMMANDS
from onnxtool.cli.app import build
from onnxtool.cli.typer_options import options_class
from onnxtool.errors import UsageError
from onnxtool.keyword_options import options_as_keywords, with_settings
from onnxtool.options.compare import CompareOptions
from onnxtool.options.convert import ConvertOptions
from onnxtool.options.optimize import OptimizeOptions
from onnxtool.options.option import option, options_of
from onnxtool.options.quantize import QuantizeOptions
from onnxtool.words import read_value

COMMANDS = {
    "compare": CompareOptions,
    "convert": ConvertOptions,
    "optimize": OptimizeOptions,
    "quantize": QuantizeOptions,
}
# Fields that no option of the command sets: what the command line finds out by itself, or who else sets them.
UNSAID = {
    "compare": {"names"},  # the paths
    "quantize": {"limits"},  # of a build file
    "optimize": {"opset"},  # by --upgrade-opset and --downgrade-opset
    "convert": {"adapter"},  # of a framework; Python alone
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
    for field in fields(COMMANDS[name]):
        assert f"        {field.name}:" in doc or f"        {field.name}, " in doc, field.name
        if field.default is not MISSING:
            assert shown[field.name].default == field.default


@pytest.mark.parametrize("name", COMMANDS)
def test_every_field_is_an_option_of_the_command_line(name: str) -> None:
    declared = options_of(options_class(name))
    assert issubclass(options_class(name), COMMANDS[name])
    assert {f.name for f in fields(COMMANDS[name])} - set(declared) == UNSAID[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_line_has_the_same_defaults(name: str) -> None:
    command = build(name)
    shown = {p.name: p.get_default(command.make_context(name, [], resilient_parsing=True)) for p in command.params}
    declared = options_of(options_class(name))
    plain = COMMANDS[name]()
    compared = 0
    for field in fields(COMMANDS[name]):
        if shown.get(field.name) is None:
            continue
        written = getattr(shown[field.name], "value", shown[field.name])
        expected = getattr(plain, field.name)
        assert read_value(declared[field.name], written, "") == getattr(expected, "value", expected), field.name
        compared += 1
    assert compared > 3


@pytest.mark.parametrize("name", CLI_COMMANDS)
def test_functions_with_keywords_of_their_own_have_the_defaults_of_the_options(name: str) -> None:
    declared = options_of(options_class(name))
    for keyword in inspect.signature(getattr(onnxtool, name)).parameters.values():
        option = declared.get(keyword.name)
        if keyword.kind is keyword.KEYWORD_ONLY and option is not None and not option.required:
            there, here = (getattr(value, "value", value) for value in (keyword.default, option.default))
            assert there == here or not (there or here), keyword.name


def test_what_a_docstring_does_not_describe_is_described_by_its_option() -> None:
    @dataclass(frozen=True)
    class More(Options):
        """Three options.

        Attributes:
            size: how large.
        """

        fast: bool = option(False, "Do it fast.")

    @options_as_keywords(More)
    def act(**settings: Any) -> None:
        """Do it.

        Args:
            settings: fields of More:
        """

    doc = inspect.getdoc(act) or ""
    assert "        size: how large.\n        fast: Do it fast." in doc
