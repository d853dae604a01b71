"""A recipe applied to a prepared model."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from onnxtool.errors import InputError, UnsupportedError, UsageError
from onnxtool.model.ir.editing import remove_unused
from onnxtool.model.ir.queries import is_op
from onnxtool.quantization.algorithms.bias_correction import correct_biases, measure_shifts
from onnxtool.quantization.algorithms.dynamic import DYNAMIC, is_recurrent, make_dynamic, make_recurrent
from onnxtool.quantization.algorithms.float16 import make_float16, overflowing
from onnxtool.quantization.algorithms.float_fusions import fuse_floats, fuse_gelus
from onnxtool.quantization.algorithms.preprocessing import conditioned, with_channels
from onnxtool.quantization.algorithms.qdq_placement import COMPUTE, QdqPlacement, eligible, is_product, place
from onnxtool.quantization.algorithms.static_qdq import insert_qdq
from onnxtool.quantization.algorithms.weight_only import blockable, make_blocks
from onnxtool.quantization.algorithms.weight_storage import compactable, store_compactly
from onnxtool.quantization.calibration.observer import calibrated, observe
from onnxtool.quantization.diagnostics import nothing_to_quantize, quantized_nodes
from onnxtool.quantization.preprocess.constant_fills import has_filled, refill
from onnxtool.quantization.recipe import NodePlan, QuantRecipe
from onnxtool.runtime.data.source import DataSource

_HOW: dict[str, NodePlan] = {
    "auto": "static",
    "static": "static",
    "dynamic": "dynamic",
    "int4": "blocks",
    "int8": "blocks",
}


def select(graph: ir.Graph, recipe: QuantRecipe) -> dict[str, NodePlan]:
    """Which nodes the recipe quantizes and how, by node name.

    Raises:
        UsageError: an exclusion that matches nothing, or an operator type that cannot be quantized in this mode.
    """
    _check_patterns(graph, recipe)
    if recipe.plan is not None:
        missing = set(recipe.plan) - {node.name for node in graph.all_nodes()}
        if missing:
            raise InputError(f"the recipe is for another model: there is no node {min(missing)!r} in this one.")
        return dict(recipe.plan)
    if recipe.mode == "float16":
        return {}
    kinds = _kinds(recipe)
    how = _HOW[recipe.mode]
    fits = blockable if how == "blocks" else eligible
    # Ranges of tensors inside subgraphs are not measured: there is no way to watch them from outside.
    return {
        node.name or "": how
        for node in (graph if how == "static" else graph.all_nodes())
        if is_op(node, *kinds) and (fits(node) or _fits_otherwise(node, recipe)) and not excluded(node, recipe)
    }


def _fits_otherwise(node: ir.Node, recipe: QuantRecipe) -> bool:
    """Without weights that a kernel for integers multiplies with: attention when asked for, and LSTM."""
    return is_recurrent(node) if recipe.mode == "dynamic" else recipe.attention and is_product(node)


def _kinds(recipe: QuantRecipe) -> tuple[str, ...]:
    possible = {"static": COMPUTE, "dynamic": (*DYNAMIC, "LSTM"), "blocks": DYNAMIC}[_HOW[recipe.mode]]
    for kind in recipe.op_types:
        if kind == "Conv" and recipe.mode == "dynamic":
            raise UsageError(
                "--op Conv: a Conv quantized dynamically (ConvInteger) runs 5 to 10 times slower than float. "
                "Use --mode static with --data."
            )
        if kind not in possible:
            raise UsageError(f"--op {kind}: {recipe.mode} quantization takes {', '.join(possible)}.")
    return recipe.op_types or possible


def excluded(node: ir.Node, recipe: QuantRecipe) -> bool:
    """True when the recipe keeps this node float."""
    return recipe.excludes(node.name or "", tuple(v.name or "" for v in node.outputs))


def _check_patterns(graph: ir.Graph, recipe: QuantRecipe) -> None:
    for pattern in recipe.exclude:
        single = replace(recipe, exclude=(pattern,))
        if not any(excluded(node, single) for node in graph.all_nodes()):
            raise UsageError(f"--exclude {pattern}: no node has that name or such an output after optimization.")


def placement_of(graph: ir.Graph, recipe: QuantRecipe) -> QdqPlacement:
    """Where the recipe's static part puts Q/DQ pairs."""
    plan = select(graph, recipe)
    chosen = [node for node in graph if plan.get(node.name or "") == "static"]
    # Without a zero point there is no saturation that could stand for a HardSigmoid.
    saturated = [node for node in graph if recipe.form and is_op(node, "HardSigmoid")]
    return place(graph, chosen, [*saturated, *(node for node in graph if excluded(node, recipe))])


