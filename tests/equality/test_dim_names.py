"""Whether dims of one name are equal: told by runs in which they differ, held where the model refuses all of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from onnxtool.equality import dim_names
from onnxtool.equality.dim_names import SharedName, shared_names
from onnxtool.errors import InputError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds

Sizes = dict[str, tuple[int, ...]]


@dataclass
class Model:
    """Takes inputs whose shapes fulfil a condition; remembers all that it was asked."""

    takes: Callable[[Sizes], bool]
    inputs: Sequence[TensorSpec] = ()
    outputs: Sequence[TensorSpec] = ()
    asked: list[Sizes] = field(default_factory=list)

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        shapes = {name: np.shape(array) for name, array in feeds.items()}
        self.asked.append(shapes)
        if not self.takes(shapes):
            raise InputError("other sizes than it takes")
        return {"y": np.zeros(3)}


def spec(name: str, *dims: str | int) -> TensorSpec:
    return TensorSpec(name, np.dtype(np.float32), dims)


PAIR = (spec("x", "n", 3), spec("z", "n", 3))


def feeds(x: Sequence[int] = (4, 3), z: Sequence[int] = (4, 3)) -> Feeds:
    return {"x": np.zeros(tuple(x), np.float32), "z": np.zeros(tuple(z), np.float32)}


def only(model: Model, specs: Sequence[TensorSpec] = PAIR, *runs: Feeds) -> SharedName:
    (found,) = shared_names(model, specs, runs or (feeds(),))
    return found


def test_a_name_is_held_where_every_run_in_which_its_dims_differ_is_refused() -> None:
    model = Model(lambda s: s["x"] == s["z"])
    found = only(model)
    assert (found.name, found.places) == ("n", (("x", 0), ("z", 0)))
    assert found.assumption.status == "held" and found.apart is None
    assert found.assumption.claim == "dims named 'n' are equal"
    assert {(s["x"][0], s["z"][0]) for s in model.asked} >= {(4, 8), (8, 4)}
    assert "4 and 8" in found.assumption.reason


@pytest.mark.parametrize(
    "takes",
    [
        lambda s: True,
        lambda s: s["x"][0] <= s["z"][0],
        lambda s: s["x"][0] >= s["z"][0],
        lambda s: s["z"][0] % 4 == 0,
    ],
)
def test_a_name_is_broken_by_one_run_in_which_its_dims_differ(takes: Callable[[Sizes], bool]) -> None:
    found = only(Model(takes))
    assert found.assumption.status == "broken" and found.apart is not None
    assert len(found.apart.feeds["x"]) != len(found.apart.feeds["z"]) and set(found.apart.outputs) == {"y"}
    assert f"x [{len(found.apart.feeds['x'])}, 3]" in found.assumption.reason


def test_elements_are_repeated_so_that_they_stay_what_the_model_takes() -> None:
    found = only(Model(lambda s: True), PAIR, {"x": np.arange(12.0).reshape(4, 3), "z": np.zeros((4, 3))})
    assert found.apart is not None
    assert set(np.ravel(found.apart.feeds["x"])) <= set(range(12)) and np.ptp(found.apart.feeds["x"]) == 11


def test_inputs_that_already_differ_break_it_without_a_run() -> None:
    model = Model(lambda s: True)
    found = only(model, PAIR, feeds(z=(5, 3)))
    assert found.assumption.status == "broken" and not model.asked


def test_inputs_without_elements_tell_nothing() -> None:
    model = Model(lambda s: True)
    found = only(model, PAIR, feeds((0, 3), (0, 3)))
    assert found.assumption.status == "unproven" and "empty" in found.assumption.reason and not model.asked


def test_a_model_of_one_size_tells_nothing() -> None:
    found = only(Model(lambda s: s["x"] == s["z"] == (4, 3)))
    assert found.assumption.status == "unproven" and "no other size" in found.assumption.reason


def test_sizes_of_other_runs_and_multiples_are_tried_and_1_is_not() -> None:
    model = Model(lambda s: s["x"] == s["z"] and s["x"][0] in (1, 7))
    assert only(model, PAIR, feeds((1, 3), (1, 3)), feeds((7, 3), (7, 3))).assumption.status == "unproven"
    both = Model(lambda s: s["x"] == s["z"] and s["x"][0] in (4, 9))
    assert only(both, PAIR, feeds(), feeds((9, 3), (9, 3))).assumption.status == "held"
    two = Model(lambda s: s["x"] == s["z"] and s["x"][0] in (2, 4))
    assert only(two, PAIR, feeds((2, 3), (2, 3))).assumption.status == "held"
    for size in (8, 12, 5, 16):
        one_more = Model(lambda s, size=size: s["x"] == s["z"] and s["x"][0] in (4, size))
        assert only(one_more).assumption.status == "held"


def test_dims_of_one_input_count_and_names_that_stand_once_do_not() -> None:
    square = (spec("x", "n", "n"), spec("z", "m", 3))
    found = only(Model(lambda s: s["x"][0] == s["x"][1]), square, feeds((4, 4)))
    assert found.places == (("x", 0), ("x", 1)) and found.assumption.status == "held"
    assert not shared_names(Model(lambda s: True), (spec("x", "n", 3), spec("z", "m", 3)), [feeds()])


def three(takes: Callable[[Sizes], bool]) -> SharedName:
    specs = [spec(name, "n", "n") for name in "abc"]
    return only(Model(takes), specs, {name: np.zeros((4, 4), np.float32) for name in "abc"})


@pytest.mark.parametrize(
    ("takes", "verdict"),
    [
        (lambda s: len({n for shape in s.values() for n in shape}) == 1, "held"),
        (lambda s: s["a"] == s["b"] == s["c"], "broken"),  # by axis
        (lambda s: all(h == w for h, w in s.values()), "broken"),  # by input
        (
            lambda s: len({n for k, shape in s.items() for i, n in enumerate(shape) if (k, i) != ("b", 1)}) == 1,
            "broken",
        ),
        (lambda s: s["b"] == s["c"] and len({*s["b"]}) == 1 and len({*s["a"]}) == 1, "broken"),
    ],
)
def test_of_many_dims_each_and_those_of_an_input_and_of_an_axis_are_moved(
    takes: Callable[[Sizes], bool], verdict: str
) -> None:
    found = three(takes)
    assert len(found.places) == 6 and found.assumption.status == verdict


@pytest.mark.parametrize("dims", [["n"] * 6, ["n"]])
def test_all_dims_are_never_moved_together(dims: list[str]) -> None:
    specs = [spec(name, *dims) for name in "abcdef"[: 6 // len(dims)]]
    model = Model(lambda s: len({n for shape in s.values() for n in shape}) == 1)
    run = {s.name: np.zeros([2] * len(dims), np.float32) for s in specs}
    assert only(model, specs, run).assumption.status == "held"


@pytest.mark.parametrize("parts", [{"a", "b"}, {"b", "c"}, {"a", "e"}, {"a", "c", "d"}])
def test_of_a_few_dims_every_part_is_moved(parts: set[str]) -> None:
    names = "abcde"
    specs = [spec(name, "n") for name in names]
    model = Model(lambda s: len({s[n] for n in parts}) == len({s[n] for n in set(names) - parts}) == 1)
    assert only(model, specs, {name: np.zeros(4, np.float32) for name in names}).assumption.status == "broken"


def test_what_there_is_no_time_for_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dim_names, "_SECONDS", -1.0)
    found = only(Model(lambda s: True))
    assert found.assumption.status == "unproven" and "no time" in found.assumption.reason


def test_large_inputs_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dim_names, "_MOST_BYTES", 120)  # five rows of both
    model = Model(lambda s: s["x"] == s["z"])
    assert only(model).assumption.status == "held"
    assert all(s["x"][0] + s["z"][0] <= 10 for s in model.asked)
    monkeypatch.setattr(dim_names, "_MOST_BYTES", 119)
    assert only(model).assumption.status == "unproven"
