"""Folders of sentence-transformers: one ONNX file with pooling and normalization, held against sums by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

import onnxtool
from onnxtool.errors import InputError, UnsafeError, UnsupportedError
from onnxtool.runtime.runner import OnnxRunner
from tests.generation import tiny

IDS = np.asarray([[5, 9, 30, 0, 0], [7, 8, 40, 41, 42], [0, 0, 4, 3, 3]])
MASK = np.asarray([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}


def written(folder: Path, *poolings: str, segments: bool = False, after: Sequence[str] = (), inside: str = "") -> Path:
    """A folder as the library writes it; `inside`, where the transformer lies."""
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=320, max_position_embeddings=128, **SIZES)
    main = folder / inside
    transformers.BertModel(config).eval().save_pretrained(main)
    tiny.write_tokenizer(main)
    names = ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]  # as of BERT's tokenizers
    settings = json.loads((main / "tokenizer_config.json").read_text()) | {"model_input_names": names}
    (main / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "1_Pooling").mkdir()
    asked = {f"pooling_mode_{p}": True for p in poolings}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **asked}))
    kinds = [(inside, "Transformer"), ("1_Pooling", "Pooling"), *((f"{i + 2}_{k}", k) for i, k in enumerate(after))]
    modules = [{"idx": i, "path": p, "type": f"sentence_transformers.models.{k}"} for i, (p, k) in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def tokens(folder: Path) -> np.ndarray:
    """The vectors of all tokens."""
    model = transformers.BertModel.from_pretrained(folder)
    with torch.no_grad():
        return model(input_ids=torch.tensor(IDS), attention_mask=torch.tensor(MASK)).last_hidden_state.numpy()


def embedded(file: Path) -> np.ndarray:
    """What the ONNX file gives."""
    runner = OnnxRunner.open(file)
    feeds = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": np.zeros_like(IDS)}
    return runner.run({i.name: feeds[i.name] for i in runner.inputs})["sentence_embedding"]


@pytest.mark.parametrize("segments", [False, True])
def test_the_mean_of_the_tokens_that_count_is_normalized(tmp_path: Path, segments: bool) -> None:
    folder = written(tmp_path / "model", "mean_tokens", segments=segments, after=["Dropout", "Normalize"])
    report = onnxtool.convert(folder, tmp_path / "out.onnx")
    assert report.ok and [o.name for o in report.outputs] == ["sentence_embedding"]
    assert ("token_type_ids" in {i.name for i in report.inputs}) == segments
    assert all(i.shape == ("batch", "sequence") for i in report.inputs)
    means = np.stack([h[m == 1].mean(0) for h, m in zip(tokens(folder), MASK, strict=True)])
    expected = means / np.linalg.norm(means, axis=1, keepdims=True)
    np.testing.assert_allclose(embedded(tmp_path / "out.onnx"), expected, atol=1e-5)


def test_every_pooling_is_what_its_name_says_and_several_stand_side_by_side(tmp_path: Path) -> None:
    of_one: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "max_tokens": lambda v: v.max(0),
        "mean_tokens": lambda v: v.mean(0),
        "mean_sqrt_len_tokens": lambda v: v.sum(0) / np.sqrt(len(v)),
        "lasttoken": lambda v: v[-1],
    }
    folder = written(tmp_path / "model", "lasttoken", "cls_token", *of_one, "weightedmean_tokens")
    assert onnxtool.convert(folder, tmp_path / "out.onnx").ok
    expected = []
    for value, mask in zip(tokens(folder), MASK, strict=True):
        by_name = {name: pool(value[mask == 1]) for name, pool in of_one.items()}
        by_name["cls_token"] = value[0]
        by_name["weightedmean_tokens"] = np.average(value, axis=0, weights=mask * np.arange(1, 6))
        order = ["cls_token", *list(of_one)[:3], "weightedmean_tokens", "lasttoken"]
        expected.append(np.concatenate([by_name[name] for name in order]))
    np.testing.assert_allclose(embedded(tmp_path / "out.onnx"), np.stack(expected), atol=1e-5)


def test_a_dense_layer_and_a_transformer_in_a_folder_of_its_own(tmp_path: Path) -> None:
    folder = written(tmp_path / "model", "cls_token", after=["Dense"], inside="0_Transformer")
    weight = np.random.default_rng(0).normal(size=(7, 32)).astype(np.float32)
    dense = folder / "2_Dense"
    dense.mkdir()
    safetensors.numpy.save_file({"linear.weight": weight}, dense / "model.safetensors")
    settings = {"in_features": 32, "out_features": 7, "bias": False, "activation_function": "torch.nn.Tanh"}
    (dense / "config.json").write_text(json.dumps(settings))
    assert onnxtool.convert(folder, tmp_path / "out.onnx").ok
    expected = np.tanh(tokens(folder / "0_Transformer")[:, 0] @ weight.T)
    np.testing.assert_allclose(embedded(tmp_path / "out.onnx"), expected, atol=1e-5)
    assert onnxtool.compare(folder, tmp_path / "out.onnx").ok


def test_another_task_is_of_the_transformer_alone(tmp_path: Path) -> None:
    folder = written(tmp_path / "model", "mean_tokens")
    report = onnxtool.convert(folder, tmp_path / "out.onnx", task="feature-extraction")
    assert "last_hidden_state" in [o.name for o in report.outputs]


def test_a_pooling_that_is_not_known_is_one_line(tmp_path: Path) -> None:
    folder = written(tmp_path / "model", "mean_tokens", "median_tokens")
    with pytest.raises(UnsupportedError, match="median_tokens"):
        onnxtool.convert(folder, tmp_path / "out.onnx")


@pytest.mark.parametrize("text", ["{", "[1]", '[{"path": ""}]'])
def test_a_list_of_modules_that_is_none_is_one_line(tmp_path: Path, text: str) -> None:
    folder = written(tmp_path / "model", "cls_token")
    (folder / "modules.json").write_text(text)
    with pytest.raises(InputError, match=r"modules\.json: not a list of modules"):
        onnxtool.convert(folder, tmp_path / "out.onnx")


def test_a_module_outside_the_folder_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "model", "cls_token")
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["path"] = "../elsewhere"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(UnsafeError, match="outside the folder"):
        onnxtool.convert(folder, tmp_path / "out.onnx")
