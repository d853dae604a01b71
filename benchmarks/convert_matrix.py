"""Convert many architectures and print pass or fail with the reason.

    python benchmarks/convert_matrix.py pytorch [--only NAME] [--json FILE]

Each family needs its libraries (pytorch: timm and transformers; they are not part of the extras). Every model is
built with random weights at small size, converted with dynamic batch, and compared with its source at three sizes.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import tempfile
import time
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from onnxtool.conversion.convert import convert
from onnxtool.errors import OnnxToolError
from onnxtool.model.provenance.metadata import versions

# family -> (module beside this file, the packages whose versions matter)
FAMILIES = {"pytorch": ("matrix_pytorch", ("torch", "timm", "transformers"))}

LEAST_SQNR = 60.0  # dB


def main() -> None:
    """Run a family's cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--only", action="append", help="only cases whose name contains this")
    parser.add_argument("--json", type=Path, help="write the results here too")
    arguments = parser.parse_args()
    name, packages = FAMILIES[arguments.family]
    module = import_module(name)
    cases = [c for c in module.CASES if not arguments.only or any(o in c.name for o in arguments.only)]
    results = []
    print(f"{'model':<36} {'result':<7} {'seconds':>7}  {'max abs':>8} {'SQNR dB':>7}  {'verdict':<10} reason or notes")
    for result in run(cases, Path(module.__file__)):
        results.append(result)
        known = result["max_abs"] is not None
        shown = f"{result['max_abs']:8.1e} {result['sqnr_db']:7.0f}" if known else " " * 16
        print(
            f"{result['name']:<36} {'pass' if result['ok'] else 'FAIL':<7} {result['seconds']:7.1f}  {shown}"
            f"  {result['verdict']:<10} {result['reason']}",
            flush=True,
        )
    good = sum(r["ok"] for r in results)
    certified = sum(r["verdict"] == "certified" for r in results)
    print(f"\n{certified} of {len(results)} certified from the module's own code")
    found = ", ".join(f"{k} {v}" for k, v in versions(*packages, "onnx", "onnxruntime").items())
    print(f"{good} of {len(results)} converted and verified ({good / max(len(results), 1):.1%}); {found}; {cpu()}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"versions": found, "cpu": cpu(), "results": results}, indent=1))


def run(cases: list[Any], factory: Path) -> Iterator[dict[str, Any]]:
    """Convert each case; a crash of ours counts as a failure and shows its last line."""
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            start = time.perf_counter()
            result: dict[str, Any] = {"name": case.name, "ok": False, "max_abs": None, "sqnr_db": None}
            result |= {"verdict": "", "reason": ""}
            try:
                report = convert(
                    None,
                    Path(folder) / "model.onnx",
                    factory=f"{factory}:build",
                    factory_args={"name": case.name},
                    input_shapes=case.shapes,
                    input_dtypes=case.dtypes,
                )
                assert report.comparison is not None and report.comparison.worst is not None
                worst = report.comparison.worst
                certificate = report.comparison.certificate
                result["verdict"] = report.comparison.verdict
                why = f"{certificate.reason}; " if certificate is not None and not certificate.ok else ""
                notes = why + "; ".join(report.notes[1:])
                difference = f"{worst.name}: {worst.note or f'{worst.mismatched} of {worst.total} outside tolerance'}"
                noise = min(o.sqnr_db for o in report.comparison.outputs)
                # Random weights may give outputs far below the absolute tolerance: then the ratio to the noise tells.
                good = report.ok and noise >= LEAST_SQNR
                reason = notes if good else difference
                result |= {"ok": good, "max_abs": worst.max_abs, "sqnr_db": noise, "reason": reason}
            except OnnxToolError as error:
                result["reason"] = " ".join(str(error).split())[:300]
            except Exception:
                result["reason"] = "CRASH " + traceback.format_exc().strip().splitlines()[-1][:300]
            result["seconds"] = time.perf_counter() - start
            result["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
            yield result


def cpu() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


if __name__ == "__main__":
    main()
