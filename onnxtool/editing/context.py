"""What the operations of one `edit` share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import VerdictError
from onnxtool.report.proof import Assumption
from onnxtool.runtime.runner import OnnxRunner, Runner
from onnxtool.runtime.session.extensions import NAMES, extensions_library
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.worker.apart import Apart, risks_of

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass
class EditContext:
    """Shared by the operations of one run.

    Attributes:
        options: how models are run; the runtime's own optimizations are off.
        tolerance: for floats, where an operation may round differently.
        seed: of random inputs.
        verify: False leaves the proofs out.
        allow_unproven: write the result although something is assumed that no run has shown.
        reference: a model that is right at every size, if the user named one.
        warnings: what the user should know, one line each.
        external: weights beside the model: True, False, or None for when they are larger than 2 GB.
        chunk: largest data file in bytes; None for one file.
        pictures: image files that pre-processing is proven on.
        files: other files to write with the model, and what writes them.
        assumptions: what the operation at hand takes for granted.
    """

    options: SessionOptions
    tolerance: Tolerance = Tolerance()  # noqa: RUF009  (frozen)
    seed: int = 0
    verify: bool = True
    allow_unproven: bool = False
    reference: Runner | None = None
    warnings: list[str] = field(default_factory=list)
    external: bool | None = None
    chunk: int | None = None
    pictures: tuple[Path, ...] = ()
    files: list[tuple[Path, Callable[[Path], None]]] = field(default_factory=list)
    assumptions: list[Assumption] = field(default_factory=list)

    def assume(self, assumptions: Iterable[Assumption]) -> None:
        """Take something for granted.

        Raises:
            VerdictError: a run contradicts it, or none has shown it and the user did not allow that.
        """
        for found in assumptions:
            if found.status == "broken" or (found.status == "unproven" and not self.allow_unproven):
                hint = "" if found.status == "broken" else " --allow-unproven writes it all the same."
                verb = "not true" if found.status == "broken" else "assumed, and not proven"
                where = f"{found.node}: " if found.node else ""
                reason = f" ({found.reason})" if found.reason else ""
                raise VerdictError(f"{where}{verb}: {found.claim}{reason}.{hint}")
            self.assumptions.append(found)

    def runner(self, model: ir.Model, options: SessionOptions | None = None) -> Runner:
        """What runs a model; inputs that native code may die of run in a child.

        Args:
            model: kept as it is as long as the runner is used.
            options: in place of the run's own.
        """
        chosen = options or self.options
        return Apart(OnnxRunner.open(model, chosen), model, chosen, risks_of([model]))

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
