"""What an operation of `edit` is, and what it works with."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from onnxtool.editing.context import EditContext
from onnxtool.editing.proofs import same_outputs
from onnxtool.report.edit import Proof

if TYPE_CHECKING:
    import onnx_ir as ir


class Operation:
    """Base of all operations. The first line of the class's docstring is what `--list-operations` shows.

    Attributes:
        name: the option's name without its dashes.
        value: the form of its text; empty for a flag. An operation of this package has both from its option.
        text: what the user gave.
        done: what `apply` changed, in a few words.
    """

    name: ClassVar[str] = ""
    value: ClassVar[str] = ""

    def __init__(self, text: str = "") -> None:
        """Take what the user gave.

        Raises:
            UsageError: the text does not have its form.
        """
        self.text = text
        self.done = ""

    def modify(self, name: str, text: str) -> bool:  # noqa: ARG002  (the default takes none)
        """Take in an option that belongs to this operation (`--connect` to `--append`); False when it has no such one.

        Raises:
            UsageError: the text does not have the option's form.
        """
        return False

    def merge(self, text: str) -> bool:  # noqa: ARG002
        """Take in the next occurrence of the same option, where several in a row make up one change."""
        return False

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        """Change the model in place, or give another one.

        Raises:
            UsageError: a name that the model does not have.
            UnsupportedError: it cannot be done to this model; the message names the node.
        """
        raise NotImplementedError

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        """Show that the change is right; unless overridden, that the outputs are equal to the last bit.

        Raises:
            VerdictError: it is not right.
            UnsupportedError: it is not, and the node that makes it impossible is known.
        """
        return same_outputs(before, after, context)
