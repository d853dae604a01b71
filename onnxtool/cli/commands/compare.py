"""`onnxtool compare`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxtool.cli.output import Output
from onnxtool.errors import UsageError
from onnxtool.options.compare import CompareCommand
from onnxtool.report.base import Report


def command(asked: CompareCommand, out: Output) -> None:
    """Run two models on the same inputs and show how far their outputs are apart.

    Exit 0 when every output is within tolerance, 1 when one is not.
    """
    from onnxtool.words import session_options, taken_by

    a, b, record, golden = asked.a, asked.b, asked.record, asked.golden
    if (b is None) == (record is None and golden is None) or (record is not None and golden is not None):
        raise UsageError("compare takes two models, or one with --golden DIR or --record DIR.")
    from onnxtool.generation.bundle import is_bundle

    if b is not None and is_bundle(a) and is_bundle(b):
        from onnxtool.generation.verify import compare_bundles

        text = None if asked.data is None else Path(str(asked.data))
        out.emit(compare_bundles(a, b, eval_text=text, rtol=asked.rtol, effort=asked.effort))
        return
    how = {"options": session_options(asked, asked.opt_level)}
    if record is not None:
        from onnxtool.equality import golden as kept

        out.emit(kept.record(a, record, **taken_by(kept.record, asked) | how))
    elif b is None:
        from onnxtool.equality import golden as kept

        out.emit(kept.golden(a, golden or "", **taken_by(kept.golden, asked) | how))
    else:
        out.emit(_two(asked, a, b, how))


def _two(asked: CompareCommand, a: Path, b: Path, how: dict[str, Any]) -> Report:
    from onnxtool.cli.sources import opened, source_options
    from onnxtool.equality.compare import compare
    from onnxtool.runtime.protocol_v2.client import url_of
    from onnxtool.runtime.runner import closing
    from onnxtool.words import taken_by

    source = source_options(asked)
    left, right = opened(a, b, source, asked.data), opened(b, a, source, asked.data)
    how["names"] = (url_of(a) or str(a), url_of(b) or str(b))
    if asked.provider_b:
        how["options_b"] = replace(how["options"], provider=asked.provider_b)
    with closing(left, right):
        report = compare(left, right, **taken_by(compare, asked) | how)
    if isinstance(left, Path) and isinstance(right, Path):
        from onnxtool.quantization.compare_quantized import judged_by_budget, with_hint

        if asked.quantized:
            budgeted = taken_by(judged_by_budget, asked) | {"threads": asked.threads or 1}
            return judged_by_budget(report, a, b, **budgeted)
        return report if report.ok else with_hint(report, a, b)
    if asked.quantized:
        raise UsageError("--quantized takes two .onnx files.")
    return report
