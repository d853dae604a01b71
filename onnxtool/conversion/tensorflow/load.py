"""Reading SavedModel folders and frozen graphs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.conversion.input_plan import name_dims, unique
from onnxtool.conversion.source import Source
from onnxtool.conversion.tensorflow.environment import quiet
from onnxtool.conversion.tensorflow.model import TensorFlowModel
from onnxtool.errors import InputError, UnsafeError, UnsupportedError, UsageError, first_line
from onnxtool.model.spec import TensorSpec
from onnxtool.options.convert import ConvertOptions
from onnxtool.runtime.worker.isolation import guarded

_MAX_GRAPH = (1 << 31) - 1


def load_saved_model(source: Source, folder: Path, options: ConvertOptions) -> TensorFlowModel:
    """A signature of a SavedModel.

    Raises:
        InputError: damaged, or TensorFlow cannot load it.
        UnsafeError: it holds operators that read or write files or call Python.
        UsageError: no such signature, or several and none chosen.
    """
    import tensorflow as tf

    _check_saved_model(source, folder, options)
    with quiet(options.verbose):
        accept_optimizer_state()
        try:
            loaded = tf.saved_model.load(str(folder))
        except Exception as error:
            raise InputError(f"{source}: TensorFlow cannot load this SavedModel: {first_line(error)}") from error
    name = _signature_name(source, loaded, options)
    function = loaded.signatures[name]
    refuse_unsafe(source, function.graph.as_graph_def(), options, saver=True)
    specs = [t for t in tf.nest.flatten(function.structured_input_signature) if isinstance(t, tf.TensorSpec)]
    keys = list(function.structured_input_signature[1]) or [t.name for t in specs]
    by_key = function.structured_input_signature[1]
    ordered = [(key, by_key[key]) for key in keys] if by_key else list(zip(keys, specs, strict=True))
    outputs = list(function.structured_outputs)

    def call(*flat: Any) -> list[Any]:
        result = function(**{key: tensor for (key, _), tensor in zip(ordered, flat, strict=True)})
        return [result[key] for key in outputs]

    return TensorFlowModel.prepare(
        call,
        _described_inputs([(key, spec.shape, spec.dtype) for key, spec in ordered]),
        outputs,
        f"TensorFlow SavedModel, signature {name}",
        options,
        trackable=loaded,
    )


def _signature_name(source: Source, loaded: Any, options: ConvertOptions) -> str:
    known = [name for name in loaded.signatures if not name.startswith("__")]
    if not known:
        raise UnsupportedError(
            f"{source}: this SavedModel has no signatures. Save it with tf.saved_model.save(..., signatures=...), "
            "or with model.export() in Keras."
        )
    if options.signature is not None:
        if options.signature not in known:
            raise UsageError(f"{source}: no signature {options.signature!r}; it has {', '.join(sorted(known))}.")
        return options.signature
    if "serving_default" in known:
        return "serving_default"
    if len(known) > 1:
        raise UsageError(f"{source}: choose a signature with --signature: {', '.join(sorted(known))}.")
    return str(known[0])


def _check_saved_model(source: Source, folder: Path, options: ConvertOptions) -> None:
    from google.protobuf import text_format
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    file = folder / "saved_model.pb"
    if not file.exists():
        file = folder / "saved_model.pbtxt"  # TensorFlow reads it, and old tools wrote it
    try:
        if file.suffix == ".pb":
            proto = saved_model_pb2.SavedModel.FromString(file.read_bytes())
        else:
            proto = text_format.Parse(file.read_bytes().decode(), saved_model_pb2.SavedModel())
    except (DecodeError, text_format.ParseError, OSError, ValueError, RecursionError) as error:
        raise InputError(f"{source}: its {file.name} is damaged or cut off.") from error
    for graph in proto.meta_graphs:
        refuse_unsafe(source, graph.graph_def, options)


def load_frozen_graph(source: Source, options: ConvertOptions) -> TensorFlowModel:
    """A frozen GraphDef (`.pb`), with the input and output tensors that are named or those that stand out.

    Raises:
        InputError: damaged.
        UsageError: no such tensor as is named.
        UnsafeError: it holds operators that read or write files or call Python.
        UnsupportedError: it is not frozen.
    """
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    assert source.path is not None
    if source.size > _MAX_GRAPH:
        raise InputError(f"{source}: larger than 2 GB, which no GraphDef can be.")
    try:
        graph_def = tf.compat.v1.GraphDef.FromString(source.path.read_bytes())
    except DecodeError as error:
        raise InputError(f"{source}: this is not a TensorFlow graph, or it is damaged or cut off.") from error
    if not graph_def.node:
        raise InputError(f"{source}: this graph has no nodes.")
    refuse_unsafe(source, graph_def, options)
    variables = sorted({n.op for n in graph_def.node if n.op in ("VarHandleOp", "VariableV2", "Variable")})
    if variables:
        raise UnsupportedError(f"{source}: this graph is not frozen: its weights are variables. Give a SavedModel.")
    inputs = [_tensor(n) for n in options.frozen_inputs] or [f"{n}:0" for n in _placeholders(graph_def)]
    outputs = [_tensor(n) for n in options.frozen_outputs] or [f"{n}:0" for n in _ends(graph_def)]
    notes = []
    if not options.frozen_inputs or not options.frozen_outputs:
        notes.append(f"inputs taken: {', '.join(inputs)}; outputs taken: {', '.join(outputs)} (--inputs, --outputs)")
    function = _prune(source, graph_def, inputs, outputs, options)

    def call(*flat: Any) -> list[Any]:
        result = function(*flat)
        return list(result) if isinstance(result, (list, tuple)) else [result]

    described = _described_inputs([(_plain(n), t.shape, t.dtype) for n, t in zip(inputs, function.inputs, strict=True)])
    names = unique([_plain(n) for n in outputs])
    return TensorFlowModel.prepare(
        call, described, names, "TensorFlow frozen graph", options, trackable=function, notes=notes
    )


def _prune(
    source: Source, graph_def: Any, inputs: Sequence[str], outputs: Sequence[str], options: ConvertOptions
) -> Any:
    import tensorflow as tf

    with quiet(options.verbose), guarded("loading the graph into TensorFlow", source.size):
        try:
            wrapped = tf.compat.v1.wrap_function(lambda: tf.compat.v1.import_graph_def(graph_def, name=""), [])
        except Exception as error:
            raise InputError(f"{source}: TensorFlow cannot load this graph: {first_line(error)}") from error
        known = {op.name for op in wrapped.graph.get_operations()}
        for name in (*inputs, *outputs):
            if name.split(":")[0] not in known:
                shown = ", ".join([*_placeholders(graph_def), *_ends(graph_def)][:12])
                raise UsageError(f"{source}: no tensor {name!r}; likely inputs and outputs: {shown}.")
        try:
            element = wrapped.graph.as_graph_element
            pruned = wrapped.prune([element(n) for n in inputs], [element(n) for n in outputs])
        except Exception as error:
            raise (UsageError if options.frozen_inputs or options.frozen_outputs else InputError)(
                f"{source}: inputs {list(inputs)} do not lead to outputs {list(outputs)}: {first_line(error)}"
            ) from error
    refuse_unsafe(source, pruned.graph.as_graph_def(), options, saver=True)
    return pruned


def _placeholders(graph_def: Any) -> list[str]:
    return [n.name for n in graph_def.node if n.op in ("Placeholder", "PlaceholderWithDefault")]


def _ends(graph_def: Any) -> list[str]:
    """Nodes whose result nobody takes."""
    used = {i.split(":")[0].lstrip("^") for n in graph_def.node for i in n.input}
    idle = {"Const", "NoOp", "Placeholder", "Assert", "PlaceholderWithDefault"}
    return [n.name for n in graph_def.node if n.name not in used and n.op not in idle]


def _described_inputs(inputs: Iterable[tuple[str, Any, Any]]) -> list[tuple[TensorSpec, Any]]:
    listed = list(inputs)
    dims = name_dims({name: tuple(shape.as_list()) for name, shape, _ in listed if shape.rank is not None})
    return [
        (TensorSpec(n, "string" if d.name == "string" else np.dtype(d.as_numpy_dtype), dims.get(n)), d)
        for n, _, d in listed
    ]


def _tensor(name: str) -> str:
    return name if ":" in name else f"{name}:0"


def _plain(name: str) -> str:
    """ "scores:0" -> "scores"; "split:1" -> "split_1"."""
    node, _, port = name.partition(":")
    return node if port in ("", "0") else f"{node}_{port}"


# What Keras 2 saved its optimizers as. Only Keras 2 knows how to revive them; without it, tf.saved_model.load fails
# on every model that was saved after training ("'_UserObject' object has no attribute 'add_slot'").
_OPTIMIZER = "optimizer"


@cache
def accept_optimizer_state() -> None:
    """Let tf.saved_model.load read models whose optimizer it does not know. Does nothing where Keras 2 is at work."""
    import tensorflow as tf
    from tensorflow.python.saved_model import revived_types

    class Optimizer(tf.__internal__.tracking.AutoTrackable):  # type: ignore[misc]
        """Holds slot variables, and does nothing with them."""

        def add_slot(self, var: Any, *_: Any, **__: Any) -> Any:
            return tf.Variable(tf.zeros_like(var), trainable=False)

    registration = revived_types.VersionedTypeRegistration(
        object_factory=lambda _: Optimizer(), version=1, min_producer_version=1, min_consumer_version=1
    )
    with suppress(ValueError, AssertionError):  # taken: somebody else reads them
        revived_types.register_revived_type(_OPTIMIZER, lambda obj: isinstance(obj, Optimizer), [registration])


_OUTSIDE = re.compile(
    r"""
    (Eager)?PyFunc(Stateless)?                                    # calls Python
    | ReadFile | WriteFile | MatchingFiles | FileSystemSetConfiguration | Gcs\w*
    | ImmutableConst | LoadAndRemapMatrix | CalibrationStatisticsSaver
    | (WholeFile|TextLine|TFRecord|FixedLengthRecord|LMDB)Reader(V\d)?
    | (Experimental)?(TextLine|TFRecord|FixedLengthRecord|LMDB|CSV|Sql|Cache|Load|Save|Snapshot\w*|MatchingFiles)
      Dataset(V\d)?
    | (Experimental)?(DatasetToTFRecord|ListSnapshotChunksDataset|Snapshot\w*DatasetReader|DistributedSave)
    | DatasetFromGraph                                            # runs a graph that lies in a string
    | DataServiceDataset\w* | RegisterDataset\w* | Rpc\w*         # talk to other machines
    | CreateSummary(File|Db)Writer | ImportEvent
    | Debug(Gradient)?(Ref)?(Identity|NanCount|NumericSummary)(V\d)? | Copy(Host)?  # write to the URLs in them
    | (De|En)codeProto(V\d)?                                      # read a description of the message from a file
    | Save | SaveSlices | Restore | RestoreSlice
    """,
    re.VERBOSE,
)
# Every SavedModel has these, to restore its variables from its own folder when it is loaded. What computes the outputs
# has no use for them.
_SAVER = re.compile(r"SaveV2|RestoreV2|MergeV2Checkpoints|DTensorRestoreV2")


def refuse_unsafe(source: Source, graph_def: Any, options: ConvertOptions, *, saver: bool = False) -> None:
    """Refuse a graph with operators that reach outside of it, in itself or its functions, unless trusted.

    Args:
        source: for the message.
        graph_def: GraphDef.
        options: of the conversion.
        saver: refuse the saver's operators too.

    Raises:
        UnsafeError: there are such operators.
    """
    nodes = [*graph_def.node, *(n for f in graph_def.library.function for n in f.node_def)]
    found = {n.op for n in nodes if _OUTSIDE.fullmatch(n.op) or (saver and _SAVER.fullmatch(n.op))}
    found |= {"PrintV2" for n in nodes if n.op == "PrintV2" and n.attr["output_stream"].s.startswith(b"file:")}
    if found and not options.trust:
        raise UnsafeError(
            f"{source}: running this graph reaches outside of it ({', '.join(sorted(found))}). "
            "Pass --trust if you trust where it comes from."
        )
