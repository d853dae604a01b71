from __future__ import annotations

import numpy as np
import pytest

from onnxtool.quantization.evaluation import class_agreement
from onnxtool.quantization.evaluation.class_agreement import ClassF1, class_axis
from onnxtool.quantization.evaluation.criterion import Criterion
from tests.quantization.evaluation.test_fidelity import judged


def maps(shared: float, classes: int = 4, samples: int = 40) -> np.ndarray:
    """[samples, classes, 6, 6]: independent channels, each less this share of their mean."""
    values = np.random.default_rng(1).normal(size=(samples, classes, 6, 6))
    values -= shared * values.mean(axis=1, keepdims=True)
    return values.astype(np.float32)


@pytest.mark.parametrize(("shared", "axis"), [(1.0, 1), (0.57, 1), (0.53, None), (0.0, None), (-1.0, None)])
def test_channels_that_exclude_one_another_are_classes(shared: float, axis: int | None) -> None:
    values = maps(shared)
    assert class_axis([values[:30], values[30:]]) == axis
    assert class_axis([np.moveaxis(values, 1, -1) + 3]) == (None if axis is None else -1)


def test_single_channels_matrices_and_constants_are_no_maps_of_classes() -> None:
    values = maps(1.0)
    assert class_axis([values[:, :1]]) is None and class_axis([values[:, :, 0, 0]]) is None
    assert class_axis([np.ones_like(values)]) is None and class_axis([values.astype(np.int64)]) is None
    assert class_axis([values, values[:, :3]]) is None, "another number of channels in each batch"
    assert class_axis([maps(1.0, 2)]) == 1


def places(counts: tuple[int, ...], samples: int) -> np.ndarray:
    """[samples, places, 3] probabilities: so many places of each class, each named with 0.5 before 0.3 and 0.2."""
    rows = [np.roll([0.5, 0.3, 0.2], best) for best, count in enumerate(counts) for _ in range(count)]
    return np.tile(np.array(rows, np.float32), (samples, 1, 1))


def f1_lost(right: np.ndarray, actual: np.ndarray, confidence: float | None = None) -> float | None:
    found = ClassF1()
    for one, other in zip(np.array_split(right, 3), np.array_split(actual, 3), strict=True):
        found.add(one, one.argmax(-1), other.argmax(-1))
    return found.lost(confidence)


def test_a_class_that_is_not_named_any_more_loses_its_f1() -> None:
    right = places((40, 20, 4), 9)
    actual = right.copy()
    actual[:, 60:] = [0.9, 0.06, 0.04]  # the four of the third class
    labels = right.sum((0, 1))  # that are expected
    before = 2 * 0.5 * 9 * np.array([40, 20, 4]) / (labels + 9 * np.array([40, 20, 4]))
    after = 2 * 9 * np.array([20 + 4 * 0.3, 10, 0]) / (labels + 9 * np.array([44, 20, 0]))
    assert f1_lost(right, actual) == pytest.approx(float((1 - after / before).mean()), rel=1e-5)
    assert f1_lost(right, right) == 0 and f1_lost(right, right, 0.95) == 0


def test_each_sample_alike_leaves_nothing_open_and_few_that_differ_do() -> None:
    right = places((40, 20, 4), 40)
    everywhere, rarely = right.copy(), right.copy()
    everywhere[:, 63:] = rarely[:10, 60:] = [0.9, 0.06, 0.04]  # one of four in every sample; all four in a quarter
    assert f1_lost(right, everywhere) == pytest.approx(f1_lost(right, rarely))
    assert f1_lost(right, everywhere, 0.95) == pytest.approx(f1_lost(right, everywhere), rel=1e-6)
    assert (f1_lost(right, rarely, 0.95) or 0) > 1.3 * (f1_lost(right, rarely) or 1)


