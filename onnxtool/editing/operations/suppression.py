"""Non-maximum suppression: of boxes that overlap, the best one stays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.editing.graph_builder import Builder, find_output
from onnxtool.editing.operations.parts import Extract
from onnxtool.editing.proofs import compare, same_outputs
from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.model.ir.queries import value_spec
from onnxtool.report.edit import Proof
from onnxtool.runtime.session.session import EXACT as _EXACT


@dataclass(frozen=True)
class NmsOptions:
    """How boxes are chosen.

    Attributes:
        boxes: output with boxes, float [batch, n, 4].
        scores: output with scores, float [batch, classes, n], or [batch, n, classes].
        iou: of two boxes of a class that overlap by more than this share, the better one stays.
        score: boxes with less are left out.
        most: boxes for each class and picture.
        centre: boxes are (x, y, width, height), not two corners.
    """

    boxes: str = ""
    scores: str = ""
    iou: float = 0.45
    score: float = 0.25
    most: int = 100
    centre: bool = False


def parse(argument: str, text: str) -> NmsOptions:
    """Parse "BOXES,SCORES,iou=0.45,score=0.25,max=100,box=center".

    Raises:
        UsageError: another form.
    """
    parts = [p.strip() for p in argument.split(",") if p.strip()]
    names = [p for p in parts if "=" not in p]
    wrong = UsageError(f"--post {text}: write nms=BOXES,SCORES,iou=0.45,score=0.25,max=100,box=corners|center.")
    if len(names) != 2:
        raise wrong
    numbers: dict[str, float] = {"iou": 0.45, "score": 0.25, "max": 100.0}
    centre = False
    for key, _, value in (p.partition("=") for p in parts if "=" in p):
        if key == "box" and value in ("corners", "center"):
            centre = value == "center"
            continue
        try:
            numbers[key] = {**numbers, key: float(value)}[key] if key in numbers else float("nan")
        except ValueError:
            raise wrong from None
    if (
        not 0 <= numbers["iou"] <= 1
        or not 1 <= numbers["max"] < 1e9
        or not all(np.isfinite(n) for n in numbers.values())
    ):
        raise wrong
    return NmsOptions(names[0], names[1], numbers["iou"], numbers["score"], int(numbers["max"]), centre)


def apply(model: ir.Model, build: Builder, options: NmsOptions, option: str) -> tuple[str, ...]:
    """Replace the outputs with boxes and scores by those of the boxes that stay; their names."""
    boxes, scores = (find_output(model, n, option) for n in (options.boxes, options.scores))
    left, right = value_spec(boxes), value_spec(scores)
    fits = left.shape is not None and right.shape is not None and len(left.shape) == len(right.shape) == 3
    if not fits or boxes is scores or any(isinstance(s.dtype, str) or s.dtype != np.float32 for s in (left, right)):
        raise UnsupportedError(
            f"nms takes float32 boxes [batch, n, 4] and scores [batch, classes, n]; the model gives "
            f"{left.info()} and {right.info()}."
        )
    assert left.shape is not None and right.shape is not None
    if left.shape[2] != 4 and isinstance(left.shape[2], int):
        raise UnsupportedError(f"nms takes boxes [batch, n, 4]; the model gives {left.info()}.")
    floats, whole = ir.DataType.FLOAT, ir.DataType.INT64
    rows = scores
    if not is_by_class(left.shape, right.shape):
        rows = build.add("Transpose", [scores], "by_class", {"perm": [0, 2, 1]}, floats)
    numbers = [
        build.constant([options.most], "most", np.int64),
        build.constant([options.iou], "iou", np.float32),
        build.constant([options.score], "score", np.float32),
    ]
    kept = build.add(
        "NonMaxSuppression", [boxes, rows, *numbers], "kept", {"center_point_box": int(options.centre)}, whole
    )
    columns = [build.constant([n], f"column_{n}", np.int64) for n in range(3)]
    batch, classes, places = (
        build.add("Gather", [kept, c], f"part_{i}", {"axis": 1}, whole) for i, c in enumerate(columns)
    )
    where = build.add("Concat", [batch, places], "box_places", {"axis": 1}, whole)
    axis = build.constant([1], "axis", np.int64)
    results = [
        build.add("GatherND", [boxes, where], "boxes", None, floats),
        build.add("GatherND", [rows, kept], "scores", None, floats),
        build.add("Squeeze", [classes, axis], "classes", None, whole),
        build.add("Squeeze", [batch, axis], "batch_indices", None, whole),
    ]
    build.at_end()
    for result, width in zip(results, (4, 0, 0, 0), strict=True):
        result.shape = ir.Shape(["kept", width] if width else ["kept"])
    rest = [v for v in model.graph.outputs if v is not boxes and v is not scores]
    model.graph.outputs[:] = [*results, *rest]
    return tuple(r.name or "" for r in results)


def is_by_class(boxes: tuple[object, ...], scores: tuple[object, ...]) -> bool:
    """True for scores [batch, classes, n], False for [batch, n, classes]: n is the boxes' second dim."""
    return scores[2] == boxes[1] or scores[1] != boxes[1]


