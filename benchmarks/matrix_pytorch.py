"""PyTorch architectures with random weights at small size, for convert_matrix.py. Needs timm and transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """One model to convert.

    Attributes:
        name: what the table calls it.
        build: "timm" or the name of a transformers class.
        arguments: for timm its keyword arguments, for transformers its configuration.
        shapes: input shapes, dynamic dims by name.
        dtypes: input dtypes where the name does not say.
    """

    name: str
    build: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    dtypes: Mapping[str, np.dtype] = field(default_factory=dict)


def timm(name: str, size: int = 64, **arguments: Any) -> Case:
    """An image model at a small image size."""
    return Case(name, "timm", {"model_name": name, **arguments}, {"x": ("batch", 3, size, size)})


def text(name: str, build: str, mask: bool = True, **config: Any) -> Case:
    """A language model: tokens of dynamic batch and length."""
    shapes: dict[str, tuple[int | str, ...]] = {"input_ids": ("batch", "length")}
    if mask:
        shapes["attention_mask"] = ("batch", "length")
    return Case(name, build, {"vocab_size": 97, **config}, shapes)


_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_LLAMA = {**_SMALL, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_VISION = {**_SMALL, "image_size": 32, "patch_size": 8}
_PIXELS = {"pixel_values": ("batch", 3, 32, 32)}
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
_BART = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64,
}  # fmt: skip
_BOTH = {"input_ids": ("batch", "source"), "decoder_input_ids": ("batch", "target")}

CASES = (
    text("BERT", "BertModel", **_SMALL),
    text("BERT classifier", "BertForSequenceClassification", **_SMALL),
    text("RoBERTa", "RobertaForMaskedLM", **_SMALL, pad_token_id=1, max_position_embeddings=80),
    text("DistilBERT", "DistilBertModel", dim=32, n_layers=2, n_heads=4, hidden_dim=48),
    text("ALBERT", "AlbertModel", **_SMALL, embedding_size=16),
    text("ELECTRA", "ElectraModel", **_SMALL, embedding_size=16),
    text("DeBERTa v2", "DebertaV2Model", **_SMALL),
    text("MPNet", "MPNetModel", **_SMALL),
    text("GPT-2", "GPT2LMHeadModel", n_embd=32, n_layer=2, n_head=4, n_positions=64),
    text("GPT-NeoX", "GPTNeoXForCausalLM", **_SMALL),
    text(
        "OPT",
        "OPTForCausalLM",
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=48,
        word_embed_proj_dim=32,
        max_position_embeddings=64,
    ),
    text("LLaMA", "LlamaForCausalLM", **_LLAMA),
    text("Mistral", "MistralForCausalLM", **_LLAMA, sliding_window=None),
    text("Qwen2", "Qwen2ForCausalLM", **_LLAMA),
    text("Qwen3", "Qwen3ForCausalLM", **_LLAMA, head_dim=8),
    text("Gemma", "GemmaForCausalLM", **_LLAMA, head_dim=8),
    text("Phi", "PhiForCausalLM", **_SMALL, pad_token_id=0),
    text("T5 encoder", "T5EncoderModel", **_T5),
    Case("T5", "T5ForConditionalGeneration", {"vocab_size": 97, "decoder_start_token_id": 0, **_T5}, _BOTH),
    Case("BART", "BartForConditionalGeneration", {"vocab_size": 97, **_BART}, _BOTH),
    Case(
        "Marian", "MarianMTModel", {"vocab_size": 97, "pad_token_id": 96, "decoder_start_token_id": 96, **_BART}, _BOTH
    ),
    Case(
        "Whisper encoder",
        "WhisperEncoder",
        {"num_mel_bins": 16, "max_source_positions": 50, **_BART, "max_position_embeddings": None},
        {"input_features": ("batch", 16, 100)},
    ),
    Case(
        "wav2vec 2.0",
        "Wav2Vec2Model",
        {
            **_SMALL,
            "conv_dim": (16, 16),
            "conv_kernel": (5, 3),
            "conv_stride": (4, 2),
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4,
        },
        {"input_values": ("batch", 400)},
    ),
    Case("ViT (transformers)", "ViTForImageClassification", _VISION, _PIXELS),
    Case("DINOv2", "Dinov2Model", _VISION, _PIXELS),
    Case("CLIP vision", "CLIPVisionModel", _VISION, _PIXELS),
    Case(
        "CLIP text",
        "CLIPTextModel",
        {"vocab_size": 97, "max_position_embeddings": 64, "eos_token_id": 2, **_SMALL},
        {"input_ids": ("batch", "length")},
    ),
    Case("SigLIP vision", "SiglipVisionModel", _VISION, _PIXELS),
    Case(
        "SegFormer",
        "SegformerForSemanticSegmentation",
        {
            "hidden_sizes": (8, 16, 24, 32),
            "num_attention_heads": (1, 2, 2, 4),
            "depths": (1, 1, 1, 1),
            "decoder_hidden_size": 16,
        },
        {"pixel_values": ("batch", 3, 64, 64)},
    ),
    Case(
        "DETR",
        "DetrForObjectDetection",
        {
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "num_queries": 10,
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
            "backbone": None,
            "backbone_config": "resnet",
        },
        {"pixel_values": ("batch", 3, 64, 64)},
    ),
    Case(
        "YOLOS",
        "YolosForObjectDetection",
        {**_VISION, "image_size": (32, 32), "num_detection_tokens": 10, "use_mid_position_embeddings": False},
        _PIXELS,
    ),
    Case(
        "DPT",
        "DPTForDepthEstimation",
        {
            **_VISION,
            "num_hidden_layers": 4,
            "backbone_out_indices": (0, 1, 2, 3),
            "neck_hidden_sizes": (8, 8, 8, 8),
            "fusion_hidden_size": 8,
            "image_size": 32,
            "patch_size": 16,
        },
        _PIXELS,
    ),
    Case(
        "ResNet (transformers)",
        "ResNetModel",
        {"embedding_size": 8, "hidden_sizes": (8, 16), "depths": (1, 1)},
        _PIXELS,
    ),
    timm("resnet18"),
    timm("mobilenetv2_050"),
    timm("mobilenetv3_small_050"),
    timm("efficientnet_b0"),
    timm("efficientnet_lite0"),
    timm("convnext_atto"),
    timm("convnextv2_atto"),
    timm("vit_tiny_patch16_224", img_size=64),
    timm("deit_tiny_distilled_patch16_224", img_size=64),
    timm("beit_base_patch16_224", img_size=64, depth=2, embed_dim=48, num_heads=4),
    timm("eva02_tiny_patch14_224", 56, img_size=56, depth=2),
    timm("swin_tiny_patch4_window7_224", 224, depths=(1, 1, 1, 1), embed_dim=24),
    timm("swinv2_tiny_window8_256", 64, img_size=64, depths=(1, 1, 1, 1), embed_dim=24),
    timm("regnetx_002"),
    timm("densenet121"),
    timm("vgg11_bn", num_classes=10),
    timm("inception_v3", 96),
    timm("ghostnet_100"),
    timm("mnasnet_small"),
    timm("mobilevit_xxs"),
    timm("efficientformer_l1", 224),
    timm("poolformer_s12"),
    timm("mixer_s32_224", 224),
    timm("levit_128s", 224),
    timm("coatnet_nano_rw_224", 224),
    timm("fastvit_t8"),
    timm("repvgg_a0"),
    timm("resnest14d"),
    timm("dla34"),
    timm("xcit_nano_12_p16_224", 64, img_size=64, depth=2),
    timm("hiera_tiny_224", 224, stages=(1, 1, 1, 1), embed_dim=24),
)


def build(name: str) -> Any:
    """The torch module of a case; the factory that convert is given."""
    case = next(c for c in CASES if c.name == name)
    _load_torchvision()
    if case.build == "timm":
        import timm as library

        return _without_zeros(library.create_model(pretrained=False, **case.arguments))
    import transformers

    cls = getattr(transformers, case.build, None) or _inner_class(case.build)
    arguments = {k: v for k, v in case.arguments.items() if v is not None}
    if arguments.get("backbone_config") == "resnet":
        arguments["backbone_config"] = transformers.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], out_features=["stage4"]
        )
    config = cls.config_class(**arguments)
    config.use_cache = False
    return _without_zeros(cls(config))


def _without_zeros(module: Any) -> Any:
    """Some heads start as zeros, and their output says nothing: give them values."""
    import torch

    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.numel() and not parameter.any():
                parameter.normal_(std=0.02)
    return module


def _inner_class(name: str) -> Any:
    from transformers.models.whisper.modeling_whisper import WhisperConfig, WhisperEncoder

    WhisperEncoder.config_class = WhisperConfig
    return {"WhisperEncoder": WhisperEncoder}[name]


def _load_torchvision() -> None:
    """Import torchvision even where its compiled operators do not fit this torch: no case needs them."""
    import torch

    for _ in range(20):
        try:
            import torchvision  # noqa: F401
        except ImportError:
            return
        except RuntimeError as error:
            missing = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if missing is None:
                raise
            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define(f"{missing[1]}(Tensor x) -> Tensor")
            _KEPT.append(library)
        else:
            return


_KEPT: list[Any] = []
