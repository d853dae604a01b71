"""Recurrent layers in the field, step by step, by ONNX's equations."""

from __future__ import annotations

import numpy as np

from onnxtool.equality.certificate.field import ONE, Array, Field
from onnxtool.equality.certificate.interpreter import Interpreter
from onnxtool.equality.certificate.values import Attributes, Item, UndefinedError

_USUAL = {"LSTM": (b"Sigmoid", b"Tanh", b"Tanh"), "GRU": (b"Sigmoid", b"Tanh"), "RNN": (b"Tanh",)}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent_layer(m: Interpreter, i: list[Item], a: Attributes) -> tuple[Item, ...]:
    """LSTM, GRU or RNN; nothing is known of activations of its own, peepholes, or rows of different lengths.

    Raises:
        UndefinedError: the hidden size is not that of the weights.
    """
    kind = a["_kind"]
    inputs = [*i, *[None] * (8 - len(i))]
    directions = 2 if a.get("direction", b"forward") == b"bidirectional" else 1
    usual = tuple(a.get("activations", ())) in ((), _USUAL[kind] * directions)
    usual = usual and not (a.get("clip") or a.get("layout", 0) or a.get("input_forget", 0) or inputs[7] is not None)
    f, x = m.field, m.elements(i[0])
    length, batch = x.shape[1::-1] if a.get("layout", 0) else x.shape[:2]
    lengths = inputs[4]
    if lengths is not None:
        known = lengths.exact or lengths.number is not None
        usual = usual and known and bool((m.numbers(lengths, "") == length).all())
    weight, recurrent = m.elements(i[1]), m.elements(i[2])
    width = recurrent.shape[2]
    if a.get("hidden_size", width) != width:
        raise UndefinedError(f"{kind} whose hidden_size is not that of its weights")
    bias = m.elements(i[3]) if inputs[3] is not None else np.zeros((directions, 2 * _GATES[kind] * width), np.int64)
    shape = (batch, directions, width) if a.get("layout", 0) else (directions, batch, width)
    count = 2 if kind == "LSTM" else 1
    states = [np.zeros(shape, np.int64) if v is None else m.elements(v) for v in inputs[5 : 5 + count]]
    if not usual:
        whole = [*i[:3], m.symbol(bias, i[0].dtype), lengths, *(m.symbol(s, i[0].dtype) for s in states)]
        peepholes = [inputs[7]] if kind == "LSTM" and inputs[7] is not None else []
        named = {k: v for k, v in a.items() if not k.startswith("_")}
        found = m.opaque(kind, [*whole, *peepholes], named, a["_outputs"], "")
        return found if isinstance(found, tuple) else (found,)
    outputs, last = [], []
    for d in range(directions):
        backwards = d == 1 or a.get("direction") == b"reverse"
        own = [s[d] for s in states]
        seen = []
        for step in reversed(range(length)) if backwards else range(length):
            own = _step(
                f, kind, x[step], own, (weight[d], recurrent[d], bias[d]), bool(a.get("linear_before_reset", 0))
            )
            seen.append(own[0])
        outputs.append(np.stack(seen[::-1] if backwards else seen) if seen else np.zeros((0, batch, width), np.int64))
        last.append(own)
    stacked = [np.stack(outputs, 1), *(np.stack([own[k] for own in last]) for k in range(len(states)))]
    return tuple(m.symbol(y, i[0].dtype) for y in stacked)


def _step(
    f: Field, kind: str, x: Array, states: list[Array], weights: tuple[Array, Array, Array], linear_before_reset: bool
) -> list[Array]:
    """The states behind a step: of the hidden one [batch, width] first."""
    weight, recurrent, bias = weights
    h, gates, width = states[0], _GATES[kind], states[0].shape[1]
    inner = f.add(f.matmul(x, weight.T), bias[: gates * width])
    if kind == "GRU":
        z, r, new = np.split(inner, 3, 1)
        own = np.split(bias[gates * width :], 3)
        zh, rh, hh = (recurrent[k * width : (k + 1) * width].T for k in range(3))
        z = f.sigmoid(f.add(z, f.add(f.matmul(h, zh), own[0])))
        r = f.sigmoid(f.add(r, f.add(f.matmul(h, rh), own[1])))
        if linear_before_reset:
            past = f.mul(r, f.add(f.matmul(h, hh), own[2]))
        else:
            past = f.add(f.matmul(f.mul(r, h), hh), own[2])
        new = f.tanh(f.add(new, past))
        return [f.add(f.mul(f.sub(ONE, z), new), f.mul(z, h))]
    inner = f.add(inner, f.add(f.matmul(h, recurrent.T), bias[gates * width :]))
    if kind == "RNN":
        return [f.tanh(inner)]
    entry, output, forget, cell = np.split(inner, 4, 1)
    cell = f.add(f.mul(f.sigmoid(forget), states[1]), f.mul(f.sigmoid(entry), f.tanh(cell)))
    return [f.mul(f.sigmoid(output), f.tanh(cell)), cell]
