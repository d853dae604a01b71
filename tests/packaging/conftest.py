"""A small model, and one of every element type that endpoints have to carry."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from onnxtool.runtime.protocol_v2.client import V2Client


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x float32[batch,3] -> y = relu(x w) float32[batch,2]."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3, 2], [1.0, -1.0, 0.5, 0.25, -2.0, 3.0])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "relu",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [weight],
    )
    return saved(graph, tmp_path_factory.mktemp("tiny") / "tiny.onnx")


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Integers, booleans, float16 and texts through a model, with names that no variable may have."""
    types = {
        "ids/0": TensorProto.INT64,
        "flag": TensorProto.BOOL,
        "half.x": TensorProto.FLOAT16,
        "text": TensorProto.STRING,
    }
    graph = helper.make_graph(
        [helper.make_node("Identity", [n], [f"{n}:out"]) for n in types],
        "mixed",
        [helper.make_tensor_value_info(n, t, ["n", 2]) for n, t in types.items()],
        [helper.make_tensor_value_info(f"{n}:out", t, ["n", 2]) for n, t in types.items()],
    )
    return saved(graph, tmp_path_factory.mktemp("mixed") / "mixed types.onnx")


def saved(graph: onnx.GraphProto, path: Path) -> Path:
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def counts_who_leaves(url: str, path: str) -> bool:
    """Whether a server notes a client that leaves in the middle of its body; else its log has a traceback for each."""
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), 10) as client:
        client.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n[".encode())
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if b'status="499"' in V2Client(url).request("GET", "/metrics")[2]:
            return True
        time.sleep(0.02)
    return False
