"""`check` over the ONNX project's own backend tests: every model there is right, so every error is a false one.

    python benchmarks/check_backend.py [--show 20] [--limit N]

The node tests are made by the onnx package's own test-case code; the other models come with it. Prints false errors,
warnings by id, and the time for each model (all in one process), beside what ONNX's checker and a plain session
alone take, in turns. Processor time leaves out what other programs on the machine took.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import onnx.backend.test
import onnxruntime
from onnx.backend.test.case.node import collect_testcases

from onnxtool.errors import OnnxToolError
from onnxtool.lint.check import check
from onnxtool.report.check import Severity


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


def bare(path: Path) -> float:
    """Processor seconds of the checker and a session without anything around them."""
    began = time.process_time()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    with contextlib.suppress(Exception):
        onnx.checker.check_model(str(path))
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", type=int, default=20)
    parser.add_argument("--limit", type=int)
    arguments = parser.parse_args()
    errors: list[str] = []
    other: Counter[str] = Counter()
    times: dict[str, float] = {}
    processor: list[float] = []
    alone: list[float] = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, path in list(models(Path(scratch)))[: arguments.limit]:
            alone.append(bare(path))
            began, busy = time.perf_counter(), time.process_time()
            try:
                report = check(path)
            except OnnxToolError as error:
                errors.append(f"{name}: {type(error).__name__}: {error}")
                continue
            times[name] = time.perf_counter() - began
            processor.append(time.process_time() - busy)
            errors += [f"{name}: {f.id} {f.message}" for f in report.findings if f.severity is Severity.ERROR]
            other.update(f.id for f in report.findings if f.severity is not Severity.ERROR)
    for line in errors[: arguments.show]:
        print(line)
    print(f"{len(times)} models, {len(errors)} false errors; other findings: {dict(other)}")
    taken = list(times.values())
    median, mean = statistics.median(taken) * 1e3, statistics.fmean(taken) * 1e3
    print(f"time for each model: median {median:.1f} ms, mean {mean:.1f} ms")
    own, base = statistics.median(processor) * 1e3, statistics.median(alone) * 1e3
    print(f"processor time: median {own:.1f} ms; checker and session alone {base:.1f} ms; aim 5 ms")
    slowest = sorted(times, key=lambda name: -times[name])[:5]
    print("slowest: " + ", ".join(f"{name} {times[name] * 1e3:.0f} ms" for name in slowest))
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
