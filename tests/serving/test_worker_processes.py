"""Models run in processes of their own: what ends one costs its request an error and nobody else anything."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

pytest.importorskip("fcntl")

from onnxtool.errors import InputError
from onnxtool.options.session import SessionOptions
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.protocol_v2.client import RemoteRunner
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.worker.errors import WorkerDiedError
from onnxtool.runtime.worker.worker import Worker
from onnxtool.serving.admission import remove_lost_copies
from onnxtool.serving.faults import HttpError
from onnxtool.serving.served_model import Cancellation, WorkerPool
from tests.runtime.test_empty_inputs import recurrent
from tests.serving.conftest import Running, children

HEAD = '<ir_version: 10, opset_import: ["" : 20]> m '
MODELS = {
    "divide": "(int32[n] a, int32[n] b) => (int32[n] y) { y = Div(a, b) }",
    "product": "(float[n, k] a, float[k, m] b) => (float[n, m] y) { y = MatMul(a, b) }",
    "lengths": "(int64[1] n) => (float[k] y) { y = ConstantOfShape(n) }",
    "loop": """(int64 n, float[2, 2] x) => (float[2, 2] y) {
        yes = Constant <value = bool {1}> ()
        y = Loop (n, yes, x) <body = step (int64 i, bool c, float[2, 2] a) => (bool d, float[2, 2] b) {
            d = Identity(c)
            b = MatMul(a, a)
        }>
    }""",
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Running:
    folder = tmp_path_factory.mktemp("models")
    for name, text in MODELS.items():
        onnx.save(parser.parse_model(HEAD + text), folder / f"{name}.onnx")
    gru = recurrent("GRU")
    onnx.save(gru, folder / "shapeless.onnx")
    gru.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["t", 1, "b", 4]))
    onnx.save(gru, folder / "gru.onnx")
    (folder / "bad.onnx").write_bytes(b"no model")
    names = [*MODELS, "gru", "bad", "shapeless"]
    running = Running(*(folder / f"{n}.onnx" for n in names), "--reload", "off", "--timeout", "4")
    yield running
    assert running.stop() == 0


def ints(*values: int) -> np.ndarray:
    return np.int32(values)


def answer(runner: RemoteRunner, feeds: Feeds) -> np.ndarray:
    """The output y, asked again while a process starts anew: on a busy machine that is longer than `--timeout`."""
    for _ in range(15):
        try:
            return runner.run(feeds)["y"]
        except InputError as error:
            if "status 504" not in str(error):
                raise
    raise AssertionError("no answer in a minute")


def test_one_bad_model_does_not_stop_the_others(hostile: Running) -> None:
    refused = {event["model"]: event["reason"] for event in hostile.said if event["event"] == "model_refused"}
    assert set(refused) == {"bad", "shapeless"}
    assert "not an ONNX file" in refused["bad"] and "Field 'shape' of 'type' is required" in refused["shapeless"]
    assert {m["name"] for m in hostile.client().get("/v2/models")["models"]} == {*MODELS, "gru"}


def test_a_crash_costs_its_request_alone_and_the_third_time_nothing(hostile: Running) -> None:
    runner = hostile.runner("divide")
    for _ in range(2):
        with pytest.raises(InputError, match=r"status 500: .*SIGFPE"):
            runner.run({"a": ints(-(2**31)), "b": ints(-1)})
        assert "SIGFPE" in hostile.wait("worker_died")["reason"]
        assert answer(runner, {"a": ints(7), "b": ints(2)}).tolist() == [3]
    with pytest.raises(InputError, match=r"status 400: .*twice"):
        runner.run({"a": ints(-(2**31)), "b": ints(-1)})
    assert 'onnxtool_worker_deaths_total{model="divide",version="1"} 2.0' in hostile.metrics()


def test_what_is_empty_is_refused_where_that_ended_the_process_when_the_model_was_loaded(hostile: Running) -> None:
    with pytest.raises(InputError, match=r"status 400: .*empty"):
        hostile.runner("gru").run({"x": np.zeros((2, 0, 3), np.float32)})
    assert answer(hostile.runner("divide"), {"a": ints(), "b": ints()}).shape == (0,)
    two_dims_at_once = {"a": np.zeros((2, 0), np.float32), "b": np.zeros((0, 0), np.float32)}
    assert answer(hostile.runner("product"), two_dims_at_once).shape == (2, 0)
    assert 'onnxtool_worker_deaths_total{model="gru"' not in hostile.metrics()


def test_a_number_that_asks_for_too_much_memory_is_refused(hostile: Running) -> None:
    runner = hostile.runner("lengths")
    with pytest.raises(InputError, match="status 507"):
        runner.run({"n": np.int64([1 << 32])})
    assert answer(runner, {"n": np.int64([3])}).tolist() == [0, 0, 0]


def test_a_run_that_does_not_end_is_ended_and_others_wait_no_longer(hostile: Running) -> None:
    eye = np.eye(2, dtype=np.float32)
    runner, endless = hostile.runner("loop"), {"n": np.array(1 << 50), "x": eye}
    with pytest.raises(InputError, match="status 504"):
        runner.run(endless)
    gone = hostile.runner("loop")

    def leave() -> None:
        with pytest.raises(InputError, match="no answer"):
            gone.run(endless)

    leaving = threading.Thread(target=leave)
    leaving.start()
    time.sleep(0.3)
    assert gone._client._connection.sock is not None
    gone._client._connection.sock.shutdown(2)
    assert np.array_equal(answer(runner, {"n": np.array(2), "x": eye}), eye)
    leaving.join()


def test_who_leaves_makes_room_and_who_only_sends_no_more_is_answered(tmp_path: Path) -> None:
    onnx.save(parser.parse_model(HEAD + MODELS["loop"]), tmp_path / "loop.onnx")
    server = Running(tmp_path / "loop.onnx", "--reload", "off", "--timeout", "3600", "--max-queue", "8")

    def ask(count: int) -> socket.socket:
        tensors = [("n", "INT64", [], [count]), ("x", "FP32", [2, 2], [1, 0, 0, 1])]
        inputs = [{"name": n, "datatype": t, "shape": s, "data": d} for n, t, s, d in tensors]
        body = json.dumps({"inputs": inputs}).encode()
        head = f"POST /v2/models/loop/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=120)
        connection.sendall(head.encode() + body)
        return connection

    for _ in range(3):
        ask(1 << 50).close()
    with ask(2) as waiting:
        waiting.shutdown(socket.SHUT_WR)
        found = b""
        while chunk := waiting.recv(65536):
            found += chunk
    answer = found.rpartition(b"\r\n\r\n")[2]
    assert json.loads(answer)["outputs"][0]["data"] == [1, 0, 0, 1]
    assert 'onnxtool_errors_total{kind="client_gone"} 3.0' in server.metrics()
    assert server.stop() == 0


def test_a_pool_that_is_closed_keeps_nobody_waiting(tmp_path: Path, relu_proto: onnx.ModelProto) -> None:
    onnx.save(relu_proto, tmp_path / "m.onnx")
    pool = WorkerPool(tmp_path / "m.onnx", SessionOptions(threads=1), 1, 3600.0, lambda _: None)
    feeds = {pool.inputs[0].name: np.float32([[-1, 1, 2]])}
    pool._take(0.0)  # never given back
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(pool.run, feeds) for _ in range(2)]
        pool.close()
        for run in waiting:
            with pytest.raises(HttpError, match="does not start"):
                run.result()


def test_nobody_waits_until_it_is_known_how_a_process_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that serves all clients does not wait for it."""
    onnx.save(parser.parse_model(HEAD + MODELS["divide"]), tmp_path / "m.onnx")
    pool = WorkerPool(tmp_path / "m.onnx", SessionOptions(threads=1), 1, 60.0, lambda _: None)
    finish, waited = Worker.finish, list[str]()

    def seen(worker: Worker) -> dict[str, object]:
        waited.append(threading.current_thread().name)
        return finish(worker)

    async def ask(b: int) -> list[int]:
        run = pool.begin({"a": ints(-(2**31)), "b": ints(b)}, Cancellation())
        assert run is not None
        return (await run)["y"].tolist()  # type: ignore[no-any-return]

    monkeypatch.setattr(Worker, "finish", seen)
    try:
        assert asyncio.run(ask(2)) == [-(2**30)]
        with pytest.raises(WorkerDiedError, match="SIGFPE"):
            asyncio.run(ask(-1))
    finally:
        pool.close()
    assert waited[0] == "MainThread" != waited[1]


