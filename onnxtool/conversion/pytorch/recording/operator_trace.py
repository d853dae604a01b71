"""What a module computes, written down as ONNX nodes while its own Python code runs at fixed sizes.

This is the source's side of a certificate: no exporter of torch takes part. torch's dispatcher reports each operator
that the code calls (`make_fx`), at the sizes of the input given, and `aten_operators` has an ONNX form for each. A
branch on the data cannot be written down, and is refused.
"""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import onnx_ir as ir
import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from onnxtool.conversion.pytorch.patches.distributions import unchecked_distributions
from onnxtool.conversion.pytorch.recording.aten_operators import (
    MOVES,
    OPERATORS,
    UNWRITTEN,
    TraceWriter,
    UnknownOperatorError,
    as_example,
    moved,
)
from onnxtool.conversion.pytorch.recording.attention import attention
from onnxtool.errors import OnnxToolError, UnsupportedError, one_line
from onnxtool.model.spec import TensorSpec

_READS_DATA = re.compile(r"get value out of a tracing tensor|data-dependent|_local_scalar_dense")
# torch's own kernels of these layers are made of operators; its decompositions in Python write in place.
_FUSED_ATTENTION = torch.nn.functional.scaled_dot_product_attention
_LAYERS = dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"))
_ATEN = torch.ops.aten
# Operators of torch's core set that are written as what torch makes of them all the same.
_TAKEN_APART = (
    *(_ATEN.addmm, _ATEN.linalg_vector_norm, _ATEN.native_layer_norm, _ATEN.native_group_norm, _ATEN.native_batch_norm),
    *(_ATEN._native_batch_norm_legit, _ATEN._native_batch_norm_legit_no_training, _ATEN._adaptive_avg_pool2d),
    *(_ATEN.embedding, _ATEN.index_select, _ATEN.hardtanh),
)


def operator_trace(
    module: torch.nn.Module,
    tensors: Sequence[torch.Tensor],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
) -> ir.Model:
    """The operators that a module calls on inputs of these sizes, as an ONNX graph of these sizes.

    Args:
        module: takes flat tensors and gives a tuple of them, in eval mode; it is not changed.
        tensors: an input; integers and booleans, which may be shapes or indices, count by their values.
        inputs, outputs: their names.

    Returns:
        A graph whose initializers are the module's parameters and buffers, bit by bit.

    Raises:
        UnsupportedError: in one line: a branch on the data, or an operator without a form here.
    """
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    try:
        recorded = _recorded(module, state, tensors)
    except OnnxToolError:
        raise
    except Exception as error:
        if _READS_DATA.search(str(error)):
            raise UnsupportedError(
                "its Python code reads a value of the data (a branch, a size or a number)"
            ) from error
        raise UnsupportedError(f"its operators cannot be recorded: {one_line(error, 120)}") from error
    return _written(recorded, state, tensors, inputs, outputs)


def _recorded(
    module: torch.nn.Module, state: Mapping[str, torch.Tensor], tensors: Sequence[torch.Tensor]
) -> torch.fx.GraphModule:
    """The calls as an fx graph: what is written in place is made out of place, and sizes are numbers."""

    def forward(weights: dict[str, torch.Tensor], *inputs: torch.Tensor) -> Any:
        return torch.func.functional_call(module, weights, inputs)

    rules = {**core_aten_decompositions(), **get_decompositions(_TAKEN_APART)}
    rest = {op: rule for op, rule in rules.items() if _name(op) not in OPERATORS | MOVES | _LAYERS}
    with torch.no_grad(), unchecked_distributions(), _plain_kernels(), _WrittenOut():
        functional = torch.func.functionalize(forward, remove="mutations")
        copies = [t.clone() for t in tensors]
        recorded: torch.fx.GraphModule = make_fx(functional, decomposition_table=rest, tracing_mode="real")(
            dict(state), *copies
        )
    recorded.graph.eliminate_dead_code()
    return recorded


@contextmanager
def _plain_kernels() -> Iterator[None]:
    """Inside the block, layers call the operators that they are made of, and not one kernel for the whole layer.

    Libraries are told that the model is being exported: they leave out shortcuts that look at the data (masks of ones).
    """
    compiler = torch.compiler
    flags = {name: getattr(compiler, name) for name in ("_is_compiling_flag", "_is_exporting_flag")}
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    torch.nn.functional.scaled_dot_product_attention = attention  # a mode does not see calls inside torch's functions
    try:
        compiler._is_compiling_flag = compiler._is_exporting_flag = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of settings for other processors
            with torch.backends.mkldnn.flags(enabled=False):
                yield
    finally:
        torch.nn.functional.scaled_dot_product_attention = _FUSED_ATTENTION
        for name, value in flags.items():
            setattr(compiler, name, value)
        torch.backends.mha.set_fastpath_enabled(fast)


