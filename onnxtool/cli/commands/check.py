"""`onnxtool check`."""

from __future__ import annotations

from pathlib import Path

from onnxtool.cli.output import Output
from onnxtool.errors import UsageError
from onnxtool.options.check import CheckCommand


def command(asked: CheckCommand, out: Output) -> None:
    """Check ONNX files: specification, shapes, a run on the embedded runtime, and what makes models slow or unsafe.

    Exit 0 when all is sound, 1 when there are errors, 3 when a single file cannot be read as an ONNX file.
    """
    from onnxtool.words import taken_by

    if asked.explain:
        from onnxtool.lint.check import explain

        out.emit(explain(asked.explain))
        return
    if not asked.models:
        raise UsageError("check needs a MODEL: a file, a folder or a pattern.")
    from onnxtool.generation.bundle import Bundle, is_bundle
    from onnxtool.lint.check import check, check_all
    from onnxtool.report.check import Severity

    how = taken_by(check, asked) | {"fail_on": Severity(asked.fail_on)}
    first, alone = Path(asked.models[0]), len(asked.models) == 1
    if alone and is_bundle(first) and not asked.fix:
        from onnxtool.generation.verify import with_generation

        out.emit(with_generation(check(Bundle.open(first).model, **how), first))
        return
    if asked.output is not None and not asked.fix:
        raise UsageError("-o goes with --fix.")
    single = alone and (first.is_file() or not any(c in str(first) for c in "*?["))
    if single and not first.is_dir():
        out.emit(check(_fixed(first, asked.output) if asked.fix else first, **how))
    elif asked.fix:
        raise UsageError("--fix takes one model at a time.")
    else:
        out.emit(check_all(asked.models, jobs=asked.jobs, **how))


def _fixed(model: Path, output: Path | None) -> Path:
    """Optimize a model with standard operators only; the result is compared with it before it is written."""
    from onnxtool.optimization.optimize import optimize

    target = output or model
    optimize(model, target, level="extended")
    return target
