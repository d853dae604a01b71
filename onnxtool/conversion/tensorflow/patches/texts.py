"""TensorFlow's operators of texts (Keras' TextVectorization), by the runtime's Tokenizer, whose patterns are RE2 too.

What tf2onnx writes ends at opset 18. Texts are joined from opset 20 on, so functions of the graph stand for them until
its opset has been raised.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import parser

from onnxtool.conversion.patches import LibraryPatch, replaced
from onnxtool.conversion.tensorflow.patches.op_handlers import (
    BOOL,
    FLOAT,
    INT64,
    STRING,
    OperatorWriter,
    missing,
    wrong,
)
from onnxtool.errors import UnsupportedError
from onnxtool.model.ir.editing import inlined
from onnxtool.model.safety.limits import DEFAULT
from onnxtool.model.safety.tensors import graphs

_DOMAIN = "onnxtool"
_OPSET = 20
_HEAD = f'<domain: "{_DOMAIN}", opset_import: ["": {_OPSET}, "com.microsoft": 1]>'
_CUT = 'com.microsoft.Tokenizer <mark: int = 0, mincharnum: int = 1, pad_value: string = "", '
# string[...] -> string[...] without what the pattern matches: the pieces between are joined. The Scan of ONNX Runtime
# 1.31 gives the second text twice where the first is empty; its Loop is right.
_REMOVE = f"""{_HEAD} RemoveMatches <separators> (text) => (kept) {{
    shape = Shape (text)
    any = Constant <value = int64[1] {{-1}}> ()
    flat = Reshape (text, any)
    found = {_CUT} separators: strings = @separators> (flat)
    pieces = Cast <to = 8> (found)
    none = Constant <value_string = ""> ()
    length = Shape (flat)
    begun = Expand (none, length)
    width = Shape <start = 1> (pieces)
    zero = Constant <value = int64[1] {{0}}> ()
    count = Squeeze (width, zero)
    joined = Loop <body = join (int64 i, bool on, string[N] before) => (bool still, string[N] after) {{
        still = Identity (on)
        piece = Gather <axis = 1> (pieces, i)
        after = StringConcat (before, piece)
    }}> (count, , begun)
    kept = Reshape (joined, shape)
}}"""
# string[n] -> string[n, most words], with empty texts behind the last word.
_SPLIT = f"""{_HEAD} SplitWords <tokenexp> (text) => (words) {{
    found = {_CUT} tokenexp: string = @tokenexp> (text)
    words = Cast <to = 8> (found)
}}"""
_SAME = f"{_HEAD} SameTexts (a, b) => (same) {{ same = Equal (a, b) }}"
_FUNCTIONS = {"RemoveMatches": _REMOVE, "SplitWords": _SPLIT, "SameTexts": _SAME}


def _remove(write: OperatorWriter) -> None:
    node = write.node
    if node.get_attr_str("rewrite") or not node.get_attr_value("replace_global", True):
        raise NotImplementedError("StaticRegexReplace by a text, or of the first match alone")
    write.give("RemoveMatches", write.inputs[0], domain=_DOMAIN, separators=[node.get_attr_str("pattern")])


def _equal(write: OperatorWriter) -> None:
    from tf2onnx.onnx_opset.logical import Equal

    if write.graph.get_dtype(write.inputs[0]) != STRING:
        Equal.version_11(write.graph, write.node, **write.rest)
    elif write.node.type == "Equal":
        write.give("SameTexts", *write.inputs, domain=_DOMAIN)
    else:
        write.give("Not", write.add("SameTexts", *write.inputs, domain=_DOMAIN, dtype=BOOL, shape=write.shape))


def _lower(write: OperatorWriter) -> None:
    """Letters of ASCII alone, unless the encoding is given. A locale's other letters are those of its machine."""
    of_all = bool(write.node.get_attr_value("encoding"))
    shape = write.add("Shape", write.inputs[0])
    flat = write.add("Reshape", write.inputs[0], write.constant([-1], np.int64))
    lowered = write.add(
        "StringNormalizer", flat, case_change_action=write.node.type.removeprefix("String").upper(),
        is_case_sensitive=1, locale="C.UTF-8" if of_all else "C",
    )  # fmt: skip
    write.give("Reshape", lowered, shape)


def _split(write: OperatorWriter) -> None:
    """Words between white space: their places [words, 2], the words, and the shape of a table that has them all."""
    graph, node = write.graph, write.node
    separator = node.inputs[1]
    if not separator.is_const() or separator.get_tensor_value(as_list=False).item() not in (b"", ""):
        raise NotImplementedError("StringSplitV2 by another separator than white space")
    if node.get_attr_value("maxsplit", -1) != -1:
        raise NotImplementedError("StringSplitV2 with maxsplit")
    words = write.add(
        "SplitWords", write.inputs[0], tokenexp=r"[^ \t\n\x0b\f\r]+", domain=_DOMAIN, dtype=STRING, shape=[-1, -1]
    )
    filled = write.add(
        "LabelEncoder", words, keys_strings=[""], values_floats=[0.0], default_float=1.0,
        domain="ai.onnx.ml", dtype=FLOAT, shape=[-1, -1],
    )  # fmt: skip
    places = write.add("Transpose", write.add("NonZero", filled), perm=[1, 0])
    given = {"Identity": places, "GatherND": words, "Shape": words}
    shapes = [graph.get_shape(name) for name in node.output]
    kinds = [graph.get_dtype(name) for name in node.output]
    graph.remove_node(node.name)
    for (kind, value), name, dtype, shape in zip(given.items(), node.output, kinds, shapes, strict=True):
        taken = [value, places] if kind == "GatherND" else [value]
        graph.make_node(kind, taken, outputs=[name], dtypes=[dtype], shapes=[shape])


