"""What convert costs over calling the framework's exporter yourself: time and peak memory, verification included.

    python benchmarks/convert_overhead.py [--case encoder ...] [--rounds 3]
    python benchmarks/convert_overhead.py --big 3000

Both sides start from the same file and end with an ONNX file, each in a process of its own, in turns. The time is
processor time (user and system), so that a busy machine does not decide. Issue 3 allows 1.5x the time and 1.3x the
memory for models over 50 MB. --big converts a state_dict of so many megabytes in safetensors, whose memory may be
twice its size.

resnet needs timm, gpt2 needs transformers; they are not part of the extras.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

CLASSES, FEATURES = 10, 20


def encoder(layers: int = 2, width: int = 1024) -> Any:
    """A transformer encoder: 101 MB."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def resnet() -> Any:
    """A convolutional network: 102 MB."""
    import timm

    return timm.create_model("resnet50")


def gpt2() -> Any:
    """A decoder whose output layer shares the embedding's weight: 128 MB."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = GPT2LMHeadModel(GPT2Config(n_embd=512, n_layer=2, n_head=8, n_positions=256, use_cache=False))

        def forward(self, input_ids: Any) -> Any:
            return self.model(input_ids=input_ids).logits

    return Logits()


def torch_case(name: str, shapes: dict[str, tuple[Any, ...]], example: Callable[[], Any]) -> Case:
    """A PyTorch model from its state_dict."""

    def save(path: Path) -> None:
        import torch

        # Layers are made as copies of one: each gets weights of its own.
        state = globals()[name]().state_dict()
        other: dict[Any, Any] = {}
        torch.save({n: other.setdefault(t.data_ptr(), spread(t)) for n, t in state.items()}, path)

    def bare(path: Path, output: Path) -> None:
        import torch

        module = globals()[name]()
        module.load_state_dict(torch.load(path, weights_only=True))
        module.eval()
        dims: dict[str, Any] = {}
        dynamic = tuple(
            {i: dims.setdefault(d, torch.export.Dim(d, min=1)) for i, d in enumerate(shape) if isinstance(d, str)}
            for shape in shapes.values()
        )
        torch.onnx.export(module, (example(),), str(output), dynamo=True, dynamic_shapes=dynamic, verbose=False)

    def ours(path: Path, output: Path) -> None:
        from onnxtool.conversion.convert import convert

        assert convert(path, output, factory=f"{__file__}:{name}", input_shapes=shapes).ok

    return Case("weights.pt", save, bare, ours)


def spread(tensor: Any) -> Any:
    """Small random weights; statistics and counters stay."""
    import torch

    return torch.randn_like(tensor) * 0.02 if tensor.is_floating_point() and tensor.dim() > 1 else tensor.clone()


def floats(*shape: int) -> Callable[[], Any]:
    """An example input."""

    def make() -> Any:
        import torch

        return torch.randn(*shape)

    return make


def tokens() -> Any:
    """An example input."""
    import torch

    return torch.randint(0, 1000, (2, 32))


def save_keras(path: Path) -> None:
    """keras.applications.ResNet50: 103 MB."""
    from onnxtool.conversion.tensorflow.environment import import_keras

    import_keras("the benchmark").applications.ResNet50(weights=None, input_shape=(64, 64, 3)).save(path)


def bare_keras(path: Path, output: Path) -> None:
    """What Keras documents."""
    import keras
    import numpy as np

    model = keras.saving.load_model(path, compile=False)
    model(np.zeros((1, 64, 64, 3), np.float32))  # export refuses a model that was never called
    model.export(str(output), format="onnx", verbose=False)


def save_forest(path: Path) -> None:
    """A random forest: about 100 MB of joblib."""
    import joblib
    import numpy as np
    from sklearn.ensemble import RandomForestClassifier

    random = np.random.default_rng(0)
    x = random.standard_normal((4000, FEATURES)).astype(np.float32)
    y = random.integers(0, CLASSES, len(x))
    joblib.dump(RandomForestClassifier(200, random_state=0).fit(x, y), path)


def bare_forest(path: Path, output: Path) -> None:
    """What skl2onnx documents."""
    import joblib
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType

    model = joblib.load(path)
    types = [("X", FloatTensorType([None, FEATURES]))]
    output.write_bytes(to_onnx(model, initial_types=types, options={"zipmap": False}).SerializeToString())


def plain(path: Path, output: Path) -> None:
    """The file through convert, with nothing to say about it."""
    from onnxtool.conversion.convert import convert

    assert convert(path, output, trust=True).ok


@dataclass(frozen=True)
class Case:
    """A model: its file, and the two ways from there to ONNX."""

    file: str
    save: Callable[[Path], None]
    bare: Callable[[Path, Path], None]
    ours: Callable[[Path, Path], None]


CASES = {
    "encoder": torch_case("encoder", {"src": ("batch", "length", 1024)}, floats(2, 32, 1024)),
    "resnet": torch_case("resnet", {"x": ("batch", 3, 64, 64)}, floats(2, 3, 64, 64)),
    "gpt2": torch_case("gpt2", {"input_ids": ("batch", "length")}, tokens),
    "keras": Case("model.keras", save_keras, bare_keras, plain),
    "forest": Case("model.joblib", save_forest, bare_forest, plain),
}


def big(megabytes: float) -> None:
    """Convert a large state_dict in safetensors; print its size and the peak memory of the conversion."""
    layers = max(1, round(megabytes / 806))  # of width 4096
    with tempfile.TemporaryDirectory(dir=os.environ.get("ONNXTOOL_BENCH_FOLDER")) as folder:
        source, output = Path(folder) / "big.safetensors", Path(folder) / "big.onnx"
        code = (
            "import sys; sys.path.insert(0, sys.argv[1]); import convert_overhead as c, safetensors.torch as s;"
            "state = c.encoder(int(sys.argv[2]), 4096).state_dict().items();"
            "s.save_file({n: c.spread(t) for n, t in state}, sys.argv[3])"
        )
        subprocess.run([sys.executable, "-c", code, str(Path(__file__).parent), str(layers), str(source)], check=True)
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "onnxtool",
            "convert",
            str(source),
            "-o",
            str(output),
            "--json",
        ]
        command += ["--factory", f"{__file__}:encoder", "--factory-arg", f"layers={layers}"]
        command += ["--factory-arg", "width=4096", "--input-shape", "src:batch,length,4096"]
        # Not RUSAGE_CHILDREN, which remembers the process that made the weights.
        _, status, usage = os.wait4(subprocess.Popen(command, stdout=subprocess.DEVNULL).pid, 0)
        if status:
            raise SystemExit("convert failed")
        size, peak = source.stat().st_size / 1e6, usage.ru_maxrss / 1000
        files = ", ".join(f"{f.name} {f.stat().st_size / 1e6:.0f} MB" for f in sorted(Path(folder).glob("big.onnx*")))
        print(f"{size:.0f} MB of weights; peak {peak:.0f} MB, {peak / size:.2f}x; written: {files}")


def measure(side: str, name: str, source: Path) -> dict[str, float]:
    """One run in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--side", side, "--case", name, "--source", str(source)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def run_side(side: str, case: Case, source: Path) -> None:
    """The child: run one side and print what it took."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        (case.bare if side == "bare" else case.ours)(source, Path(folder) / "model.onnx")
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
    """Measure each case's two sides in turns; print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--big", type=float, metavar="MB")
    parser.add_argument("--side", choices=("bare", "ours", "save"), help=argparse.SUPPRESS)
    parser.add_argument("--source", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.big:
        big(arguments.big)
        return
    names = arguments.case or list(CASES)
    if arguments.side == "save":
        CASES[names[0]].save(arguments.source)
        return
    if arguments.side:
        run_side(arguments.side, CASES[names[0]], arguments.source)
        return
    print(
        f"{'case':<9} {'source MB':>9} {'cpu s':>13} {'wall s':>13} {'peak MB':>13} {'file MB':>11}  ratios", flush=True
    )
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / CASES[name].file
            command = [
                sys.executable,
                "-W",
                "ignore",
                __file__,
                "--side",
                "save",
                "--case",
                name,
                "--source",
                str(source),
            ]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            size = source.stat().st_size / 1e6
            runs: dict[str, list[dict[str, float]]] = {"bare": [], "ours": []}
            for _ in range(arguments.rounds):
                for side, found in runs.items():
                    found.append(measure(side, name, source))
        bare, ours = ({k: median(r[k] for r in found) for k in found[0]} for found in runs.values())
        pairs = "".join(f" {ours[k]:6.1f}/{bare[k]:6.1f}" for k in ("cpu", "wall", "peak_mb", "file_mb"))
        ratios = ", ".join(f"{k} {ours[k] / bare[k]:.2f}" for k in ("cpu", "wall", "peak_mb"))
        print(f"{name:<9} {size:9.0f}{pairs}  {ratios}", flush=True)


if __name__ == "__main__":
    main()
