"""What the parent of a command makes of its child: limits, waits, ends; no process is started."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any, NoReturn

import pytest

from onnxtool.runtime.worker import isolation, watchdog
from onnxtool.runtime.worker.isolation import FRAMEWORK, NATIVE, Attempt, guarded, native_limits, next_attempt
from onnxtool.runtime.worker.watchdog import MOST_STRETCH, Crash, ProviderCall, Watch


class Left(Exception):
    """In place of the end of this process, with its exit code."""


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    def leave(code: int) -> NoReturn:
        raise Left(code)

    monkeypatch.setattr(watchdog, "_leave", leave)
    return []


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The clock, what the child has waited for a processor, and its memory."""
    told = {"clock": 100.0, "waited": 0.0, "bytes": 5e9}
    monkeypatch.setattr(time, "monotonic", lambda: told["clock"])
    monkeypatch.setattr(watchdog, "_waited", lambda _: {"1": told["waited"]})
    monkeypatch.setattr(watchdog, "resident_bytes", lambda _: int(told["bytes"]))
    return told


def watching(said: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch) -> Watch:
    """In a call of 10 s and 1 GB."""
    watch = Watch(1, 0, lambda line, code: said.append((line, code)), again=lambda _: False)
    monkeypatch.setattr(watch, "_kill", lambda number: said.append(("killed", number)))
    monkeypatch.setattr(os, "waitpid", lambda *_: (1, 0))
    tell(watch, {"what": "running", "seconds": 10.0, "bytes": 10**9, "retry": False, "base": (10, 1), "provider": None})
    return watch


def tell(watch: Watch, *messages: dict[str, Any]) -> None:
    watch._listen(b"".join(json.dumps(m).encode() + b"\n" for m in messages))


def enforce(watch: Watch) -> int | None:
    """The exit code where the call was ended."""
    assert watch.call is not None
    try:
        watch._enforce(watch.call)
    except Left as left:
        return int(left.args[0])
    return None


def pass_time(watch: Watch, now: dict[str, float], seconds: float) -> int | None:
    """By looks at the child in between."""
    for _ in range(int(seconds / 0.5)):
        now["clock"] += 0.5
        code = enforce(watch)
        if code is not None:
            return code
    return None


