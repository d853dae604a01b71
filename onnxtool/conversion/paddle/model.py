"""A PaddlePaddle program as a Runner, in a process of its own."""

from __future__ import annotations

import re
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxtool.conversion.adapter import SourceModel
from onnxtool.conversion.graph_interface import described, named
from onnxtool.conversion.input_plan import name_dims
from onnxtool.conversion.opset import export_at
from onnxtool.conversion.paddle.files import ProgramFiles
from onnxtool.conversion.paddle.patches import GRAPH_PATCHES, ProgramFacts
from onnxtool.conversion.paddle.worker import LOG
from onnxtool.conversion.patches import correct
from onnxtool.errors import InputError, UnsupportedError, UsageError
from onnxtool.model import io
from onnxtool.model.spec import TensorSpec, parse_dtype
from onnxtool.options.convert import ConvertOptions
from onnxtool.runtime.worker.errors import OutOfTableError
from onnxtool.runtime.worker.tasks import TaskPool, TaskProcessEndedError

WORKER = "onnxtool.conversion.paddle.worker"
# What paddle2onnx 2.0.1 writes.
NEWEST_OPSET = 21
# Of images smaller than their window, Paddle's kernels give an empty one where others refuse them.
_WINDOW = re.compile("(depthwise_)?(conv|pool|max_pool|unfold)")
# What gives as many results as the values say, which may be none.
_PICKS = re.compile("nms|nonzero|select|unique|where_index")


