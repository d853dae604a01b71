"""A whole build: what runs, what does not, what is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import onnx
import pytest

from onnxtool.cli.forms.html import write_model_pages
from onnxtool.errors import UsageError
from onnxtool.report.build import BuildReport
from onnxtool.report.schema import report_from_plain
from onnxtool.workflow import run_step
from onnxtool.workflow.store import Store
from tests.workflow.conftest import Builder, tiny_model

Tool = Callable[..., "CompletedProcess[str]"]
TWO = """
[defaults]
steps = [{ step = "edit", doc = "one" }, { step = "edit", metadata = ["k=v"] }]
[models.a]
source = "a.onnx"
output = "out/a.onnx"
[models.b]
source = "b.onnx"
output = "out/b.onnx"
"""


def states(report: BuildReport) -> dict[str, list[str]]:
    return {m.name: [s.state for s in m.steps] for m in report.models}


def test_an_unchanged_file_runs_nothing_and_leaves_the_same_bytes(run: Builder, project: Path) -> None:
    first = run(TWO)
    assert first.ok and states(first) == {"a": ["built", "built"], "b": ["built", "built"]}
    outputs = {p: p.read_bytes() for p in (project / "out").iterdir()}
    lock = (project / "onnxtool.lock").read_bytes()
    assert onnx.load(project / "out" / "a.onnx").doc_string == "one"
    second = run()
    assert states(second) == {"a": ["cached", "cached"], "b": ["cached", "cached"]}
    assert (second.lock, {m.state for m in second.models}) == ("unchanged", {"unchanged"})
    assert {p: p.read_bytes() for p in (project / "out").iterdir()} == outputs
    assert (project / "onnxtool.lock").read_bytes() == lock


def test_touching_one_source_rebuilds_its_steps_and_says_why(run: Builder, project: Path) -> None:
    run(TWO)
    (project / "b.onnx").write_bytes(tiny_model(3.0).SerializeToString())
    stale = run(dry_run=True)
    assert states(stale) == {"a": ["cached", "cached"], "b": ["stale", "waiting"]}
    assert (stale.ok, stale.models[1].steps[0].reason) == (False, "source changed")
    assert states(run()) == {"a": ["cached", "cached"], "b": ["built", "built"]}


def test_a_changed_option_rebuilds_from_its_step_on(run: Builder) -> None:
    run(TWO)
    report = run(TWO.replace("k=v", "k=w"))
    assert states(report) == {"a": ["cached", "built"], "b": ["cached", "built"]}
    assert report.models[0].steps[1].reason == "option metadata changed"


def test_an_output_that_was_lost_or_changed_is_put_back(run: Builder, project: Path) -> None:
    run(TWO)
    good = (project / "out" / "a.onnx").read_bytes()
    (project / "out" / "a.onnx").write_bytes(b"changed")
    (project / "out" / "b.onnx").unlink()
    assert [m.state for m in run(dry_run=True).models] == ["stale", "stale"]
    report = run()
    assert states(report) == {"a": ["cached", "cached"], "b": ["cached", "cached"]}
    assert (project / "out" / "a.onnx").read_bytes() == good
    assert (project / "out" / "b.onnx").stat().st_nlink == 1


def test_a_package_is_a_step_that_is_cached_locked_and_put_back(run: Builder, project: Path) -> None:
    text = """
