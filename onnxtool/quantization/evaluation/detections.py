"""Outputs behind a NonMaxSuppression: as many rows as are found, in the order of their scores.

Another row may come first, and one more or less may be found, without anything being wrong: rows are compared with
those whose boxes overlap with theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxtool.quantization.evaluation.box_match import BOX, OVERLAP, form_of, overlaps
from onnxtool.runtime.feeds import Outputs

_OFFSETS = (0, 1)  # of a box in its row: some exporters write the sample's number before it


@dataclass(frozen=True)
class Matched:
    """Rows of the float model and of a candidate that belong together.

    Attributes:
        rows: output -> (the float model's, the candidate's), [pairs, columns].
        true: rows that the float model finds.
        found: rows that the candidate finds.
    """

    rows: Mapping[str, tuple[np.ndarray, np.ndarray]]
    true: int
    found: int


@dataclass(frozen=True)
class Detections:
    """The outputs of a detector that hold one row for each object.

    Attributes:
        names: of these outputs, the one with the boxes first.
        offset: the first column of a box.
        form: "corners" or "middle".
        whole: columns of all of them together that are whole numbers: classes, which have to be the same.
    """

    names: tuple[str, ...]
    offset: int
    form: str
    whole: np.ndarray

    @classmethod
    def of(cls, graph: ir.Graph, outputs: Sequence[Outputs]) -> Detections | None:
        """What a model's outputs are by its graph and by what the float model gives; None where none are found rows."""
        behind = [v.name or "" for v in graph.outputs if _is_behind_suppression(v)]
        for name in behind:
            for offset in _OFFSETS:
                boxes = [o[name] for o in outputs]
                if any(a.dtype.kind != "f" or a.ndim < 2 or a.shape[-1] < BOX + offset for a in boxes):
                    continue
                together = np.concatenate([a.reshape(-1, a.shape[-1]) for a in boxes])
                form = form_of(together[_areas(together, offset) != 0].T[offset:]) if len(together) else None
                if form is not None:
                    others = [n for n in behind if n != name and all(_fits(o[n], o[name]) for o in outputs)]
                    found = cls((name, *others), offset, form, np.zeros(0, bool))
                    tables = np.concatenate([found._table(o) for o in outputs])
                    whole = (tables == np.round(tables)).all(axis=0)
                    whole[1 + offset : 1 + offset + BOX] = False
                    return cls(found.names, offset, form, whole)
        return None

    def match(self, expected: Outputs, actual: Outputs) -> Matched:
        """Each row of the float model with the candidate's that overlaps with it best, by 0.75 or more."""
        right, wrong = self._table(expected), self._table(actual)
        first = 1 + self.offset
        shared = overlaps(right[:, first : first + BOX].T, wrong[:, first : first + BOX].T, self.form)
        same = (right[:, None, self.whole] == wrong[None, :, self.whole]).all(axis=-1)
        shared = np.where(same, shared, 0.0)
        pairs = []
        for row in range(len(right)):
            best = int(shared[row].argmax()) if len(wrong) else 0
            if len(wrong) and shared[row, best] >= OVERLAP:
                pairs.append((row, best))
                shared[:, best] = 0
        chosen = np.array(pairs, int).reshape(-1, 2)
        rows, column = {}, 1
        for name in self.names:
            end = column + _width(expected[name], expected[self.names[0]])
            rows[name] = right[chosen[:, 0], column:end], wrong[chosen[:, 1], column:end]
            column = end
        return Matched(rows, len(right), len(wrong))

    def _table(self, outputs: Outputs) -> np.ndarray:
        """All columns of all rows, the sample's number first; without rows of no area, which fill up."""
        boxes = outputs[self.names[0]]
        count, each = int(np.prod(boxes.shape[:-1])), int(np.prod(boxes.shape[1:-1]))
        sample = np.arange(count) // max(each, 1) if boxes.ndim > 2 else np.zeros(count)
        parts = [outputs[n].reshape(count, _width(outputs[n], boxes)).astype(np.float64) for n in self.names]
        table = np.concatenate([sample.reshape(-1, 1), *parts], axis=1)
        return np.asarray(table[_areas(table, 1 + self.offset) != 0])


def _areas(rows: np.ndarray, offset: int) -> np.ndarray:
    """Something that is zero for a box of zeros."""
    return np.asarray(np.abs(rows[:, offset : offset + BOX]).sum(axis=1))


def _fits(output: np.ndarray, boxes: np.ndarray) -> bool:
    return boxes.shape[:-1] in (output.shape, output.shape[:-1])


def _width(output: np.ndarray, boxes: np.ndarray) -> int:
    return 1 if output.shape == boxes.shape[:-1] else output.shape[-1]


def _is_behind_suppression(output: ir.Value) -> bool:
    seen: set[ir.Node] = set()
    left = [output.producer()]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        if node.op_type == "NonMaxSuppression":
            return True
        seen.add(node)
        left += [v.producer() for v in node.inputs if v is not None]
    return False
