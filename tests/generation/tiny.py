"""Tiny random language models with a real tokenizer, as Hugging Face folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

SIZES: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "eos_token_id": 2,
    "bos_token_id": 1,
    "pad_token_id": 0,
}
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tokenizer(folder: Path) -> None:
    """A byte-level BPE tokenizer of 320 tokens, trained on a few sentences, with a chat template."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["the quick brown fox jumps over the lazy dog, and the other fox too"] * 9, trainer)
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", bos_token="<|im_start|>", pad_token="<|endoftext|>"
    )
    wrapped.chat_template = TEMPLATE
    wrapped.save_pretrained(folder)


def write_model(folder: Path, config: Any, *, dtype: str = "float32", shard: str = "1GB", seed: int = 0) -> Path:
    """A random model of a configuration, its weights wide enough that logits differ clearly."""
    import torch
    import transformers

    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, 0.15)
            else:
                weight.add_(torch.randn_like(weight) * 0.1)
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=shard)
    write_tokenizer(folder)
    return folder


def llama(folder: Path, **settings: Any) -> Path:
    """A Llama with tied embeddings."""
    import transformers

    return write_model(folder, transformers.LlamaConfig(**{"tie_word_embeddings": True, **SIZES}), **settings)
