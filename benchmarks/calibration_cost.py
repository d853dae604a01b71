"""What calibration costs beside running the samples once: seconds and peak memory, as a table.

    python benchmarks/calibration_cost.py [MODEL CALIB.npz] [--samples 32 256] [--threads N] [--rounds 3]

Each measurement is a process of its own. "plain" is an inference session over the file as it is, that runs every
sample once; "calibrate" prepares the model and observes every tensor that static quantization needs. Processor seconds
(of all threads) stand beside the clock's, because they hold on a busy machine too. Samples are repeated where the file
holds fewer. Without arguments: the fixture, and the text recogniser of ../shared/zoo when there is one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("plain", "minmax", "percentile")


def peak_mb() -> float:
    """Peak resident memory of this process since it was executed."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def plain(model: str, data: dict[str, np.ndarray], count: int, threads: int) -> tuple[float, float]:
    """Run every sample once in a session as anyone would open it."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    floats = {i.name for i in session.get_inputs() if i.type == "tensor(float)"}
    length = len(data[names[0]])
    began, used = time.perf_counter(), time.process_time()
    for index in range(count):
        at = index % length
        feeds = {n: data[n][at : at + 1] for n in names}
        session.run(None, {n: a.astype(np.float32, copy=False) if n in floats else a for n, a in feeds.items()})
    return time.perf_counter() - began, time.process_time() - used


def calibrated(model: str, path: str, method: str, count: int, threads: int) -> tuple[float, float]:
    """Prepare and observe, as `--mode static` does."""
    from onnxtool.model import io
    from onnxtool.model.ir.queries import input_specs
    from onnxtool.quantization.apply_recipe import calibrate
    from onnxtool.quantization.preprocess.prepare import prepare
    from onnxtool.quantization.recipe import QuantRecipe
    from onnxtool.runtime.data.open_data import open_data
    from onnxtool.runtime.data.source import DataSource

    source = io.load(model)
    few = open_data(path, input_specs(source))

    def endless():  # type: ignore[no-untyped-def]
        made = 0
        while made < count:
            for sample in few.open():
                yield sample
                made += 1
                if made == count:
                    return

    data = DataSource(few.label, count, endless, few.specs)
    began, used = time.perf_counter(), time.process_time()
    calibrate(prepare(source), QuantRecipe(method=method), data, threads or None)  # type: ignore[arg-type]
    return time.perf_counter() - began, time.process_time() - used


def child(kind: str, model: str, path: str, count: int, threads: int) -> None:
    """One measurement; its result goes to stdout."""
    if kind == "plain":
        with np.load(path) as archive:
            arrays = {name: archive[name] for name in archive.files}
        seconds, used = plain(model, arrays, count, threads)
    else:
        seconds, used = calibrated(model, path, kind, count, threads)
    print(json.dumps({"seconds": seconds, "cpu": used, "peak_mb": peak_mb()}))


def measured(kind: str, model: Path, data: Path, count: int, threads: int, rounds: int) -> dict[str, float]:
    """The best of several rounds."""
    command = [sys.executable, __file__, "--child", kind, str(model), str(data), str(count), str(threads)]
    results = []
    for _ in range(rounds):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        results.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: min(r[key] for r in results) for key in results[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="MODEL and CALIB.npz")
    parser.add_argument("--samples", nargs="*", type=int, default=[32, 256])
    parser.add_argument("--threads", type=int, default=0, help="0: as the runtime chooses")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kind, model, data, count, threads = options.child
        child(kind, model, data, int(count), int(threads))
        return
    subjects = [(ROOT / "fixtures" / "digits_cnn.onnx", ROOT / "fixtures" / "calib.npz")]
    text = ROOT.parent / "shared" / "zoo" / "ocr_rec"
    subjects += [(text / "model.onnx", text / "calib.npz")] if text.is_dir() else []
    if options.files:
        subjects = [(options.files[0], options.files[1])]
    print("| model | samples | what | seconds | processor seconds | beyond 1.3 x plain + 2 s | peak MB | x plain |")
    print("|---|---|---|---|---|---|---|---|")
    for model, data in subjects:
        for count in options.samples:
            base: dict[str, float] = {}
            for kind in KINDS:
                found = measured(kind, model, data, count, options.threads, options.rounds)
                base = base or found
                over = max(0.0, found["cpu"] - 1.3 * base["cpu"] - 2)
                cells = (
                    f"{model.parent.name}/{model.stem}",
                    str(count),
                    kind,
                    f"{found['seconds']:.1f}",
                    f"{found['cpu']:.1f}",
                    "-" if kind == "plain" else f"{over:.1f} s",
                    f"{found['peak_mb']:.0f}",
                    f"{found['peak_mb'] / base['peak_mb']:.2f}",
                )
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
