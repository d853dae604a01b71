"""Load time and peak memory of one model, in a process of its own so that nothing else is counted.

Run as `python -m onnxtool.runtime.timing.load_cost`: reads one request, pickled, from its parent, writes one JSON
answer to stdout.
"""

from __future__ import annotations

import json
import os
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from onnxtool.errors import InputError, ResourceError
from onnxtool.report.measurement.bench import LoadCost
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.worker.tasks import run_python

_REPEATS = 5
_RUNS = 3
_BUDGET = 3.0
_LIMIT = 600.0


def load_cost(
    model: str | os.PathLike[str], feeds: Mapping[str, np.ndarray], options: SessionOptions, *, limit: float = _LIMIT
) -> LoadCost:
    """Measure a model in a fresh process.

    Args:
        model: an .onnx file that `read_proto` accepts.
        feeds: inputs of the runs whose memory counts.
        options: how to run it.
        limit: seconds until the process is ended.

    Raises:
        InputError: the process died, or the model fails in it.
        ResourceError: it took longer than the limit.
    """
    request = pickle.dumps((str(model), dict(feeds), replace(options, spinning="always")))
    try:
        done = run_python("onnxtool.runtime.timing.load_cost", given=request, seconds=limit)
    except subprocess.TimeoutExpired as error:
        raise ResourceError(f"{model}: loading it took longer than {limit:.0f} s.") from error
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"the process ended with code {done.returncode}"]
        raise InputError(f"{model}: cannot be measured in a process of its own: {last[0][:300]}")
    answer = json.loads(done.stdout)
    return LoadCost(answer["seconds"], answer["repeats"], answer["peak_bytes"], answer["model_bytes"])


def _measure(model: str, arrays: Mapping[str, np.ndarray], options: SessionOptions) -> dict[str, Any]:
    from onnxtool.runtime.feeds import adapt
    from onnxtool.runtime.runner import OnnxRunner

    before = resident_bytes()
    seconds = []
    began = time.perf_counter()
    runner = OnnxRunner.open(model, options)
    seconds.append(time.perf_counter() - began)
    feeds = adapt(runner.inputs, arrays)
    for _ in range(_RUNS):
        runner.run(feeds)
    peak = peak_bytes()
    del runner
    while len(seconds) < _REPEATS and sum(seconds) < _BUDGET:
        start = time.perf_counter()
        runner = OnnxRunner.open(model, options)
        seconds.append(time.perf_counter() - start)
        del runner
    return {
        "seconds": statistics.median(seconds),
        "repeats": len(seconds),
        "peak_bytes": peak,
        "model_bytes": None if peak is None or before is None else max(peak - before, 0),
    }


def resident_bytes() -> int | None:
    """Resident memory of this process now; None where the system does not tell."""
    return _status("VmRSS") or peak_bytes()


def peak_bytes() -> int | None:
    """Peak resident memory of this process; None where the system does not tell.

    /proc goes first: getrusage's ru_maxrss is inherited from the parent through fork and exec on Linux.
    """
    found = _status("VmHWM")
    if found is not None:
        return found
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _status(key: str) -> int | None:
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith(key + ":"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(*pickle.load(sys.stdin.buffer))))
