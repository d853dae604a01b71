"""The digest that every written file bears, and `verify`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxtool.errors import UsageError
from onnxtool.model import io
from onnxtool.model.provenance.metadata import DIGEST_KEY
from onnxtool.model.provenance.verify import _stale, verify

Tool = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def written(tmp_path: Path, digits_onnx: Path) -> Path:
    path = tmp_path / "m.onnx"
    io.save(io.load(digits_onnx), path)
    return path


def test_the_digest_is_the_sha256_of_all_before_it(written: Path) -> None:
    data = written.read_bytes()
    entry = next(p for p in onnx.load(written).metadata_props if p.key == DIGEST_KEY)
    body = data[: data.rindex(DIGEST_KEY.encode()) - 4]
    assert onnx.ModelProto.FromString(body).graph == onnx.load(written).graph
    assert entry.value == f"sha256:{hashlib.sha256(body).hexdigest()}"
    assert verify(written).ok


@pytest.mark.parametrize("where", [10, 3000, -200, -30])
def test_notices_a_changed_byte(written: Path, where: int) -> None:
    data = bytearray(written.read_bytes())
    data[where] ^= 1
    written.write_bytes(data)
    try:
        assert not verify(written).ok
    except Exception as error:  # the change may also make the file unreadable
        assert type(error).__name__ == "InputError"


def test_notices_an_edit_by_another_tool(written: Path) -> None:
    model = onnx.load(written)
    model.metadata_props.add(key="licence", value="MIT")
    onnx.save(model, written)
    report = verify(written)
    assert not report.ok
    assert report.recorded is None


def test_covers_external_data(tmp_path: Path, digits_onnx: Path) -> None:
    path = tmp_path / "m.onnx"
    io.save(io.load(digits_onnx), path, external=True)
    assert verify(path).ok
    assert verify(path).external == ("m.onnx.data",)
    data = bytearray((tmp_path / "m.onnx.data").read_bytes())
    data[100] ^= 1
    (tmp_path / "m.onnx.data").write_bytes(data)
    assert not verify(path).ok


def test_saving_again_bears_one_new_digest(written: Path, tmp_path: Path) -> None:
    model = io.load(written)
    model.doc_string = "another"
    io.save(model, tmp_path / "n.onnx")
    keys = [p.key for p in onnx.load(tmp_path / "n.onnx").metadata_props]
    assert keys.count(DIGEST_KEY) == 1
    assert verify(tmp_path / "n.onnx").ok
    assert verify(tmp_path / "n.onnx").actual != verify(written).actual


def test_names_the_step_that_came_from_a_source(onnxtool: Tool, tmp_path: Path, digits_onnx: Path) -> None:
    out = tmp_path / "out.onnx"
    assert onnxtool("optimize", digits_onnx, "-o", out, "-q").returncode == 0
    done = onnxtool("verify", out, "--source", digits_onnx, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["source_step"] == "optimize"
    other = tmp_path / "other.onnx"
    weight = numpy_helper.from_array(np.zeros(3, np.float32), "w")
    other.write_bytes(weight.SerializeToString())
    done = onnxtool("verify", out, "--source", other)
    assert done.returncode == 1
    assert "the source of no step" in " ".join(done.stdout.split())
    assert onnxtool("verify", digits_onnx).returncode == 1
    assert onnxtool("verify", out, "--source", tmp_path / "gone").returncode == 3


def compiled(folder: Path, **fields: object) -> list[dict[str, object]]:
    """The history of a form that a provider compiled in this folder from source.onnx."""
    source = folder / "source.onnx"
    source.write_bytes(b"model")
    step = {"command": "compile", "source": source.name, "source_sha256": hashlib.sha256(b"model").hexdigest()}
    return [{"command": "convert"}, {**step, "versions": {"numpy": np.__version__}, **fields}]


def test_a_compiled_form_is_up_to_date_beside_its_source_and_its_packages(tmp_path: Path) -> None:
    assert _stale(tmp_path / "m.onnx", compiled(tmp_path)) == []
    assert _stale(tmp_path / "m.onnx", compiled(tmp_path, versions=None)) == []
    old, gone = _stale(tmp_path / "m.onnx", compiled(tmp_path, versions={"numpy": "1.0", "no-such-package": "2"}))
    assert old == f"compiled with numpy 1.0; {np.__version__} is installed"
    assert gone == "compiled with no-such-package 2; none is installed"


def test_a_source_that_has_changed_beside_it_is_named(tmp_path: Path) -> None:
    history = compiled(tmp_path)
    (tmp_path / "source.onnx").write_bytes(b"another")
    assert _stale(tmp_path / "m.onnx", history) == ["source.onnx beside it is not what it was compiled from"]
    assert _stale(tmp_path / "source.onnx", history) == []  # the file itself
    assert _stale(tmp_path / "m.onnx", [{**history[1], "command": "optimize"}]) == []
    assert _stale(tmp_path / "m.onnx", [history[1], history[0]]) == []
    assert _stale(tmp_path / "m.onnx", []) == []
    (tmp_path / "source.onnx").unlink()
    assert _stale(tmp_path / "m.onnx", history) == []


@pytest.mark.parametrize("name", ["../source.onnx", "inner/source.onnx", None, 3])
def test_only_a_file_beside_it_is_looked_at(tmp_path: Path, name: object) -> None:
    folder = tmp_path / "model"
    (folder / "inner").mkdir(parents=True)
    for place in (tmp_path, folder / "inner"):
        (place / "source.onnx").write_bytes(b"another")
    assert _stale(folder / "m.onnx", compiled(folder, source=name)) == []


def test_a_signature_needs_a_key(written: Path) -> None:
    with pytest.raises(UsageError, match="--signature needs"):
        verify(written, signature=written.with_name("m.sig"))
