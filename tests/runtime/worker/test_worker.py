"""A model in a process of its own: same answers, and its end is an error of the run."""

from __future__ import annotations

import io
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from socket import socketpair
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, parser

pytest.importorskip("fcntl")

from onnxtool.errors import InputError, ResourceError, UnsupportedError
from onnxtool.runtime.runner import OnnxRunner, Runner
from onnxtool.runtime.worker import worker as worker_module
from onnxtool.runtime.worker.channel import Channel, Region, _Unpickler
from onnxtool.runtime.worker.errors import OutOfTableError, WorkerDiedError, WorkerTimeoutError
from onnxtool.runtime.worker.worker import Worker

HEAD = '<ir_version: 10, opset_import: ["" : 20]> m '
DIVIDE = HEAD + "(int32[n] a, int32[m] b) => (int32[k] y) { y = Div(a, b) }"
LENGTHS = HEAD + "(int64[1] n) => (float[k] y) { y = ConstantOfShape(n) }"
# n steps of a loop around a product.
LOOP = (
    HEAD
    + """(int64 n, float[r, r] x) => (float[r, r] y) {
    yes = Constant <value = bool {1}> ()
    y = Loop (n, yes, x) <body = step (int64 i, bool c, float[r, r] a) => (bool d, float[r, r] b) {
        d = Identity(c)
        b = MatMul(a, a)
    }>
}"""
)


def made(text: str) -> bytes:
    model: ModelProto = parser.parse_model(text)
    return bytes(model.SerializeToString())


@pytest.fixture(scope="module")
def divide() -> Iterator[Worker]:
    worker = Worker(made(DIVIDE))
    yield worker
    worker.close()


def ints(*values: int) -> np.ndarray:
    return np.int32(values)


