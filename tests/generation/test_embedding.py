"""Embedding models: one ONNX file with pooling and normalization, held against sums by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from onnxtool.errors import UnsafeError, UnsupportedError
from onnxtool.generation.embedding import convert_embedding_model, is_embedding_model
from onnxtool.options.convert import ConvertOptions
from onnxtool.runtime.runner import OnnxRunner
from tests.generation import tiny


def written(folder: Path, pooling: str, *, segments: bool = False) -> Path:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=320,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=128,
    )
    transformers.BertModel(config).eval().save_pretrained(folder)
    tiny.write_tokenizer(folder)
    if segments:  # as the tokenizers of BERT give them
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        settings["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 32, f"pooling_mode_{pooling}": True})
    )
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    modules = [{"idx": i, "path": p, "type": f"sentence_transformers.models.{k}"} for i, (p, k) in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


@pytest.mark.parametrize("segments", [False, True])
def test_the_mean_of_the_tokens_that_count_is_normalized(tmp_path: Path, segments: bool) -> None:
    folder = written(tmp_path / "model", "mean_tokens", segments=segments)
    assert is_embedding_model(folder)
    report = convert_embedding_model(folder, tmp_path / "out.onnx", ConvertOptions(effort="quick"))
    assert report.ok and [o.name for o in report.outputs] == ["sentence_embedding"]
    ids = np.asarray([[5, 9, 30, 0, 0], [7, 8, 40, 41, 42], [3, 3, 0, 0, 0]])
    mask = np.asarray([[1, 1, 1, 0, 0], [1] * 5, [1, 1, 0, 0, 0]])
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    assert ("token_type_ids" in {i.name for i in runner.inputs}) == segments
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    found = runner.run({i.name: feeds[i.name] for i in runner.inputs})["sentence_embedding"]
    model = transformers.BertModel.from_pretrained(folder)
    with torch.no_grad():
        hidden = model(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask)).last_hidden_state.numpy()
    means = np.stack([h[m == 1].mean(0) for h, m in zip(hidden, mask, strict=True)])
    expected = means / np.linalg.norm(means, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_pooling_that_is_not_known_is_one_line(tmp_path: Path) -> None:
    folder = written(tmp_path / "model", "weightedmean_tokens")
    with pytest.raises(UnsupportedError, match="weightedmean_tokens"):
        convert_embedding_model(folder, tmp_path / "out.onnx", ConvertOptions())


def test_a_module_outside_the_folder_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "model", "cls_token")
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["path"] = "../elsewhere"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(UnsafeError, match="outside the folder"):
        convert_embedding_model(folder, tmp_path / "out.onnx", ConvertOptions())
