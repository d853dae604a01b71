"""Where two models part, tensor by tensor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerDifference:
    """One tensor inside both models.

    Attributes:
        name: in A; of a framework model, the name of the layer.
        other_name: in B.
        operator: what makes it in B.
        depth: position of that node in B, counted from 0.
        shape: of the tensor in the run that is told.
        max_abs: largest |a - b|.
        error: relative error, |a - b| over |a| as 2-norms; infinite when only one side is finite.
        ok: within tolerance, by the rule of docs/equality.md.
        matched_by: "name", "value" when the names differ, or "provenance": a framework's layer by its name in a node or
            weight of B.
        reused: it is off, but everything made of it agrees: another tensor by the same name.
    """

    name: str
    other_name: str
    operator: str
    depth: int
    shape: tuple[int, ...]
    max_abs: float
    error: float
    ok: bool
    matched_by: str
    reused: bool = False


@dataclass(frozen=True)
class Suspect:
    """A node between the last tensors that agree and the first that does not.

    Attributes:
        model: "A", "B" or "A and B".
        node: its name, or the name of its first output.
        operator: its type.
        inputs: the tensors it reads; not told of a framework's layer.
        changed_weights: initializers it reads that A and B both have, with other content.
        explaining_weights: of A's node that was folded into another: weights of which each, changed alone, explains all
            of the difference between B's folded weights and those that A's give.
    """

    model: str
    node: str
    operator: str
    inputs: tuple[str, ...]
    changed_weights: tuple[str, ...] = ()
    explaining_weights: tuple[str, ...] = ()


@dataclass(frozen=True)
class Culprit:
    """The first wrong tensor.

    Attributes:
        tensor: in A's name.
        suspects: the nodes that make it out of tensors that agree, most suspicious first.
        agreeing: the tensors that they read and that agree.
    """

    tensor: str
    suspects: tuple[Suspect, ...]
    agreeing: tuple[str, ...]


@dataclass(frozen=True)
class Reproducer:
    """The smallest part that differs, as files.

    Attributes:
        folder: holds a.onnx, b.onnx and inputs.npz.
        nodes_a, nodes_b: how many nodes the two parts have.
        differs: the two parts alone give different results; False when the difference needs its surroundings.
        max_abs: largest difference of their outputs.
        command: lines that show it.
    """

    folder: str
    nodes_a: int
    nodes_b: int
    differs: bool
    max_abs: float
    command: tuple[str, ...]


@dataclass(frozen=True)
class Layers:
    """The error along the depth of two models.

    Attributes:
        tensors: in B's order.
        unmatched_a, unmatched_b: tensors that only one model has.
        culprit: None when every tensor agrees.
        changed: nodes of B that read an initializer whose content is another one in A, whether it matters on these
            inputs or not.
        reproducer: the part that differs, when it was asked for and there is one.
        passes: parts that the graphs were run in, to hold memory within bounds.
    """

    tensors: tuple[LayerDifference, ...]
    unmatched_a: int
    unmatched_b: int
    culprit: Culprit | None
    passes: int
    changed: tuple[Suspect, ...] = ()
    reproducer: Reproducer | None = None