def test_is_a_runner_with_the_models_answers(divide: Worker) -> None:
    assert isinstance(divide, Runner)
    inside = OnnxRunner.open(made(DIVIDE))
    assert (divide.inputs, divide.outputs) == (inside.inputs, inside.outputs)
    for size in (0, 1, 5, 100_000, 3_000_000, 7):  # through memory that grows, and less again
        feeds = {"a": np.arange(size, dtype=np.int32), "b": ints(3)}
        found = divide.run(feeds)["y"]
        assert np.array_equal(found, np.arange(size) // 3) and found.dtype == np.int32
        kept = found.copy()
        divide.run({"a": np.arange(size, dtype=np.int32) + 1, "b": ints(1)})
        assert np.array_equal(found, kept)  # an answer does not change with the next run


def test_a_crash_is_an_error_and_the_next_run_has_a_new_process(divide: Worker) -> None:
    before = divide.pid
    with pytest.raises(WorkerDiedError, match="SIGFPE"):
        divide.run({"a": ints(-(2**31)), "b": ints(-1)})
    assert not divide.alive
    assert divide.run({"a": ints(6), "b": ints(2)})["y"].tolist() == [3]
    assert divide.pid != before


def test_errors_are_those_of_the_runner(divide: Worker) -> None:
    pid = divide.pid
    with pytest.raises(InputError, match="the model takes"):
        divide.run({"a": ints(1)})
    with pytest.raises(InputError, match="the model fails to run"):
        divide.run({"a": ints(1, 2, 3), "b": ints(1, 2)})
    assert divide.pid == pid
    with pytest.raises(UnsupportedError):
        Worker(made(DIVIDE.replace("Div", "Nothing")))
    with pytest.raises(InputError):
        Worker(b"not a model")
    table = HEAD + "(int64[n] i) => (float[n] y) <float[2] t = {1, 2}> { y = Gather(t, i) }"
    worker = Worker(made(table))
    with pytest.raises(OutOfTableError) as caught:
        worker.run({"i": np.int64([5])})
    assert (caught.value.input, caught.value.value) == ("i", 5)
    worker.close()


@pytest.mark.parametrize(
    ("kind", "given"),
    [("string", np.array(["a", "é"], object)), ("bfloat16", np.array([1, 2], ml_dtypes.bfloat16))],
)
def test_texts_and_short_floats_pass(kind: str, given: np.ndarray) -> None:
    worker = Worker(made(HEAD + f"({kind}[n] x) => ({kind}[n] y) {{ y = Identity(x) }}"))
    found = worker.run({"x": given})["y"]
    assert found.dtype == given.dtype and found.tolist() == given.tolist()
    worker.close()


def test_a_number_that_asks_for_much_memory_is_refused_and_the_process_stays() -> None:
    worker = Worker(made(LENGTHS), memory_bytes=300 << 20)
    pid = worker.pid
    for much in (30, 31, 34, 37):  # of each the runtime's pool of memory has kept another part of all
        with pytest.raises(ResourceError, match="out of memory"):
            worker.run({"n": np.array([1 << much])})
        assert len(worker.run({"n": np.array([10 << 20])})["y"]) == 10 << 20
    assert worker.pid == pid
    worker.close()


def test_what_takes_too_long_is_ended() -> None:
    worker = Worker(made(LOOP))
    eye = np.eye(2, dtype=np.float32)
    with pytest.raises(WorkerTimeoutError, match="longer than"):
        worker.run({"n": np.array(1 << 40), "x": eye}, 0.1)
    assert np.array_equal(worker.run({"n": np.array(2), "x": eye})["y"], eye)
    pid = worker.pid
    threading.Timer(0.1, worker.interrupt).start()
    with pytest.raises(InputError):
        worker.run({"n": np.array(1 << 40), "x": eye}, 60)
    assert worker.pid == pid  # it ended at a node
    worker.interrupt()  # of a run that has ended: the next one stays
    assert np.array_equal(worker.run({"n": np.array(2), "x": eye})["y"], eye)
    worker.close()


# A parent that is killed within a run.
_KILLED = """
import os, signal, sys, threading
import numpy as np
from onnxtool.runtime.worker.worker import Worker
worker = Worker(sys.stdin.buffer.read())
print(worker.pid, flush=True)
threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
worker.run({"n": np.array(1 << 40), "x": np.eye(2, dtype=np.float32)}, 60)
"""


def test_no_process_outlives_its_parent() -> None:
    # No fork of the test's own process: it may hold threads of other tests' libraries.
    parent = subprocess.run([sys.executable, "-c", _KILLED], input=made(LOOP), stdout=subprocess.PIPE, check=False)
    assert parent.returncode == -signal.SIGKILL
    child = int(parent.stdout)
    until = time.monotonic() + 30
    while _runs(child) and time.monotonic() < until:
        time.sleep(0.01)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_child_cannot_make_its_parent_run_anything() -> None:
    for harmful in (os.system, pickle.loads, np.frompyfunc):
        with pytest.raises(pickle.UnpicklingError, match="is no array"):
            _Unpickler(pickle.dumps(harmful, 5), Region(), trusted=False).load()


def test_arrays_of_every_kind_pass_between_the_ends_and_what_is_received_is_ones_own() -> None:
    ours, theirs = socketpair()
    regions = Region(), Region()
    parent, child = Channel(ours, *regions), Channel(theirs, *reversed(regions))
    arrays = [
        np.zeros((0, 3), np.float32),
        np.array(2.5),
        np.arange(12, dtype=">i2").reshape(3, 4).T,
        np.arange(10, dtype=np.uint8)[::-3],
        np.array(["a", "bcd"]),
        np.array([["", "é"]], object),
        np.array([1, -2], ml_dtypes.int4),
        np.array([1, 2], ml_dtypes.float8_e4m3fn),
        np.arange(1 << 18, dtype=np.float64),
    ]
    for send, receive in ((parent.send, child.receive), (child.send, parent.receive_arrays)):
        send({"all": arrays, "map": [{1: 0.5}]})
        found = receive()
        assert found["map"] == [{1: 0.5}]
        for have, wanted in zip(found["all"], arrays, strict=True):
            assert have.dtype == wanted.dtype and have.shape == wanted.shape and have.tolist() == wanted.tolist()
        send([np.ones(1 << 18)])
        assert np.array_equal(found["all"][-1], arrays[-1]) == (receive == parent.receive_arrays)
        receive()
    found["all"][-1][:] = 0  # may be written to
    for end in (parent, child):
        end.socket.close()


def test_messages_that_come_at_once_or_in_pieces_are_told_apart() -> None:
    ours, theirs = socketpair()
    regions = Region(), Region()
    parent, child = Channel(ours, *regions), Channel(theirs, *reversed(regions))
    texts = ["a", "", "long " * 200_000, "b", "c"]

    def send() -> None:
        for text in texts:
            child.send(("shown", text))
        child.send(("outputs", {"y": np.arange(3)}))

    sending = threading.Thread(target=send)
    sending.start()
    assert [parent.receive_arrays() for _ in texts] == [("shown", text) for text in texts]
    assert parent.receive_arrays()[1]["y"].tolist() == [0, 1, 2]
    sending.join()
    for end in (parent, child):
        end.socket.close()


@pytest.mark.parametrize("told", [((9000,), "<f8", 0), ((1,), "O", 0), ((1,), "nothing", 0), (5,), ((2,), "", ["a"])])
def test_what_harmed_code_sends_is_no_fault_of_the_parent(told: object) -> None:
    class Harmed(pickle.Pickler):
        def persistent_id(self, value: object) -> object:
            return told if value == "here" else None

    file = io.BytesIO()
    Harmed(file, 5).dump(["here"])
    ours, theirs = socketpair()
    with ours, theirs:
        ours.sendall(struct.pack("<Q", file.tell()) + file.getvalue())
        with pytest.raises(ValueError, match="not a message"):
            Channel(theirs, Region(), Region()).receive_arrays()


def test_a_process_stays_where_its_parent_has_no_memory_for_the_answer(
    divide: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds, pid = {"a": ints(7), "b": ints(2)}, divide.pid

    def full(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as short:
        short.setattr(_Unpickler, "persistent_load", full)
        with pytest.raises(MemoryError):
            divide.run(feeds)
    assert divide.run(feeds)["y"].tolist() == [3] and divide.pid == pid


def test_a_run_is_ended_where_the_system_gives_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(made(LOOP))

    def none(_: object) -> None:
        raise RuntimeError("can't start new thread")

    worker.begin({"n": np.array(1 << 50), "x": np.eye(2, dtype=np.float32)}, 60)
    monkeypatch.setattr(threading.Thread, "start", none)
    worker.interrupt()
    with pytest.raises((WorkerDiedError, InputError)):  # it may end by itself before
        worker.finish()
    worker.close()


def test_how_a_process_ended_is_told() -> None:
    told = {code: worker_module._ending(code) for code in (None, 3, -signal.SIGKILL, -signal.SIGSEGV, -99)}
    assert told[None] == "sent no answer" and told[3] == "ended with code 3"
    assert "out of memory" in told[-signal.SIGKILL]
    assert told[-signal.SIGSEGV] == "crashed (SIGSEGV)" and told[-99] == "crashed (signal 99)"


@pytest.mark.parametrize(("given", "taken"), [(2.0, 2.0), (None, 7.0 * worker_module.MOST_STRETCH)])
def test_a_run_has_the_time_that_it_was_given(
    given: float | None, taken: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[float] = []
    made = Worker.__new__(Worker)
    made._lock, made._child = threading.Lock(), None
    monkeypatch.setattr(made, "check", lambda _: None)
    monkeypatch.setattr(made, "usual_seconds", lambda _: 7.0)
    monkeypatch.setattr(made, "begin", lambda _, seconds: begun.append(seconds))
    monkeypatch.setattr(made, "finish", dict)
    made.run({}, given)
    assert begun == [taken]


def test_only_the_run_that_was_asked_to_end_is_ended() -> None:
    class Process:
        killed = 0

        def kill(self) -> None:
            self.killed += 1

    child: Any = worker_module._Child.__new__(worker_module._Child)
    child.process, child.busy, child.messages = Process(), True, 2
    child._kill_in(1)  # the next run is under way
    assert child.process.killed == 0
    child._kill_in(2)
    assert child.process.killed == 1
