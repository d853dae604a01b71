"""Loops over a dynamic size, `for t in range(x.shape[1])`, which torch.export unrolls for one size.

A function in which it meets one is written anew: the body of each loop becomes a function of the variables that it
changes, which `loop_steps` hands to torch's `scan`. Where an item of a step decides a branch, or a variable becomes
larger with each step, nothing is changed: the size stays a number.
"""

from __future__ import annotations
import __future__

import ast
import copy
import gc
import inspect
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar

import torch
from torch._dynamo.output_graph import SubgraphTracer
from torch._higher_order_ops import utils as scan_utils

from onnxtool.conversion.patches import replaced
from onnxtool.conversion.pytorch.patches import loop_steps

_OURS = "_onnxtool_loop_steps"
_IMPORT = f"import {loop_steps.__name__} as {_OURS}"
_BY_NAME = {"range": "numbers", "enumerate": "numbered", "zip": "together", "reversed": "backwards"}
_FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
_RELATIONS: dict[type[ast.cmpop], str] = {  # functions of `operator`
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
_LEAVING = (ast.Break, ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Nonlocal, ast.Global, ast.Delete)

Written = TypeVar("Written", bound=ast.mod)


class LoopFoundError(BaseException):
    """A function meets a loop over a dynamic size, and can be written anew; torch has to pass this on at once."""

    def __init__(self, function: FunctionType, code: CodeType) -> None:
        super().__init__(function.__qualname__)
        self.function, self.code = function, code


class FollowedLoops:
    """The functions whose loops are followed in an export."""

    def __init__(self) -> None:
        self._codes: dict[FunctionType, CodeType] = {}
        self._looks, self._met = True, False

    def changed(self, failed: Sequence[BaseException]) -> bool:
        """After an export failed: whether to try again, with one loop more or, if it met any, with none."""
        found = next((error for error in failed if isinstance(error, LoopFoundError)), None)
        if found is not None and found.function not in self._codes:
            self._codes[found.function], self._met = found.code, True
            return True
        again, self._codes, self._looks = self._looks and self._met, {}, False
        return again

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside the block, these functions follow their loops, and others that meet one are found.

        Raises:
            LoopFoundError: one is.
        """
        with ExitStack() as stack:
            for function, code in self._codes.items():
                stack.callback(setattr, function, "__code__", function.__code__)
                function.__code__ = code
            if self._codes:
                # torch's `scan` refuses to read two views of one tensor, lest a step writes into one: ours write into
                # copies, and torch looks for what is written on its own.
                stack.enter_context(replaced(SubgraphTracer, "has_aliasing", _has_aliasing))
                stack.enter_context(replaced(scan_utils, "_check_alias_and_mutation", lambda *_, **__: None))
            if self._looks:
                pieces = self._pieces_of
                for owner, name, replacement in (
                    (torch.Tensor, "unbind", lambda tensor, dim=0: pieces(tensor, dim)),
                    (torch, "unbind", pieces),
                    (torch.Tensor, "__iter__", lambda tensor: iter(pieces(tensor))),
                ):
                    stack.enter_context(replaced(owner, name, replacement))
                stack.enter_context(replaced(loop_steps, "look", look))
            yield

    def _pieces_of(self, tensor: torch.Tensor, dim: int = 0) -> Any:
        parts = loop_steps.pieces(tensor, dim)  # what is none of a loop makes a number of the size as ever
        self._met |= isinstance(parts, loop_steps.Dynamic)
        return parts


_HAS_ALIASING = SubgraphTracer.has_aliasing


def _has_aliasing(tracer: SubgraphTracer) -> Any:
    """Whether a step gives what it was given, or one thing twice."""
    found = _HAS_ALIASING(tracer)
    return type(found)(False, "") if found.msg.startswith("Input-to-input") else found


def look() -> None:
    """Called where a dynamic size is about to be made a number: by a loop that can be followed?

    Raises:
        LoopFoundError: it is.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("torch", "onnxtool"):
        frame = frame.f_back
    if frame is None:
        return
    function = _function_of(frame)
    code = _rewritten(frame.f_code, frame.f_lineno) if function is not None else None
    if function is not None and code is not None:
        raise LoopFoundError(function, code)


def _function_of(frame: FrameType) -> FunctionType | None:
    """What runs in a frame: by its name, or, where it is wrapped or inside of another, by what refers to its code."""
    found: Any = frame.f_globals
    for name in frame.f_code.co_qualname.split("."):
        found = found.get(name) if isinstance(found, dict) else inspect.getattr_static(found, name, None)
    named = inspect.unwrap(getattr(found, "__func__", found)) if found is not None else None
    functions = (f for f in (named, *gc.get_referrers(frame.f_code)) if isinstance(f, FunctionType))
    return next((f for f in functions if f.__code__ is frame.f_code), None)


def _rewritten(code: CodeType, line: int) -> CodeType | None:
    """A function's code with its loops as steps; None where none of them begins at a line, or its source is unknown."""
    try:
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError):
        return None
    body = tree.body[0]
    if not isinstance(body, ast.FunctionDef):
        return None
    ast.increment_lineno(tree, first - 1)
    body.decorator_list = []
    loops = _Loops(body)
    loops.generic_visit(body)
    if not any(begin <= line <= end for begin, end in loops.headers):
        return None
    body.body.insert(0, ast.parse(_IMPORT).body[0])
    outer = ast.parse(f"def outer({', '.join(code.co_freevars)}):\n pass")
    assert isinstance(outer.body[0], ast.FunctionDef)
    outer.body[0].body = [body]
    ast.fix_missing_locations(outer)
    whole = compile(outer, code.co_filename, "exec", code.co_flags & _FUTURE, dont_inherit=True)
    made = next(c for c in _codes_in(_codes_in(whole)[0]) if c.co_name == code.co_name)
    return made if made.co_freevars == code.co_freevars else None