def _count_in_rows(write: OperatorWriter) -> None:
    """[rows, size]: how often each number stands in each row of a ragged table, or the sum of its weights."""
    splits, values, size, weights = write.inputs
    int64 = partial(write.constant, dtype=np.int64)
    numbers, count = write.cast(values, INT64), write.cast(size, INT64)
    places = write.add("Range", int64(0), write.add("Squeeze", write.add("Shape", values), int64([0])), int64(1))
    ends = write.add("Slice", write.cast(splits, INT64), int64([1]), int64([np.iinfo(np.int64).max]))
    before = write.add("LessOrEqual", ends, write.add("Unsqueeze", places, int64([1])))  # bool[values, rows]
    row = write.add("ReduceSum", write.cast(before, INT64), int64([1]), keepdims=0)
    inside = write.add("And", write.add("GreaterOrEqual", numbers, int64(0)), write.add("Less", numbers, count))
    binary = bool(write.node.get_attr_value("binary_output", False))
    if binary or write.graph.get_shape(weights) == [0]:
        added = write.cast(inside, write.dtype)
    else:
        added = write.add("Where", inside, weights, write.constant(0))
    column = write.add("Where", inside, numbers, int64(0))
    indices = write.add("Concat", *(write.add("Unsqueeze", part, int64([1])) for part in (row, column)), axis=1)
    shape = write.add("Concat", write.add("Shape", ends), write.add("Reshape", count, int64([1])), axis=0)
    total = write.add("ScatterND", write.add("Expand", write.constant(0), shape), indices, added, reduction="add")
    write.give("Min", total, write.constant(1)) if binary else write.give("Identity", total)


@contextmanager
def _rows_of_nothing() -> Iterator[None]:
    from tf2onnx import utils
    from tf2onnx.onnx_opset import tensor

    native, by_length = tensor.ragged_nested_row_ids_to_sparse_indices, tensor.ragged_lengths_to_sparse_indices

    def corrected(graph: Any, *given: Any) -> tuple[str, str]:
        indices, shape = native(graph, *given)
        zero = graph.make_const(utils.make_name("zero"), np.array(0, np.int64)).output[0]
        return indices, graph.make_node("Max", [shape, zero]).output[0]

    def divided(graph: Any, lengths: str) -> tuple[str, ...]:
        found: tuple[str, ...] = by_length(graph, lengths)  # rows, columns, and the row and column of each number
        one = graph.make_const(utils.make_name("one"), np.array(1, np.int64)).output[0]
        divisor = graph.make_node("Max", [found[1], one]).output[0]
        for place in found[2:]:
            graph.replace_input(graph.get_node_by_output(place).inputs[0], found[1], divisor, 1)
        return found

    with (
        replaced(tensor, "ragged_nested_row_ids_to_sparse_indices", corrected),
        replaced(tensor, "ragged_lengths_to_sparse_indices", divided),
    ):
        yield


def called_functions(proto: onnx.ModelProto) -> set[str]:
    """Those that nodes of the graph call; tf2onnx loses the domain of a node that ends a branch."""
    calls = [n for g in graphs(proto, DEFAULT) for n in g.node if n.op_type in _FUNCTIONS]
    for node in calls:
        node.domain = _DOMAIN
    return {node.op_type for node in calls}


def add_functions(proto: onnx.ModelProto, called: Collection[str]) -> None:
    """The functions that nodes of the graph call."""
    proto.functions.extend(parser.parse_function(_FUNCTIONS[name]) for name in sorted(called))
    if called:
        proto.opset_import.extend([onnx.helper.make_opsetid(_DOMAIN, 1), onnx.helper.make_opsetid("com.microsoft", 1)])


def without_functions(model: ir.Model) -> ir.Model:
    """With the nodes of the functions in their place.

    Raises:
        UnsupportedError: the graph has an older opset.
    """
    if not any(domain == _DOMAIN for domain, *_ in model.functions):
        return model
    if model.opset_imports[""] < _OPSET:
        raise UnsupportedError(f"the ONNX form of its texts takes operators of opset {_OPSET}.")
    return inlined(model)


PATCHES: dict[str, LibraryPatch] = {
    "StaticRegexReplace": missing("StaticRegexReplace", 9, _remove),
    "StringSplitV2": missing("StringSplitV2", 16, _split),
    "RaggedTensorToTensor": LibraryPatch(
        "tf2onnx",
        "1.18",
        "tf2onnx 1.17 gives rows of -2^63 columns, or divides by 0, where no row has a number",
        _rows_of_nothing,
    ),
    "RaggedBincount": missing("RaggedBincount", 16, _count_in_rows),
    **{
        name: wrong(name, 10, _lower, "tf2onnx 1.17 changes letters by a locale that is missing on many machines")
        for name in ("StringLower", "StringUpper")
    },
    **{name: wrong(name, 11, _equal, "tf2onnx 1.17 compares texts as numbers") for name in ("Equal", "NotEqual")},
}
