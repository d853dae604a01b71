"""Metrics by name, each against the implementation that people know.

scikit-learn is installed with the extras. What pycocotools and jiwer gave for these inputs stands here as numbers, with
the versions; where they are installed they are asked again.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any, cast

import numpy as np
import pytest

from onnxtool.errors import InputError, UsageError
from onnxtool.quantization.evaluation.box_match import MatchedImages
from onnxtool.quantization.evaluation.metrics import METRICS, accuracy
from onnxtool.quantization.evaluation.output_kind import OutputKind, parse_kinds
from onnxtool.quantization.evaluation.task_metric import LabelledTask

RANDOM = np.random.default_rng(7)


def score(name: str, outputs: dict[str, Any], labels: Any) -> float:
    return METRICS[name]({n: np.asarray(a) for n, a in outputs.items()}, np.asarray(labels))


def sklearn() -> Any:
    return pytest.importorskip("sklearn.metrics")


@pytest.mark.parametrize("classes", [2, 5])
def test_f1_is_that_of_scikit_learn(classes: int) -> None:
    labels = RANDOM.integers(0, classes, 200)
    logits = RANDOM.normal(size=(200, classes)) + 1.0 * np.eye(classes)[labels]
    average = "binary" if classes == 2 else "macro"
    expected = sklearn().f1_score(labels, logits.argmax(1), average=average)
    assert score("f1", {"logits": logits}, labels) == pytest.approx(expected)


def test_auc_is_that_of_scikit_learn_ties_included() -> None:
    labels = RANDOM.integers(0, 2, 300)
    scores = np.round(RANDOM.normal(size=300) + labels, 1)
    expected = sklearn().roc_auc_score(labels, scores)
    assert score("auc", {"y": scores}, labels) == pytest.approx(expected)
    assert score("auc", {"logits": np.stack([np.zeros(300), scores], 1)}, labels) == pytest.approx(expected)
    with pytest.raises(InputError, match="both classes"):
        score("auc", {"y": scores}, np.ones(300, int))


def test_r2_is_the_worst_targets() -> None:
    labels = RANDOM.normal(size=(100, 3))
    found = labels + RANDOM.normal(size=(100, 3)) * [0.1, 1.0, 0.3]
    expected = min(sklearn().r2_score(labels, found, multioutput="raw_values"))
    assert score("r2", {"y": found}, labels) == pytest.approx(expected)


def test_perplexity_is_the_mean_log_likelihood_of_what_counts() -> None:
    logits, labels = RANDOM.normal(size=(4, 6, 9)), RANDOM.integers(0, 9, (4, 6))
    labels[0, 3:] = -100
    kept = labels >= 0
    likely = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = -sklearn().log_loss(labels[kept], likely[kept], labels=list(range(9)))
    assert score("perplexity", {"logits": logits}, labels) == pytest.approx(expected)


def test_error_rates_of_texts() -> None:
    truth, found = ["the cat sat down", "hello world"], ["the cat sad town", "hello word"]
    assert score("wer", {"t": np.array(found, object)}, truth) == pytest.approx(1 - 0.5)  # jiwer 4.0: 0.5
    assert score("cer", {"t": np.array(found, object)}, truth) == pytest.approx(1 - 3 / 27)  # jiwer 4.0: 0.1111
    jiwer = pytest.importorskip("jiwer", reason="jiwer is not installed: its results stand above as numbers")
    assert score("wer", {"t": np.array(found, object)}, truth) == pytest.approx(1 - jiwer.wer(truth, found))
    assert score("cer", {"t": np.array(found, object)}, truth) == pytest.approx(1 - jiwer.cer(truth, found))


@pytest.mark.parametrize("blank", [0, 4])
def test_error_rates_of_what_a_decoder_reads_off(blank: int) -> None:
    letters = [1, 2, 3]
    steps = np.array([[blank, 1, 1, blank, 2, blank, 3, blank], [blank, blank, 1, blank, 1, blank, blank, blank]])
    logits = np.eye(5)[steps]
    assert score("cer", {"y": logits}, [[*letters, -1], [1, 1, -1, -1]]) == 1.0
    assert score("cer", {"y": logits}, [[1, 2, 2, -1], [1, 2, -1, -1]]) == pytest.approx(1 - 2 / 5)


@pytest.mark.parametrize("first", [True, False])
def test_miou_is_that_of_scikit_learn(first: bool) -> None:
    labels = RANDOM.integers(0, 4, (3, 8, 9))
    logits = RANDOM.normal(size=(3, 8, 9, 4)) + 1.5 * np.eye(4)[labels]
    expected = sklearn().jaccard_score(labels.reshape(-1), logits.argmax(-1).reshape(-1), average="macro")
    given = np.moveaxis(logits, -1, 1) if first else logits
    assert score("miou", {"mask": given}, labels) == pytest.approx(expected)
    unknown = labels.copy()
    unknown[0] = 255
    expected = sklearn().jaccard_score(labels[1:].reshape(-1), logits[1:].argmax(-1).reshape(-1), average="macro")
    assert score("miou", {"mask": given}, unknown) == pytest.approx(expected)


def test_retrieval_is_recall_at_one_of_scikit_learns_neighbours() -> None:
    neighbours = pytest.importorskip("sklearn.neighbors")
    labels = RANDOM.integers(0, 10, 80)
    vectors = RANDOM.normal(size=(80, 16)) + 1.2 * RANDOM.normal(size=(10, 16))[labels]
    found = neighbours.NearestNeighbors(n_neighbors=2, metric="cosine").fit(vectors).kneighbors(return_distance=False)
    nearest = np.array([row[0] for row in found])
    assert score("retrieval", {"e": vectors}, labels) == pytest.approx((labels[nearest] == labels).mean())
    with pytest.raises(InputError, match="several samples share"):
        score("retrieval", {"e": vectors}, np.arange(80))


def scene() -> tuple[np.ndarray, np.ndarray]:
    """Detections [images, 12, 6] and objects [n, 6]."""
    numbers = np.random.default_rng(3)
    objects, detections = [], np.zeros((4, 12, 6), np.float32)
    for image in range(4):
        for place in range(5):
            corner, size = numbers.uniform(0, 60, 2), numbers.uniform(8, 30, 2)
            kind = int(numbers.integers(0, 3))
            objects.append([image, kind, *corner, *(corner + size)])
            moved = np.array([*corner, *(corner + size)]) + numbers.normal(size=4) * (0.5 + 0.3 * place)
            detections[image, place] = [*moved, numbers.uniform(0.2, 1), kind]
        for place in range(5, 9):
            corner, size = numbers.uniform(0, 60, 2), numbers.uniform(8, 30, 2)
            detections[image, place] = [*corner, *(corner + size), numbers.uniform(0.05, 0.6), numbers.integers(0, 3)]
    return detections, np.array(objects, np.float32)


def coco(detections: np.ndarray, objects: np.ndarray) -> float:
    """What pycocotools gives."""
    tools = pytest.importorskip(
        "pycocotools.coco", reason="pycocotools is not installed: its result stands as a number"
    )
    from pycocotools.cocoeval import COCOeval

    truth = tools.COCO()
    truth.dataset = {
        "info": {},
        "images": [{"id": i} for i in range(len(detections))],
        "categories": [{"id": i} for i in range(3)],
        "annotations": [
            {
                "id": n + 1,
                "image_id": int(o[0]),
                "category_id": int(o[1]),
                "bbox": [float(o[2]), float(o[3]), float(o[4] - o[2]), float(o[5] - o[3])],
                "area": float((o[4] - o[2]) * (o[5] - o[3])),
                "iscrowd": 0,
            }
            for n, o in enumerate(objects)
        ],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        rows = [
            [i, d[0], d[1], d[2] - d[0], d[3] - d[1], d[4], d[5]]
            for i, image in enumerate(detections)
            for d in image
            if d[4] > 0
        ]
        judge = COCOeval(truth, truth.loadRes(np.array(rows, np.float64)), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return float(judge.stats[0])


def test_map_is_that_of_pycocotools() -> None:
    detections, objects = scene()
    found = score("map", {"d": detections}, objects)
    boxes = {"boxes": detections[..., :4], "scores": detections[..., 4], "labels": detections[..., 5].astype(np.int64)}
    assert score("map", boxes, objects) == found
    assert found == pytest.approx(COCO, abs=1e-6)
    assert found == pytest.approx(coco(detections, objects), abs=1e-6)


COCO = 0.5631371470480382  # of pycocotools 2.0.11


def test_map_has_a_bound_over_images() -> None:
    detections, objects = scene()
    images = len(detections)
    task = LabelledTask(cast(Any, None), objects, METRICS["map"], "map")
    task._axes = {"d": 0}
    same = task.compared({"d": detections}, {"d": detections}, 0.01)
    assert same.samples == images and same.drop == 0 and same.drop_at_most is not None
    assert same.drop_at_most == pytest.approx(1 - 0.05 ** (1 / images), rel=1e-3), "images that were not seen"
    worse = detections.copy()
    worse[: images // 2, :, 4] = 0  # nothing is found in half of them
    lost = task.compared({"d": detections}, {"d": worse}, 0.01)
    assert lost.drop_at_most is not None and lost.drop_at_most > lost.drop > 0.1


def test_map_of_chosen_images_is_that_of_a_set_of_them() -> None:
    """An image that is drawn twice counts twice."""
    detections, objects = scene()
    order = [2, 0, 2]
    own = [objects[objects[:, 0] == image].copy() for image in order]
    for position, rows in enumerate(own):
        rows[:, 0] = position
    found = MatchedImages.of({"d": detections}, objects).precision(order)
    assert found == pytest.approx(score("map", {"d": detections[order]}, np.concatenate(own)))


@pytest.mark.parametrize("name", sorted(METRICS))
def test_outputs_that_do_not_fit_are_one_line(name: str) -> None:
    with pytest.raises(InputError):
        score(name, {"y": np.zeros((3, 7, 2, 5))}, np.zeros((9, 4), int))


def test_output_kinds_are_set_by_name() -> None:
    found = parse_kinds(["a:embedding", "b:0:logits"], ["a", "b:0"])
    assert found == {"a": OutputKind.VECTORS, "b:0": OutputKind.CLASSES}
    for text in ("a", "a:picture", "c:mask"):
        with pytest.raises(UsageError, match="--output-kind"):
            parse_kinds([text], ["a", "b:0"])


def test_one_hot_labels_are_told_from_others() -> None:
    logits = np.eye(4, dtype=np.float32)
    with pytest.raises(InputError, match=r"one-hot.*argmax"):
        accuracy({"y": logits}, np.eye(4))
    with pytest.raises(InputError, match="fit none of the outputs"):
        accuracy({"y": logits}, np.full((4, 4), 0.25))


def test_a_label_without_a_class_is_an_error_and_a_negative_one_is_not() -> None:
    logits = np.eye(4, dtype=np.float32)
    with pytest.raises(InputError, match=r"label 4 \(at 2\) is beyond the 4 classes of output 'y'"):
        accuracy({"y": logits}, np.array([0, 1, 4, 3]))
    assert accuracy({"y": logits}, np.array([0, 1, -100, 3])) == 0.75