def weights_outside(path: Path, value: float) -> Path:
    """x[n, 4096] -> x * value, the weights in external data."""
    weight = numpy_helper.from_array(np.full(4096, value, np.float32), "w")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4096]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def test_weights_that_are_overwritten_in_place_reach_nothing_that_is_served(tmp_path: Path) -> None:
    path = weights_outside(tmp_path / "m.onnx", 2.0)
    server = Running(path)
    runner, ones = server.runner("m"), {"x": np.ones((1, 4096), np.float32)}
    weights = tmp_path / "weights.bin"
    with open(weights, "r+b") as file:
        file.write(np.full(4096, 3.0, np.float32).tobytes())
    assert set(runner.run(ones)["y"].ravel()) == {2.0}
    assert "gives other answers" in server.wait("reload_refused")["reason"]
    assert set(runner.run(ones)["y"].ravel()) == {2.0}
    os.truncate(weights, 0)
    assert set(runner.run(ones)["y"].ravel()) == {2.0}
    assert server.stop() == 0


def test_a_folder_is_read_again(tmp_path: Path, relu_proto: onnx.ModelProto) -> None:
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        onnx.save(relu_proto, tmp_path / version / "model.onnx")
    server = Running(f"m={tmp_path}")
    shutil.rmtree(tmp_path / "2")
    assert server.wait("model_removed")["version"] == "2"
    assert server.client().get("/v2/models/m")["versions"] == ["1"]
    relu_proto.graph.initializer[0].float_data[0] = 7.0
    (tmp_path / "new").mkdir()
    onnx.save(relu_proto, tmp_path / "new" / "model.onnx")
    os.rename(tmp_path / "new", tmp_path / "3")
    assert server.wait("model_added")["version"] == "3"
    feeds = {"x": np.float32([[1, 2, 3]])}
    expected = OnnxRunner.open(tmp_path / "3" / "model.onnx").run(feeds)["y"]
    assert np.array_equal(server.runner("m").run(feeds)["y"], expected)
    assert server.stop() == 0


