"""LoRA adapters kept apart from a bundle's weights, in the runtime's adapter format.

onnxruntime-genai's builder writes an adapter's products beside those of the model. Their weights become inputs of the
graph that are zero unless they are given, and stand in a file of their own, which that runtime reads too.

Source: onnxruntime.ai/docs/genai/tutorials/finetune.html, and onnxruntime.AdapterFormat.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from onnxtool.errors import InputError, UnsupportedError, one_line
from onnxtool.model import io
from onnxtool.runtime.worker.isolation import guarded

if TYPE_CHECKING:
    from onnxtool.generation.bundle import Bundle

ADAPTER = "adapter.onnx_adapter"
_PART = re.compile(r"\.lora_([AB])\.")
_RANK = "adapter_rank"
_MOST = 4 << 30


def set_apart(bundle: Bundle) -> int:
    """Take the weights of an adapter out of a model, into `ADAPTER` beside it; zeros of rank one take their place.

    Args:
        bundle: built with the adapter's products in its graph; its model is rewritten.

    Returns:
        How many products are adapted.

    Raises:
        UnsupportedError: the graph has no such weights.
    """
    model = io.load(bundle.model)
    weights: dict[str, ort.OrtValue] = {}
    for name, value in list(model.graph.initializers.items()):
        found = _PART.search(name)
        if found is None or value.const_value is None:
            continue
        array = np.ascontiguousarray(value.const_value.numpy(), np.float32)
        weights[name] = ort.OrtValue.ortvalue_from_numpy(array)
        rows, columns = array.shape
        shape = (rows, 1) if found[1] == "A" else (1, columns)
        value.const_value = ir.tensor(np.zeros(shape, np.float32), name=name)
        value.shape = ir.Shape([rows, _RANK] if found[1] == "A" else [_RANK, columns])
        value.type = ir.TensorType(ir.DataType.FLOAT)
        model.graph.inputs.append(value)
    if not weights:
        raise UnsupportedError(f"{bundle.model}: the builder kept no products of the adapter apart.")
    with tempfile.TemporaryDirectory(prefix="onnxtool-", dir=bundle.folder) as scratch:
        io.save(model, Path(scratch) / bundle.model.name, external=True)
        for stale in bundle.folder.glob(f"{bundle.model.name}*"):
            stale.unlink()
        for file in Path(scratch).iterdir():
            file.rename(bundle.folder / file.name)
    written = ort.AdapterFormat()
    written.set_adapter_version(1)
    written.set_model_version(1)
    written.set_parameters(weights)
    written.export_adapter(str(bundle.folder / ADAPTER))
    return len(weights) // 2


def read_adapter(path: Path, inputs: Mapping[str, Sequence[int | str]]) -> dict[str, ort.OrtValue]:
    """The weights of an adapter, by the inputs of the graph that they are for.

    Args:
        path: an .onnx_adapter file.
        inputs: what the graph takes: names and shapes.

    Raises:
        InputError: no such file, damaged, or of another model.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file.")
    if path.stat().st_size > _MOST:
        raise InputError(f"{path}: larger than 4 GB, which no adapter is.")
    try:
        with guarded("reading the adapter", path.stat().st_size):
            weights: dict[str, ort.OrtValue] = ort.AdapterFormat.read_adapter(str(path)).get_parameters()
    except Exception as error:
        line = one_line(error, 200)
        raise InputError(f"{path}: not an adapter of ONNX Runtime ({line}).") from error
    for name, value in weights.items():
        if name not in inputs:
            raise InputError(f"{path}: is for another model: this one has nothing that is called {name!r}.")
        shape, wanted = list(value.shape()), list(inputs[name])
        same = len(shape) == len(wanted) and all(s == w for s, w in zip(shape, wanted, strict=True) if w != _RANK)
        if not same or value.element_type() != onnx.TensorProto.FLOAT:
            raise InputError(f"{path}: is for another model: {name!r} is {shape} in it, and {wanted} here.")
    return weights


def adapted(model: ir.Model) -> Collection[ir.Value]:
    """What the products of adapters read: their weights are not known, so nothing may scale it."""
    inputs = set(model.graph.inputs)
    products = (n for n in model.graph if n.op_type == "MatMul" and len(n.inputs) == 2 and n.inputs[1] in inputs)
    return {node.inputs[0] for node in products if node.inputs[0] is not None}
