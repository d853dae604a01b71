"""Shapes of recurrent layers without their steps: torch.export goes through an example step by step, several times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import _decomp
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from onnxtool.conversion.patches import Patch, replaced


@contextmanager
def _shaped(_module: torch.nn.Module, _opset: int) -> Iterator[None]:
    with ExitStack() as stack:
        for name in ("one_layer_rnn", "one_layer_lstm"):
            layer = getattr(_decomp.decompositions, name, None)
            if layer is not None:
                stack.enter_context(replaced(_decomp.decompositions, name, _by_shape(layer)))
        yield


def _by_shape(layer: Callable[..., Any]) -> Callable[..., Any]:
    """A layer that, where nothing is recorded and no numbers are asked for, gives outputs of the right shape."""

    def one_layer(input: torch.Tensor, hidden: Any, *given: Any, **more: Any) -> Any:
        if type(input) is not FakeTensor or get_proxy_mode() is not None:
            return layer(input, hidden, *given, **more)
        state = hidden if isinstance(hidden, torch.Tensor) else hidden[0]  # [batch, features]
        return input.new_empty((input.shape[0], *state.shape)), hidden

    return one_layer


PATCH = Patch("torch", "", "torch.export follows each step of a recurrent layer to learn its shapes", _shaped)
