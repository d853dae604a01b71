"""A LoRA adapter kept apart: the model without it is the model, and with it what merging gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("transformers")
pytest.importorskip("peft")
pytest.importorskip("onnxruntime_genai")

import peft
import transformers

from onnxtool.errors import InputError, UsageError
from onnxtool.generation.adapters import ADAPTER
from onnxtool.generation.bundle import Bundle
from onnxtool.generation.convert import convert_text_model
from onnxtool.generation.decoder import Decoder
from onnxtool.generation.generate import generate
from onnxtool.generation.proof import runtime_tokens
from onnxtool.generation.quantization.quantize import quantize_bundle

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of peft's, about transformers
IDS = np.arange(3, 40, dtype=np.int64)


def adapter_of(folder: Path, target: Path, *modules: str) -> Path:
    import torch

    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    settings = peft.LoraConfig(r=3, lora_alpha=6, target_modules=[*modules], init_lora_weights=False)
    peft.get_peft_model(model, settings).save_pretrained(target)
    return target


@pytest.fixture(scope="module")
def folder(llama_folder: Path) -> Path:
    return llama_folder


@pytest.fixture(scope="module")
def adapter(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return adapter_of(folder, tmp_path_factory.mktemp("adapters") / "lora", "q_proj", "down_proj")


@pytest.fixture(scope="module")
def apart(folder: Path, adapter: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("bundles") / "apart"
    report = convert_text_model(folder, output, adapter=adapter, separate_adapter=True)
    assert report.ok and report.runtime is not None and report.runtime.ok
    assert any("kept apart" in note and "4 products" in note for note in report.notes), report.notes
    return output


def logits(bundle: Path, adapter: Path | None = None) -> np.ndarray:
    decoder = Decoder(Bundle.open(bundle), adapter=adapter)
    decoder.start(len(IDS))
    return decoder.run(IDS)


def test_the_model_without_it_is_the_model_and_with_it_what_merging_gives(
    folder: Path, llama_bundle: Path, adapter: Path, apart: Path, tmp_path: Path
) -> None:
    plain = llama_bundle
    merged = Path(convert_text_model(folder, tmp_path / "merged", adapter=adapter).output)
    np.testing.assert_allclose(logits(apart), logits(plain), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(logits(apart, apart / ADAPTER), logits(merged), rtol=1e-4, atol=1e-5)
    assert np.abs(logits(merged) - logits(plain)).max() > 0.1
    assert sorted(p.name for p in apart.glob("model.onnx*")) == ["model.onnx", "model.onnx.data"]


def test_the_generators_runtime_reads_the_file(apart: Path) -> None:
    ids = IDS[:9].tolist()
    with_it = generate(apart, prompt="hello", max_tokens=6, adapter=apart / ADAPTER)
    assert with_it.tokens != generate(apart, prompt="hello", max_tokens=6).tokens
    bundle = Bundle.open(apart)
    decoder = Decoder(bundle, adapter=apart / ADAPTER)
    decoder.start(len(ids) + 6)
    own = [int(decoder.run(np.asarray(ids))[-1].argmax())]
    while len(own) < 6 and own[-1] not in bundle.eos:
        own.append(int(decoder.run(np.asarray(own[-1:]))[-1].argmax()))
    assert runtime_tokens(bundle, ids, 6, apart / ADAPTER) == own != runtime_tokens(bundle, ids, 6)


def test_a_quantized_bundle_takes_it_too(apart: Path, tmp_path: Path) -> None:
    report = quantize_bundle(apart, tmp_path / "small", mode="int8", max_perplexity=0.5, time_limit=60)
    assert report.ok
    exact, found = logits(apart, apart / ADAPTER), logits(tmp_path / "small", tmp_path / "small" / ADAPTER)
    without = logits(tmp_path / "small")
    assert np.abs(found - exact).max() < 0.1 * np.abs(without - exact).max()


def test_an_adapter_of_another_model_or_none_at_all_is_refused(folder: Path, apart: Path, tmp_path: Path) -> None:
    other = adapter_of(folder, tmp_path / "other", "k_proj")
    there = Path(convert_text_model(folder, tmp_path / "there", adapter=other, separate_adapter=True).output)
    bundle = Bundle.open(apart)
    with pytest.raises(InputError, match="is for another model"):
        Decoder(bundle, adapter=there / ADAPTER)
    (tmp_path / "broken.onnx_adapter").write_bytes(b"\xff" * 200)
    for path, said in ((tmp_path / "broken.onnx_adapter", "not an adapter"), (tmp_path / "none", "no such file")):
        with pytest.raises(InputError, match=said):
            Decoder(bundle, adapter=path)
    with pytest.raises(UsageError, match="goes with --adapter"):
        convert_text_model(folder, tmp_path / "bundle", separate_adapter=True)
