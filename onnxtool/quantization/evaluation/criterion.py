"""The accuracy budget: what a quantized model may lose, and what each of its outputs loses of that."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from onnxtool.quantization.evaluation.bounds import samples_to_show
from onnxtool.report.quantize import Fidelity, TaskMetric

DEFAULT_DROP = 0.01  # one point
# Without labels. Where a flip costs next to nothing by the float model's own probabilities (two tokens that it holds
# for equally likely), more of them are allowed, and twice as many with so little noise: what flips are near ties then,
# which float decides by chance too.
_MOST_FLIPS, _CLOSE_DB, _MOST_FLIPS_CLOSE = 5, 30.0, 10
_UNSURE = 1.5  # times the cost: how near to a threshold a score is, is not how sure it is
_MOST_FLIPPED_CLOSE = 2  # scores beside a threshold, of fewer than
_MANY_FOUND = 200
_RARE_SHIFT = 3  # times the loss to stay within: of a score, where only a few are as high
_RARE_MISSED = 2  # times the same: their F1, of which one in a few dozen is as much
_CLASS_MISSED = 2  # times the same: the mean F1 of classes, of which rare ones count as much as others
_MOST_SHIFT = 2  # times the loss to stay within: of the sum of a map of amounts
VECTOR_COSINE = 0.98  # vectors for comparing
_LABELS_DB = 5.0  # below which labels need not be asked
_ROOM, _HOPELESS = 0.5, 4.0  # times what is allowed: within it with room to spare, and far outside
_ROUNDING = 1e-9
_MOST_SAMPLES = 100  # times those that were seen: more are not asked for


@dataclass(frozen=True)
class OutputLoss:
    """What is lost in one respect, as a multiple of what is allowed.

    Attributes:
        text: what it is, and by how much.
        measured: on the samples that were seen.
        at_most: by the end of the interval where there is one.
    """

    text: str
    measured: float
    at_most: float


@dataclass(frozen=True)
class AccuracyVerdict:
    """What a candidate loses in every respect that counts."""

    losses: tuple[OutputLoss, ...]

    @property
    def kept(self) -> bool:
        """True when the budget is kept: by the end of every interval."""
        return all(loss.at_most <= 1 + _ROUNDING for loss in self.losses)

    @property
    def has_room(self) -> bool:
        """True when a first look, on few samples, shows the budget to be kept with half of it to spare."""
        return all(loss.at_most <= _ROOM + _ROUNDING for loss in self.losses)

    @property
    def hopeless(self) -> bool:
        """True when a first look shows a candidate to be far outside, so that a full evaluation is pointless."""
        return any(loss.measured > _HOPELESS for loss in self.losses)

    @property
    def worst(self) -> OutputLoss:
        """What breaks the budget most; call it only where it is broken."""
        return max(self.losses, key=lambda loss: loss.at_most)


def _if_it_is(seen: Fidelity, other: str, word: str) -> str:
    """What to say of a linear layer's result, which may be logits as well as targets, where it is the `other` one."""
    linear = next((name for name, kind in seen.kinds.items() if kind == "linear"), None)
    told = linear is None or "classes" in seen.kinds.values()
    return "" if told else f" (if {linear} {other}: --output-kind {linear}:{word})"


def _noise_in_words(seen: Fidelity) -> str:
    where, least = seen.weakest or "the output", seen.at_bound("margin_db") or 0.0
    logits = "" if seen.agreement is None else _if_it_is(seen, "holds classes", "logits")
    if seen.margin_db <= 0:
        return f"{where} has {-seen.margin_db:.1f} dB less than it needs{logits}"
    if least >= 0:
        return f"{where} has what it needs"
    samples = math.ceil(seen.samples * ((seen.margin_db - least) / seen.margin_db) ** 2)
    shown = (
        f"{where} is {seen.margin_db:.1f} dB above what it needs, but {seen.samples} samples show {least:.1f} dB only"
        + logits
    )
    return f"{shown}; some {samples:,} would do" if samples <= _MOST_SAMPLES * seen.samples else shown


def _points(share: float) -> str:
    return f"{share * 100:.2g} points"


