"""From a graph that an exporter wrote to one that is proven, by another exporter where the first one's fails."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxtool.conversion.adapter import Adapter, SourceModel
from onnxtool.conversion.equivalence import SourceProof, cleaned_up
from onnxtool.conversion.graph_interface import align
from onnxtool.conversion.source import Source
from onnxtool.conversion.supervised_model import declared_bytes, supervised
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import InputError, OnnxToolError, UnsupportedError, VerdictError
from onnxtool.model import io
from onnxtool.model.io.lazy_read import WORTHWHILE
from onnxtool.options.convert import ConvertOptions
from onnxtool.report.compare import CompareReport
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.worker.isolation import ResourceAllowance, guarded

# Above this many bytes the weights wait on the disk while the graph is proven, and not in memory beside the runtime's.
SPILL = 32_000_000
_BY_TRACING = "exported by the TorchScript exporter"  # such a note says what the other one failed for
_FROM_THERE = "exported at sizes that take the other side of a comparison, which serves both"
_LITTLE = 60.0  # dB: a difference of a thousandth of the output is no other branch


@dataclass
class ExportAttempts:
    """The ways from one source to a proven graph.

    Attributes:
        names: of source and output, for messages.
        pace: what running the source may take.
        stays: the source can still be run while graphs are judged.
    """

    opened: Source
    adapter: Adapter
    model: SourceModel
    options: ConvertOptions
    tolerance: Tolerance
    names: tuple[str, str]
    pace: ResourceAllowance
    stays: bool = False

    def observed(self, graph: ir.Model, *, stays: bool = False) -> SourceProof:
        """Run the source on all inputs that a graph makes worth trying.

        Args:
            graph: made of the source.
            stays: the source stays however many weights there are.

        Raises:
            InputError: it runs on none.
            UnsupportedError: the exporter decided what these inputs do not show to be harmless.
        """
        what = f"running the model with {self.adapter.name}"
        proof = SourceProof(self.model, self.options, self.tolerance, self.names)
        with guarded(what, self.opened.size, pace=self.pace):
            began = time.perf_counter()
            proof.observe(graph)
            usual = time.perf_counter() - began
        self.stays = stays or io.weight_bytes(graph) <= WORTHWHILE  # of more there is no certificate
        watched = supervised(self.model, what, self.opened.size, self.pace)
        proof.observe_further(graph, watched, usual, stays=self.stays)
        _refuse_unproven(self.model, str(self.opened), proof.tried)
        return proof

    def proven(self, graph: ir.Model, proof: SourceProof) -> tuple[ir.Model, CompareReport, SourceProof]:
        """The graph as it is to be written, with its comparison; where it fails, that of another exporter.

        Raises:
            InputError, UnsupportedError, VerdictError: no route gives a graph that runs where the source does.
        """
        failure: OnnxToolError | None = None
        found: tuple[ir.Model, CompareReport] | None = None
        try:
            found = cleaned_up(graph, proof, self.model.notes)
        except (InputError, UnsupportedError, VerdictError) as error:
            failure = error
        if found is not None and found[1].ok:
            return (*found, proof)
        _, other_side = _blamed(self.model, proof)
        ways = [*([other_side] if other_side else []), *([] if other_side and found else [None])]
        for way in ways if self.stays else ():
            second = self._otherwise(failure, way)
            if second is not None:
                return second
        if found is None:
            assert failure is not None
            raise failure
        return (*found, proof)

    def _otherwise(
        self, failure: OnnxToolError | None, other_side: Feeds | None
    ) -> tuple[ir.Model, CompareReport, SourceProof] | None:
        """What another exporter makes of the source, or the same one at other sizes; None where that fails too."""
        kept, before = list(self.model.notes), dict(vars(self.model))
        try:
            with guarded("exporting the model", self.opened.size, declared_bytes(self.model.inputs), self.pace):
                given = (other_side,) if other_side else ()
                other = self.adapter.export_otherwise(self.model, self.options, *given)
            if other is not None:
                align(other, self.model.inputs, self.model.outputs)
                proof = self.observed(other)
                graph, report = cleaned_up(other, proof, self.model.notes)
                if report.ok:
                    why = f": {failure}" if failure is not None else " on some inputs"
                    first = f"the first exporter's graph differs from the source{why}"
                    self.model.notes.append(_FROM_THERE if other_side else first)
                    return graph, report, proof
        except OnnxToolError:
            pass
        self.model.notes[:] = kept
        vars(self.model).update(before)
        return None


def _refuse_unproven(model: SourceModel, name: str, tried: Sequence[Mapping[str, np.ndarray]]) -> None:
    """Raises UnsupportedError where the exporter decided what the inputs tried did not show to be harmless."""
    places, what = model.unproven(), "tracing froze a branch"
    if not places:
        places, what = model.one_sided(tried), "torch.export decided a comparison of sizes for good"
    if places:
        more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
        raise UnsupportedError(
            f"{name}: {what}, and no input tried takes its other side: {places[0]}{more}. Rewrite it with torch.where "
            "or torch.cond, save the module as TorchScript (torch.jit.script), or give --sample FILE.npz with inputs "
            f"of both sides.{''.join(f' {n[0].upper()}{n[1:]}' for n in model.notes if n.startswith(_BY_TRACING))}"
        )


def refuse_blamed(model: SourceModel, proof: SourceProof, name: str) -> None:
    """Raises UnsupportedError where the outputs differ because the exporter took one side of a branch for good."""
    failure = proof.further.findings.failure if proof.further is not None else None
    place, _ = _blamed(model, proof)
    if place:
        where = f"; with {failure.label} the outputs differ" if failure is not None else ""
        raise UnsupportedError(
            f"{name}: torch.export decided a comparison of sizes for good: {place}{where}{_how_little(proof)}. Rewrite "
            "it with torch.where or torch.cond, save the module as TorchScript (torch.jit.script), or fix the dim in "
            "--input-shape."
        )


def _how_little(proof: SourceProof) -> str:
    """Another explanation where the outputs differ by little: an operator of the runtime may be less precise."""
    report = proof.further.findings.report if proof.further is not None else None
    wrong = [o for o in report.outputs if not o.ok] if report is not None else []
    if not wrong or any(o.note or o.sqnr_db < _LITTLE for o in wrong):
        return ""
    worst = max(o.max_abs for o in wrong)
    return (
        f", but by {worst:.1g} at most, so little that an operator of the runtime may be to blame instead, which is "
        "less precise at some sizes (a DFT whose length is no power of two, say)"
    )


def release(model: SourceModel) -> None:
    """Give back the weights of a source."""
    model.release()
    gc.collect()  # exporters leave cycles that hold the weights


def _blamed(model: SourceModel, proof: SourceProof) -> tuple[str, Feeds]:
    """The line at which the exporter took another side than inputs that differ need, and these; "" and none."""
    findings = proof.further.findings if proof.further is not None else None
    if findings is None or findings.failure is None:
        inputs = [p.feeds for p in proof.probes]
    else:  # as it was tried: a failure is made smaller, by which it may come to the other side
        tried = [t.feeds for t in findings.observed.trials if t.label == findings.failure.label]
        inputs = tried or [findings.failure.feeds]
    found = [(places, feeds) for feeds in inputs if (places := model.blamed(feeds))]
    # Of fewer decisions that come to another end, one is likelier the one; small sizes turn others too.
    found.sort(key=lambda pair: (len(pair[0]), -sum(a.size for a in pair[1].values())))
    return (found[0][0][0], found[0][1]) if found else ("", {})
