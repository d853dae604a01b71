"""Which samples a search calibrates with, and which it judges on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxtool.model.file import ModelFile
from onnxtool.options.quantize import QuantizeOptions
from onnxtool.quantization.inputs import FIDELITY_SAMPLES, open_inputs
from onnxtool.runtime.data.source import DataSource
from tests.quantization.quant_models import build, weights


def numbers(data: DataSource) -> list[int]:
    return [int(feeds["x"][0, 0]) for feeds in data.samples()]


@pytest.mark.parametrize("count", [6, 20, 200])
def test_held_out_samples_come_first_and_others_follow_where_they_are_few(count: int, tmp_path: Path) -> None:
    proto = build(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weights(4, 4)}, {"x": ["n", 4]}, {"y": ["n", 4]}
    )
    onnx.save(proto, tmp_path / "m.onnx")
    samples = np.repeat(np.arange(count, dtype=np.float32)[:, None], 4, axis=1)
    job = open_inputs(ModelFile(tmp_path / "m.onnx"), QuantizeOptions(data={"x": samples}), "none")
    measured, judged = job.split()
    held_out = [i for i in range(count) if i % 4 == 3] if count >= 8 else []
    assert numbers(measured) == [i for i in range(count) if i not in held_out]
    found = numbers(judged)
    assert found[: len(held_out)] == held_out
    assert len(found) == judged.count == (count if count <= FIDELITY_SAMPLES else len(held_out))
    assert len(set(found)) == len(found), "each sample once"
    more = numbers(job.split(100)[1])
    assert more[: len(held_out)] == held_out and len(set(more)) == min(count, 100)
