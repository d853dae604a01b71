"""What a certificate of equality says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from onnxtool.report.base import Report

Verdict = Literal["certified", "tested", "different", "not tested"]


def suffices(verdict: Verdict, require: str) -> bool:
    """Whether a verdict is what --require asks for: "tested" takes all that the command itself takes."""
    return require != "certified" or verdict == "certified"


@dataclass(frozen=True)
class RoundedConstant:
    """A constant of B that is none of A's, and what it is rounded from.

    Attributes:
        name: in B.
        source: a value of A that follows from constants alone, or a step of `steps`.
        factor: a single number of A that the source is multiplied by; "" for none.
        ulps: the largest distance from the exact value, in units in the last place; 0 where A rounds to the same bits.
    """

    name: str
    source: str
    factor: str
    ulps: float


@dataclass(frozen=True)
class ConstantStep:
    """How an exact value follows from constants of A.

    Attributes:
        operator: of ONNX; "Constant" for a number that A does not have, with its `value` and `dtype` as attributes.
        inputs: names of A's constants, or outputs of steps before.
        output: its name.
        attributes: of the operator.
    """

    operator: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, str | float | list[float]]


@dataclass(frozen=True)
class FieldPoint:
    """One evaluation of both models in a finite field.

    Attributes:
        salt: what random numbers and hashes are drawn with.
        prime: the size of the field.
        shapes: of the inputs.
    """

    salt: int
    prime: int
    shapes: Mapping[str, tuple[int, ...]]


_LISTED = 8  # operators of a part, in a sentence


@dataclass(frozen=True)
class PartRounding:
    """What rounding does to a value that the two models make in different ways.

    Attributes:
        output: the value, by its name in B.
        a, b: the operators that make it.
        a_ulps, b_ulps: how far float32 is off from float64 at most, in units of the last bit of the largest number and
            of what the last bits of what it is made from weigh; of the inputs on which B is worst beside A.
        where: those inputs.
        unlike: inputs on which one gives NaN or infinity and the other a number; "" for none.
    """

    output: str
    a: str
    b: str
    a_ulps: float
    b_ulps: float
    where: str = ""
    unlike: str = ""

    @property
    def coarser(self) -> float:
        """How many times as coarsely as A B rounds."""
        return self.b_ulps / max(self.a_ulps, 1.0)

    def __str__(self) -> str:
        sides = [side.split() for side in (self.a, self.b)]
        listed = (" ".join(s if len(s) <= _LISTED else [*s[:_LISTED], f"and {len(s) - _LISTED} more"]) for s in sides)
        return f"{self.output!r} ({' against '.join(listed)})"


@dataclass(frozen=True, repr=False)
class CertificateReport(Report, kind="certificate"):
    """Whether two ONNX models are the same real function, by exact arithmetic.

    Attributes:
        a, b: the files.
        a_sha256, b_sha256: of their bytes; "" for a model in memory.
        verdict: "certified" where both agree at all points; "different" where they do not, and running them shows it;
            else what running them says.
        points: where both were evaluated and agree.
        same_function: they are the same real function at these points, whatever rounding, NaN and infinities do.
        sizes: how many sizes of dynamic dims were looked at by shapes alone, for those at which something else happens.
        constants: those of B that are rounded; they were replaced by their exact values.
        steps: how the exact values follow from A's constants.
        rounding: of each kind of part in which the two compute in different ways, as far as it was measured.
        reason: why it is not certified, in a line; "" where it is.
        unlike: shapes of the inputs at which they are not the same real function, as far as exact arithmetic tells: an
            identity of real numbers that it lacks looks like a difference.
        differing: always empty; kept for readers of JSON of the first version.
        first: the first node of B that computes what no node of A computes; "" for none.
        change: the only thing in which the two files differ, where it is only one.
        seconds: what it took.
    """

    a: str
    b: str
    verdict: Verdict
    points: tuple[FieldPoint, ...] = ()
    same_function: bool = False
    sizes: int = 0
    constants: tuple[RoundedConstant, ...] = ()
    steps: tuple[ConstantStep, ...] = ()
    rounding: tuple[PartRounding, ...] = ()
    reason: str = ""
    unlike: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    differing: tuple[tuple[str, str], ...] = ()
    first: str = ""
    change: str = ""
    seconds: float = 0.0
    a_sha256: str = ""
    b_sha256: str = ""

    @property
    def ok(self) -> bool:
        """True when certified."""
        return self.verdict == "certified"

    @property
    def ulps(self) -> float:
        """How far the constants of B are at most from their exact values."""
        return max((c.ulps for c in self.constants), default=0.0)

    @property
    def coarser(self) -> float:
        """How many times as coarsely as A B rounds at most, in the parts in which they compute in different ways."""
        return max((r.coarser for r in self.rounding), default=1.0)

    @property
    def summary(self) -> str:
        """In a line."""
        if self.verdict != "certified":
            return self.reason
        limit = f"; {len(self.constants)} constants within {self.ulps:.3g} ulp" if self.constants else ""
        limit += f"; rounding up to {self.coarser:.2g} times the source's" if self.rounding else ""
        where = _listed([p.shapes for p in self.points])
        return f"the same real function{' at ' if where else ''}{where}{limit}"


def _listed(points: Sequence[Mapping[str, tuple[int, ...]]]) -> str:
    """Shapes of the same inputs at several points: inputs that go together are named once, and so are fixed shapes."""
    names = list(points[0])
    rows = sorted({tuple(tuple(shapes[n]) for n in names) for shapes in points})
    together: dict[tuple[tuple[int, ...], ...], list[str]] = {}
    for name, shapes in zip(names, zip(*rows, strict=True), strict=True):
        together.setdefault(shapes, []).append(name)
    varying = {", ".join(of): shapes for shapes, of in together.items() if len(set(shapes)) > 1}
    fixed = [f"{', '.join(of)} {list(shapes[0])}" for shapes, of in together.items() if len(set(shapes)) == 1]
    if not varying:
        return ", ".join(fixed)
    if len(varying) == 1:
        ((named, shapes),) = varying.items()
        told = f"{named} {', '.join(str(list(s)) for s in shapes)}"
    else:
        told = "; ".join(", ".join(f"{n} {list(s[i])}" for n, s in varying.items()) for i in range(len(rows)))
    return f"{told}{', each with ' if fixed else ''}{', '.join(fixed)}"
