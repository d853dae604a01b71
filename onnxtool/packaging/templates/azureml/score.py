"""The scoring script of Azure Machine Learning: {"inputs": {name: lists}} -> {"outputs": {name: lists}}."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

THREADS = 1
session: ort.InferenceSession
aborts_when_empty: bool

DTYPES = {
    **{f"tensor({u}int{bits})": f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)},
    "tensor(float16)": "float16",
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(bool)": "bool",
    "tensor(string)": "object",
}


def init() -> None:
    """Called once, when the container starts."""
    global session, aborts_when_empty  # noqa: PLW0603  (Azure calls init and run)
    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    model = next(Path(os.environ["AZUREML_MODEL_DIR"]).rglob("model.onnx"))
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    # The runtime's kernels for these operators end the whole process on a batch of 0.
    aborts_when_empty = any(operator in model.read_bytes() for operator in (b"GRU", b"LSTM"))


def run(raw_data: str) -> dict[str, Any]:
    """Called for each request."""
    given = json.loads(raw_data)["inputs"]
    feeds = {}
    for spec in session.get_inputs():
        array = np.array(given[spec.name])
        cast = array.astype(DTYPES[spec.type])
        if cast.dtype.kind in "iu" and array.size and (array.dtype.kind not in "iu" or (cast != array).any()):
            raise ValueError(f"{spec.name!r}: the values do not fit {cast.dtype}")
        if aborts_when_empty and not cast.size:
            raise ValueError(f"{spec.name!r} has shape {list(cast.shape)}, which holds nothing")
        feeds[spec.name] = cast
    names = [o.name for o in session.get_outputs()]
    return {"outputs": {n: v.tolist() for n, v in zip(names, session.run(names, feeds), strict=True)}}
