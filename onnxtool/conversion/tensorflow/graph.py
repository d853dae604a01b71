"""A TensorFlow function or graph -> ONNX, by way of tf2onnx's graph converter.

Keras models, SavedModels and frozen graphs all come through here as one thing: a frozen GraphDef with named input
and output tensors. tf2onnx's own front ends (`from_keras`, `from_function`) are not used: the first fails on Keras 3
models (tf2onnx 1.17), the second loses names, and through `keras.Model.export(format="onnx")` some constants become
required inputs. What they share, the graph converter, is sound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from onnxtool.conversion.adapter import SourceModel
from onnxtool.conversion.opset import export_at
from onnxtool.conversion.patches import applied, correct, replaced
from onnxtool.conversion.tensorflow.cleanup import clean_up
from onnxtool.conversion.tensorflow.environment import quiet
from onnxtool.conversion.tensorflow.patches import (
    added_scalars,
    images,
    lite_operators,
    op_handlers,
    spectra,
    tensor_lists,
    texts,
)
from onnxtool.errors import OnnxToolError, ResourceError, UnsupportedError, first_line
from onnxtool.model import io
from onnxtool.model.safety.limits import DEFAULT
from onnxtool.model.safety.tensors import graphs
from onnxtool.options.convert import ConvertOptions

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

_TABLES = (op_handlers.PATCHES, lite_operators.PATCHES, images.PATCHES, texts.PATCHES)
# What tf2onnx 1.17 can write.
NEWEST_OPSET = 18


@dataclass(frozen=True)
class FrozenGraph:
    """A graph without variables.

    Attributes:
        graph_def: TensorFlow's GraphDef.
        inputs: names of the tensors that are fed ("image:0"), in order.
        outputs: names of the tensors that are fetched, in order.
        tables: contents of lookup tables, by shared name: (keys, values).
    """

    graph_def: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tables: Mapping[Any, Any] = field(default_factory=dict)

    @property
    def has_lists(self) -> bool:
        """Whether it has lists of tensors, which loops fill and read."""
        functions = (f.node_def for f in self.graph_def.library.function)
        return any("TensorList" in node.op for nodes in (self.graph_def.node, *functions) for node in nodes)


def freeze(concrete: Any, trackable: Any = None, verbose: int = 0) -> FrozenGraph:
    """Turn a concrete function into a graph with its variables as constants.

    Args:
        concrete: a `tf.types.experimental.ConcreteFunction`.
        trackable: the object that owns its lookup tables, if it may have some.
        verbose: as of `import_tensorflow`.

    Raises:
        UnsupportedError: TensorFlow cannot freeze it.
        ResourceError: more than the 2 GB that a GraphDef can hold.
    """
    import tensorflow as tf
    from tensorflow.python.framework import convert_to_constants as freezing

    before_inlining = freezing.disable_lower_using_switch_merge
    inlines_all = replaced(
        freezing, "disable_lower_using_switch_merge", lambda graph_def: _inlinable(before_inlining(graph_def))
    )
    captured = {inner.name for _, inner in concrete.graph.captures}
    inputs = tuple(t.name for t in concrete.inputs if t.name not in captured and t.dtype != tf.resource)
    outputs = tuple(t.name for t in concrete.outputs if t.dtype != tf.resource)
    with quiet(verbose), tf.device("/cpu:0"), inlines_all:
        try:
            if trackable is None:
                return FrozenGraph(_freeze_variables(concrete), inputs, outputs)
            from tf2onnx import tf_loader

            graph_def, tables = tf_loader.from_trackable(trackable, concrete, list(inputs), list(outputs), False)
            return FrozenGraph(graph_def, inputs, outputs, tables or {})
        except Exception as error:
            raise failure("TensorFlow cannot freeze this model", error) from error


def _freeze_variables(concrete: Any) -> Any:
    from tensorflow.python.framework import convert_to_constants as freezing

    try:
        # The public function builds a concrete function of the result too, which takes longer than all else and is of
        # no use here.
        data = freezing._FunctionConverterDataInEager(concrete, lower_control_flow=False, aggressive_inlining=True)
        graph_def, _ = freezing._replace_variables_by_constants(converter_data=data)
        return graph_def
    except (AttributeError, TypeError):  # another version of TensorFlow
        frozen = freezing.convert_variables_to_constants_v2(
            concrete, lower_control_flow=False, aggressive_inlining=True
        )
        return frozen.graph.as_graph_def(add_shapes=True)


def export_frozen(
    frozen: FrozenGraph, model: SourceModel, options: ConvertOptions, name: str = "model", *, in_sequences: bool = False
) -> ir.Model:
    """Convert a frozen graph at the opset that is wanted, with the names of a model's inputs and outputs.

    Args:
        frozen: of `freeze`.
        model: the source.
        options: of the user.
        name: of the graph.
        in_sequences: lists of tensors are sequences, whatever loops do with them.

    Raises:
        UnsupportedError: operators that the converter does not have; all are named.
    """
    names = [s.name for s in model.inputs], [s.name for s in model.outputs]
    exported = export_at(
        options,
        NEWEST_OPSET,
        model.notes,
        lambda opset: to_onnx(frozen, *names, opset, name=name, verbose=options.verbose, in_sequences=in_sequences),
    )
    return texts.without_functions(exported)


def to_onnx(
    frozen: FrozenGraph,
    input_names: Sequence[str],
    output_names: Sequence[str],
    opset: int,
    *,
    name: str = "model",
    verbose: int = 0,
    in_sequences: bool = False,
) -> ir.Model:
    """Convert a frozen graph.

    Args:
        frozen: of `freeze`.
        input_names: what the ONNX inputs shall be called, in the order of `frozen.inputs`.
        output_names: likewise for the outputs.
        opset: at most NEWEST_OPSET.
        name: of the graph.
        verbose: as of `import_tensorflow`.
        in_sequences: lists of tensors are sequences; else they are where there is no other way.

    Raises:
        UnsupportedError: operators that the converter does not have; all are named.
    """
    import tensorflow as tf
    from tf2onnx import tf_loader

    renamed = dict(zip((*frozen.inputs, *frozen.outputs), (*input_names, *output_names), strict=True))
    with quiet(verbose), tf.device("/cpu:0"), corrected():
        try:
            with tf.Graph().as_default():
                tf.import_graph_def(frozen.graph_def, name="")
                graph_def = tf_loader.tf_optimize(list(frozen.inputs), list(frozen.outputs), frozen.graph_def)
            convert = partial(_convert, graph_def, frozen, renamed, opset)
            try:
                proto = None if in_sequences else optimized(convert(), name)
            except OnnxToolError:
                raise
            except Exception:
                proto = None
            if proto is None or any("TensorList" in operator for operator in _foreign_operators(proto)):
                # Slower by far, because it keeps a copy of all weights for each step, to undo the one that fails.
                with applied([tensor_lists.PATCH]):
                    proto = optimized(convert(), name, catch_errors=True)
        except Exception as error:
            raise failure("the TensorFlow converter (tf2onnx) fails on this model", error) from error
    called = texts.called_functions(proto)
    refuse_foreign_operators(proto)
    texts.add_functions(proto, called)
    model = io.from_proto(proto)
    clean_up(model)
    return model


def corrected() -> AbstractContextManager[None]:
    """Inside the block tf2onnx is right."""
    return applied([*(patch for table in _TABLES for patch in table.values()), spectra.PATCH])


def _convert(graph_def: Any, frozen: FrozenGraph, renamed: dict[str, str], opset: int) -> Any:
    """tf2onnx's own graph, operators translated."""
    import tensorflow as tf
    from tf2onnx import tfonnx

    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        return tfonnx.process_tf_graph(
            graph,
            opset=opset,
            input_names=list(frozen.inputs),
            output_names=list(frozen.outputs),
            tensors_to_rename=dict(renamed),
            initialized_tables=dict(frozen.tables),
        )


