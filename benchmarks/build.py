"""What `onnxtool build` costs, and what it saves: run as `python benchmarks/build.py [PART...]`.

Parts: unchanged, touch, workers, dask, ray, kill, overhead; all of them unless named (`ray` needs Ray, which
`dev` does not bring). Everything is measured on small models
made of the bundled digits CNN, each with weights of its own, in a folder that is removed afterwards.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnxtool.report.build import BuildReport
from onnxtool.report.edit import EditReport
from onnxtool.runtime import cpu
from onnxtool.workflow import run_step
from onnxtool.workflow.build import build
from onnxtool.workflow.store import Store

DIGITS = Path(__file__).parent.parent / "fixtures" / "digits_cnn.onnx"
MODELS = 20
ROUNDS = 1
STEPS = """
[defaults]
steps = [{ step = "optimize", threads = 1 }, { step = "check", threads = 1 }, { step = "compare", threads = 1 }]
"""
COMMAND = [sys.executable, "-m", "onnxtool", "build"]


def make_project(folder: Path, models: int = MODELS) -> None:
    """Models with weights of their own, and the build file."""
    folder.mkdir(parents=True)
    text = STEPS
    for number in range(models):
        model = onnx.load(DIGITS)
        weight = max(model.graph.initializer, key=lambda t: len(t.raw_data))
        values = numpy_helper.to_array(weight) * np.float32(1 + 0.01 * number)
        weight.CopyFrom(numpy_helper.from_array(values, weight.name))
        onnx.save(model, folder / f"m{number}.onnx")
        text += f"[models.m{number}]\nsource = 'm{number}.onnx'\noutput = 'out/m{number}.onnx'\n"
    (folder / "onnxtool.toml").write_text(text, encoding="utf-8")


def timed(folder: Path, *arguments: str) -> float:
    """Seconds that the command takes as a process of its own."""
    began = time.perf_counter()
    done = subprocess.run([*COMMAND, *arguments, "-q"], cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return time.perf_counter() - began


def digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted((folder / "out").iterdir())}


def run(folder: Path, cache: Path, **settings: Any) -> tuple[float, BuildReport]:
    began = time.perf_counter()
    report = build(folder / "onnxtool.toml", cache=cache, **settings)
    assert report.ok, [m.error for m in report.models if m.error]
    return time.perf_counter() - began, report


def unchanged(base: Path) -> list[str]:
    """An unchanged rebuild of 20 models, and the same bytes."""
    folder = base / "unchanged"
    make_project(folder)
    first = timed(folder, "--cache", "../cache-unchanged")
    before = digests(folder)
    again = sorted(timed(folder, "--cache", "../cache-unchanged") for _ in range(5))
    same = digests(folder) == before
    fresh = base / "again"
    make_project(fresh)
    timed(fresh, "--cache", "../cache-again")
    return [
        f"first build of {MODELS} models, 60 steps: {first:.1f} s",
        f"unchanged rebuild, the whole command: median {again[2]:.2f} s (best {again[0]:.2f} s); bytes equal: {same}",
        f"built again in another folder with an empty cache: bytes equal: {digests(fresh) == before}",
    ]


def touch(base: Path) -> list[str]:
    """Touching one source."""
    folder, cache = base / "touch", base / "cache-touch"
    make_project(folder, 5)
    run(folder, cache, executor="local")
    os.utime(folder / "m1.onnx", (1, 1))
    _, same = run(folder, cache, executor="local")
    model = onnx.load(folder / "m3.onnx")
    model.doc_string = "another byte"
    onnx.save(model, folder / "m3.onnx")
    _, report = run(folder, cache, executor="local")
    ran = {m.name: sum(s.state == "built" for s in m.steps) for m in report.models}
    return [
        f"a new time of one source: {same.count('built')} steps run",
        f"one source changed: steps run of each model: {ran}",
    ]


def workers(base: Path) -> list[str]:
    """20 models on 2 worker processes and on 1."""
    folder = base / "workers"
    make_project(folder)
    lines, seconds = [], {}
    for round_ in range(ROUNDS):
        for jobs in (1, 2):
            took, _ = run(folder, base / f"cache-workers-{jobs}-{round_}", executor="processes", jobs=jobs)
            seconds.setdefault(jobs, []).append(took)
    one, two = min(seconds[1]), min(seconds[2])
    lines.append(f"{MODELS} models on 1 worker process: {one:.1f} s; on 2: {two:.1f} s; {one / two:.2f} times as fast")
    return lines


def dask(base: Path) -> list[str]:
    """The same on a local Dask cluster of 2 workers, after its start, beside 2 worker processes."""
    from distributed import LocalCluster

    folder = base / "dask"
    make_project(folder)
    seconds: dict[str, list[float]] = {"processes": [], "dask": []}
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True) as cluster:
        address = cluster.scheduler_address.removeprefix("tcp://")
        for round_ in range(ROUNDS):
            took, _ = run(folder, base / f"cache-pool-{round_}", executor="processes", jobs=2)
            seconds["processes"].append(took)
            took, _ = run(folder, base / f"cache-dask-{round_}", executor=f"dask://{address}")
            seconds["dask"].append(took)
        ratio = min(seconds["dask"]) / min(seconds["processes"])
        lines = [
            f"{MODELS} models on 2 worker processes: {min(seconds['processes']):.1f} s; on 2 Dask workers that run "
            f"already: {min(seconds['dask']):.1f} s; ratio {ratio:.2f}"
        ]
        lines += lost_worker(base, cluster, address)
    return lines


def ray(base: Path) -> list[str]:
    """The same on a local Ray cluster of 2 processors, after its start; a worker process of it killed on the way."""
    folder = base / "ray"
    make_project(folder)
    command = Path(sys.executable).with_name("ray")
    quiet = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    start = [str(command), "start", "--head", "--num-cpus", "2", "--include-dashboard=false", "--port", "6399"]
    subprocess.run(start, cwd=base, env=quiet, check=True, capture_output=True)
    try:
        address = "ray://127.0.0.1:10001"
        run(folder, base / "cache-ray-warm", executor=address)
        pool, _ = run(folder, base / "cache-ray-pool", executor="processes", jobs=2)
        took, _ = run(folder, base / "cache-ray", executor=address)
        found: list[BuildReport] = []
        cache = base / "cache-ray-lost"
        thread = Thread(target=lambda: found.append(run(folder, cache, executor=address)[1]))
        thread.start()
        while len(list(Store(cache).entries())) < 4 and thread.is_alive():
            time.sleep(0.05)
        killed = subprocess.run(["pkill", "-9", "-f", "ray::run_package"], check=False).returncode == 0
        thread.join()
    finally:
        subprocess.run([str(command), "stop", "--force"], env=quiet, check=False, capture_output=True)
    return [
        f"{MODELS} models on 2 worker processes: {pool:.1f} s; on Ray with 2 processors: {took:.1f} s; "
        f"ratio {took / pool:.2f}",
        f"Ray's worker processes killed in the middle ({killed}): all built: {bool(found) and found[0].ok}",
    ]


def lost_worker(base: Path, cluster: Any, address: str) -> list[str]:
    """One of two Dask workers killed while a build runs."""
    folder, cache = base / "lost", base / "cache-lost"
    make_project(folder, 8)
    found: list[BuildReport] = []
    thread = Thread(target=lambda: found.append(run(folder, cache, executor=f"dask://{address}")[1]))
    thread.start()
    while len(list(Store(cache).entries())) < 4 and thread.is_alive():
        time.sleep(0.05)
    os.kill(cluster.workers[0].process.pid, signal.SIGKILL)
    thread.join()
    ok = bool(found) and found[0].ok
    return [f"a Dask worker killed in the middle of 8 models: all built: {ok}"]


def kill(base: Path) -> list[str]:
    """kill -9 of the whole build in the middle; what the next one has to do again."""
    lost = []
    folder = base / "kill"
    make_project(folder, 8)
    for round_ in range(3):
        cache = base / f"cache-kill-{round_}"
        command = [*COMMAND, "--cache", str(cache), "-q"]
        process = subprocess.Popen(command, cwd=folder, start_new_session=True)
        while len(list(Store(cache).entries())) < 5 + 4 * round_ and process.poll() is None:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kept = len(list(Store(cache).entries()))
        done = subprocess.run(
            [*COMMAND, "--cache", str(cache), "--json", "-"], cwd=folder, capture_output=True, text=True, check=True
        )
        states = [s["state"] for m in json.loads(done.stdout)["models"] for s in m["steps"]]
        lost.append((kept, states.count("cached"), states.count("built"), len(states)))
    return [
        f"killed with {kept} steps finished: the next build took {cached} of {total} from the cache and ran {built}"
        for kept, cached, built, total in lost
    ]


def overhead(base: Path) -> list[str]:
    """The driver alone: steps that do nothing, in this process; each in the sizes in a process of its own."""
    lines = []
    for steps in (1000, 10_000):
        done = subprocess.run(
            [sys.executable, __file__, "_overhead", str(base / f"overhead-{steps}"), str(steps)],
            capture_output=True,
            text=True,
            check=True,
        )
        lines.append(done.stdout.strip())
    return lines


def peak_memory() -> int:
    """Largest resident memory of this process, kB; what getrusage says begins with that of the parent."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(next(v for v in status.read_text().splitlines() if v.startswith("VmHWM")).split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def overhead_in_process(folder: Path, steps: int) -> str:
    """`steps` steps of no work; 10 for each model."""
    folder.mkdir(parents=True)
    shutil.copy(DIGITS, folder / "m.onnx")
    (folder / "m.onnx").write_bytes((folder / "m.onnx").read_bytes()[:2000])  # nobody reads it
    entries = ", ".join(f"{{ step = 'edit', doc = '{{model}} {i}' }}" for i in range(10))
    text = f"[defaults]\nsteps = [{entries}]\n"
    for number in range(steps // 10):
        listed = entries.replace("{model}", str(number))
        text += f"[models.m{number}]\nsource = 'm.onnx'\nsteps = [{listed}]\n"
    (folder / "onnxtool.toml").write_text(text, encoding="utf-8")

    def nothing(task: run_step.StepTask, source: str | None, _: str | None, output: Path) -> EditReport:
        output.write_bytes(task.key.encode())
        return EditReport(str(source), str(output), (), (), (), 0, 0)

    run_step.run_in_place = nothing  # type: ignore[assignment]
    rss = peak_memory()
    busy = time.process_time()
    took, report = run(folder, folder / "cache", executor="local")
    busy = time.process_time() - busy
    assert report.count("built") == steps
    peak = peak_memory()
    again, report = run(folder, folder / "cache", executor="local")
    assert report.count("cached") == steps
    return (
        f"{steps} steps of no work: {1e3 * took / steps:.2f} ms each, {1e3 * busy / steps:.2f} ms of processor time; "
        f"unchanged: {1e3 * again / steps:.2f} ms each; "
        f"peak memory {peak / 1024:.0f} MB ({(peak - rss) / 1024:.0f} MB more than before)"
    )


PARTS = {p.__name__: p for p in (unchanged, touch, workers, dask, ray, kill, overhead)}


def main() -> None:
    chosen = sys.argv[1:] or list(PARTS)
    names = ("onnxtool-cli", "onnxtool", "onnx", "onnxruntime", "distributed", "numpy")
    found = []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except Exception:
            continue
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    print(f"{cpu.model_name()}, {cpu.usable_cores()} cores, load {load}")
    print(f"Python {platform.python_version()}; {', '.join(found)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="onnxtool-bench-") as folder:
        for name in chosen:
            began = os.getloadavg()[0]
            for line in PARTS[name](Path(folder)):
                print(f"{name}: {line} (load {began:.1f})", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["_overhead"]:
        print(overhead_in_process(Path(sys.argv[2]), int(sys.argv[3])))
    else:
        main()
