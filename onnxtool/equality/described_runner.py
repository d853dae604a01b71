"""A Runner that tells more of itself than its inputs and outputs: what the proof asks of framework models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.errors import UnsupportedError
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.runner import Runner

if TYPE_CHECKING:
    import onnx_ir as ir

_NOTHING: Mapping[str, float] = MappingProxyType({})


class DescribedRunner(ABC):
    """What runs, and what is known of it beyond its graph.

    Attributes:
        inputs: what `run` takes; a str dim is dynamic.
        outputs: what `run` gives.
        feeds_hint: input name -> domain where the framework knows it better than the graph; None = nothing known.
        rounding: output name -> how far that output of a quantized model may be off, in its own units (steps, where it
            is an integer): two correct implementations round differently half-way between two steps.
        in_doubles: it computes in float64 what its ONNX form computes in float32: thresholds may be a step apart.
    """

    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    feeds_hint: Mapping[str, Domain] | None = None
    rounding: Mapping[str, float] = _NOTHING
    in_doubles: bool = False

    @abstractmethod
    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass in inference mode; values are arrays.

        Raises:
            InputError: the model refuses these inputs.
        """

    def rerounded(self) -> Runner | None:
        """A Runner of the same function with other roundings (in float64); None where there is none."""
        return None

    def operator_trace(self, feeds: Mapping[str, np.ndarray]) -> ir.Model:  # noqa: ARG002
        """What the source's own code computes on inputs of these shapes, operator by operator, for a certificate.

        Returns:
            A graph of the same inputs and outputs, right for all inputs of these shapes, with the source's own weights.

        Raises:
            UnsupportedError: why there is none, in words.
        """
        raise UnsupportedError("the operators of such a source are not recorded")


def known_domains(runner: Runner) -> Mapping[str, Domain]:
    """Which values the inputs may take, as a runner tells."""
    return (runner.feeds_hint or {}) if isinstance(runner, DescribedRunner) else {}
