"""Branches that tracing froze: harmless only where both sides have run, or the other side raises."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from onnxtool.conversion.convert import convert  # noqa: E402
from onnxtool.conversion.pytorch.guards import recorded_guards  # noqa: E402
from onnxtool.conversion.pytorch.state import ModuleState, random_operators  # noqa: E402
from onnxtool.conversion.pytorch.traced_branches import FrozenBranches, place_text  # noqa: E402
from onnxtool.errors import UnsupportedError  # noqa: E402


class Branch(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 100:
            return x * 2
        return x + 1


class Checked(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 100:
            raise ValueError("too large")
        assert x.sum() < 1000
        return x + 1


class Nested(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0 and x[0, 0] == 0.123:
            return x * 2
        return x + 1


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("runs", torch.zeros(1))

    def forward(self, x):
        self.runs += 1
        return x * self.runs + torch.rand_like(x)


def frozen(module):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.jit.trace(module, torch.zeros(2, 2), check_trace=False)
    return FrozenBranches(caught)


def run(branches, module, *inputs):
    for value in inputs:
        with branches.watching():
            module(torch.full((2, 2), float(value)))


def test_a_branch_is_proven_by_inputs_of_both_sides():
    module = Branch()
    branches = frozen(module)
    assert len(branches.booleans) == 1
    run(branches, module, 0, 1)
    (place,) = branches.unproven()
    assert "if x.sum() > 100" in place_text(place)
    run(branches, module, 1000)
    assert branches.unproven() == []


def test_a_side_that_raises_needs_no_input():
    module = Checked()
    branches = frozen(module)
    assert len(branches.booleans) == 2
    run(branches, module, 0)
    assert branches.unproven() == []


def test_every_condition_of_a_line_counts_on_its_own():
    module = Nested()
    branches = frozen(module)
    run(branches, module, -1, 1, 2)
    assert len(branches.unproven()) == 1


def test_truth_values_of_tensors_are_as_before_afterwards():
    before = torch.Tensor.__bool__
    branches = frozen(Branch())
    run(branches, Branch(), 1)
    assert torch.Tensor.__bool__ is before and bool(torch.ones(1))


def test_a_guard_tells_both_sides_of_a_comparison_of_sizes():
    class Long(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.shape[1] > 100 else x + 1

    with recorded_guards() as guards:
        torch.export.export(
            Long().eval(), (torch.zeros(2, 16),), dynamic_shapes=({1: torch.export.Dim.AUTO},), strict=False
        )
    sizes = {size for guard in guards for size in guard.sizes}
    assert {100, 101} <= sizes


def test_buffers_that_a_run_changes_are_put_back_and_random_operators_named():
    module = Counter()
    state = ModuleState(module)
    module(torch.zeros(2))
    assert state.look() == ("runs",)
    state.restore()
    assert module.runs.item() == 0
    assert random_operators(lambda: module(torch.zeros(2))) == ["rand_like"]
    assert random_operators(lambda: torch.dropout(torch.ones(9), 0.5, False)) == [], "it is off"


SOURCE = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        if (x[:, 0] * x[:, 1] - 3 * x[:, 2]).abs().max() < 1e-9 and x[0, 3] == 0.1234567:
            return x * 2
        return x + 1
def make():
    return Net()
"""


def test_a_branch_that_no_input_takes_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(SOURCE, encoding="utf-8")
    sample = {"x": np.ones((2, 4), np.float32)}
    with pytest.raises(UnsupportedError, match=r"net\.py line 5"):
        convert(
            None,
            tmp_path / "o.onnx",
            factory=f"{tmp_path / 'net.py'}:make",
            trust=True,
            sample=sample,
            input_shapes={"x": ("b", 4)},
            exporter="torchscript",
        )
    assert not (tmp_path / "o.onnx").exists()


class Alike(torch.nn.Module):
    def forward(self, x, z):
        if torch.equal(x, z):
            return x * 10
        return x + z


def test_equal_of_whole_tensors_is_refused_by_one_exporter_and_found_wrong_of_the_other(tmp_path: Path) -> None:
    shapes = {"x": ("b", 3), "z": ("b", 3)}
    with pytest.raises(UnsupportedError, match="depends on the data"):
        convert(Alike(), tmp_path / "out.onnx", input_shapes=shapes)
    report = convert(Alike(), tmp_path / "out.onnx", input_shapes=shapes, exporter="torchscript")
    assert not report.ok
    assert any("tracing kept one side" in note for note in report.notes)
    assert torch.equal(torch.ones(2), torch.ones(2))


class MakesNumbers(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * int(x[0, 0] * 0 + 3)


def test_numbers_made_of_values_are_said_with_their_line(tmp_path: Path) -> None:
    shapes = {"x": ("batch", 4)}
    report = convert(MakesNumbers(), tmp_path / "out.onnx", input_shapes=shapes, exporter="torchscript", effort="quick")
    assert any("for constants at test_traced_branches.py line" in note for note in report.notes)
