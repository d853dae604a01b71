"""The steps of a build: for each command what it takes from the file, how it is run, and what its report says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from onnxtool.errors import UsageError
from onnxtool.options.bench import BenchCommand
from onnxtool.options.check import CheckCommand
from onnxtool.options.compare import CompareCommand
from onnxtool.options.convert import ConvertCommand, ConvertOptions
from onnxtool.options.edit import EditCommand
from onnxtool.options.optimize import OptimizeCommand
from onnxtool.options.option import REPORTS, Option, options_of
from onnxtool.options.package import PackageCommand, WebOptions
from onnxtool.options.quantize import QuantizeCommand, ResultLimits
from onnxtool.report.base import Report
from onnxtool.words import part_of, read_words, session_options, taken_by
from onnxtool.workflow.constraints import Constraints, MeasuredFile

Plain = Mapping[str, Any]


@dataclass(frozen=True)
class Files:
    """What a step reads and writes, as paths here.

    Attributes:
        source: the model before the step; None where a factory makes it.
        output: where the result goes, for commands that give a model.
        reference: the model that the build began with, for steps that use it.
    """

    source: str | None
    output: Path
    reference: str | None = None


@dataclass(frozen=True)
class Step:
    """One step of a model: its options as the file has them, files by their paths there.

    Attributes:
        options: by the words of the command's options.
        command: the command that it runs.
        kind: what the command takes.
        produces: it gives a model; else it judges the model before it.
        runs_framework: it imports frameworks and runs the user's code.
        uses_reference: it reads the model that the build began with too.
        searches: it looks for a model within the limits of the build, and may keep the one before.
        ordered: its options apply in the order of the file.
        folder: it gives a folder of files beside the model, which goes to its option `output`.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    command: ClassVar[str]
    kind: ClassVar[type[Any]]
    produces: ClassVar[bool] = True
    runs_framework: ClassVar[bool] = False
    uses_reference: ClassVar[bool] = False
    searches: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    folder: ClassVar[bool] = False

    @property
    def measured(self) -> bool:
        """True when the result depends on times that are measured on this machine."""
        return False

    @classmethod
    @cache
    def fields(cls) -> Mapping[str, str]:
        """The word of each option that a step takes -> its field."""
        declared = options_of(cls.kind)
        return {o.word: n for n, o in declared.items() if o.step and not o.argument and o.group != REPORTS}

    @classmethod
    @cache
    def declared(cls) -> Mapping[str, Option]:
        """The word of each option that a step takes -> the option."""
        found = options_of(cls.kind)
        return {word: found[name] for word, name in cls.fields().items()}

    def run(self, files: Files, limits: Constraints) -> Report:
        """Run the command.

        Args:
            files: what it reads and writes.
            limits: what a search has to keep.

        Raises:
            OnnxToolError: as the command.
        """
        raise NotImplementedError

    def verify(self) -> None:
        """Judge its options before anything is run.

        Raises:
            UsageError: a value that the command would refuse for itself alone.
        """
        self.read_alone()

    def summary(self, report: Plain) -> str:
        """One line on what came of it."""
        raise NotImplementedError

    def figures(self, known: MeasuredFile, report: Plain) -> MeasuredFile:
        """What is known of a model after the step; what was measured of the one before is not true of a new one."""
        return replace(known, seconds=None, memory=None) if self.produces else known

    def read(self, **own: Any) -> Any:
        """Its options as the command's dataclass; `own` are those that the build gives.

        Raises:
            UsageError: a value that cannot be read.
        """
        words = self.fields()
        return read_words(self.kind, {words[word]: value for word, value in self.options.items()} | own, dashes="")

    def read_alone(self) -> Any:
        """Its options, before there is a file: what the build will give is empty. Errors as of `read`."""
        said = {self.fields()[word] for word in self.options}
        given = [name for name, option in options_of(self.kind).items() if option.required and name not in said]
        return self.read(**dict.fromkeys(given, ""))


class ConvertStep(Step):
    """A framework's model to ONNX."""

    command, kind, runs_framework = "convert", ConvertCommand, True

    def run(self, files: Files, limits: Constraints) -> Report:
        from onnxtool.conversion.convert import convert

        asked = self.read(output=files.output, reproducible=True)
        how = taken_by(convert, asked) | {"options": part_of(ConvertOptions, asked)}
        return convert(files.source, files.output, **how)

    def summary(self, report: Plain) -> str:
        if not report.get("written", True):
            return "the outputs of the source and of the ONNX file differ"
        return f"{report['form']}, opset {report['opset']}, {report['nodes']} nodes, {_verdict(report)}"


