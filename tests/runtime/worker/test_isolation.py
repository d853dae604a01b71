"""The watch over native code: crashes, hangs, ballooning memory and signals, each in a real process."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from onnxtool.runtime.worker import isolation, watchdog
from onnxtool.runtime.worker.isolation import memory_bounded

PRELUDE = """
import os, signal, sys, time
os.environ["ONNXTOOL_LIMITS"] = "seconds=1,memory-bytes=1e8"
from onnxtool.runtime.worker import isolation
from onnxtool.runtime.worker.isolation import guarded
isolation.supervise(lambda message, code: print(f"error: {message}", file=sys.stderr))
"""


def run(body: str, seconds: int = 1) -> subprocess.CompletedProcess[str]:
    prelude = PRELUDE.replace("seconds=1", f"seconds={seconds}")
    return subprocess.run(
        [sys.executable, "-c", prelude + body], capture_output=True, text=True, timeout=300, check=False
    )


def test_goes_on_in_a_child_and_exits_with_its_code() -> None:
    done = run("print('worked', flush=True)\nwith guarded('thinking'):\n    pass\nsys.exit(5)")
    assert (done.returncode, done.stdout, done.stderr) == (5, "worked\n", "")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
def test_a_crash_in_a_risky_call_is_the_files_fault(number: signal.Signals) -> None:
    done = run(f"with guarded('loading the model'):\n    os.kill(os.getpid(), {int(number)})")
    assert done.returncode == 3
    assert done.stderr == (
        f"error: native code crashed ({number.name}) while loading the model; the file is malformed.\n"
    )


def test_a_crash_on_inputs_gets_a_second_attempt() -> None:
    body = """
from onnxtool.runtime.worker.isolation import crashed_before
print("again" if crashed_before() else "first", flush=True)
with guarded("running", retry=True):
    if not crashed_before():
        os.kill(os.getpid(), signal.SIGFPE)
"""
    done = run(body)
    assert (done.returncode, done.stdout, done.stderr) == (0, "first\nagain\n", "")


def test_two_crashes_are_enough() -> None:
    done = run("print(1, flush=True)\nwith guarded('running', retry=True):\n    os.kill(os.getpid(), signal.SIGFPE)")
    assert (done.returncode, done.stdout) == (3, "1\n1\n")
    assert "crashed (SIGFPE) while running; the file is malformed, or cannot take such inputs." in done.stderr


def test_a_crash_elsewhere_is_our_fault() -> None:
    done = run("with guarded('loading'):\n    pass\nos.kill(os.getpid(), signal.SIGSEGV)")
    assert done.returncode == 70
    assert "bug" in done.stderr


_JUST_AFTER_A_LOOK = """
from onnxtool.runtime.worker import watchdog
ready, go = os.pipe()
wait = os.waitpid
def let_it_crash(child, flags):
    # Called after a look at the pipe: the child then ends its call and crashes before it is asked for.
    if watch.call is not None:
        os.write(go, b"x")
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    return wait(child, flags)
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    isolation._process.channel = writer
    with guarded("loading"):
        os.read(ready, 1)
    os.kill(os.getpid(), signal.SIGSEGV)
os.close(writer)
watch = watchdog.Watch(child, reader, lambda line, code: print(line, file=sys.stderr), again=lambda crash: False)
watchdog.os.waitpid = let_it_crash
watch.run()
"""


def test_a_crash_right_after_a_risky_call_is_not_put_down_to_it() -> None:
    prelude = PRELUDE[: PRELUDE.index("isolation.supervise")]
    done = subprocess.run(
        [sys.executable, "-c", prelude + _JUST_AFTER_A_LOOK], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, "bug" in done.stderr) == (70, True), done.stderr


def call(provider: str = "abacus", setting: tuple[str, str] | None = None, number: str = "SIGILL") -> watchdog.Crash:
    return watchdog.Crash("loading", number, False, watchdog.ProviderCall(provider, "loading", setting))


def test_after_a_providers_crash_comes_the_setting_and_then_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = ("ABACUS_ISA", "OLD")
    first = isolation.next_attempt(isolation.Attempt(), call(setting=setting))
    assert first is not None and first.setting == setting
    second = isolation.next_attempt(first, call(setting=setting))
    assert second is not None and second.setting is None
    assert isolation.next_attempt(second, watchdog.Crash("loading", "SIGILL", False)) is None  # on the CPU too
    monkeypatch.setenv("ABACUS_ISA", "MINE")
    mine = isolation.next_attempt(isolation.Attempt(), call(setting=setting))
    assert mine is not None and mine.setting is None
    monkeypatch.delenv("ABACUS_ISA")
    other = isolation.next_attempt(isolation.Attempt(), call(setting=setting, number="SIGSEGV"))
    assert other is not None and other.setting is None


def test_crashes_of_providers_do_not_go_on_for_ever() -> None:
    attempt: isolation.Attempt | None = isolation.Attempt()
    starts = 0
    while attempt is not None:
        attempt = isolation.next_attempt(attempt, call(f"abacus{starts}"))
        starts += 1
        assert starts < 10


def test_a_providers_call_inside_another_is_known() -> None:
    body = """
