"""Requests that wait: order, limits, batches."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytest.importorskip("prometheus_client")

from onnxtool.errors import InputError
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.serving.engine import Engine
from onnxtool.serving.faults import HttpError, as_http
from onnxtool.serving.served_model import Cancellation, LocalModel
from onnxtool.serving.telemetry import Metrics
from tests.runtime.test_empty_inputs import recurrent


@pytest.fixture
def runner(relu_proto: onnx.ModelProto) -> OnnxRunner:
    return OnnxRunner.open(relu_proto)


class Gate:
    """Holds runs back until it is opened, and keeps the sizes of their inputs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.rows = threading.Event(), list[int]()
        self._run = LocalModel.run

        def run(model: LocalModel, feeds: Mapping[str, np.ndarray], cancellation: Cancellation) -> dict[str, Any]:
            return self.run(model, feeds, cancellation)

        monkeypatch.setattr(LocalModel, "run", run)

    def run(self, model: LocalModel, feeds: Mapping[str, np.ndarray], cancellation: Cancellation) -> dict[str, Any]:
        self.open.wait(30)
        self.rows.append(len(feeds["x"]))
        if np.isnan(feeds["x"]).any():
            raise InputError("not a number")
        return self._run(model, feeds, cancellation)


def made(runner: OnnxRunner, **options: Any) -> Engine:
    return Engine(LocalModel(runner), labels=("m", "1"), metrics=Metrics(), **{"concurrency": 1, "queue": 8, **options})


def feeds(*values: float) -> dict[str, np.ndarray]:
    return {"x": np.float32([[v, v, v] for v in values])}


