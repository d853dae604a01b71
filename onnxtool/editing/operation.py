"""What an operation of `edit` is, and what it works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.report.edit import Proof
from onnxtool.runtime.session.extensions import NAMES, extensions_library
from onnxtool.runtime.session.session import SessionOptions

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxtool.runtime.runner import Runner


@dataclass
class EditContext:
    """Shared by the operations of one run.

    Attributes:
        options: how models are run; the runtime's own optimizations are off.
        tolerance: for floats, where an operation may round differently.
        seed: of random inputs.
        verify: False leaves the proofs out.
        reference: a model that is right at every size, if the user named one.
        warnings: what the user should know, one line each.
        external: weights beside the model: True, False, or None for when they are larger than 2 GB.
        chunk: largest data file in bytes; None for one file.
        pictures: image files that pre-processing is proven on.
        files: other files to write with the model, and what writes them.
    """

    options: SessionOptions
    tolerance: Tolerance = Tolerance()  # noqa: RUF009  (frozen)
    seed: int = 0
    verify: bool = True
    reference: Runner | None = None
    warnings: list[str] = field(default_factory=list)
    external: bool | None = None
    chunk: int | None = None
    pictures: tuple[Path, ...] = ()
    files: list[tuple[Path, Callable[[Path], None]]] = field(default_factory=list)

    def use_extensions(self, subject: str) -> None:
        """Run models with the operators of onnxruntime-extensions from now on, and tell the user that they are needed.

        Raises:
            MissingExtraError: the package is not installed.
        """
        library = extensions_library(subject)
        if library not in self.options.custom_op_libraries:
            libraries = (*self.options.custom_op_libraries, library)
            self.options = replace(self.options, custom_op_libraries=libraries)
        self.warnings.append(
            f"the result runs only with onnxruntime-extensions: give --custom-op-library {NAMES[0]} to other commands"
        )


class Operation:
    """Base of all operations. The first line of the class's docstring is what `--list-operations` shows.

    Attributes:
        name: the option's name without its dashes.
        value: the form of its text; empty for a flag.
        text: what the user gave.
        done: what `apply` changed, in a few words.
    """

    name: ClassVar[str] = ""
    value: ClassVar[str] = ""

    def __init__(self, text: str = "") -> None:
        """Take what the user gave.

        Raises:
            UsageError: the text does not have the form of `value`.
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
        from onnxtool.editing.proofs import same_outputs

        return same_outputs(before, after, context)
