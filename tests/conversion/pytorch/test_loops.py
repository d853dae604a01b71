"""Loops over a dynamic size."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import onnxtool
from onnxtool.conversion.pytorch.patches import loop_steps
from onnxtool.conversion.pytorch.patches.loops import _rewritten
from onnxtool.errors import OnnxToolError

Tensor = torch.Tensor


def keeps_a_state_that_begins_as_none(x: Tensor) -> Tensor:
    state, made = None, []
    for t in range(x.size(1)):
        state = x[:, t, :] if state is None else torch.tanh(state @ torch.full((5, 5), 0.1) + x[:, t, :])
        made.append(state)
    return torch.stack(made, 1)


def goes_both_ways(x: Tensor) -> Tensor:
    steps, h, ahead, back = x.shape[1], torch.zeros(x.shape[0], 5), [], []
    for t in range(steps):
        h = 0.5 * h + x[:, t]
        ahead.append(h)
    h = torch.zeros(x.shape[0], 5)
    for t in reversed(range(steps)):
        h = 0.5 * h - x[:, t]
        back.append(h)
    return torch.cat([torch.stack(ahead, 1), torch.stack(back[::-1], dim=1)], -1) + t


def adds_dims_beside_the_step(x: Tensor) -> Tensor:
    h, made = torch.zeros(x.shape[0], 5, 1), []
    for t in range(x.shape[1]):
        h = 0.5 * h + x[:, t, :, None]
        made.append(h.squeeze(-1) + x[:, None, t].sum(1) + x[..., None, t, :, None][:, 0, :, 0])
    return torch.stack(made, 1)


def goes_back_through_a_list(x: Tensor) -> Tensor:
    """As Viterbi's algorithm does."""
    x, kept = torch.tanh(x), []
    score = x[:, 0]
    for t in range(1, x.shape[1]):
        score, best = (score[:, :, None] * 0.5 + x[:, t, None] * x[:, t, :, None]).max(1)
        kept.append(best)
    place = score.argmax(1)
    path = [place]
    for best in reversed(kept):
        place = best.gather(1, place[:, None]).squeeze(1)
        path.append(place)
    path.reverse()
    return torch.stack(path, 1)


def writes_into_a_tensor(x: Tensor) -> Tensor:
    made, h = torch.zeros_like(x), torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        h.mul_(0.5).add_(x[:, t])
        made[:, t] = h
    for t in range(1, x.shape[1]):
        made[:, t] += made[:, t - 1]
        made[:, t, 1:3] = x[:, t, :2]
    for t in range(x.shape[1] - 2, -1, -1):
        made[:, t] = made[:, t] * 0.5 + made[:, t + 1] * (t < x[:, 0, :1])
    return made


def reads_the_last_of_a_list(x: Tensor) -> Tensor:
    made = [x[:, 0]]
    for t in range(1, x.shape[1]):
        made.append(0.5 * made[-1] + x[:, t])
    return torch.stack(made, 1)


def has_layers(x: Tensor) -> Tensor:
    states, made = [torch.zeros(x.shape[0], 5) for _ in range(2)], []
    for t in range(x.shape[1]):
        given = x[:, t]
        for i, factor in enumerate((0.5, 0.25)):
            states[i] = given = torch.tanh(given @ torch.full((5, 5), 0.1) + factor * states[i])
            if i == 0:
                given = given * 2
        made.append(given.unsqueeze(1))
        made.append(states[0].unsqueeze(1))
    return torch.cat(made, dim=1)


def goes_through_several(x: Tensor) -> Tensor:
    h = torch.zeros(x.shape[0], 5)
    for a, b in zip(x.unbind(1), torch.unbind(torch.sigmoid(x), 1), strict=True):
        h = (h + a) * b
    made = [h]
    for i, row in enumerate(x.transpose(0, 1)):
        made += [row + i]
    return torch.stack(made)


def is_another_first(x: Tensor) -> Tensor:
    made = []
    for t in range(x.shape[1]):
        if t == 0:
            h = 2 * x[:, t]
        elif t >= 1:
            h = 0.5 * h + x.select(1, t)
        made.append(h)
    return torch.stack(made, 1)


