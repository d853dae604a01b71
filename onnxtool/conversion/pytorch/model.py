"""A torch module as a Runner, with everything flattened to named tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch

from onnxtool.conversion.adapter import LayeredModel
from onnxtool.conversion.float64_reference import Float64Reference
from onnxtool.conversion.graph_interface import named_outputs
from onnxtool.conversion.input_plan import InputPlan, row_inputs
from onnxtool.conversion.pytorch.decided_sizes import DecidedSizes
from onnxtool.conversion.pytorch.export_errors import FixedDimError
from onnxtool.conversion.pytorch.exported_program import plan_program
from onnxtool.conversion.pytorch.float64_reference import in_float64
from onnxtool.conversion.pytorch.guards import Guard
from onnxtool.conversion.pytorch.in_float32 import as_written
from onnxtool.conversion.pytorch.layers import See, watch_program, watched_modules
from onnxtool.conversion.pytorch.load import Loaded
from onnxtool.conversion.pytorch.stable_order import stable_order
from onnxtool.conversion.pytorch.state import AsLoaded, ModuleState, random_operators
from onnxtool.conversion.pytorch.tensors import (
    named_tensors,
    numbers_left_out,
    numpy_dtype,
    plan_inputs,
    to_numpy,
    to_torch,
)
from onnxtool.conversion.pytorch.traced_branches import FrozenBranches, place_text
from onnxtool.conversion.pytorch.usual_inputs import main_names, usual_dims
from onnxtool.conversion.source import Source
from onnxtool.equality.search.difference import largest_difference
from onnxtool.errors import InputError, ResourceError, UnsupportedError
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec
from onnxtool.options.convert import ConvertOptions
from onnxtool.runtime.feeds import Feeds, adapt, feeds_bytes, random_feeds
from onnxtool.runtime.worker.isolation import guarded, memory_bounded

# Sizes to trace with. Batch sizes start at 2, because exporters take a size of 1 for a constant; sizes of different
# dims differ, because equal ones would be taken for the same dim. Later rows serve networks that need multiples, and
# the last ones recordings, of which some hundred samples make one step.
_FIRST_BATCH = 2
_COUNT = Domain(1, 5)  # for integers, where a model refuses zeros: lengths of sequences and the like
_LENGTHS = ((16, 2), (32, 32), (224, 32), (16, 0), (32, 0), (4096, 320), (4096, 0))
# Of a short recording one step is left, and a size of 1 is a constant; so is the 0 that whole steps are padded by.
_LEAST = {"samples": 4099}
_WANTS_INTEGER = re.compile(
    r"scalar types: Long|expected .*(Long|Int)|must be .*(long|int)|indices.*Long", re.IGNORECASE
)
_RANDOM = "the model draws random numbers when it runs{}, so that it is not even equal to itself: {}"
_ORDER = "of equal numbers the file's TopK takes the first one first; torch.topk and torch.sort leave open which"
_DROPOUT = "dropout called as a function wants training=self.training"
_DRAWN = "make an input of what it draws"
_STATEFUL = (
    "the model changes its own buffers when it runs ({}): it is exported as it was loaded, and the ONNX file begins "
    "every run from there"
)
_NUMBERS = "the file lacks what the model gives that is a number and no tensor: {}"
_ATTRIBUTES = (
    "the model changes its own attributes when it runs ({}): the ONNX file begins every run from those it was loaded "
    "with"
)
_UNSTEADY = (
    "the model gives another result the second time that it runs on one input: it keeps state outside its buffers. An "
    "ONNX file cannot do that; make what it remembers an input and an output."
)
_REMEMBERS = (
    "the model keeps something of the first input that it runs on ({}), and its later results depend on that. An ONNX "
    "file cannot do that; make what it remembers a buffer that is set before the conversion, or an input."
)
_FIXED = "exported for a {} of {}, since the model makes a number of it{}; another one: --input-shape {}"
_ON_DTYPES = re.compile(r"dtype|scalar type|boolean|\bBool\b|\bLong\b|\bInt\b")


class FlatModule(torch.nn.Module):  # type: ignore[misc]
    """Takes the inputs as flat tensors and gives the outputs as a flat tuple: what both exporters agree on."""

    def __init__(self, module: torch.nn.Module, plan: InputPlan) -> None:
        super().__init__()
        self.onnxtool_source = module
        self._plan = plan

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """One pass through the wrapped module."""
        args, kwargs = self._plan.call(tensors)
        return tuple(tensor for _, tensor in named_tensors(self.onnxtool_source(*args, **kwargs)))


@dataclass
class TorchModel(LayeredModel):
    """SourceModel for torch.

    Attributes:
        sample: arrays to trace with, one for each input.
        program: the exported program, if the source was one.
        frozen: what tracing warned of, where it was traced.
        state: its buffers as they were loaded; a run starts from these.
        released: the weights were given back.
        random: that it draws random numbers when it runs, and which; "" where it does not.
        guards: comparisons of sizes that the exporter decided for good.
        numbers: what the last run gave that is a number and no tensor.
        usual_dims: sizes for dims that nobody asked to be dynamic, should the model fix them.
        narrow: tensors that were bfloat16 when it was loaded.
        advice: what to do where the graph fails though the source runs; "" until an exporter is known to be to blame.
    """

    module: torch.nn.Module
    plan: InputPlan
    outputs: tuple[TensorSpec, ...]
    form: str
    notes: list[str]
    sample: dict[str, np.ndarray]
    program: torch.export.ExportedProgram | None = None
    feeds_hint: Mapping[str, Domain] | None = None
    advice: str = ""
    frozen: FrozenBranches | None = None
    state: ModuleState | None = None
    released: bool = False
    random: str = ""
    guards: DecidedSizes | None = None
    numbers: list[str] = field(default_factory=list)
    usual_dims: Mapping[str, int] = field(default_factory=dict)
    narrow: Sequence[str] = ()
    framework: str = field(default_factory=lambda: f"torch {torch.__version__}")

    def __post_init__(self) -> None:
        self.inputs = self.plan.specs

    @classmethod
    def prepare(cls, loaded: Loaded, source: Source, options: ConvertOptions) -> TorchModel:
        """Work out inputs, find sizes on which the model runs, run it once and name its outputs.

        Raises:
            UsageError: shapes are missing or do not fit the signature.
            InputError: the model fails on inputs of the shapes given.
        """
        usual: Mapping[str, int] = {}
        if loaded.program is not None:
            plan = plan_program(loaded.program, options)
        else:
            named_main = {"", "inputs_embeds", *main_names(loaded.module)} & {*options.input_shapes}
            if loaded.shapes and not named_main and options.sample is None:
                options = replace(options, input_shapes={**loaded.shapes, **options.input_shapes})
                usual = usual_dims(loaded.module)
            whole = {
                name: np.dtype(np.int64)
                for name, domain in loaded.domains.items()
                if name in options.input_shapes and isinstance(domain.low, int)
            }
            options = replace(options, input_dtypes={**whole, **options.input_dtypes})
            plan = plan_inputs(loaded.module, options, loaded.notes)
        model = cls(loaded.module, plan, (), loaded.form, loaded.notes, {}, loaded.program, loaded.domains or None)
        model.usual_dims, model.narrow = usual, loaded.narrow
        try:
            model.state = ModuleState(model.module)
            loaded_first = AsLoaded(model.module)
            drawn = torch.random.get_rng_state()
            result = model._first_run(options)
            model.traced_sizes = {
                dim: size
                for spec in model.inputs
                for dim, size in zip(spec.shape or (), model.sample[spec.name].shape, strict=False)
                if isinstance(dim, str)
            }
            named_operators: list[str] = []
            draws = not torch.equal(drawn, torch.random.get_rng_state())
            if draws:  # the first run may have drawn weights of a part that it made, and put others in their place
                drawn = torch.random.get_rng_state()
                named_operators = random_operators(lambda: model._forward(model.sample))
                draws = not torch.equal(drawn, torch.random.get_rng_state())
            if draws:
                drops = not named_operators or any("drop" in n or "bernoulli" in n for n in named_operators)
                listed = f" ({', '.join(named_operators[:3])})" if named_operators else ""
                model.random = _RANDOM.format(listed, _DROPOUT if drops else _DRAWN)
                model.notes.append(model.random)
            else:
                model._hold_steady(result)
                model._hold_to_first_run(loaded_first)
            if model.numbers:
                model.notes.append(_NUMBERS.format(", ".join(model.numbers[:3])))
            attributes = model.state.hold_attributes()
            if attributes:
                model.notes.append(_ATTRIBUTES.format(", ".join(attributes[:3])))
            changed = model.state.look()
            if changed:
                model.state.restore()
                model.notes.append(_STATEFUL.format(", ".join(changed[:3])))
        except InputError as error:
            guessed = min(model.plan.guessed, default="")
            hint = ". What it usually takes is not enough: give real inputs with --sample FILE.npz" if usual else ""
            if guessed and _ON_DTYPES.search(str(error)):
                hint = f". The dtypes were guessed: set them with --input-dtype (such as {guessed}:bool)"
            raise InputError(f"{source}: {error}{hint}") from error
        if not result:
            raise UnsupportedError(f"{source}: the model's forward gives no tensor.")
        specs = [TensorSpec(name, numpy_dtype(t.dtype), None) for name, t in result]
        model.outputs = named_outputs(specs, model.inputs, options, model.notes)
        return model

    def decided(self, guards: Sequence[Guard], labels: Mapping[str, str]) -> None:
        """Take note of comparisons of sizes that an exporter decided: both sides of each are worth trying.

        Args:
            guards: the comparisons.
            labels: torch's symbol -> name of the dim.
        """
        self.guards = DecidedSizes(guards, labels, self.inputs, self.sample)
        self.compared_sizes = tuple(dict.fromkeys([*self.compared_sizes, *self.guards.sizes]))
        places = dict.fromkeys(g.where for g in guards if g.where and g.sizes)
        if places and not self.advice:
            listed = ", ".join(list(places)[:3])
            self.advice = f"torch.export decides comparisons of sizes for good ({listed}): see whether one is to blame"

    def fix_usual_dim(self, error: FixedDimError) -> bool:
        """Give a dim that the model makes a number of its usual size, and say so; False where it has none."""
        size = self.usual_dims.get(error.dim)
        if size is None:
            return False
        specs = tuple(
            replace(s, shape=tuple(size if d == error.dim else d for d in s.shape or ())) for s in self.inputs
        )
        fixed = next(s for s in self.inputs if error.dim in (s.shape or ()))
        option = f"{fixed.name}:{','.join('N' if d == error.dim else str(d) for d in fixed.shape or ())}"
        self.plan, self.inputs = replace(self.plan, specs=specs), specs
        self.sample = random_feeds(specs, 0, dims=trace_sizes(specs, *_LENGTHS[0]), domains=self.feeds_hint)
        self._forward(self.sample)
        self.notes.append(_FIXED.format(error.dim, size, error.place, option))
        return True

    def sample_at(self, feeds: Feeds) -> bool:
        """Take sizes of some inputs to trace with; False where one of them would be taken for a constant."""
        dims = [(d, n) for s in self.inputs for d, n in zip(s.shape or (), feeds[s.name].shape, strict=True)]
        first = {s.shape[0] for s in self.inputs if s.shape}
        sizes = {d: max(n, _FIRST_BATCH) if d in first else n for d, n in dims if isinstance(d, str)}
        if 1 in sizes.values():
            return False
        self.sample = random_feeds(self.inputs, 0, dims=sizes, domains=self.feeds_hint)
        self._forward(self.sample)
        return True

    def blamed(self, feeds: Mapping[str, np.ndarray]) -> list[str]:
        """Lines at which the exporter took another side than these inputs need; of random results nothing is known."""
        return self.guards.blamed(feeds) if self.guards is not None and not self.random else []

    def one_sided(self, tried: Sequence[Mapping[str, np.ndarray]]) -> list[str]:
        """Comparisons of sizes that were decided for good and that no input tried takes the other side of.

        Those in code of installed packages go into the notes.
        """
        if self.guards is None:
            return []
        own, others = self.guards.one_sided(tried)
        if others:
            listed = "; ".join(others[:3])
            self.notes.append(f"right where these comparisons of sizes come out as they did in the export: {listed}")
        return own

    def unproven(self) -> list[str]:
        """Branches that tracing froze, of which the inputs tried so far take one side only."""
        return [place_text(p) for p in self.frozen.unproven()] if self.frozen is not None else []

    def flat(self) -> FlatModule:
        """The module with flat inputs and outputs, in eval mode."""
        if self.state is not None:
            self.state.restore()
        flat = FlatModule(self.module, self.plan)
        flat.eval()
        return flat

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass.

        Raises:
            InputError: the model fails on this input.
            ResourceError: out of memory.
        """
        tensors = [tensor for _, tensor in self._forward(feeds)]
        if len(tensors) != len(self.outputs):  # attention without weights for a batch without a row
            raise InputError(f"the PyTorch model gives {len(tensors)} outputs here, not {len(self.outputs)}")
        return {s.name: to_numpy(t) for s, t in zip(self.outputs, tensors, strict=True)}

    def as_written(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any] | None:
        """As of the base; floats are given as bfloat16 where the module takes no float32."""
        if not self.narrow or self.random:
            return None
        with as_written(self.module, self.narrow):
            try:
                return self.run(feeds)
            except InputError:
                narrow = {n: a.astype(ml_dtypes.bfloat16) if a.dtype == np.float32 else a for n, a in feeds.items()}
                return self.run(narrow)

    def layers(self, feeds: Mapping[str, np.ndarray], see: See) -> None:
        """One forward pass; `see` gets name, kind and value of what each module inside gives; see `pytorch_layers`."""
        if self.program is not None:
            args, kwargs = self.plan.call([to_torch(np.asarray(feeds[s.name])) for s in self.inputs])
            watch_program(self.module, (*args, *kwargs.values()), see)
            return
        with watched_modules(self.module, see):
            self._forward(feeds)

    def rerounded(self) -> Float64Reference | None:
        """The same function with other roundings: in float64."""
        unfit = self.released or bool(self.random) or self.program is not None
        return None if unfit else in_float64(self, self.module, self.plan, self.sample)

    def operator_trace(self, feeds: Mapping[str, np.ndarray]) -> ir.Model:
        """The operators that the module's own code calls on inputs of these shapes.

        Raises:
            UnsupportedError: it reads the data, draws random numbers, or an operator has no exact form.
        """
        from onnxtool.conversion.pytorch.recording.operator_trace import operator_trace  # a second of imports

        if self.released or self.random or self.rounding:
            why = (
                "weights were given back" if self.released else "results are random" if self.random else "layers round"
            )
            raise UnsupportedError(f"its {why}")
        tensors = [to_torch(np.asarray(feeds[s.name])) for s in self.inputs]
        return operator_trace(self.flat(), tensors, self.inputs, self.outputs)

    def release(self) -> None:
        """Give back the weights; the model cannot be run after this."""
        self.released = True
        self.module, self.program, self.state = torch.nn.Identity(), None, None

    def trace_inputs(self) -> tuple[torch.Tensor, ...]:
        """The sample as tensors, in the order of the inputs."""
        return tuple(to_torch(self.sample[s.name]) for s in self.inputs)

    def _forward(self, feeds: Mapping[str, np.ndarray]) -> list[tuple[str, torch.Tensor]]:
        args, kwargs = self.plan.call([to_torch(np.asarray(feeds[s.name])) for s in self.inputs])
        if self.state is not None:
            self.state.restore()
        try:
            watched = self.frozen.watching() if self.frozen is not None else nullcontext()
            size = feeds_bytes(feeds)
            bounded = guarded("running the model", inputs=size), memory_bounded(size)
            with torch.inference_mode(), bounded[0], bounded[1], watched, stable_order() as order:
                result = self.module(*args, **kwargs)
            if order.differs and _ORDER not in self.notes:
                self.notes.append(_ORDER)
            self.numbers = numbers_left_out(result)
            return named_tensors(result)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, MemoryError) or "not enough memory" in str(error):
                raise ResourceError(f"out of memory while running the PyTorch model: {_line(error)}") from error
            raise InputError(f"the PyTorch model fails on its input ({self._shapes(feeds)}): {_line(error)}") from error
        except Exception as error:
            raise InputError(
                f"the PyTorch model fails on its input ({self._shapes(feeds)}): {type(error).__name__}: {_line(error)}"
            ) from error

    def _shapes(self, feeds: Mapping[str, np.ndarray]) -> str:
        return ", ".join(f"{n}: {a.dtype}{list(a.shape)}" for n, a in feeds.items())

    def _first_run(self, options: ConvertOptions) -> list[tuple[str, torch.Tensor]]:
        failure: InputError | None = None
        for base, step in _LENGTHS:
            try:
                self.sample = self._trace_feeds(options, base, step)
                return self._forward(self.sample)
            except InputError as error:
                if _WANTS_INTEGER.search(str(error)) and self._guess_integers():
                    return self._first_run(options)
                failure = failure or error
                if options.sample is not None or not self._has_lengths():
                    break
        assert failure is not None
        counts = {s.name for s in self.inputs if s.dtype != "string" and np.dtype(s.dtype).kind in "iu"}
        if counts and options.sample is None and self.feeds_hint is None:
            self.feeds_hint = dict.fromkeys(counts, _COUNT)
            try:
                return self._first_run(options)
            except InputError:
                self.feeds_hint = None
        raise failure

    def _hold_steady(self, first: Sequence[tuple[str, torch.Tensor]]) -> None:
        """The first run once more.

        Raises:
            UnsupportedError: it gives something else.
        """
        assert self.state is not None
        if self.state.look():
            return  # its buffers change, which is another matter
        again = self._forward(self.sample)
        before, after = ({str(i): to_numpy(a) for i, (_, a) in enumerate(outputs)} for outputs in (first, again))
        if len(before) != len(after) or largest_difference(before, after) > 1:
            raise UnsupportedError(_UNSTEADY)

    def _hold_to_first_run(self, loaded: AsLoaded) -> None:
        """Another input, on the module as it was loaded and as the first run has left it.

        Raises:
            UnsupportedError: they give something else.
        """
        remembered = loaded.remembers()
        if loaded.copy is None or not remembered:
            return
        other = {name: _altered(array) for name, array in self.sample.items()}
        fresh = replace(self, module=loaded.copy, state=None, frozen=None, notes=[])
        try:
            pairs = [
                (to_numpy(a), to_numpy(b))
                for (_, a), (_, b) in zip(fresh._forward(other), self._forward(other), strict=True)
            ]
        except (InputError, ValueError):
            return
        expected, found = ({str(i): pair[side] for i, pair in enumerate(pairs)} for side in (0, 1))
        if largest_difference(expected, found) > 1:
            raise UnsupportedError(_REMEMBERS.format(", ".join(remembered[:3])))

    def _has_lengths(self) -> bool:
        return any(not isinstance(d, int) for s in self.inputs for d in (s.shape or ())[1:])

    def _guess_integers(self) -> bool:
        """The model wants integers where floats were assumed; sound only where one input is open."""
        open_floats = frozenset(
            s.name for s in self.inputs if s.name in self.plan.guessed and np.dtype(s.dtype).kind in "fV"
        )
        if len(open_floats) != 1:
            return False
        self.plan = self.plan.with_dtype(open_floats, np.dtype("int64"))
        self.inputs = self.plan.specs
        self.notes.append(f"input {next(iter(open_floats))} taken as int64; --input-dtype says otherwise")
        return True

    def _trace_feeds(self, options: ConvertOptions, base: int, step: int) -> dict[str, np.ndarray]:
        if options.sample is not None:
            return self._sample_rows(adapt(self.inputs, options.sample))
        sizes = trace_sizes(self.inputs, base, step)
        return random_feeds(self.inputs, options.seed, dims=sizes, domains=self.feeds_hint)

    def _sample_rows(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Two rows of the sample are enough to trace with; one row is doubled where the batch is dynamic."""
        rows = {name: feeds[name] for name in row_inputs(self.inputs, feeds)}
        rows = {n: np.concatenate([a, a]) if len(a) < _FIRST_BATCH else a[:_FIRST_BATCH] for n, a in rows.items()}
        return feeds | rows


def trace_sizes(specs: Sequence[TensorSpec], base: int, step: int) -> dict[str, int]:
    """A number for every named dim, all different: batches from 2 up, lengths from `base` in steps of `step`."""
    sizes: dict[str, int] = {}
    batch, length = _FIRST_BATCH, base
    for axis_zero in (True, False):
        for spec in specs:
            for axis, dim in enumerate(spec.shape or ()):
                if not isinstance(dim, str) or dim in sizes or (axis == 0) != axis_zero:
                    continue
                sizes[dim] = batch if axis_zero else max(length, _LEAST.get(dim, 0))
                batch, length = (batch + 1, length) if axis_zero else (batch, length + step)
    return sizes


def _altered(array: np.ndarray) -> np.ndarray:
    """Other numbers of the same kind: integers in another order, floats larger too."""
    turned = np.flip(array)
    return np.asarray(turned * 1.25 + 0.125).astype(array.dtype) if array.dtype.kind == "f" else turned.copy()


def _line(error: BaseException) -> str:
    """What happened: the first line, or the last one of TorchScript's errors, which begin with a trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[-1 if "TorchScript interpreter" in lines[0] else 0][:300]
