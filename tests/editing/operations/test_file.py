"""Versions, metadata, and where weights are stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxtool.editing.edit import edit
from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.model.provenance.verify import verify
from tests.editing.conftest import Editor, write

TEXT = "g (float[n, 40] x) => (float[n, 40] y) { a = MatMul(x, w) y = Relu(a) }"
WEIGHTS = {"w": np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)}
X = np.ones((2, 40), np.float32)


@pytest.mark.parametrize("version", [17, 18, 21])
def test_another_opset(edited: Editor, version: int) -> None:
    made = edited(TEXT, f"opset={version}", weights=WEIGHTS)
    assert made.proto.opset_import[0].version == version
    assert np.array_equal(made.run(x=X)["y"], made.before(x=X)["y"])


def test_large_weights_do_not_go_through_the_converter(edited: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxtool.optimization import opset

    seen = []
    convert = opset.convert_version

    def watched(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
        seen.append([t.name for t in model.graph.initializer])
        return convert(model, version)

    monkeypatch.setattr(opset, "convert_version", watched)
    monkeypatch.setattr(opset, "_LARGE", 100)
    made = edited(TEXT, "opset=21", weights=WEIGHTS)
    assert seen == [[]]
    assert [t.name for t in made.proto.graph.initializer] == ["w"]
    assert [i.name for i in made.proto.graph.input] == ["x"]


@pytest.mark.parametrize("value", ["3", "999", "x", "-1", ""])
def test_an_opset_that_is_not_known(edited: Editor, value: str) -> None:
    with pytest.raises(UsageError):
        edited(TEXT, f"opset={value}", weights=WEIGHTS)


def test_another_version_of_the_format(edited: Editor) -> None:
    assert edited(TEXT, "ir-version=10", weights=WEIGHTS).proto.ir_version == 10
    with pytest.raises(UnsupportedError, match="need 8 or newer"):
        edited(TEXT, "ir-version=5", weights=WEIGHTS)


def test_metadata_and_description(edited: Editor) -> None:
    made = edited(TEXT, "metadata=author=me=you", "doc=What it is", weights=WEIGHTS)
    assert {p.key: p.value for p in made.proto.metadata_props}["author"] == "me=you"
    assert made.proto.doc_string == "What it is"
    assert "onnxtool.history" in {p.key for p in made.proto.metadata_props}


def test_clearing_the_metadata_leaves_only_the_digest(edited: Editor) -> None:
    made = edited(TEXT, "metadata=a=b", "clear-metadata", weights=WEIGHTS)
    assert {p.key for p in made.proto.metadata_props} <= {"onnxtool.digest"}


def test_a_dim_gets_another_name_everywhere(edited: Editor) -> None:
    made = edited(TEXT, "name-dim=n:batch", weights=WEIGHTS)
    assert [str(t) for t in (*made.report.inputs, *made.report.outputs)] == [
        "x: float32[batch, 40]",
        "y: float32[batch, 40]",
    ]
    with pytest.raises(UsageError, match=r"did you mean 'n'|the model has n"):
        edited(TEXT, "name-dim=m:batch", weights=WEIGHTS)
    with pytest.raises(UsageError, match="name for a dim"):
        edited(TEXT, "name-dim=n:3", weights=WEIGHTS)


@pytest.mark.parametrize(("value", "outside"), [("always", True), ("never", False), ("1kB", True), ("1MB", False)])
def test_where_weights_are_stored(edited: Editor, value: str, outside: bool) -> None:
    made = edited(TEXT, f"external-data={value}", weights=WEIGHTS)
    assert made.output.with_name("output.onnx.data").exists() == outside
    assert np.array_equal(made.run(x=X)["y"], made.before(x=X)["y"])


def test_a_dry_run_shows_what_would_change(tmp_path: Path) -> None:
    source = write(tmp_path / "source.onnx", TEXT, WEIGHTS)
    report = edit(source, None, ["rename-input=x=image", "metadata=a=b"], dry_run=True)
    assert report.output is None
    assert {(c.what, c.kind, c.name) for c in report.changes or ()} >= {
        ("input", "added", "image"),
        ("metadata", "added", "a"),
    }
    assert not any(c.name.startswith("onnxtool.") for c in report.changes or ())
    assert [p.name for p in tmp_path.iterdir()] == ["source.onnx"]


def test_the_source_may_be_the_output(tmp_path: Path) -> None:
    source = write(tmp_path / "source.onnx", TEXT, WEIGHTS)
    edit(source, source, ["rename-input=x=image"])
    assert [i.name for i in onnx.load(source).graph.input] == ["image"]


def test_weights_in_several_files(edited: Editor) -> None:
    text = "g (float[n, 40] x) => (float[n, 40] y) { a = MatMul(x, w) b = MatMul(a, v) y = MatMul(b, u) }"
    three = {name: WEIGHTS["w"] + index for index, name in enumerate("wvu")}
    made = edited(text, "chunk=13kB", weights=three)
    files = sorted(made.output.parent.glob("output.onnx.*.data"))
    assert [f.stat().st_size for f in files] == [12_800, 6_400]
    assert np.array_equal(made.run(x=X)["y"], made.before(x=X)["y"])
    assert verify(made.output).ok
    edit(made.output, made.output, ["doc=again", "external-data=never"])
    assert not list(made.output.parent.glob("output.onnx*.data"))


def test_a_later_change_of_a_chunk_shows(edited: Editor) -> None:
    made = edited(TEXT, "chunk=10kB", weights=WEIGHTS)
    (data,) = made.output.parent.glob("output.onnx.*.data")
    data.write_bytes(b"\1" + data.read_bytes()[1:])
    assert not verify(made.output).ok


@pytest.mark.parametrize("value", ["0", "x", "10", "-1"])
def test_a_chunk_is_a_size(edited: Editor, value: str) -> None:
    with pytest.raises(UsageError):
        edited(TEXT, f"chunk={value}", weights=WEIGHTS)
