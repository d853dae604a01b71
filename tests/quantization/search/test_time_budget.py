"""The time limit of a search: what fits, what is cut short, and that slow models do not run forever."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import onnxtool
from onnxtool.model.spec import TensorSpec
from onnxtool.quantization.search import time_budget
from onnxtool.quantization.search.time_budget import TimeBudget
from onnxtool.runtime.data.open_data import open_data
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.timing import timing


def started(ago: float, limit: float = 100.0) -> TimeBudget:
    return TimeBudget(limit, time.perf_counter() - ago)


def test_a_stage_ends_at_its_share_of_the_limit() -> None:
    assert started(10).allows("families")
    assert not started(40).allows("families")
    assert started(40).allows("moves")
    assert not started(101).allows("choice")


def test_what_a_candidate_costs_has_to_fit_before_the_end_and_the_writing_of_the_winner_too() -> None:
    clock = started(70)
    assert clock.allows("repair", tries=30)
    clock.took(4.5)
    assert clock.allows("repair", tries=3)
    assert not clock.allows("repair", tries=4), "4 x 4.5 s, as much to write the winner, and twice that to choose it"
    clock.took(11.0)
    assert not clock.allows("repair"), "candidates have become dearer"


def test_the_choice_leaves_time_for_writing_alone() -> None:
    clock = started(89)
    clock.took(4.9)
    assert clock.allows("choice")
    assert not clock.allows("choice", tries=2)


def test_writing_the_winner_takes_a_build_besides() -> None:
    clock = started(89)
    clock.took(2.0)
    assert clock.allows("choice", tries=4)
    clock.built(1.5)
    assert clock.writing == 3.5 and clock.next_build == 1.5
    assert clock.allows("choice", tries=3) and not clock.allows("choice", tries=4)


def test_a_command_counts_what_it_took_to_load() -> None:
    began = time.perf_counter() - 60
    with time_budget.counted_from(began):
        assert TimeBudget(100.0).began == time_budget.beginning() == began
    assert TimeBudget(100.0).spent < 30


def at(moment: float, monkeypatch: pytest.MonkeyPatch) -> TimeBudget:
    """A budget of 100 s that began at 0, at this moment; 0.5 s for each candidate are exact in binary."""
    monkeypatch.setattr(time_budget, "time", SimpleNamespace(perf_counter=lambda: moment))
    return TimeBudget(100.0, 0.0)


STAGES = {
    "ranges": 45,
    "judging": 35,
    "families": 35,
    "moves": 60,
    "repair": 75,
    "late moves": 87,
    "choice": 100,
}


@pytest.mark.parametrize(("stage", "ends"), STAGES.items())
def test_each_stage_is_over_at_its_moment(stage: str, ends: float, monkeypatch: pytest.MonkeyPatch) -> None:
    assert at(ends - 0.125, monkeypatch).allows(stage)
    assert not at(ends, monkeypatch).allows(stage)
    assert at(0.0, monkeypatch).moment(stage) == pytest.approx(ends)


@pytest.mark.parametrize(("moment", "fits"), [(73.875, True), (74.0, False)])
def test_one_candidate_is_asked_for_unless_told(moment: float, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = at(moment, monkeypatch)
    clock.took(6.5)  # itself, the winner's writing, and two to choose: 26 s
    assert clock.allows("repair") is clock.allows("repair", tries=1) is fits


def test_the_half_of_a_stage_is_over_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [25.0]
    monkeypatch.setattr(time_budget, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    left = TimeBudget(100.0, 0.0).first_half("repair")
    for moment, holds in ((49.5, True), (50.0, False)):
        now[0] = moment
        assert left() is holds


def test_what_is_left_and_spent_and_when_stages_end() -> None:
    clock = started(30)
    assert clock.spent == pytest.approx(30, abs=1) and clock.left == pytest.approx(70, abs=1)
    assert started(130).left == 0
    ends = {stage: clock.moment(stage) - clock.began for stage in ("ranges", "judging", "moves", "choice")}
    assert ends == pytest.approx({"ranges": 45, "judging": 35, "moves": 60, "choice": 100})


def test_the_dearest_of_the_last_three_candidates_tells_what_the_next_one_costs() -> None:
    clock = started(0)
    for seconds in (9.0, 2.0, 5.0, 1.0):
        clock.took(seconds)
    assert clock.next_cost == 5.0
    assert started(0).next_cost == 0.0


def test_half_of_what_a_stage_has_left() -> None:
    assert started(0).first_half("repair")()
    assert not started(90).first_half("repair")()


def test_the_note_names_each_thing_cut_short_once() -> None:
    clock = started(200)
    assert clock.note == ""
    for _ in range(2):
        clock.allows("repair", "the repair")
    clock.allows("choice", "the last timing")
    assert clock.note == "the time limit of 100 s cut short: the repair, the last timing."


def test_a_pass_over_samples_ends_at_the_moment_and_tells() -> None:
    data = open_data({"x": np.zeros((20, 2), np.float32)}, [TensorSpec("x", np.dtype("float32"), (None, 2))])
    told: list[int] = []
    assert len(list(data.until(time.perf_counter() - 1, 6, told.append).samples())) == 6
    assert told == [6]
    assert len(list(data.until(time.perf_counter() + 60, 6, told.append).samples())) == 20
    assert told == [6]


class _Slow:
    """A runner whose every run takes a while."""

    inputs = ()

    def __init__(self) -> None:
        self.runs = 0
        self.session = self

    def run(self, names: object, feeds: object) -> None:
        self.runs += 1
        time.sleep(0.02)


@pytest.mark.parametrize(("budget", "most"), [(0.01, 8), (60.0, 40)])
def test_slow_models_are_timed_in_few_rounds(budget: float, most: int) -> None:
    first, second = _Slow(), _Slow()
    calls = [timing.session_run(cast(OnnxRunner, runner), {}) for runner in (first, second)]
    found = timing.compare_latency(calls[0], calls[1], 4, budget=budget, minimum=30, maximum=32)
    assert first.runs == second.runs
    assert first.runs <= most
    assert first.runs >= (30 if budget > 1 else 4)
    assert found.low <= found.value <= found.high


def test_a_search_out_of_time_says_what_it_cut_short(fixtures: Path, digits_onnx: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"data": fixtures / "calib.npz", "smallest": True, "samples": 32}
    report = onnxtool.quantize(digits_onnx, tmp_path / "q.onnx", time_limit=0.01, **options)
    (said,) = [w for w in report.warnings if "cut short" in w]
    assert "calibration (8 samples)" in said
    assert len(report.frontier) <= 4
