"""Making fixed what a caller could have chosen: dims of inputs, and inputs that have a default."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from onnxtool.model.ir.queries import input_specs
from onnxtool.model.spec import Dim, apply_input_shapes


def freeze_inputs(model: ir.Model, shapes: Mapping[str | None, tuple[Dim, ...]]) -> None:
    """Set the dims of inputs; a symbolic dim that becomes a number becomes it wherever its name stands.

    Raises:
        UsageError: an unknown input, or another rank.
    """
    if not shapes:
        return
    old = {s.name: s.shape for s in input_specs(model)}
    numbers: dict[str, int] = {}
    by_name = {v.name: v for v in model.graph.inputs}
    for spec in apply_input_shapes(input_specs(model), shapes):
        before = old[spec.name]
        for was, now in zip(before or (), spec.shape or (), strict=False):
            if isinstance(was, str) and isinstance(now, int):
                numbers[was] = now
        if spec.shape is not None and spec.shape != before:
            by_name[spec.name].shape = ir.Shape(spec.shape)
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.shape is not None:
            dims = (d if isinstance(d, int) else d.value for d in value.shape)
            value.shape = ir.Shape([numbers.get(d, d) if isinstance(d, str) else d for d in dims])


def freeze_initializers(model: ir.Model) -> int:
    """Graph inputs with a default become constants. Returns how many."""
    kept = [v for v in model.graph.inputs if v.name not in model.graph.initializers]
    frozen = len(model.graph.inputs) - len(kept)
    if frozen:
        model.graph.inputs.clear()
        model.graph.inputs.extend(kept)
    return frozen