async def gathered(engine: Engine, gate: Gate, asked: list[dict[str, np.ndarray]]) -> list[Any]:
    tasks = [asyncio.ensure_future(engine.infer(f, 30)) for f in asked]
    await asyncio.sleep(0)
    gate.open.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_what_waits_goes_into_one_run_and_comes_apart_again(
    runner: OnnxRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    asked = [feeds(1), feeds(2, 3), feeds(4), feeds(5, 6, 7)]
    found = asyncio.run(gathered(made(runner, max_batch=4), gate, asked))
    assert gate.rows == [1, 3, 3]
    for given, got in zip(asked, found, strict=True):
        assert np.array_equal(got["y"], runner.run(given)["y"])


def test_a_request_waits_for_others_no_longer_than_it_may(runner: OnnxRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    gate.open.set()
    waiting = made(runner, max_batch=4, max_delay=3600)

    async def scenario() -> None:
        first = asyncio.ensure_future(waiting.infer(feeds(1), 3600))
        await asyncio.sleep(0.05)
        assert gate.rows == [] and not waiting.idle
        found = await asyncio.gather(first, waiting.infer(feeds(2, 3, 4), 3600))  # now the batch is full
        assert gate.rows == [4] and len(found[1]["y"]) == 3
        short = made(runner, max_batch=4, max_delay=0.01)
        assert len((await short.infer(feeds(5), 3600))["y"]) == 1  # nobody else comes
        scalars = [asyncio.ensure_future(waiting.infer(feeds(*range(9)), 3600))]  # larger than a batch
        assert len((await scalars[0])["y"]) == 9

    asyncio.run(scenario())


def test_without_batching_every_request_runs_alone(runner: OnnxRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    asyncio.run(gathered(made(runner), gate, [feeds(1), feeds(2), feeds(3)]))
    assert gate.rows == [1, 1, 1]


def test_one_bad_request_does_not_spoil_its_batch(runner: OnnxRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    found = asyncio.run(gathered(made(runner, max_batch=4), gate, [feeds(1), feeds(2), feeds(float("nan")), feeds(3)]))
    assert isinstance(found[2], InputError)
    assert [isinstance(f, dict) for f in found] == [True, True, False, True]


def test_too_many_that_wait_are_429(runner: OnnxRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    found = asyncio.run(gathered(made(runner, queue=2), gate, [feeds(v) for v in range(5)]))
    refused = [f for f in found if isinstance(f, HttpError)]
    assert [f.status for f in refused] == [429, 429]
    assert len(found) - len(refused) == 3


def test_too_long_is_504_and_the_next_request_runs(runner: OnnxRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)

    async def run() -> None:
        engine = made(runner)
        with pytest.raises(HttpError, match="no answer within") as caught:
            await engine.infer(feeds(1), 0.01)
        assert caught.value.status == 504
        gate.open.set()
        assert (await engine.infer(feeds(1), 30))["y"].shape == (1, 2)
        assert engine.idle

    asyncio.run(run())


def test_what_does_not_fit_never_waits(runner: OnnxRunner) -> None:
    with pytest.raises(InputError, match="the model takes"):
        asyncio.run(made(runner).infer({"x": np.zeros((1, 4), np.float32)}, 1))


def two_inputs(node: onnx.NodeProto) -> OnnxRunner:
    """a[n, 1], b[m, 1] -> y[k, 1]."""
    names = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [dim, 1])
        for name, dim in zip("aby", "nmk", strict=True)
    }
    graph = helper.make_graph([node], "g", [names["a"], names["b"]], [names["y"]])
    return OnnxRunner.open(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))


def pair(a: int, b: int) -> dict[str, np.ndarray]:
    return {"a": np.arange(a, dtype=np.float32)[:, None], "b": 10 + np.arange(b, dtype=np.float32)[:, None]}


async def all_of(engine: Engine, asked: list[dict[str, np.ndarray]]) -> list[Any]:
    return list(await asyncio.gather(*(engine.infer(f, 30) for f in asked)))


def test_inputs_of_different_rows_are_never_joined() -> None:
    """Joined, b would be added to rows of another request: [0, 1, 0, 1] and [10, 10]."""
    runner = two_inputs(helper.make_node("Add", ["a", "b"], ["y"]))
    found = asyncio.run(all_of(made(runner, max_batch=8), [pair(2, 1)] * 4))
    for got in found:
        assert got["y"].tolist() == [[10], [11]]


def test_outputs_of_other_rows_are_told_apart_by_running_alone() -> None:
    runner = two_inputs(helper.make_node("Concat", ["a", "b"], ["y"], axis=0))
    found = asyncio.run(all_of(made(runner, max_batch=8), [pair(2, 2), pair(1, 1), pair(2, 2)]))
    assert [f["y"].tolist() for f in found] == [[[0], [1], [10], [11]], [[0], [10]], [[0], [1], [10], [11]]]


def test_a_request_that_would_end_the_process_is_refused() -> None:
    runner = OnnxRunner.open(recurrent("GRU"))
    with pytest.raises(InputError, match="is empty"):
        asyncio.run(made(runner).infer({"x": np.zeros((2, 0, 3), np.float32)}, 30))


def test_what_does_not_fit_into_a_batch_keeps_its_turn(runner: OnnxRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are told apart by identity: arrays of other sizes cannot be compared."""
    gate = Gate(monkeypatch)
    asked = [feeds(1), feeds(2, 3), feeds(4, 5, 6), feeds(7, 8), feeds(9), feeds(10, 11, 12)]
    found = asyncio.run(gathered(made(runner, max_batch=4), gate, asked))
    assert gate.rows == [1, 4, 4, 3]
    for given, got in zip(asked, found, strict=True):
        assert np.array_equal(got["y"], runner.run(given)["y"])


def test_who_leaves_a_mixed_queue_takes_nobody_along(runner: OnnxRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)

    async def run() -> list[Any]:
        engine = made(runner, max_batch=4, queue=3)
        first = [asyncio.ensure_future(engine.infer(feeds(*range(n)), 30)) for n in (1, 2, 3)]
        await asyncio.sleep(0)
        with pytest.raises(HttpError, match="no answer within"):
            await engine.infer(feeds(7, 8), 0.01)
        await asyncio.sleep(0)
        later = asyncio.ensure_future(engine.infer(feeds(9), 30))  # there is a place again
        await asyncio.sleep(0)
        gate.open.set()
        return await asyncio.gather(*first, later)

    assert [len(got["y"]) for got in asyncio.run(run())] == [1, 2, 3, 1]


class Panic(BaseException):
    """As native code raises them: no Exception."""


@pytest.mark.parametrize("error", [RuntimeError("broken"), Panic("broken")])
@pytest.mark.parametrize("method", ["_call", "_answer"])
def test_a_run_that_fails_answers_and_the_next_ones_run(
    runner: OnnxRunner, monkeypatch: pytest.MonkeyPatch, error: BaseException, method: str
) -> None:
    def fail(*_: object) -> Any:
        raise error

    async def run() -> None:
        engine = made(runner, max_batch=4)
        with monkeypatch.context() as patch:
            patch.setattr(engine, method, fail)
            failed = await asyncio.gather(*(engine.infer(feeds(v), 30) for v in range(3)), return_exceptions=True)
        assert ["broken" in str(f) and as_http(f).status == 500 for f in failed] == [True] * 3  # type: ignore[arg-type]
        assert (await engine.infer(feeds(1), 30))["y"].shape == (1, 2)
        assert engine.idle

    asyncio.run(run())


def test_requests_whose_run_cannot_begin_are_told(runner: OnnxRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)

    def fail() -> Any:
        raise RuntimeError("broken")

    async def run() -> None:
        engine = made(runner)
        tasks = [asyncio.ensure_future(engine.infer(feeds(v), 30)) for v in range(3)]
        await asyncio.sleep(0)
        with monkeypatch.context() as patch:
            patch.setattr(engine, "_joined", fail)
            gate.open.set()
            first, *lost = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(first, dict)
        assert ["broken" in str(f) and as_http(f).status == 500 for f in lost] == [True] * 2  # type: ignore[arg-type]
        assert (await engine.infer(feeds(1), 30))["y"].shape == (1, 2)

    asyncio.run(run())


def test_a_client_that_waits_for_less_is_told_so_and_never_waits_for_more(
    runner: OnnxRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    engine = made(runner)

    async def asked(seconds: float, within: float) -> str:
        with pytest.raises(HttpError) as error:
            await engine.infer(feeds(1), seconds, within=within)
        assert error.value.status == 504
        return str(error.value)

    assert asyncio.run(asked(30, 0.01)) == "no answer within 0.01 s."
    assert asyncio.run(asked(0.02, 30)) == "no answer within 0.02 s."
    gate.open.set()


def test_inputs_of_a_run_that_failed_after_its_client_had_left_are_held_no_longer(
    runner: OnnxRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)

    async def scenario() -> weakref.ref[np.ndarray]:
        engine, given = made(runner), feeds(np.nan)
        held = weakref.ref(given["x"])
        with pytest.raises(HttpError, match="no answer within"):
            await engine.infer(given, 30, within=0.01)
        gate.open.set()
        while not engine.idle:
            await asyncio.sleep(0.01)
        assert gate.rows == [1]
        return held

    gc.disable()
    try:
        assert asyncio.run(scenario())() is None
    finally:
        gc.enable()
