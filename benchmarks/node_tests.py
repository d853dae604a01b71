"""All node tests of the installed onnx package through check, optimize and compare: wrong, crash, false error.

    python benchmarks/node_tests.py [--filter TEXT] [--step N] [--show 20]

Every model is right and comes with inputs and outputs. A process that dies is a crash,
and the next model gets a new one. What the runtime itself cannot run (`unsupported`) is only checked. A result is
wrong when it gives other outputs than its source on the test's own inputs; an error where the runtime runs the model is
a false one. Models that random inputs do not fit are optimized and compared with their own data.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import onnx
from backend_suite import Case, _array, _gives_expected, collect
from onnx import numpy_helper

import onnxtool
from onnxtool.errors import OnnxToolError
from onnxtool.model import io
from onnxtool.model.randomness import random_operators

_NEWER = "OT104"  # an opset that the runtime does not know: an error, and a right one
Finding = tuple[str, str, str]  # what was done, what came of it, why


def saved(case: Case, folder: Path) -> tuple[Path, Path]:
    """The model, and its data in the form of onnx's own test folders."""
    path, data = folder / "model.onnx", folder / "data"
    path.write_bytes(case.model.SerializeToString())
    inputs, outputs = case.data_sets[0]
    own = data / "test_data_set_0"
    own.mkdir(parents=True)
    for kind, values, infos in (
        ("input", inputs, case.model.graph.input),
        ("output", outputs, case.model.graph.output),
    ):
        for place, (value, info) in enumerate(zip(values, infos, strict=False)):
            (own / f"{kind}_{place}.pb").write_bytes(_proto(value, info).SerializeToString())
    return path, data


def _proto(value: object, info: onnx.ValueInfoProto) -> onnx.TensorProto | onnx.SequenceProto | onnx.OptionalProto:
    if info.type.HasField("optional_type"):
        return numpy_helper.from_optional(value, info.name)
    if isinstance(value, (list, tuple)):
        return numpy_helper.from_list(list(value), info.name)
    if isinstance(value, onnx.TensorProto):
        return value
    return numpy_helper.from_array(_array(value), info.name)


def judge(case: Case) -> list[Finding]:
    """What the commands make of one model."""
    found: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="node-test-") as name:
        path, data = saved(case, Path(name))
        try:
            report = onnxtool.check(path)
            errors = [f for f in report.findings if f.severity.value == "error" and f.id != _NEWER]
            found.append(
                ("check", "false error" if errors else "fine", "; ".join(f"{f.id} {f.message}" for f in errors[:1]))
            )
        except OnnxToolError as error:
            found.append(("check", "false error", str(error)))
        if not _gives_expected(case, case.model):
            return [*found, ("optimize", "unsupported", ""), ("compare", "unsupported", "")]
        if random_operators(io.from_proto(case.model)):
            return [*found, ("optimize", "random", ""), ("compare", "random", "")]
        out = Path(name) / "out.onnx"
        for command in ("optimize", "compare"):
            reason, silent = "did not run", False
            for given in (None, data):
                try:
                    if command == "optimize":
                        made = onnxtool.optimize(path, out, bench=False, data=given)
                        good, told = made.ok, str(made.verdict or made.warnings)
                        silent = made.comparison is not None and not made.comparison.differs
                    else:
                        compared = onnxtool.compare(path, out if out.exists() else path, data=given, effort="quick")
                        good, told = compared.ok, f"{compared.verdict} {compared.warnings}"
                        silent = not compared.differs
                except OnnxToolError as error:
                    reason = f"{type(error).__name__}: {error}"
                    continue
                reason = "" if good else told
                if good:
                    break
            bad = "not tested" if silent else "false error"  # an output that is empty by design, say
            found.append((command, bad if reason else "fine", reason))
        if out.exists() and not _gives_expected(case, onnx.load(out)):
            found.append(("result", "wrong", "other outputs"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="")
    parser.add_argument("--step", type=int, default=1, help="every so manyth test")
    parser.add_argument("--show", type=int, default=20)
    arguments = parser.parse_args()
    names = [c.name for c in collect() if arguments.filter in c.name][:: arguments.step]
    counts: Counter[tuple[str, str]] = Counter()
    shown: Counter[str] = Counter()
    for name, findings in _judged(names):
        for command, outcome, reason in findings:
            counts[command, outcome] += 1
            if outcome in ("wrong", "crash", "false error"):
                shown[command] += 1
                if shown[command] <= arguments.show:
                    print(f"{command:9} {outcome:12} {name}: {' '.join(reason.split())[:300]}", flush=True)
    print(f"{len(names)} tests")
    for (command, outcome), number in sorted(counts.items()):
        print(f"{command:9} {outcome:12} {number}")
    sys.exit(any(outcome in ("wrong", "crash", "false error") for _, outcome in counts))


_CASES: dict[str, Case] = {}


def _judge_by_name(name: str) -> list[Finding]:
    warnings.simplefilter("ignore")
    if not _CASES:
        _CASES.update({c.name: c for c in collect()})
    try:
        return judge(_CASES[name])
    except Exception as error:
        return [("any", "crash", f"{type(error).__name__}: {error}")]


def _judged(names: Sequence[str]) -> list[tuple[str, list[Finding]]]:
    done: list[tuple[str, list[Finding]]] = []
    pool = ProcessPoolExecutor(1)
    for name in names:
        try:
            done.append((name, pool.submit(_judge_by_name, name).result()))
        except BrokenProcessPool:
            done.append((name, [("any", "crash", "the process died")]))
            pool = ProcessPoolExecutor(1)
    return done


if __name__ == "__main__":
    main()
