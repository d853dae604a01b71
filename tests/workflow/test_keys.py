"""The key of a step: one byte, one option, one version more or less is another key; a path or a time is not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxtool.workflow import digests
from onnxtool.workflow.constraints import Constraints
from onnxtool.workflow.executors import own_processor
from onnxtool.workflow.instances import Instance
from onnxtool.workflow.keys import Digests, make_task
from onnxtool.workflow.steps import STEPS
from onnxtool.workflow.store import StoredFile

QUANTIZE: dict[str, Any] = {
    "data": "calib.npz",
    "eval": "eval.npz",
    "labels": "y",
    "metric": "code.py:score",
    "op": ["Conv"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return filled(tmp_path)


def filled(tmp_path: Path) -> Path:
    """Files for every role that a step's files have."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("from . import layers\n")
    (tmp_path / "package" / "layers.py").write_text("SIZE = 3\n")
    (tmp_path / "code.py").write_text("import package\nimport json\nTABLE = 'table.txt'\ndef score(o, y): return 1.0\n")
    (tmp_path / "table.txt").write_text("1 2 3")
    for name in ("calib.npz", "eval.npz", "a.onnx"):
        (tmp_path / name).write_bytes(bytes(range(64)))
    return tmp_path


def key(
    folder: Path,
    command: str = "quantize",
    options: Mapping[str, Any] = QUANTIZE,
    limits: Constraints = Constraints(),  # noqa: B008  (frozen)
    model: dict[str, StoredFile] | None = None,
    depends: tuple[str, ...] = (),
) -> str:
    step = STEPS[command](options)
    made = Instance("a", "a", {}, "a.onnx", None, (step,), "o.onnx", (), limits, depends)
    source = folder / "a.onnx"
    return make_task(made, step, folder, folder / "cache", Digests(), source, model, None, source, own_processor).key


@pytest.mark.parametrize(
    "name", ["a.onnx", "calib.npz", "eval.npz", "code.py", "package/__init__.py", "package/layers.py", "table.txt"]
)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_one_byte_of_any_file_is_another_key(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    folder = filled(tmp_path_factory.mktemp("keys"))
    before = key(folder)
    content = bytearray((folder / name).read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 6))
    (folder / name).write_bytes(bytes(content))
    assert key(folder) != before


@pytest.mark.parametrize(
    "options",
    [
        {**QUANTIZE, "samples": 1},
        {**QUANTIZE, "mode": "int8"},
        {**QUANTIZE, "labels": "z"},
        {**QUANTIZE, "op": ["Gemm"]},
        {**QUANTIZE, "op": []},
        {**QUANTIZE, "metric": "code.py:other"},
        {**QUANTIZE, "metric": "accuracy"},
        {**QUANTIZE, "smallest": True},
        {k: v for k, v in QUANTIZE.items() if k != "eval"},
    ],
)
def test_one_option_is_another_key(folder: Path, options: dict[str, Any]) -> None:
    assert key(folder, options=options) != key(folder)


def test_equal_options_of_two_types_are_two_keys(folder: Path) -> None:
    assert key(folder, options={"samples": 1}) != key(folder, options={"samples": True})


def test_limits_belong_to_the_key_of_a_search(folder: Path) -> None:
    assert key(folder, limits=Constraints(max_bytes=10)) != key(folder, limits=Constraints(max_bytes=11))


@pytest.mark.parametrize("library", ["onnx", "onnxruntime", "numpy"])
def test_one_version_is_another_key(folder: Path, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key(folder, "optimize", {})
    now = {**digests.installed(), library: "0.0.1"}
    monkeypatch.setattr(digests, "installed", lambda: now)
    assert key(folder, "optimize", {}) != before


def test_any_library_counts_where_the_users_code_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, with_code = key(folder, "optimize", {}), key(folder)
    now = {**digests.installed(), "somebodys_library": "1"}
    monkeypatch.setattr(digests, "installed", lambda: now)
    assert key(folder, "optimize", {}) == plain
    assert key(folder) != with_code


@pytest.mark.parametrize("what", ["tool_digest", "platform_name"])
def test_the_tool_and_the_platform_belong_to_the_key(folder: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key(folder)
    monkeypatch.setattr(digests, what, lambda: "another")
    assert key(folder) != before


def test_the_processor_belongs_to_measured_steps_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[tuple[str, dict[str, Any], bool]] = [
        ("quantize", {}, True),
        ("quantize", {"mode": "int8"}, False),
        ("quantize", {"target": "vnni"}, False),
        ("bench", {}, True),
        ("optimize", {"level": "all"}, True),
        ("optimize", {"level": "extended"}, False),
        ("check", {}, False),
    ]
    before = [key(folder, command, options) for command, options, _ in cases]
    monkeypatch.setattr(digests, "processor", lambda: "another one")
    after = [key(folder, command, options) for command, options, _ in cases]
    assert [a != b for a, b in zip(before, after, strict=True)] == [measured for *_, measured in cases]


def test_neither_a_path_nor_a_time_is_part_of_the_key(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    before = key(folder)
    other = tmp_path_factory.mktemp("elsewhere") / "deep"
    shutil.copytree(folder, other)
    os.utime(other / "a.onnx", (1, 1))
    assert key(other) == before


def test_the_order_of_edit_operations_is_part_of_the_key(folder: Path) -> None:
    one, two = {"doc": "x", "name-dim": "a:b"}, {"name-dim": "a:b", "doc": "x"}
    assert key(folder, "edit", one) != key(folder, "edit", two)


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("edit", {"replace-weight": ["w=table.txt"]}),
        ("edit", {"append": "table.txt"}),
        ("convert", {"factory-arg": {"weights": "table.txt"}}),
    ],
)
def test_a_file_that_an_option_names_belongs_to_the_key(folder: Path, command: str, options: dict[str, Any]) -> None:
    before = key(folder, command, options)
    (folder / "table.txt").write_text("1 2 4")
    assert key(folder, command, options) != before


def test_what_a_factory_depends_on_belongs_to_the_key(folder: Path) -> None:
    before = key(folder, "convert", {}, depends=("table.*",))
    (folder / "table.txt").write_text("1 2 4")
    assert key(folder, "convert", {}, depends=("table.*",)) != before


def test_the_name_of_a_result_and_its_content_are_part_of_the_key(folder: Path) -> None:
    made = key(folder, model={"model.onnx": StoredFile("a" * 64, 3)})
    assert made != key(folder, model={"model.onnx": StoredFile("b" * 64, 3)})
