"""Which nodes draw random numbers: the one answer for all who ask."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir

from onnxtool.model.ir.queries import all_nodes, constant_array
from onnxtool.model.operators.table import lookup

_TRAINING_MODE = 2  # its place among the inputs of Dropout


def random_nodes(model: ir.Model) -> list[ir.Node]:
    """The nodes that may draw random numbers, those of branches, loop bodies and functions included."""
    return [node for node in all_nodes(model) if is_random(node)]


def random_operators(model: ir.Model) -> tuple[str, ...]:
    """The names of the operators that may draw random numbers, in order."""
    return tuple(sorted({node.op_type for node in random_nodes(model)}))


def is_random(node: ir.Node) -> bool:
    """True when a node may give other values each time it runs; what its subgraphs do is not looked at.

    Dropout draws in training mode only: where its third input is there, and is not known to be false.
    """
    given = node.inputs[_TRAINING_MODE] if len(node.inputs) > _TRAINING_MODE else None
    return _draws(node.domain, node.op_type, given is not None, lambda: constant_array(given))


def is_random_proto(node: onnx.NodeProto, constant: Callable[[str], np.ndarray | None]) -> bool:
    """As `is_random`, of a node as it stands in the file.

    Args:
        node: of any graph.
        constant: the values of a tensor that is the same in every run; None for all others.
    """
    given = node.input[_TRAINING_MODE] if len(node.input) > _TRAINING_MODE else ""
    return _draws(node.domain, node.op_type, bool(given), lambda: constant(given))


def _draws(domain: str, op_type: str, has_mode: bool, mode: Callable[[], np.ndarray | None]) -> bool:
    row = lookup(op_type, domain)
    if row.name != "Dropout" or not row.random:
        return row.random
    training = mode() if has_mode else np.zeros(1, bool)
    return training is None or bool(training.any())