print(isolation.provider_crash("abacus") is not None, flush=True)
with guarded("outer"):
    with guarded("inner", provider=isolation.ProviderCall("abacus", "inner")):
        if isolation.provider_crash("abacus") is None:
            os.kill(os.getpid(), signal.SIGSEGV)
    if len(isolation._process.attempt.providers) == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
"""
    done = run(body)
    assert (done.returncode, done.stdout) == (3, "False\nTrue\n")  # the second crash was no provider's


def test_a_mapped_file_that_shrinks_is_the_files_fault(tmp_path: Path) -> None:
    body = f"""
import mmap
path = {str(tmp_path / "w.bin")!r}
open(path, "wb").write(bytes(100_000))
with open(path, "r+b") as file:
    view = mmap.mmap(file.fileno(), 0)
    file.truncate(10)
    view[90_000]
"""
    done = run(body)
    assert (done.returncode, done.stderr) == (
        3,
        "error: a file was cut off, or could not be read, while it was in use.\n",
    )


def test_a_hang_ends() -> None:
    done = run("with guarded('loading the model'):\n    time.sleep(60)")
    assert done.returncode == 6
    assert "took longer than 1 s while loading the model" in done.stderr
    assert "--limit seconds=N (now 1)" in done.stderr


@pytest.mark.parametrize(
    ("taken", "waited", "stopped"), [(1.0, 0.0, False), (3.0, 0.5, True), (3.0, 1.5, False), (11.0, 10.5, True)]
)
def test_waiting_for_a_processor_is_no_time_of_the_calls(
    monkeypatch: pytest.MonkeyPatch, taken: float, waited: float, stopped: bool
) -> None:
    # The limit is 2 s; what was waited counts up to four times that.
    class StoppedError(Exception):
        pass

    def stop(*_: object) -> None:
        raise StoppedError

    monkeypatch.setattr(watchdog, "_waited", lambda pid: {"1": 7.0, "2": 5.0 + waited, "3": 0.1})
    monkeypatch.setattr(watchdog.Watch, "_stop", stop)
    watch = watchdog.Watch(os.getpid(), -1, stop, again=lambda _: False)
    call = watchdog._Call(
        what="loading",
        began=time.monotonic() - taken,
        seconds=2.0,
        waited={"1": 7.0, "2": 5.0},
        start_bytes=0,
        extra_bytes=1 << 50,
        retry=False,
    )
    with pytest.raises(StoppedError) if stopped else nullcontext():
        watch._enforce(call)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not count the time")
def test_the_time_waited_is_read_for_each_thread() -> None:
    waited = watchdog._waited(os.getpid())
    assert str(os.getpid()) in waited
    assert all(seconds >= 0 for seconds in waited.values())


def test_slow_work_outside_a_risky_call_may_take_its_time() -> None:
    done = run("with guarded('loading'):\n    pass\ntime.sleep(2)\nprint('done')")
    assert (done.returncode, done.stdout) == (0, "done\n")


def test_memory_has_a_limit_that_grows_with_the_file() -> None:
    balloon = (
        "with guarded('loading the model', {size}):\n    held = b'x' * 300_000_000\n    time.sleep({rest})\n"
        "print('fits')"
    )
    done = run(balloon.format(size=0, rest=60), seconds=60)
    assert done.returncode == 6
    assert "took more than 0.1 GB of memory while loading the model" in done.stderr
    assert "--limit memory-bytes=N (now 1e+08)" in done.stderr
    done = run(balloon.format(size=200_000_000, rest=1), seconds=60)
    assert (done.returncode, done.stdout) == (0, "fits\n")


HOLD = "held = b'x' * 300_000_000; time.sleep({rest})"


@pytest.mark.parametrize(
    ("inputs", "first", "room"), [(0, 0, False), (2_000_000, 0, True), (2_000_000, 2_000_000, True)]
)
def test_larger_inputs_inside_extend_the_call_once(inputs: int, first: int, room: bool) -> None:
    body = f"with guarded('outer', inputs={first}):\n    with guarded('inner', inputs={inputs}):\n        "
    body += HOLD.format(rest=1 if room else 60)  # one that is to be stopped waits for it
    assert run(body, seconds=60).returncode == (0 if room else 6)


def test_inputs_made_for_what_a_file_declares_count_up_to_a_bound() -> None:
    body = """
