"""Faults that builders make are found: each is planted into a sound bundle and held against the same source."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import transformers

from onnxtool.generation.bundle import Bundle
from onnxtool.generation.convert import convert_text_model
from onnxtool.generation.decoder import Decoder
from onnxtool.generation.proof import prove_text, prove_tokens
from onnxtool.generation.reference import SourceGenerator
from onnxtool.generation.source import open_source
from onnxtool.generation.tokenizer import BundleTokenizer
from onnxtool.model import io
from onnxtool.report.bundle.convert import PromptProof
from tests.generation import tiny

Plant = Callable[[ir.Model], None]
RTOL = 1e-3


@pytest.fixture(scope="module")
def reference(folder: Path) -> SourceGenerator:
    return SourceGenerator(open_source(folder))


def attention(model: ir.Model) -> list[ir.Node]:
    return [n for n in model.graph if n.op_type == "GroupQueryAttention"]


def other_weights(model: ir.Model, part: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    value = next(v for n, v in model.graph.initializers.items() if part in n)
    assert value.const_value is not None
    value.const_value = ir.Tensor(np.ascontiguousarray(change(value.const_value.numpy().copy())), name=value.name)


def rotary(theta: float, shift: int = 0) -> Plant:
    def plant(model: ir.Model) -> None:
        for name, wave in (("cos_cache", np.cos), ("sin_cache", np.sin)):

            def table(old: np.ndarray, wave: Callable[[np.ndarray], np.ndarray] = wave) -> np.ndarray:
                rows, half = old.shape
                angles = np.outer(np.arange(rows) + shift, theta ** (-np.arange(half) / half))
                return np.asarray(wave(angles), np.float32)

            other_weights(model, name, table)

    return plant


def late_shift(model: ir.Model) -> None:
    """Positions that are one too far from the 80th token on."""
    for name in ("cos_cache", "sin_cache"):
        other_weights(model, name, lambda old: np.concatenate([old[:80], old[81:], old[-1:]]))


def window(model: ir.Model) -> None:
    for node in attention(model):
        node.attributes["local_window_size"] = ir.AttrInt64("local_window_size", 64)


def swapped_heads(model: ir.Model) -> None:
    def swap(weight: np.ndarray) -> np.ndarray:
        weight[:, 64:80], weight[:, 80:96] = weight[:, 80:96].copy(), weight[:, 64:80].copy()
        return weight

    other_weights(model, "layers.1.attn.qkv_proj", swap)


def interleaved(model: ir.Model) -> None:
    for node in attention(model):
        node.attributes["rotary_interleaved"] = ir.AttrInt64("rotary_interleaved", 1)


def softcap(model: ir.Model) -> None:
    for node in attention(model):
        node.attributes["softcap"] = ir.AttrFloat32("softcap", 5.0)


def swapped_cache(model: ir.Model) -> None:
    """The values of one layer go where the other's are, from the first step on."""
    first, second = attention(model)
    second.outputs[2].name, first.outputs[2].name = "present.0.value", "present.1.value"


def noisy_head(model: ir.Model) -> None:
    other_weights(model, "lm_head", lambda w: w + 0.01 * np.random.default_rng(0).standard_normal(w.shape).astype("f"))


PLANTED: dict[str, Plant] = {
    "another rope theta": rotary(50_000.0),
    "a theta that is nearly right": rotary(10_100.0),
    "positions that are off late": late_shift,
    "a window that the source does not have": window,
    "two heads of keys that are swapped": swapped_heads,
    "rotation of neighbours": interleaved,
    "softcapped attention": softcap,
    "values in the cache of another layer": swapped_cache,
    "a head that is slightly off": noisy_head,
}


def proven(bundle: Path, reference: SourceGenerator, tmp_path: Path, plant: Plant) -> list[PromptProof]:
    copy = shutil.copytree(bundle, tmp_path / "copy", ignore=shutil.ignore_patterns("model.onnx*"))
    model = io.load(bundle / "model.onnx")
    plant(model)
    for value in model.graph.initializers.values():
        assert value.const_value is not None
        value.const_value = ir.Tensor(value.const_value.numpy().copy(), name=value.name)
    io.save(model, copy / "model.onnx")
    return prove_tokens(Decoder(Bundle.open(copy)), reference, 16)


def test_a_sound_bundle_passes(bundle: Path, reference: SourceGenerator, tmp_path: Path) -> None:
    assert all(p.within(1e-5) for p in proven(bundle, reference, tmp_path, lambda m: None))


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_refused(bundle: Path, reference: SourceGenerator, tmp_path: Path, fault: str) -> None:
    assert not all(p.within(RTOL) for p in proven(bundle, reference, tmp_path, PLANTED[fault]))


def test_a_cache_that_steps_one_position_too_far_is_refused(
    bundle: Path, reference: SourceGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only steps are wrong: every pass over a whole text is right."""
    decoder = Decoder(Bundle.open(bundle))
    original = Decoder._run
    monkeypatch.setattr(
        Decoder, "_run", lambda self, ids, total: original(self, ids, total + (ids.shape[1] == 1 and total > 2))
    )
    monkeypatch.setattr(Decoder, "start", lambda self, capacity, batch=1, s=Decoder.start: s(self, capacity + 1, batch))
    assert not all(p.within(RTOL) for p in prove_tokens(decoder, reference, 16))


def test_a_window_that_is_ignored_is_refused(tmp_path: Path) -> None:
    """The window is longer than any prompt: only the text that is made to be longer tells."""
    sizes = tiny.SIZES | {"max_position_embeddings": 512}
    source = tiny.write_model(tmp_path / "m", transformers.MistralConfig(**sizes, sliding_window=170))
    whole = tiny.write_model(tmp_path / "w", transformers.MistralConfig(**sizes, sliding_window=None))
    report = convert_text_model(whole, tmp_path / "bundle")
    assert report.ok
    reference = SourceGenerator(open_source(source))
    assert reference.special_length == 170
    proofs = prove_tokens(Decoder(Bundle.open(tmp_path / "bundle")), reference, 8)
    assert [p.within(RTOL) for p in proofs] == [True] * (len(proofs) - 1) + [False]
    assert proofs[-1].prompt_tokens > 170


def test_other_ends_of_text_templates_and_tokens_are_refused(
    bundle: Path, reference: SourceGenerator, tmp_path: Path
) -> None:
    def faults(name: str, old: str, new: str) -> tuple[str, ...]:
        copy = shutil.copytree(bundle, tmp_path / name)
        (copy / name).write_text((copy / name).read_text().replace(old, new))
        return prove_text(Bundle.open(copy), BundleTokenizer(copy), reference).faults

    assert "ends at the tokens" in faults("genai_config.json", '"eos_token_id": 2', '"eos_token_id": 3')[0]
    assert "chat template" in faults("chat_template.jinja", "assistant", "model")[0]
    assert "other tokens" in faults("tokenizer.json", '"add_prefix_space": false', '"add_prefix_space": true')[0]
