"""Metadata that would make a model with external data larger than it may be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxtool.model import io
from onnxtool.model.provenance.metadata import check_seal


@pytest.mark.parametrize(("limit", "kept"), [(100_000, True), (16_500, False)])
def test_the_record_is_left_out_where_it_does_not_fit(tmp_path: Path, limit: int, kept: bool) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[b, 64] x) => (float[b, 64] y) { y = MatMul (x, w) }'
    )
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    model = io.from_proto(proto)
    model.metadata_props["record"] = "r" * 500
    path = tmp_path / "m.onnx"
    size = io.save(model, path, external=True, spare=(limit, {"mine": "1"}))
    data = path.read_bytes()
    found = {p.key: p.value for p in onnx.load(path).metadata_props}
    assert ("record" in found) is kept
    assert ("mine" in found) is not kept
    assert size == len(data) + (tmp_path / "m.onnx.data").stat().st_size
    borne, computed = check_seal(data, [tmp_path / "m.onnx.data"])
    assert borne == computed is not None
    assert np.array_equal(io.load(path).graph.initializers["w"].const_value.numpy(), weight)
