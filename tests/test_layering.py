"""The layers of docs/architecture.md: a module imports only from its own package and from layers below."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent / "onnxtool"
LAYERS = {
    "errors": 0,
    "progress": 0,
    "report": 0,
    "options": 0,
    "_lazy_imports": 0,
    "bundled_data": 1,
    "user_code": 1,
    "keyword_options": 1,
    "installed_extensions": 1,
    "model": 1,
    "runtime": 2,
    "equality": 3,
    "lint": 3,
    "benchmark": 4,
    "optimization": 4,
    "quantization": 5,
    "conversion": 5,
    "generation": 6,
    "packaging": 7,
    "serving": 7,
    "words": 7,
    "extension": 8,
    "editing": 5,
    "walkthrough": 8,
    "workflow": 8,
    "cli": 9,
}
# Names of parts of two reports each, which their JSON schemas promise; and a build step that runs `edit`.
TWICE = {"EditStep", "Proof", "Stage"}
# The package's own front door: versions and lazily imported functions.
FRONT = {"__init__", "__main__"}


def package(module: str) -> str:
    """The folder or file right under onnxtool that a dotted module belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[str]:
    """Dotted onnxtool modules that a file imports, at any depth."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "onnxtool":
            if node.module == "onnxtool":
                yield from (f"onnxtool.{alias.name}" for alias in node.names if alias.name != "__version__")
            else:
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "onnxtool")


def imported_modules(path: Path, known: Container[str]) -> Iterator[str]:
    """Which of the known modules a file imports anywhere; a name of a package may be one of them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else node.module for name in inside)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def import_circle(root: Path, files: Iterable[Path]) -> list[str]:
    """Modules of which each is imported by the next, imports inside functions and of types included; [] for none."""
    found = {".".join(p.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): p for p in files}
    graph = {
        name: {m for m in imported_modules(path, found) if m in found and m != name} for name, path in found.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def modules() -> list[Path]:
    return sorted(p for p in ROOT.rglob("*.py") if p.relative_to(ROOT).parts[0].removesuffix(".py") not in FRONT)


def test_imports_only_from_its_own_package_and_below() -> None:
    wrong = []
    for path in modules():
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for module in imports(path):
            other = package(module)
            if other != own and LAYERS[other] >= LAYERS[own]:
                wrong.append(f"{path.relative_to(ROOT)} ({own}) imports {module}")
    assert not wrong, "\n".join(wrong)


def test_never_uses_relative_imports() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} line {node.lineno}"
        for path in modules()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert import_circle(ROOT.parent, modules()) == []


def test_notices_a_circle_of_an_import_inside_a_function(tmp_path: Path) -> None:
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("import other\n", encoding="utf-8")
    other.write_text("def f():\n    from one import g\n", encoding="utf-8")
    assert set(import_circle(tmp_path, [one, other])) == {"one", "other"}
    other.write_text("def f():\n    from two import g\n", encoding="utf-8")
    assert import_circle(tmp_path, [one, other]) == []


def test_no_class_name_stands_twice() -> None:
    names = Counter(
        node.name
        for path in modules()
        if "templates" not in path.parts  # other programs
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} <= TWICE


def test_notices_an_import_upwards(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from onnxtool.cli import app\n", encoding="utf-8")
    assert [package(m) for m in imports(bad)] == ["cli"]


def test_nothing_below_the_command_line_prints() -> None:
    for path in modules():
        if path.relative_to(ROOT).parts[0] == "cli" or "templates" in path.parts:  # templates are other programs
            continue
        for node in ast.walk(parsed(path)):
            is_print = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            assert not is_print, f"{path} line {getattr(node, 'lineno', '?')} prints"


def test_the_runtimes_own_tools_are_left_alone() -> None:
    """Its symbolic shape inference, for one, leaves a file in the working folder when it fails."""
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(parsed(path)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for name in names:
                assert not name.startswith(
                    ("onnxruntime.tools", "onnxruntime.transformers", "onnxruntime.quantization")
                ), f"{path} line {node.lineno} imports {name}"