@dataclass(frozen=True)
class Criterion:
    """What may be lost.

    Attributes:
        max_drop: largest loss of the task metric (0.01 is one point); without labels, the loss to stay within by
            the fidelity of the outputs.
        labelled: a task metric decides.
    """

    max_drop: float = DEFAULT_DROP
    labelled: bool = False

    def judge(self, seen: Fidelity, metric: TaskMetric | None = None) -> AccuracyVerdict:
        """What a candidate loses.

        With labels the bound of the loss decides. Where so few cannot show that, the loss that was measured has to
        be within the budget, and what the outputs would cost without labels.
        """
        if metric is None and self.labelled:
            lost = float("inf") if seen.channel_db < _LABELS_DB else 0.0
            return AccuracyVerdict((OutputLoss("the labels were not asked", lost, float("inf")),))
        if metric is not None:
            if metric.drop_at_most is not None and metric.drop_at_most <= self.max_drop + _ROUNDING:
                return AccuracyVerdict(())
            if metric.drop > self.max_drop + _ROUNDING:
                lost = metric.drop / self._allowed
                return AccuracyVerdict((OutputLoss(f"{metric.name} loses {_points(metric.drop)}", lost, lost),))
        # What excuses one output, such as a text that stays what it was, says nothing of the others.
        return AccuracyVerdict(tuple(loss for part in seen.parts or (seen,) for loss in self._losses(part)))

    @property
    def _allowed(self) -> float:
        return max(self.max_drop, _ROUNDING)

    def _losses(self, seen: Fidelity) -> Iterator[OutputLoss]:
        measured, most = (10 ** (-(db or 0.0) / 10) for db in (seen.margin_db, seen.at_bound("margin_db")))
        noisy = OutputLoss(_noise_in_words(seen), measured, most)
        flips = self._flips(seen)
        if flips is None or not seen.sequences:
            yield noisy
            yield from () if flips is None else (flips[1],)
        else:  # noise does not matter where texts stay what they were
            few, costly = flips
            yield few if few.at_most <= max(most, costly.at_most) else max(noisy, costly, key=lambda one: one.at_most)
        if seen.vector_cosine is not None:
            lost = [
                (1 - (c or 0.0)) / (1 - VECTOR_COSINE) for c in (seen.vector_cosine, seen.at_bound("vector_cosine"))
            ]
            yield OutputLoss(f"vectors: cosine {seen.vector_cosine:.3g}", *lost)
        # Of the few that a first look sees, these say too little for a candidate to be given up.
        recall = seen.at_bound("neighbours")
        others = [
            (None if recall is None else 1 - recall, self._allowed, "{:.2%} of what is nearest lost at most"),
            (seen.at_bound("total_shift"), _MOST_SHIFT * self._allowed, "the sum of a map is {:.2%} off at most"),
            (seen.at_bound("rare_shift"), _RARE_SHIFT * self._allowed, "high scores move by {:.3f} at most"),
            (
                None if seen.rare_f1 is None else 1 - seen.rare_f1,
                _RARE_MISSED * self._allowed,
                "F1 of high scores: {:.3f} lost",
            ),
            (seen.at_bound("class_f1_lost"), _CLASS_MISSED * self._allowed, "mean F1 of classes: {:.3f} lost at most"),
            (self._missed_in_samples(seen), self._allowed, "F1 in each picture: {:.3f} lost at most"),
            (self._missed(seen), self._allowed, "F1 of scores: {:.3f} lost at most"),
        ]
        for loss, allowed, text in others:
            if loss is not None:
                hint = _if_it_is(seen, "holds no classes", "values") if "classes" in text else ""
                yield OutputLoss(text.format(loss) + hint, 0.0, loss / allowed)

    def _flips(self, seen: Fidelity) -> tuple[OutputLoss, OutputLoss] | None:
        """Other classes: as they are counted, and the same or what they cost, whichever is less; None without any."""
        if seen.agreement is None or seen.expected_drop is None:
            return None
        share = 1 - seen.agreement
        most = _MOST_FLIPS_CLOSE if seen.channel_db >= _CLOSE_DB else _MOST_FLIPS
        flipped = (share if seen.flips_at_most is None else seen.flips_at_most) / self._allowed
        cost = (seen.expected_drop if seen.drop_at_most is None else seen.drop_at_most) / self._allowed
        many = (share if seen.flips_counted is None else seen.flips_counted) / (most * self._allowed)
        counted = OutputLoss(f"{share:.1%} of characters are others", share / self._allowed, flipped)
        text = f"other classes cost {_points(cost * self._allowed)} at most"
        text = text if math.isfinite(cost) else "one sample does not tell what other classes cost"
        text = text if cost >= many else f"{share:.1%} of classes are others"
        needed = samples_to_show(seen.samples, seen.expected_drop, cost * self._allowed, self._allowed)
        text += f"; some {needed:,} samples would do" if cost > 1 and needed else ""
        text += _if_it_is(seen, "holds no classes", "values")
        return counted, OutputLoss(text, many, min(flipped, max(cost, many)))

    def _missed_in_samples(self, seen: Fidelity) -> float | None:
        """F1 that is lost in each picture, or a multiple of what that costs: a few pixels at the rim cost nothing."""
        agreement, cost = seen.at_bound("sample_f1"), seen.at_bound("sample_cost")
        if agreement is None:
            return None
        return 1 - agreement if cost is None else min(1 - agreement, _UNSURE * cost)

    def _missed(self, seen: Fidelity) -> float | None:
        """F1 of scores over a threshold that is lost, less where what differs are near ties."""
        least = seen.at_bound("detection_f1")
        if seen.detection_f1 is None or least is None:
            return None
        close = seen.channel_db >= _CLOSE_DB
        # Of a few dozen, one is as much as two in a hundred.
        flipped = _MOST_FLIPPED_CLOSE if close and seen.detections < _MANY_FOUND else 1
        flips = _MOST_FLIPS_CLOSE if close else _MOST_FLIPS
        lost = 1 - seen.detection_f1
        near_ties = 1.0 if seen.detection_cost is None else max(lost / flips, _UNSURE * seen.detection_cost)
        return min((1 - least) / flipped, near_ties)

    @property
    def words(self) -> str:
        """The budget in one sentence."""
        points = f"{self.max_drop * 100:g} point{'' if self.max_drop == 0.01 else 's'}"
        if self.labelled:
            return f"at most {points} below float on the labelled data, by the end of the interval"
        return (
            f"at most {points} lost on held-out calibration samples, by what each output is for and by the end of each "
            "interval"
        )
