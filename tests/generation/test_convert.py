"""Converting language models: what is written generates the same, and nothing else is written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import transformers

from onnxtool.errors import UnsafeError, UsageError
from onnxtool.generation import builders, convert
from onnxtool.generation.bundle import Bundle
from onnxtool.generation.convert import convert_text_model
from onnxtool.report.bundle.convert import BundleReport
from tests.generation import tiny


def test_a_bundle_generates_the_same_tokens(converted: BundleReport) -> None:
    assert converted.ok and converted.builder == builders.GENAI.name
    assert all(p.equal == p.tokens > 0 for p in converted.prompts)
    assert [p.tokens for p in converted.prompts] == [64] * 4 + [2, 4, 4]
    assert len({p.prompt_tokens for p in converted.prompts}) == 4
    assert max(p.cache_error for p in converted.prompts) < 1e-5
    assert converted.text.faults == () and converted.text.chats == 6
    assert converted.runtime is not None and converted.runtime.ok
    assert converted.perplexity is not None and converted.perplexity.low < converted.perplexity.value


def test_a_bundle_holds_all_that_a_runtime_needs(bundle: Path) -> None:
    names = {f.name for f in bundle.iterdir()}
    assert {"model.onnx", "genai_config.json", "tokenizer.json", "chat_template.jinja", "provenance.json"} <= names
    opened = Bundle.open(bundle)
    assert (opened.layers, opened.heads, opened.kv_heads, opened.head_size) == (2, 4, 2, 16)
    assert (opened.context, opened.eos) == (256, (2,))


def test_an_architecture_that_one_builder_refuses_is_built_by_the_other(tmp_path: Path) -> None:
    config = transformers.GPT2Config(
        vocab_size=320, n_positions=128, n_embd=64, n_layer=2, n_head=4, eos_token_id=2, bos_token_id=1
    )
    report = convert_text_model(tiny.write_model(tmp_path / "gpt2", config), tmp_path / "bundle")
    assert report.ok and report.builder == builders.MOBIUS.name
    assert "not currently supported" in report.refused[0]
    assert Bundle.open(tmp_path / "bundle").context == 128


def test_gemma_3_with_rotations_by_kind_of_attention(tmp_path: Path) -> None:
    sizes = {
        **tiny.SIZES,
        "num_hidden_layers": 6,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
    }
    config = transformers.Gemma3TextConfig(**sizes, sliding_window=16)
    assert set(config.layer_types) == {"full_attention", "sliding_attention"}
    report = convert_text_model(tiny.write_model(tmp_path / "gemma3", config), tmp_path / "bundle")
    assert report.ok and report.builder == builders.GENAI.name and not report.refused


def test_a_graph_that_is_built_wrong_is_not_written(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The builder is given another model's weights: it builds, and only the proof can tell."""
    other = tiny.llama(tmp_path / "other", seed=1)
    original = builders.GraphBuilder.command
    monkeypatch.setattr(builders.GraphBuilder, "command", lambda self, source, *rest: original(self, other, *rest))
    monkeypatch.setattr(convert.builders, "BUILDERS", (builders.GENAI,))
    report = convert_text_model(folder, tmp_path / "bundle")
    assert not report.ok and not report.written
    assert "tokens are equal" in report.refused[0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other"]


def test_an_end_of_text_that_only_the_generation_config_names_is_kept(tmp_path: Path, folder: Path) -> None:
    source = shutil.copytree(folder, tmp_path / "source")
    path = source / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": [2, 7]}))
    report = convert_text_model(source, tmp_path / "bundle")
    assert report.ok and Bundle.open(tmp_path / "bundle").eos == (2, 7)


def test_other_files_are_not_overwritten(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty and not a bundle"):
        convert_text_model(folder, tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_code_of_the_folders_own_needs_trust(tmp_path: Path, folder: Path) -> None:
    source = shutil.copytree(folder, tmp_path / "source")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModelForCausalLM": "m.M"}}))
    with pytest.raises(UnsafeError, match="--trust"):
        convert_text_model(source, tmp_path / "bundle")


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of peft's, about transformers
def test_an_adapter_is_merged(tmp_path: Path, folder: Path, converted: BundleReport) -> None:
    import peft
    import torch

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.normal_(0, 0.3)
    adapted.save_pretrained(tmp_path / "adapter")
    report = convert_text_model(folder, tmp_path / "bundle", adapter=tmp_path / "adapter")
    assert report.ok and any("merged" in note for note in report.notes)
    assert converted.perplexity is not None and report.perplexity is not None
    assert converted.perplexity.value != report.perplexity.value


def test_what_is_written_passes_check_and_verify(bundle: Path) -> None:
    from onnxtool.lint.check import check
    from onnxtool.model.provenance.verify import verify

    assert check(bundle / "model.onnx").ok
    sealed = verify(bundle / "model.onnx")
    assert sealed.ok and sealed.history[0]["command"] == "convert"
