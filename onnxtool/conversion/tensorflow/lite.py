"""TensorFlow Lite files: run by TensorFlow's interpreter, translated by tf2onnx."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.conversion.adapter import SourceModel
from onnxtool.conversion.graph_interface import described, named
from onnxtool.conversion.input_plan import name_dims, unique
from onnxtool.conversion.source import Source
from onnxtool.conversion.tensorflow.cleanup import clean_up
from onnxtool.conversion.tensorflow.environment import quiet, silent_native_stderr
from onnxtool.conversion.tensorflow.graph import failure, optimized, refuse_foreign_operators
from onnxtool.conversion.tensorflow.lite_quantization import describe
from onnxtool.errors import InputError, one_line
from onnxtool.model import io
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec
from onnxtool.options.convert import ConvertOptions
from onnxtool.runtime.worker.isolation import guarded

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir


@dataclass
class LiteModel(SourceModel):
    """A TensorFlow Lite graph.

    Attributes:
        interpreter: runs the original; resized for each new shape of its inputs.
        tensors: the graph's own names of inputs and outputs.
        rounding: how far quantized outputs may be off, see `adapter.SourceModel`.
    """

    path: str
    interpreter: Any
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    tensors: tuple[tuple[str, ...], tuple[str, ...]]
    framework: str
    form: str = "TensorFlow Lite model"
    notes: list[str] = field(default_factory=list)
    feeds_hint: Mapping[str, Domain] | None = None
    rounding: Mapping[str, float] = field(default_factory=dict)
    limits: Sequence[str] = ("missing", "missing rows")  # what comparisons make of NaN differs from kernel to kernel

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One run of the interpreter.

        Raises:
            InputError: it refuses these shapes.
        """
        interpreter = self.interpreter
        try:
            for spec, detail in zip(self.inputs, interpreter.get_input_details(), strict=True):
                interpreter.resize_tensor_input(detail["index"], feeds[spec.name].shape)
            interpreter.allocate_tensors()
            for spec, detail in zip(self.inputs, interpreter.get_input_details(), strict=True):
                interpreter.set_tensor(detail["index"], feeds[spec.name])
            interpreter.invoke()
            details = interpreter.get_output_details()
            return {s.name: interpreter.get_tensor(d["index"]) for s, d in zip(self.outputs, details, strict=True)}
        except (ValueError, RuntimeError) as error:
            reason = one_line(error)
            raise InputError(f"the TensorFlow Lite model fails to run: {reason}") from error


def load_lite(source: Source, options: ConvertOptions) -> LiteModel:
    """Load a .tflite file.

    Raises:
        InputError: damaged.
    """
    import tensorflow as tf

    with quiet(options.verbose), guarded("loading the TensorFlow Lite model", source.size):
        try:
            # Without XNNPACK, which sums in another order and announces itself on the terminal.
            resolver = tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
            path = os.fspath(source.path or "")
            interpreter = tf.lite.Interpreter(path, experimental_op_resolver_type=resolver)
            interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            reason = one_line(error, 200)
            raise InputError(f"{source}: damaged, or TensorFlow Lite cannot load it: {reason}") from error
    given, results = interpreter.get_input_details(), interpreter.get_output_details()
    names, result_names = _names(interpreter, given, "inputs"), _names(interpreter, results, "outputs")
    shapes = {
        n: tuple(None if d < 0 else int(d) for d in t["shape_signature"]) for n, t in zip(names, given, strict=True)
    }
    dims = name_dims(shapes)
    inputs = described(
        [TensorSpec(n, np.dtype(t["dtype"]), dims[n]) for n, t in zip(names, given, strict=True)], options
    )
    first = inputs[0].shape[0] if inputs and inputs[0].shape else None
    outputs = [
        TensorSpec(
            n,
            np.dtype(t["dtype"]),
            tuple(int(d) if d >= 0 else (first if axis == 0 else None) for axis, d in enumerate(t["shape_signature"])),
        )
        for n, t in zip(result_names, results, strict=True)
    ]
    outputs = list(named(outputs, options.output_names, "--output-names"))
    quantized = describe(interpreter, [s.name for s in inputs], [s.name for s in outputs])
    return LiteModel(
        path=path,
        interpreter=interpreter,
        inputs=inputs,
        outputs=tuple(outputs),
        tensors=(tuple(t["name"] for t in given), tuple(t["name"] for t in results)),
        framework=f"tensorflow {tf.__version__}",
        form="TensorFlow Lite model, quantized" if quantized.notes else "TensorFlow Lite model",
        notes=list(quantized.notes),
        feeds_hint=quantized.domains,
        rounding=quantized.rounding,
    )


def _names(interpreter: Any, details: Sequence[Mapping[str, Any]], what: str) -> list[str]:
    """Names of the signature, where there is one; else those of the tensors, without what TensorFlow added."""
    signatures = interpreter.get_signature_list()
    if len(signatures) == 1:
        (key,) = signatures
        runner = interpreter.get_signature_runner(key)
        own = runner.get_input_details() if what == "inputs" else runner.get_output_details()
        by_index = {detail["index"]: name for name, detail in own.items()}
        if all(d["index"] in by_index for d in details):
            return [by_index[d["index"]] for d in details]
    return unique([d["name"].split(":")[0].removeprefix("serving_default_") for d in details])


def export_lite(model: LiteModel, opset: int, verbose: int = 0) -> ir.Model:
    """Translate the file.

    Raises:
        UnsupportedError: operators that the converter does not have.
    """
    with quiet(verbose), silent_native_stderr(verbose):  # tf2onnx opens the file in an interpreter of its own
        try:
            proto = _convert(model, opset)
        except Exception as error:
            raise failure("the TensorFlow Lite converter (tf2onnx) fails on this model", error) from error
    refuse_foreign_operators(proto)
    graph = io.from_proto(proto)
    clean_up(graph)
    return graph


def _convert(model: LiteModel, opset: int) -> onnx.ModelProto:
    from tf2onnx import tfonnx

    graph = tfonnx.process_tf_graph(
        None,
        opset=opset,
        input_names=list(model.tensors[0]),
        output_names=list(model.tensors[1]),
        tflite_path=model.path,
    )
    return optimized(graph, "model")
