"""From what is written to values: on the command line and in a build file alike."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer import BadParameter

from onnxtool.cli.app import build
from onnxtool.errors import UsageError
from onnxtool.options.bench import BenchCommand
from onnxtool.options.check import CheckCommand
from onnxtool.options.compare import CompareCommand
from onnxtool.options.convert import ConvertCommand, ConvertOptions
from onnxtool.options.option import option, options_of
from onnxtool.options.quantize import QuantizeCommand
from onnxtool.options.run import RunCommand
from onnxtool.words import byte_count, part_of, read_words, session_options, taken_by


@dataclass(frozen=True)
class Sizes:
    """One option."""

    size: int | None = option(None, "How large.", kind="size")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("100", 100), ("64MB", 64_000_000), ("1.5 GB", 1_500_000_000), ("3k", 3000), ("2tb", 2 * 10**12)],
)
def test_sizes(text: str, expected: int) -> None:
    assert byte_count("--size", text) == expected


@pytest.mark.parametrize("text", ["", "-1", "MB", "1 XB", "1e9", "nan", "12 34", "٣MB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="such as 64MB"):
        byte_count("--size", text)


def test_no_size() -> None:
    assert read_words(Sizes, {"size": None}).size is None
    assert read_words(Sizes, {"size": 5}).size == 5


@pytest.mark.parametrize(
    ("kind", "written", "field", "expected"),
    [
        (QuantizeCommand, {"max_drop": "1%"}, "max_drop", 0.01),
        (QuantizeCommand, {"max_drop": 0.02}, "max_drop", 0.02),
        (QuantizeCommand, {"search_scale": True}, "search_scale", False),
        (QuantizeCommand, {"op_types": "Conv"}, "op_types", ("Conv",)),
        (BenchCommand, {"batches": "8, 1,8"}, "batches", (8, 1)),
        (BenchCommand, {"threads": 2}, "threads", (2,)),
        (BenchCommand, {"max_regression": "5%"}, "max_regression", 0.05),
        (CheckCommand, {"select": ["OT301,OT3", "security"]}, "select", ("OT301", "OT3", "security")),
        (RunCommand, {"inputs": ["a=b=c.npy"]}, "inputs", {"a": "b=c.npy"}),
        (ConvertCommand, {"input_shapes": ["1,2"]}, "input_shapes", {"": (1, 2)}),
        (ConvertCommand, {"input_shapes": "x:batch,?"}, "input_shapes", {"x": ("batch", None)}),
        (ConvertCommand, {"input_dtypes": "x:half"}, "input_dtypes", {"x": np.dtype("float16")}),
        (ConvertCommand, {"factory_args": ["a=[1, 2]", "b=True"]}, "factory_args", {"a": [1, 2], "b": True}),
        (ConvertCommand, {"factory_args": ["c=word"]}, "factory_args", {"c": "word"}),
        (ConvertCommand, {"factory_args": {"a": 1}}, "factory_args", {"a": 1}),
        (ConvertCommand, {"input_names": "a, b"}, "input_names", ("a", "b")),
        (ConvertCommand, {"python_path": "folder"}, "python_path", (Path("folder"),)),
    ],
)  # fmt: skip
def test_what_is_written_becomes_the_value_of_a_field(
    kind: Any, written: dict[str, Any], field: str, expected: Any
) -> None:
    needed = {f.name: "x" for f in fields(kind) if f.name in ("model", "output", "a", "models")}
    assert getattr(read_words(kind, needed | written), field) == expected


@pytest.mark.parametrize(
    ("kind", "written", "told"),
    [
        (QuantizeCommand, {"max_drop": "2"}, "max-drop 2: write a share from 0 to 1"),
        (BenchCommand, {"batches": "0"}, "batch 0: write whole numbers"),
        (BenchCommand, {"max_regression": "nan"}, "max-regression nan: write a percentage"),
        (CompareCommand, {"tolerances": "x:1"}, "tolerance x:1: write NAME:rtol,atol"),
        (CompareCommand, {"tolerances": "x:-1,1"}, "tolerance x:-1,1: write NAME:rtol,atol"),
        (ConvertCommand, {"exporter": "other"}, "exporter other: must be one of auto, dynamo, torchscript."),
        (RunCommand, {"inputs": ["a=b", "a=c"]}, "input names 'a' twice"),
    ],
)
@pytest.mark.parametrize("dashes", ["--", ""])
def test_what_cannot_be_read_is_named_as_it_was_written(
    kind: Any, written: dict[str, Any], told: str, dashes: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_words(kind, written, dashes=dashes)
    assert str(caught.value).startswith(dashes + told)


def test_functions_take_what_they_know() -> None:
    def act(model: str, *, seed: int = 0, options: Any = None) -> None:
        del model, seed, options

    asked = RunCommand(model=Path("m"), seed=3, provider=("cuda",), threads=2)
    taken = taken_by(act, asked)
    assert taken == {"seed": 3, "options": session_options(asked)}
    assert (taken["options"].provider, taken["options"].threads) == (("cuda",), 2)
    assert session_options(BenchCommand(models=(), threads=(1, 2))).threads is None


def test_the_options_of_python_are_part_of_those_of_the_command() -> None:
    asked = ConvertCommand(output=Path("o"), factory="a:b", lora=Path("folder"))
    options = part_of(ConvertOptions, asked, opset=17)
    assert (options.factory, options.opset, options.adapter) == ("a:b", 17, None)


def test_an_option_knows_its_words() -> None:
    declared = options_of(QuantizeCommand)
    assert declared["search_scale"].switches_off and not declared["per_channel"].switches_off
    assert (declared["per_channel"].flag, declared["per_channel"].word) == ("--per-channel", "per-channel")
    assert (declared["max_perplexity"].written_default, declared["compact"].written_default) == ("1%", None)
    assert declared["model"].required and not declared["data"].required


def test_zero_and_false_are_values() -> None:
    asked = read_words(CompareCommand, {"a": Path("a"), "rtol": 0.0, "seed": 0, "strict": False, "atol": None})
    assert (asked.rtol, asked.seed, asked.strict, asked.atol) == (0.0, 0, False, 1e-5)


def test_options_stand_in_the_order_of_their_places() -> None:
    names = list(options_of(CompareCommand))
    assert names.index("layers") < names.index("record") < names.index("rtol") < names.index("provider")
    assert names[-3:] == ["html", "verbose", "quiet"]


def test_limits_of_numbers_hold_on_the_command_line() -> None:
    for words in (["--batch", "0"], ["--top-p", "1.5"], ["--temperature", "-1"]):
        with pytest.raises(BadParameter, match=r"should be (greater|less) than or equal"):
            build("run").make_context("run", ["m.onnx", *words])
