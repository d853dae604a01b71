"""Pairs of graphs as data: two that differ on some inputs only, or that compute the same in two ways.

`pairs/*.toml` lists them in ONNX text, by who wrote them; `pairs/weights.npz` holds longer weights.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

FOLDER = Path(__file__).parent / "pairs"


@dataclass(frozen=True)
class Pair:
    """Two graphs.

    Attributes:
        name: what differs, or what was rewritten.
        equal: they compute the same on all inputs.
        text: what the file says of it.
    """

    name: str
    equal: bool
    text: Mapping[str, Any]

    def models(self) -> tuple[ir.Model, ir.Model]:
        """Both, made anew."""
        text = self.text
        weights = {name: _array(spec) for name, spec in text.get("weights", {}).items()}
        changed = {**weights, **{name: _array(spec) for name, spec in text.get("changed", {}).items()}}
        opsets = text.get("opsets", '"" : 20')
        return self._model("a", weights, opsets), self._model("b", changed, text.get("opsets_b", opsets))

    def _model(self, which: str, weights: Mapping[str, np.ndarray], opsets: str) -> ir.Model:
        body = self.text[which]
        read = {name: w for name, w in weights.items() if re.search(rf"\b{name}\b", body)}
        listed = ", ".join(f"float[{', '.join(map(str, w.shape))}] {name}" for name, w in read.items())
        return ir.from_onnx_text(
            f"<ir_version: 10, opset_import: [{opsets}]> {self.text['graph']} {f'<{listed}>' if listed else ''} "
            f"{{ {body} }} {self.text.get('functions', '')}",
            initializers=[ir.tensor(w, name=name) for name, w in read.items()],
        )


def pairs() -> Iterator[Pair]:
    """All of them, in the order of the files."""
    for file in sorted(FOLDER.glob("*.toml")):
        for text in tomllib.loads(file.read_text(encoding="utf-8"))["pair"]:
            yield Pair(f"{file.stem}: {text['name']}", text["verdict"] == "equal", text)


@cache
def _stored() -> Mapping[str, np.ndarray]:
    with np.load(FOLDER / "weights.npz", allow_pickle=False) as file:
        return dict(file)


def _array(spec: Mapping[str, Any]) -> np.ndarray:
    """The float32 numbers that a weight's entry stands for.

    Args:
        spec: `values`: themselves. `stored`: a name in weights.npz. `normal`: the seed of normal ones of `shape`, of
            which `rows` may take a part, with the rows `at` replaced by those of `to`, and those of `then` after them;
            `bump` names places where the last bit is changed, `negated` those where the sign is.
    """
    if "values" in spec:
        return np.array(spec["values"], np.float32)
    if "stored" in spec:
        return _stored()[spec["stored"]]
    array = np.random.default_rng(spec["normal"]).standard_normal(spec["shape"]).astype(np.float32)
    array = array[slice(*spec.get("rows", (None,)))]
    if "at" in spec:
        array[_stored()[spec["at"]]] = _stored()[spec["to"]]
    for place in spec.get("bump", ()):
        array[tuple(place)] = np.nextafter(array[tuple(place)], np.float32(np.inf))
    for place in spec.get("negated", ()):
        array[tuple(place)] *= -1
    return np.concatenate([array, _stored()[spec["then"]]]) if "then" in spec else array
