"""Source looks at files and folders without executing anything."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from onnxtool.conversion.source import Source
from onnxtool.errors import InputError


def test_a_factory_alone_has_nothing_on_disk() -> None:
    source = Source(None)
    assert (source.head(), source.zip_names(), source.names(), source.sha256(), source.size) == (b"", (), (), "", 0)
    assert not source.is_folder and str(source) == "the factory"


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "Model.PT"
    path.write_bytes(b"\0\1\2\3")
    source = Source(path)
    assert (source.suffix, source.head(2), source.size, source.is_text) == (".pt", b"\0\1", 4, False)
    assert source.sha256() == hashlib.sha256(b"\0\1\2\3").hexdigest()


def test_folder_digest_depends_on_names_and_contents_only(tmp_path: Path) -> None:
    digests = []
    for name, text in (("a", "1"), ("b", "1"), ("c", "2")):
        folder = tmp_path / name
        (folder / "sub").mkdir(parents=True)
        (folder / "sub" / "w.bin").write_text(text)
        digests.append(Source(folder).sha256())
    assert digests[0] == digests[1] != digests[2]
    (tmp_path / "a" / "sub" / "w.bin").rename(tmp_path / "a" / "w.bin")
    assert Source(tmp_path / "a").sha256() != digests[0]


def test_zip_entries_and_json_inside(tmp_path: Path) -> None:
    path = tmp_path / "m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps({"a": 1}))
        archive.writestr("broken.json", "{")
    source = Source(path)
    assert source.zip_names() == ("config.json", "broken.json")
    assert source.json("config.json") == {"a": 1}
    assert source.json("broken.json") is None and source.json("none.json") is None
    with pytest.raises(InputError, match=r"damaged at 'none\.json'"):
        source.zip_read("none.json")


def test_cut_off_zip_has_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", b"x" * 1000)
    path.write_bytes(path.read_bytes()[:500])
    assert Source(path).zip_names() == ()


def test_an_entry_whose_packed_bytes_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "m.zip"
    text = bytes(range(256)) * 8
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", text)
        start = archive.getinfo("config.json").header_offset + 30 + len("config.json")
    content = bytearray(path.read_bytes())
    content[start : start + 8] = b"\xff" * 8
    path.write_bytes(content)
    assert Source(path).zip_names() == ("config.json",)
    with pytest.raises(InputError, match=r"damaged at 'config\.json'"):
        Source(path).zip_read("config.json")


def test_does_not_unpack_a_zip_bomb(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", b"0" * (65 << 20))
    with pytest.raises(InputError, match="larger than 64 MB"):
        Source(path).zip_read("config.json")


@pytest.mark.parametrize(("given", "advised"), [("net.py:make", True), ("package.net:Net", True), ("a/b:c", False)])
def test_a_function_given_as_the_source_is_told_where_it_belongs(given: str, advised: bool) -> None:
    with pytest.raises(InputError, match="no such file") as caught:
        Source(given)
    assert (f"write --factory {given}." in str(caught.value)) is advised


@pytest.mark.parametrize(("content", "match"), [(None, "no such file"), (b"", "empty")])
def test_refuses_nothing(tmp_path: Path, content: bytes | None, match: str) -> None:
    path = tmp_path / "m"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=match):
        Source(path)
