"""Fixtures of the quantizer's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from onnxtool.model import io
from onnxtool.quantization import targets
from tests.quantization import quant_models
from tests.quantization.quant_models import residual_proto, transformer_proto


@pytest.fixture(scope="session")
def residual() -> onnx.ModelProto:
    return residual_proto()


@pytest.fixture(scope="session")
def transformer() -> onnx.ModelProto:
    return transformer_proto()


@pytest.fixture(scope="session")
def residual_data() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).standard_normal((24, 3, 16, 16)).astype(np.float32)}


@pytest.fixture(scope="session")
def transformer_data() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(2).standard_normal((24, 12, 32)).astype(np.float32)}


@pytest.fixture
def save(tmp_path: Any) -> Callable[[onnx.ModelProto], Any]:
    """Write a proto to a file and give its path."""

    def write(proto: onnx.ModelProto, name: str = "model.onnx") -> Any:
        io.save(io.from_proto(proto), tmp_path / name)
        return tmp_path / name

    return write


@pytest.fixture(autouse=True)
def _same_weights_whatever_ran_before() -> None:
    """The generator of quant_models begins anew: whether a rounded value flips an If must not hang on the order."""
    quant_models.RANDOM.bit_generator.state = np.random.default_rng(7).bit_generator.state


@pytest.fixture(autouse=True)
def _kernels_that_do_not_saturate(monkeypatch: pytest.MonkeyPatch) -> None:
    """On processors without VNNI the sums of 8-bit products saturate, unless the runtime is asked for exact ones."""
    if not targets.this_machine().reduced:
        return
    make = ort.SessionOptions

    def exact() -> ort.SessionOptions:
        options = make()
        options.add_session_config_entry("session.x64quantprecision", "1")
        return options

    monkeypatch.setattr(ort, "SessionOptions", exact)
