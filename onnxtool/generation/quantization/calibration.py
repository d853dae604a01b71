"""What a decoder's products typically take (moments of their inputs, on text that it writes itself), and which groups
of them a budget allows in fewer bits.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from onnxtool import progress
from onnxtool.generation.bundle import Bundle
from onnxtool.generation.decoder import Decoder
from onnxtool.model import io
from onnxtool.runtime.session.session import SessionOptions, create_session

SEQUENCES = 12
LENGTH = 128


def sampled_tokens(decoder: Decoder, sequences: int = SEQUENCES, length: int = LENGTH, seed: int = 0) -> np.ndarray:
    """Text that the decoder writes after a random token, drawn at its own probabilities.

    It is what the model knows, in the shares in which it knows it; no text has to be at hand, and the one that
    perplexity is measured on stays unseen.

    Args:
        decoder: its cache is emptied.
        sequences: texts, written at the same time.
        length: tokens of each, fewer where the context ends before.
        seed: of the draws.

    Returns:
        int64 [sequences, length].

    Source: Liu et al. 2023, "LLM-QAT: data-free quantization aware training for large language models", section 2.
    """
    random = np.random.default_rng(seed)
    length = min(length, decoder.bundle.context)
    found = np.empty((sequences, length), np.int64)
    found[:, 0] = random.integers(0, decoder.bundle.vocabulary, sequences)
    decoder.start(length, sequences)
    with progress.task("writing calibration text", length) as task:
        for place in range(1, length):
            logits = decoder.run(found[:, place - 1 : place])[:, -1].astype(np.float64)
            logits += random.gumbel(size=logits.shape)  # the largest sum is a draw at the softmax's probabilities
            found[:, place] = logits.argmax(axis=-1)
            task.advance()
    return found


def input_moments(bundle: Bundle, inputs: Sequence[str], tokens: np.ndarray) -> dict[str, np.ndarray]:
    """For values of the graph, the sum over all tokens of the product of each two of their elements.

    Args:
        bundle: a float32 bundle.
        inputs: names of float32 values [..., K].
        tokens: int64 [sequences, length].

    Returns:
        For each name float32 [K, K].
    """
    model = io.load(bundle.model)
    values = {str(v.name): v for node in model.graph for v in node.outputs}
    model.graph.outputs[:] = [values[n] for n in inputs]
    session = create_session(model, SessionOptions())
    feeds = {i.name: _empty(i.shape, bundle) for i in session.get_inputs() if i.name.startswith("past")}
    taken = {i.name for i in session.get_inputs()}
    found: dict[str, np.ndarray] = {}
    with progress.task("measuring inputs of products", len(tokens)) as task:
        for row in tokens:
            feeds["input_ids"] = row[None]
            feeds["attention_mask"] = np.ones((1, len(row)), np.int64)
            feeds["position_ids"] = np.arange(len(row), dtype=np.int64)[None]
            outputs = session.run(list(inputs), {k: v for k, v in feeds.items() if k in taken})
            for name, value in zip(inputs, outputs, strict=True):
                flat = value.reshape(-1, value.shape[-1])
                found[name] = found.get(name, 0) + flat.T @ flat
            task.advance()
    return found


def _empty(shape: Sequence[int | str], bundle: Bundle) -> np.ndarray:
    heads = shape[1] if isinstance(shape[1], int) else bundle.kv_heads
    size = shape[3] if isinstance(shape[3], int) else bundle.head_size
    return np.zeros((1, heads, 0, size), np.float32)


_PARTS = 5
_EVALUATIONS = 5
Found = TypeVar("Found")


@dataclass(frozen=True)
class LayerGroup:
    """Products of one kind in one part of the layers.

    Attributes:
        name: "down_proj of layers 6 to 11".
        nodes: their names.
        weights: how many weights they have.
    """

    name: str
    nodes: tuple[str, ...]
    weights: int


def groups_of(nodes: Sequence[ir.Node], layers: int) -> list[LayerGroup]:
    """Put the products of the layers into groups by their kind and a fifth of the layers."""
    found: dict[str, list[tuple[str, int]]] = {}
    starts = [-(-layers * part // _PARTS) for part in range(_PARTS + 1)]
    for node in nodes:
        number = re.search(r"(?:layers|h|blocks?)[./](\d+)[./]", str(node.name))
        weight = node.inputs[1]
        if number is None or weight is None or weight.const_value is None:
            continue
        kind = re.split(r"[./]", str(node.name)[number.end() :])
        kind = [k for k in kind if not k.startswith("MatMul")]
        part = max(0, bisect_right(starts, int(number[1]), hi=_PARTS) - 1)
        key = f"{kind[-1] if kind else 'products'} of layers {starts[part]} to {starts[part + 1] - 1}"
        found.setdefault(key, []).append((str(node.name), int(weight.const_value.size)))
    return [LayerGroup(k, tuple(n for n, _ in v), sum(s for _, s in v)) for k, v in found.items()]


def widest_within(
    ordered: Sequence[LayerGroup],
    measure: Callable[[Sequence[LayerGroup]], Found],
    fits: Callable[[Found], bool],
    late: Callable[[], bool],
) -> list[Found]:
    """Bisect for the most groups from the front that still fit, with at most five measurements; all that were made."""
    low, high = 0, len(ordered)
    found: list[Found] = []
    middle = max(1, len(ordered) // 3)
    while len(found) < _EVALUATIONS and low < high and not late():
        found.append(measure(ordered[:middle]))
        if fits(found[-1]):
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
        if middle == low:
            break
    return found