for case in (False, True):
    if case:
        isolation.note_synthetic_inputs()
    with guarded('running', inputs=1 << 40):
        print(watched[-1]["bytes"], flush=True)
"""
    spy = "watched = []\ntell = isolation._tell\nisolation._tell = lambda m: (watched.append(m), tell(m))\n"
    own, made = map(int, run(spy + body, seconds=60).stdout.split())
    assert own > (1 << 40) > made == int(1e8) + isolation.NATIVE.bytes_per_input_byte * isolation._MOST_INPUTS


def test_a_framework_has_time_for_its_file_and_the_base_scales_it() -> None:
    def seconds(base: int, size: int) -> float:
        body = (
            "isolation._tell = lambda m: print(m.get('seconds', ''))\n"
            f"with guarded('loading', {size}, pace=isolation.FRAMEWORK):\n    pass"
        )
        return float(run(body, seconds=base).stdout.split()[0])

    pace = isolation.FRAMEWORK
    assert seconds(10, 0) == 10
    assert seconds(10, 10_000) == pytest.approx(10 + 10_000 * pace.seconds_per_byte, rel=0.01)
    assert seconds(20, 10_000) == pytest.approx(2 * seconds(10, 10_000), rel=0.01)
    assert seconds(10, 100_000_000) == pytest.approx(10 + pace.most_seconds, rel=0.01)


def test_an_inner_call_keeps_the_limits_of_the_outer() -> None:
    done = run("with guarded('outer'):\n    with guarded('inner'):\n        pass\n    time.sleep(60)")
    assert done.returncode == 6
    assert "while outer" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("stubborn", [False, True])
def test_signals_unwind_the_child_within_a_second(
    tmp_path: Path, number: signal.Signals, code: int, stubborn: bool
) -> None:
    # A stubborn child sits in native code, where Python's handlers do not run.
    block = "signal.pthread_sigmask(signal.SIG_BLOCK, [2, 15])" if stubborn else "pass"
    body = (
        f"try:\n    {block}\n    print('ready', os.getpid(), flush=True)\n    time.sleep(60)\n"
        f"except KeyboardInterrupt:\n    sys.exit(130)\n"
        f"finally:\n    open({str(tmp_path / 'unwound')!r}, 'w').close()"
    )

    def unwound() -> bool:
        command = [sys.executable, "-c", PRELUDE + body]
        parent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert parent.stdout is not None
        child = int(parent.stdout.readline().split()[1])
        began = time.monotonic()
        parent.send_signal(number)
        parent.communicate(timeout=120)
        assert parent.returncode == code
        assert time.monotonic() - began < 30  # a second, on a machine with nothing else to do; the child would sleep 60
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
        return (tmp_path / "unwound").exists()

    # On a busy machine the child may not get its turn within the second that the parent waits.
    assert unwound() is False if stubborn else any(unwound() for _ in range(5))


def test_a_signal_right_after_the_start_is_passed_on() -> None:
    # The parent gets it before it has taken it over from Python.
    body = """
from onnxtool.runtime.worker import watchdog
take = watchdog.Watch.take_signals
def late(watch):
    os.kill(os.getpid(), signal.SIGTERM)
    take(watch)
watchdog.Watch.take_signals = late
"""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE.replace("isolation.supervise", body + "isolation.supervise") + "time.sleep(60)"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, "nothing was left half-written" in done.stderr) == (143, True), done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs prctl")
def test_the_child_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + "print(os.getpid(), flush=True)\ntime.sleep(60)"], stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate(timeout=120)
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline and Path(f"/proc/{child}").exists():
        state = Path(f"/proc/{child}/stat").read_text().split(")")[1].split()[0]
        if state == "Z":
            break
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{child}").exists()


def test_a_program_that_imports_the_package_is_not_watched() -> None:
    script = "import os\nfrom onnxtool.runtime.worker.isolation import guarded\nwith guarded('x'):\n    print('fine')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "fine\n"


def test_native_silence_keeps_what_a_library_prints_from_both_streams() -> None:
    body = """
from onnxtool.runtime.worker.isolation import native_silence
print("before")
with native_silence():
    os.write(1, b"native"); os.write(2, b"native"); print("from a library")
print("after")
"""
    done = run(body)
    assert (done.returncode, done.stdout, done.stderr) == (0, "before\nafter\n", "")


def test_memory_beyond_a_bound_is_refused_and_the_process_lives() -> None:
    before, free = resource.getrlimit(resource.RLIMIT_DATA), os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    np.empty(free * 3 // 4, np.uint8)
    with memory_bounded(0):
        np.empty(1 << 20, np.uint8)
        with pytest.raises(MemoryError):
            np.empty(free * 3 // 4, np.uint8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
