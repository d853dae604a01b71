"""Every mode of `quantize` on every model at hand: nothing may crash, and whatever is written must load and run.

    python benchmarks/quantize_modes.py [MODEL.onnx ...] [--only NAME ...] [--modes MODE ...] [--time-limit 15]

Models: those given, else fixtures/, ../shared/zoo when there is one, and the "light" models of the onnx package
(weights from ConstantOfShape). Calibration data is the model's own, or random where it has none. One process for each
model.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parent.parent
MODES = ("static", "dynamic", "int8", "int4", "float16", "auto")


def models() -> dict[str, tuple[Path, Path | None]]:
    """Name -> model and its calibration data, if it has any."""
    found: dict[str, tuple[Path, Path | None]] = {
        "fixtures/digits_cnn": (ROOT / "fixtures" / "digits_cnn.onnx", ROOT / "fixtures" / "calib.npz")
    }
    zoo = ROOT.parent / "shared" / "zoo"
    for place in sorted(zoo.iterdir()) if zoo.is_dir() else []:
        if (place / "model.onnx").exists():
            found[f"zoo/{place.name}"] = (place / "model.onnx", place / "calib.npz")
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    found |= {f"light/{p.stem.removeprefix('light_')}": (p, None) for p in sorted(light.glob("*.onnx"))}
    return found


def survey(model: Path, data: Path | None, modes: list[str], limit: float) -> None:
    """Print one JSON line for each mode."""
    import onnxtool
    from onnxtool.errors import OnnxToolError
    from onnxtool.model import io
    from onnxtool.model.domains import input_domains
    from onnxtool.model.ir.queries import input_specs
    from onnxtool.runtime.probes import runnable_feeds
    from onnxtool.runtime.runner import OnnxRunner

    source = io.load(model)
    (feeds,) = runnable_feeds(OnnxRunner.open(model), input_specs(source), 0, input_domains(source), wanted=1)
    calibration = str(data) if data is not None else [feeds] * 4
    for mode in modes:
        began = time.perf_counter()
        told: dict[str, object] = {"mode": mode}
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "out.onnx"
            given = calibration if mode in ("static", "auto") else None
            options = {"time_limit": limit, "smallest": True} if mode == "auto" else {}
            try:
                report = onnxtool.quantize(model, target, mode=mode, data=given, **options)
                told |= {"result": "written" if report.ok else f"not written: {report.verdict[:60]}"}
                if target.exists():
                    runner = OnnxRunner.open(target)
                    fitted = {s.name: feeds[s.name].astype(s.dtype) for s in runner.inputs}
                    values = runner.run(fitted).values()
                    fine = all(np.isfinite(v).all() for v in values if np.asarray(v).dtype.kind == "f")
                    told |= {"runs": fine, "bytes": target.stat().st_size / model.stat().st_size}
            except OnnxToolError as error:
                told |= {"result": f"exit {error.exit_code}: {error}"}
            except Exception as error:
                told |= {"result": f"CRASH {type(error).__name__}: {str(error)[:200]}"}
        print(json.dumps(told | {"seconds": round(time.perf_counter() - began, 1)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, help="these instead of the models at hand")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--modes", nargs="*", default=list(MODES))
    parser.add_argument("--time-limit", type=float, default=15.0)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        data = Path(options.child[1]) if options.child[1] else None
        survey(Path(options.child[0]), data, options.modes, options.time_limit)
        return
    print("| model | mode | result | runs | size ratio | seconds |\n|---|---|---|---|---|---|")
    bad = 0
    given: dict[str, tuple[Path, Path | None]] = {f"{p.parent.name}/{p.stem}": (p, None) for p in options.models}
    for name, (model, data) in (given or models()).items():
        if options.only and name not in options.only:
            continue
        command = [sys.executable, __file__, "--child", str(model), str(data or "")]
        command += ["--modes", *options.modes, "--time-limit", str(options.time_limit)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            told = json.loads(line)
            bad += told["result"].startswith("CRASH") or told.get("runs") is False
            ratio = f"{told['bytes']:.2f}" if "bytes" in told else "-"
            cells = (name, told["mode"], told["result"], str(told.get("runs", "-")), ratio, str(told["seconds"]))
            print(f"| {' | '.join(cells)} |", flush=True)
        if done.returncode:
            bad += 1
            print(f"| {name} | - | the process died ({done.returncode}) {done.stderr[-200:]} | - | - | - |", flush=True)
    print(f"\n{bad} crashed or do not run")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