def test_a_call_ends_when_its_own_time_is_up(
    said: list[tuple[str, int]], now: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watching(said, monkeypatch)
    assert pass_time(watch, now, 10.0) is None
    assert pass_time(watch, now, 0.5) == 6
    assert ("killed", signal.SIGKILL) in said and "longer than 10 s while running" in said[-1][0]


def test_waiting_for_a_processor_is_not_counted_but_has_an_end(
    said: list[tuple[str, int]], now: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watching(said, monkeypatch)
    now["waited"] = 1000.0
    assert pass_time(watch, now, 10.0 * MOST_STRETCH) is None
    assert pass_time(watch, now, 1.0) == 6


def test_time_in_which_nobody_looked_is_no_time_of_the_calls(
    said: list[tuple[str, int]], now: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watching(said, monkeypatch)
    now["clock"] += 3600  # the machine slept
    assert enforce(watch) is None and pass_time(watch, now, 9.0) is None
    assert pass_time(watch, now, 2.0) == 6


def test_memory_counts_from_where_the_call_began(
    said: list[tuple[str, int]], now: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watching(said, monkeypatch)
    now["bytes"] += 1e9
    assert enforce(watch) is None
    now["bytes"] += 1
    assert enforce(watch) == 6 and "1.0 GB of memory while running" in said[-1][0]


def test_more_inputs_extend_a_call_and_a_provider_in_it_is_known(
    said: list[tuple[str, int]], now: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watching(said, monkeypatch)
    plugin = {"provider": "openvino", "what": "compiling", "setting": ["A", "b"]}
    tell(watch, {"more_seconds": 5.0, "more_bytes": 10**9, "provider": plugin})
    now["bytes"] += 2e9
    assert pass_time(watch, now, 15.0) is None and pass_time(watch, now, 0.5) == 6
    crash = watch._crash(signal.SIGILL)
    assert crash == Crash("running", "SIGILL", False, ProviderCall("openvino", "compiling", ("A", "b")))
    tell(watch, {})
    assert watch.call is None and watch._crash(signal.SIGILL) is None


def exits(watch: Watch, status: int) -> int:
    with pytest.raises(Left) as left:
        watch._exit(status)
    return int(left.value.args[0])


@pytest.mark.parametrize(
    ("status", "within", "code", "line"),
    [
        (0, True, 0, ""),
        (3 << 8, True, 3, ""),
        (signal.SIGKILL, True, 6, "out of memory"),
        (signal.SIGBUS, True, 3, "was cut off"),
        (signal.SIGSEGV, True, 3, "crashed (SIGSEGV) while running; the file is malformed"),
        (signal.SIGSEGV, False, 70, "bug in onnxtool"),
        (signal.SIGINT, False, 130, "interrupted"),
        (130 << 8, False, 130, "interrupted"),
        (signal.SIGTERM, True, 143, "terminated"),
    ],
)
def test_how_a_child_ended_decides_the_exit_code(
    status: int, within: bool, code: int, line: str, said: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watching(said, monkeypatch)
    if not within:
        tell(watch, {})
    assert exits(watch, status) == code
    assert line in (said[-1][0] if said else "") and bool(said) is bool(line)


def test_a_child_that_was_asked_to_end_and_was_done_before_is_done(
    said: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watching(said, monkeypatch)
    monkeypatch.setattr(signal, "setitimer", lambda *_: None)
    watch._pass_on(signal.SIGINT, None)
    assert said == [("killed", signal.SIGINT)]
    watch._pass_on(signal.SIGINT, None)
    assert said[-1] == ("killed", signal.SIGKILL)  # asked twice
    assert exits(watch, 0) == 0 and exits(watch, signal.SIGKILL) == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_was_ended_did_not_crash(
    number: int, said: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watching(said, monkeypatch)
    assert watch._crash(number) is None and watch._crash(1 << 8) is None and watch._crash(signal.SIGABRT) is not None


def test_which_crashes_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = ProviderCall("openvino", "running", ("ONNXTOOL_TEST", "1"))
    illegal, other = (Crash("running", s, False, plugin) for s in ("SIGILL", "SIGSEGV"))
    assert next_attempt(Attempt(), illegal) == Attempt(None, (illegal,), ("ONNXTOOL_TEST", "1"))
    assert next_attempt(Attempt(), other) == Attempt(None, (other,), None)
    assert next_attempt(Attempt(None, (illegal,)), illegal) == Attempt(None, (illegal, illegal), None)
    assert next_attempt(Attempt(None, (other,) * 4), other) is None
    monkeypatch.setenv("ONNXTOOL_TEST", "0")  # the user's own
    assert next_attempt(Attempt(), illegal) == Attempt(None, (illegal,), None)
    again, once = (Crash("running", "SIGFPE", retry) for retry in (True, False))
    assert next_attempt(Attempt(), again) == Attempt("running")
    assert next_attempt(Attempt("running"), again) is None and next_attempt(Attempt(), once) is None
    monkeypatch.setattr(isolation, "_process", isolation._Process(attempt=Attempt(None, (other,))))
    assert isolation.provider_crash("openvino") == other and isolation.provider_crash("cuda") is None
    monkeypatch.setattr(isolation, "_process", isolation._Process(attempt=Attempt(None, (other,), ("A", "b"))))
    assert isolation.provider_crash("openvino") is None  # it is tried once more


def test_what_a_call_may_take() -> None:
    assert native_limits(0)[0] == 10 and native_limits(0)[1] == 1 << 30
    assert native_limits(10**9)[0] == pytest.approx(30)  # a file of a gigabyte has 20 seconds more
    assert native_limits(0, 10**6)[0] == pytest.approx(15)
    assert native_limits(10**12, pace=FRAMEWORK)[0] == pytest.approx(10 + 990 + 20_000)


def told_in(monkeypatch: pytest.MonkeyPatch, *, synthetic: bool, inner: int) -> list[dict[str, Any]]:
    """What a child tells of a call on 2^30 bytes of inputs, with another inside."""
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(isolation, "_process", isolation._Process(channel=1, synthetic=synthetic))
    monkeypatch.setattr(isolation, "_tell", told.append)
    with guarded("running", 0, 1 << 30, NATIVE, retry=True), guarded("inside", inputs=inner):
        pass
    return told


def test_a_guarded_call_is_told_when_it_begins_and_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = told_in(monkeypatch, synthetic=False, inner=1 << 20)
    assert first["what"] == "running" and first["retry"] and first["seconds"] == native_limits(0, 1 << 30)[0]
    assert last == {}  # smaller inputs inside are nothing to tell
    _, more, _ = told_in(monkeypatch, synthetic=False, inner=(1 << 30) + 10**6)
    assert more == {"more_seconds": pytest.approx(5), "more_bytes": 200 * 10**6}
    made, _ = told_in(monkeypatch, synthetic=True, inner=0)
    assert made["seconds"] == native_limits(0, 1 << 24)[0]  # a small file gives itself no time by what it declares
