"""Sizes of other dims than the batch: the old one must give the same, others must run."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.editing.proofs import compare
from onnxtool.editing.resizing.batches import Fault, failing_node
from onnxtool.errors import InputError, OnnxToolError
from onnxtool.model.domains import input_domains
from onnxtool.model.ir.queries import input_specs
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds, random_feeds
from onnxtool.runtime.flatten_outputs import flatten
from onnxtool.runtime.probes import find_probes
from onnxtool.runtime.runner import OnnxRunner


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
        self._domains = input_domains(before)
        runner = OnnxRunner.open(before, context.options)
        specs = input_specs(before)
        probe = find_probes(runner, specs, context.seed, self._domains, wanted=1)[0]
        self._specs = [TensorSpec(s.name, s.dtype, tuple(np.shape(probe.feeds[s.name]))) for s in specs]
        self._expected = flatten(probe.outputs)
        self._given = probe.feeds

    def sizes(self) -> list[dict[str, int]]:
        """Twice the size, half of it and so on, all dims alike, and one of them alone."""
        found = []
        for above, below in ((2, 1), (3, 2), (1, 2), (4, 1), (5, 4)):
            found.append({s: max(1, self._roots[s] * above // below) for s in self._others})
        if len(self._others) > 1:
            found.append({s: self._roots[s] * (2 if i else 1) for i, s in enumerate(self._others)})
        if any(n < 4 for n in self._roots.values()):
            found.append({s: self._roots[s] + 1 for s in self._others})
        return [s for s in found if any(s[k] != self._roots[k] for k in s)]

    def feeds(self) -> list[Feeds]:
        """Random inputs at each of the sizes."""
        return [self._draw(s) for s in self.sizes()]

    def _draw(self, sizes: dict[str, int]) -> dict[str, np.ndarray]:
        specs = []
        for spec in self._specs:
            own = self._dims.get(spec.name, {})
            dims = tuple(sizes.get(own.get(i, ""), d) for i, d in enumerate(spec.shape or ()))
            specs.append(TensorSpec(spec.name, spec.dtype, dims))
        return random_feeds(specs, self._context.seed, domains=self._domains)

    def fault(self, after: ir.Model) -> Fault | None:
        """What is wrong at the old size, or that no other size runs; None when nothing is, or no such dim changes."""
        if not self._others:
            return None
        try:
            runner = OnnxRunner.open(after, self._context.options)
            compare(after, [(self._given, self._expected)], self._context, "", exact=False)
            self._ran(runner)
        except OnnxToolError as error:
            return Fault(str(error), failing_node(error))
        return None

    def ran(self, after: ir.Model) -> list[str]:
        """The sizes that the model runs at."""
        return self._ran(OnnxRunner.open(after, self._context.options))

    def _ran(self, runner: OnnxRunner) -> list[str]:
        worked: list[str] = []
        failure: OnnxToolError | None = None
        for sizes in self.sizes():
            try:
                runner.run(self._draw(sizes))
            except InputError as error:
                failure = failure or error
                continue
            worked.append(" ".join(f"{k}={v}" for k, v in sizes.items()))
        if not worked and failure is not None:
            raise InputError(f"no other size runs: {failure}") from failure
        return worked
