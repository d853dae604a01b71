"""The process that has PaddlePaddle: `python -m onnxtool.conversion.paddle.worker` runs a program and exports it.

Paddle crashes in a process that has TensorFlow, and paddle2onnx aborts its process on an operator that it lacks.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from onnxtool.conversion.paddle.patches import PROGRAM_PATCHES, lost_biases
from onnxtool.conversion.patches import correct, replaced
from onnxtool.errors import one_line
from onnxtool.runtime.worker.isolation import FRAMEWORK, OWN, guarded
from onnxtool.runtime.worker.tasks import run_tasks

# What the process printed, for its parent.
LOG = "log"


class Program:
    """A loaded program. What its methods return goes to the parent: plain values, or a str that says what failed."""

    def __init__(self, name: str, size: int, trusted: bool) -> None:
        """Import PaddlePaddle.

        Args:
            name: path of program and weights without their suffixes.
            size: their bytes.
            trusted: give it the time and memory of the user's own code.
        """
        folder = Path(name).parent
        log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        tempfile.tempdir = str(folder)  # paddle2onnx leaves files behind when it aborts
        import paddle

        paddle.disable_signal_handler()
        self._paddle, self._name, self._size = paddle, name, size
        self._allowance = OWN if trusted else replace(FRAMEWORK, scale=4.0)
        self._is_json = Path(f"{name}.json").exists()
        self._mode = paddle.pir_utils.IrGuard if self._is_json else paddle.pir_utils.OldIrGuard
        paddle.enable_static()
        self._executor = paddle.static.Executor(paddle.CPUPlace())
        self._loaded: tuple[Any, list[str], list[Any]] | None = None  # program, names of its inputs, its outputs

    def __call__(self, task: tuple[str, Any]) -> object:
        """Do one task: ("load", None), ("run", arrays), ("export", opset)."""
        kind, given = task
        sizes = sum(array.nbytes for array in given) if kind == "run" else 0
        actions: dict[str, Callable[[Any], object]] = {"load": self._load, "run": self._run, "export": self._export}
        with guarded(f"PaddlePaddle works on the model ({kind})", self._size, sizes, self._allowance):
            try:
                return actions[kind](given)
            except Exception as error:
                return _reason(str(error)) or type(error).__name__

    def _load(self, _: None) -> object:
        """What there is to know of the program.

        Returns:
            Names, dtypes and shapes (-1 is dynamic) of the inputs; dtypes and shapes of the outputs; the operators; and
            how many rows the tables have that inputs are looked up in.
        """
        with self._mode():
            program, names, results = self._loaded = self._paddle.static.load_inference_model(
                self._name, self._executor
            )
        block = program.global_block()
        if self._is_json:
            given = {v.name: v for op in block.ops if op.name() in ("pd_op.data", "pd_op.feed") for v in op.results()}
        else:
            given = {name: block.var(name) for name in names}
        inputs = [(name, _dtype(given[name]), tuple(given[name].shape)) for name in names]
        outputs = [(_dtype(value), tuple(value.shape)) for value in results]
        operators = {(op.name() if self._is_json else op.type).removeprefix("pd_op.") for op in block.ops}
        return inputs, outputs, sorted(operators - {"data", "feed", "fetch"}), dict(self._tables(block))

    def _tables(self, block: Any) -> Iterator[tuple[str, int]]:
        """Names of inputs that an embedding reads, and its rows."""
        for op in block.ops:
            if self._is_json and op.name() == "pd_op.embedding":
                giver = op.operand_source(0).get_defining_op()
                if giver.name() in ("pd_op.data", "pd_op.feed"):
                    yield op.operand_source(0).name, op.operand_source(1).shape[0]
            elif not self._is_json and op.type == "lookup_table_v2":
                yield op.input("Ids")[0], block.var(op.input("W")[0]).shape[0]

    def _run(self, arrays: list[np.ndarray]) -> object:
        if self._loaded is None:  # a process that took the place of one that crashed
            self._load(None)
        assert self._loaded is not None
        program, names, results = self._loaded
        with self._mode():
            return self._executor.run(program, dict(zip(names, arrays, strict=True)), results)

    def _export(self, opset: int) -> object:
        """The graph's bytes, and what it lacks: see `patches`."""
        from paddle2onnx import convert

        failures: list[str] = []
        lost: dict[str, float] = {}
        native = convert.c_p2o.export

        def corrected(program: str, *rest: object) -> object:
            read = json.loads(Path(program).read_bytes())
            correct(PROGRAM_PATCHES, read)
            lost.update(lost_biases(read))
            Path(self._name).with_name("corrected.json").write_text(json.dumps(read, separators=(",", ":")))
            return native(str(Path(self._name).with_name("corrected.json")), *rest)

        convert.logging.error = lambda text: failures.append(str(text))
        suffix = ".json" if self._is_json else ".pdmodel"
        with replaced(convert, "c_p2o", SimpleNamespace(export=corrected)), suppress(UnboundLocalError):
            weights = f"{self._name}.pdiparams"
            return convert.export(self._name + suffix, weights, None, opset, enable_onnx_checker=False), lost
        return _reason(failures[0] if failures else "no graph")  # it goes on without one after an error


def _dtype(value: Any) -> str:
    return str(value.dtype).rpartition(".")[2].lower()


def _reason(text: str) -> str:
    """What Paddle's enforcement says, without its traces."""
    for mark in ("Error:", "(InvalidArgument)", "(Unavailable)", "(Unimplemented)"):
        text = text.rpartition(mark)[2] if mark in text else text
    return one_line(text.partition("[Hint")[0])


if __name__ == "__main__":
    run_tasks(lambda setup: Program(*setup))
