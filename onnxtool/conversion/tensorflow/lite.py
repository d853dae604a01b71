"""TensorFlow Lite files: run by TensorFlow's interpreter, translated by tf2onnx; how their tensors are quantized."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.conversion.adapter import SourceModel
from onnxtool.conversion.graph_interface import described, named_outputs
from onnxtool.conversion.input_plan import name_dims, unique
from onnxtool.conversion.source import Source
from onnxtool.conversion.tensorflow.cleanup import clean_up
from onnxtool.conversion.tensorflow.environment import quiet, silent_native_stderr
from onnxtool.conversion.tensorflow.graph import corrected, failure, optimized, refuse_foreign_operators
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
    apart: list[str] = []
    outputs = list(named_outputs(outputs, inputs, options, apart))
    quantized = describe(interpreter, [s.name for s in inputs], [s.name for s in outputs])
    return LiteModel(
        path=path,
        interpreter=interpreter,
        inputs=inputs,
        outputs=tuple(outputs),
        tensors=(tuple(t["name"] for t in given), tuple(t["name"] for t in results)),
        framework=f"tensorflow {tf.__version__}",
        form="TensorFlow Lite model, quantized" if quantized.notes else "TensorFlow Lite model",
        notes=[*apart, *quantized.notes],
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
    with (
        quiet(verbose),
        silent_native_stderr(verbose),
        corrected(),
    ):  # tf2onnx opens the file in an interpreter of its own
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


# How many steps of its own an output may be off.
_STEPS = 2
# The most that such an output moves when all that goes in moves by 1: p (1 - p) twice over for softmax.
_SLOPES = {"SOFTMAX": 0.5, "LOGISTIC": 0.25, "TANH": 1.0}


@dataclass(frozen=True)
class Quantized:
    """What to know of a quantized model; all empty for a float one.

    Attributes:
        domains: input name -> values that its integers can stand for.
        rounding: output name -> how far it may be off, in its own units (steps, where it is an integer).
        notes: to say aloud.
    """

    domains: Mapping[str, Domain] = field(default_factory=dict)
    rounding: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def describe(interpreter: Any, inputs: Sequence[str], outputs: Sequence[str]) -> Quantized:
    """Look at the tensors of a loaded model.

    Args:
        interpreter: TensorFlow Lite's, tensors allocated.
        inputs, outputs: what the model's inputs and outputs are called, in order.
    """
    tensors = {int(d["index"]): d for d in interpreter.get_tensor_details()}
    quantized = [d for d in tensors.values() if np.size(d["quantization_parameters"]["scales"])]
    if not quantized:
        return Quantized()
    # A float interface: what stands behind the first and before the last conversion tells.
    operators: Sequence[Mapping[str, Any]] = getattr(
        interpreter, "_get_ops_details", list
    )()  # no public function lists them
    into = _ends(operators, "QUANTIZE", "inputs", "outputs")
    out_of = _ends(operators, "DEQUANTIZE", "outputs", "inputs") | _ends(operators, "QUANTIZE", "outputs", "inputs")
    domains, rounding = {}, {}
    for name, detail in zip(inputs, interpreter.get_input_details(), strict=True):
        index = int(detail["index"])
        domain = _domain(detail, tensors.get(into.get(index, -1)))
        if domain is not None:
            domains[name] = domain
    for name, detail in zip(outputs, interpreter.get_output_details(), strict=True):
        index = int(detail["index"])
        last = out_of.get(index, index)
        step = _scale(tensors.get(last))
        if step is not None:
            off = max(_STEPS * step, _moved(last, operators, tensors) + step)
            rounding[name] = off if np.dtype(detail["dtype"]).kind == "f" else float(np.ceil(off / step))
    notes = [f"quantized tensors ({len(quantized)}) are kept as QuantizeLinear and DequantizeLinear pairs"]
    notes += [
        f"output {name} may be {off:.3g} off: values half-way between two quantization steps go either way"
        for name, off in rounding.items()
    ]
    return Quantized(domains, rounding, tuple(notes))


def _ends(operators: Sequence[Mapping[str, Any]], kind: str, key: str, value: str) -> dict[int, int]:
    """Tensors that conversions of a kind have on one side -> those on the other."""
    found: dict[int, int] = {}
    for operator in operators:
        if operator["op_name"] == kind and len(operator["inputs"]) == len(operator["outputs"]) == 1:
            found.setdefault(int(operator[key][0]), int(operator[value][0]))
    return found


def _moved(tensor: int, operators: Sequence[Mapping[str, Any]], tensors: Mapping[int, Any]) -> float:
    """How far a tensor moves when what its softmax or sigmoid is made of moves by one step; 0 for others."""
    for operator in operators:
        if tensor in operator["outputs"] and operator["op_name"] in _SLOPES:
            return _SLOPES[operator["op_name"]] * (_scale(tensors.get(int(operator["inputs"][0]))) or 0.0)
    return 0.0


def _domain(detail: Mapping[str, Any], behind: Mapping[str, Any] | None) -> Domain | None:
    """What an input may be: every integer of a quantized one, the range that a float one is clipped to."""
    dtype = np.dtype(detail["dtype"])
    if dtype.kind in "iu" and _scale(detail) is not None:
        return Domain(float(np.iinfo(dtype).min), float(np.iinfo(dtype).max) + 1)
    scale = _scale(behind)
    if dtype.kind != "f" or behind is None or scale is None:
        return None
    limits, zero = np.iinfo(np.dtype(behind["dtype"])), int(behind["quantization"][1])
    return Domain(scale * (limits.min - zero), scale * (limits.max - zero))


def _scale(detail: Mapping[str, Any] | None) -> float | None:
    """The scale of a tensor that has one for all of it."""
    if detail is None or np.dtype(detail["dtype"]).kind not in "iu":
        return None
    scales = detail["quantization_parameters"]["scales"]
    return float(scales[0]) if np.size(scales) == 1 and scales[0] > 0 else None
