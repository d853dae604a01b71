"""What the runtime's kernels compute to an absolute precision only, once more in float64.

Sigmoid is a rational function plus one half and zero below -18; one plus Erf or Tanh cancels where these are near -1.
Small probabilities and the tails of activations (SiLU, GELU, GLU) are off by steps of a number of about one, however
small the result is, and by as many times more as they are multiplied by. Where a graph with exact kernels gives what
the other model gives, the difference is the runtime's and not the graph's.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
from onnx import parser

from onnxtool.equality.rule.rounding import RoundingNoise
from onnxtool.model.ir.queries import attribute, float_constant
from onnxtool.runtime.runner import OnnxRunner, Runner
from onnxtool.runtime.session.session import SessionOptions

_DOMAIN = "onnxtool.exact"
_KERNELS = frozenset(["Sigmoid", "Tanh", "Erf", "Gelu"])
# What hands a factor on; a sum may lose it by its own rounding, which is the graph's fault.
_PRODUCTS = frozenset(["Mul", "Neg", "Identity"])
# erfc(z) by Chebyshev's polynomial, right to 1.2e-7 of itself: Press et al. 2007, "Numerical Recipes", 6.2.2. The
# runtime has no Erf of doubles.
ERFC = (0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368)
_FUNCTIONS = {
    "Erf": f"""(x) => (y) {{
        one = Constant<value = double {{1.0}}>() half = Constant<value = double {{0.5}}>()
        z = Abs(x) halved = Mul(half, z) below = Add(one, halved) t = Div(one, below)
        p0 = Constant<value = double {{{ERFC[0]}}}>()
        {
        " ".join(
            f"m{i} = Mul(p{i}, t) c{i} = Constant<value = double {{{c}}}>() p{i + 1} = Add(m{i}, c{i})"
            for i, c in enumerate(ERFC[1:])
        )
    }
        last = Mul(p{len(ERFC) - 1}, t) offset = Constant<value = double {{-1.26551223}}>() shifted = Add(last, offset)
        square = Mul(z, z) power = Sub(shifted, square) e = Exp(power) erfc = Mul(t, e)
        size = Sub(one, erfc) sign = Sign(x) y = Mul(sign, size) }}""",
    "Gelu": f"""(x) => (y) {{
        root = Constant<value = double {{0.7071067811865476}}>() half = Constant<value = double {{0.5}}>()
        one = Constant<value = double {{1.0}}>()
        u = Mul(root, x) e = {_DOMAIN}.Erf(u) g = Add(one, e) h = Mul(half, x) y = Mul(h, g) }}""",
    "TanhGelu": """(x) => (y) {
        slope = Constant<value = double {0.7978845608028654}>() cubic = Constant<value = double {0.044715}>()
        one = Constant<value = double {1.0}>() half = Constant<value = double {0.5}>()
        square = Mul(x, x) cube = Mul(square, x) c = Mul(cubic, cube) a = Add(x, c) u = Mul(slope, a) t = Tanh(u)
        g = Add(one, t) h = Mul(half, x) y = Mul(h, g) }""",
}


def exact_kernels(
    model: ir.Model,
    load: Callable[[], ir.Model],
    options: SessionOptions,
    around: Callable[[Runner], Runner] = lambda runner: runner,
) -> RoundingNoise | None:
    """A model with exact kernels, made and opened when it is first asked for; None where it has no inexact ones.

    Args:
        model: looked at now and not kept.
        load: gives it once more, to be changed.
        options: how it is run.
        around: makes a Runner of the one that is opened.
    """
    if not any(_kernel_of(node) for graph in model.graphs() for node in graph):
        return None

    def opened() -> Runner:
        exact = load()
        with_exact_kernels(exact)
        return around(OnnxRunner.open(exact, options))

    return RoundingNoise(opened)


def with_exact_kernels(model: ir.Model) -> None:
    """Compute Sigmoid, Tanh, Erf and Gelu, and what they are multiplied by, in float64 in place.

    Args:
        model: is changed; each value keeps its name and type.
    """
    used = {name for graph in model.graphs() for name in _widen(graph)}
    if "Gelu" in used:
        used.add("Erf")
    for name in sorted(used & {*_FUNCTIONS}):
        imports = f'"": {model.opset_imports.get("", 1)}, "{_DOMAIN}": 1'
        text = f'<domain: "{_DOMAIN}", opset_import: [{imports}]> {name} {_FUNCTIONS[name]}'
        function = ir.serde.deserialize_function(parser.parse_function(text))
        model.functions[function.identifier()] = function
        model.opset_imports[_DOMAIN] = 1


def _widen(graph: ir.Graph) -> set[str]:
    """Compute a graph's kernels and products of them in float64; the names of the kernels."""
    wide: dict[ir.Value, ir.Value] = {}  # what a kernel gives, and products of it
    casts: dict[ir.Value, ir.Value] = {}
    used: set[str] = set()
    for node in list(graph):
        kernel = _kernel_of(node)
        if kernel is None and not _hands_on(node, wide):
            continue
        if any(v is None or v.dtype not in (None, ir.DataType.FLOAT) for v in (*node.inputs, *node.outputs)):
            continue
        for value in (v for v in node.inputs if v is not None and v not in wide and v not in casts):
            cast = ir.node("Cast", [value], {"to": ir.DataType.DOUBLE})
            graph.insert_before(node, cast)
            casts[value] = cast.outputs[0]
        given = [wide[v] if v in wide else casts[v] for v in node.inputs if v is not None]
        made = ir.node(kernel or node.op_type, given, domain=_DOMAIN if kernel in _FUNCTIONS else "")
        graph.insert_before(node, made)
        wide[node.outputs[0]] = made.outputs[0]
        # The node gives its result in float32 to whoever else reads it.
        node.op_type = "Cast"
        node.resize_inputs(1)
        node.replace_input_with(0, made.outputs[0])
        node.attributes.clear()
        node.attributes["to"] = ir.AttrInt64("to", ir.DataType.FLOAT)
        used.add(kernel or "")
    return used


def _kernel_of(node: ir.Node) -> str | None:
    if node.domain or node.op_type not in _KERNELS:
        return None
    return "TanhGelu" if attribute(node, "approximate", "none") == "tanh" else node.op_type


def _hands_on(node: ir.Node, wide: dict[ir.Value, ir.Value]) -> bool:
    """Whether a node multiplies a kernel's result, or adds that of Erf or Tanh to one."""
    made = [wide[v].producer() for v in node.inputs if v in wide]
    if node.domain or not made:
        return False
    if node.op_type not in ("Add", "Sub"):
        return node.op_type in _PRODUCTS
    others = [float_constant(v) for v in node.inputs if v is not None and v not in wide]
    ones = [c for c in others if c is not None and c.size == 1 and abs(float(c.reshape(-1)[0])) == 1.0]
    return len(ones) == 1 and all(m is not None and m.op_type in ("Erf", "Tanh") for m in made)
