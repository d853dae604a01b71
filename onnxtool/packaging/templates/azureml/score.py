"""The scoring script of Azure Machine Learning: {"inputs": {name: lists}} -> {"outputs": {name: lists}}."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnxruntime_extensions import get_library_path  # [extensions]
from protocol import (
    InputError,
    UnsupportedError,
    check_shared_dims,
    decode_plain,
    element_type,
    load_json,
    runtime_datatype,
    to_lists,
)

try:
    from azureml_inference_server_http.api.aml_response import AMLResponse
except ImportError:  # the smoke test does without
    AMLResponse = None

THREADS = 1
SHARED: dict[str, list[tuple[str, int]]] = {}  # dims that several inputs must agree in: inputs and axes
COLUMNS: dict[str, tuple[str, ...]] = {}  # of a table: the columns of each input
TAKES_EMPTY = False  # whether inputs without elements were tried and did no harm
session: ort.InferenceSession


def dtype_of(spec: ort.NodeArg) -> np.dtype | str:
    found: np.dtype | str = element_type(runtime_datatype(spec.type))
    return found


def init() -> None:
    """Called once, when the container starts."""
    global session  # noqa: PLW0603  (Azure calls init and run)
    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.register_custom_ops_library(get_library_path())  # [extensions]
    model = next(Path(os.environ["AZUREML_MODEL_DIR"]).rglob("model.onnx"))
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def run(raw_data: str) -> Any:
    """Called for each request; what is wrong with it is told with status 400."""
    try:
        document = load_json(raw_data.encode())
        if "inputs" not in document:
            raise InputError('the JSON has no "inputs": {"inputs": {name: values}} is what it takes')
        return {"outputs": answer(document["inputs"])}
    except (InputError, UnsupportedError) as error:
        if AMLResponse is None:
            raise
        return AMLResponse({"error": str(error)}, 400, json_str=True)


def answer(inputs: Any) -> dict[str, Any]:
    """The outputs for inputs of plain JSON."""
    specs = {i.name: i for i in session.get_inputs()}
    feeds = decode_plain(inputs, {name: dtype_of(spec) for name, spec in specs.items()}, COLUMNS)
    for name, array in feeds.items():
        if array.ndim != len(specs[name].shape):
            raise InputError(f"{name!r} must have {len(specs[name].shape)} dims, not {array.ndim}")
        if not array.size and not TAKES_EMPTY:
            raise InputError(f"{name!r} has shape {list(array.shape)}, which holds nothing")
    check_shared_dims(feeds, SHARED)
    names = [o.name for o in session.get_outputs()]
    try:
        values = session.run(names, feeds)
    except Exception as error:  # the runtime's own: these inputs cannot be computed
        raise InputError(f"the model fails on these inputs: {str(error)[:200]}") from None
    return {name: to_lists(name, value) for name, value in zip(names, values, strict=True)}