[models.a]
source = "a.onnx"
steps = ["check", { step = "package", for = ["ort"], output = "dist/{name}" }]
"""
    assert states(run(text)) == {"a": ["built", "built"]}
    made = {p.relative_to(project): p.read_bytes() for p in (project / "dist" / "a").rglob("*") if p.is_file()}
    assert Path("dist/a/provenance.json") in made and Path("dist/a/model.onnx") in made
    again = run(dry_run=True)
    assert again.ok and states(again) == {"a": ["cached", "cached"]}
    (project / "dist" / "a" / "README.md").write_text("changed")
    (project / "dist" / "a" / "model.onnx").unlink()
    assert [m.state for m in run(dry_run=True).models] == ["stale"]
    assert states(run(frozen=True)) == {"a": ["cached", "cached"]}
    assert {p.relative_to(project): p.read_bytes() for p in (project / "dist" / "a").rglob("*") if p.is_file()} == made
    (project / "a.onnx").write_bytes(tiny_model(5.0).SerializeToString())
    assert states(run(dry_run=True)) == {"a": ["stale", "waiting"]}
    (project / "mine").mkdir()
    (project / "mine" / "file").write_text("mine")
    refused = run(text.replace("dist/{name}", "mine"))
    assert "not a package" in refused.models[0].error and (project / "mine" / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ("{ step = 'optimize', level = 'nonsense' }", "choose basic, extended or all"),
        ("'check', { step = 'optimize', pass = ['no-such-pass'] }", "no pass 'no-such-pass'"),
        ("'optimize', { step = 'edit', operation = ['nonsense=1'] }", "no operation 'nonsense'"),
        ("'optimize', { step = 'package', for = ['nope'], output = 'p' }", "not a kind of package"),
        ("'optimize', { step = 'package', for = ['ort'] }", "the folder to write"),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_the_options_of_all_steps_are_judged_before_the_first_one_runs(
    run: Builder, steps: str, reason: str, dry_run: bool
) -> None:
    report = run(f"[models.a]\nsource = 'a.onnx'\nsteps = [{steps}]\n", dry_run=dry_run)
    assert reason in report.models[0].error and report.models[0].exit_code == 2
    assert "built" not in states(report)["a"]


def test_two_packages_do_not_have_one_folder(run: Builder) -> None:
    step = "steps = [{ step = 'package', for = ['ort'], output = 'p' }]"
    with pytest.raises(UsageError, match="have one output, p"):
        run(f"[models.a]\nsource = 'a.onnx'\n{step}\n[models.b]\nsource = 'b.onnx'\n{step}\n")


def test_one_failing_model_does_not_stop_the_others(run: Builder, project: Path) -> None:
    (project / "b.onnx").write_bytes(b"no model")
    report = run(TWO + "[models.c]\nfrom = 'b'\n")
    by_name = {m.name: m for m in report.models}
    assert not report.ok and by_name["a"].state == "built"
    assert (by_name["b"].exit_code, [s.state for s in by_name["b"].steps]) == (3, ["failed", "skipped"])
    assert by_name["c"].error == "b, which it begins with, failed."
    assert not (project / "out" / "b.onnx").exists()


def test_models_begin_with_the_results_of_others(run: Builder, project: Path) -> None:
    text = (
        "[models.last]\nfrom='first'\nsteps=[{step='edit', metadata=['k=v']}, 'compare']\n"
        "[models.first]\nsource='a.onnx'\nsteps=[{step='edit', doc='one'}]\n"
    )
    assert run(text).ok
    made = onnx.load(project / "build" / "last.onnx")
    assert made.doc_string == "one"
    assert "k" in {p.key for p in made.metadata_props}


def test_the_lock_has_no_path_no_time_and_no_option(
    run: Builder, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hunter2hunter2")
    run(TWO.replace("k=v", "k=${SECRET}"))
    text = (project / "onnxtool.lock").read_text(encoding="utf-8")
    assert "hunter2" not in text and str(project) not in text and str(Path.home()) + "/" not in text
    assert json.loads(text)["models"]["a"]["output"] == "out/a.onnx"


def test_frozen_accepts_what_the_lock_has_and_nothing_else(run: Builder, project: Path, tmp_path: Path) -> None:
    run(TWO)
    lock = (project / "onnxtool.lock").read_bytes()
    assert run(frozen=True).ok
    assert run(frozen=True, cache=tmp_path / "empty").ok  # made again from nothing, the same bytes
    report = run(TWO.replace("k=v", "k=w"), frozen=True)
    assert not report.ok and "option metadata changed" in report.models[0].error
    report = run(TWO + "[models.c]\nsource='a.onnx'\n", frozen=True)
    assert [m.state for m in report.models] == ["unchanged", "unchanged", "failed"]
    assert (project / "onnxtool.lock").read_bytes() == lock


def test_a_damaged_cache_is_made_again(run: Builder, tmp_path: Path, project: Path) -> None:
    run(TWO)
    good = (project / "out" / "a.onnx").read_bytes()
    for blob in Store(tmp_path / "cache").blobs():
        blob.write_bytes(b"x" * (blob.stat().st_size - 1))
    (project / "out" / "a.onnx").unlink()
    report = run()
    assert report.ok and states(report)["a"] == ["built", "built"]
    assert (project / "out" / "a.onnx").read_bytes() == good


def test_a_limit_that_is_missed_fails_the_model_and_keeps_the_output(run: Builder, project: Path) -> None:
    report = run(TWO + "max-size = '10B'\n")
    assert [m.state for m in report.models] == ["built", "failed"]
    assert report.models[1].error.startswith("misses its limits: max-size")
    assert not (project / "out" / "b.onnx").exists()


def test_a_source_that_changes_while_it_is_read_is_not_kept(
    run: Builder, project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = run_step.run_in_place

    def meddled(*given: object) -> object:
        report = real(*given)  # type: ignore[arg-type]
        (project / "a.onnx").write_bytes(tiny_model(9.0).SerializeToString())
        return report

    monkeypatch.setattr(run_step, "run_in_place", meddled)
    report = run(TWO, "a")
    assert "changed while it was read" in report.models[0].error
    assert list(Store(tmp_path / "cache").entries()) == []


def test_what_the_users_code_reads_makes_its_step_stale(
    run: Builder, project: Path, relu_proto: onnx.ModelProto
) -> None:
    (project / "a.onnx").write_bytes(relu_proto.SerializeToString())
    (project / "inputs.py").write_text(
        "import numpy as np\nfrom pathlib import Path\n\ndef samples():\n"
        "    scale = float((Path(__file__).parent / ('sc' + 'ale.txt')).read_text())\n"
        "    for seed in range(8):\n"
        "        yield {'x': scale * np.random.default_rng(seed).normal(size=(1, 3)).astype(np.float32)}\n"
    )
    (project / "scale.txt").write_text("1.0")
    text = (
        "[models.a]\nsource='a.onnx'\n"
        "steps=[{step='quantize', mode='float16', data='inputs.py:samples', keep-io=true}]\n"
    )
    first = run(text)
    assert first.ok, first.models[0].error
    assert states(run()) == {"a": ["cached"]}
    (project / "scale.txt").write_text("2.0")  # no text in the code has this name: it was seen when it was opened
    report = run()
    assert states(report) == {"a": ["built"]}
    assert report.models[0].steps[0].reason == "a file that its code reads changed"
    (project / "scale.txt").write_text("1.0")
    assert states(run()) == {"a": ["cached"]}


def test_a_process_that_is_killed_fails_its_step_alone(run: Builder, project: Path, tmp_path: Path) -> None:
    (project / "inputs.py").write_text("import os\n\ndef samples():\n    os.kill(os.getpid(), 9)\n    yield {}\n")
    text = TWO + ("[models.c]\nsource='a.onnx'\nsteps=[{step='quantize', mode='float16', data='inputs.py:samples'}]\n")
    report = run(text, executor="processes")
    assert [m.state for m in report.models] == ["built", "built", "failed"]
    assert "its process ended" in report.models[2].error


def test_after_a_kill_the_next_build_goes_on(project: Path, tmp_path: Path, onnxtool: Tool) -> None:
    names = [f"m{i}" for i in range(6)]
    text = "[defaults]\nsteps=[{step='edit', doc='x'}]\n"
    for number, name in enumerate(names):
        (project / f"{name}.onnx").write_bytes(tiny_model(float(number)).SerializeToString())
        text += f"[models.{name}]\nsource='{name}.onnx'\n"
    (project / "onnxtool.toml").write_text(text)
    cache = tmp_path / "cache"
    process = subprocess.Popen(
        [sys.executable, "-m", "onnxtool", "--no-isolation", "build", "--executor", "local", "--cache", str(cache)],
        cwd=project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    limit = time.monotonic() + 120
    while len(list(Store(cache).entries())) < 2 and process.poll() is None and time.monotonic() < limit:
        pass
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    finished = len(list(Store(cache).entries()))
    assert finished >= 2
    done = onnxtool("build", "--executor", "local", "--cache", cache, "--json", cwd=project)
    assert done.returncode == 0, done.stderr
    found = [s["state"] for m in json.loads(done.stdout)["models"] for s in m["steps"]]
    assert found.count("cached") == finished


def test_the_command_writes_every_form(project: Path, tmp_path: Path, onnxtool: Tool) -> None:
    (project / "onnxtool.toml").write_text(TWO.replace("[defaults]", "[settings]\ncache = '../cache'\n[defaults]"))
    assert onnxtool("build", "--check", cwd=project).returncode == 1
    done = onnxtool("build", "a", "--html", "i.html", "--junit", "j.xml", "--jobs", "2", cwd=project)
    assert done.returncode == 0, done.stderr
    suite = ElementTree.parse(project / "j.xml").getroot()[0]
    assert [case.get("name") for case in suite] == ["a"]
    assert 'href="models/a.html"' in (project / "i.html").read_text()
    assert "2 operations" not in (project / "models" / "a.html").read_text()
    assert onnxtool("build", cwd=project).returncode == 0
    history = onnxtool("build", "--history", "--json", cwd=project)
    assert [b["built"] for b in json.loads(history.stdout)["builds"]] == [2, 2]
    again = onnxtool("build", "a", "b", "--check", cwd=project)
    assert (again.returncode, again.stdout.count("unchanged")) == (0, 3)
    size = onnxtool("cache", "size", "--cache", tmp_path / "cache", "--json", cwd=project)
    assert json.loads(size.stdout)["entries"] == 4
    bad = onnxtool("build", "nothing", cwd=project)
    assert (bad.returncode, bad.stderr.count("\n")) == (2, 1)


def test_init_writes_a_file_that_builds(project: Path, tmp_path: Path, onnxtool: Tool) -> None:
    (project / "notes.txt").write_text("nothing")
    done = onnxtool("init", "a.onnx", "b.onnx", "notes.txt", cwd=project)
    assert done.returncode == 0, done.stderr
    assert "notes.txt: not a model" in done.stdout
    assert onnxtool("init", "a.onnx", cwd=project).returncode == 2
    checked = onnxtool("build", "--check", "--cache", tmp_path / "cache", "--json", cwd=project)
    assert [m["name"] for m in json.loads(checked.stdout)["models"]] == ["a", "b"]


def test_reports_come_back_from_their_json_form_and_make_pages(run: Builder, tmp_path: Path) -> None:
    report = run("[models.a]\nsource='a.onnx'\nsteps=['compare', 'check']\n")
    assert report.ok, report.models[0].error
    store = Store(Path(report.cache))
    for step in report.models[0].steps:
        entry = store.entry(step.key)
        assert entry is not None
        again = report_from_plain(entry.report).to_dict()
        assert again == {**entry.report}
    write_model_pages(report, tmp_path / "index.html")
    page = (tmp_path / "models" / "a.html").read_text()
    assert "<h2>compare</h2>" in page and "<h2>check</h2>" in page
    assert report_from_plain(report.to_dict()).to_dict() == report.to_dict()
    with pytest.raises(ValueError, match="not a report"):
        report_from_plain({"schema": "onnxtool/compare/99"})
