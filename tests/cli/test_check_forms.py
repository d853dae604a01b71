"""check for CI systems: several models, exit codes by severity, JUnit, SARIF, Markdown, explanations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import jsonschema
import onnx
import pytest

Command = Callable[..., CompletedProcess[str]]
SARIF_SCHEMA = Path(__file__).parents[1] / "report" / "sarif" / "sarif-schema-2.1.0.json"


@pytest.fixture
def folder(tmp_path: Path, digits_onnx: Path, relu_proto: onnx.ModelProto) -> Path:
    """A sound model, one with a warning and an evil name, and one that breaks the specification."""
    models = tmp_path / "models"
    models.mkdir()
    (models / "good.onnx").write_bytes(digits_onnx.read_bytes())
    relu_proto.graph.initializer.add(name="un|used\x1b[2J<b>", data_type=1, dims=[1], float_data=[1.0])
    (models / "warned.onnx").write_bytes(relu_proto.SerializeToString())
    relu_proto.graph.node[0].op_type = "Nonsense"
    (models / "broken.onnx").write_bytes(relu_proto.SerializeToString())
    return models


def test_folder_gives_one_summary(onnxtool: Command, folder: Path) -> None:
    done = onnxtool("check", folder, env={"COLUMNS": "80"})
    assert done.returncode == 1
    assert "3 models: 2 passed, 1 failed" in done.stdout
    assert "OT001" in done.stdout
    assert "OT501" not in done.stdout  # no error: told only with -v
    assert onnxtool("check", folder / "good.onnx", folder / "warned.onnx").returncode == 0


def test_fail_on_and_ignore_decide_the_exit_code(onnxtool: Command, folder: Path) -> None:
    warned = folder / "warned.onnx"
    assert onnxtool("check", warned).returncode == 0
    assert onnxtool("check", warned, "--fail-on", "warning").returncode == 1
    assert onnxtool("check", warned, "--fail-on", "warning", "--ignore", "OT5,OT603").returncode == 0
    assert onnxtool("check", warned, "--select", "nonsense").returncode == 2


def test_explain(onnxtool: Command) -> None:
    done = onnxtool("check", "--explain", "OT301")
    assert done.returncode == 0
    assert "BatchNormalization" in done.stdout
    assert onnxtool("check", "--explain", "OT999").returncode == 2


def test_junit_has_a_case_for_every_stage_and_failure(onnxtool: Command, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.xml"
    assert onnxtool("check", folder, "--junit", out, "--fail-on", "warning").returncode == 1
    suite = ElementTree.parse(out).getroot().find("testsuite")
    assert suite is not None
    failed = [c.get("name") for c in suite.iter("testcase") if c.find("failure") is not None]
    assert suite.get("failures") == str(len(failed))
    assert "OT001" in failed
    assert any(name is not None and name.startswith("OT501 un|used") for name in failed)
    assert "\x1b" not in out.read_text()


def test_sarif_names_rule_level_and_place(onnxtool: Command, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.sarif"
    onnxtool("check", folder, "--sarif", out)
    log = json.loads(out.read_text())
    assert log["version"] == "2.1.0"
    run = log["runs"][0]
    rules = {r["id"] for r in run["tool"]["driver"]["rules"]}
    assert rules == {r["ruleId"] for r in run["results"]}
    broken = next(r for r in run["results"] if r["ruleId"] == "OT001")
    assert broken["level"] == "error"
    uri = broken["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.endswith("models/broken.onnx")


def test_sarif_meets_the_published_schema(onnxtool: Command, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.sarif"
    onnxtool("check", folder, "--sarif", out)
    schema = jsonschema.Draft7Validator(json.loads(SARIF_SCHEMA.read_text(encoding="utf-8")))
    text = out.read_text()
    log = json.loads(text)
    assert log["runs"][0]["results"]
    schema.validate(log)
    for right, wrong in (
        ('"level": "error"', '"level": "fatal"'),
        ('"ruleId"', '"rule_id"'),
        ('"columnKind": "unicodeCodePoints"', '"columnKind": 1'),
        ('"version": "2.1.0"', '"version": "2.0.0"'),
    ):
        assert right in text
        with pytest.raises(jsonschema.ValidationError):
            schema.validate(json.loads(text.replace(right, wrong)))


def test_markdown_neutralises_names(onnxtool: Command, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.md"
    onnxtool("check", folder, "--markdown", out)
    text = out.read_text()
    assert text.startswith("### onnxtool checks: FAILED")
    assert "<b>" not in text.replace("\\<b\\>", "")
    assert "un\\|used" in text


def test_an_output_that_cannot_be_written_is_one_line(onnxtool: Command, digits_onnx: Path, tmp_path: Path) -> None:
    done = onnxtool("check", digits_onnx, "--junit", tmp_path / "no" / "r.xml")
    assert done.returncode == 2
    assert "cannot be written" in done.stderr


def test_github_annotations_only_in_its_runner(onnxtool: Command, folder: Path) -> None:
    quiet = onnxtool("check", folder, env={"GITHUB_ACTIONS": ""})
    assert "::error" not in quiet.stdout
    done = onnxtool("check", folder, env={"GITHUB_ACTIONS": "true"})
    commands = [line for line in done.stdout.splitlines() if line.startswith("::")]
    assert any(c.startswith("::error file=") and "title=onnxtool OT001::" in c for c in commands)
    assert any(c.startswith("::warning") and "OT501" in c for c in commands)
    assert not any(c.startswith("::notice") for c in commands)
    as_json = onnxtool("check", folder, "--json", "-", env={"GITHUB_ACTIONS": "true"})
    assert json.loads(as_json.stdout)["ok"] is False
    assert "::error" in as_json.stderr


def test_a_name_cannot_start_a_command_of_its_own(
    onnxtool: Command, tmp_path: Path, relu_proto: onnx.ModelProto
) -> None:
    relu_proto.graph.initializer.add(name="x\n::error::forged", data_type=1, dims=[1], float_data=[1.0])
    (tmp_path / "m.onnx").write_bytes(relu_proto.SerializeToString())
    done = onnxtool("check", tmp_path / "m.onnx", env={"GITHUB_ACTIONS": "true"})
    assert not [line for line in done.stdout.splitlines() if line.startswith("::error")]


def test_fix_mends_what_optimize_can_and_keeps_the_results(
    onnxtool: Command, digits_onnx: Path, fixtures: Path, tmp_path: Path
) -> None:
    fixed = tmp_path / "fixed.onnx"
    done = onnxtool("check", digits_onnx, "--fix", "-o", fixed, "--select", "performance", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["model"] == str(fixed)
    assert report["findings"] == []
    before = json.loads(onnxtool("check", digits_onnx, "--select", "performance", "--json").stdout)
    assert {f["id"] for f in before["findings"]} == {"OT301", "OT303", "OT304"}
    assert onnxtool("compare", digits_onnx, fixed, "--data", fixtures / "eval.npz").returncode == 0
    assert onnxtool("check", digits_onnx, "-o", fixed).returncode == 2
