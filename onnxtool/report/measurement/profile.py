"""Where a model's time goes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Peaks:
    """What this machine reaches at best, measured just before with the runtime itself.

    Attributes:
        gflops: 10^9 float32 operations in a second, in a product of large matrices.
        gbs: 10^9 bytes in a second, read and written, in a sum of tensors that are larger than the caches.
    """

    gflops: float
    gbs: float


@dataclass(frozen=True)
class NodeTime:
    """One node as the runtime ran it, fused ones as such.

    Attributes:
        node: its name in the runtime's graph.
        operator: its type there.
        seconds: median over the runs.
        share: of the sum over all nodes, in [0, 1].
        macs: multiply-accumulates for the profiled inputs; None when there are none, or when they are unknown.
        output_bytes: size of what it wrote; None when the runtime does not tell.
        originals: the nodes of the file that this one does the work of, by name or, unnamed, by their first output,
            those with multiply-accumulates first, then those of its own type; none for what the runtime put in itself
            (changes of layout).
        flops: floating-point operations in one run: two for each multiply-accumulate; of other operators a few for each
            element. Integer operations of quantized operators count the same.
        bytes: what it reads and writes in one run: every input, weights included, and every output once.
        bound: "compute" or "memory": which of the machine's peaks limits a node of that intensity; "" when unknown.
        attained: seconds that the limiting peak would allow over those it took; above 1 where data stays in the caches
            or where int8 runs faster than float32; None when unknown.
    """

    node: str
    operator: str
    seconds: float
    share: float
    macs: int | None = None
    output_bytes: int | None = None
    originals: tuple[str, ...] = ()
    flops: int | None = None
    bytes: int | None = None
    bound: str = ""
    attained: float | None = None

    @property
    def gflops(self) -> float | None:
        """10^9 floating-point operations in a second."""
        return None if self.flops is None or self.seconds <= 0 else self.flops / self.seconds / 1e9

    @property
    def gbs(self) -> float | None:
        """10^9 bytes in a second."""
        return None if self.bytes is None or self.seconds <= 0 else self.bytes / self.seconds / 1e9

    @property
    def intensity(self) -> float | None:
        """Floating-point operations for each byte."""
        return None if self.flops is None or not self.bytes else self.flops / self.bytes


@dataclass(frozen=True)
class OperatorTime:
    """All nodes of one type together.

    Attributes:
        flops, bytes: sums over those of its nodes for which they are known; None when that is none.
    """

    operator: str
    nodes: int
    seconds: float
    share: float
    flops: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Profile:
    """One model under the runtime's profiler.

    Attributes:
        runs: how many were profiled, warm-up left out.
        seconds: sum of the nodes' medians; less than the latency, which has the runtime's own work in it.
        nodes: slowest first.
        operators: slowest first.
        peaks: of the machine with as many threads; None when they were not measured.
    """

    model: str
    runs: int
    seconds: float
    nodes: tuple[NodeTime, ...]
    operators: tuple[OperatorTime, ...]
    peaks: Peaks | None = None