class OptimizeStep(Step):
    """Smaller, faster, equal."""

    command, kind = "optimize", OptimizeCommand

    @property
    def measured(self) -> bool:
        asked = self.options
        return asked.get("level") == "all" and not (asked.get("target") or asked.get("no-bench"))

    def verify(self) -> None:
        from onnxtool.optimization.pass_base import parse_level
        from onnxtool.optimization.registry import select

        asked = self.read_alone()
        if asked.upgrade_opset is not None and asked.downgrade_opset is not None:
            raise UsageError("upgrade-opset and downgrade-opset exclude each other.")
        select(parse_level(asked.level), asked.passes, asked.skip)

    def run(self, files: Files, limits: Constraints) -> Report:
        from onnxtool.optimization.optimize import optimize

        self.verify()
        asked = self.read()
        # The latency is in the report alone unless it chooses the fusions: a build measures it in `bench`.
        how = {"opset": asked.upgrade_opset or asked.downgrade_opset, "bench": self.measured}
        return optimize(files.source or "", files.output, **taken_by(optimize, asked) | how)

    def summary(self, report: Plain) -> str:
        return f"{report['before']['nodes']} -> {report['after']['nodes']} nodes, {_verdict(report)}"


class QuantizeStep(Step):
    """Lower precision within an accuracy budget."""

    command, kind, searches = "quantize", QuantizeCommand, True

    @property
    def measured(self) -> bool:
        return self.options.get("mode", "auto") == "auto" and not self.options.get("target")

    def run(self, files: Files, limits: Constraints) -> Report:
        from onnxtool.quantization.quantize import quantize

        asked = self.read(model=files.source, output=files.output)
        how: dict[str, Any] = {"options": session_options(asked, threads=None)}
        if limits.any_limit or limits.minimise != "latency":
            how["limits"] = ResultLimits(limits.max_seconds, limits.max_ratio, limits.max_bytes, limits.minimise)
        return quantize(files.source or "", files.output, **taken_by(quantize, asked) | how)

    def summary(self, report: Plain) -> str:
        return str(report.get("verdict") or report.get("summary") or "done")

    def figures(self, known: MeasuredFile, report: Plain) -> MeasuredFile:
        latency = report.get("latency") or {}
        seconds, ratio = number(latency.get("after")), number(latency.get("value"))
        return replace(known, seconds=seconds, ratio=ratio, drop=expected_drop(report))


class EditStep(Step):
    """Changes of a finished model."""

    command, kind, ordered = "edit", EditCommand, True

    def verify(self) -> None:
        from onnxtool.editing.registry import parse_operations

        self.read_alone()
        parse_operations(self._operations())

    def run(self, files: Files, limits: Constraints) -> Report:
        from onnxtool.editing.edit import edit

        asked = self.read()
        how = {"options": session_options(asked, "off")}
        return edit(files.source or "", files.output, self._operations(), **taken_by(edit, asked) | how)

    def _operations(self) -> list[tuple[str, str]]:
        """(name, text) of each, in the order of the file."""
        declared, found = self.declared(), []
        for word, value in self.options.items():
            if declared[word].role != "operation" or value is False:
                continue
            texts = [""] if value is True else [value] if isinstance(value, (str, int)) else value
            pairs = [(word, str(text)) for text in texts]
            if word == "operation":
                pairs = [(name, value) for name, _, value in (text.partition("=") for _, text in pairs)]
            found += pairs
        return found

    def summary(self, report: Plain) -> str:
        steps = report.get("steps") or ()
        return f"{len(steps)} operation{'s' if len(steps) != 1 else ''}"


class CheckStep(Step):
    """Is it sound?"""

    command, kind, produces = "check", CheckCommand, False

    def run(self, files: Files, limits: Constraints) -> Report:
        from onnxtool.lint.check import check
        from onnxtool.report.check import Severity

        asked = self.read()
        return check(files.source or "", **taken_by(check, asked) | {"fail_on": Severity(asked.fail_on)})

    def summary(self, report: Plain) -> str:
        findings = report.get("findings") or ()
        if not findings:
            return "sound"
        first = findings[0]
        return f"{len(findings)} findings; {first['id']}: {first['message']}"


