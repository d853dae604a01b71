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

from onnxtool.model import io
from onnxtool.model.provenance.digest import DIGEST_KEY
from onnxtool.model.provenance.verify import verify

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