def calibrate(prepared: ir.Model, recipe: QuantRecipe, data: DataSource | None, threads: int | None) -> QuantRecipe:
    """The recipe with what it needs to know of activations: ranges, magnitudes of channels, shifts of means.

    Raises:
        UsageError: something is needed and there is no data.
    """
    if recipe.mode == "float16":
        return _observe_extremes(prepared, recipe, data, threads)
    recipe = with_channels(prepared, recipe, data, threads)
    model = conditioned(prepared, recipe)
    return _with_shifts(model, _with_ranges(model, recipe, data, threads), data, threads)


def _with_shifts(model: ir.Model, recipe: QuantRecipe, data: DataSource | None, threads: int | None) -> QuantRecipe:
    if not recipe.bias_correction or recipe.shifts is not None:
        return recipe
    if data is None:
        raise UsageError("--bias-correction needs --data: the means of activations have to be measured on real inputs.")
    return replace(recipe, shifts=measure_shifts(model, select(model.graph, recipe), recipe, data, threads))


def _with_ranges(model: ir.Model, recipe: QuantRecipe, data: DataSource | None, threads: int | None) -> QuantRecipe:
    needed = placement_of(model.graph, recipe).observed
    if recipe.ranges is not None and set(needed) <= set(recipe.ranges):
        return recipe
    if not needed:
        return recipe.with_ranges({})
    if data is None:
        raise UsageError(
            "static quantization needs --data: the ranges of activations have to be measured on real inputs. "
            "Random inputs have other ranges than real ones, so that the file would look fine and predict badly."
        )
    seen = observe(model, needed, data, histogram=recipe.method != "minmax", threads=threads)
    return recipe.with_ranges(calibrated(seen, recipe))


def _nothing_to_do(model: ir.Model, recipe: QuantRecipe) -> str:
    kinds = " or ".join(recipe.op_types or _kinds(recipe))
    convs = sum(1 for node in model.graph if node.op_type == "Conv" and eligible(node))
    hint = f" Its {convs} Conv nodes are for --mode static or auto." if convs and _HOW[recipe.mode] != "static" else ""
    inner = recipe.mode == "static" and any(
        n.op_type in DYNAMIC or is_recurrent(n) for n in model.graph.all_nodes() if eligible(n) or is_recurrent(n)
    )
    hint += " --mode dynamic reaches MatMul, Gemm and LSTM in there." if inner else ""
    if compactable(model.graph) and not quantized_nodes(model):
        hint += " --compact 8 stores what weights it has in 8 bits."
    return nothing_to_quantize(model, kinds) + hint


def _observe_extremes(
    prepared: ir.Model, recipe: QuantRecipe, data: DataSource | None, threads: int | None
) -> QuantRecipe:
    """float16 needs to know which tensors leave its range; without data nothing is known of them."""
    if recipe.ranges is not None or data is None:
        return recipe if recipe.ranges is not None else recipe.with_ranges({})
    names = [v.name or "" for node in prepared.graph for v in node.outputs if v.dtype == ir.DataType.FLOAT]
    seen = observe(prepared, names, data, threads=threads, finite=True)
    extremes = {name: max(abs(o.low), abs(o.high)) for name, o in seen.items() if o.low <= o.high}
    large = overflowing(extremes)
    return recipe.with_ranges({name: (-extremes[name], extremes[name]) for name in sorted(large)})


def apply(prepared: ir.Model, recipe: QuantRecipe) -> ir.Model:
    """A quantized copy of a prepared model.

    Args:
        prepared: of `prepare`; left as it is.
        recipe: with ranges for whatever it quantizes statically.

    Raises:
        UnsupportedError: nothing in the model can be quantized this way.
    """
    return apply_conditioned(conditioned(prepared, recipe), recipe)


def apply_conditioned(ready: ir.Model, recipe: QuantRecipe) -> ir.Model:
    """`apply`, to a model that `conditioned` has been over already."""
    model = ready.clone()
    filled = has_filled(model)
    if recipe.mode == "float16":
        make_float16(model, keep_io=recipe.keep_io, too_large=recipe.ranges or {})
        if filled:
            refill(model)
        return model
    plan = select(model.graph, recipe)
    if not plan and not (recipe.compact and compactable(model.graph)):
        raise UnsupportedError(_nothing_to_do(model, recipe))
    placement = placement_of(model.graph, recipe)
    correct_biases(model, recipe.shifts or {})
    dynamic = [node for node in model.graph.all_nodes() if plan.get(node.name or "") == "dynamic"]
    insert_qdq(model.graph, placement, recipe.ranges or {}, recipe)
    make_dynamic(model.graph, [n for n in dynamic if not is_recurrent(n)], recipe)
    make_recurrent(model.graph, [n for n in dynamic if is_recurrent(n)], recipe)
    make_blocks(model.graph, [n for n in model.graph.all_nodes() if plan.get(n.name or "") == "blocks"], recipe)
    model.graph.sort()
    remove_unused(model)
    if not recipe.form:
        fuse_gelus(model)
    fuse_floats(model, recipe.fuse)
    if recipe.compact:
        store_compactly(model, recipe.compact)
    if filled:
        refill(model)
    return model