class CompareStep(Step):
    """Is it the function that the build began with?"""

    command, kind, produces, uses_reference = "compare", CompareCommand, False, True

    def run(self, files: Files, limits: Constraints) -> Report:
        from onnxtool.equality.compare import compare

        first, second = files.reference or "", files.source or ""
        asked = self.read(a=first)
        how: dict[str, Any] = {"options": session_options(asked, asked.opt_level)}
        if asked.provider_b:
            how["options_b"] = replace(how["options"], provider=asked.provider_b)
        report = compare(first, second, **taken_by(compare, asked) | how)
        if not asked.quantized:
            return report
        from onnxtool.quantization.compare_quantized import judged_by_budget

        return judged_by_budget(report, first, second, data=asked.data, images=asked.images)

    def summary(self, report: Plain) -> str:
        bad = [o["name"] for o in report.get("outputs", ()) if not o.get("ok", True)]
        verdict = str(report.get("verdict", "not tested"))
        return f"{verdict}: {', '.join(bad)}" if bad else verdict


class BenchStep(Step):
    """How fast is it?"""

    command, kind, produces, uses_reference = "bench", BenchCommand, False, True

    @property
    def measured(self) -> bool:
        return True

    def run(self, files: Files, limits: Constraints) -> Report:
        from onnxtool.benchmark.bench import bench

        models = [files.source or ""]
        if files.reference not in (None, files.source):
            models.insert(0, files.reference or "")
        return bench(models, **taken_by(bench, self.read(models=models)))

    def summary(self, report: Plain) -> str:
        if report.get("regressions"):
            return str(report["regressions"][0])
        rows = report.get("latencies") or ()
        return f"{rows[-1]['median'] * 1e3:.3g} ms" if rows else "done"

    def figures(self, known: MeasuredFile, report: Plain) -> MeasuredFile:
        rows, models = report.get("latencies") or (), report.get("models") or ()
        last = rows[-1] if rows else {}
        memory = models[-1]["load"]["peak_bytes"] if models else None
        ratio = number(last.get("ratio")) if len(models) > 1 else known.ratio
        return replace(known, seconds=number(last.get("median")), ratio=ratio, memory=memory)


class PackageStep(Step):
    """A folder that runs the model elsewhere."""

    command, kind, produces, folder = "package", PackageCommand, False, True

    @property
    def measured(self) -> bool:
        return True  # it says how many workers and threads pay on this machine

    def verify(self) -> None:
        from onnxtool.packaging.registry import find_kind

        if "for" not in self.options or "output" not in self.options:
            raise UsageError("takes `for`, the kinds of package, and `output`, the folder to write.")
        for kind in self.read_alone().kinds:
            find_kind(kind)

    def run(self, files: Files, limits: Constraints) -> Report:
        from onnxtool.packaging.package import package

        asked = self.read(model=files.source)
        how = taken_by(package, asked) | {"web": part_of(WebOptions, asked)}
        return package(files.source or "", files.output.with_suffix(""), **how)

    def summary(self, report: Plain) -> str:
        return ", ".join(f"{p['kind']}: {p['proof']['started']['how']}" for p in report.get("packages", ()))


STEPS: Mapping[str, type[Step]] = {
    step.command: step
    for step in (ConvertStep, OptimizeStep, QuantizeStep, EditStep, CheckStep, CompareStep, BenchStep, PackageStep)
}
# Options of `convert` that say what the model is: they stand in the model's own table.
SOURCE_OPTIONS = {word: o for word, o in ConvertStep.declared().items() if o.of_source}


def _verdict(report: Plain) -> str:
    """Of the result beside its source, in the words of `compare`."""
    return str((report.get("comparison") or {}).get("verdict", "not tested"))


def expected_drop(report: Plain) -> float | None:
    """Accuracy lost: on labels where there are any, else what is to be expected."""
    metric = report.get("metric")
    if metric:
        return float(metric["float_value"]) - float(metric["value"])
    fidelity = report.get("fidelity")
    return number(fidelity.get("expected_drop")) if fidelity else None


def number(value: Any) -> float | None:
    """A number of a report; None for what is none."""
    return float(value) if isinstance(value, (int, float)) else None
