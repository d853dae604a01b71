"""What is said of a proof that found no difference."""

from __future__ import annotations

from onnxtool.report.proof import Coverage


def notes(*limits: str) -> tuple[str, ...]:
    return Coverage("normal", {}, limits=limits).notes


def test_masks_of_other_numbers_are_told_apart_from_inputs_that_matter() -> None:
    assert notes() == ()
    (line,) = notes("a mask that holds 2", "a mask that holds -1")
    assert line.startswith("with a mask of zeros and ones the outputs are equal")
    assert line.endswith("(a mask that holds 2)")
    first, second = notes("values of scale 1e+20", "a mask that holds 2", "values of scale 1e+20")
    assert first == "the outputs differ on some inputs: values of scale 1e+20; no difference on the other inputs tried"
    assert second == line
