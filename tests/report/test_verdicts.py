"""When a report's verdict is good: what decides it, one thing at a time; and the exit code that follows."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, cast

import pytest
import typer

from onnxtool import errors
from onnxtool.cli.output import Output
from onnxtool.errors import OnnxToolError
from onnxtool.report.build import BuildReport
from onnxtool.report.certificate import CertificateReport, FieldPoint, PartRounding, Verdict, suffices
from onnxtool.report.check import CheckReport, ChecksReport, Finding, Severity
from onnxtool.report.compare import CompareReport, Opinion, ProviderProof, TensorDifference
from onnxtool.report.convert import ConvertReport
from onnxtool.report.edit import EditReport, EditStep
from onnxtool.report.edit import Proof as EditProof
from onnxtool.report.optimize import DroppedPass, OptimizeReport
from onnxtool.report.package import PackageReport
from onnxtool.report.proof import Assumption, Branch, Coverage, TrialKind
from onnxtool.report.quantize import QuantizeReport
from onnxtool.report.verify import VerifyReport

R = TypeVar("R")


def made(kind: type[R], **given: Any) -> R:
    """A report of which only what matters is filled in."""
    report = kind.__new__(kind)
    for field in dataclasses.fields(cast(Any, kind)):
        value = field.default if field.default is not dataclasses.MISSING else None
        if field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        object.__setattr__(report, field.name, given.pop(field.name, value))
    assert not given
    return report


def output(*, ok: bool = True, **more: Any) -> TensorDifference:
    return made(TensorDifference, name="y", ok=ok, **more)


def compared(*outputs: TensorDifference, **more: Any) -> CompareReport:
    return made(CompareReport, outputs=outputs or (output(),), **more)


def certificate(verdict: Verdict, **more: Any) -> CertificateReport:
    return CertificateReport("a", "b", verdict, **more)


GOOD, BAD = made(ProviderProof, ok=True), made(ProviderProof, ok=False)
SAME, TESTED, APART = compared(certificate=certificate("certified")), compared(), compared(output(ok=False))
NONE = compared(output(untested="empty"))
LABEL_ALONE = compared(output(dtype="int64", untested="constant"), output(dtype="float32"))
UNREACHED = made(Coverage, unreached=(Branch("a", "n", "then branch"),))
BOTH_UNREACHED = made(Coverage, unreached=tuple(Branch(m, "n", "then branch") for m in "ab"))
UNLIKE = certificate("not tested", unlike={"x": (1,)})
HELD, OPEN = Assumption("c", "held"), Assumption("c", "unproven")
FAULT, SLOW = DroppedPass("p", "r"), DroppedPass("p", "r", fault=False)


@pytest.mark.parametrize(
    ("report", "verdict", "ok"),
    [
        (TESTED, "tested", True),
        (SAME, "certified", True),
        (APART, "different", False),
        (compared(output(), output(ok=False)), "different", False),
        (compared(output(ok=False), certificate=certificate("certified")), "different", False),
        (compared(certificate=certificate("not tested", same_function=True)), "tested", True),
        (compared(output(), output(untested="zero")), "not tested", True),
        (compared(output(untested="not finite")), "not tested", False),
        (compared(output(), output(compared=False)), "not tested", False),
        (made(CompareReport, outputs=()), "not tested", False),
        (compared(require="certified"), "tested", False),
        (dataclasses.replace(SAME, require="certified"), "certified", True),
        (compared(coverage=UNREACHED), "tested", True),
        (compared(coverage=UNREACHED, strict=True), "tested", False),
        (compared(coverage=made(Coverage), strict=True), "tested", True),
        (compared(coverage=BOTH_UNREACHED, certificate=UNLIKE), "not tested", False),
        (compared(coverage=UNREACHED, certificate=UNLIKE), "tested", True),  # of one graph against a framework's code
        (compared(coverage=BOTH_UNREACHED, certificate=certificate("not tested")), "tested", True),
        (compared(coverage=made(Coverage), certificate=UNLIKE), "tested", True),
        (compared(output(ok=False), coverage=BOTH_UNREACHED, certificate=UNLIKE), "different", False),
    ],
)
def test_of_a_comparison(report: CompareReport, verdict: str, ok: bool) -> None:
    assert (report.verdict, report.ok) == (verdict, ok)


def test_random_outputs_are_judged_by_a_certificate_alone() -> None:
    both = (output(), output(compared=False))
    assert compared(*both, certificate=certificate("certified")).ok
    assert not compared(*both, certificate=certificate("not tested")).ok


@pytest.mark.parametrize(
    ("given", "ok"),
    [
        ({"comparison": TESTED}, True),
        ({"comparison": None}, True),
        ({"comparison": APART}, False),
        ({"comparison": NONE}, False),
        ({"comparison": NONE, "verdict": "left as it is"}, True),
        ({"comparison": TESTED, "dropped": (FAULT,)}, True),
        ({"comparison": TESTED, "dropped": (FAULT,), "strict": True}, False),
        ({"comparison": TESTED, "dropped": (SLOW,), "strict": True}, True),
        ({"comparison": TESTED, "providers": (GOOD, BAD)}, False),
        ({"comparison": TESTED, "providers": (GOOD,)}, True),
        ({"comparison": TESTED, "require": "certified"}, False),
        ({"comparison": None, "require": "certified"}, False),
        ({"comparison": SAME, "require": "certified"}, True),
        ({"comparison": TESTED, "require": "certified", "verdict": "left as it is"}, True),
    ],
)
def test_of_optimizing(given: dict[str, Any], ok: bool) -> None:
    assert made(OptimizeReport, **given).ok is ok


@pytest.mark.parametrize(
    ("given", "ok"),
    [
        ({"comparison": TESTED, "written": True}, True),
        ({"comparison": None, "written": True}, True),
        ({"comparison": TESTED, "written": False}, False),
        ({"comparison": APART, "written": True}, False),
        ({"comparison": APART, "written": True, "changed_rows": (2, 9), "max_flips": 2}, True),
        ({"comparison": APART, "written": True, "changed_rows": (3, 9), "max_flips": 2}, False),
        ({"comparison": TESTED, "written": True, "require": "certified"}, False),
        ({"comparison": None, "written": True, "require": "certified"}, False),
        ({"comparison": SAME, "written": True, "require": "certified"}, True),
        ({"comparison": TESTED, "written": True, "providers": (BAD,)}, False),
        ({"written": True, "comparison": LABEL_ALONE}, True),
        ({"written": True, "comparison": dataclasses.replace(LABEL_ALONE, outputs=LABEL_ALONE.outputs[:1])}, False),
        ({"written": True, "comparison": compared(output(), output(dtype="float32", untested="constant"))}, False),
        ({"written": True, "comparison": compared(output(), output(dtype="int64", untested="empty"))}, False),
    ],
)
def test_of_converting(given: dict[str, Any], ok: bool) -> None:
    assert made(ConvertReport, **given).ok is ok


@pytest.mark.parametrize(
    ("assumption", "verdict", "require", "ok"),
    [
        (HELD, "tested", "tested", True),
        (OPEN, "certified", "tested", False),
        (Assumption("c", "broken"), "certified", "tested", False),
        (HELD, "tested", "certified", False),
        (HELD, "certified", "certified", True),
    ],
)
def test_of_editing(assumption: Assumption, verdict: Verdict, require: str, ok: bool) -> None:
    step = EditStep("o", "", "", EditProof("c"), (assumption,))
    assert made(EditReport, steps=(step,), verdict=verdict, require=require).ok is ok


def test_of_quantizing() -> None:
    assert made(QuantizeReport, output="q.onnx", providers=(GOOD,)).ok
    assert not made(QuantizeReport, output=None).ok
    assert not made(QuantizeReport, output="q.onnx", providers=(GOOD, BAD)).ok


def test_of_checking() -> None:
    found = {s: made(CheckReport, findings=(Finding("OT001", s, "m"),)) for s in Severity}
    assert [found[s].ok for s in (Severity.ERROR, Severity.WARNING, Severity.NOTE)] == [False, True, True]
    assert not dataclasses.replace(found[Severity.WARNING], fail_on=Severity.WARNING).ok
    assert made(ChecksReport, reports=(found[Severity.NOTE],), unreadable=()).ok
    assert not made(ChecksReport, reports=(found[Severity.NOTE],), unreadable=("m.onnx",)).ok
    assert not made(ChecksReport, reports=(found[Severity.NOTE], found[Severity.ERROR]), unreadable=()).ok


def test_of_packages_and_builds() -> None:
    class Of:
        def __init__(self, **given: Any) -> None:
            self.__dict__.update(given)

    same, other = Of(proof=TESTED), Of(proof=APART)
    assert made(PackageReport, packages=(same, same)).ok and not made(PackageReport, packages=(same, other)).ok
    for state, built, tried in (("fresh", True, True), ("stale", True, False), ("failed", False, False)):
        models = (Of(state="fresh"), Of(state=state))
        assert made(BuildReport, models=models, dry_run=False).ok is built
        assert made(BuildReport, models=models, dry_run=True).ok is tried


@pytest.mark.parametrize(
    ("changed", "ok"),
    [
        ({}, True),
        ({"actual": "2"}, False),
        ({"recorded": None}, False),
        ({"recorded": None, "signature": "s"}, True),
        ({"actual": "2", "signature": "s"}, False),
        ({"stale": ("another runtime",)}, False),
        ({"signature_fault": "another key"}, False),
        ({"source": "m.pt"}, False),
        ({"source": "m.pt", "source_step": "convert"}, True),
        ({"replay": APART}, False),
        ({"replay": TESTED}, True),
    ],
)
def test_of_provenance(changed: dict[str, Any], ok: bool) -> None:
    assert made(VerifyReport, **{"recorded": "1", "actual": "1", "stale": (), **changed}).ok is ok


def test_what_a_certificate_says() -> None:
    assert [certificate(v).ok for v in ("certified", "tested", "not tested", "different")] == [
        True,
        False,
        False,
        False,
    ]
    assert suffices("tested", "tested") and suffices("certified", "certified") and not suffices("tested", "certified")
    assert PartRounding("y", "a", "b", 2.0, 8.0).coarser == 4.0 and PartRounding("y", "a", "b", 0.1, 8.0).coarser == 8.0


def test_what_a_difference_on_an_input_means() -> None:
    """Kinds where it is only said, where nothing but equal numbers passes, and where failing is no wrong answer."""
    said = {kind for kind in TrialKind if kind.report_only}
    assert said == {TrialKind.MASK_VALUES, TrialKind.EXTREME_VALUES}
    exact = {kind for kind in TrialKind if kind.is_exact}
    assert exact == {TrialKind.USUAL, TrialKind.MASK, TrialKind.EMPTY_MASK, TrialKind.THRESHOLDS}
    may_fail = {kind for kind in TrialKind if kind.may_fail}
    assert may_fail == {TrialKind.EMPTY, TrialKind.MISSING_BROKEN, TrialKind.MISSING_ROWS, TrialKind.BROKEN}


def code_of(raised: BaseException) -> int:
    with pytest.raises(typer.Exit) as ended, Output(quiet=True):
        raise raised
    return int(ended.value.exit_code)


def test_the_exit_code_follows_from_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    with Output(quiet=True) as out:
        out.emit(made(QuantizeReport, output="q", providers=()))
    with pytest.raises(typer.Exit) as ended, Output(quiet=True) as out:
        out.emit(made(QuantizeReport, output=None))
    assert ended.value.exit_code == 1


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (OnnxToolError("no"), 70),
        (errors.VerdictError("no"), 1),
        (errors.UsageError("no"), 2),
        (errors.InputError("no"), 3),
        (errors.UnsupportedError("no"), 4),
        (errors.UnsafeError("no"), 5),
        (errors.ResourceError("no"), 6),
        (MemoryError(), 6),
        (OSError(28, "No space left on device"), 6),
        (OSError(36, "File name too long", "x"), 3),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("ours"), 70),
    ],
)
def test_the_exit_code_follows_from_the_error(
    raised: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(raised) == code
    line = capsys.readouterr().err
    assert line.startswith("error: ") and line.count("\n") == 1


def test_a_message_is_one_line_that_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    code_of(errors.InputError("a\nb \x1b[31m" + 3000 * "c"))
    line = capsys.readouterr().err
    assert "\x1b" not in line and line.count("\n") == 1 and len(line) < 2100


def test_two_kinds_of_data_do_not_share_standard_output() -> None:
    with pytest.raises(typer.Exit) as ended, Output(json_target="-") as out:
        out.take_stdout()
    assert ended.value.exit_code == 2


def test_a_certificate_names_each_input_once() -> None:
    def told(*points: dict[str, tuple[int, ...]]) -> str:
        return CertificateReport("a", "b", "certified", tuple(FieldPoint(1, 7, p) for p in points)).summary

    assert told({"x": (1, 3), "y": (3,)}) == "the same real function at x [1, 3], y [3]"
    alone = told({"x": (2, 8), "low": ()}, {"x": (1, 2), "low": ()}, {"x": (1, 2), "low": ()})
    assert alone == "the same real function at x [1, 2], [2, 8], each with low []"
    texts = told({"ids": (2, 8), "mask": (2, 8), "image": (2,)}, {"ids": (1, 8), "mask": (1, 8), "image": (1,)})
    assert texts == "the same real function at ids, mask [1, 8], image [1]; ids, mask [2, 8], image [2]"


def test_the_worst_output_is_one_that_differs_then_the_one_furthest_off() -> None:
    near, far = output(max_abs=1.0), output(max_abs=2.0)
    assert compared(near, far).worst is far
    small = output(ok=False, max_abs=0.5)
    assert compared(far, small, near).worst is small
    assert compared(small, output(ok=False, max_abs=0.7)).worst is not small


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ok": True, "error": 1e-3, "precision": "float32"}, "cpu: within tolerance (relative error 1.0e-03)"),
        ({"ok": False, "precision": "other"}, "cpu: outside the tolerance: more than rounding in float32 explains"),
        ({"ok": True, "precision": "other"}, "cpu: within tolerance"),
        ({"ok": False, "precision": "float32"}, "cpu: outside the tolerance"),
        ({"ok": False, "precision": "other", "failure": "no device"}, "cpu: does not run: no device"),
        (
            {"ok": False, "precision": "bfloat16", "option": "A=B"},
            "cpu: outside the tolerance: it computes in bfloat16, which is less than the model declares; "
            "cpu:A=B turns that off",
        ),
        (
            {"ok": False, "precision": "tf32", "option": "A=B", "confirmed": True},
            "cpu: outside the tolerance: it computes in tf32, which is less than the model declares; "
            "cpu:A=B turns that off, and the error is gone with it",
        ),
        (
            {"ok": False, "precision": "float16", "option": "A=B", "confirmed": False},
            "cpu: outside the tolerance: it computes in float16, which is less than the model declares; "
            "cpu:A=B turns that off, but the error stays: the model amplifies any rounding on these inputs",
        ),
    ],
)
def test_a_provider_is_told_in_a_sentence(given: dict[str, Any], said: str) -> None:
    assert made(ProviderProof, provider="cpu", **given).summary == said


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (True, True, "agrees with both"),
        (True, False, "agrees with A, not with B"),
        (False, True, "agrees with B, not with A"),
        (False, False, "agrees with neither"),
    ],
)
def test_a_third_opinion_is_told_in_words(a: bool, b: bool, said: str) -> None:
    assert made(Opinion, a_ok=a, b_ok=b).summary == said
