"""What travels to a worker and back, without a cluster: benchmarks/build.py has real ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from onnxtool.errors import UsageError
from onnxtool.workflow.chain import Chain, Lookup
from onnxtool.workflow.dask_executor import Delivery, accept, pack, run_package, worker_versions
from onnxtool.workflow.executors import open_executor
from onnxtool.workflow.file import read_file
from onnxtool.workflow.instances import expand
from onnxtool.workflow.lock import Lock
from onnxtool.workflow.run_step import StepTask
from onnxtool.workflow.store import Store


@pytest.fixture
def task(project: Path, tmp_path: Path) -> StepTask:
    (project / "onnxtool.toml").write_text("[models.a]\nsource='a.onnx'\nsteps=[{step='edit', doc='x'}]\n")
    lookup = Lookup(project, Store(tmp_path / "cache"), Lock.read(tmp_path / "l"), False, False, {})
    found = Chain(expand(read_file(project / "onnxtool.toml"))["a"], lookup).advance()
    assert found is not None
    return found


def test_a_worker_needs_no_file_of_the_driver(task: StepTask, project: Path) -> None:
    package = pack(task)
    (project / "a.onnx").rename(project / "moved.onnx")
    delivery = run_package(package)
    assert delivery.result.error == ""
    result = accept(task, delivery)
    assert result.entry is not None
    assert Store(Path(task.store)).find(result.entry.key) == result.entry


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


def test_an_unknown_executor_is_refused() -> None:
    with pytest.raises(UsageError, match="must be local, processes or dask"):
        open_executor("cluster", 1)


def test_nobody_at_the_address_is_one_line(task: StepTask, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    from onnxtool.errors import ResourceError
    from onnxtool.workflow import dask_executor

    def nobody(*_: object, **__: object) -> None:
        raise OSError("timed out")

    monkeypatch.setattr(distributed, "Client", nobody)
    with pytest.raises(ResourceError, match="no scheduler answers"):
        dask_executor.DaskExecutor("127.0.0.1:9")
