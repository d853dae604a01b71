"""Operators of TensorFlow graphs that reach outside of the graph: files, sockets, Python. A graph is a program."""

from __future__ import annotations

import re
from typing import Any

from onnxtool.conversion.source import Source
from onnxtool.errors import UnsafeError
from onnxtool.options.convert import ConvertOptions

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
