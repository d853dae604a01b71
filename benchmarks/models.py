"""Models for the optimizer's benchmarks, built here: nothing is downloaded, weights are random with a fixed seed.

    python benchmarks/models.py FOLDER [--only NAME ...] [--list]

PyTorch models come from transformers (both torch exporters, small sizes of the real architectures), or, without
transformers, from the few modules below; Keras models go through tf2onnx; the "light" ones come from the onnx package.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

Builder = Callable[[Path], None]


def _export(
    module: Any, inputs: tuple[Any, ...], names: list[str], dynamic: dict[str, Any], path: Path, how: str
) -> None:
    import torch

    module = module.eval()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if how == "torchscript":
            axes = {name: {int(a): str(d) for a, d in dims.items()} for name, dims in dynamic.items()}
            torch.onnx.export(
                module, inputs, str(path), input_names=names, dynamic_axes=axes, opset_version=17, dynamo=False,
                do_constant_folding=False,
            )  # fmt: skip
            return
        shapes = tuple({a: torch.export.Dim(d, min=1, max=4096) for a, d in dynamic.get(n, {}).items()} for n in names)
        program = torch.onnx.export(
            module, inputs, input_names=names, dynamic_shapes=(shapes,), dynamo=True, optimize=how != "dynamo-raw",
            opset_version=18, verbose=False,
        )  # fmt: skip
        program.save(str(path), external_data=False)


class _First:
    """Wraps a transformers model so that it takes and gives plain tensors, by the given names."""

    def __new__(cls, model: Any, *names: str) -> Any:
        import torch

        class Wrapped(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, *inputs: Any) -> Any:
                return self.model(**dict(zip(names, inputs, strict=True)), return_dict=False)[0]

        return Wrapped()


def _text(kind: str, how: str) -> Builder:
    def build(path: Path) -> None:
        import torch
        import transformers as t

        torch.manual_seed(0)
        if kind == "bert":
            config = t.BertConfig(
                hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, vocab_size=2000
            )
            config._attn_implementation = "eager" if how == "torchscript" else "sdpa"
            model = t.BertModel(config, add_pooling_layer=False)
        elif kind == "distilbert":
            model = t.DistilBertModel(
                t.DistilBertConfig(dim=256, n_layers=4, n_heads=4, hidden_dim=1024, vocab_size=2000)
            )
        elif kind == "llama":
            config = t.LlamaConfig(
                hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=4,
                num_key_value_heads=2, vocab_size=2000, max_position_embeddings=1024, use_cache=False,
            )  # fmt: skip
            model = t.LlamaForCausalLM(config)
        elif kind == "t5":
            config = t.T5Config(d_model=256, d_kv=64, d_ff=512, num_layers=4, num_heads=4, vocab_size=2000)
            model = t.T5EncoderModel(config)
        else:
            config = t.GPT2Config(n_embd=256, n_layer=4, n_head=4, vocab_size=2000, n_positions=512, use_cache=False)
            model = t.GPT2LMHeadModel(config)
        _shake_rows(model)
        ids = torch.randint(0, 2000, (2, 16))
        mask = torch.ones(2, 16, dtype=torch.int64)
        dims = {0: "batch", 1: "length"}
        both = {"input_ids": dims, "attention_mask": dims}
        _export(_First(model, *both), (ids, mask), list(both), both, path, how)

    return build


def _image(kind: str, how: str) -> Builder:
    def build(path: Path) -> None:
        import torch
        import transformers as t

        torch.manual_seed(0)
        size = 64
        if kind == "resnet":
            config: Any = t.ResNetConfig(
                embedding_size=16, hidden_sizes=[32, 64, 96, 128], depths=[3, 4, 6, 3], num_labels=100
            )
            model: Any = t.ResNetForImageClassification(config)
        elif kind == "mobilenet":
            model = t.MobileNetV2ForImageClassification(t.MobileNetV2Config(image_size=size, num_labels=100))
        elif kind == "convnext":
            config = t.ConvNextConfig(hidden_sizes=[24, 48, 96, 192], depths=[2, 2, 4, 2], num_labels=100)
            model = t.ConvNextForImageClassification(config)
        elif kind == "vit":
            config = t.ViTConfig(
                hidden_size=192, num_hidden_layers=6, num_attention_heads=3, intermediate_size=768, image_size=size,
                patch_size=8, num_labels=100,
            )  # fmt: skip
            model = t.ViTForImageClassification(config)
        else:
            config = t.SegformerConfig(hidden_sizes=[16, 32, 64, 96], num_labels=20, decoder_hidden_size=64)
            model = t.SegformerForSemanticSegmentation(config)
        _shake_rows(model)
        _shake_statistics(model)
        image = torch.randn(2, 3, size, size)
        _export(_First(model, "pixel_values"), (image,), ["image"], {"image": {0: "batch"}}, path, how)

    return build


def _shake_rows(model: Any) -> None:
    """Give scales and biases values other than 1 and 0, as training would: zeros can be folded away, and ones too."""
    for name, weight in model.named_parameters():
        if weight.ndim == 1:
            weight.data.normal_(0.0 if name.endswith("bias") else 1.0, 0.05)


def _shake_statistics(model: Any) -> None:
    """Give BatchNorm layers statistics other than 0 and 1, as training would."""
    import torch

    for layer in model.modules():
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
            layer.running_mean.normal_(0, 0.2)
            layer.running_var.uniform_(0.6, 1.4)
            layer.weight.data.uniform_(0.6, 1.4)
            layer.bias.data.normal_(0, 0.2)


def _keras(kind: str) -> Builder:
    """A Keras model through its SavedModel and tf2onnx, as people do without onnxtool."""

    def build(path: Path) -> None:
        import keras
        import numpy as np

        keras.utils.set_random_seed(0)
        if kind == "transformer":
            model = _keras_transformer()
        else:
            model = getattr(keras.applications, kind)(weights=None, input_shape=(96, 96, 3), classes=100)
        generator = np.random.default_rng(0)
        spread = 0.05 if kind == "transformer" else 0.02
        shaken = [w + np.abs(generator.normal(0, spread, w.shape)).astype(w.dtype) for w in model.get_weights()]
        model.set_weights([s if w.ndim == 1 else w for w, s in zip(model.get_weights(), shaken, strict=True)])
        with tempfile.TemporaryDirectory() as folder:
            model.export(folder, verbose=False)
            line = [
                sys.executable,
                "-m",
                "tf2onnx.convert",
                "--saved-model",
                folder,
                "--output",
                str(path),
                "--opset",
                "18",
            ]
            subprocess.run(line, check=True, capture_output=True)

    return build


def _keras_transformer() -> Any:
    import keras

    layers = keras.layers
    ids = keras.Input((None,), dtype="int32", name="ids")
    value = layers.Embedding(1000, 192)(ids)
    for _ in range(4):
        value = layers.LayerNormalization()(value + layers.MultiHeadAttention(4, 48)(value, value))
        wide = layers.Dense(768, activation=lambda x: keras.activations.gelu(x, approximate=True))(value)
        value = layers.LayerNormalization()(value + layers.Dense(192)(wide))
    return keras.Model(ids, layers.Dense(10)(value))


def _light(name: str) -> Builder:
    def build(path: Path) -> None:
        import onnx

        source = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
        path.write_bytes(source.read_bytes())

    return build


def builders() -> dict[str, Builder]:
    """Name -> what writes the model to a path."""
    found: dict[str, Builder] = {}
    for kind in ("resnet", "mobilenet", "convnext", "vit", "segformer"):
        found[f"{kind}-dynamo-raw"] = _image(kind, "dynamo-raw")
        found[f"{kind}-torchscript"] = _image(kind, "torchscript")
    for kind in ("bert", "distilbert", "gpt2", "llama", "t5"):
        found[f"{kind}-dynamo"] = _text(kind, "dynamo")
        found[f"{kind}-torchscript"] = _text(kind, "torchscript")
    found["keras-transformer"] = _keras("transformer")
    for name in ("MobileNetV2", "EfficientNetB0", "ResNet50V2"):
        found[f"keras-{name.lower()}"] = _keras(name)
    for name in ("resnet50", "densenet121", "shufflenet", "inception_v2", "squeezenet"):
        found[f"light-{name}"] = _light(name)
    return found


def zoo(folder: Path) -> dict[str, Path]:
    """Models in a folder of folders, each with a model.onnx."""
    return {path.parent.name: path for path in sorted(folder.glob("*/model.onnx"))}


def build_all(folder: Path, only: list[str] | None = None) -> dict[str, Path]:
    """Build what is not there yet; a model whose packages are missing is left out with a line on stderr."""
    folder.mkdir(parents=True, exist_ok=True)
    built = {}
    for name, build in builders().items():
        path = folder / f"{name}.onnx"
        if only and name not in only:
            continue
        try:
            if not path.exists():
                build(path)
            built[name] = path
        except Exception as error:  # a missing package or an export that this torch cannot do
            print(f"{name}: left out ({type(error).__name__}: {str(error).splitlines()[0][:120]})", file=sys.stderr)
    return built


def main() -> None:
    """Build and list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(builders()))
        return
    for name, path in build_all(arguments.folder, arguments.only).items():
        print(f"{name}\t{path.stat().st_size}\t{path}")


if __name__ == "__main__":
    main()
