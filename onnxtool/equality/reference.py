"""The side that is right by definition: a Runner, and what is known of it beside its outputs."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import numpy as np

from onnxtool.equality.rule.difference import repeats
from onnxtool.equality.rule.exact_kernels import exact_kernels
from onnxtool.equality.rule.rounding import RoundingNoise, runtime_noise
from onnxtool.equality.rule.ties import TiedScores, choices
from onnxtool.equality.rule.tolerance import NUMBERS, Tolerance
from onnxtool.errors import OnnxToolError, UnsupportedError
from onnxtool.model import io
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds, Outputs, flatten
from onnxtool.runtime.runner import OnnxRunner, Runner
from onnxtool.runtime.session.session import SessionOptions

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


PathLike = str | os.PathLike[str]
_HALF = ("float16", "bfloat16")


class Answered(Protocol):
    """Inputs with what a model gave for them: a Probe or a Trial."""

    @property
    def feeds(self) -> Feeds:
        """The inputs."""

    @property
    def outputs(self) -> Outputs:
        """What the model gave."""


class Answers:
    """A Runner that gives what a model gave before; the model itself runs on other inputs only, if it is still there.

    Args:
        model: whose inputs and outputs these are; None where nothing is known of it.
        known: what it gave.
        gone: the model cannot be run any more.
    """

    def __init__(self, model: Runner | None = None, known: Sequence[Answered] = (), *, gone: bool = False) -> None:
        self.inputs, self.outputs = (model.inputs, model.outputs) if model is not None else ((), ())
        self._model, self._known = None if gone else model, known

    def run(self, feeds: Feeds) -> dict[str, Any]:
        """What was given for these very feeds.

        Raises:
            OnnxToolError: there is none, and the model is gone or refuses them.
        """
        found = next((k.outputs for k in self._known if k.feeds is feeds), None)
        if found is not None:
            return dict(found)
        if self._model is None:
            raise OnnxToolError(f"the source is gone; {len(feeds)} inputs were not run.")
        return self._model.run(feeds)


@dataclass(frozen=True)
class Reference:
    """The model that another is judged by. It is a Runner itself.

    Attributes:
        runner: the model.
        noise: the same function with other roundings.
        ties: its scores where its outputs are indices of the largest.
        precision: the half-precision type that it computes in ("float16", "bfloat16"); None for float32 and wider.
        quantized: its outputs that are rounded to steps -> how far those may be off, in their own units.
        declared: its outputs -> the element types that they are to have, of a framework model, which may compute in
            wider ones; None where the types that it gives count.
        exact: an ONNX model with exact kernels.
        judged_exactly: of a framework model, what was made of it with exact kernels.
        fixed: its outputs that depend on no number of an input: these may well be the same in every run.
        in_doubles: it computes in float64 what the other computes in float32: thresholds may be a step apart.
        remembered: what it gave before, so that it does not run again for that.
        scales: its outputs -> the root mean square of the largest column in the first run that was judged.
    """

    runner: Runner
    noise: RoundingNoise | None = None
    ties: TiedScores | None = None
    precision: str | None = None
    quantized: Mapping[str, float] = field(default_factory=dict)
    declared: Mapping[str, str] | None = None
    exact: RoundingNoise | None = None
    judged_exactly: RoundingNoise | None = None
    fixed: frozenset[str] = frozenset()
    in_doubles: bool = False
    remembered: Answers | None = None
    scales: dict[str, float] = field(default_factory=dict, repr=False, compare=False)
    _asked: list[tuple[Feeds, dict[str, bool]]] = field(default_factory=list, repr=False, compare=False)

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """What `run` takes."""
        return self.runner.inputs

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """What `run` gives."""
        return self.runner.outputs

    def run(self, feeds: Feeds) -> dict[str, Any]:
        """What is right.

        Raises:
            InputError: the model refuses these inputs.
        """
        return (self.remembered or self.runner).run(feeds)

    def repeats(
        self, feeds: Feeds, tolerance: Tolerance = NUMBERS, first: Mapping[str, Any] | None = None
    ) -> Mapping[str, bool]:
        """Whether each output is the same when the model runs twice; asked before anything is excused.

        Args:
            feeds: of this run.
            tolerance: what counts as the same: kernels on many threads may add in any order.
            first: what it gave for them before, taken apart; unless given it runs twice now.

        Returns:
            Nothing where the model does not run.
        """
        try:
            if first is None:
                first = flatten(self.runner.run(feeds))
            second = flatten(self.runner.run(feeds))
        except OnnxToolError:
            return {}
        return {name: repeats(array, second.get(name), tolerance) for name, array in first.items()}

    def rerounded_where_steady(self, feeds: Feeds, name: str, first: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """An output with other roundings; none where they are not known, or the output is another one each time.

        Args:
            feeds: of this run.
            name: of the output.
            first: as of `repeats`.
        """
        again = [noise.outputs(feeds).get(name) for noise in (self.noise, self.exact) if noise is not None]
        again = [array for array in again if array is not None]
        if again and (not self._asked or self._asked[0][0] is not feeds):
            self._asked[:] = [(feeds, dict(self.repeats(feeds, Tolerance(), first)))]
        return again if again and self._asked[0][1].get(name, True) else ()

    def judged_with_exact_kernels(self, feeds: Feeds, name: str) -> Any | None:
        """An output of what is judged with exact kernels; None where that is not known."""
        return None if self.judged_exactly is None else self.judged_exactly.outputs(feeds).get(name)

    def remembering(self, known: Sequence[Answered]) -> Reference:
        """The same, giving what it gave before."""
        return replace(self, remembered=Answers(self.runner, known))

    def seen_through(self, runner: Runner) -> Reference:
        """What is known of it, of a Runner whose outputs are not the whole ones: rounding was measured on those."""
        return replace(self, runner=runner, remembered=None, noise=None, exact=None)


def reference_on(a: PathLike | Runner, b: PathLike | Runner, runner: Runner, options: SessionOptions) -> Reference:
    """What is known of A.

    Args:
        a: an .onnx file, or a Runner. A framework model tells its own roundings where it can (`rerounded`), and how far
            its quantized outputs may be off; the precision that it computes in shows in the file that was made of it.
        b: what is judged.
        runner: of A.
        options: how .onnx files are run.
    """
    if not isinstance(a, Runner):
        return reference_of_file(a, runner, options)
    return reference_of_source(a, None if isinstance(b, Runner) else io.load(b))


def reference_of_file(path: PathLike, runner: Runner, options: SessionOptions) -> Reference:
    """An .onnx file; it is opened again only where what is known of it is asked for.

    Args:
        path: the file.
        runner: of it.
        options: how it is run.
    """
    found = reference_of_model(io.load(path), runner, lambda: io.load(path), options)
    return replace(found, noise=runtime_noise(Path(path), options))


def reference_of_model(
    model: ir.Model, runner: Runner, load: Callable[[], ir.Model], options: SessionOptions
) -> Reference:
    """A model in memory, without its rounding.

    Args:
        model: looked at now and not kept.
        runner: of it.
        load: gives it again, where its inner tensors are asked for.
        options: how it is run.
    """
    ties = ties_of_model(model, load, options)
    exact = exact_kernels(model, load, options)
    return Reference(runner, ties=ties, precision=precision_of(model), exact=exact, fixed=fixed_outputs(model))


def reference_of_source(source: Runner, graph: ir.Model | None) -> Reference:
    """A framework model: what it tells of itself, and the graph that was made of it tells of the runtime.

    Args:
        source: a DescribedRunner tells its own roundings, and the steps of its quantized outputs.
        graph: what is judged, where it is at hand.
    """
    described = source if isinstance(source, DescribedRunner) else None
    return Reference(
        source,
        noise=RoundingNoise(described.rerounded) if described is not None else None,
        precision=None if graph is None else precision_of(graph),
        quantized=dict(described.rounding) if described is not None else {},
        declared={s.name: s.dtype.name for s in source.outputs if _is_number(s.dtype)},
        judged_exactly=None if graph is None else exact_kernels(graph, graph.clone, SessionOptions()),
        fixed=frozenset() if graph is None else fixed_outputs(graph),
        in_doubles=described is not None and described.in_doubles,
    )


def ties_of_model(model: ir.Model, load: Callable[[], ir.Model], options: SessionOptions) -> TiedScores | None:
    """Outputs that are indices of the largest: where their scores tie, rounding decides; None where there are none.

    Args:
        model, load, options: as of `reference_of_model`.
    """
    found = choices(model)

    def with_scores(names: list[str]) -> tuple[Runner, Runner]:
        wider = load()
        known = {v.name: v for node in wider.graph for v in node.outputs}
        given = {v.name for v in wider.graph.outputs}
        wider.graph.outputs.extend(known[n] for n in names if n in known and n not in given)
        other = replace(options, optimization="off" if options.optimization != "off" else "basic")
        return OnnxRunner.open(wider, options), OnnxRunner.open(wider, other)

    return TiedScores(found, with_scores) if found else None


def precision_of(model: ir.Model) -> str | None:
    """The half-precision type that a model computes in; None for float32 and wider.

    It shows in the types of its inputs, outputs and weights, and in casts.
    """
    found: set[str] = set()
    for value in (*model.graph.inputs, *model.graph.outputs):
        found.add(value.dtype.name if value.dtype is not None else "")
    for graph in model.graphs():
        for value in graph.initializers.values():
            found.add(value.const_value.dtype.name if value.const_value is not None else "")
        for node in graph:
            to = node.attributes.get("to") if node.op_type == "Cast" else None
            found.add({10: "FLOAT16", 16: "BFLOAT16"}.get(to.as_int() if to is not None else 0, ""))
    wide = [name for name in reversed(_HALF) if name.upper() in found]
    return wide[0] if wide else None


def fixed_outputs(model: ir.Model) -> frozenset[str]:
    """Outputs that no number of an input reaches: constants, and what is computed of sizes."""
    moved = {v for v in model.graph.inputs if v.name not in model.graph.initializers}
    for node in model.graph:
        bodies = any(a.type.name in ("GRAPH", "GRAPHS") for a in node.attributes.values())
        if bodies or (node.op_type not in ("Shape", "Size") and any(v in moved for v in node.inputs)):
            moved.update(node.outputs)
    return frozenset(v.name or "" for v in model.graph.outputs if v not in moved)


def _is_number(dtype: object) -> TypeGuard[np.dtype[Any]]:
    return isinstance(dtype, np.dtype) and dtype.kind not in "OUS"
