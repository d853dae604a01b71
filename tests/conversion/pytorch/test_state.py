"""What a module remembers of its first input, or decides by any function of a size, is no ONNX file."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import onnxtool
from onnxtool.conversion.convert import open_source
from onnxtool.conversion.pytorch.state import AsLoaded
from onnxtool.conversion.pytorch.tensors import numbers_left_out
from onnxtool.errors import OnnxToolError, UnsupportedError

SHAPES = {"input_shapes": {"x": ("batch", 4)}}


class Remembers(torch.nn.Module):  # type: ignore[misc]
    """Subtracts something that the first run made: of the input, of its size, or of nothing."""

    def __init__(self, of: str) -> None:
        super().__init__()
        self.of = of
        self.cached: torch.Tensor | None = None
        self.table: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.of == "a dict":
            return x - self.table.setdefault("mean", x.mean(0, keepdim=True))
        if self.cached is None:
            self.cached = x.mean(0, keepdim=True) if self.of == "the input" else torch.full((1, x.shape[1]), 2.0)
        return x - self.cached


@pytest.mark.parametrize(("of", "name"), [("the input", "cached"), ("a dict", "table")])
def test_what_is_kept_of_the_first_input_is_refused(tmp_path: Path, of: str, name: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"keeps something of the first input .*\({name}\)"):
        onnxtool.convert(Remembers(of), tmp_path / "out.onnx", **SHAPES)


def test_a_cache_that_does_not_depend_on_the_input_converts(tmp_path: Path) -> None:
    assert onnxtool.convert(Remembers("nothing"), tmp_path / "out.onnx", **SHAPES).ok


def test_what_runs_put_into_attributes_is_named() -> None:
    module = torch.nn.Sequential(Remembers("the input"), Remembers("a dict"))
    loaded = AsLoaded(module)
    assert loaded.remembers() == []
    module(torch.ones(2, 4))
    assert loaded.remembers() == ["0.cached", "1.table"]
    assert loaded.copy is not None
    assert loaded.copy[0].cached is None


def test_weights_are_not_copied() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    copied = AsLoaded(module).copy
    assert copied is not None
    assert copied[0].weight is module[0].weight
    assert copied[1].running_mean is module[1].running_mean


class ByChecksum(torch.nn.Module):  # type: ignore[misc]
    """Another answer at some batches that no constant in its code tells."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -x if zlib.crc32(str(x.shape[0]).encode()) % 20 == 7 else x


def test_any_function_of_a_small_size_shows(tmp_path: Path, normal_effort: None) -> None:
    assert any(zlib.crc32(str(n).encode()) % 20 == 7 for n in range(1, 81))
    try:
        assert not onnxtool.convert(ByChecksum(), tmp_path / "out.onnx", **SHAPES).ok
    except OnnxToolError as error:
        assert "batch" in str(error)
    assert not (tmp_path / "out.onnx").exists()


class Counted(torch.nn.Module):  # type: ignore[misc]
    """Gives a number beside its tensor."""

    def forward(self, x: torch.Tensor) -> Any:
        return x * 2, None, x.shape[0]


def test_numbers_that_the_file_lacks_are_said(tmp_path: Path) -> None:
    report = onnxtool.convert(Counted(), tmp_path / "out.onnx", **SHAPES)
    assert any("the file lacks" in note and "output_2 (int)" in note for note in report.notes)


def test_numbers_in_a_result() -> None:
    assert numbers_left_out(torch.ones(1)) == []
    assert numbers_left_out({"a": torch.ones(1), "b": [1.5, None, "x"]}) == ["b.0 (float)"]
    assert numbers_left_out(True) == ["output (bool)"]


class KeepsSmallest(torch.nn.Module):  # type: ignore[misc]
    """Has its window cut to the smallest input so far, as Swin has, and counts in a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.window = 4

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x.shape[1]
        if x.shape[1] < self.window:
            self.window = x.shape[1]
        return x[:, : self.window].sum(1)


def test_attributes_that_a_run_changes_are_put_back(tmp_path: Path) -> None:
    module = KeepsSmallest()
    report = onnxtool.convert(module, tmp_path / "out.onnx", input_shapes={"x": ("batch", "length")})
    assert any("changes its own attributes when it runs (last" in note for note in report.notes)
    rows = np.arange(12, dtype=np.float32).reshape(2, 6)
    (found,) = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": rows})
    np.testing.assert_array_equal(found, rows[:, :4].sum(1))


def test_attributes_of_the_source_are_those_it_was_loaded_with() -> None:
    source = open_source(KeepsSmallest(), input_shapes={"x": ("batch", "length")})
    rows = np.arange(12, dtype=np.float32).reshape(2, 6)
    for _ in range(2):
        np.testing.assert_array_equal(source.run({"x": rows})["output"], rows[:, :4].sum(1))
        source.run({"x": rows[:, :2]})


class SmallsOnly(torch.nn.Module):  # type: ignore[misc]
    """Takes another part for small inputs, for good, as BigBird takes full attention."""

    def __init__(self) -> None:
        super().__init__()
        self.part: torch.nn.Module = torch.nn.Identity()
        self.weight = torch.nn.Parameter(torch.full((1, 1), 2.0))
        self.kind = "usual"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] < 30 and self.kind == "usual":
            self.kind, self.part = "small", torch.nn.Linear(1, 1, bias=False)
            self.part.weight = self.weight
        return self.part(x[..., None])


def test_parts_that_a_run_replaces_are_put_back(tmp_path: Path) -> None:
    shapes = {"x": ("batch", "length")}
    rows = np.arange(80, dtype=np.float32).reshape(2, 40)
    source = open_source(SmallsOnly(), input_shapes=shapes)
    np.testing.assert_array_equal(source.run({"x": rows})["output"], rows[..., None])
    with pytest.raises(OnnxToolError, match=r"if x\.shape\[1\] < 30"):
        onnxtool.convert(SmallsOnly(), tmp_path / "out.onnx", input_shapes=shapes, effort="quick")
