"""Branches that tracing froze: which of their sides the source has taken on the inputs tried."""

from __future__ import annotations

import ast
import dis
import linecache
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

_TORCH = str(Path(torch.__file__).parent)
_BOOLEAN = "to a Python boolean"
_OTHERS = (
    "to a Python number", "to a Python integer", "to a Python float", "to a Python index", "to a NumPy array",
    "Iterating over a tensor", "live references", "results are registered as constants", "Using len to get",
    "to a Python list",
)  # fmt: skip

# Packages that choose in which order many factors are multiplied, which changes no result: torch's einsum asks
# opt_einsum where that is installed.
_ORDER_ALONE = ("opt_einsum",)


class FrozenBranches:
    """What a tracer warned of, and what the source has done at those lines since.

    Attributes:
        booleans: (file, line) of conditions that were frozen.
        others: likewise of numbers, arrays and loops that were frozen.
    """

    def __init__(self, caught: Iterable[warnings.WarningMessage]) -> None:
        self.booleans: list[tuple[str, int]] = []
        self.others: list[tuple[str, int]] = []
        for warning in caught:
            text, place = str(warning.message), (warning.filename, warning.lineno)
            if warning.filename.startswith(_TORCH) or Path(warning.filename).parent.name in _ORDER_ALONE:
                continue
            into = self.booleans if _BOOLEAN in text else self.others if any(o in text for o in _OTHERS) else None
            if into is not None and place not in into:
                into.append(place)
        self._values: dict[tuple[str, int], dict[int, set[bool]]] = {}
        self._next: dict[tuple[str, int], dict[tuple[CodeType, int], set[int]]] = {}
        self._jumps: dict[CodeType, set[int]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside the block, the source runs and both kinds of evidence are taken: truth values, and jumps taken."""
        if not self.booleans:
            yield
            return
        plain = torch.Tensor.__bool__

        def truth(tensor: torch.Tensor) -> bool:
            value = bool(plain(tensor))
            frame = sys._getframe(1)
            place = frame.f_code.co_filename, frame.f_lineno
            self._values.setdefault(place, {}).setdefault(frame.f_lasti, set()).add(value)
            return value

        before = sys.gettrace()
        torch.Tensor.__bool__ = truth
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)
            torch.Tensor.__bool__ = plain

    def unproven(self) -> list[tuple[str, int]]:
        """Frozen conditions of which only one side was taken, and whose other side does not simply raise."""
        return [p for p in self.booleans if not self._both(p) and not other_side_raises(*p)]

    def _both(self, place: tuple[str, int]) -> bool:
        if place in self._values:
            return all(len(seen) > 1 for seen in self._values[place].values())
        return any(len(targets) > 1 for targets in self._next.get(place, {}).values())

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        lines = {line for file, line in self.booleans if file == frame.f_code.co_filename}
        if event != "call" or not lines:
            return None
        jumps = self._jumps_of(frame.f_code, lines)
        if not jumps:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        last = [-1, 0]

        def local(frame: FrameType, event: str, _: Any) -> Any:
            if event == "opcode":
                if last[0] in jumps:
                    place = (frame.f_code.co_filename, last[1])
                    taken = self._next.setdefault(place, {}).setdefault((frame.f_code, last[0]), set())
                    taken.add(frame.f_lasti)
                last[0], last[1] = frame.f_lasti, frame.f_lineno
            return local

        return local

    def _jumps_of(self, code: CodeType, lines: set[int]) -> set[int]:
        """Offsets of conditional jumps on some lines."""
        if code not in self._jumps:
            found, line = set(), None
            for instruction in dis.get_instructions(code):
                line = instruction.starts_line or line
                if line in lines and "JUMP" in instruction.opname and "IF" in instruction.opname:
                    found.add(instruction.offset)
            self._jumps[code] = found
        return self._jumps[code]


def place_text(place: tuple[str, int]) -> str:
    """ "net.py line 12: if x.sum() > 0:"."""
    file, line = place
    code = linecache.getline(file, line).strip()
    return f"{Path(file).name} line {line}{f': {code}' if code else ''}"


def other_side_raises(file: str, line: int) -> bool:
    """Whether one side of the condition on a line does nothing but raise: an assertion, or a check of the inputs."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or node.lineno):
            return True
        if isinstance(node, ast.If) and node.test.lineno <= line <= (node.test.end_lineno or node.test.lineno):
            return any(side and isinstance(side[-1], ast.Raise) for side in (node.body, node.orelse))
    return False
