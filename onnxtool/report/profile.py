"""Where a model's time goes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NodeTime:
    """One node as the runtime ran it, fused ones as such.

    Attributes:
        node: its name in the runtime's graph.
        operator: its type there.
        seconds: median over the runs.
        share: of the sum over all nodes, in [0, 1].
        macs: multiply-accumulates of the node of that name in the file, for the profiled inputs; None when unknown.
        output_bytes: size of what it wrote; None when the runtime does not tell.
    """

    node: str
    operator: str
    seconds: float
    share: float
    macs: int | None = None
    output_bytes: int | None = None

    @property
    def gflops(self) -> float | None:
        """10^9 floating-point operations in a second: two for each multiply-accumulate."""
        return None if self.macs is None or self.seconds <= 0 else 2 * self.macs / self.seconds / 1e9


@dataclass(frozen=True)
class OperatorTime:
    """All nodes of one type together."""

    operator: str
    nodes: int
    seconds: float
    share: float


@dataclass(frozen=True)
class Profile:
    """One model under the runtime's profiler.

    Attributes:
        runs: how many were profiled, warm-up left out.
        seconds: sum of the nodes' medians; less than the latency, which has the runtime's own work in it.
        nodes: slowest first.
        operators: slowest first.
    """

    model: str
    runs: int
    seconds: float
    nodes: tuple[NodeTime, ...]
    operators: tuple[OperatorTime, ...]
