"""The example package adds its pass to the real command."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import onnx
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_pass"


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The example as pip would lay it out, on PYTHONPATH."""
    site = tmp_path / "site"
    shutil.copytree(EXAMPLE / "double_negation", site / "double_negation")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    info = site / "double_negation-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"]["onnxtool.passes"]
    lines = "\n".join(f"{name} = {target}" for name, target in points.items())
    (info / "entry_points.txt").write_text(f"[onnxtool.passes]\n{lines}\n")
    return {"PYTHONPATH": str(site)}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    text = "g (float[b, 3] x) => (float[b, 3] y) { a = Neg (x) c = Neg (a) y = Relu (c) }"
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]>\n{text}'), path)
    return path


def test_the_example_package_adds_its_pass(onnxtool, installed: dict[str, str], model: Path, tmp_path: Path) -> None:
    listed = onnxtool("optimize", "--list-passes", "--json", "-", env=installed)
    done = onnxtool("optimize", model, "-o", tmp_path / "o.onnx", "--no-bench", env=installed)

    assert done.returncode == 0, done.stderr
    entry = next(p for p in json.loads(listed.stdout)["passes"] if p["name"] == "remove-double-negation")
    assert (entry["level"], entry["origin"]) == ("basic", "double-negation")
    assert [n.op_type for n in onnx.load(tmp_path / "o.onnx").graph.node] == ["Relu"]


def test_without_the_package_nothing_changes(onnxtool, model: Path, tmp_path: Path) -> None:
    done = onnxtool("optimize", model, "-o", tmp_path / "o.onnx", "--no-bench")

    assert done.returncode == 0
    assert len(onnx.load(tmp_path / "o.onnx").graph.node) == 3


def test_a_broken_package_is_one_clear_line(onnxtool, installed: dict[str, str], model: Path, tmp_path: Path) -> None:
    module = tmp_path / "site" / "double_negation" / "__init__.py"
    module.write_text("raise RuntimeError('no good')\n")
    done = onnxtool("optimize", model, "-o", tmp_path / "o.onnx", env=installed)

    assert done.returncode == 2
    assert "double-negation" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


WRONG = """
class Wrong:
    \"\"\"Forgets a Relu, or fails.\"\"\"

    def __init__(self):
        from onnxtool.optimization.pass_base import Level

        self.name, self.level = "forget", Level.BASIC

    def apply(self, model, context):
        for node in context.nodes(model, "Relu"):
            {action}
        return 0


RemoveDoubleNegation = Wrong
"""
MISTAKE = "return int(context.bypass(node, node.inputs[0]))"


@pytest.mark.parametrize("action", [MISTAKE, "raise KeyError('no such thing')"], ids=["wrong result", "error"])
def test_a_wrong_pass_is_left_out_and_named(
    onnxtool, installed: dict[str, str], model: Path, tmp_path: Path, action: str
) -> None:
    (tmp_path / "site" / "double_negation" / "__init__.py").write_text(WRONG.format(action=action))
    command = ("optimize", model, "-o", tmp_path / "o.onnx", "--no-bench")
    done, strict = onnxtool(*command, env=installed), onnxtool(*command, "--strict", env=installed)

    assert done.returncode == 0, done.stderr
    assert strict.returncode == 1
    for result in (done, strict):
        assert "forget was left out" in " ".join(result.stderr.split()) + " ".join(result.stdout.split())
        assert "Traceback" not in result.stderr
    assert [n.op_type for n in onnx.load(tmp_path / "o.onnx").graph.node] == ["Neg", "Neg", "Relu"]
