"""Change one constant or operator at a time in what decides verdicts, and run the tests that cover it.

    python benchmarks/mutation.py MODULE ... [--tests PATH ...] [--count 40] [--seed 0] [--minutes N] [--fresh]

MODULE is a file or folder of `onnxtool/`; without --tests, a file is covered by the one of its name in `tests/`, or by
the folder of its place where there is none. A mutant is killed when a test fails, and survives when all pass. Mutants:
a number changed (tenfold, or 0 and 1 exchanged), a comparison turned or made strict, + and -, * and /, min and max, and
and or exchanged, a `not` or a returned truth turned. What stands in messages, type hints and assertions is left alone,
and so are seeds, in how many parts an array is looked at, and `strict=True` of a `zip`, which says that two lists are
always of one length. Prints every survivor with its line, and the share killed for each module. Works on a copy of the
tree.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}


@dataclass(frozen=True)
class Mutant:
    """One change.

    Attributes:
        place: of the node, in the order of `ast.walk`.
        line: in the file.
        told: what is changed.
    """

    place: int
    line: int
    told: str


@dataclass
class Counts:
    """How many mutants were tried, and how many of them a test noticed."""

    tried: int = 0
    killed: int = 0


def mutated(tree: ast.AST, place: int) -> ast.AST:
    """A copy of a module with one node changed."""
    changed = copy.deepcopy(tree)
    for index, node in enumerate(ast.walk(changed)):
        if index == place:
            _change(node)
            break
    return changed


def _change(node: ast.AST) -> str:
    if isinstance(node, ast.Compare):
        before = type(node.ops[0])
        node.ops[0] = _COMPARED[before]()
        return f"{before.__name__} -> {_COMPARED[before].__name__}"
    if isinstance(node, ast.BinOp):
        kind = type(node.op)
        node.op = _COMPUTED[kind]()
        return f"{kind.__name__} -> {_COMPUTED[kind].__name__}"
    if isinstance(node, ast.BoolOp):
        is_and = isinstance(node.op, ast.And)
        node.op = ast.Or() if is_and else ast.And()
        return "and -> or" if is_and else "or -> and"
    if isinstance(node, ast.UnaryOp):
        node.operand = ast.UnaryOp(ast.Not(), node.operand)
        return "not -> not not"
    if isinstance(node, ast.Name):
        before_name, node.id = node.id, _NAMES[node.id]
        return f"{before_name} -> {node.id}"
    if isinstance(node, ast.Attribute):
        before_name, node.attr = node.attr, _NAMES[node.attr]
        return f"{before_name} -> {node.attr}"
    assert isinstance(node, ast.Constant)
    before_value = node.value
    if isinstance(node.value, bool):
        node.value = not node.value
    else:
        assert isinstance(node.value, (int, float))
        node.value = {0: 1, 1: 0}.get(node.value, node.value * 10)  # type: ignore[call-overload]
    return f"{before_value} -> {node.value}"


def mutants(tree: ast.AST) -> Iterator[Mutant]:
    """Every change that can be made."""
    left_alone = _left_alone(tree)
    for place, node in enumerate(ast.walk(tree)):
        if id(node) not in left_alone and _can_change(node):
            yield Mutant(place, getattr(node, "lineno", 0), _change(copy.deepcopy(node)))


def _can_change(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return type(node.ops[0]) in _COMPARED
    if isinstance(node, ast.BinOp):
        return type(node.op) in _COMPUTED and not isinstance(node.left, (ast.JoinedStr, ast.List))
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if isinstance(node, ast.Name):
        return node.id in _NAMES
    if isinstance(node, ast.Attribute):
        return node.attr in _NAMES
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (bool, int, float))
    return isinstance(node, ast.BoolOp)


def _left_alone(tree: ast.AST) -> set[int]:
    """What is in messages, type hints, assertions, seeds and the constant of a chunk, which decide nothing."""
    found: set[int] = set()
    for node in ast.walk(tree):
        inner: list[ast.AST] = []
        if isinstance(node, (ast.JoinedStr, ast.Raise, ast.Assert)):
            inner = [node]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = node.args
            own = (*arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
            inner = [a.annotation for a in own if a is not None and a.annotation is not None]
            inner += [
                d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d and a.arg == "seed"
            ]
            inner += [d for d in (node.returns, *node.decorator_list) if d is not None]
        elif isinstance(node, ast.ClassDef):
            inner = list(node.decorator_list)
        elif isinstance(node, ast.AnnAssign):
            inner = [node.annotation]
        elif isinstance(node, ast.Assign):
            inner = [node] if any(isinstance(t, ast.Name) and "CHUNK" in t.id for t in node.targets) else []
        elif isinstance(node, ast.Call):
            inner = [k for k in node.keywords if k.arg in ("strict", "repr")]
        elif isinstance(node, ast.BinOp):
            names = {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}
            inner = [node] if names & {"seed", "_CHUNK"} else []
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            inner = [node]
        found |= {id(x) for i in inner for x in ast.walk(i)}
    return found


def passes(tree: Path, tests: tuple[str, ...], seconds: float) -> bool:
    """Whether the tests pass on a copy of the tree; taking too long counts as failing."""
    paths = [str(tree / "tests" / t) for t in tests]
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *paths]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


class WarmTests:
    """Tests that run in processes forked from this one, which has imported the libraries that they use.

    Only the tree's own modules are imported by each. Time limits are in processor time, so that other work on the
    machine kills no mutant.
    """

    def __init__(self, tree: Path, tests: tuple[str, ...]) -> None:
        self._tree = tree
        self._paths = [str(tree / "tests" / t) for t in tests]
        self._seconds = 600

    def pass_unchanged(self) -> bool:
        """Whether the tests pass as things are; imports what they import, and takes the time limit from it."""
        listed = self._tree / "imported.txt"
        if self._run(listed) != 0:
            return False
        for name in listed.read_text(encoding="utf-8").split():
            if name not in sys.modules:
                with suppress(Exception), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    importlib.import_module(name)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = used.ru_utime + used.ru_stime
        passed = self._run() == 0
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._seconds = 5 + int(4 * (used.ru_utime + used.ru_stime - began))
        return passed

    def passes(self) -> bool:
        """Whether they pass; taking too long counts as failing."""
        return self._run() == 0

    def _run(self, listed: Path | None = None) -> int:
        child = os.fork()
        if child == 0:
            self._become(listed)
        deadline = time.monotonic() + 10 * self._seconds
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return -1

    def _become(self, listed: Path | None) -> NoReturn:
        """Run the tests; name what they import in the file `listed`."""
        code = 99
        try:
            os.setsid()
            os.chdir(self._tree)
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
            resource.setrlimit(resource.RLIMIT_CPU, (self._seconds, self._seconds + 5))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.environ["PYTHONPATH"] = str(self._tree)
            # Mutants are written within one second of another: cached code would be taken for theirs.
            sys.dont_write_bytecode = True
            sys.path[:] = [str(self._tree), *(p for p in sys.path if p not in (str(ROOT), str(ROOT / "benchmarks")))]
            options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(self._tree)]
            options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of plugins that are there already
            code = int(pytest.main([*options, *self._paths]))
            if listed is not None:
                own = ("onnxtool", "tests", "conftest", "__main__")
                names = [n for n in sys.modules if n.partition(".")[0] not in own and not n.startswith("test_")]
                listed.write_text("\n".join(names), encoding="utf-8")
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def covering(path: Path) -> tuple[str, ...]:
    """The tests of a module, from `tests/`: the file of its name, else the folder of its place."""
    place = path.relative_to(ROOT / "onnxtool").parent
    own = place / f"test_{path.stem}.py"
    return (str(own if (ROOT / "tests" / own).exists() else place),)


def main() -> int:
    """Print survivors and shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+", type=Path)
    parser.add_argument("--tests", nargs="*", help="from tests/, in place of those of each module")
    parser.add_argument("--count", type=int, default=40, help="mutants of each module, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--fresh", action="store_true", help="a new Python for each mutant, many times slower")
    asked = parser.parse_args()
    end = time.monotonic() + 60 * asked.minutes
    files = [f for m in asked.modules for f in (sorted(m.rglob("*.py")) if m.is_dir() else [m])]
    rows: list[tuple[str, int, Counts]] = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        for part in ("onnxtool", "tests", "fixtures", "docs", "examples", "benchmarks"):
            shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", tree / "pyproject.toml")
        for file in files:
            tests = tuple(asked.tests or covering(file.resolve()))
            module = str(file.resolve().relative_to(ROOT))
            path = tree / module
            original = path.read_text(encoding="utf-8")
            parsed = ast.parse(original)
            found = list(mutants(parsed))
            generator = np.random.default_rng(asked.seed)
            drawn = [found[i] for i in sorted(generator.permutation(len(found))[: asked.count])]
            began = time.monotonic()
            warm = None if asked.fresh else WarmTests(tree, tests)
            if not (passes(tree, tests, 600) if warm is None else warm.pass_unchanged()):
                print(f"{module}: its tests fail as it is", flush=True)
                continue
            limit = 10 + 4 * (time.monotonic() - began)
            counts = Counts()
            for mutant in drawn:
                if time.monotonic() > end:
                    break
                changed = mutated(parsed, mutant.place)
                path.write_text(ast.unparse(ast.fix_missing_locations(changed)), encoding="utf-8")
                counts.tried += 1
                if passes(tree, tests, limit) if warm is None else warm.passes():
                    line = original.splitlines()[mutant.line - 1].strip()
                    print(f"survived: {module}:{mutant.line} {mutant.told}: {line}", flush=True)
                else:
                    counts.killed += 1
            path.write_text(original, encoding="utf-8")
            rows.append((module, len(found), counts))
            print(_row(*rows[-1]), f"{time.monotonic() - began:.0f} s", flush=True)
    print("| module | mutants | killed |\n|---|---|---|")
    print("\n".join(_row(*row) for row in rows))
    killed, tried = sum(r[2].killed for r in rows), sum(r[2].tried for r in rows)
    print(f"killed {killed} of {tried} ({killed / max(tried, 1):.1%})")
    return 0


def _row(module: str, found: int, counts: Counts) -> str:
    return f"| {module} | {found} | {counts.killed} of {counts.tried} |"


if __name__ == "__main__":
    sys.exit(main())
