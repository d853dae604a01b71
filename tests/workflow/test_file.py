"""The build file: what is refused, in one line that names the nearest right word."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from onnxtool.cli.app import build
from onnxtool.errors import InputError, OnnxToolError, UsageError
from onnxtool.workflow.file import read_file
from onnxtool.workflow.file_schema import json_schema
from onnxtool.workflow.instances import expand
from onnxtool.workflow.steps import STEPS

SCHEMA = Path(__file__).parents[2] / "docs" / "onnxtool.schema.json"
# Options of the commands that are none of a step: where results go, how they are shown, what a build does by itself.
SHOWN = {"output", "json", "html", "junit", "sarif", "markdown", "report", "verbose", "quiet", "help", "help-all"}
NOT_OF_A_STEP = {
    "convert": {
        *("keep-failed", "keep-counterexample", "reproducible", "provider", "ep-library"),
        *("adapter", "separate-adapter", "eval"),  # of language models
    },
    "optimize": {"list-passes", "compile"},
    "quantize": {"max-perplexity", "max-size"},  # of bundles
    "edit": {"dry-run", "list-operations", "chunk"},
    "check": {"explain", "fix", "jobs"},
    "compare": {
        *("bisect", "record", "golden", "keep-counterexample"),
        *("factory", "factory-arg", "pythonpath", "trust", "input-shape", "input-dtype"),
    },
    "bench": {"connections", "rate", "trust", "trace", "peer", "session-settings", "best"},
    "package": set(),
}


def refused(folder: Path, text: str) -> OnnxToolError:
    file = folder / "onnxtool.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(OnnxToolError) as caught:
        expand(read_file(file))
    return caught.value


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("[models.a\n", 3, "not TOML"),
        ("[models.a]\nsorce='a.onnx'", 2, "unknown key 'sorce'; did you mean 'source'?"),
        ("[models.a]\nsource='a.onnx'\n[models.a.optimize]\nlevle='all'", 2, "did you mean 'level'?"),
        ("[models.a]\nsource='a.onnx'\nsteps=['optimise']", 2, "'optimise' is not a step"),
        ("[models.a]\nsource='a.onnx'\nsteps=[{step='check', seed='x'}]", 2, "seed: must be a whole number"),
        ("[models.a]\nsource='a.onnx'\ntrust=1", 2, "trust: must be true or false"),
        ("[models.a]\nsource='a.onnx'\noutput='${NOT_SET_ANYWHERE}'", 2, "NOT_SET_ANYWHERE is not set"),
        ("include='onnxtool.toml'", 2, "include each other: onnxtool.toml -> onnxtool.toml"),
        ("[models.a]\nfrom='b'\n[models.b]\nfrom='a'", 2, "goes in a circle: a -> b -> a"),
        ("[models.a]\nfrom='c'", 2, "there is no model 'c'"),
        (
            "[models.a]\nsource='a.onnx'\noutput='o.onnx'\n[models.b]\nsource='b.onnx'\noutput='./o.onnx'",
            2,
            "one output",
        ),
        ("[models.a]\nsource='a.onnx'\n[models.a.matrix]\ncolour=['red']", 2, "no step has an option colour"),
        ("[models.a]\nsource='a.onnx'\nmax-latency='fast'", 2, 'write "2ms"'),
        ("[models.a]\nsource='a.onnx'\ncalibration='c'", 2, "there is no data set 'c'"),
        ("[models.a]\ntags=['x']", 2, "has no source"),
        ("version=2\n[models.a]\nsource='a.onnx'", 2, "version 2 is not known"),
        ("", 2, "there is no model in it"),
        ("a = " + "[" * 3000 + "]" * 3000, 3, "nested too deeply"),
        (".".join(["a"] * 100_000) + " = 1", 3, "nested too deeply"),
        (f"[{'.'.join(['a'] * 100_000)}]", 3, "nested too deeply"),
        ("version = " + "1" * 5000, 3, "not TOML"),
        ("[models.a]\nsource='a.onnx'\noutput='sub/../a.onnx'", 2, "the same file as the source of a"),
        (
            "[models.a]\nsource='a.onnx'\noutput='b.onnx'\n[models.b]\nsource='b.onnx'\noutput='c.onnx'",
            2,
            "the same file as the source of b, which it would overwrite; give it another name. To build on its result, "
            "write from = 'a' there.",
        ),
        ("[models.a]\nsource='a.onnx'\noutput='o.ort'", 2, "models.a.output: o.ort: models are written as .onnx files"),
        ("[models.a]\nsource='memory://a.onnx'\noutput='memory://a.onnx'", 2, "the same file as the source"),
        ("[models.a]\nsource='a.onnx'\noutput='d.onnx'\n[data.d]\npath='d.onnx'", 2, "the same file as the data set d"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, text: str, code: int, message: str) -> None:
    error = refused(tmp_path, text)
    assert (error.exit_code, "\n" in str(error)) == (code, False)
    assert message in str(error)


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_an_output_that_is_a_link_to_the_source_is_refused(tmp_path: Path, link: Callable[..., None]) -> None:
    (tmp_path / "a.onnx").write_bytes(b"the user's")
    link(tmp_path / "o.onnx", tmp_path / "a.onnx")
    error = refused(tmp_path, "[models.a]\nsource='a.onnx'\noutput='o.onnx'")
    assert (error.exit_code, "o.onnx is the same file as the source of a" in str(error)) == (2, True)


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "onnxtool.toml"
    file.write_text("[models.a]\nsource='a.onnx'\n", encoding="utf-8-sig")
    assert list(read_file(file).models) == ["a"]


def test_a_file_that_is_not_there_is_exit_3(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_file(tmp_path / "onnxtool.toml")


def test_includes_are_merged_and_the_file_itself_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDER", "elsewhere")
    (tmp_path / "common.toml").write_text("[defaults.optimize]\nlevel='basic'\nseed=3\n[models.c]\nsource='c.onnx'\n")
    file = tmp_path / "onnxtool.toml"
    file.write_text(
        "include=['common.toml']\n[defaults.optimize]\nlevel='all'\n"
        "[models.a]\nsource='a.onnx'\noutput='${FOLDER}/${UNSET:-x}.onnx'\n"
    )
    found = expand(read_file(file))
    assert sorted(found) == ["a", "c"]
    assert found["a"].output == "elsewhere/x.onnx"
    assert dict(found["c"].steps[0].options) == {"level": "all", "seed": 3}


@pytest.mark.parametrize("command", STEPS)
def test_the_options_of_a_step_are_those_of_its_command(command: str) -> None:
    names = {
        option[2:] for p in build(command).params for option in (*p.opts, *p.secondary_opts) if option.startswith("--")
    }
    negative = {n for n in names if n.startswith("no-") and n[3:] in names}
    other = {"per-tensor", "asymmetric"}  # the other way round of a flag
    declared = set(STEPS[command].declared())
    missing = names - declared - SHOWN - NOT_OF_A_STEP[command] - negative - other
    assert missing == set(), f"steps of {command} lack options of the command"
    assert declared - names == set()


def test_the_schema_for_editors_is_up_to_date_and_valid() -> None:
    schema = json_schema()
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == schema, (
        "run: python -m onnxtool.workflow.file_schema docs/onnxtool.schema.json"
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    good = {"models": {"a": {"source": "a.onnx", "steps": ["check", {"step": "optimize", "level": "all"}]}}}
    jsonschema.validate(good, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"models": {"a": {"sorce": "a.onnx"}}}, schema)


def test_usage_errors_name_the_file(tmp_path: Path) -> None:
    assert isinstance(refused(tmp_path, "[model.a]"), UsageError)
