"""Shapes of inputs: dynamic dims get a size, fixed ones become dynamic."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.editing.graph_builder import find_input
from onnxtool.editing.operation import Operation
from onnxtool.editing.proofs import compare, same_outputs
from onnxtool.editing.resizing.baked_numbers import BakedNumbers
from onnxtool.editing.resizing.batches import BatchProof, BatchRun, Fault
from onnxtool.editing.resizing.dynamic import make_dynamic
from onnxtool.editing.resizing.other_sizes import OtherSizes
from onnxtool.editing.resizing.resize_context import Resizing
from onnxtool.equality.equivalence_check import match_names
from onnxtool.errors import InputError, UnsupportedError, UsageError, VerdictError
from onnxtool.model.domains import input_domains
from onnxtool.model.ir.queries import input_specs, value_spec
from onnxtool.model.spec import Dim, parse_input_shape
from onnxtool.optimization.normalize import freeze_inputs
from onnxtool.report.edit import Proof
from onnxtool.runtime.feeds import flatten
from onnxtool.runtime.probes import find_probes

_BATCH_NAMES = ("n", "b", "bs", "bsz", "batch", "batch_size", "batchsize", "num_batch")
_SIZES = (1, 2, 3, 5)


class SetShape(Operation):
    """Fix dims of an input, or make them dynamic: a number fixes a dim, a word makes it dynamic."""

    name: ClassVar[str] = "set-shape"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.shapes: dict[str | None, tuple[Dim, ...]] = {}
        self._take(text)
        self._dynamic: dict[str, dict[int, str]] = {}
        self._roots: dict[str, int] = {}
        self._fixes = False  # a number replaces another one
        self._grown: ir.Model | None = None
        self._batch: str | None = None
        self._proof: BatchProof | None = None
        self._sizes: OtherSizes | None = None

    def _take(self, text: str) -> None:
        try:
            name, dims = parse_input_shape(text)
        except UsageError as error:
            raise UsageError(str(error).replace("--input-shape", f"--{self.name}")) from error
        if name in self.shapes:
            raise UsageError(f"--{self.name} names {name or 'the input'!r} twice.")
        self.shapes[name] = dims

    def merge(self, text: str) -> bool:
        """Inputs whose dims change together: several --set-shape in a row are one change."""
        self._take(text)
        self.text += f" --{self.name} {text}"
        return True

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        wanted = self._wanted(model)
        fixed: dict[str | None, tuple[Dim, ...]] = dict(wanted.items())
        renamed = 0
        for name, dims in wanted.items():
            old = value_spec(find_input(model, name, self.name)).shape
            if old is None:
                raise UnsupportedError(f"the rank of {name!r} is not known, so its dims cannot be set.")
            if len(old) != len(dims):
                raise UsageError(f"--{self.name}: {name!r} has {len(old)} dims, {len(dims)} given.")
            fresh = {i: d for i, (o, d) in enumerate(zip(old, dims, strict=True)) if isinstance(o, int) and o != d}
            for axis, dim in fresh.items():
                if dim is None:
                    raise UsageError(
                        f"--{self.name}: dim {axis} of {name!r} is {old[axis]}, not ?; write a word to make it dynamic."
                    )
            renamed += sum(isinstance(o, str) and isinstance(d, str) and o != d for o, d in zip(old, dims, strict=True))
            if fresh:
                numbers = {i: f"size_{old[i]}_to_{d}" for i, d in fresh.items() if isinstance(d, int)}
                self._dynamic[name] = {i: numbers.get(i, str(d)) for i, d in fresh.items()}
                self._fixes = self._fixes or bool(numbers)
            fixed[name] = tuple(o if i in fresh else d for i, (o, d) in enumerate(zip(old, dims, strict=True)))
        if renamed:
            raise UsageError(f"--{self.name} does not rename symbolic dims; use --name-dim OLD:NEW.")
        freeze_inputs(model, fixed)
        _forget_inner_shapes(model)
        done = [f"{n}: {', '.join('?' if d is None else str(d) for d in dims)}" for n, dims in wanted.items()]
        self.done = "; ".join(done)
        if not self._dynamic:
            return model
        grown = self._grow(model, context)
        if self._fixes:
            self._grown = grown.clone()
            freeze_inputs(grown, dict(wanted.items()))
        return grown

    def _wanted(self, model: ir.Model) -> dict[str, tuple[Dim, ...]]:
        names = [v.name or "" for v in model.graph.inputs if v.name not in model.graph.initializers]
        if None in self.shapes and len(names) != 1:
            raise UsageError(f"--{self.name} needs a name (NAME:1,3,...): the model has inputs {', '.join(names)}.")
        found = {}
        for name, dims in self.shapes.items():
            value = find_input(model, names[0] if name is None else name, self.name)
            found[value.name or ""] = dims
        return found

    def _grow(self, model: ir.Model, context: EditContext) -> ir.Model:
        """Make the fixed dims dynamic."""
        for name, axes in self._dynamic.items():
            shape = find_input(model, name, self.name).shape or ()
            for axis, symbol in axes.items():
                size = shape[axis]
                assert isinstance(size, int)
                if size < 1:
                    raise UnsupportedError(f"dim {axis} of {name!r} is {size}, so there is nothing to prove it on.")
                if self._roots.setdefault(symbol, size) != size:
                    raise UsageError(
                        f"--{self.name}: {symbol!r} would stand for {self._roots[symbol]} and for {size}; "
                        "use two names."
                    )
        taken = {d for v in model.graph.inputs for d in value_spec(v).dynamic_dims}
        for symbol in self._roots:
            if symbol in taken:
                raise UsageError(f"--{self.name}: {symbol!r} is the name of another dim already.")
        self._batch = self._find_batch()
        if not context.verify:
            grown, state = make_dynamic(model, self._dynamic, None, None, context)
            self._tell(state.rewritten)
            return grown
        if self._batch is not None:
            batch = {
                name: next(i for i, s in own.items() if s == self._batch)
                for name, own in self._dynamic.items()
                if self._batch in own.values()
            }
            self._proof = BatchProof(model, batch, self._roots[self._batch], context)
        sizes = self._sizes = OtherSizes(model, self._dynamic, self._roots, self._batch, context)
        proof = self._proof

        def trial(attempt: ir.Model, state: Resizing) -> Fault | None:
            fault = proof.trial(attempt, state) if proof is not None else None
            return fault or sizes.fault(attempt, state)

        grown, state = make_dynamic(model, self._dynamic, trial, proof, context)
        if proof is not None:
            context.assume(proof.assumptions(state))
        if context.reference is None:  # which would show a wrong number
            context.assume(BakedNumbers(grown, state, self._batch).assumptions())
        self._tell(state.rewritten)
        return grown

    def _tell(self, rewritten: list[str]) -> None:
        count = len(rewritten)
        shown = "; ".join(rewritten[:3]) + ("; ..." if count > 3 else "")
        self.done += f" ({count} rewritten: {shown})" if count else " (nothing else had to change)"

    def _find_batch(self) -> str | None:
        """The symbol that stands for the batch: by its name, or as the first dim where that was 1."""
        for symbol in self._roots:
            if symbol.lower() in _BATCH_NAMES:
                return symbol
        first = [a[0] for a in self._dynamic.values() if 0 in a]
        return next((s for s in first if self._roots[s] == 1), None)

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        if not self._dynamic:
            return self._prove_fixed(before, after, context)
        if self._grown is not None:
            grown, self._grown = self._grown, None
            proof, fixed = self.prove(before, grown, context), self._prove_fixed(grown, after, context)
            return replace(proof, runs=proof.runs + fixed.runs, claim=f"{proof.claim}; {fixed.claim}")
        claims, unproven, runs, largest = [], [], 0, 0.0
        if self._proof is not None:
            run = BatchRun(_SIZES)
            fault = self._proof.final_fault(after, run)
            if fault is not None:
                raise VerdictError(f"the proof fails: {fault.reason}")
            _name_outputs(after, run.axes, self._batch or "")
            claims.append(f"a batch of N gives what N runs of one give, for N = {', '.join(map(str, _SIZES))}")
            runs, largest = run.runs, run.largest
        others = [s for s in self._roots if s != self._batch]
        if others:
            proof = self._prove_sizes(before, after, context)
            claims.append(proof.claim)
            unproven.append(proof.unproven)
            runs, largest = runs + proof.runs, max(largest, proof.max_abs)
        elif context.reference is not None:
            proof = self._against_reference(before, after, context)
            claims.append(proof.claim)
            runs, largest = runs + proof.runs, max(largest, proof.max_abs)
        return Proof("; ".join(claims), runs, largest == 0.0, largest, "; ".join(filter(None, unproven)))

    def _prove_fixed(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        """The old model at the new size."""
        old = context.runner(before)
        probes = find_probes(context.runner(after), input_specs(after), context.seed, input_domains(before))
        cases = [(p.feeds, flatten(old.run(p.feeds))) for p in probes]
        return compare(after, cases, context, "at this size, the outputs are equal to the last bit", exact=True)

    def _prove_sizes(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        others = ", ".join(s for s in self._roots if s != self._batch)
        proof = same_outputs(before, after, context, "at the old size the outputs are equal", exact=False)
        if context.reference is not None:
            own = self._against_reference(before, after, context)
            largest = max(proof.max_abs, own.max_abs)
            return Proof(f"{proof.claim}, {own.claim}", proof.runs + own.runs, largest == 0.0, largest)
        assert self._sizes is not None
        ran, refused = self._sizes.ran(after)
        claim = f"{proof.claim}; it runs at other sizes of {others} ({', '.join(ran)})"
        claim += f" and refuses others ({', '.join(refused)})" if refused else ""
        unproven = f"the values at other sizes of {others}; a model that is right there would show them (--source)"
        return Proof(claim, proof.runs, proof.exact, proof.max_abs, unproven)

    def _against_reference(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        assert context.reference is not None
        sizes = OtherSizes(before, self._dynamic, self._roots, None, context)
        cases = []
        names = [v.name or "" for v in after.graph.outputs]
        taken = [s.name for s in input_specs(after)]
        inputs = match_names(taken, [s.name for s in context.reference.inputs], "inputs")
        for feeds in sizes.feeds():
            try:
                given = flatten(context.reference.run({inputs[n]: a for n, a in feeds.items()}))
            except InputError:
                continue
            found = given if set(given) == set(names) else dict(zip(names, given.values(), strict=False))
            cases.append((feeds, found))
        if not cases:
            raise UnsupportedError("the model of --source does not run at any other size.")
        return compare(after, cases, context, "at other sizes it gives what the named source gives", exact=False)


def _forget_inner_shapes(model: ir.Model) -> None:
    """What the file says of inner tensors was for the old shapes."""
    for graph in model.graphs():
        for node in graph:
            for value in node.outputs:
                if not value.is_graph_output():
                    value.shape = None


def _name_outputs(model: ir.Model, axes: dict[str, int | None], symbol: str) -> None:
    """Outputs whose dims could not be worked out get the batch where the runs have shown it."""
    for value in model.graph.outputs:
        axis = axes.get(value.name or "")
        dims = [d if isinstance(d, int) else d.value for d in value.shape or ()]
        if axis is not None and axis < len(dims) and dims[axis] is None:
            dims[axis] = symbol
            value.shape = ir.Shape(dims)
