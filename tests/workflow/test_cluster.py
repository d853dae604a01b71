"""What travels to a worker and back, without a cluster: benchmarks/build.py has real ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onnxtool.errors import ResourceError, UnsupportedError, UsageError
from onnxtool.workflow import digests
from onnxtool.workflow.chain import BuildChain, Lookup
from onnxtool.workflow.cluster import ClusterWorker, Delivery, Workers, accept, pack, run_package, worker_versions
from onnxtool.workflow.executors import open_executor
from onnxtool.workflow.file import read_file
from onnxtool.workflow.instances import expand
from onnxtool.workflow.lock import Lock
from onnxtool.workflow.run_step import StepTask
from onnxtool.workflow.store import Store
from tests.workflow.conftest import Builder, tiny_model

Maker = Callable[[str], StepTask]


@pytest.fixture
def make(project: Path, tmp_path: Path) -> Maker:
    """The first step of the model `a` of a build file."""

    def first(text: str) -> StepTask:
        (project / "onnxtool.toml").write_text(text)
        lookup = Lookup(project, Store(tmp_path / "cache"), Lock.read(tmp_path / "l"), False, False, {})
        found = BuildChain(expand(read_file(project / "onnxtool.toml"))["a"], lookup).advance()
        assert found is not None
        return found

    return first


@pytest.fixture
def task(make: Maker) -> StepTask:
    return make("[models.a]\nsource='a.onnx'\nsteps=[{step='edit', doc='x'}]\n")


def test_a_worker_needs_no_file_of_the_driver(task: StepTask, project: Path) -> None:
    package = pack(task)
    (project / "a.onnx").rename(project / "moved.onnx")
    delivery = run_package(package)
    assert delivery.result.error == ""
    result = accept(task, delivery)
    assert result.entry is not None
    assert Store(Path(task.store)).find(result.entry.key) == result.entry


@pytest.mark.parametrize("whole", [False, True])
def test_files_outside_of_the_project_travel_and_are_never_written_to_their_own_place(
    make: Maker, project: Path, tmp_path: Path, whole: bool
) -> None:
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "a.onnx").write_bytes(tiny_model().SerializeToString())
    np.save(beside / "c.npy", np.full(2, 7, np.float32))
    place = str(beside) if whole else "../beside"
    task = make(f"[models.a]\nsource='{place}/a.onnx'\nsteps=[{{step='edit', replace-weight='c={place}/c.npy'}}]\n")
    package = pack(task)
    for file in beside.iterdir():
        file.unlink()
    beside.rmdir()
    delivery = run_package(package)
    assert delivery.result.error == ""
    assert not beside.exists()
    assert str(tmp_path) not in str([package.task.source, package.task.options, package.files, package.inputs])
    assert any(np.full(2, 7, np.float32).tobytes() in content for content in delivery.contents.values())


def test_a_result_that_is_not_what_its_digest_says_is_refused(task: StepTask) -> None:
    delivery = run_package(pack(task))
    wrong = Delivery(delivery.result, {k: v + b"x" for k, v in delivery.contents.items()})
    result = accept(task, wrong)
    assert result.entry is None and "not what its digest says" in result.error
    assert list(Store(Path(task.store)).entries()) == []


def test_a_failing_step_is_told_as_it_is_here(task: StepTask) -> None:
    result = accept(task, run_package(pack(replace(task, options={"name-dim": "nothing:else"}))))
    assert result.entry is None and result.exit_code in (2, 4)


def test_the_versions_name_everything_that_a_key_is_made_of() -> None:
    assert {"onnxtool", "platform", "python", "onnx", "onnxruntime"} <= set(worker_versions())


def _worker(*tags: str, processor: str = "one; 2 cores", **versions: str) -> ClusterWorker:
    return ClusterWorker("tcp://w", frozenset(tags), {**worker_versions(), **versions}, processor)


def test_a_cluster_without_workers_and_a_worker_with_other_versions_are_refused() -> None:
    with pytest.raises(ResourceError, match="has no worker"):
        Workers("dask://x", [])
    with pytest.raises(UnsupportedError, match=r"tcp://w has onnx 0\.1, not "):
        Workers("dask://x", [_worker(), _worker(onnx="0.1")])


def test_a_step_goes_to_workers_that_declare_all_of_its_tags() -> None:
    workers = Workers("dask://x", [_worker("gpu"), _worker("gpu", "measure", processor="two; 4 cores"), _worker()])
    assert workers.needed(("measure", "gpu")) == {"measure": 1.0, "gpu": 1.0}
    assert workers.needed(()) == {}
    assert workers.processor(("measure", "gpu")) == "two; 4 cores"
    with pytest.raises(UnsupportedError, match="no worker declares arm64; the workers declare gpu, measure"):
        workers.needed(("arm64",))


def test_where_no_worker_declares_measure_any_may() -> None:
    workers = Workers("dask://x", [_worker(), _worker("gpu")])
    assert workers.needed(("measure",)) == {}
    assert workers.processor(("measure",)) == "one; 2 cores"


def test_a_latency_that_would_depend_on_the_free_worker_is_refused() -> None:
    workers = Workers("dask://x", [_worker(), _worker(processor="two; 4 cores")])
    with pytest.raises(UnsupportedError, match="their processors differ"):
        workers.processor(("measure",))


def test_the_key_of_a_measured_step_has_the_workers_processor_not_the_drivers(project: Path, tmp_path: Path) -> None:
    (project / "onnxtool.toml").write_text("[models.a]\nsource='a.onnx'\nruns-on='gpu'\nsteps=['bench']\n")
    instance = expand(read_file(project / "onnxtool.toml"))["a"]
    asked, found = [], []
    for name in ("one", "two"):

        def processor(tags: tuple[str, ...], name: str = name) -> str:
            asked.append(tags)
            return name

        lookup = Lookup(project, Store(tmp_path / "cache"), Lock.read(tmp_path / "l"), False, False, {}, processor)
        found.append(BuildChain(instance, lookup).advance())
    assert asked == [("measure", "gpu")] * 2
    assert found[0] is not None and found[1] is not None
    assert found[0].key != found[1].key and found[0].tags == ("measure", "gpu")


def test_a_tag_that_this_machine_does_not_have_fails_the_measured_step_alone(run: Builder) -> None:
    own = next(iter(digests.own_tags() - {"measure"}))
    text = "[models.a]\nsource='a.onnx'\nruns-on='{tag}'\nsteps=[{step}]\n"
    failed = run(text.replace("{tag}", "gpu").replace("{step}", "'bench'")).models[0]
    assert failed.exit_code == 4 and "runs-on gpu: this machine has only" in failed.error
    assert run(text.replace("{tag}", "gpu").replace("{step}", "{step='edit', doc='x'}")).ok
    assert run(text.replace("{tag}", own).replace("{step}", "{step='edit', doc='x'}")).ok


def test_an_unknown_executor_is_refused() -> None:
    with pytest.raises(UsageError, match="must be local, processes, dask"):
        open_executor("cluster", 1)


def test_nobody_at_the_address_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    from onnxtool.workflow.executors import DaskExecutor

    def nobody(*_: object, **__: object) -> None:
        raise OSError("timed out")

    monkeypatch.setattr(distributed, "Client", nobody)
    with pytest.raises(ResourceError, match="no scheduler answers"):
        DaskExecutor("127.0.0.1:9")