def prove(before: ir.Model, after: ir.Model, options: NmsOptions, made: tuple[str, ...], context: EditContext) -> Proof:
    """Hold the boxes that stay against a suppression in NumPy, on the model's own outputs and on invented boxes."""
    boxes, scores = (value_spec(find_output(before, n, "post")).shape or () for n in (options.boxes, options.scores))
    by_class = is_by_class(boxes, scores)

    def expect(_: object, outputs: object) -> dict[str, object]:
        assert isinstance(outputs, dict)
        given = np.asarray(outputs[options.scores])
        found = suppressed(np.asarray(outputs[options.boxes]), given if by_class else given.transpose(0, 2, 1), options)
        rest = {n: a for n, a in outputs.items() if n not in (options.boxes, options.scores)}
        return {**dict(zip(made, found, strict=True)), **rest}

    proof = same_outputs(before, after, context, "", expect=expect)
    claim = "the boxes that stay are those that NumPy chooses from the model's own outputs, and from invented ones"
    alone, cases = _alone(after, options, by_class, made, context.seed)
    invented = compare(alone, cases, context, claim)
    return Proof(
        claim, proof.runs + invented.runs, proof.exact and invented.exact, max(proof.max_abs, invented.max_abs)
    )


def _alone(
    after: ir.Model, options: NmsOptions, by_class: bool, made: tuple[str, ...], seed: int
) -> tuple[ir.Model, list[tuple[dict[str, np.ndarray], dict[str, object]]]]:
    """The suppression by itself, cut out of the model, on boxes that overlap."""
    part = after.clone()
    for value in part.graph.outputs:
        if value.name in made:
            value.shape = ir.Shape(["kept", 4] if value.name == made[0] else ["kept"])
    cut = Extract(f"{options.boxes},{options.scores}:{','.join(made)}")
    for node in part.graph:
        for value in node.outputs:
            if value.name in (options.boxes, options.scores):
                value.shape = ir.Shape([None, None, 4 if value.name == options.boxes else None])
    alone = cut.apply(part, EditContext(options=_EXACT))
    generator = np.random.default_rng(seed)
    cases: list[tuple[dict[str, np.ndarray], dict[str, object]]] = []
    for count, classes, batch in ((40, 3, 1), (25, 1, 2), (1, 2, 1)):
        corners = generator.uniform(0, 20, (batch, count, 2))
        sides = generator.uniform(4, 12, (batch, count, 2))
        boxes = np.concatenate([corners, sides if options.centre else corners + sides], -1).astype(np.float32)
        scores = generator.uniform(0, 1, (batch, classes, count)).astype(np.float32) * max(1.0, 2 * abs(options.score))
        feeds = {
            options.boxes: boxes,
            options.scores: scores if by_class else np.ascontiguousarray(scores.transpose(0, 2, 1)),
        }
        cases.append((feeds, dict(zip(made, suppressed(boxes, scores, options), strict=True))))
    return alone, cases


def suppressed(
    boxes: np.ndarray, scores: np.ndarray, options: NmsOptions
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Greedy suppression for each picture and class, the best box first (as ONNX defines NonMaxSuppression).

    Args:
        boxes: float32 [batch, n, 4].
        scores: float32 [batch, classes, n].
        options: thresholds.

    Returns:
        (boxes [k, 4], scores [k], classes [k], batch indices [k]).
    """
    kept: list[tuple[int, int, int]] = []
    corners = _corners(boxes, options.centre)
    for picture in range(scores.shape[0]):
        for kind in range(scores.shape[1]):
            own = scores[picture, kind]
            order = [int(i) for i in np.argsort(-own, kind="stable") if own[i] > np.float32(options.score)]
            chosen: list[int] = []
            for index in order:
                if len(chosen) == options.most:
                    break
                if all(
                    _overlap(corners[picture, index], corners[picture, c]) <= np.float32(options.iou) for c in chosen
                ):
                    chosen.append(index)
            kept += [(picture, kind, c) for c in chosen]
    places = np.array(kept, np.int64).reshape(-1, 3)
    return (
        boxes[places[:, 0], places[:, 2]],
        scores[places[:, 0], places[:, 1], places[:, 2]],
        places[:, 1],
        places[:, 0],
    )


def _corners(boxes: np.ndarray, centre: bool) -> np.ndarray:
    first, second = boxes[..., :2], boxes[..., 2:]
    if centre:  # the runtime takes negative sides as they are here, and swaps corners below
        return np.concatenate([first - second / 2, first + second / 2], -1)
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


def _overlap(a: np.ndarray, b: np.ndarray) -> np.floating:
    """Intersection over union of two boxes."""
    sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    shared = sides[0] * sides[1]
    areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    union = areas - shared
    empty = min((a[2] - a[0]) * (a[3] - a[1]), (b[2] - b[0]) * (b[3] - b[1])) <= 0
    return np.float32(0 if empty or union <= 0 else shared / union)
