"""Change one constant or operator at a time in what decides verdicts, and run the tests that cover it.

    python benchmarks/mutation.py [--only PART ...] [--count 40] [--seed 0] [--minutes N]

A mutant is killed when a test fails, and survives when all pass. Mutants: a number changed (tenfold, or 0 and 1
exchanged), a comparison turned or made strict, + and -, * and /, min and max, and and or exchanged, a `not` or a
returned truth turned. What stands in messages and type hints is left alone. Prints every survivor with its line, and
the share killed for each module. Works on a copy of the tree.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
# Module -> the tests that are to notice.
PARTS: dict[str, tuple[str, ...]] = {
    "validation/equivalence/tolerance_policy.py": (
        "validation/equivalence/test_tolerance_policy.py",
        "validation/equivalence/test_evidence.py",
    ),
    "validation/equivalence/difference.py": (
        "validation/equivalence/test_difference.py",
        "validation/equivalence/test_tolerance_policy.py",
        "validation/equivalence/test_evidence.py",
        "validation/equivalence/test_ties.py",
    ),
    "validation/equivalence/rounding.py": (
        "validation/equivalence/test_evidence.py",
        "validation/equivalence/test_rounding.py",
    ),
    "validation/equivalence/ties.py": ("validation/equivalence/test_ties.py",),
    "validation/equivalence/equivalence_check.py": (
        "validation/equivalence/test_evidence.py",
        "validation/equivalence/test_equivalence_check.py",
        "validation/equivalence/test_compare_runners.py",
    ),
    **{
        f"validation/inputs/{name}.py": (f"validation/inputs/test_{name}.py",)
        for name in ("sizes", "values", "noise", "reach", "structure", "tables", "masked", "observe")
    },
    "validation/inputs/conditions.py": ("validation/inputs/test_conditions.py", "validation/inputs/test_bodies.py"),
    "validation/inputs/bodies.py": ("validation/inputs/test_bodies.py", "validation/inputs/test_conditions.py"),
    "validation/inputs/distances.py": ("validation/inputs/test_conditions.py", "validation/inputs/test_bodies.py"),
    "validation/inputs/moves.py": ("validation/inputs/test_reach.py", "validation/inputs/test_tables.py"),
    "validation/inputs/whole_numbers.py": ("validation/inputs/test_values.py",),
    "conversion/pytorch/floor_division.py": ("conversion/pytorch/test_floor_division.py",),
    "conversion/source_code.py": ("conversion/test_source_code.py",),
    "conversion/pytorch/dynamic_quantized.py": ("conversion/pytorch/test_dynamic_quantized.py",),
    "conversion/pytorch/decided_sizes.py": ("conversion/pytorch/test_decided_sizes.py",),
    "conversion/sklearn/exact_trees.py": ("conversion/sklearn/test_exact_trees.py",),
    "quantization/search/accuracy_budget.py": (
        "quantization/evaluation",
        "quantization/search/test_accuracy_budget.py",
    ),
    "quantization/evaluation/column_noise.py": ("quantization/evaluation",),
    "quantization/evaluation/neighbours.py": ("quantization/evaluation",),
    "quantization/evaluation/output_kind.py": ("quantization/evaluation",),
    "quantization/calibration/range_estimators.py": ("quantization/calibration",),
    "quantization/calibration/channel_ranges.py": ("quantization/calibration",),
    "quantization/calibration/cache.py": (
        "quantization/calibration",
        "quantization/algorithms/test_bias_correction.py",
    ),
    "quantization/search/time_budget.py": ("quantization/search/test_time_budget.py",),
    "quantization/search/choice.py": ("quantization/search/test_choice.py",),
    "quantization/search/neighbourhood.py": ("quantization/search/test_neighbourhood.py",),
    "quantization/search/latency_refinement.py": ("quantization/search/test_latency_refinement.py",),
    "quantization/search/node_cost.py": ("quantization/search",),
    "conversion/pytorch/static_quantized.py": ("conversion/pytorch/test_static_quantized.py",),
    "model/provenance/verify.py": ("model/provenance/test_verify.py",),
    "model/safety/structure.py": ("model/safety/test_structure.py",),
    "model/safety/sparse.py": ("model/safety/test_sparse.py",),
    "model/spec.py": ("model/test_spec.py", "optimization/test_wrong_files.py"),
}
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
        if id(node) in left_alone or not _can_change(node):
            continue
        told = _change(copy.deepcopy(node))
        yield Mutant(place, getattr(node, "lineno", 0), told)


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
    """What is in messages, type hints and the constant of a chunk, which decide nothing."""
    found: set[int] = set()
    for node in ast.walk(tree):
        inner: list[ast.AST] = []
        if isinstance(node, (ast.JoinedStr, ast.Raise)):
            inner = [node]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = node.args
            inner = [a.annotation for a in (*arguments.args, *arguments.kwonlyargs) if a.annotation is not None]
            inner += [d for d in (node.returns, *node.decorator_list) if d is not None]
        elif isinstance(node, ast.ClassDef):
            inner = list(node.decorator_list)
        elif isinstance(node, ast.AnnAssign):
            inner = [node.annotation]
        elif isinstance(node, ast.Assign):
            inner = [node] if any(isinstance(t, ast.Name) and "CHUNK" in t.id for t in node.targets) else []
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


def main() -> int:
    """Print survivors and shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--count", type=int, default=40, help="mutants of each module, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e9)
    asked = parser.parse_args()
    end = time.monotonic() + 60 * asked.minutes
    killed_of_all = tried_of_all = 0
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        for part in ("onnxtool", "tests", "fixtures", "docs"):
            shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", tree / "pyproject.toml")
        for module, tests in PARTS.items():
            if asked.only and not any(word in module for word in asked.only):
                continue
            path = tree / "onnxtool" / module
            original = path.read_text(encoding="utf-8")
            parsed = ast.parse(original)
            found = list(mutants(parsed))
            generator = np.random.default_rng(asked.seed)
            drawn = [found[i] for i in sorted(generator.permutation(len(found))[: asked.count])]
            began = time.monotonic()
            if not passes(tree, tests, 600):
                print(f"{module}: its tests fail as it is", flush=True)
                continue
            limit = 10 + 4 * (time.monotonic() - began)
            killed = tried = 0
            for mutant in drawn:
                if time.monotonic() > end:
                    break
                changed = mutated(parsed, mutant.place)
                path.write_text(ast.unparse(ast.fix_missing_locations(changed)), encoding="utf-8")
                tried += 1
                if passes(tree, tests, limit):
                    line = original.splitlines()[mutant.line - 1].strip()
                    print(f"survived: {module}:{mutant.line} {mutant.told}: {line}", flush=True)
                else:
                    killed += 1
            path.write_text(original, encoding="utf-8")
            killed_of_all, tried_of_all = killed_of_all + killed, tried_of_all + tried
            rows.append(f"| {module} | {len(found)} | {tried} | {killed} |")
            print(rows[-1], flush=True)
    print("| module | mutants | tried | killed |\n|---|---|---|---|")
    print("\n".join(rows))
    print(f"killed {killed_of_all} of {tried_of_all} ({killed_of_all / max(tried_of_all, 1):.1%})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
