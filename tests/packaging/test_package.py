"""What all packages have, and that nothing is written which does not give the file's answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import onnx
import pytest

from onnxtool.errors import UnsupportedError, UsageError, VerdictError
from onnxtool.packaging import registry
from onnxtool.packaging.kind import MODEL, PackageKind, Subject
from onnxtool.packaging.manifest import read_manifest
from onnxtool.packaging.package import package
from onnxtool.report.package import Started
from onnxtool.runtime.runner import OnnxRunner, Runner
from tests.model.old_files import named

Tool = Callable[..., "CompletedProcess[str]"]


class Plain(PackageKind):
    """The file itself."""

    name, title, commands = "plain", "the file", ("a", "b")

    def write(self, folder: Path, subject: Subject) -> None:
        (folder / "note.txt").write_text(subject.name)

    def start(self, folder: Path, subject: Subject | None) -> tuple[Runner, Started]:
        return OnnxRunner.open(folder / MODEL), Started("the file")


class Wrong(Plain):
    """One output is a little off."""

    name = "wrong"

    def start(self, folder: Path, subject: Subject | None) -> tuple[Runner, Started]:
        runner = OnnxRunner.open(folder / MODEL)

        class Off:
            inputs, outputs = runner.inputs, runner.outputs

            def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
                return {n: a * np.float32(1.01) for n, a in runner.run(feeds).items()}

        return Off(), Started("the file, off")


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {k.name: (__name__, k.__name__) for k in (Plain, Wrong)}
    monkeypatch.setattr(registry, "BUILT_IN", {**registry.BUILT_IN, **own})
    known = {Plain.name: Plain, Wrong.name: Wrong}
    find = registry.find_kind
    monkeypatch.setattr(
        "onnxtool.packaging.package.find_kind", lambda name: known[name]() if name in known else find(name)
    )


def test_a_package_says_what_it_is_and_where_it_comes_from(tiny: Path, tmp_path: Path) -> None:
    report = package(tiny, tmp_path / "out", kinds=["plain"], name="small")
    assert report.ok
    written = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert written == {
        *("README.md", "note.txt", "model.onnx", "onnxtool-package.json", "provenance.json", "sbom.cdx.json"),
        *("golden/case0.npz", "golden/case1.npz", "golden/case2.npz", "golden/golden.json"),
    }
    assert read_manifest(tmp_path / "out").model_name == "small"
    provenance = json.loads((tmp_path / "out" / "provenance.json").read_text())
    assert set(provenance["files"]) == written - {"provenance.json"}
    assert provenance["history"][-1]["proof"]["packages"][0]["proof"]["equal"] is True
    assert json.loads((tmp_path / "out" / "sbom.cdx.json").read_text())["bomFormat"] == "CycloneDX"
    case = np.load(tmp_path / "out" / "golden" / "case0.npz")
    expected = OnnxRunner.open(tiny).run({"x": case["input/x"]})["y"]
    assert np.array_equal(case["output/y"], expected)


def test_what_gives_other_answers_is_not_written(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(VerdictError, match="'y' is off"):
        package(tiny, tmp_path / "out", kinds=["wrong"])
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_a_package_is_replaced_and_nothing_else_is(tiny: Path, tmp_path: Path) -> None:
    package(tiny, tmp_path / "out", kinds=["plain"])
    (tmp_path / "out" / "stale").touch()
    package(tiny, tmp_path / "out", kinds=["plain"])
    assert not (tmp_path / "out" / "stale").exists()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "thesis.tex").touch()
    with pytest.raises(UsageError, match="not empty and not a package"):
        package(tiny, tmp_path / "own", kinds=["plain"])
    assert (tmp_path / "own" / "thesis.tex").exists()
    (tmp_path / "nowhere").symlink_to(tmp_path / "none")
    with pytest.raises(UsageError, match="leads nowhere"):
        package(tiny, tmp_path / "nowhere", kinds=["plain"])


def test_several_kinds_are_folders_in_one(tiny: Path, tmp_path: Path) -> None:
    class Other(Plain):
        name = "other"

    report = package(tiny, tmp_path / "out", kinds=["plain", "plain"])
    assert [Path(p.folder) for p in report.packages] == [tmp_path / "out"]


def test_external_data_goes_along(tmp_path: Path, tiny: Path) -> None:
    proto = onnx.load(tiny)
    source = tmp_path / "source"
    source.mkdir()
    onnx.save(proto, source / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert package(source / "m.onnx", tmp_path / "out", kinds=["plain"]).ok
    feeds = {"x": np.float32([[1, 2, 3]])}
    assert np.array_equal(
        OnnxRunner.open(tmp_path / "out" / "model.onnx").run(feeds)["y"], OnnxRunner.open(tiny).run(feeds)["y"]
    )


@pytest.mark.parametrize(("kinds_", "name", "said"), [((), None, "--for"), (("plain",), "a b", "--name")])
def test_usage(tiny: Path, tmp_path: Path, kinds_: tuple[str, ...], name: str | None, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        package(tiny, tmp_path / "out", kinds=kinds_, name=name)


def test_the_command_names_what_it_does_not_know(onnxtool: Tool, tiny: Path, tmp_path: Path) -> None:
    done = onnxtool("package", tiny, "-o", tmp_path / "out", "--for", "toaster")
    assert done.returncode == 2 and "fastapi" in done.stderr


def test_compare_runs_a_package_only_when_it_is_trusted_and_ends_it(onnxtool: Tool, tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    out = tmp_path / "out"
    made = onnxtool("package", tiny, "-o", out, "--for", "fastapi", "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["packages"][0]["proof"]["equal"] is True
    refused = onnxtool("compare", tiny, out)
    assert refused.returncode == 5 and "--trust" in refused.stderr
    assert onnxtool("compare", tiny, out, "--trust", "--effort", "quick").returncode == 0
    assert not [p for p in Path("/proc").glob("[0-9]*/cwd") if _target(p) == str(out)], "its server still runs"


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:  # ended by now, or somebody else's
        return ""


def test_bench_starts_a_packaged_server(onnxtool: Tool, tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    package(tiny, tmp_path / "out", kinds=["fastapi"])
    assert onnxtool("bench", tmp_path / "out").returncode == 5
    options = ("--trust", "--budget", "0.1", "--connections", "1", "--json")
    done = onnxtool("bench", tmp_path / "out", tiny, *options)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["equal"] is True
    package(tiny, tmp_path / "device", kinds=["ort"])
    refused = onnxtool("bench", tmp_path / "device", "--trust")
    assert refused.returncode == 2 and "not a server" in refused.stderr


def test_a_file_of_an_old_opset_is_written_in_a_later_one_first(tmp_path: Path) -> None:
    onnx.save(named("Chainer"), tmp_path / "old.onnx")
    with pytest.raises(UnsupportedError, match=r"is of opset 6.*onnxtool edit --opset 17"):
        package(tmp_path / "old.onnx", tmp_path / "out", kinds=["triton"])
    assert not (tmp_path / "out").exists()
