"""Softmax, best classes, names, and boxes that stay, held against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxtool.editing.operations.suppression import NmsOptions, suppressed
from onnxtool.errors import InputError, UnsupportedError, UsageError
from tests.editing.conftest import Editor

LOGITS = "g (float[n, 4] x) => (float[n, 5] logits) { logits = MatMul(x, w) }"
W = {"w": np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)}
X = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)


def test_softmax_keeps_the_name(edited: Editor) -> None:
    made = edited(LOGITS, "post=softmax", weights=W)
    powers = np.exp(X @ W["w"])
    assert np.allclose(made.run(x=X)["logits"], powers / powers.sum(-1, keepdims=True), atol=1e-6)


def test_argmax(edited: Editor) -> None:
    made = edited(LOGITS, "post=logits: argmax", weights=W)
    assert np.array_equal(made.run(x=X)["logits_class"], (X @ W["w"]).argmax(-1))


@pytest.mark.parametrize("post", ["softmax", "argmax", "topk=2"])
def test_older_operators_are_lifted(post: str, edited: Editor) -> None:
    made = edited(LOGITS, f"post={post}", weights=W, opset=9)
    assert made.proto.opset_import[0].version == 13
    newer = edited(LOGITS, f"post={post}", weights=W)
    for found, expected in zip(made.run(x=X).values(), newer.run(x=X).values(), strict=True):
        assert np.allclose(found, expected, atol=1e-6)


def test_the_best_three(edited: Editor) -> None:
    made = edited(LOGITS, "post=topk=3", weights=W)
    scores = X @ W["w"]
    results = made.run(x=X)
    order = np.argsort(-scores, -1)[:, :3]
    assert np.array_equal(results["logits_indices"], order)
    assert np.allclose(results["logits_values"], np.take_along_axis(scores, order, -1))
    assert [o.shape for o in made.report.outputs] == [("n", 3), ("n", 3)]


def test_names_of_classes(edited: Editor, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("cat\ndog\nbird\nfish\nRöhre\n", encoding="utf-8")
    made = edited(LOGITS, f"post=labels={tmp_path / 'labels.txt'}", weights=W)
    names = np.array(["cat", "dog", "bird", "fish", "Röhre"], object)
    assert made.run(x=X)["logits_label"].tolist() == names[(X @ W["w"]).argmax(-1)].tolist()


def test_as_many_names_as_classes(edited: Editor, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("cat\ndog\n", encoding="utf-8")
    with pytest.raises(UsageError, match="has 2 lines for 5 classes"):
        edited(LOGITS, f"post=labels={tmp_path / 'labels.txt'}", weights=W)
    with pytest.raises(InputError, match="cannot be read"):
        edited(LOGITS, f"post=labels={tmp_path / 'nothing.txt'}", weights=W)


@pytest.mark.parametrize("centre", [False, True])
def test_of_boxes_that_overlap_the_best_stays(edited: Editor, centre: bool) -> None:
    text = """g (float[1, 12, 4] b, float[1, 2, 12] s) => (float[1, 12, 4] boxes, float[1, 2, 12] scores) {
        boxes = Identity(b)
        scores = Identity(s)
    }"""
    made = edited(text, f"post=nms=boxes,scores,iou=0.4,score=0.3,box={'center' if centre else 'corners'}")
    generator = np.random.default_rng(3)
    corner, side = generator.uniform(0, 10, (1, 12, 2)), generator.uniform(3, 8, (1, 12, 2))
    boxes = np.concatenate([corner, side if centre else corner + side], -1).astype(np.float32)
    scores = generator.uniform(0, 1, (1, 2, 12)).astype(np.float32)
    got = made.run(b=boxes, s=scores)
    wanted = suppressed(boxes, scores, NmsOptions("boxes", "scores", 0.4, 0.3, 100, centre))
    for name, array in zip(("boxes", "scores", "classes", "batch_indices"), wanted, strict=True):
        assert np.array_equal(got[f"nms_{name}"], array), name
    assert 0 < len(wanted[0]) < 24


def test_suppression_by_hand() -> None:
    boxes = np.float32([[[0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]]])
    scores = np.float32([[[0.9, 0.8, 0.2]]])
    kept = suppressed(boxes, scores, NmsOptions("b", "s", 0.5, 0.1))
    assert kept[1].tolist() == [np.float32(0.9), np.float32(0.2)]


def test_scores_by_box_are_turned(edited: Editor) -> None:
    text = """g (float[1, 6, 4] b, float[1, 6, 2] s) => (float[1, 6, 4] boxes, float[1, 6, 2] scores) {
        boxes = Identity(b)
        scores = Identity(s)
    }"""
    made = edited(text, "post=nms=boxes,scores,score=0.5")
    boxes = np.tile(np.float32([[0, 0, 1, 1]]), (6, 1)) + 3 * np.arange(6, dtype=np.float32)[:, None]
    scores = np.float32([[[0.9, 0], [0, 0.8], [0, 0], [0, 0], [0, 0], [0, 0]]])
    assert sorted(made.run(b=boxes[None], s=scores)["nms_classes"].tolist()) == [0, 1]


@pytest.mark.parametrize(
    "words",
    [
        "frob",
        "topk=0",
        "topk=x",
        "topk=9",
        "nms=a",
        "nms=logits,logits,iou=2",
        "argmax=3",
        "labels",
        "nothing: softmax",
    ],
)
def test_nonsense_is_refused(edited: Editor, words: str) -> None:
    with pytest.raises((UsageError, UnsupportedError)):
        edited(LOGITS, f"post={words}", weights=W)