def _codes_in(code: CodeType) -> list[CodeType]:
    return [c for c in code.co_consts if isinstance(c, CodeType)]


class _Loops(ast.NodeTransformer):
    """Writes loops anew.

    Attributes:
        headers: first and last lines of what each of them goes through.
    """

    def __init__(self, function: ast.FunctionDef) -> None:
        loops = [n for n in ast.walk(function) if isinstance(n, ast.For)]
        items = {id(n) for loop in loops for n in _loads_in(*loop.body) if n.id in _names_in(loop.target)}
        self._loads = [n for n in _loads_in(function) if id(n) not in items]
        self.headers: list[tuple[int, int]] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Functions inside are left alone."""
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """Likewise."""
        return node

    def visit_For(self, node: ast.For) -> Any:
        """`a, b = loop(step, items, (a, b))`, with the body in a function in front."""
        inside = [n for part in node.body for n in ast.walk(part)]
        targets = _names_in(node.target)
        names = sorted(_changed(node) - targets)
        self.generic_visit(node)
        if node.orelse or any(isinstance(n, _LEAVING) for n in inside) or _goes_on(node.body):
            return node
        self._note(node, node.iter)
        own = {id(n) for n in inside}
        used = {n.id for n in self._loads if id(n) not in own}
        indices = _Indices(_numbers_in(node.target, node.iter))
        body = [indices.visit(part) for part in node.body]
        step = f"_onnxtool_step_{len(self.headers)}"
        values = "".join(f"{name}, " for name in names)
        before = "".join(f"{_OURS}.value(lambda: {name}), " for name in names)
        item = ast.unparse(node.target) if targets & used else "_onnxtool_item"
        made = ast.parse(
            f"def {step}(_onnxtool_item, {values}):\n return ({values})\n"
            f"({values}{item},) = {_OURS}.loop({step}, None, ({before}), ({''.join(f'{n in used}, ' for n in names)}))"
        )
        function, call = _placed(made, node).body
        assert isinstance(function, ast.FunctionDef) and isinstance(call, ast.Assign)
        assert isinstance(call.value, ast.Call)
        function.body[:0] = [ast.Assign([node.target], ast.Name("_onnxtool_item", ast.Load())), *body]
        call.value.args[1] = _Items().visit(node.iter)
        return [ast.fix_missing_locations(ast.copy_location(part, node)) for part in (function, call)]

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        """`collect(make, items)`."""
        self.generic_visit(node)
        first, *others = node.generators
        if others or first.ifs or first.is_async:
            return node
        self._note(node, first.iter)
        made = "lambda _onnxtool_item: [0 for _ in (_onnxtool_item,)][0]"
        call = _placed(ast.parse(f"{_OURS}.collect({made}, None)", mode="eval"), node).body
        assert isinstance(call, ast.Call) and isinstance(call.args[0], ast.Lambda)
        chosen = call.args[0].body
        assert isinstance(chosen, ast.Subscript) and isinstance(chosen.value, ast.ListComp)
        chosen.value.elt = _Indices(_numbers_in(first.target, first.iter)).visit(node.elt)
        chosen.value.generators[0].target = first.target
        call.args[1] = _Items().visit(first.iter)
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def _note(self, node: ast.expr | ast.stmt, items: ast.expr) -> None:
        self.headers.append((min(node.lineno, items.lineno), items.end_lineno or items.lineno))


def _placed(made: Written, node: ast.AST) -> Written:
    """What was written for a node, all of it on its line."""
    for part in ast.walk(made):
        ast.copy_location(part, node)
    return made


def _loads_in(*nodes: ast.AST) -> list[ast.Name]:
    inside = (n for node in nodes for n in ast.walk(node))
    return [n for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]


def _names_in(target: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}


def _numbers_in(target: ast.expr, items: ast.expr) -> set[str]:
    """The name that is the number of a step: in `for i in range(...)` and `for i, x in enumerate(...)`."""
    called = items.func.id if isinstance(items, ast.Call) and isinstance(items.func, ast.Name) else ""
    if called == "enumerate" and isinstance(target, ast.Tuple):
        target = target.elts[0]
    return {target.id} if called in ("range", "enumerate") and isinstance(target, ast.Name) else set()


def _goes_on(body: list[ast.stmt]) -> bool:
    """Whether `continue` ends a step of this loop, and none of one inside."""
    pending: list[ast.AST] = [*body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Continue):
            return True
        if not isinstance(node, ast.For | ast.While):
            pending.extend(ast.iter_child_nodes(node))
    return False


def _changed(loop: ast.For) -> set[str]:
    """Names that a loop assigns, or of whose values it changes items."""
    found: set[str] = set()
    pending: list[ast.AST] = [loop.target, *loop.body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
            continue
        if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            found.add(node.value.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found |= _written_by(node.func)
        pending.extend(ast.iter_child_nodes(node))
    return found


def _written_by(method: ast.Attribute) -> set[str]:
    """The name of what a method changes: `h` of `h.mul_(0.5).add_(x)`, `made` of `made.append(h)`."""
    owner: ast.expr = method
    while isinstance(owner, ast.Attribute | ast.Call):
        owner = owner.value if isinstance(owner, ast.Attribute) else owner.func
    writes = method.attr == "append" or (method.attr.endswith("_") and not method.attr.endswith("__"))
    return {owner.id} if writes and isinstance(owner, ast.Name) else set()


class _Items(ast.NodeTransformer):
    """Writes what a loop goes through in functions that take dynamic sizes."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = _BY_NAME.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if name is not None:
            node.func = _of_ours(name)
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "unbind":
            owner = node.func.value
            of_torch = isinstance(owner, ast.Name) and owner.id == "torch"
            node.args = node.args if of_torch else [owner, *node.args]
            node.func = _of_ours("pieces")
        return ast.fix_missing_locations(node)


