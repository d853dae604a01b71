"""Runner: named inputs, named outputs, run(feeds). The hinge on which compare, calibration and timing turn."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort

from onnxtool.errors import InputError, OnnxToolError
from onnxtool.model import io
from onnxtool.model.spec import ONNX_TO_NUMPY, TensorSpec, with_columns
from onnxtool.runtime.empty_inputs import is_empty
from onnxtool.runtime.feeds import check_feeds, feeds_bytes
from onnxtool.runtime.providers.known import provider_call, provider_crashes
from onnxtool.runtime.session.session import (
    DEFAULT,
    SessionOptions,
    bytes_beside,
    classify,
    crash_of,
    create_session,
    without_providers,
)
from onnxtool.runtime.worker.errors import OutOfTableError, WorkerDiedError
from onnxtool.runtime.worker.isolation import guarded, native_silence
from onnxtool.runtime.worker.watchdog import Crash
from onnxtool.runtime.worker.worker import Worker

if TYPE_CHECKING:
    import onnx_ir as ir


_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_RUNTIME_TYPES: Mapping[str, np.dtype | str] = {name.lower(): dtype for name, dtype in ONNX_TO_NUMPY.items()}


@runtime_checkable
class Runner(Protocol):
    """Anything that maps named arrays to named arrays: an ONNX session, a torch module, an estimator."""

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """What `run` takes."""

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """What `run` gives."""

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass; values are arrays (for sequence and map outputs: lists)."""


@runtime_checkable
class ClosableRunner(Runner, Protocol):
    """A Runner that holds something open: a server, a browser, a connection."""

    def close(self) -> None:
        """End what it holds."""


@contextmanager
def closing(*runners: object) -> Iterator[None]:
    """Close what has to be closed of these when the block ends; other Runners, and paths, are left alone."""
    try:
        yield
    finally:
        for runner in runners:
            if isinstance(runner, ClosableRunner):
                runner.close()


class OnnxRunner:
    """An ONNX model in the embedded runtime."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session
        self.run_options: ort.RunOptions | None = None
        self._weights = 0
        self._crash: Crash | None = None  # of the provider whose place the CPU takes here
        self._options = DEFAULT
        self._model: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model | None = None
        metadata: Mapping[str, str] = session.get_modelmeta().custom_metadata_map
        self.inputs: tuple[TensorSpec, ...] = with_columns((_spec(i) for i in session.get_inputs()), metadata)
        self.outputs: tuple[TensorSpec, ...] = with_columns((_spec(o) for o in session.get_outputs()), metadata)
        self._ran_on: set[tuple[tuple[int, ...], ...]] = set()  # shapes that have worked
        self.takes_bfloat16 = any(s.dtype == _BFLOAT16 for s in (*self.inputs, *self.outputs))

    @classmethod
    def open(
        cls,
        model: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model,
        options: SessionOptions = DEFAULT,
        weights: Mapping[str, np.ndarray] | None = None,
    ) -> OnnxRunner:
        """Load a model and wrap its session; arguments and errors as of `create_session`."""
        crash = crash_of(options, running=True)
        if crash is not None:
            options = without_providers(options)
        runner = cls(create_session(model, options, weights))
        runner._crash, runner._options, runner._model = crash, options, model
        # The runtime may copy and rearrange weights as late as in the first run.
        if isinstance(model, (str, os.PathLike)):
            runner._weights = bytes_beside(Path(model))
        elif not isinstance(model, (bytes, onnx.ModelProto)):
            runner._weights = io.weight_bytes(model)
        return runner

    @property
    def session(self) -> ort.InferenceSession:
        """What runs the model."""
        return self._session

    def _run_apart(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Run on inputs without elements in a process of its own: the kernels of some operators end it.

        Raises:
            InputError: the model does not take them.
        """
        empty = next(n for n, a in feeds.items() if is_empty({n: a}))
        told = f"{empty!r} has shape {list(feeds[empty].shape)}, which holds nothing"
        if self._model is None:
            raise InputError(f"{told}: a model of which there is a session alone is not run on that.")
        model = self._model.SerializeToString() if isinstance(self._model, onnx.ModelProto) else self._model
        worker = Worker(model if isinstance(model, (str, os.PathLike, bytes)) else io.to_bytes(model), self._options)
        with closing(worker):
            try:
                return worker.run(feeds)
            except WorkerDiedError as error:
                raise InputError(f"{told}: the runtime ends its process on it. Give at least one.") from error

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass; float32 given for float64 is widened, which changes no number.

        Raises:
            InputError: names, dtypes or ranks do not fit the model, or a node fails on this data.
            ResourceError: out of memory.
        """
        wide = {s.name for s in self.inputs if s.dtype == np.float64}
        if wide:
            feeds = {n: _widened(array) if n in wide else array for n, array in feeds.items()}
        check_feeds(self.inputs, feeds)
        try:
            shapes = tuple(np.shape(f) for f in feeds.values())
            if shapes in self._ran_on:
                return self.run_unchecked(feeds)
            if is_empty(feeds):
                return self._run_apart(feeds)
            what = f"running the model {'for the first time' if not self._ran_on else 'on another size'}"
            call = provider_call(what, self.session.get_providers()[0])
            with guarded(what, self._weights, feeds_bytes(feeds), retry=True, provider=call), native_silence():
                outputs = self.run_unchecked(feeds)
            if self._crash is not None:
                raise provider_crashes(self._crash)
            self._ran_on.add(shapes)
            return outputs
        except OnnxToolError:
            raise
        except Exception as error:
            # Not kept in a variable here: error, frame and session would hold each other, and all of its memory.
            raise describe_failure(error, feeds) from error

    def run_unchecked(self, feeds: Mapping[str, np.ndarray], options: ort.RunOptions | None = None) -> dict[str, Any]:
        """One forward pass on feeds that have passed `check_feeds`, with the runtime's errors; several threads may."""
        names = [o.name for o in self.outputs]
        if self.takes_bfloat16:
            return self._run_bfloat16(feeds, names)
        return dict(zip(names, self.session.run(names, dict(feeds), options or self.run_options), strict=True))

    def _run_bfloat16(self, feeds: Mapping[str, np.ndarray], names: list[str]) -> dict[str, Any]:
        # numpy has no bfloat16, so Session.run cannot take or give it; OrtValue can, through uint16.
        values = {
            name: (
                ort.OrtValue.ortvalue_from_numpy_with_onnx_type(a.view(np.uint16), onnx.TensorProto.BFLOAT16)
                if a.dtype == _BFLOAT16
                else ort.OrtValue.ortvalue_from_numpy(a)
            )
            for name, a in feeds.items()
        }
        results = self.session.run_with_ort_values(names, values)
        return {
            name: (_bfloat16_array(r) if spec.dtype == _BFLOAT16 else r.numpy())
            for name, spec, r in zip(names, self.outputs, results, strict=True)
        }


