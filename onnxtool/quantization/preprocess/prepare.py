"""Before quantizing: a graph in which weights are initializers, nodes have names and the opset has Q/DQ per axis."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common

from onnxtool.errors import UnsupportedError
from onnxtool.model.ir.editing import inline_functions, insert, new_initializer, remove_unused, replace_value
from onnxtool.model.ir.queries import attribute, constant_array, float_constant, is_op
from onnxtool.optimization.constant_evaluation import CannotEvaluateError, evaluate
from onnxtool.optimization.normalize import rename_nodes
from onnxtool.optimization.opset import convert_opset
from onnxtool.optimization.pipeline import optimize_model
from onnxtool.optimization.type_inference import light_proto
from onnxtool.quantization.preprocess.constant_fills import note_filled
from onnxtool.quantization.preprocess.fold_affine import fold_affine
from onnxtool.quantization.preprocess.loop_constants import lift_loop_constants
from onnxtool.quantization.preprocess.widen_half import widen_half
from onnxtool.runtime.worker.isolation import guarded

MINIMUM_OPSET = 13  # QuantizeLinear and DequantizeLinear with an axis
# What exporters put between a weight and its layer, and what does not make it larger.
_MOVERS = ("Identity", "Transpose", "Cast", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Slice", "Concat")


def prepare(model: ir.Model, level: str = "extended", *, half: bool = False) -> ir.Model:
    """A float model made ready: functions inlined, in float32, optimized, weights lifted, opset raised, nodes named.

    The names of nodes and tensors depend on the model alone, so that a recipe can refer to them.

    Args:
        model: left as it is.
        level: graph optimizations to make first; "none" for none of them.
        half: what is computed in float16 stays so.
    """
    ready = model.clone()
    inline_functions(ready)
    # Before the opset is raised: that leaves large initializers alone, but copies what is in Constant nodes.
    _lift_constants(ready)
    if not half:
        widen_half(ready)
    ready = _raised(ready)
    if level != "none":
        optimize_model(ready, level, exact=False)
    _lift_constants(ready)
    note_filled(ready)
    lift_loop_constants(ready)
    _fold_moved_weights(ready)
    _absorb_gemm_factors(ready)
    _pool_means(ready)
    _open_hard_swish(ready)
    fold_affine(ready)
    remove_unused(ready)
    _name_nodes(ready)
    return ready


def _lift_constants(model: ir.Model) -> None:
    common.LiftConstantsToInitializersPass(lift_all_constants=False, size_limit=0)(model)


def _raised(model: ir.Model) -> ir.Model:
    """The model at an opset that has per-axis Q/DQ."""
    version = model.opset_imports.get("", MINIMUM_OPSET)
    if version >= MINIMUM_OPSET:
        return model
    light, _ = light_proto(model)
    try:
        with guarded("raising the opset", light.ByteSize()):
            return convert_opset(model, MINIMUM_OPSET)
    except UnsupportedError:
        # Operators between these opsets changed little: saying the newer version holds for nearly every model,
        # and the runtime's own check of the result, before anything is written, tells when it does not.
        model.opset_imports[""] = MINIMUM_OPSET
        return model


def _fold_moved_weights(model: ir.Model) -> None:
    """Weights behind Identity, Transpose, Cast, a reshape, Slice or Concat become initializers of their own.

    In subgraphs too, into which the optimizer does not look: exporters reorder the gates of a LSTM there.
    """
    for graph in list(model.graphs()):
        for node in list(graph):
            if not is_op(node, *_MOVERS) or node.outputs[0].is_graph_output():
                continue
            arrays = [None if v is None else constant_array(v) for v in node.inputs]
            if any(a is None and v is not None for a, v in zip(arrays, node.inputs, strict=True)):
                continue
            try:
                (moved,) = evaluate(node, arrays, model.opset_imports)
            except CannotEvaluateError:
                continue
            if moved is None:
                continue
            value = new_initializer(graph, f"{node.outputs[0].name}_folded", moved)
            ir.convenience.replace_all_uses_with(node.outputs[0], value)
            graph.remove(node, safe=True)


def _absorb_gemm_factors(model: ir.Model) -> None:
    """Alpha and beta go into constant weights and bias: the integer Gemm takes no beta."""
    for node in model.graph:
        if not is_op(node, "Gemm"):
            continue
        alpha, beta = float(attribute(node, "alpha", 1.0)), float(attribute(node, "beta", 1.0))
        for index, name, factor in ((1, "alpha", alpha), (2, "beta", beta)):
            value = node.inputs[index] if len(node.inputs) > index else None
            array = float_constant(value)
            if factor == 1.0 or value is None or array is None:
                continue
            scaled = new_initializer(model.graph, f"{value.name}_scaled", array * np.float32(factor))
            node.replace_input_with(index, scaled)
            node.attributes[name] = ir.AttrFloat32(name, 1.0)


def _pool_means(model: ir.Model) -> None:
    """The mean over height and width becomes GlobalAveragePool, which has an integer kernel and a blocked float one."""
    for node in list(model.graph):
        source = node.inputs[0] if node.inputs else None
        if not is_op(node, "ReduceMean") or source is None or source.shape is None or len(source.shape) != 4:
            continue
        axes = attribute(node, "axes") if len(node.inputs) < 2 else constant_array(node.inputs[1])
        if axes is None or sorted(int(a) % 4 for a in axes) != [2, 3]:
            continue
        result = node.outputs[0]
        name = result.name or node.name or "mean"
        (pooled,) = insert(node, "GlobalAveragePool", [source], [f"{name}_pooled"])
        pooled.type, pooled.shape = source.type, ir.Shape([*list(source.shape)[:2], 1, 1])
        if not attribute(node, "keepdims", 1):
            (pooled,) = insert(node, "Flatten", [pooled], [f"{name}_flat"], {"axis": 1})
        replace_value(node, pooled)


def _open_hard_swish(model: ir.Model) -> None:
    """HardSwish(x) becomes x * HardSigmoid(x), as the runtime runs it anyway: both parts have integer forms."""
    for node in list(model.graph):
        source = node.inputs[0] if node.inputs else None
        if not is_op(node, "HardSwish") or source is None:
            continue
        name = node.outputs[0].name or node.name or "hard_swish"
        (gate,) = insert(node, "HardSigmoid", [source], [f"{name}_gate"], {"alpha": 1 / 6, "beta": 0.5})
        gate.type, gate.shape = source.type, source.shape
        replace_value(node, insert(node, "Mul", [source, gate], [f"{name}_product"])[0])


def _name_nodes(model: ir.Model) -> None:
    """Every node gets a name of its own, in subgraphs too: its first output's where it has none."""
    for node in model.graph.all_nodes():
        node.name = node.name or f"{node.op_type}_{node.outputs[0].name}"
    rename_nodes(model)