def optimized(graph: Any, name: str, *, catch_errors: bool = False) -> onnx.ModelProto:
    """tf2onnx's clean-up, which its translation counts on: it inserts a Transpose on each side of a convolution."""
    from tf2onnx import optimizer

    correct((added_scalars.PATCH,), graph)
    if not catch_errors:
        # Every step would write all weights into protobuf anew; only the last time counts.
        graph.update_proto = lambda *_: None
    graph = optimizer.optimize_graph(graph, catch_errors=catch_errors)
    vars(graph).pop("update_proto", None)
    proto: onnx.ModelProto = graph.make_model(name)
    return proto


def _inlinable(graph_def: Any) -> Any:
    """Drop the marks that keep functions from being inlined: Keras compiles grouped convolutions with XLA.

    TensorFlow freezes no variable that such a function reads.
    """
    for nodes in (graph_def.node, *(f.node_def for f in graph_def.library.function)):
        for node in nodes:
            node.attr.pop("_XlaMustCompile", None)
    for function in graph_def.library.function:
        function.attr.pop("_XlaMustCompile", None)
    return graph_def


def refuse_foreign_operators(proto: onnx.ModelProto) -> None:
    """The converter leaves what it cannot translate in the graph under its TensorFlow name.

    Raises:
        UnsupportedError: names those operators.
    """
    if foreign := _foreign_operators(proto):
        raise UnsupportedError(
            f"no ONNX form is known for TensorFlow's {', '.join(sorted(foreign))}. "
            "Move that part of the model out of the graph, or replace the layer that uses it."
        )


def _foreign_operators(proto: onnx.ModelProto) -> set[str]:
    import onnx

    version = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
    return {
        n.op_type
        for g in graphs(proto, DEFAULT)
        for n in g.node
        if n.domain in ("", "ai.onnx") and not onnx.defs.has(n.op_type, version)
    }


def failure(what: str, error: Exception) -> OnnxToolError:
    """One line for an exception of TensorFlow or tf2onnx."""
    if isinstance(error, OnnxToolError):
        return error
    text = str(error)
    if "2GB" in text or "string too long" in text or "exceeds maximum protobuf" in text:
        return ResourceError("the model has more than 2 GB of weights, which TensorFlow's GraphDef cannot hold.")
    if "incompatible with expected resource" in text:
        return UnsupportedError(
            "the model changes its own variables when it runs (a counter, a stateful layer, a seed of random numbers), "
            "which an ONNX file cannot do. Make what it remembers an input and an output, or set stateful=False."
        )
    return UnsupportedError(f"{what}: {type(error).__name__}: {first_line(error, 1000)}")
