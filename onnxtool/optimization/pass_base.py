"""The three levels of optimization, and what a pass is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from onnxtool.errors import UsageError, one_line
from onnxtool.options.optimize import Level as Level

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxtool.optimization.pass_context import PassContext


def parse_level(level: Level | str) -> Level:
    """Turn "basic", "extended" or "all" into a Level.

    Raises:
        UsageError: another word.
    """
    if isinstance(level, Level):
        return level
    try:
        return Level(level)
    except ValueError as error:
        raise UsageError(f"--level {level}: choose basic, extended or all.") from error


@runtime_checkable
class Pass(Protocol):
    """One rewrite family. The first line of the class's docstring is what `--list-passes` shows.

    Attributes:
        name: what it does, verb first: "fold-constants".
        level: the lowest level at which it runs.
    """

    name: str
    level: Level

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Rewrite the model in place.

        Returns:
            The number of rewrites; 0 means that nothing was touched.
        """


class NodeRewrite(ABC):
    """A pass that looks at one node after the other.

    Attributes:
        operators: those of the nodes that it looks at, in the main graph and all subgraphs.
        domain: theirs.
        opset: the lowest version of the standard operators that it works with.
    """

    name: str
    level: Level
    operators: tuple[str, ...]
    domain = ""
    opset = 0

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Rewrite every node that no rewrite before it has removed."""
        if context.opset < self.opset:
            return 0
        nodes = context.nodes(model, *self.operators, domain=self.domain)
        return sum(self.rewrite(node, context) for node in nodes if node.graph is not None)

    @abstractmethod
    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Rewrite one node in place.

        Returns:
            The number of rewrites; 0 where nothing was touched.
        """


class FaultyPassError(Exception):
    """A pass raised an error, so the model may be half rewritten.

    Attributes:
        name: of the pass.
        reason: one line.
    """

    def __init__(self, name: str, error: Exception) -> None:
        said = one_line(error, 200)
        self.name, self.reason = name, f"it fails with {type(error).__name__}{': ' if said else ''}{said}"
        super().__init__(f"the pass {name}: {self.reason}")


@runtime_checkable
class FinishingPass(Pass, Protocol):
    """A pass that has something left to do once, when no pass finds anything more."""

    def finish(self, model: ir.Model, context: PassContext) -> int:
        """Rewrite the settled model in place.

        Returns:
            The number of rewrites.
        """
