"""`bench URL`: what is counted, and that a wrong answer or an error makes the verdict bad."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import onnx
import pytest

from onnxtool.benchmark.load_test import bench_endpoint
from onnxtool.errors import UsageError
from tests.serving.conftest import Running

Tool = Callable[..., "CompletedProcess[str]"]


def test_loops_are_measured_beside_the_file(server: Running, onnxtool: Tool, digits_onnx: Path) -> None:
    url = f"{server.url}/v2/models/digits"
    done = onnxtool("bench", url, digits_onnx, "--budget", "0.2", "--connections", "1,2", "--rate", "50", "--json", "-")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["schema"] == "onnxtool/endpoint_bench/1" and report["equal"] is True
    assert [(r["loop"], r["connections"]) for r in report["results"]][:3] == [
        ("session", 1),
        ("closed", 1),
        ("closed", 2),
    ]
    assert report["results"][3]["requests"] == 10  # of an open loop: rate times seconds, whatever the server does
    for result in report["results"]:
        assert result["errors"] == {} and result["requests"] > 0
        assert 0 < result["median"] <= result["p90"] <= result["p99"] <= result["p999"] <= result["longest"]


def test_another_model_is_noticed(server: Running, digits_onnx: Path, tmp_path: Path) -> None:
    proto = onnx.load(digits_onnx)
    bias = next(i for i in proto.graph.initializer if len(i.dims) == 1)
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + 1, bias.name))
    onnx.save(proto, tmp_path / "other.onnx")
    report = bench_endpoint(server.url, tmp_path / "other.onnx", connections=(1,), budget=0.05)
    assert report.equal is False and not report.ok


def test_errors_are_counted_by_status(digits_onnx: Path) -> None:
    server = Running(digits_onnx, "--batching", "off", "--max-queue", "1", "--reload", "off")
    report = bench_endpoint(server.url, connections=(16,), budget=0.5)
    (crowd,) = [r for r in report.results if r.connections == 16]
    assert set(crowd.errors) == {"429"}
    assert crowd.requests > sum(crowd.errors.values()) > 0
    assert not report.ok
    assert server.stop() == 0


def test_a_rate_is_above_zero() -> None:
    with pytest.raises(UsageError, match="above 0"):
        bench_endpoint("http://127.0.0.1:1", rates=(0.0,))
