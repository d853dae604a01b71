"""Texts made from regular expressions match them, and the changed ones mostly do not."""

from __future__ import annotations

import re

import numpy as np
import pytest

from onnxtool.equality.trials.texts import matching, nearly

PATTERNS = [
    "[a-z0-9.]+@[a-z]+[.](com|org)",
    "[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "un.*",
    "(?:ab|cd)?x{2,}y*z+?",
    "^\\d+\\s\\w{1,3}$",
    "[^a-y]{3}",
    "[[:digit:]]{2}[]x-]",
    "(?P<year>20\\d\\d)\\.\\t",
    "(a|b(c|d){2})\\.",
    "[\\d_]{5}",
    "a{,2}b",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_texts_match_their_pattern(pattern: str) -> None:
    known = pattern.replace("[[:digit:]]", "[0-9]").replace("{,2}", "{0,2}")
    made = matching(pattern, np.random.default_rng(0), 20)
    assert len(made) == 20
    assert all(re.fullmatch(known, text) for text in made)
    assert len(set(made)) > 1 or "(" not in pattern


def test_all_branches_and_lengths_are_drawn() -> None:
    made = set(matching("(com|org)x{1,3}y?", np.random.default_rng(0), 200))
    assert {text[:3] for text in made} == {"com", "org"}
    assert {text.count("x") for text in made} == {1, 2, 3}
    assert {text.count("y") for text in made} == {0, 1}


def test_repetition_goes_a_little_beyond_the_least() -> None:
    generator = np.random.default_rng(0)
    assert {len(t) for t in matching("a*", generator, 200)} == {0, 1, 2, 3}
    assert {len(t) for t in matching("a+", generator, 200)} == {1, 2, 3, 4}
    assert {len(t) for t in matching("a{5,}", generator, 200)} == {5, 6, 7, 8}
    assert {len(t) for t in matching("a{5}", generator, 20)} == {5}
    assert {len(t) for t in matching("a{2,90}", generator, 200)} == {2, 3, 4, 5}


@pytest.mark.parametrize("pattern", ["(a", "a)", "[a", "*a", "\\p{Greek}", "(?i:a)", "(" * 40, "a\\"])
def test_what_is_not_known_makes_no_texts(pattern: str) -> None:
    assert matching(pattern, np.random.default_rng(0), 3) == []


def test_texts_are_bounded() -> None:
    assert max(map(len, matching("(a{200}){200}", np.random.default_rng(0), 2))) == 200


def test_changed_texts_are_others() -> None:
    made = nearly(["Abc"] * 6, np.random.default_rng(0))
    assert made[:3] == ["xAbc", "Abcx", "aBC"]
    assert len(made[3]) == 2
    assert made[4].count("~") == 1
    assert made[5] == "Abc "
    assert len(made[4]) == 3
    assert nearly([""], np.random.default_rng(0)) == ["x"]
