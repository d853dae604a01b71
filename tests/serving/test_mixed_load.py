"""Many clients at a time whose requests differ in rows and lengths: none is lost, none gets another's answer."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.serving.conftest import Running

_CLIENTS, _EACH = 12, 60


def text_like(path: Path) -> Path:
    """ids[rows, length] -> sums[rows, length]: running sums of each row, whole numbers and so exact."""
    dims = ["rows", "length"]
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["ids"], ["x"], to=TensorProto.FLOAT),
            helper.make_node("CumSum", ["x", "axis"], ["sums"]),
        ],
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, dims)],
        [helper.make_tensor_value_info("sums", TensorProto.FLOAT, dims)],
        [onnx.numpy_helper.from_array(np.array(1, np.int64), "axis")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


@pytest.mark.parametrize("batching", ["auto", "off"])
def test_every_request_of_a_mixed_load_gets_its_own_answer(tmp_path: Path, batching: str) -> None:
    models = [text_like(tmp_path / f"{name}.onnx") for name in ("one", "two")]
    options = ("--batching", batching, "--reload", "off", "--max-queue", _CLIENTS)
    server = Running(*models, *options)

    def client(number: int) -> Sequence[str]:
        random = np.random.default_rng(number)
        runners = [server.runner(path.stem, seconds=60) for path in models]
        wrong = []
        for turn in range(_EACH):
            ids = random.integers(0, 50, (random.integers(1, 7), random.choice([1, 8, 40])))
            found = runners[turn % 2].run({"ids": ids})["sums"]
            if not np.array_equal(found, np.cumsum(ids, axis=1)):
                wrong.append(f"client {number}, request {turn}: {ids.shape} gives {found.shape}")
        return wrong

    with ThreadPoolExecutor(_CLIENTS) as threads:
        assert [w for wrong in threads.map(client, range(_CLIENTS)) for w in wrong] == []
    assert server.stop() == 0


def test_requests_are_joined_only_where_that_is_asked_for(tmp_path: Path) -> None:
    model = text_like(tmp_path / "m.onnx")
    server = Running(model, "--reload", "off")
    (told,) = [event for event in server.said if event["event"] == "batching"]
    assert told["max_batch"] == 1 and "--batching auto" in told["reason"]
    assert server.stop() == 0
