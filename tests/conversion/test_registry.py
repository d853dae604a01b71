"""The registry: built-in adapters, entry points, and what is said of files that nobody knows."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onnxtool.conversion import registry
from onnxtool.conversion.adapter import Adapter, SourceModel
from onnxtool.conversion.quiet import import_all
from onnxtool.conversion.registry import adapters, find_adapter
from onnxtool.conversion.source import Source
from onnxtool.errors import InputError, UnsupportedError
from onnxtool.options.convert import ConvertOptions
from tests.conftest import Brought


class Toy(Adapter):
    """An adapter of a third party."""

    name = "toy"
    extra = "toy"

    def recognises(self, source: Source, options: ConvertOptions) -> bool:
        return source.head(4) == b"TOY!"

    def load(self, source: Source, options: ConvertOptions) -> SourceModel:
        raise NotImplementedError

    def export(self, model: SourceModel, options: ConvertOptions) -> Any:
        raise NotImplementedError


@pytest.fixture
def with_toy(brought: Brought) -> None:
    brought("toy", f"{__name__}:Toy", registry.ENTRY_POINTS)


def test_entry_points_come_after_the_built_in_ones(with_toy: None) -> None:
    names = [a.name for a in adapters()]
    assert names[0] == "pytorch" and names[-1] == "toy"


def test_finds_the_one_that_recognises(with_toy: None, tmp_path: Path, fixtures: Path) -> None:
    path = tmp_path / "m.toy"
    path.write_bytes(b"TOY!\0\0")
    assert find_adapter(Source(path), ConvertOptions()).name == "toy"
    assert find_adapter(Source(fixtures / "digits_cnn.pt"), ConvertOptions()).name == "pytorch"


def test_takes_the_one_that_is_named(with_toy: None, fixtures: Path) -> None:
    assert find_adapter(Source(fixtures / "digits_cnn.pt"), ConvertOptions(adapter="toy")).name == "toy"
    with pytest.raises(UnsupportedError, match=r"no adapter is called 'tpy'; there are pytorch,.*toy"):
        find_adapter(Source(fixtures / "digits_cnn.pt"), ConvertOptions(adapter="tpy"))


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("m.pt", b"just words\n" * 9, "text file"),
        ("m.onnx", b"\x08\x07\0\0", "ONNX file already"),
        ("m.pt", b"PK\3\4" + b"\0" * 50, "archive is damaged or cut off"),
        ("m.pt", b"\1\2\3\4\0\0", "not a model in a form that is known"),
        ("m", None, "folder holds no model"),
    ],
)
def test_says_what_an_unknown_source_looks_like(tmp_path: Path, name: str, content: bytes | None, match: str) -> None:
    path = tmp_path / name
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(InputError, match=match):
        find_adapter(Source(path), ConvertOptions())


def test_recognising_imports_no_framework(fixtures: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from onnxtool.conversion.registry import *; "
        "from onnxtool.conversion.source import Source\n"
        f"for p in Path({str(fixtures)!r}).iterdir():\n"
        "    [a.recognises(Source(p), ConvertOptions()) for a in adapters()]\n"
        "assert not {'torch', 'tensorflow', 'keras', 'sklearn', 'xgboost', 'jax', 'paddle'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_frameworks_are_imported_without_looking_for_garbage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fails.py").write_text("raise ValueError('no library')\n")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "looks.py").write_text("import gc\nSEEN = gc.isenabled()\n")
    import_all(["fails", "looks"])
    assert not sys.modules.pop("looks").SEEN
    assert gc.isenabled()
