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
from onnxtool.equality.options import CompareOptions
from onnxtool.errors import UsageError
from onnxtool.keyword_options import options_as_keywords, with_settings
from onnxtool.optimization.options import OptimizeOptions
from onnxtool.quantization.options import QuantizeOptions

COMMANDS = {
    "compare": CompareOptions,
    "convert": ConvertOptions,
    "optimize": OptimizeOptions,
    "quantize": QuantizeOptions,
}
# Words of the command line for fields that the Python function calls otherwise; a switch may say the opposite.
WORDS = {
    "compare": {"image": "images", "tolerance": "tolerances", "batch_sizes": "batches"},
    "quantize": {
        "image": "images",
        "percentile": "coverage",
        "recipe": "recipe_file",
        "op": "op_types",
        "state": "states",
        "output_kind": "output_kinds",
        "round_to_nearest": "search_scale",
    },
    "optimize": {
        "only": "passes",
        "input_shape": "input_shapes",
        "max_folded_size": "max_folded_bytes",
        "upgrade_opset": "opset",
        "no_verify": "verify",
        "no_bench": "bench",
        "compile_to": "compiled",
    },
    "convert": {
        "input_shape": "input_shapes",
        "input_dtype": "input_dtypes",
        "factory_arg": "factory_args",
        "pythonpath": "python_path",
        "custom_op_library": "custom_op_libraries",
        "inputs": "frozen_inputs",
        "outputs": "frozen_outputs",
    },
}
# Fields that have no option of their own: what the command line finds out by itself, or who else sets them.
UNSAID = {
    "compare": {"names"},  # the paths
    "quantize": {"limits"},  # of a build file
    "optimize": set(),
    "convert": set(),
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


def options_of(name: str) -> dict[str, inspect.Parameter]:
    """The command's parameters, by the names of the fields that they set."""
    command = inspect.signature(importlib.import_module(f"onnxtool.cli.commands.{name}").command)
    return {WORDS[name].get(word, word): parameter for word, parameter in command.parameters.items()}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_field_is_an_option_of_the_command_line(name: str) -> None:
    assert {f.name for f in fields(COMMANDS[name])} - set(options_of(name)) == UNSAID[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_line_has_the_same_defaults(name: str) -> None:
    options, opposite = options_of(name), {"round_to_nearest", "no_verify", "no_bench"}
    compared = 0
    for field in fields(COMMANDS[name]):
        parameter = options.get(field.name)
        if parameter is None or parameter.default in (None, inspect.Parameter.empty):
            continue
        given = getattr(parameter.default, "value", parameter.default)
        expected = getattr(field.default, "value", field.default)
        assert given == (not expected if parameter.name in opposite else expected), field.name
        compared += 1
    assert compared > 3
