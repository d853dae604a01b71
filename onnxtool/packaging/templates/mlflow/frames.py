"""What MLflow runs as python_function: a data frame gives a data frame, arrays by name give arrays by name.

MLflow's own loader of ONNX models takes no table of several inputs, and makes a single column of all outputs.
"""

from typing import Any

import numpy as np
import onnxruntime as ort
import pandas as pd
from protocol import InputError, check_shared_dims, decode_plain, element_type, runtime_datatype

THREADS = 2
SHARED: dict[str, Any] = {}
COLUMNS: dict[str, Any] = {}
TAKES_EMPTY = True
TITLES: dict[str, list[str]] = {}  # of outputs: what their columns are called in a data frame


class Model:
    """The model of this folder, as MLflow asks it."""

    def __init__(self, path: str) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = THREADS
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._types = {i.name: element_type(runtime_datatype(i.type)) for i in self._session.get_inputs()}
        self._dims = {i.name: len(i.shape) for i in self._session.get_inputs()}

    def get_raw_model(self) -> "Model":
        return self

    def predict(self, data: Any, params: dict[str, Any] | None = None) -> Any:
        del params
        if not isinstance(data, pd.DataFrame):
            return self._run(data if isinstance(data, dict) else dict.fromkeys(self._types, data))
        if len(self._types) == 1 and not COLUMNS and self._dims == dict.fromkeys(self._types, 2):
            return _frame(self._run(dict.fromkeys(self._types, data.to_numpy())), data.index)
        return _frame(self._run({str(name): column.tolist() for name, column in data.items()}), data.index)

    def _run(self, given: dict[str, Any]) -> dict[str, Any]:
        feeds = decode_plain(given, self._types, COLUMNS)
        for name, array in feeds.items():
            if array.ndim != self._dims[name]:
                raise InputError(f"{name!r} must have {self._dims[name]} dims, not {array.ndim}")
            if not array.size and not TAKES_EMPTY:
                raise InputError(f"{name!r} has shape {list(array.shape)}, which holds nothing")
        check_shared_dims(feeds, SHARED)
        names = [o.name for o in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, feeds), strict=True))


def _frame(outputs: dict[str, Any], index: pd.Index) -> Any:
    """A column for each number or text of a row; outputs without a row for each of the frame's stay arrays."""
    arrays = {name: np.asarray(value) for name, value in outputs.items()}
    if any(a.ndim == 0 or len(a) != len(index) for a in arrays.values()):
        return outputs
    found: dict[str, Any] = {}
    for name, array in arrays.items():
        flat = array.reshape(len(index), int(np.prod(array.shape[1:])))
        titles = TITLES.get(name) or [f"{name}[{','.join(map(str, p))}]" for p in np.ndindex(*array.shape[1:])]
        found |= dict(zip([name] if len(titles) == 1 else titles, flat.T, strict=True))
    return pd.DataFrame(found, index=index)


def _load_pyfunc(path: str) -> Model:  # MLflow calls it
    return Model(path)
