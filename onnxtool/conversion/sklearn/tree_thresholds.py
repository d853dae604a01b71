"""Rows close to the thresholds of trees: where computing in float32 instead of float64 can pick another branch."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.model import SklearnModel
from onnxtool.conversion.sklearn.prepare import steps_of
from onnxtool.conversion.sklearn.schema import trees_of
from onnxtool.errors import OnnxToolError
from onnxtool.runtime.runner import OnnxRunner

if TYPE_CHECKING:
    import onnx

_ROWS = 600
# A prediction that is further off than this, relative to the largest one, went down another branch.
_STEP = 1e-3
_TREES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble")
_MOVES = (
    *("Identity", "Cast", "Concat", "Reshape", "Flatten", "Gather", "Slice", "Squeeze", "Unsqueeze", "Transpose"),
    *("ArrayFeatureExtractor", "FeatureVectorizer", "Split", "Constant", "Shape"),
)
_LEFT_OUT = "not tested at the trees' thresholds; rows may differ"


def note_flips(model: SklearnModel, runner: OnnxRunner) -> None:
    """Count on how many rows next to thresholds the ONNX form decides otherwise, and say so in the notes.

    Rows are built in the trees' own space, one threshold each: on it, and one float32 step to each side; steps before
    the trees (scalers) are undone by their inverse. Only models with one matrix of numbers as input are looked at.
    """
    rows = rows_near_thresholds(model)
    if rows is None:
        return
    if _split(model.estimator)[0]:
        # What comes before the trees rounds: whole and half numbers that are thresholds may fall to either side.
        model.limits = (*model.limits, "thresholds")
    kind = np.float64 if model.doubles else np.float32
    rows = rows.astype(kind)
    name = model.inputs[0].name
    try:
        rows = model.drop_tied_rows({name: rows})[name]
        found = runner.run({runner.inputs[0].name: rows})
        expected = model.run({name: rows})
    except OnnxToolError:
        return  # the comparison will say what is wrong
    first = model.outputs[0].name
    flips = int(_differs(np.asarray(expected[first]), np.asarray(next(iter(found.values())))).sum())
    if not flips:
        return
    what = "labels" if first == "label" else "predictions"
    where = f"{flips} of {len(rows)} {what} next to tree thresholds"
    model.notes.append(f"{'rounding' if model.doubles else 'float32'} changes {where}")


def left_out(proto: onnx.ModelProto, *, doubles: bool) -> str:
    """What the proof leaves out of a graph with trees, in words; "" where they get the inputs as they are.

    The thresholds of the graph are numbers that its inputs are tried at. Behind a step that computes, they are numbers
    of another space; and in doubles the runtime's trees round them in ways of their own.

    Args:
        proto: as it was exported, with trees of any library.
        doubles: it computes in float64.
    """
    makers = {name: node for node in proto.graph.node for name in node.output}
    trees = [node for node in proto.graph.node if node.op_type in _TREES]
    computed = any(_is_computed(name, makers) for node in trees for name in node.input[:1])
    return _LEFT_OUT if trees and (doubles or computed) else ""


def _is_computed(name: str, makers: Mapping[str, onnx.NodeProto]) -> bool:
    """Whether a tensor is anything but inputs of the graph, moved about."""
    pending, seen = [name], {name}
    while pending:
        node = makers.get(pending.pop())
        if node is None:
            continue
        if node.op_type not in _MOVES:
            return True
        pending += [n for n in node.input if n not in seen]
        seen.update(node.input)
    return False


def rows_near_thresholds(model: SklearnModel) -> np.ndarray | None:
    """Rows in the model's input space, float64; None where there are no trees or no way back to the input."""
    if len(model.inputs) != 1 or isinstance(model.inputs[0].dtype, str) or model.columns:
        return None
    before, trees = _split(model.estimator)
    inner = [np.flatnonzero(tree.children_left >= 0) for tree in trees]
    features = np.concatenate([tree.feature[nodes] for tree, nodes in zip(trees, inner, strict=True)] or [[]])
    thresholds = np.concatenate([tree.threshold[nodes] for tree, nodes in zip(trees, inner, strict=True)] or [[]])
    finite = np.isfinite(thresholds)  # an infinite one parts missing values from all others
    features, thresholds = features[finite], thresholds[finite]
    if not len(thresholds):
        return None
    generator = np.random.default_rng(0)
    width = int(max(tree.n_features for tree in trees))
    chosen = generator.permutation(len(thresholds))[: _ROWS // 3]
    rows = generator.uniform(thresholds.min(), thresholds.max(), size=(3 * len(chosen), width))
    for index, split in enumerate(chosen):
        middle = np.float32(thresholds[split])
        for offset, value in enumerate((middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf))):
            rows[3 * index + offset, int(features[split])] = value
    return _undo(before, rows)


def _split(estimator: Estimator) -> tuple[list[Any], list[Any]]:
    """The steps before the trees, and the trees."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    steps = [step for _, step in getattr(estimator, "steps", [("", estimator)]) if step not in (None, "passthrough")]
    trees = [tree for part in steps_of(steps[-1]) for tree in trees_of(part)] if steps else []
    return steps[:-1], list({id(tree): tree for tree in trees}.values())


def _undo(steps: list[Any], rows: np.ndarray) -> np.ndarray | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for step in reversed(steps):
                rows = np.asarray(step.inverse_transform(rows))
    except Exception:  # a step without an inverse
        return None
    return rows if np.isfinite(rows).all() else None


def _differs(expected: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Row by row."""
    found = found.reshape(expected.shape)
    if expected.dtype.kind in "OUSbi":
        off = expected.astype(str) != found.astype(str)
    else:
        off = np.abs(expected - found) > _STEP * np.abs(expected).max()
    rows: np.ndarray = off.reshape(len(expected), -1).any(axis=1)
    return rows