class _Indices(ast.NodeTransformer):
    """Writes what is read, written and decided at the number of a step in functions that take a tensor for it."""

    def __init__(self, numbers: set[str]) -> None:
        self._numbers = numbers

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "select" and not node.keywords:
            node.args, node.func = [node.func.value, *node.args], _of_ours("part")
        return ast.fix_missing_locations(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        relation = _RELATIONS.get(type(node.ops[0]))
        of_step = isinstance(node.left, ast.Name) and node.left.id in self._numbers
        if len(node.ops) > 1 or relation is None or not of_step:
            return node
        given = [node.left, ast.Constant(relation), node.comparators[0]]
        return ast.copy_location(ast.Call(_of_ours("compared"), given, []), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        return ast.copy_location(ast.Call(_of_ours("element"), [node.value, _as_value(node.slice)], []), node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        target = node.targets[0]
        if len(node.targets) > 1 or not isinstance(target, ast.Subscript):
            return node
        owner = copy.copy(target.value)
        call = ast.Call(_of_ours("put"), [owner, _as_value(target.slice), node.value], [])
        return ast.copy_location(ast.Expr(call), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        target, names = node.target, {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
        if not isinstance(target, ast.Subscript) or not names & self._numbers:
            return self.generic_visit(node)
        before = ast.Subscript(copy.deepcopy(target.value), copy.deepcopy(target.slice), ast.Load())
        after = ast.BinOp(before, node.op, node.value)
        return self.visit_Assign(ast.copy_location(ast.Assign([target], ast.copy_location(after, node)), node))


def _as_value(index: ast.expr) -> ast.expr:
    """An index as an expression: `1:, t` -> `(slice(1, None), t)`."""
    if isinstance(index, ast.Tuple):
        return ast.Tuple([_as_value(part) for part in index.elts], ast.Load())
    if isinstance(index, ast.Slice):
        width = _width(index)
        if width is not None and index.lower is not None:
            return ast.Call(_of_ours("window"), [index.lower, width], [])
        parts = [part or ast.Constant(None) for part in (index.lower, index.upper, index.step)]
        return ast.Call(ast.Name("slice", ast.Load()), parts, [])
    return index


def _width(index: ast.Slice) -> ast.expr | None:
    """Of `t : t + 3` and `3 * t : 3 * t + 3` the 3."""
    begin, end = index.lower, index.upper
    if index.step is not None or begin is None or isinstance(begin, ast.Constant):
        return None
    adds = isinstance(end, ast.BinOp) and isinstance(end.op, ast.Add) and ast.dump(end.left) == ast.dump(begin)
    return end.right if adds and isinstance(end, ast.BinOp) else None


def _of_ours(name: str) -> ast.expr:
    return ast.Attribute(ast.Name(_OURS, ast.Load()), name, ast.Load())