class PaddleModel(SourceModel):
    """A program as it lies on disk, with the process that runs it.

    Attributes:
        operators: Paddle's names of those that it uses.
    """

    limits: Sequence[str] = ("missing", "missing rows")  # what comparisons make of NaN differs from kernel to kernel

    def __init__(self, files: ProgramFiles, subject: str, options: ConvertOptions) -> None:
        """Load the program.

        Raises:
            InputError: damaged, or not loadable.
            UsageError: options that do not fit.
        """
        self._subject, self._folder = subject, tempfile.TemporaryDirectory(prefix="onnxtool-paddle-")
        setup = (files.link(Path(self._folder.name)), files.size, options.trust)
        self._process = TaskPool(WORKER, setup, 1)
        self._end = weakref.finalize(self, _end, self._process, self._folder)
        inputs, outputs, self.operators, self._rows = self._ask("load", None, "PaddlePaddle cannot load it")
        dims = name_dims(
            {name: tuple(None if d < 0 else d for d in shape) for name, _, shape in inputs}, channels_first=True
        )
        own = [TensorSpec(name, parse_dtype(dtype), dims[name]) for name, dtype, _ in inputs]
        self.inputs = described(own, options)
        for spec, found in zip(self.inputs, own, strict=True):
            if spec.dtype != found.dtype:
                raise UsageError(f"--input-dtype: input {spec.name!r} of this program is {found.dtype} for good.")
        results = [TensorSpec(f"fetch_name_{n}", parse_dtype(o[0]), None) for n, o in enumerate(outputs)]
        self.outputs = named(results, options.output_names, "--output-names")
        self.form = f"PaddlePaddle {'3' if files.is_json else '2'} inference program"
        self.framework = f"paddlepaddle {version('paddlepaddle')}"
        self.notes = [] if files.weights else ["there is no .pdiparams beside it: a program without weights"]
        self._are_scalars = [shape == () for _, shape in outputs]
        self._names = [name for name, _, _ in inputs]
        self._looks_up = not {"embedding", "lookup_table_v2"}.isdisjoint(self.operators)
        self._is_windowed = any(map(_WINDOW.match, self.operators)) and not any(map(_PICKS.search, self.operators))

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass.

        Raises:
            InputError: the program refuses these inputs, or crashes on them.
        """
        arrays = [np.ascontiguousarray(feeds[s.name]) for s in self.inputs]
        if self._looks_up and any(a.dtype.kind == "i" and (a < 0).any() for a in arrays):
            raise InputError(f"{self._subject}: negative indices, of which its embedding takes -1 for none.")
        for spec, name, array in zip(self.inputs, self._names, arrays, strict=True):
            rows = self._rows.get(name)
            if rows is not None and (array >= rows).any():
                # Paddle itself goes on to read in the memory behind the table.
                value = int(array.max())
                said = f"{self._subject}: input {spec.name!r} holds {value}; its embedding has rows 0 to {rows - 1}."
                raise OutOfTableError(said, spec.name, value)
        found = self._ask("run", arrays, "the PaddlePaddle program fails to run")
        if self._is_windowed and any(a.size == 0 for a in found) and all(a.size for a in arrays):
            raise InputError(f"{self._subject}: these sizes are smaller than a window of the program.")
        return {spec.name: array for spec, array in zip(self.outputs, found, strict=True)}

    def export(self, options: ConvertOptions) -> ir.Model:
        """Convert the program.

        Raises:
            UnsupportedError: operators that paddle2onnx does not have.
        """
        return export_at(options, NEWEST_OPSET, self.notes, self._export)

    def release(self) -> None:
        """End the process."""
        self._end()

    def _export(self, opset: int) -> ir.Model:
        try:
            data, biases = self._ask("export", opset, "paddle2onnx cannot convert it")
        except InputError as error:
            log = Path(self._folder.name, LOG).read_text(errors="replace")
            if reasons := re.findall(r"\[ERROR\]\[Paddle2ONNX\] (\[OP: .*)", log):
                raise UnsupportedError(f"{self._subject}: paddle2onnx cannot convert it: {reasons[-1]}") from error
            if "unsupported operators" not in log:
                raise UnsupportedError(str(error)) from error
            raise UnsupportedError(
                f"{self._subject}: paddle2onnx {version('paddle2onnx')} has no form for an operator of it (it does not "
                f"say which; there are these: {', '.join(self.operators)})."
            ) from error
        model = io.from_proto(onnx.load_from_string(data))
        _refuse_gaps(model.graph, self._subject)
        correct(GRAPH_PATCHES, model, ProgramFacts(biases, self._are_scalars))
        # paddle2onnx numbers its dynamic dims anew at each tensor; inference and the source know better.
        for node in model.graph.all_nodes():
            for value in node.outputs:
                if not value.is_graph_output():
                    value.shape = None
        for value in model.graph.outputs:
            if value.shape is not None:
                value.shape = ir.Shape([dim if isinstance(dim, int) else None for dim in value.shape])
        _in_order(model.graph, self._names)
        return model

    def _ask(self, kind: str, given: object, failure: str) -> Any:
        """Raises InputError with what the process says, or the reason why it ended."""
        try:
            found = self._process.run((kind, given))
        except TaskProcessEndedError as error:
            raise InputError(f"{self._subject}: {failure}: {error}") from error
        if isinstance(found, str):
            raise InputError(f"{self._subject}: {failure}: {found}")
        return found


def _end(process: TaskPool, folder: tempfile.TemporaryDirectory[str]) -> None:
    process.close()
    folder.cleanup()


def _refuse_gaps(graph: ir.Graph, subject: str) -> None:
    """Raises UnsupportedError where a node reads what nothing gives: an operator that the exporter left out."""
    for node in graph.all_nodes():
        for value in node.inputs:
            if value is not None and value.producer() is None and value.name and not _is_given(value):
                raise UnsupportedError(f"{subject}: paddle2onnx leaves out the operator that gives {value.name!r}.")


def _is_given(value: ir.Value) -> bool:
    return value.is_graph_input() or value.is_initializer()


def _in_order(graph: ir.Graph, names: Sequence[str]) -> None:
    """Put the inputs in the program's order: of a program of Paddle 2 the exporter has another one."""
    by_name = {value.name: value for value in graph.inputs}
    if set(by_name) == set(names):
        graph.inputs[:] = [by_name[name] for name in names]
