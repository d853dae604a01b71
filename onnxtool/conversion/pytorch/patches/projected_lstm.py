"""nn.LSTM with proj_size, which ONNX's LSTM does not have: the whole state runs, and outputs are its projections.

With the projection R of the state s and the recurrent weights W of the projected state, W (R s) = (W R) s. A state that
is given, h, is R s for s = R+ h, by the pseudo-inverse of R, whose rows are independent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from onnxtool.conversion.patches import Patch, replaced

_FORWARD = nn.LSTM.forward
_INVERSE = "_inverse_of_"


@contextmanager
def _projected(_module: nn.Module, _opset: int) -> Iterator[None]:
    found = [m for m in _module.modules() if isinstance(m, nn.LSTM) and m.proj_size]
    names = [(m, n) for m in found for n, _ in m.named_parameters(recurse=False) if n.startswith("weight_hr")]
    for lstm, name in names:
        inverse = torch.linalg.pinv(getattr(lstm, name).detach().double())
        lstm.register_buffer(_INVERSE + name, inverse.to(getattr(lstm, name).dtype), persistent=False)
    try:
        with replaced(nn.LSTM, "forward", _forward):
            yield
    finally:
        for lstm, name in names:
            delattr(lstm, _INVERSE + name)


def _forward(lstm: nn.LSTM, input: Any, hx: Any = None) -> Any:
    if not lstm.proj_size or not isinstance(input, torch.Tensor) or input.dim() != 3:
        return _FORWARD(lstm, input, hx)
    time = 1 if lstm.batch_first else 0
    sides = ("", "_reverse") if lstm.bidirectional else ("",)
    states: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    for layer in range(lstm.num_layers):
        outputs = []
        for side in sides:
            weights, cell = _weights(lstm, f"_l{layer}{side}"), len(states[0])
            to_small, to_large = weights.pop("hr"), getattr(lstm, f"{_INVERSE}weight_hr_l{layer}{side}")
            weights["hh"] = weights["hh"] @ to_small
            if hx is None:
                h = c = input.new_zeros(1, input.shape[1 - time], lstm.hidden_size)
            else:
                h, c = hx[0][cell : cell + 1] @ to_large.T, hx[1][cell : cell + 1]
            given = input.flip(time) if side else input
            options = (lstm.bias, 1, 0.0, False, False, lstm.batch_first)
            output, h, c = torch.lstm(given, (h, c), list(weights.values()), *options)
            outputs.append((output.flip(time) if side else output) @ to_small.T)
            states[0].append(h @ to_small.T)
            states[1].append(c)
        input = torch.cat(outputs, -1)
    return input, (torch.cat(states[0]), torch.cat(states[1]))


def _weights(lstm: nn.LSTM, suffix: str) -> dict[str, torch.Tensor]:
    names = ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if lstm.bias else ()), "weight_hr")
    return {n.removeprefix("weight_"): getattr(lstm, n + suffix) for n in names}


PATCH = Patch("torch", "", "torch 2.13 hands LSTMs with projections to ONNX's LSTM, which has none", _projected)
