"""Sizes of other dims than the batch: the old one must give the same, others must run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.editing.proofs import compare
from onnxtool.editing.resizing.batches import Fault, failing_node
from onnxtool.editing.resizing.resize_context import Resizing
from onnxtool.errors import OnnxToolError
from onnxtool.model.domains import input_domains
from onnxtool.model.ir.queries import input_specs
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds, flatten, random_feeds
from onnxtool.runtime.probes import find_probes


class OtherSizes:
    """Runs at other sizes of the dims that become dynamic.

    Args:
        before: the model with fixed dims.
        dims: input -> axis -> symbol.
        roots: symbol -> the size that it had.
        batch: the symbol that keeps its size, because it has a proof of its own.
        context: how to run.
    """

    def __init__(
        self,
        before: ir.Model,
        dims: dict[str, dict[int, str]],
        roots: dict[str, int],
        batch: str | None,
        context: EditContext,
    ) -> None:
        self._dims, self._roots, self._context = dims, roots, context
        self._others = [s for s in roots if s != batch]
        self._strides: dict[str, int] = {}
        self._limits: dict[str, int] = {}
        self._domains = input_domains(before)
        runner = context.runner(before)
        specs = input_specs(before)
        probe = find_probes(runner, specs, context.seed, self._domains, wanted=1)[0]
        self._specs = [TensorSpec(s.name, s.dtype, tuple(np.shape(probe.feeds[s.name]))) for s in specs]
        self._expected = flatten(probe.outputs)
        self._given = probe.feeds

    def sizes(self) -> list[dict[str, int]]:
        """Larger sizes, all dims alike and apart: by a step of all strides, by three, and twice the size.

        Smaller ones where a table ends before them.
        """
        steps = {s: self._strides.get(s, 1) for s in self._others}
        found = [{s: self._roots[s] + n * steps[s] for s in self._others} for n in (1, 3)]
        found.append({s: 2 * self._roots[s] for s in self._others})
        for alone in self._others if len(self._others) > 1 else ():
            found.append({s: self._roots[s] + steps[s] * (s == alone) for s in self._others})
        found = [s for s in found if all(n <= self._limits.get(name, n) for name, n in s.items())]
        return found or [
            {s: self._roots[s] // n // steps[s] * steps[s] or steps[s] for s in self._others} for n in (2, 3)
        ]

    def _harder(self) -> list[dict[str, int]]:
        """Sizes that a model need not take: between the steps of its strides, and smaller ones."""
        found = []
        for number in self._others:
            root, step = self._roots[number], self._strides.get(number, 1)
            for size in (root + 1, root + step // 2, root + step - 1, root - step, root // 2 // step * step, step):
                if 0 < size != root and (size - root) % (2 * root):
                    found.append({s: size if s == number else self._roots[s] for s in self._others})
        return [s for s in found if s not in self.sizes()]

    def feeds(self) -> list[Feeds]:
        """Random inputs at each of the sizes."""
        return [self._draw(s) for s in (*self.sizes(), *self._harder())]

    def _draw(self, sizes: dict[str, int]) -> dict[str, np.ndarray]:
        specs = []
        for spec in self._specs:
            own = self._dims.get(spec.name, {})
            dims = tuple(sizes.get(own.get(i, ""), d) for i, d in enumerate(spec.shape or ()))
            specs.append(TensorSpec(spec.name, spec.dtype, dims))
        return random_feeds(specs, self._context.seed, domains=self._domains)

    def fault(self, after: ir.Model, state: Resizing) -> Fault | None:
        """What is wrong at the old size, or that a larger one does not run; None when nothing is.

        Args:
            after: an attempt.
            state: of its rewriting, which tells the strides.
        """
        if not self._others:
            return None
        self._strides, self._limits = {s: state.stride(s) for s in self._others}, state.limits
        try:
            runner = self._context.runner(after)
            compare(after, [(self._given, self._expected)], self._context, "", exact=False)
        except OnnxToolError as error:
            return Fault(str(error), failing_node(error))
        for sizes in self.sizes():
            try:
                runner.run(self._draw(sizes))
            except OnnxToolError as error:
                return Fault(f"at {_told(sizes)} it does not run: {error}", failing_node(error))
        return None

    def ran(self, after: ir.Model) -> tuple[list[str], list[str]]:
        """The sizes that the result runs at, and those that it refuses."""
        runner = self._context.runner(after)
        taken, refused = [_told(sizes) for sizes in self.sizes()], []
        for sizes in self._harder():
            try:
                runner.run(self._draw(sizes))
            except OnnxToolError:
                refused.append(_told(sizes))
            else:
                taken.append(_told(sizes))
        return taken, refused


def _told(sizes: Mapping[str, int]) -> str:
    return " ".join(f"{k}={v}" for k, v in sizes.items())
