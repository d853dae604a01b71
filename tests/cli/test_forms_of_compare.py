"""What CI systems read of a comparison in which an output was not compared."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from onnxtool.cli.forms import github, junit
from onnxtool.report.certificate import CertificateReport
from onnxtool.report.compare import CompareReport, TensorDifference


def report(*outputs: TensorDifference) -> CompareReport:
    return CompareReport("a.onnx", "b.onnx", outputs, ({"x": (1,)},), "random, seed 0", 1e-3, 1e-5)


def difference(name: str, *, ok: bool = True, compared: bool = True) -> TensorDifference:
    note = None if compared else "it is drawn at random"
    return TensorDifference(name, "float32", (1,), ok, 0.0, 0.0, 0.0, 1.0, 99.0, 0, 1, note=note, compared=compared)


def cases(text: str) -> dict[str | None, str]:
    found = ElementTree.fromstring(text).iter("testcase")
    return {
        case.get("name"): next((kind for kind in ("failure", "skipped") if case.find(kind) is not None), "passed")
        for case in found
    }


CERTIFIED = CertificateReport("a.onnx", "b.onnx", verdict="certified")


def test_an_output_that_was_not_compared_but_is_certified_is_skipped() -> None:
    both = replace(report(difference("y"), difference("noise", compared=False)), certificate=CERTIFIED)
    assert both.ok
    assert cases(junit.render(both)) == {"y": "passed", "noise": "skipped"}
    assert 'skipped="1"' in junit.render(both)
    assert github.render(both) == ""


def test_an_output_that_nothing_is_known_of_is_a_failure() -> None:
    half = report(difference("y"), difference("noise", compared=False))
    assert not half.ok and not half.differs and half.verdict == "not tested"
    assert cases(junit.render(half)) == {"y": "passed", "noise": "failure"}
    assert "::error file=b.onnx,title=onnxtool not tested::" in github.render(half)


def test_nothing_compared_is_a_failure() -> None:
    nothing = report(difference("noise", compared=False))
    assert not nothing.ok
    assert cases(junit.render(nothing)) == {"noise": "failure", "outputs": "failure"}
    assert "::error file=b.onnx,title=onnxtool not tested::no output was compared" in github.render(nothing)


def test_an_output_that_differs_fails() -> None:
    assert cases(junit.render(report(difference("y", ok=False)))) == {"y": "failure"}
    assert "y differs" in github.render(report(difference("y", ok=False)))
