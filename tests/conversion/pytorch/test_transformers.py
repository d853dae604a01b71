"""Hugging Face folders. What needs the transformers library is skipped where it is not installed."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch

from onnxtool.conversion.convert import convert
from onnxtool.conversion.pytorch.adapter import form_of
from onnxtool.conversion.pytorch.transformers import made_ready
from onnxtool.conversion.pytorch.usual_inputs import usual_shapes
from onnxtool.conversion.source import Source
from onnxtool.errors import MissingExtraError, UnsafeError, UnsupportedError, UsageError
from onnxtool.options.convert import ConvertOptions

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 31}
needs_transformers = pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")


def folder_with(path: Path, **config: Any) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"model_type": "bert", **config}), encoding="utf-8")
    (path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return path


def test_is_recognised_by_its_config_and_weights(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "m")
    assert form_of(Source(folder), ConvertOptions()) == "hugging face"
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    assert form_of(Source(folder), ConvertOptions()) is None


def test_without_transformers_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxtool.conversion.pytorch.transformers.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'pip install "\.\[transformers\]"'):
        convert(folder_with(tmp_path / "m"), tmp_path / "x.onnx")


@needs_transformers
def test_code_in_the_folder_needs_trust(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "m", auto_map={"AutoModel": "modeling.Net"})
    with pytest.raises(UnsafeError, match=r"its own Python code.*--trust"):
        convert(folder, tmp_path / "x.onnx")


@needs_transformers
def test_unknown_class_and_task(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "m", architectures=["NoSuchModel"])
    with pytest.raises(UnsupportedError, match=r"has no 'NoSuchModel'.*--task"):
        convert(folder, tmp_path / "x.onnx")
    with pytest.raises(UsageError, match="--task juggling: must be one of"):
        convert(folder, tmp_path / "x.onnx", task="juggling")


@needs_transformers
def test_folder_needs_no_shapes(tmp_path: Path) -> None:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(1)
    module = BertForSequenceClassification(BertConfig(**SMALL)).eval()
    module.save_pretrained(tmp_path / "m")
    report = convert(tmp_path / "m", tmp_path / "x.onnx")
    assert report.ok and report.form == "Hugging Face BertForSequenceClassification"
    assert [str(i) for i in report.inputs] == [
        "input_ids: int64[batch, sequence]",
        "attention_mask: int64[batch, sequence]",
    ]
    assert [str(o) for o in report.outputs] == ["logits: float32[batch, 2]"]
    ids = np.random.default_rng(0).integers(0, 31, (3, 7))
    session = ort.InferenceSession(str(tmp_path / "x.onnx"), providers=["CPUExecutionProvider"])
    with torch.no_grad():
        expected = module(torch.from_numpy(ids), torch.ones(3, 7, dtype=torch.int64)).logits
    got = session.run(["logits"], {"input_ids": ids, "attention_mask": np.ones((3, 7), np.int64)})[0]
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5)
    hidden = convert(tmp_path / "m", tmp_path / "y.onnx", task="feature-extraction")
    assert hidden.outputs[0].name == "last_hidden_state"
    assert not any("cache" in n for n in report.notes), "a classifier has none"


@needs_transformers
def test_what_the_tokenizer_gives_is_an_input(tmp_path: Path) -> None:
    # Segments of a pair of texts: dropped, each pair would be read as one text. Large, so that it would show.
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    torch.manual_seed(1)
    module = BertForSequenceClassification(BertConfig(**SMALL, initializer_range=0.5)).eval()
    module.save_pretrained(tmp_path / "m")
    plain = convert(tmp_path / "m", tmp_path / "plain.onnx")
    (advice,) = [n for n in plain.notes if "token_type_ids are taken as zeros" in n]
    assert advice.endswith("add --input-shape token_type_ids:batch,sequence")
    named = convert(tmp_path / "m", tmp_path / "named.onnx", input_shapes={"token_type_ids": ("batch", "sequence")})
    assert [i.name for i in named.inputs] == ["input_ids", "attention_mask", "token_type_ids"]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "cat"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokenizer = BertTokenizerFast(str(tmp_path / "vocab.txt"))
    tokenizer.save_pretrained(tmp_path / "m")
    report = convert(tmp_path / "m", tmp_path / "x.onnx")
    assert [i.name for i in report.inputs] == ["input_ids", "attention_mask", "token_type_ids"]
    pairs = tokenizer(["a dog", "cat"], ["a cat a cat", "dog"], padding=True, return_tensors="pt")
    assert pairs["token_type_ids"].sum() > 0
    session = ort.InferenceSession(str(tmp_path / "x.onnx"), providers=["CPUExecutionProvider"])
    got = session.run(["logits"], {n: a.numpy() for n, a in pairs.items()})[0]
    with torch.no_grad():
        np.testing.assert_allclose(got, module(**pairs).logits, rtol=1e-3, atol=1e-5)
    one_text = module(pairs["input_ids"], pairs["attention_mask"]).logits.detach().numpy()
    assert np.abs(got - one_text).max() > 0.01


@needs_transformers
def test_boxes_of_a_layout_are_an_input(tmp_path: Path) -> None:
    """Right is not left of left: of any four numbers the model would look up a width below zero."""
    from transformers import LayoutLMConfig, LayoutLMForTokenClassification

    torch.manual_seed(1)
    config = LayoutLMConfig(**SMALL, max_2d_position_embeddings=20, initializer_range=0.5)
    module = LayoutLMForTokenClassification(config).eval()
    report = convert(module, tmp_path / "x.onnx")
    assert {i.name: i.shape for i in report.inputs}["bbox"] == ("batch", "sequence", 4)
    boxes = torch.tensor([[[0, 3, 19, 19], [5, 5, 5, 6], [1, 2, 3, 4]]])
    tokens, mask = torch.tensor([[4, 5, 6]]), torch.ones(1, 3, dtype=torch.int64)
    session = ort.InferenceSession(str(tmp_path / "x.onnx"), providers=["CPUExecutionProvider"])
    feeds = {"input_ids": tokens, "bbox": boxes, "attention_mask": mask}
    (got,) = session.run(["logits"], {n: a.numpy() for n, a in feeds.items()})
    with torch.no_grad():
        np.testing.assert_allclose(got, module(**feeds).logits, rtol=1e-3, atol=1e-5)
        assert np.abs(got - module(tokens, attention_mask=mask).logits.numpy()).max() > 0.01


@needs_transformers
def test_frames_of_a_video_are_a_dim() -> None:
    from transformers import VideoMAEConfig, VideoMAEModel

    layers = {k: v for k, v in SMALL.items() if k != "vocab_size"}
    module = VideoMAEModel(VideoMAEConfig(image_size=16, patch_size=8, num_frames=4, **layers)).eval()
    shapes = usual_shapes(module)
    assert shapes == {"pixel_values": ("batch", 4, 3, 16, 16)}
    assert made_ready(module, []) == shapes


@needs_transformers
def test_the_past_of_a_time_series_is_as_long_as_the_model_looks_back() -> None:
    import transformers

    sizes = {"context_length": 16, "prediction_length": 2, "d_model": 8}
    patches = transformers.PatchTSTModel(
        transformers.PatchTSTConfig(num_input_channels=1, num_attention_heads=2, num_hidden_layers=1, **sizes)
    )
    assert usual_shapes(patches) == {"past_values": ("batch", 16, 1)}
    layers = dict.fromkeys(("encoder_layers", "decoder_layers", "encoder_ffn_dim", "decoder_ffn_dim"), 1)
    lagged = {"lags_sequence": [1, 3], "num_time_features": 2, **layers, **sizes}
    module = transformers.TimeSeriesTransformerModel(transformers.TimeSeriesTransformerConfig(**lagged))
    shapes = usual_shapes(module)
    assert shapes == {
        "past_values": ("batch", 19),
        "past_time_features": ("batch", 19, 2),
        "past_observed_mask": ("batch", 19),
    }
    module.eval()(**{name: torch.ones(2, *shape[1:]) for name, shape in shapes.items()})


@needs_transformers
def test_choices_are_a_dim_of_their_own(tmp_path: Path) -> None:
    from transformers import BertConfig, BertForMultipleChoice

    report = convert(BertForMultipleChoice(BertConfig(**SMALL)), tmp_path / "x.onnx")
    assert report.ok and report.inputs[0].shape == ("batch", "choices", "sequence")


@needs_transformers
def test_decoder_is_exported_without_its_cache(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    LlamaForCausalLM(LlamaConfig(**SMALL, num_key_value_heads=1)).save_pretrained(tmp_path / "m")
    report = convert(tmp_path / "m", tmp_path / "x.onnx")
    assert report.ok and [o.name for o in report.outputs] == ["logits"]
    assert any("without a key-value cache" in n for n in report.notes)


@needs_transformers
def test_the_image_size_may_be_the_encoders(tmp_path: Path) -> None:
    import transformers

    layers = {k: v for k, v in SMALL.items() if k != "vocab_size"}
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.ViTConfig(image_size=32, patch_size=16, **layers),
        transformers.TrOCRConfig(
            vocab_size=31, d_model=16, decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=24
        ),
    )
    module = transformers.VisionEncoderDecoderModel(config)
    shapes = usual_shapes(module)
    assert shapes == {"pixel_values": ("batch", 3, 32, 32), "decoder_input_ids": ("batch", "decoder_sequence")}


@needs_transformers
def test_texts_and_images_of_a_model_that_compares_them_are_counted_apart() -> None:
    import transformers

    layers = {k: v for k, v in SMALL.items() if k != "vocab_size"}
    text = {"vocab_size": 31, "eos_token_id": 2, "max_position_embeddings": 16, **layers}
    vision = {"image_size": 16, "patch_size": 8, **layers}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    shapes = usual_shapes(transformers.CLIPModel(config))
    assert shapes["input_ids"] == shapes["attention_mask"] == ("texts", "sequence")
    assert shapes["pixel_values"] == ("images", 3, 16, 16)


@needs_transformers
def test_a_mixture_of_experts(tmp_path: Path) -> None:
    import transformers

    config = transformers.MixtralConfig(num_key_value_heads=1, num_local_experts=3, num_experts_per_tok=2, **SMALL)
    torch.manual_seed(0)
    transformers.MixtralForCausalLM(config).save_pretrained(tmp_path / "m")
    assert convert(tmp_path / "m", tmp_path / "x.onnx").ok


@needs_transformers
def test_a_model_in_memory_knows_its_usual_inputs() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    from onnxtool.conversion.pytorch.load import load_module

    module = GPT2LMHeadModel(GPT2Config(vocab_size=31, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    loaded = load_module(Source(None, model=module), "memory", ConvertOptions())
    assert loaded.shapes == {"input_ids": ("batch", "sequence"), "attention_mask": ("batch", "sequence")}
    assert loaded.notes == ["exported without a key-value cache"]
    assert module.config.use_cache  # the user's own object stays as it is
    plain = load_module(Source(None, model=torch.nn.Linear(2, 2)), "memory", ConvertOptions())
    assert plain.shapes == {}


def test_masks_of_recordings_and_images_are_inputs_where_the_model_is_given_them(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    ears = {"conv_dim": [8, 8], "conv_stride": [5, 2], "conv_kernel": [10, 3], "num_feat_extract_layers": 2}
    positions = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    config = transformers.HubertConfig(
        **sizes, **ears, **positions, feat_extract_norm="layer", do_stable_layer_norm=True
    )
    model = transformers.HubertModel(config).eval()
    report = convert(model, tmp_path / "m.onnx", effort="quick")
    assert report.ok
    assert not any("without attention_mask" in note for note in report.notes)
    recordings = np.random.default_rng(0).normal(size=(2, 400)).astype(np.float32)
    mask = np.ones((2, 400), np.int64)
    mask[1, 200:] = 0
    feeds = {"input_values": recordings, "attention_mask": mask}
    (found,) = ort.InferenceSession(tmp_path / "m.onnx").run(None, feeds)
    with torch.no_grad():
        expected = model(torch.from_numpy(recordings), attention_mask=torch.from_numpy(mask)).last_hidden_state
        unmasked = model(torch.from_numpy(recordings)).last_hidden_state
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-3, atol=1e-4)
    assert np.abs(found - unmasked.numpy()).max() > 1e-3

    model.config.feat_extract_norm = "group"  # trained on zeros in place of what is missing
    assert usual_shapes(model) == {"input_values": ("batch", "samples")}
    spectra = transformers.ASTModel(transformers.ASTConfig(**sizes, max_length=48, num_mel_bins=32))
    assert usual_shapes(spectra) == {"input_values": ("batch", 48, 32)}
    detector: Any = SimpleNamespace(config=SimpleNamespace(image_size=32), main_input_name="pixel_values")
    detector.forward = lambda pixel_values, pixel_mask: None
    assert usual_shapes(detector) == {"pixel_values": ("batch", 3, 32, 32), "pixel_mask": ("batch", 32, 32)}


@needs_transformers
def test_other_sizes_of_images_are_offered_where_the_model_takes_them() -> None:
    import transformers

    small: dict[str, Any] = {"image_size": 32, "patch_size": 4, "num_channels": 1}
    swin = transformers.SwinConfig(embed_dim=8, depths=[1], num_heads=[2], window_size=4, **small)
    layers = {name: SMALL[name] for name in SMALL if name != "vocab_size"}
    for module, offered in (
        (transformers.SwinModel(swin), ["pixel_values:batch,1,HEIGHT,WIDTH"]),
        (transformers.ViTModel(transformers.ViTConfig(**small, **layers)), []),
    ):
        notes: list[str] = []
        made_ready(module, notes)
        assert [note.rpartition(" ")[2] for note in notes if "32 x 32" in note] == offered
