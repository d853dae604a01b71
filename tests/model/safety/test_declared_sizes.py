"""Configurations that declare more than the weights beside them can be of."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from onnxtool.errors import InputError
from onnxtool.model.safety.declared_sizes import verify_counts, verify_declared_sizes


@pytest.mark.parametrize(
    "config",
    [
        {"num_hidden_layers": 1025},
        {"n_layer": 10**9},
        {"decoder_layers": 1e9},
        {"text_config": {"num_hidden_layers": 10**9}},
        {"depths": [2, 2, 10**9]},
        {"stages": [{"num_blocks": 10**9}]},
        {"num_local_experts": 10**9},
        {"llama.block_count": 10**9},
        {"vocab_size": 10**9},
        {"intermediate_size": 10**9},
        {"num_labels": 10**9},
    ],
)
def test_more_than_the_weights_can_be_of_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"config.json: .* is \d+, but its weights"):
        verify_counts(Path("config.json"), config, tensors=20, size=100_000)


def test_what_the_weights_bear_passes() -> None:
    shared = {"num_hidden_layers": 12, "max_position_embeddings": 10**7, "rope_theta": 10**9, "eos_token_id": 10**7}
    verify_counts(Path("config.json"), shared, tensors=5, size=1000)  # ALBERT's layers share their tensors
    verify_counts(Path("config.json"), {"num_experts": 5000, "hidden_size": 1 << 21}, tensors=5000, size=1 << 21)


def test_tensors_are_counted_in_all_files(tmp_path: Path) -> None:
    for shard in range(2):
        header = json.dumps({f"{shard}.{i}": {} for i in range(1000)}).encode()
        (tmp_path / f"{shard}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    verify_declared_sizes(tmp_path / "config.json", {"num_hidden_layers": 2000}, tmp_path)
    with pytest.raises(InputError, match="num_hidden_layers is 2001, but its weights are 2000 tensors"):
        verify_declared_sizes(tmp_path / "config.json", {"num_hidden_layers": 2001}, tmp_path)


def test_a_header_that_says_it_is_longer_than_its_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", 1 << 62) + b"{}")
    verify_declared_sizes(tmp_path / "config.json", {"num_hidden_layers": 12}, tmp_path)
