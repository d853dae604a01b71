"""Encoder-decoders: three graphs that write what transformers writes, in optimum's layout."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
import transformers
from typer.testing import CliRunner

from onnxtool.cli.app import app
from onnxtool.errors import UnsafeError, UsageError
from onnxtool.generation import encoder_decoder, seq2seq_graphs
from onnxtool.generation.encoder_decoder import convert_encoder_decoder, wants_encoder_decoder
from onnxtool.model import io
from tests.generation import tiny


@pytest.fixture(scope="module", autouse=True)
def one_export(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each graph of the two models, which are the same in all tests, is exported once."""
    kept, export = tmp_path_factory.mktemp("graphs"), seq2seq_graphs._export

    def once(module: Any, given: Any, dims: Any, inputs: Sequence[str], outputs: Sequence[str], path: Path) -> None:
        known = kept / f"{'-'.join(inputs)}-{path.name}"
        if not known.exists():
            export(module, given, dims, inputs, outputs, path)
            shutil.copy(path, known)
        shutil.copy(known, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seq2seq_graphs, "_export", once)
        yield


def t5(folder: Path) -> Path:
    config = transformers.T5Config(
        vocab_size=320, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4, decoder_start_token_id=0, eos_token_id=2
    )
    return saved(transformers.T5ForConditionalGeneration(config), folder)


def whisper(folder: Path) -> Path:
    sizes: dict[str, Any] = dict.fromkeys(("encoder_layers", "decoder_layers"), 1)
    sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
    sizes |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 48)
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
    config = transformers.WhisperConfig(
        vocab_size=320, d_model=32, num_mel_bins=16, max_source_positions=20, max_target_positions=32, **sizes, **tokens
    )
    return saved(transformers.WhisperForConditionalGeneration(config), folder)


def saved(model: Any, folder: Path) -> Path:
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, 0.3)
    model.save_pretrained(folder)
    tiny.write_tokenizer(folder)
    return folder


def test_text_is_answered_as_the_source_answers(tmp_path: Path) -> None:
    source = t5(tmp_path / "t5")
    assert wants_encoder_decoder(source, tmp_path / "out", None)
    assert not wants_encoder_decoder(source, tmp_path / "out.onnx", None)
    done = CliRunner().invoke(app, ["convert", str(source), "-o", str(tmp_path / "out"), "-q"])
    assert done.exit_code == 0, done.output
    names = {f.name for f in (tmp_path / "out").iterdir()}
    assert {"encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"} <= names
    merged = tmp_path / "out" / "decoder_model_merged.onnx"
    weights = sum(v.const_value.nbytes for v in io.load(merged).graph.initializers.values() if v.const_value)
    assert weights < 1.1 * (tmp_path / "out" / "decoder_model.onnx").stat().st_size  # both branches share them
    assert {"config.json", "tokenizer.json", "provenance.json"} <= names and "model.safetensors" not in names
    step = io.load(tmp_path / "out" / "decoder_with_past_model.onnx").graph
    assert [i.name for i in step.inputs] == [
        "input_ids",
        "encoder_attention_mask",
        *(f"past_key_values.0.{side}.{part}" for side in ("decoder", "encoder") for part in ("key", "value")),
    ]
    assert [o.name for o in step.outputs] == ["logits", "present.0.decoder.key", "present.0.decoder.value"]
    model = transformers.T5ForConditionalGeneration.from_pretrained(source).eval()
    ids = np.asarray([[5, 9, 30, 41, 7, 8]])
    sessions = {n: encoder_decoder.create_session(tmp_path / "out" / n) for n in names if n.endswith(".onnx")}
    (proof,) = encoder_decoder._answers(sessions, model, ids, np.ones_like(ids))
    assert proof.tokens == 24 and proof.within(1e-5)


def test_speech_is_answered_and_a_wrong_cache_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = whisper(tmp_path / "whisper")
    export = seq2seq_graphs.export_graphs

    def swapped(*arguments: Any) -> None:
        """Keys and values change places in the decoder's cache."""
        export(*arguments)
        path = arguments[1] / seq2seq_graphs.DECODER
        model = io.load(path)
        key, value = (o for o in model.graph.outputs if ".decoder." in str(o.name))
        key.name, value.name = "swapped", key.name
        key.name = str(value.name).replace("key", "value")
        for weight in model.graph.initializers.values():
            assert weight.const_value is not None
            weight.const_value = ir.Tensor(weight.const_value.numpy().copy(), name=weight.name)
        io.save(model, path)

    report = convert_encoder_decoder(source, tmp_path / "out")
    assert (report.layers, report.heads, report.head_size, report.context) == (1, 4, 8, 32)
    assert report.ok and len(report.prompts) == 4 and all(p.within(1e-5) for p in report.prompts)
    monkeypatch.setattr(encoder_decoder, "export_graphs", swapped)
    wrong = convert_encoder_decoder(source, tmp_path / "wrong")
    assert not wrong.ok and not (tmp_path / "wrong").exists()


def test_a_merged_decoder_that_answers_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merge = seq2seq_graphs.merged_decoder

    def ignorant(first: ir.Model, cached: ir.Model) -> ir.Model:
        """The branch with the cache takes the encoder's keys for its values."""
        merged = merge(first, cached)
        key, value = (v for v in merged.graph.inputs if ".0.encoder." in str(v.name))
        value.replace_all_uses_with(key)
        return merged

    monkeypatch.setattr(seq2seq_graphs, "merged_decoder", ignorant)
    report = convert_encoder_decoder(t5(tmp_path / "t5"), tmp_path / "out")
    assert not report.ok and not (tmp_path / "out").exists()


def test_strangers_code_and_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text('{"is_encoder_decoder": true, "auto_map": {"AutoModel": "m.M"}}')
    with pytest.raises(UnsafeError, match="--trust"):
        convert_encoder_decoder(tmp_path / "m", tmp_path / "out")
    with pytest.raises(UsageError, match="not empty"):
        convert_encoder_decoder(tmp_path / "m", tmp_path / "m")