def takes_windows(x: Tensor) -> Tensor:
    last, made = 0.0, []
    for t in range(x.shape[1] - 1):
        last = torch.tanh(x[..., t : t + 2, :].mean(1, keepdim=True) + last)
        made.append(last)
    return torch.cat(made, 1)


def counts(x: Tensor) -> Tensor:
    total, n, weight, made = torch.zeros_like(x[:, 0]), 0, 1.0, []
    for t in range(x.shape[1] - 1, -1, -1):
        total, n, weight = total + weight * x[:, t], n + 1, weight * 0.75
        made.append(total / n)
    made.reverse()
    return torch.stack(made, 1)


def makes_a_list(x: Tensor) -> Tensor:
    return torch.stack([x[:, t] - x[:, t - 1] for t in range(x.shape[1])], 1)


def reads_two_views(x: Tensor) -> Tensor:
    first, second = x.split([2, 3], -1)
    h = torch.zeros_like(second[:, 0])
    for t in range(x.shape[1]):
        h = 0.5 * h + second[:, t] * first[:, t, :1]
    return h


def keeps_the_number_of_a_step(x: Tensor) -> Tensor:
    before, made = 0, []
    for t in range(x.shape[1]):
        made.append(x[:, t] - x[:, before])
        before = t
    return torch.stack(made, 1) + before


def called(parts: Any, factor: float) -> Tensor:
    h: Any = 0
    for part in parts:
        h = factor * h + part
    return h


def calls(x: Tensor) -> Tensor:
    return called(x.unbind(1), 0.5)


FOLLOWED: list[Callable[[Tensor], Tensor]] = [
    keeps_a_state_that_begins_as_none, goes_both_ways, adds_dims_beside_the_step, writes_into_a_tensor,
    reads_the_last_of_a_list, has_layers, goes_back_through_a_list,
    goes_through_several, is_another_first, takes_windows, counts, makes_a_list, calls, reads_two_views,
    keeps_the_number_of_a_step,
]  # fmt: skip


def takes_even_steps(x: Tensor) -> Tensor:
    h = torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        if t % 2 == 0:
            h = h + x[:, t]
    return h


def is_another_third(x: Tensor) -> Tensor:
    h = torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        h = h + 10 * x[:, t] if t > 1 else 0.5 * h
    return h


def has_two_names_for_a_list(x: Tensor) -> Tensor:
    made: list[Tensor] = []
    others = made
    for t in range(x.shape[1]):
        made.append(2 * x[:, t])
        others.append(x[:, t])
    return torch.stack(others, 1)


def becomes_longer(x: Tensor) -> Tensor:
    made = x[:, :1]
    for t in range(1, x.shape[1]):
        made = torch.cat([made, made[:, -1:] * 0.5 + x[:, t : t + 1]], 1)
    return made


def compares_data(x: Tensor) -> Tensor:
    h = torch.zeros_like(x[:, 0])
    for i, sign in enumerate((x[0, :, 0] > 0).long()):
        if sign == 0:
            h = h + i
    return h


def written_anew(function: Callable[..., Any]) -> FunctionType | None:
    assert isinstance(function, FunctionType)
    code = function.__code__
    found = [_rewritten(code, code.co_firstlineno + i) for i in range(12)]
    codes = [f for f in found if f is not None]
    return FunctionType(codes[0], function.__globals__, function.__name__) if codes else None


