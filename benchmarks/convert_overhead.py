"""What convert costs over calling torch's exporter yourself: time and peak memory, verification included.

    python benchmarks/convert_overhead.py [--megabytes 60] [--rounds 3]

Both sides start from the same state_dict file and end with an ONNX file, each in a process of its own, in turns. The
time is processor time (user and system), so that a busy machine does not decide. Issue 3 allows 1.5x the time and 1.3x
the memory for models over 50 MB; --megabytes 3000 --only convert shows the memory of a big one.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

WIDTH = 512
SHAPE = (2, 32, WIDTH)


def make(layers: int, width: int = WIDTH) -> Any:
    """A transformer encoder; 12.6 MB for each layer of width 512."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def bare(weights: Path, output: Path, layers: int, width: int) -> None:
    """What a careful user writes."""
    import torch

    module = make(layers, width)
    module.load_state_dict(torch.load(weights, weights_only=True))
    module.eval()
    batch, length = torch.export.Dim("batch", min=1), torch.export.Dim("length", min=1)
    inputs = (torch.randn(2, 32, width),)
    torch.onnx.export(module, inputs, str(output), dynamo=True, dynamic_shapes=({0: batch, 1: length},), verbose=False)


def ours(weights: Path, output: Path, layers: int, width: int) -> None:
    """The same through convert."""
    from onnxtool.convert.api import convert

    report = convert(
        weights,
        output,
        factory=f"{__file__}:make",
        factory_args={"layers": layers, "width": width},
        input_shapes={"src": ("batch", "length", width)},
    )
    assert report.ok, report


def measure(side: str, weights: Path, layers: int, width: int) -> dict[str, float]:
    """One run in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--side", side, "--weights", str(weights)]
    command += ["--layers", str(layers), "--width", str(width)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def run_side(arguments: argparse.Namespace) -> None:
    """The child: run one side and print what it took."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        side = bare if arguments.side == "bare" else ours
        side(arguments.weights, Path(folder) / "model.onnx", arguments.layers, arguments.width)
        size = sum(f.stat().st_size for f in Path(folder).iterdir())
    usage = resource.getrusage(resource.RUSAGE_SELF)
    result = {
        "cpu": usage.ru_utime + usage.ru_stime,
        "wall": time.perf_counter() - start,
        "peak_mb": usage.ru_maxrss / 1000,
        "file_mb": size / 1e6,
    }
    print(json.dumps(result))


def main() -> None:
    """Build weights of the size asked for, measure both sides in turns, print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("bare", "convert"))
    for hidden, kind in (("--side", str), ("--weights", Path), ("--layers", int), ("--width", int)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        run_side(arguments)
        return
    import torch

    # Few wide layers for a big model: it is the bytes that count, not the nodes.
    width = WIDTH if arguments.megabytes < 100 else 1024 if arguments.megabytes < 1000 else 4096
    layers = max(1, round(arguments.megabytes / (12.6 * (width / 512) ** 2)))
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "weights.pt"
        state = make(layers, width).state_dict()  # layers are made as copies of one: give each weights of its own
        torch.save({name: torch.randn_like(tensor) * 0.02 for name, tensor in state.items()}, weights)
        del state
        print(f"{weights.stat().st_size / 1e6:.0f} MB of weights, {layers} layers of width {width}")
        sides = [arguments.only] if arguments.only else ["bare", "convert"]
        runs: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for _ in range(arguments.rounds):
            for side in sides:
                runs[side].append(measure(side, weights, layers, width))
    middle = {s: {k: median(r[k] for r in rs) for k in rs[0]} for s, rs in runs.items()}
    print(f"{'':<10} {'cpu s':>7} {'wall s':>7} {'peak MB':>8} {'file MB':>8}")
    for side, m in middle.items():
        print(f"{side:<10} {m['cpu']:7.1f} {m['wall']:7.1f} {m['peak_mb']:8.0f} {m['file_mb']:8.0f}")
    if len(middle) == 2:
        a, b = middle["convert"], middle["bare"]
        print("ratio      " + "  ".join(f"{k} {a[k] / b[k]:.2f}x" for k in ("cpu", "wall", "peak_mb")))


if __name__ == "__main__":
    main()
