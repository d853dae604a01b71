"""Fixes graphs exported by skl2onnx: label shapes, output types, the locale of text."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from onnxtool.conversion.sklearn.model import Compute, SklearnModel
from onnxtool.errors import OnnxToolError
from onnxtool.model.domains import Domain
from onnxtool.runtime.feeds import random_feeds
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT, create_session


def clean_up(proto: onnx.ModelProto, model: SklearnModel) -> None:
    """Straighten the graph, in place."""
    _set_types(proto, model)
    _set_locale(proto, model)
    _set_letters(proto)
    _set_shapes(proto, model)


def _set_types(proto: onnx.ModelProto, model: SklearnModel) -> None:
    """Outputs that were left without an element type are floats; inner values need no type."""
    del proto.graph.value_info[:]
    kind = TensorProto.DOUBLE if model.doubles else TensorProto.FLOAT
    for value in proto.graph.output:
        known = value.type.WhichOneof("value")
        if known is None or (known == "tensor_type" and value.type.tensor_type.elem_type == TensorProto.UNDEFINED):
            value.type.tensor_type.elem_type = kind


def _set_shapes(proto: onnx.ModelProto, model: SklearnModel) -> None:
    """Give outputs the rank that the estimator's own results have (labels [batch], columns of scores): some converters
    give [batch, 1] or [1, batch] for the one, [batch] for the other. Whole numbers (counts of words) become integers.
    """
    try:
        runner = OnnxRunner.open(proto, EXACT)
        feeds = random_feeds(runner.inputs, batch=2, domains=_domains(model, runner))
        found = list(runner.run(feeds).values())
        renamed = zip((s.name for s in model.inputs), feeds.values(), strict=True)
        expected = list(model.run(dict(renamed)).values())
    except (OnnxToolError, ValueError):
        return  # the comparison will say what is wrong
    # What the source gives as a list, one array for each target, may be one array in the file.
    stacked = [isinstance(a, list) and isinstance(b, np.ndarray) for a, b in zip(expected, found, strict=True)]
    pairs = zip(model.computes, stacked, strict=True)
    model.computes = tuple(partial(_stacked, compute) if several else compute for compute, several in pairs)
    specs = []
    for spec, output, right, given in zip(model.outputs, proto.graph.output, expected, found, strict=True):
        if output.type.WhichOneof("value") != "tensor_type" or isinstance(right, list):
            rows = (spec.shape or (None,))[0]
            specs.append(replace(spec, shape=(len(right), rows, None)) if isinstance(given, np.ndarray) else spec)
            continue
        rank = np.ndim(right)
        known = spec.shape is not None and len(spec.shape) == rank
        specs.append(spec if known else replace(spec, shape=((spec.shape or (None,))[0], *(None,) * (rank - 1))))
        if np.ndim(given) != rank and np.size(given) == np.size(right) and rank in (1, 2):
            _reshape(proto, output, [-1] if rank == 1 else [-1, 1])
        if np.asarray(right).dtype.kind in "iu" and np.asarray(given).dtype.kind == "f":
            _cast(proto, output, TensorProto.INT64)
            specs[-1] = replace(specs[-1], dtype=np.dtype("int64"))
        if np.asarray(right).dtype == np.float32 and np.asarray(given).dtype == np.float64:
            _cast(proto, output, TensorProto.FLOAT)  # as XGBoost gives it
    model.outputs = tuple(specs)


def _stacked(compute: Compute, data: Any) -> np.ndarray:
    return np.stack(compute(data))


def _reshape(proto: onnx.ModelProto, output: onnx.ValueInfoProto, shape: list[int]) -> None:
    wanted, result = _free_name(proto, f"{output.name}_shape"), _free_name(proto, f"{output.name}_shaped")
    proto.graph.initializer.append(helper.make_tensor(wanted, TensorProto.INT64, [len(shape)], shape))
    proto.graph.node.append(helper.make_node("Reshape", [output.name, wanted], [result]))
    kind = output.type.tensor_type.elem_type
    output.CopyFrom(helper.make_tensor_value_info(result, kind, [None] * len(shape)))


def _cast(proto: onnx.ModelProto, output: onnx.ValueInfoProto, kind: int) -> None:
    result = _free_name(proto, f"{output.name}_cast")
    proto.graph.node.append(helper.make_node("Cast", [output.name], [result], to=kind))
    output.name, output.type.tensor_type.elem_type = result, kind


def _free_name(proto: onnx.ModelProto, wanted: str) -> str:
    """A name that no value has."""
    taken = {name for node in proto.graph.node for name in node.output}
    taken |= {value.name for value in (*proto.graph.input, *proto.graph.initializer)}
    return next(name for name in (wanted, *(f"{wanted}_{n}" for n in range(len(taken) + 1))) if name not in taken)


def _domains(model: SklearnModel, runner: OnnxRunner) -> dict[str, Domain]:
    known = dict(model.feeds_hint or {})
    return {b.name: known[a.name] for a, b in zip(model.inputs, runner.inputs, strict=False) if a.name in known}


def _set_locale(proto: onnx.ModelProto, model: SklearnModel) -> None:
    """Lower-casing of text: the runtime's default locale, en_US.UTF-8, is missing on many machines, and the file then
    does not load there.
    """
    nodes = [n for n in proto.graph.node if n.op_type == "StringNormalizer"]
    nodes = [n for n in nodes if not any(a.name == "locale" for a in n.attribute)]
    if not nodes:
        return
    locale = next((name for name in ("C.UTF-8", "C") if _has_locale(name)), "C")
    for node in nodes:
        node.attribute.append(helper.make_attribute("locale", locale))
    if locale == "C":
        model.notes.append("text is lower-cased by ASCII rules only: this machine has no C.UTF-8 locale")


def _set_letters(proto: onnx.ModelProto) -> None:
    """What is a letter or a digit in a text: in Python those of all scripts, in the runtime's RE2 only ASCII."""
    for node in proto.graph.node:
        for attribute in node.attribute if node.op_type == "Tokenizer" else ():
            if attribute.name == "tokenexp":
                attribute.s = as_re2(attribute.s.decode()).encode()


def as_re2(pattern: str) -> str:
    """A pattern of Python's with the classes of all scripts that RE2 has: \\w is a letter, a number or _."""
    written, inside, place = [], False, 0
    while place < len(pattern):
        part = pattern[place : place + 2] if pattern[place] == "\\" else pattern[place]
        place += len(part)
        inside = part == "[" or (inside and part != "]")
        wide = {r"\w": r"\p{L}\p{N}_", r"\d": r"\p{Nd}"}.get(part)
        written.append(part if wide is None else wide if inside else f"[{wide}]")
    return "".join(written)


def _has_locale(name: str) -> bool:
    """Whether the runtime can make the locale here."""
    node = helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="LOWER", locale=name)
    values = [helper.make_tensor_value_info(n, TensorProto.STRING, [None]) for n in ("x", "y")]
    graph = helper.make_graph([node], "probe", values[:1], values[1:])
    try:
        create_session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))
    except OnnxToolError:
        return False
    return True
