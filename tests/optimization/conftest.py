"""Runs passes on small models written as ONNX text, and holds the result against the source on the runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxtool.equality.compare_runners import compare_runners, probe_feeds
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.model import io
from onnxtool.model.ir.queries import operator_counts
from onnxtool.optimization.pipeline import optimize_model
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT


@dataclass
class Result:
    """What passes made of a model."""

    model: ir.Model
    before: dict[str, int]
    after: dict[str, int]
    rewrites: int
    proto: onnx.ModelProto

    @property
    def nodes(self) -> int:
        return sum(self.after.values())


Optimized = Callable[..., Result]


def model_from(
    text: str, weights: Mapping[str, np.ndarray] | None = None, opset: int = 20, ir_version: int = 10
) -> Any:
    """A checked ModelProto: graph text plus named weights."""
    imports = f'"" : {opset}, "com.microsoft" : 1' if "com.microsoft" in text else f'"" : {opset}'
    proto = onnx.parser.parse_model(f"<ir_version: {ir_version}, opset_import: [{imports}]>\n{text}")
    for name, array in (weights or {}).items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return proto


@pytest.fixture(scope="session")
def optimized() -> Optimized:
    """Optimize a graph given as text and compare: `optimized(text, "fold-constants", weights={...})`.

    Outputs must be equal to the last bit unless `exact=False`, at three sizes of every dynamic dim.
    """

    def run(
        text: str | onnx.ModelProto,
        *only: str,
        weights: Mapping[str, np.ndarray] | None = None,
        feeds: Sequence[Mapping[str, np.ndarray]] | None = None,
        opset: int = 20,
        exact: bool = True,
        level: str = "extended",
        ir_version: int = 10,
        lengths: tuple[int, int, int] = (16, 9, 23),
        compare: bool = True,
    ) -> Result:
        proto = text if isinstance(text, onnx.ModelProto) else model_from(text, weights, opset, ir_version)
        if compare:
            onnx.checker.check_model(proto)
        model = io.from_proto(proto)
        before = operator_counts(model)
        names = [v.name for v in (*model.graph.inputs, *model.graph.outputs)] if ir_version > 3 else []
        statistics = optimize_model(model, level, only=only or None)
        result = Result(model, before, operator_counts(model), statistics.rewrites, io.to_proto(model))
        if ir_version > 3:
            assert [v.name for v in (*model.graph.inputs, *model.graph.outputs)] == names
        if compare:
            onnx.checker.check_model(result.proto, full_check=True)
            source, other = OnnxRunner.open(proto, EXACT), OnnxRunner.open(model, EXACT)
            given = feeds if feeds is not None else probe_feeds(source.inputs, lengths=lengths)
            tolerance = Tolerance(0.0, 0.0) if exact else Tolerance(1e-4, 1e-5)
            report = compare_runners(source, other, given, tolerance)
            assert not report.differs, [o for o in report.outputs if not o.ok]
        return result

    return run