def test_killed_processes_cost_only_what_they_were_running(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(
        parser.parse_model(
            HEAD + "(int64[n] x) => (int64[n] y) { y = CumSum(x, axis) }".replace("{", "<int64 axis = {0}> {")
        ),
        path,
    )
    server = Running(path, "--workers", "2", "--reload", "off", "--max-queue", 64)
    ended = threading.Event()

    def client(number: int) -> tuple[int, int]:
        random, runner, lost = np.random.default_rng(number), server.runner("m"), 0
        for _ in range(150):
            given = random.integers(0, 99, random.integers(1, 5000))
            try:
                assert np.array_equal(runner.run({"x": given})["y"], np.cumsum(given))
            except InputError as error:
                assert "status 500" in str(error) and "killed" in str(error)
                lost += 1
        return 150, lost

    def kill() -> int:
        kills = 0
        while not ended.wait(0.5):
            there = children(server.process.pid)
            if len(there) == 2:  # one of them starts anew: the other one is left to answer
                os.kill(there[kills % 2], signal.SIGKILL)
                kills += 1
        return kills

    with ThreadPoolExecutor(9) as threads:
        killing = threads.submit(kill)
        try:
            results = list(threads.map(client, range(8)))
        finally:
            ended.set()
    assert sum(asked for asked, _ in results) == 1200
    assert sum(lost for _, lost in results) <= killing.result()
    assert server.stop() == 0


def test_a_process_that_ends_between_runs_costs_no_request_and_blames_no_inputs(
    tmp_path: Path, relu_proto: onnx.ModelProto
) -> None:
    onnx.save(relu_proto, tmp_path / "m.onnx")
    reasons: list[str] = []
    pool = WorkerPool(tmp_path / "m.onnx", SessionOptions(threads=1), 1, 60.0, reasons.append)
    try:
        feeds = {pool.inputs[0].name: np.float32([[-1, 1, 2]])}
        expected = pool.run(feeds)
        for _ in range(3):
            worker = pool._workers[0]
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            while worker.alive:
                time.sleep(0.01)
            np.testing.assert_equal(pool.run(feeds), expected)
    finally:
        pool.close()
    assert len(reasons) == 3 and all("while nothing ran" in reason for reason in reasons)


def test_a_process_is_made_anew_where_the_system_gives_no_thread_any_more(
    tmp_path: Path, relu_proto: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(relu_proto, tmp_path / "m.onnx")
    pool = WorkerPool(tmp_path / "m.onnx", SessionOptions(threads=1), 2, 20.0, lambda _: None)
    feeds = {pool.inputs[0].name: np.float32([[-1, 1, 2]])}
    expected = pool.run(feeds)

    def none(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)

    async def answer() -> Any:
        begun = pool.begin(feeds, Cancellation())
        assert begun is not None
        for worker in pool._workers:
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
        idle = pool._free.get()
        while idle.alive:
            time.sleep(0.01)
        pool._free.put(idle)
        return await begun

    with suppress(InputError):  # it may be killed before its answer or after
        asyncio.run(answer())
    for _ in range(2):
        np.testing.assert_equal(pool.run(feeds), expected)
    pool.close()


def test_a_server_that_was_killed_leaves_no_copies_behind_the_next_one(
    tmp_path: Path, relu_proto: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    onnx.save(relu_proto, tmp_path / "m.onnx")

    def copies() -> set[Path]:
        return set(tmp_path.glob("onnxtool-serve-*"))

    lost = Running(tmp_path / "m.onnx", "--reload", "off")
    (process,) = children(lost.process.pid)
    for _ in range(2):  # of the model; what has forked it; the server
        process = int(Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    os.kill(process, signal.SIGKILL)
    lost.stop()
    (left,) = copies()
    first = Running(tmp_path / "m.onnx", "--reload", "off")
    assert left not in copies() and len(copies()) == 1
    second = Running(tmp_path / "m.onnx", "--reload", "off")
    assert len(copies()) == 2  # that of a server that lives stays
    assert first.runner("m").run({"x": np.float32([[1, 2, 3]])}) and first.stop() == 0 and second.stop() == 0
    assert not copies()


def test_copies_of_another_user_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Path.is_dir

    def denied(path: Path) -> bool:
        if path.name == "model":
            raise PermissionError
        return looks(path)

    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    (tmp_path / "onnxtool-serve-theirs" / "model").mkdir(parents=True)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "is_dir", denied)
        remove_lost_copies()
    assert (tmp_path / "onnxtool-serve-theirs").exists()
    remove_lost_copies()
    assert not (tmp_path / "onnxtool-serve-theirs").exists()
