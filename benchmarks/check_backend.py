"""`check` over the ONNX project's own backend tests: every model there is right, so every error is a false one.

    python benchmarks/check_backend.py [--show 20] [--limit N]

The node tests are made by the onnx package's own test-case code; the other models come with it. Prints false errors,
warnings by id, and the time for each model (all in one process).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import onnx.backend.test
from onnx.backend.test.case.node import collect_testcases

from onnxtool.errors import OnnxToolError
from onnxtool.report.check import Severity
from onnxtool.validate.check import check


def models(scratch: Path) -> Iterator[tuple[str, Path]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        if case.model is not None:
            path = scratch / f"{case.name}.onnx"
            path.write_bytes(case.model.SerializeToString())
            yield case.name, path
    for path in sorted((Path(onnx.backend.test.__file__).parent / "data").rglob("*.onnx")):
        yield f"{path.parent.name}/{path.stem}", path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", type=int, default=20)
    parser.add_argument("--limit", type=int)
    arguments = parser.parse_args()
    errors: list[str] = []
    other: Counter[str] = Counter()
    times: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, path in list(models(Path(scratch)))[: arguments.limit]:
            began = time.perf_counter()
            try:
                report = check(path)
            except OnnxToolError as error:
                errors.append(f"{name}: {type(error).__name__}: {error}")
                continue
            times[name] = time.perf_counter() - began
            errors += [f"{name}: {f.id} {f.message}" for f in report.findings if f.severity is Severity.ERROR]
            other.update(f.id for f in report.findings if f.severity is not Severity.ERROR)
    for line in errors[: arguments.show]:
        print(line)
    print(f"{len(times)} models, {len(errors)} false errors; other findings: {dict(other)}")
    taken = list(times.values())
    median, mean = statistics.median(taken) * 1e3, statistics.fmean(taken) * 1e3
    print(f"time for each model: median {median:.1f} ms, mean {mean:.1f} ms")
    slowest = sorted(times, key=lambda name: -times[name])[:5]
    print("slowest: " + ", ".join(f"{name} {times[name] * 1e3:.0f} ms" for name in slowest))
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