@pytest.mark.parametrize(("count", "samples", "counts"), [(4, 8, True), (3, 8, False), (5, 7, False)])
def test_a_class_counts_from_32_places_in_8_samples_on(count: int, samples: int, counts: bool) -> None:
    right = places((40, 20, count), samples)
    actual = right.copy()
    actual[:, 60:] = [0.9, 0.06, 0.04]
    lost = f1_lost(right, actual)
    assert (lost is None) is (samples < 8), "the other two count all the same"
    assert ((lost or 0) > 0.2) is counts


def test_of_many_places_some_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    right = places((40, 20, 4), 9)
    actual = right.copy()
    actual[:, 60:] = [0.9, 0.06, 0.04]
    monkeypatch.setattr(class_agreement, "_MOST_COUNTED", 33)  # every second one
    found = ClassF1()
    found.add(right, right.argmax(-1), actual.argmax(-1))
    assert [t[1].sum() for t in found.tallies] == [32] * 9
    monkeypatch.setattr(class_agreement, "MOST_CLASSES", 2)
    found.add(right, right.argmax(-1), actual.argmax(-1))
    assert len(found.tallies) == 9


@pytest.mark.parametrize("last", [False, True])
def test_a_rare_class_of_a_map_that_is_lost_is_not_kept(last: bool) -> None:
    """Next to no noise, no accuracy lost, and the class that the model is there for is never named."""
    right = maps(1.0, 3, 96) * 4
    right[:, 2] -= 20
    rare = np.zeros((96, 6, 6), bool)
    rare[:, 2, 3] = True
    right.transpose(0, 2, 3, 1)[rare] = [0.0, -3.0, 0.06]
    actual = right + np.float32(0)
    actual[:, 2] -= 0.1
    if last:
        right, actual = (np.moveaxis(a, 1, -1) for a in (right, actual))
    seen = judged(right, actual, "Identity")
    assert seen.margin_db > 3 and (seen.expected_drop or 0) < 0.005
    assert not Criterion().judge(seen).kept and "F1 of classes" in Criterion().judge(seen).worst.text
    assert Criterion().judge(judged(right, right + np.float32(0.001), "Identity")).kept


@pytest.mark.parametrize(("shared", "db", "kept"), [(1.0, 20.6, True), (1.0, 19.4, False), (0.0, 24.4, False)])
def test_logits_of_pixels_need_20_db_and_pictures_25(shared: float, db: float, kept: bool) -> None:
    right = maps(shared, 3, 300) * 20
    noise = np.random.default_rng(2).normal(size=right.shape) * right.std() * 10 ** (-db / 20)
    seen = judged(right, right + noise.astype(np.float32), "Identity")
    assert (seen.bounds["margin_db"] >= 0) is kept


def test_colours_are_no_classes() -> None:
    right = maps(-1.0, 3, 96)
    assert judged(right, right + np.float32(0.01), "Identity").agreement is None


@pytest.mark.parametrize("level", [0.0, 1000.0])
def test_the_highest_of_values_is_judged_by_what_another_one_is_worth_less(level: float) -> None:
    """No Softmax: in their units every flip would be from a sure class, or from none."""
    random = np.random.default_rng(1)
    right = level + 100 * random.normal(size=(400, 5))
    actual = right + 2 * random.normal(size=right.shape)
    lost = np.take_along_axis(right, actual.argmax(1)[:, None], 1)[:, 0]
    gain = (right.max(1) - right.mean(1)).mean()
    seen = judged(right, actual)
    assert seen.expected_drop == pytest.approx((right.max(1) - lost).mean() / gain, rel=1e-4) and seen.expected_drop > 0
    assert (seen.drop_at_most or 1) < 0.01 and Criterion().judge(seen).kept
    assert not Criterion().judge(judged(right, right - 60 * (right == right.max(1, keepdims=True)))).kept
    exclusive = right - right.mean(1, keepdims=True)
    flipped = judged(exclusive, exclusive + actual - right)
    assert (flipped.expected_drop or 0) > 3 * seen.expected_drop, "a Softmax of these is sure"
