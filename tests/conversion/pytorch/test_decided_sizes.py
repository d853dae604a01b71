"""A branch on a size that torch.export decides is refused with its line, unless both sides were shown to be equal."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime as ort
import pytest
import sympy
import torch

import onnxtool
from onnxtool.conversion.pytorch.decided_sizes import DecidedSizes
from onnxtool.conversion.pytorch.guards import Guard, _flips, recorded_guards
from onnxtool.errors import UnsupportedError
from onnxtool.model.spec import TensorSpec

SHAPES = {"x": ("batch", "length", 4)}


class Longer(torch.nn.Module):
    def __init__(self, limit: int, same: bool = False) -> None:
        super().__init__()
        self.limit, self.same = limit, same

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > self.limit:
            return x + x if self.same else x * 3
        return x * 2


class Padded(torch.nn.Module):
    """To a multiple of four, which may be by nothing."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rest = -x.shape[1] % 4
        if rest:
            x = torch.nn.functional.pad(x, (0, 0, 0, rest))
        return x.reshape(x.shape[0], -1, 16).sum(1)


class Checked(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.shape[1] < 400_000
        return x * 2


class FirstTime(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.seen:
            return x * 2
        self.seen = True
        return x


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * 2 if self.calls < 10_000 else x


def test_a_side_that_differs_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"test_decided_sizes.py line \d+: if x.shape\[1\] > self.limit"):
        onnxtool.convert(Longer(70), tmp_path / "out.onnx", input_shapes=SHAPES)
    assert not (tmp_path / "out.onnx").exists()


def test_a_side_that_no_input_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"no input tried takes its other side.*size of 300001"):
        onnxtool.convert(Longer(300_000), tmp_path / "out.onnx", input_shapes=SHAPES)


def test_two_sides_that_are_equal_convert(tmp_path: Path) -> None:
    assert onnxtool.convert(Longer(70, same=True), tmp_path / "out.onnx", input_shapes=SHAPES).ok


def test_a_check_of_the_input_is_no_branch(tmp_path: Path) -> None:
    assert onnxtool.convert(Checked(), tmp_path / "out.onnx", input_shapes=SHAPES).ok


def test_a_first_run_that_differs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="second time"):
        onnxtool.convert(FirstTime(), tmp_path / "out.onnx", input_shapes={"x": ("batch", 4)})


def test_attributes_that_change_are_said(tmp_path: Path) -> None:
    report = onnxtool.convert(Counting(), tmp_path / "out.onnx", input_shapes={"x": ("batch", 4)})
    assert any("calls" in note for note in report.notes)


def test_guards_know_both_sides_of_far_comparisons() -> None:
    dims = {"x": {1: torch.export.Dim("length", min=1)}}
    with recorded_guards() as guards, suppress(Exception):  # torch refuses the dim, since it has a limit now
        torch.export.export(Longer(5000), (torch.zeros(2, 16, 4),), dynamic_shapes=dims)
    own = [g for g in guards if g.sizes == (5001, 5000)]
    assert own
    assert own[0].of_user
    assert "test_decided_sizes.py" in own[0].where


class _Expression:
    """Stands for a comparison of sympy's: longer than 10."""

    free_symbols = ("s1",)

    def subs(self, sizes: dict[str, int]) -> object:
        return type("Truth", (), {"is_Boolean": True, "__bool__": lambda _: sizes["s1"] > 10})()


def test_a_side_that_serves_both_is_found(tmp_path: Path) -> None:
    """The first sizes are of 16 tokens, of which nothing is padded."""
    report = onnxtool.convert(Padded(), tmp_path / "m.onnx", input_shapes=SHAPES, effort="quick")
    assert report.ok
    assert any("the other side of a comparison, which serves both" in note for note in report.notes)
    session = ort.InferenceSession(tmp_path / "m.onnx")
    for length in (1, 4, 7, 16):
        x = np.random.default_rng(length).normal(size=(3, length, 4)).astype(np.float32)
        (found,) = session.run(None, {"x": x})
        np.testing.assert_allclose(found, Padded()(torch.from_numpy(x)), rtol=1e-5, atol=1e-5)


def decided(file: str, line: int = 1, direct: bool = True) -> DecidedSizes:
    guard = Guard("s1 > 10", "net.py line 1", (11, 10), _Expression(), file, line, direct)
    spec = TensorSpec("x", np.dtype("float32"), ("batch", "length"))
    return DecidedSizes([guard], {"s1": "length"}, [spec], {"x": np.zeros((2, 5))})


def test_blames_only_inputs_on_the_other_side() -> None:
    one = decided("net.py")
    assert one.blamed({"x": np.zeros((2, 11))}) == ["net.py line 1"]
    assert one.blamed({"x": np.zeros((20, 10))}) == []


def test_one_side_is_reported_until_the_other_was_tried() -> None:
    one = decided("net.py")
    own, others = one.one_sided([{"x": np.zeros((2, 10))}])
    assert len(own) == 1
    assert others == []
    assert one.one_sided([{"x": np.zeros((2, 10))}, {"x": np.zeros((1, 11))}]) == ([], [])


def test_installed_code_is_said_and_torchs_own_decisions_are_not() -> None:
    own, others = decided("/lib/site-packages/pack/net.py").one_sided([{"x": np.zeros((2, 10))}])
    assert own == []
    assert len(others) == 1
    assert decided("net.py", direct=False).one_sided([{"x": np.zeros((2, 10))}]) == ([], [])


def test_comparisons_with_the_step_of_a_loop_are_decided_by_no_size() -> None:
    size, step = sympy.Symbol("s0", integer=True), sympy.Symbol("u0", integer=True)
    env = SimpleNamespace(backed_var_to_val={size: 16})
    assert _flips(env, size > 40) == (41, 40)
    assert _flips(env, (size > step) & (size < 40)) == ()
