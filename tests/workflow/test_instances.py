"""From the file to instances: matrices, whose option wins, which targets are meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxtool.errors import UsageError
from onnxtool.workflow.file import read_file
from onnxtool.workflow.instances import Instance, choose, expand


def instances(folder: Path, text: str) -> dict[str, Instance]:
    (folder / "onnxtool.toml").write_text(text, encoding="utf-8")
    return expand(read_file(folder / "onnxtool.toml"))


def test_a_matrix_makes_one_model_of_each_combination(tmp_path: Path) -> None:
    found = instances(
        tmp_path,
        "[models.a]\nsource='a.{kind}.pt'\nsteps=['convert','quantize']\n"
        "[models.a.matrix]\nopset=[17,21]\nprecision=['float32','int8']\nkind=['x']\n",
    )
    assert len(found) == 4
    float_one, int_one = found["a[opset=17,precision=float32,kind=x]"], found["a[opset=21,precision=int8,kind=x]"]
    assert (float_one.source, float_one.output) == ("a.x.pt", "build/a-17-float32-x.onnx")
    assert [s.command for s in float_one.steps] == ["convert"]
    assert dict(int_one.steps[0].options) == {"opset": 21}
    assert dict(int_one.steps[1].options) == {"mode": "int8"}


def test_the_steps_own_option_wins_over_the_models_and_that_over_the_defaults(tmp_path: Path) -> None:
    found = instances(
        tmp_path,
        "[defaults.optimize]\nlevel='basic'\nseed=1\natol=0.5\n[models.a]\nsource='a.onnx'\n"
        "steps=[{step='optimize', level='all'}]\n[models.a.optimize]\nlevel='extended'\nseed=2\n",
    )
    assert dict(found["a"].steps[0].options) == {"level": "all", "seed": 2, "atol": 0.5}


def test_data_sets_become_the_options_of_quantize(tmp_path: Path) -> None:
    found = instances(
        tmp_path,
        "[data.c]\npath='c.npz'\nsamples=5\n[data.e]\npath='e.npz'\nlabels='y'\nmetric='m.py:f'\n"
        "[models.a]\nsource='a.onnx'\ncalibration='c'\nevaluation='e'\nmax-drop=0.02\nsteps=['quantize']\n",
    )
    options = {"data": "c.npz", "samples": 5, "eval": "e.npz", "labels": "y", "metric": "m.py:f", "max-drop": 0.02}
    assert dict(found["a"].steps[0].options) == options


def test_limits_of_latency_are_held_by_a_measurement(tmp_path: Path) -> None:
    found = instances(tmp_path, "[models.a]\nsource='a.onnx'\nsteps=['check']\nmax-latency='2ms'\n")
    assert [s.command for s in found["a"].steps] == ["check", "bench"]
    assert found["a"].steps[1].measured


def test_targets_are_names_patterns_and_tags_with_what_they_need(tmp_path: Path) -> None:
    found = instances(
        tmp_path,
        "[models.base]\nsource='a.onnx'\n[models.small]\nfrom='base'\ntags=['nightly']\n[models.other]\nsource='b.onnx'\n",
    )
    assert [i.name for i in choose(found, ["tag:nightly"])] == ["base", "small"]
    assert [i.name for i in choose(found, ["o*"])] == ["other"]
    assert len(choose(found, [])) == 3
    with pytest.raises(UsageError, match="no such model"):
        choose(found, ["missing"])
