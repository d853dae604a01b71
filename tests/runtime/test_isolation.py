"""The watch over native code: crashes, hangs, ballooning memory and signals, each in a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PRELUDE = """
import os, signal, sys, time
os.environ["ONNXTOOL_LIMITS"] = "seconds=1,memory-bytes=1e8"
from onnxtool.runtime import isolation
from onnxtool.runtime.isolation import risky
isolation.supervise(lambda message, code: print(f"error: {message}", file=sys.stderr))
"""


def run(body: str, seconds: int = 1) -> subprocess.CompletedProcess[str]:
    prelude = PRELUDE.replace("seconds=1", f"seconds={seconds}")
    return subprocess.run(
        [sys.executable, "-c", prelude + body], capture_output=True, text=True, timeout=300, check=False
    )


def test_goes_on_in_a_child_and_exits_with_its_code() -> None:
    done = run("print('worked', flush=True)\nwith risky('thinking'):\n    pass\nsys.exit(5)")
    assert (done.returncode, done.stdout, done.stderr) == (5, "worked\n", "")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
def test_a_crash_in_a_risky_call_is_the_files_fault(number: signal.Signals) -> None:
    done = run(f"with risky('loading the model'):\n    os.kill(os.getpid(), {int(number)})")
    assert done.returncode == 3
    assert done.stderr == (
        f"error: native code crashed ({number.name}) while loading the model; the file is malformed.\n"
    )


def test_a_crash_on_inputs_gets_a_second_attempt() -> None:
    body = """
from onnxtool.runtime.isolation import crashed_before
print("again" if crashed_before() else "first", flush=True)
with risky("running", retry=True):
    if not crashed_before():
        os.kill(os.getpid(), signal.SIGFPE)
"""
    done = run(body)
    assert (done.returncode, done.stdout, done.stderr) == (0, "first\nagain\n", "")


def test_two_crashes_are_enough() -> None:
    done = run("print(1, flush=True)\nwith risky('running', retry=True):\n    os.kill(os.getpid(), signal.SIGFPE)")
    assert (done.returncode, done.stdout) == (3, "1\n1\n")
    assert "crashed (SIGFPE) while running; the file is malformed, or cannot take such inputs." in done.stderr


def test_a_crash_elsewhere_is_our_fault() -> None:
    done = run("with risky('loading'):\n    pass\nos.kill(os.getpid(), signal.SIGSEGV)")
    assert done.returncode == 70
    assert "bug" in done.stderr


def test_a_hang_ends() -> None:
    done = run("with risky('loading the model'):\n    time.sleep(60)")
    assert done.returncode == 6
    assert "took longer than 1 s while loading the model" in done.stderr


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not count the time")
def test_waiting_for_a_processor_is_no_time_of_the_calls() -> None:
    # Three rivals on the one processor of the child: 0.8 s of its work take more than three, and the limit is two.
    body = """
parent = os.getpid()
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
rivals = [os.fork() for _ in range(3) if os.getpid() == parent]
while os.getpid() != parent:
    if os.getppid() != parent:
        os._exit(0)
began, work = time.monotonic(), time.process_time()
with risky("loading the model"):
    while time.process_time() - work < 0.8:
        pass
print(time.monotonic() - began)
for rival in rivals:
    os.kill(rival, signal.SIGKILL)
"""
    done = run(body, seconds=2)
    assert (done.returncode, done.stderr) == (0, "")
    assert float(done.stdout) > 2.0


def test_slow_work_outside_a_risky_call_may_take_its_time() -> None:
    done = run("with risky('loading'):\n    pass\ntime.sleep(2)\nprint('done')")
    assert (done.returncode, done.stdout) == (0, "done\n")


def test_memory_has_a_limit_that_grows_with_the_file() -> None:
    balloon = (
        "with risky('loading the model', {size}):\n    held = b'x' * 300_000_000\n    time.sleep({rest})\nprint('fits')"
    )
    done = run(balloon.format(size=0, rest=60), seconds=60)
    assert done.returncode == 6
    assert "took more than 0.1 GB of memory while loading the model" in done.stderr
    done = run(balloon.format(size=200_000_000, rest=1), seconds=60)
    assert (done.returncode, done.stdout) == (0, "fits\n")


def test_an_inner_call_keeps_the_limits_of_the_outer() -> None:
    done = run("with risky('outer'):\n    with risky('inner'):\n        pass\n    time.sleep(60)")
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
    parent = subprocess.Popen([sys.executable, "-c", PRELUDE + body], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline().split()[1])
    began = time.monotonic()
    parent.send_signal(number)
    parent.communicate(timeout=120)
    assert parent.returncode == code
    assert time.monotonic() - began < 30  # a second, on a machine with nothing else to do; the child would sleep 60
    assert (tmp_path / "unwound").exists() is not stubborn
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


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
    script = "import os\nfrom onnxtool.runtime.isolation import risky\nwith risky('x'):\n    print('fine')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "fine\n"
