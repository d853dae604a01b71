"""Bad folders and files are told from good ones before anything loads them."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from onnxtool.errors import InputError, UnsafeError, UnsupportedError
from onnxtool.generation.reference import SourceGenerator
from onnxtool.generation.source import is_text_decoder, open_source, wants_bundle


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(folder, tmp_path / "copy")


def test_a_decoder_becomes_a_bundle_unless_an_onnx_file_is_asked_for(folder: Path) -> None:
    assert is_text_decoder(folder)
    assert wants_bundle(folder, Path("out"), None)
    assert not wants_bundle(folder, Path("out.onnx"), None)
    assert not wants_bundle(folder, Path("out"), "fill-mask")


def test_a_missing_shard_is_named(copy: Path) -> None:
    shard = sorted(copy.glob("model-*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(InputError, match=f"the shard {shard.name} is missing"):
        open_source(copy)


def test_a_shard_that_was_cut_off_is_named(copy: Path) -> None:
    shard = sorted(copy.glob("model-*.safetensors"))[0]
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(InputError, match=f"{shard.name}: damaged or cut off"):
        open_source(copy)


def test_a_shard_outside_the_folder_is_refused(copy: Path) -> None:
    index = copy / "model.safetensors.index.json"
    document = json.loads(index.read_text())
    document["weight_map"]["model.norm.weight"] = "../secret.safetensors"
    index.write_text(json.dumps(document))
    with pytest.raises(UnsafeError, match="outside the folder"):
        open_source(copy)


def test_a_missing_weight_is_not_filled_with_random_numbers(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(InputError, match=r"model\.layers\.2.*is missing"):
        SourceGenerator(open_source(copy))


def test_a_configuration_of_another_size_is_one_line(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"hidden_size": 128}))
    with pytest.raises(InputError, match=r"shape|size"):
        SourceGenerator(open_source(copy))


def test_layers_without_weights_are_refused_before_they_are_built(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 10**9}))
    with pytest.raises(InputError, match=r"num_hidden_layers is 1000000000, but its weights are \d+ tensors"):
        open_source(copy)


def test_pickled_weights_need_trust(copy: Path) -> None:
    for file in copy.glob("*.safetensors*"):
        file.unlink()
    (copy / "pytorch_model.bin").write_bytes(b"PK")
    with pytest.raises(UnsafeError, match="--trust"):
        open_source(copy)


def test_an_encoder_is_not_a_decoder(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    assert not is_text_decoder(copy)
    with pytest.raises(UnsupportedError, match="BertForMaskedLM"):
        open_source(copy)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"GGUF", "not a GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 5) + bytes(100), "damaged"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2, 3) + bytes(100), "damaged or cut off"),
    ],
)
def test_a_damaged_gguf_file_is_one_line(tmp_path: Path, content: bytes, line: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(InputError, match=line):
        open_source(path)


def test_another_version_of_gguf_is_unsupported(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 1, 2, 3) + bytes(100))
    with pytest.raises(UnsupportedError, match="version 1"):
        open_source(path)
