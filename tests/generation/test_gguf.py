"""A GGUF file becomes a bundle that generates what transformers reads in it."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from onnxtool.errors import InputError
from onnxtool.generation.bundle import Bundle
from onnxtool.generation.convert import convert_text_model
from onnxtool.generation.quantization.kept_blocks import exact_blocks
from onnxtool.generation.source import is_text_decoder, open_source
from onnxtool.model import io
from onnxtool.model.ir.queries import operator_counts
from tests.generation.quantization.test_gptq import restored


def written(path: Path, tokenizer: Path, *, blocks: int = 1) -> Path:
    """A random Llama of one layer in Q8_0, with the vocabulary of a tokenizer.json."""
    model = json.loads(tokenizer.read_text())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    hidden, inner, heads, kv = 64, 96, 4, 2
    out = gguf.GGUFWriter(path, "llama")
    out.add_context_length(192)
    out.add_embedding_length(hidden)
    out.add_block_count(blocks)
    out.add_feed_forward_length(inner)
    out.add_head_count(heads)
    out.add_head_count_kv(kv)
    out.add_rope_dimension_count(hidden // heads)
    out.add_rope_freq_base(10000.0)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_vocab_size(len(tokens))
    out.add_tokenizer_model("gpt2")
    out.add_token_list(tokens)
    out.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(tokens) - 3))
    out.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in model["merges"]])
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    random = np.random.default_rng(0)
    shapes = {
        "token_embd": (len(tokens), hidden),
        "blk.0.attn_q": (hidden, hidden),
        "blk.0.attn_k": (kv * hidden // heads, hidden),
        "blk.0.attn_v": (kv * hidden // heads, hidden),
        "blk.0.attn_output": (hidden, hidden),
        "blk.0.ffn_gate": (inner, hidden),
        "blk.0.ffn_up": (inner, hidden),
        "blk.0.ffn_down": (hidden, inner),
    }
    kind = gguf.GGMLQuantizationType.Q8_0
    for name, shape in shapes.items():
        weights = (random.standard_normal(shape) * 0.15).astype(np.float32)
        out.add_tensor(f"{name}.weight", gguf.quants.quantize(weights, kind), raw_dtype=kind)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        out.add_tensor(f"{name}.weight", np.ones(hidden, np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


def test_blocks_without_tensors_are_refused_before_they_are_built(folder: Path, tmp_path: Path) -> None:
    source = written(tmp_path / "model.gguf", folder / "tokenizer.json", blocks=10**9)
    with pytest.raises(InputError, match=r"llama.block_count is 1000000000, but its weights are 11 tensors"):
        open_source(source)


def test_a_gguf_file_becomes_a_bundle(folder: Path, tmp_path: Path) -> None:
    source = written(tmp_path / "model.gguf", folder / "tokenizer.json")
    assert is_text_decoder(source)
    report = convert_text_model(source, tmp_path / "bundle")
    assert report.ok and all(p.equal == p.tokens for p in report.prompts)
    assert "kept bit by bit" in report.notes[-1] and "rounded" not in report.notes[-1]
    opened = Bundle.open(tmp_path / "bundle")
    assert (opened.layers, opened.kv_heads, opened.context, opened.eos) == (1, 2, 192, (2,))

    model = io.load(opened.model)
    counts = operator_counts(model)
    assert "MatMul" not in counts and counts["com.microsoft.GatherBlockQuantized"] == 1
    assert {n.attributes["bits"].as_int() for n in model.graph if n.op_type == "MatMulNBits"} == {8}
    read = {t.name: t for t in gguf.GGUFReader(source).tensors}["blk.0.ffn_gate.weight"]
    original = np.asarray(read.data).reshape(96, 2, 34)[..., 2:].view(np.int8)
    node = next(n for n in model.graph if "gate_proj" in str(n.name))
    value = node.inputs[1]
    assert value is not None and value.const_value is not None
    assert (value.const_value.numpy().astype(int) - 128 == original).all()


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_0", "Q8_0", "Q6_K"])
def test_blocks_are_found_again_in_float_values(kind: str) -> None:
    random = np.random.default_rng(3)
    if kind == "Q6_K":  # the package has no quantizer for it
        scales = random.integers(-127, 128, (40, 32, 1)) * random.uniform(1e-4, 1e-3, (40, 1, 1)).astype(np.float16)
        weights = (scales * random.integers(-32, 32, (40, 32, 16))).astype(np.float32).reshape(40, 512)
        weights[0] = 0
    else:
        of = gguf.GGMLQuantizationType[kind]
        weights = gguf.quants.dequantize(gguf.quants.quantize(random.standard_normal((40, 512)).astype("f"), of), of)
    bits, block = {"Q4_0": (4, 32), "Q6_K": (8, 16)}.get(kind, (8, 32))
    found = exact_blocks(weights.T, bits, block)
    assert found is not None
    np.testing.assert_allclose(restored(found, 512, bits).T, weights, rtol=1e-6, atol=1e-12)


def test_other_values_are_not_taken_for_blocks() -> None:
    weights = np.random.default_rng(4).standard_normal((64, 8)).astype(np.float32)
    assert exact_blocks(weights, 8, 32) is None and exact_blocks(weights[:60], 8, 32) is None
    integers = np.random.default_rng(4).integers(-100, 100, (64, 8)).astype(np.float32)
    assert exact_blocks(integers, 4, 32) is None and exact_blocks(integers, 8, 32) is not None
