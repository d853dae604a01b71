"""Where the nodes of a model run."""

from __future__ import annotations

from dataclasses import dataclass

from onnxtool.report.base import Report


@dataclass(frozen=True)
class NodePlacement:
    """One node of the file.

    Attributes:
        node: its name or, unnamed, its first output.
        operator: its type.
        provider: the execution provider that does its work, in full; "" for what never runs.
        state: "runs" as a node of its own, "compiled" (the provider made one kernel of it and others), "fused" (the
            runtime merged it into a neighbour), "folded" (computed once, when the model is loaded) or "unused".
        reason: why it is not on the provider that was asked for; "" where it is, or where nothing is known.
        fallback: True when another provider was asked for and could have been expected to run it.
        flops: two for each of its multiply-accumulates; None where it has none.
    """

    node: str
    operator: str
    provider: str
    state: str
    reason: str = ""
    fallback: bool = False
    flops: int | None = None


@dataclass(frozen=True)
class ProviderShare:
    """What one execution provider does.

    Attributes:
        nodes: of the file, fused ones counted with their neighbours.
        kernels: what the runtime really starts there in one run.
        seconds: of one run, copies left out.
        time_share: of all kernels' time, in [0, 1].
        flops_share: of the model's multiply-accumulates; None when it has none.
    """

    provider: str
    nodes: int
    kernels: int
    seconds: float
    time_share: float
    flops_share: float | None


@dataclass(frozen=True)
class Placement:
    """Where each node of a model runs.

    Attributes:
        model: the file.
        requested: the providers that were asked for, in order, in full.
        nodes: every node of the file, those of inner graphs too, in the file's order.
        shares: by provider, the requested ones first.
        copies: tensors that the runtime copies between devices in one run.
        copy_seconds: time of these copies in one run.
        crossings: tensors that go from one provider to another; copies only where these are on different devices.
    """

    model: str
    requested: tuple[str, ...]
    nodes: tuple[NodePlacement, ...]
    shares: tuple[ProviderShare, ...]
    copies: int
    copy_seconds: float
    crossings: int

    @property
    def fallbacks(self) -> tuple[NodePlacement, ...]:
        """The nodes that do not run where they were asked to."""
        return tuple(n for n in self.nodes if n.fallback)


@dataclass(frozen=True, repr=False)
class PlacementReport(Report, kind="placement"):
    """What `inspect --placement` gives.

    Attributes:
        placement: of the model.
        data: where the inputs of the run came from.
        runtime: "onnxruntime 1.31.1".
        required: whether a fallback makes the verdict bad.
    """

    placement: Placement
    data: str
    runtime: str
    required: bool = False

    @property
    def ok(self) -> bool:
        """False when a fallback was forbidden and happened."""
        return not (self.required and self.placement.fallbacks)