class _WrittenOut(TorchFunctionMode):  # type: ignore[misc]
    """Attention by its definition: torch's own kernels multiply both sides by a rounded root of the scale."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _FUSED_ATTENTION:
            return attention(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _name(target: object) -> str:
    """ "add" of aten.add.Tensor; copies of views count as the views."""
    name = str(target).split(".")[1] if "." in str(target) else ""
    return name if name == "_to_copy" else name.removesuffix("_copy")


def _written(
    recorded: torch.fx.GraphModule,
    state: Mapping[str, torch.Tensor],
    tensors: Sequence[torch.Tensor],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
) -> ir.Model:
    writer = TraceWriter()
    values: dict[torch.fx.Node, Any] = {}
    placeholders = [node for node in recorded.graph.nodes if node.op == "placeholder"]
    for node, (name, tensor) in zip(placeholders, state.items(), strict=False):
        values[node] = writer.constant(tensor, name)
    fed = placeholders[len(state) :]
    graph_inputs = [writer.input(spec.name, tensor) for spec, tensor in zip(inputs, tensors, strict=True)]
    values |= dict(zip(fed, graph_inputs, strict=True))

    def known(argument: Any) -> Any:
        return torch.fx.node.map_arg(argument, lambda node: values[node])

    results: Sequence[Any] = ()
    for node in recorded.graph.nodes:
        if node.op == "get_attr":
            held = getattr(recorded, node.target)
            if not isinstance(held, torch.Tensor):
                raise UnsupportedError("it holds torch.cond, a loop or another operator that calls a function")
            values[node] = writer.constant(held, f"constant_{node.target}", exact=not held.is_floating_point())
        elif node.op == "output":
            results = known(node.args[0])
        elif node.op == "call_function" and (node.users or _name(node.target) != "copy_"):  # into an input, at the end
            values[node] = _call(writer, node, known)
    if any(result is UNWRITTEN or result is None for result in results):
        raise UnsupportedError("it gives a result of an operator that has no exact form here")
    named = zip(outputs, results, strict=True)
    return writer.model(graph_inputs, [(spec.name, value) for spec, value in named])


def _call(writer: TraceWriter, node: torch.fx.Node, known: Callable[[Any], Any]) -> Any:
    """What one recorded call gives: a value, or a tuple of them.

    Raises:
        UnsupportedError: there is no form of it.
    """
    args, kwargs = known(node.args), known(node.kwargs)
    if node.target is operator.getitem:
        return args[0][args[1]]
    result = tree_map_only(torch.Tensor, as_example, node.meta.get("val"))
    name = _name(node.target)
    if name.endswith("_") and not name.endswith("__") and _overwrites_nothing_used(node):
        name = name.removesuffix("_")
    try:
        if any(leaf is UNWRITTEN for leaf in tree_leaves((args, kwargs))):
            raise UnknownOperatorError("on a further result of another one")
        if name == "as_strided" and not node.args[0].meta["val"].is_contiguous():
            raise UnknownOperatorError("of a tensor whose elements lie in another order")
        folded = writer.folded(node.target, args, kwargs, result)
        if folded is not None:
            return folded
        writer.result = result
        if name in MOVES and (found := moved(writer, name, node.target, args, kwargs)) is not None:
            return found
        if name not in OPERATORS:
            raise UnknownOperatorError
        return OPERATORS[name](writer, *args, **kwargs)
    except Exception as error:  # a use of the operator that its form does not know
        why = f" ({error})" if isinstance(error, UnknownOperatorError) and error.args else ""
        called = str(node.target).removesuffix(".default")
        raise UnsupportedError(f"operator {called} has no exact form here{why}") from error


# Of these operators, what is given shares memory with the first argument.
_VIEWS = frozenset(
    ("view", "reshape", "t", "transpose", "permute", "expand", "select", "slice", "squeeze", "unsqueeze")
)
_PARTS = frozenset(("split", "split_with_sizes", "chunk", "unbind"))


def _overwrites_nothing_used(node: torch.fx.Node) -> bool:
    """Whether an operator that writes in place writes where nothing else reads: as good as a new tensor."""
    written = node.args[0]
    if len(written.users) != 1:
        return False
    while written.op == "call_function":
        part = written.target is operator.getitem
        if part:
            written = written.args[0]
        if _name(written.target) not in (_PARTS if part else _VIEWS):
            return True
        written = written.args[0]
        if len(written.users) != 1:
            return False
    return False