def describe_failure(error: Exception, feeds: Mapping[str, np.ndarray]) -> OnnxToolError:
    """What the runtime has raised on these feeds, in our terms."""
    outside = _out_of_table(str(error), feeds)
    if outside is not None:
        return outside
    failure = classify(error)
    if type(failure) is InputError:
        return InputError(str(failure).replace("the runtime refuses this model", "the model fails to run"))
    return failure


_OUT_OF_TABLE = re.compile(r"idx=(-?\d+) must be within the inclusive range \[-?\d+,(-?\d+)\]")
_NODE = re.compile(r"Name:'([^']*)'")


def _out_of_table(message: str, feeds: Mapping[str, np.ndarray]) -> OutOfTableError | None:
    """The runtime's complaint of an index, in terms of the input that holds it; None for any other failure."""
    found = _OUT_OF_TABLE.search(message)
    if found is None:
        return None
    value, last = int(found[1]), int(found[2])
    for name, array in feeds.items():
        if array.dtype.kind in "iu" and (hits := np.argwhere(array == value)).size:
            node = _NODE.search(message)
            table = f"the table of node {node[1]!r}" if node is not None and node[1] else "the table that it looks up"
            place = f" at {hits[0].tolist()}" if array.ndim else ""
            said = f"input {name!r} holds {value}{place}; {table} has rows 0 to {last}."
            return OutOfTableError(said, name, value)
    return None


def _bfloat16_array(value: ort.OrtValue) -> np.ndarray:
    # OrtValue.numpy() refuses bfloat16 and numpy's from_dlpack does too: copy the bytes out.
    size = value.tensor_size_in_bytes()
    if size == 0:
        return np.empty(value.shape(), _BFLOAT16)
    raw = (ctypes.c_uint8 * size).from_address(value.data_ptr())
    return np.frombuffer(bytes(raw), _BFLOAT16).reshape(value.shape())


def _widened(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if getattr(array, "dtype", None) == np.float32 else array


def _spec(argument: ort.NodeArg) -> TensorSpec:
    kind = argument.type
    if kind.startswith("tensor(") and kind.endswith(")"):
        inner = kind[len("tensor(") : -1]
        shape = tuple(None if d is None or (isinstance(d, int) and d < 0) else d for d in argument.shape)
        return TensorSpec(argument.name, _RUNTIME_TYPES.get(inner, inner), shape)
    return TensorSpec(argument.name, kind, None)


def fit_dtypes(runner: OnnxRunner, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Feeds in the float dtypes that a model takes."""
    wanted = {s.name: s.dtype for s in runner.inputs}
    return {name: _fit(array, wanted.get(name)) for name, array in feeds.items()}


def _fit(array: np.ndarray, dtype: np.dtype | str | None) -> np.ndarray:
    floats = isinstance(dtype, np.dtype) and dtype.kind == "f" and array.dtype.kind == "f"
    return array.astype(dtype) if floats and array.dtype != dtype else array


class CastingRunner(OnnxRunner):
    """Takes float32 feeds and gives float32 outputs, whatever float type the model itself has."""

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass; raises as `OnnxRunner.run`."""
        outputs = super().run(fit_dtypes(self, feeds))
        half = np.dtype("float16")
        return {
            name: value.astype(np.float32) if isinstance(value, np.ndarray) and value.dtype == half else value
            for name, value in outputs.items()
        }
