"""What loading, exporting and running legitimate files of the frameworks takes, against the limits of those calls.

    python benchmarks/limits_slack.py [--only NAME] [--large]

Small and slow ones first of all: recurrent networks, deep ones with hardly any weights, many small layers. Each file
is converted in a process of its own. Prints for every watched call the processor seconds and the growth of memory
beside what is allowed for a file of that size; the last line is the least slack of all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

GENERATOR = np.random.default_rng(0)


def torch_files(folder: Path, wanted: Callable[[str], bool]) -> None:
    """TorchScript and exported programs."""
    import torch
    from torch import nn

    def deep(width: int, layers: int) -> nn.Module:
        return nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(width, width), nn.ReLU())])

    class Recurrent(nn.Module):
        def __init__(self, cell: type, layers: int = 2) -> None:
            super().__init__()
            self.cell = cell(4, 8, layers, batch_first=True, bidirectional=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.cell(x)[0]

    class Looping(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state = torch.zeros_like(x[:, 0])
            for step in range(x.shape[1]):
                state = torch.tanh(state + x[:, step])
            return state

    def convolutions(layers: int, width: int) -> nn.Module:
        parts: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
        for _ in range(layers):
            parts += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        return nn.Sequential(*parts)

    torch.backends.mha.set_fastpath_enabled(False)  # else one operator that neither exporter has
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 12)
    cases = {
        "mlp": (nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), (2, 4)),
        "deep-mlp-400": (deep(4, 400), (2, 4)),
        "lstm": (Recurrent(nn.LSTM), (2, 9, 4)),
        "gru-8-layers": (Recurrent(nn.GRU, 8), (2, 9, 4)),
        "looping": (Looping(), (2, 9, 4)),
        "conv-60": (convolutions(60, 8), (2, 3, 32, 32)),
        "conv-large-image": (convolutions(8, 32), (1, 3, 640, 640)),
        "wide": (nn.Sequential(nn.Linear(4, 5000), nn.Linear(5000, 5000), nn.Linear(5000, 5000)), (2, 4)),
        "transformer-12": (encoder, (2, 9, 16)),
    }
    for name, (module, shape) in cases.items():
        module.eval()
        example = torch.zeros(*shape)
        if wanted(f"torch-{name}.pt"):
            looping = name == "looping"
            script = torch.jit.script(module) if looping else torch.jit.trace(module, example, check_trace=False)
            script.save(str(folder / f"torch-{name}.pt"))
        if name != "looping" and wanted(f"torch-{name}.pt2"):
            torch.export.save(torch.export.export(module, (example,)), str(folder / f"torch-{name}.pt2"))
        (folder / f"torch-{name}.shape").write_text(json.dumps(shape))


def transformers_files(folder: Path, wanted: Callable[[str], bool]) -> None:
    """Hugging Face folders with few weights."""
    import transformers

    small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "num_hidden_layers": 12}
    cases = {
        "bert": (transformers.BertConfig, transformers.BertModel, {**small, "vocab_size": 50}),
        "vit": (transformers.ViTConfig, transformers.ViTForImageClassification, {**small, "image_size": 64}),
        "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel, {"n_embd": 16, "n_head": 2, "vocab_size": 50}),
    }
    for name, (config, model, settings) in cases.items():
        if wanted(f"folder-{name}"):
            model(config(**settings)).save_pretrained(folder / f"folder-{name}")


def keras_files(folder: Path, wanted: Callable[[str], bool]) -> None:
    """`.keras`, HDF5, SavedModel and TensorFlow Lite."""
    import keras
    import tensorflow as tf
    from keras import layers

    def recurrent(cell: Any, depth: int) -> Any:
        inner = [layers.Bidirectional(cell(4, return_sequences=True)) for _ in range(depth)]
        return keras.Sequential([keras.Input((None, 3)), *inner, layers.Dense(2)])

    def deep(depth: int) -> Any:
        return keras.Sequential([keras.Input((4,)), *[layers.Dense(4, "relu") for _ in range(depth)]])

    none = {"weights": None}
    cases: dict[str, Callable[[], Any]] = {
        "dense": lambda: deep(1),
        "dense-300": lambda: deep(300),
        "lstm": lambda: recurrent(layers.LSTM, 1),
        "lstm-6": lambda: recurrent(layers.LSTM, 6),
        "gru-4": lambda: recurrent(layers.GRU, 4),
        "mobilenet-thin": lambda: keras.applications.MobileNetV2((96, 96, 3), alpha=0.35, classes=10, **none),
        "nasnet-mobile": lambda: keras.applications.NASNetMobile(classes=10, **none),
        "efficientnet-b7": lambda: keras.applications.EfficientNetB7(classes=10, **none),
        "resnet152": lambda: keras.applications.ResNet152V2(classes=10, **none),
    }
    for name, make in cases.items():
        names = [f"keras-{name}{end}" for end in (".keras", ".h5", "-saved", ".tflite")]
        if not any(map(wanted, names)):
            continue
        model = make()
        if wanted(names[0]):
            model.save(folder / names[0])
        if wanted(names[1]):
            model.save(folder / names[1])
        if wanted(names[2]):
            model.export(folder / names[2], verbose=False)
        if wanted(names[3]) and "lstm" not in name and "gru" not in name:
            (folder / names[3]).write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())


def tree_files(folder: Path, wanted: Callable[[str], bool]) -> None:
    """skops and the native files of boosted trees."""
    import catboost
    import lightgbm
    import skops.io
    import xgboost
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    data = GENERATOR.random((2000, 8)).astype(np.float32)
    target = (data[:, 0] + 0.1 * GENERATOR.random(2000) > data[:, 1]).astype(int)
    estimators = {
        "svc": make_pipeline(StandardScaler(), SVC(probability=False)),
        "forest": RandomForestClassifier(300),
        "forest-large": RandomForestClassifier(3000),
        "histogram": HistGradientBoostingClassifier(max_iter=100),
        "gaussian": GaussianProcessRegressor(),
    }
    for name, estimator in estimators.items():
        if wanted(f"sklearn-{name}.skops"):
            skops.io.dump(estimator.fit(data[:500], target[:500]), folder / f"sklearn-{name}.skops")
    for trees in (3, 1000, 10_000):
        if wanted(f"xgboost-{trees}.json"):
            made = xgboost.XGBClassifier(n_estimators=trees, max_depth=4).fit(data, target)
            made.save_model(folder / f"xgboost-{trees}.json")
            made.save_model(folder / f"xgboost-{trees}.ubj")
        if wanted(f"lightgbm-{trees}.txt"):
            lightgbm.LGBMClassifier(n_estimators=trees, verbose=-1).fit(data, target).booster_.save_model(
                folder / f"lightgbm-{trees}.txt"
            )
        if wanted(f"catboost-{trees}.cbm"):
            catboost.CatBoostClassifier(n_estimators=trees, verbose=False, allow_writing_files=False).fit(
                data, target
            ).save_model(str(folder / f"catboost-{trees}.cbm"))


MAKERS = (torch_files, transformers_files, keras_files, tree_files)


def measure(path: Path, answer: int) -> None:
    """Convert one file in this process, and write what its watched calls took and were allowed."""
    from onnxtool.conversion.convert import convert
    from onnxtool.errors import OnnxToolError
    from onnxtool.runtime.worker import isolation, watchdog

    calls: list[dict[str, Any]] = []
    now: dict[str, Any] = {}

    def sample() -> None:
        while True:
            if now:
                now["peak"] = max(now["peak"], watchdog._resident(os.getpid()))
            time.sleep(0.01)

    def tell(message: dict[str, Any]) -> None:
        if "more_bytes" in message:
            now["seconds"] += message["more_seconds"]
            now["bytes"] += message["more_bytes"]
        elif message:
            resident = watchdog._resident(os.getpid())
            now.update(message, began=time.process_time(), start=resident, peak=resident)
        else:
            done = dict(now)
            now.clear()
            calls.append(
                {
                    "what": done["what"],
                    "took": time.process_time() - done["began"],
                    "allowed": done["seconds"],
                    "grew": done["peak"] - done["start"],
                    "room": done["bytes"],
                }
            )

    isolation._tell = tell
    isolation._process.channel = -1
    isolation.native_silence = isolation.suppress  # the measuring process has its streams to itself
    threading.Thread(target=sample, daemon=True).start()
    settings = {}
    shape = path.with_suffix(".shape")
    if path.suffix == ".pt" and shape.exists():
        first, *rest = json.loads(shape.read_text())
        settings["input_shapes"] = {"": ("batch" if first > 1 else 1, *rest)}
    verdict = "ok"
    try:
        with tempfile.TemporaryDirectory() as out:
            verdict = "ok" if convert(path, Path(out) / "m.onnx", **settings).ok else "differs"
    except OnnxToolError as error:
        verdict = str(error)
    os.write(answer, json.dumps([verdict, calls]).encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="only files whose name contains this")
    parser.add_argument("--make", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.file:
        measure(options.file, 1)
        return
    if options.make is not None:
        MAKERS[options.make](options.folder, lambda n: not options.only or any(o in n for o in options.only))
        return
    with tempfile.TemporaryDirectory() as name:
        only = [f"--only={o}" for o in options.only or ()]
        for maker in range(len(MAKERS)):
            line = [sys.executable, __file__, "--make", str(maker), "--folder", name, *only]
            subprocess.run(line, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        show([p for p in sorted(Path(name).iterdir()) if p.suffix != ".shape"])


def show(files: list[Path]) -> None:
    """Measure each file and print its calls."""
    least = [float("inf"), float("inf")]
    print(f"{'file':28} {'MB':>7}  {'call':10} {'seconds':>8} {'allowed':>8} {'GB':>6} {'room':>6}  slack")
    for path in files:
        size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) if path.is_dir() else path.stat().st_size
        done = subprocess.run([sys.executable, __file__, "--file", str(path)], capture_output=True, check=False)
        try:
            verdict, calls = json.loads(done.stdout[done.stdout.rindex(b'["') :])
        except ValueError:
            print(f"{path.name}: no answer: {done.stderr.decode()[-300:]}", flush=True)
            continue
        for call in (c for c in calls if " with " in c["what"]):  # those of frameworks
            slack = call["allowed"] / max(call["took"], 1e-3), call["room"] / max(call["grew"], 1e6)
            least = [min(old, new) for old, new in zip(least, slack, strict=True)]
            numbers = f"{call['took']:8.1f} {call['allowed']:8.0f} {call['grew'] / 1e9:6.2f} {call['room'] / 1e9:6.2f}"
            shown = call["what"].split(" ")[0]
            print(f"{path.name:28} {size / 1e6:7.3f}  {shown:10.10} {numbers}  {slack[0]:.0f}x {slack[1]:.0f}x")
        print(f"{path.name:28} {verdict[:90]}", flush=True)
    print(f"least slack: {least[0]:.1f} of time, {least[1]:.1f} of memory")


if __name__ == "__main__":
    main()