class Computes(nn.Module):
    def __init__(self, functions: list[Callable[[Tensor], Tensor]]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(function(x) for function in self.functions)


def scanned(
    step: Callable[..., tuple[list[Tensor], list[Tensor]]], state: list[Tensor], items: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """torch's `scan`, without its compiler."""
    made = []
    for item in items:
        state, added = step(state, item)
        made.append(added)
    return state, [torch.stack([*parts]) for parts in zip(*made, strict=True)]


@pytest.mark.parametrize("follows", [False, True], ids=["each step", "one step for all"])
@pytest.mark.parametrize("function", [*FOLLOWED, called], ids=lambda f: f.__name__)
def test_a_function_that_is_written_anew_computes_the_same(
    function: FunctionType, follows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    anew = written_anew(function)
    if anew is None:
        assert function is calls
        return
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((3, 8, 5)).astype(np.float32))
    parts = x.unbind(1)
    expected = called(parts, 0.5) if function is called else function(x)
    if follows:
        monkeypatch.setattr(loop_steps, "is_dynamic", lambda size: size in (7, 8))
        monkeypatch.setattr(sys.modules["torch._higher_order_ops.scan"], "scan", scanned)
    given = (loop_steps.pieces(x, 1), 0.5) if function is called else (x,)
    assert torch.equal(anew(*given), expected)


def test_a_name_that_two_loops_have_is_each_ones_own(tmp_path: Path) -> None:
    """Else what the first one leaves in it would be made from a step that there may not be."""
    path = tmp_path / "out.onnx"
    module, shapes = Computes([goes_back_through_a_list]).eval(), {"x": ("batch", "time", 5)}
    onnxtool.convert(module, path, input_shapes=shapes, exporter="dynamo", verify_result=False)
    session = onnxruntime.InferenceSession(path)
    for steps in (1, 2, 9):
        x = np.random.default_rng(steps).standard_normal((3, steps, 5)).astype(np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], module(torch.from_numpy(x))[0])


def test_loops_over_a_dynamic_size_are_followed(tmp_path: Path) -> None:
    functions = [has_layers, is_another_first, calls, reads_two_views, keeps_the_number_of_a_step]
    module = Computes(functions).eval()
    path = tmp_path / "out.onnx"
    report = onnxtool.convert(module, path, input_shapes={"x": ("batch", "time", 5)}, effort="quick")
    assert report.ok
    assert not report.notes
    session = onnxruntime.InferenceSession(path)
    for shape in ((1, 1, 5), (3, 11, 5), (2, 29, 5)):
        x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
        expected = module(torch.from_numpy(x))
        for function, found, right in zip(functions, session.run(None, {"x": x}), expected, strict=True):
            np.testing.assert_allclose(found, right.numpy(), rtol=1e-4, atol=1e-5, err_msg=function.__name__)


@pytest.mark.parametrize("function", [is_another_third, becomes_longer], ids=lambda f: f.__name__)
def test_steps_that_are_unlike_are_told(function: FunctionType, monkeypatch: pytest.MonkeyPatch) -> None:
    anew = written_anew(function)
    assert anew is not None
    monkeypatch.setattr(loop_steps, "is_dynamic", lambda size: size in (7, 8))
    monkeypatch.setattr(sys.modules["torch._higher_order_ops.scan"], "scan", scanned)
    with pytest.raises(loop_steps.UnfollowedError):
        anew(torch.zeros(3, 8, 5))


@pytest.mark.parametrize(
    "function", [takes_even_steps, has_two_names_for_a_list, compares_data], ids=lambda f: f.__name__
)
def test_a_loop_that_no_single_step_stands_for_is_not_followed(
    function: Callable[[Tensor], Tensor], tmp_path: Path
) -> None:
    path = tmp_path / "out.onnx"
    try:
        report = onnxtool.convert(
            Computes([function]).eval(), path, input_shapes={"x": ("batch", "time", 5)}, effort="quick"
        )
    except OnnxToolError:
        return
    assert not report.ok


@pytest.mark.parametrize(
    ("begins", "relation", "limit", "told"),
    [
        (0, "lt", 0, False), (0, "ge", 0, True), (1, "eq", 0, False), (1, "ne", 0, True), (1, "gt", 0, True),
        (1, "lt", 1, False), (0, "eq", 0, None), (0, "gt", 0, None), (1, "le", 1, None), (1, "lt", 2, None),
    ],
)  # fmt: skip
def test_the_number_of_a_step_decides_what_all_further_ones_do(
    begins: int, relation: str, limit: int, told: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_steps._NUMBERS, "begins", begins)
    number = torch.tensor(7)
    if told is None:
        with pytest.raises(loop_steps.UnfollowedError):
            loop_steps.compared(number, relation, limit)
    else:
        assert loop_steps.compared(number, relation, limit) is told
