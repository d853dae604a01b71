"""The steps of a build: their options come from the commands, and each says what is special about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxtool.errors import UsageError
from onnxtool.options.option import REPORTS, options_of
from onnxtool.workflow.constraints import Constraints, MeasuredFile
from onnxtool.workflow.file_schema import step_keys
from onnxtool.workflow.steps import SOURCE_OPTIONS, STEPS, EditStep, Files


def test_operations_apply_in_the_order_of_the_file() -> None:
    options = {"rename-input": ["a=b", "c=d"], "seed": 3, "clear-metadata": True, "opset": 17, "operation": "mine=x=1"}
    expected = [("rename-input", "a=b"), ("rename-input", "c=d"), ("clear-metadata", ""), ("opset", "17")]
    assert EditStep(options)._operations() == [*expected, ("mine", "x=1")]
    assert EditStep({"clear-metadata": False, "no-verify": True})._operations() == []


@pytest.mark.parametrize(
    ("command", "options", "told"),
    [
        ("check", {"fail-on": "never"}, "fail-on never: must be one of error, warning, note."),
        ("compare", {"effort": "long"}, "effort long: must be one of quick, normal, thorough."),
        ("quantize", {"mode": "int3"}, "mode int3: must be one of auto, "),
        ("bench", {"max-regression": "much"}, "max-regression much: write a percentage"),
        ("convert", {"input-dtype": "x:words"}, "'words' is not a dtype"),
        ("optimize", {"upgrade-opset": 18, "downgrade-opset": 17}, "upgrade-opset and downgrade-opset exclude"),
    ],
)
def test_a_value_that_an_option_does_not_have_is_named_by_its_key(
    command: str, options: dict[str, object], told: str, tmp_path: Path
) -> None:
    step = STEPS[command](options)
    with pytest.raises(UsageError) as caught:
        step.run(Files(str(tmp_path / "a.onnx"), tmp_path / "b.onnx", str(tmp_path / "c.onnx")), Constraints())
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize("command", STEPS)
def test_a_step_takes_what_its_command_declares_for_it(command: str) -> None:
    step = STEPS[command]
    for option in options_of(step.kind).values():
        taken = option.word in step.declared()
        assert taken == (option.step and not option.argument and option.group != REPORTS), option.word
    assert set(step_keys(command)) == set(step.declared())


def test_what_steps_are() -> None:
    def those(trait: str) -> set[str]:
        return {name for name, step in STEPS.items() if getattr(step, trait)}

    assert those("produces") == {"convert", "optimize", "quantize", "edit"}
    assert those("uses_reference") == {"compare", "bench"}
    assert (those("searches"), those("runs_framework"), those("ordered")) == ({"quantize"}, {"convert"}, {"edit"})
    assert (
        {"factory", "trust", "sample", "custom-op-library"} <= set(SOURCE_OPTIONS) <= set(STEPS["convert"].declared())
    )


@pytest.mark.parametrize(
    ("command", "options", "measured"),
    [
        ("bench", {}, True),
        ("check", {}, False),
        ("optimize", {}, False),
        ("optimize", {"level": "all"}, True),
        ("optimize", {"level": "all", "target": "amx"}, False),
        ("optimize", {"level": "all", "no-bench": True}, False),
        ("quantize", {}, True),
        ("quantize", {"mode": "static"}, False),
        ("quantize", {"target": "amx"}, False),
    ],
)
def test_steps_whose_result_depends_on_times_are_measured(
    command: str, options: dict[str, object], measured: bool
) -> None:
    assert STEPS[command](options).measured is measured


def test_a_new_model_forgets_what_was_measured_of_the_one_before() -> None:
    known = MeasuredFile(10, seconds=1.0, ratio=0.5, drop=0.1, memory=7)
    assert STEPS["edit"]().figures(known, {}) == MeasuredFile(10, None, 0.5, 0.1, None)
    assert STEPS["check"]().figures(known, {}) == known


def test_edit_runs_models_as_they_are_and_convert_leaves_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict[str, object] = {}

    def edit(source: str, output: Path, operations: object, *, seed: int = 0, options: object = None) -> None:
        taken.update(seed=seed, options=options, operations=operations)

    def convert(source: str, output: Path, *, reproducible: bool = False, options: object = None) -> None:
        taken.update(reproducible=reproducible)

    monkeypatch.setattr("onnxtool.editing.edit.edit", edit)
    monkeypatch.setattr("onnxtool.conversion.convert.convert", convert)
    EditStep({"seed": 4, "opset": 17}).run(Files("a", Path("b")), Constraints())
    STEPS["convert"]().run(Files("a", Path("b")), Constraints())
    assert (taken["seed"], taken["operations"], taken["reproducible"]) == (4, [("opset", "17")], True)
    assert getattr(taken["options"], "optimization", None) == "off"
