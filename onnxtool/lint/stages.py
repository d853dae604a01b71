"""The four native tests of a model file: specification, shapes, load, run. Each may be killed by a hostile file."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import onnx

from onnxtool.errors import InputError, OnnxToolError, ResourceError, UnsupportedError, one_line
from onnxtool.lint.catalog import rule
from onnxtool.model.header import specs
from onnxtool.model.io import native_path, old_opset
from onnxtool.model.safety.limits import DEFAULT
from onnxtool.model.safety.tensors import all_tensors, external_ref
from onnxtool.model.shapes import light_copy
from onnxtool.model.spec import TensorSpec
from onnxtool.options.session import SessionOptions
from onnxtool.report.check import Finding, Severity, Stage
from onnxtool.runtime.worker.isolation import crashed_before, guarded, is_supervised


@dataclass
class _Examination:
    path: Path
    proto: onnx.ModelProto
    stages: list[Stage] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @cached_property
    def size(self) -> int:
        """Bytes of the file and of its external data."""
        references = (external_ref(t) for t in all_tensors(self.proto, DEFAULT))
        files = {self.path.parent / r.location for r in references if r is not None}
        return sum(file.stat().st_size for file in {self.path, *files})

    def stage(self, name: str, action: Callable[[], str]) -> bool:
        """Run one stage; its findings decide whether it passed."""
        before, began = len(self.findings), time.perf_counter()
        with guarded(f"checking the {name}", self.size, retry=name == "run"):
            detail = action()
        new = {f.severity for f in self.findings[before:]}
        state = "passed" if not new else ("failed" if Severity.ERROR in new else "warned")
        self.stages.append(Stage(name, state, time.perf_counter() - began, detail))
        return state == "passed"

    def skip(self, name: str, why: str) -> None:
        self.stages.append(Stage(name, "skipped", 0.0, why))

    def find(self, identifier: str, message: str, where: str = "") -> None:
        self.findings.append(rule(identifier).finding(message, where))


# What the runtime says of models that are right but newer or richer than it: an attribute that its copy of the
# operator does not have, a kernel that refuses its settings, a type that it lost in an operator's function body.
_BEYOND_RUNTIME = ("Unrecognized attribute", "Exception during initialization", "in node ().")
# ... unless the model itself asks for what no runtime can give.
_UNKNOWN_OPSET = "is under development and support for this is limited"
_IMPOSSIBLE = ("division by zero",)
_DRAWS = 8  # of other values, where an output has not the shape that is declared
_SIZES = ((1, None), (2, None), (1, 64), (1, 224))  # batch and length of random inputs
_AFTER_CRASH = ((1, 1024), (1, 16000))  # sound shorter than a window can crash the runtime


def examine(
    path: Path,
    proto: onnx.ModelProto,
    options: SessionOptions,
    *,
    data: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> tuple[list[Stage], list[Finding]]:
    """Put a model file through all four stages.

    Args:
        path: an .onnx file.
        proto: what `read_proto` gave for it; it is left as it is.
        options: provider, threads and libraries of the run.
        data: .npz with inputs for the run; random ones unless given.
        seed: of random inputs.
    """
    work = _Examination(path, proto)
    sound = work.stage("specification", lambda: _specification(work))
    if sound:
        work.stage("shapes", lambda: _shapes(work))
    else:
        work.skip("shapes", "the file does not meet the specification")
    # One thread unless asked: making a pool of threads costs more than the one small run.
    small = replace(options, threads=options.threads or 1, optimization="basic")
    runners: list[Any] = []
    loaded = work.stage("load", lambda: _load(work, small, runners))
    if loaded and runners:
        from onnxtool.runtime.runner import closing

        with closing(*runners):
            work.stage("run", lambda: _run(work, runners[0], data, seed))
    else:
        work.skip("run", "the model does not load")
    return work.stages, work.findings


# Operators that ONNX Runtime registers in the standard domain, though ONNX does not have them; language models built
# for it have the first.
_RUNTIMES_OWN = ("SimplifiedLayerNormalization", "Affine", "Crop", "ImageScaler", "ParametricSoftplus", "ScaledTanh")


def _specification(work: _Examination) -> str:
    try:
        if _has_runtimes_own(work.proto) or old_opset(work.path):
            onnx.checker.check_model(_own_copy(work), full_check=False)
        else:
            # By path: the checker then looks at external data itself, and models over 2 GB work.
            onnx.checker.check_model(native_path(work.path), full_check=False)
    except Exception as error:  # the checker raises ValidationError, but also RuntimeError and UnicodeDecodeError
        work.find("OT001", one_line(error, 600) or type(error).__name__)
    return f"ONNX checker of onnx {onnx.__version__}"


def _shapes(work: _Examination) -> str:
    model = _own_copy(work)
    failure = _inference_failure(model, data_prop=True)
    # Following values as well, onnx 1.23 takes the 640 numbers that a Div of constants gives for a shape, and refuses
    # what is right: such a failure counts only where shapes alone fail too.
    if failure is not None and (failure := _inference_failure(model, data_prop=False)) is not None:
        work.find("OT003" if _inside_standard_function(failure) else "OT002", failure)
    return "strict shape and type inference"


def _own_copy(work: _Examination) -> onnx.ModelProto:
    """The model without its large weights, to be changed at will."""
    copy = light_copy(work.proto)
    if _has_runtimes_own(copy):  # in the runtime's own domain nobody takes them for the standard's
        for node in copy.graph.node:
            if not node.domain and node.op_type in _RUNTIMES_OWN:
                node.domain = "com.microsoft"
        if all(entry.domain != "com.microsoft" for entry in copy.opset_import):
            copy.opset_import.add(domain="com.microsoft", version=1)
    return copy


def _has_runtimes_own(proto: onnx.ModelProto) -> bool:
    """Operators of the runtime stand in the standard domain, of which ONNX knows nothing."""
    return any(not n.domain and n.op_type in _RUNTIMES_OWN and not onnx.defs.has(n.op_type) for n in proto.graph.node)


def _inference_failure(model: onnx.ModelProto, *, data_prop: bool) -> str | None:
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=data_prop)
    except Exception as error:
        return one_line(error, 600) or type(error).__name__
    return None


def _inside_standard_function(message: str) -> bool:
    """Is the failure in the body that ONNX itself gives an operator? Then the model is not to blame.

    onnx 1.23 cannot infer through the body of MeanVarianceNormalization, for one: its Constant has a reference to
    an attribute that strict inference takes for a missing value.
    """
    nested = re.match(
        r"\[ShapeInferenceError\] Inference error\(s\): \(op_type:(\w+)[^)]*\): (?=.*\(op_type:)", message
    )
    return nested is not None and onnx.defs.has(nested[1]) and _has_body(nested[1])


def _has_body(operator: str) -> bool:
    schema = onnx.defs.get_schema(operator)
    # Present since onnx 1.10, absent from its type stubs.
    return bool(getattr(schema, "has_function", False) or getattr(schema, "has_context_dependent_function", False))


def _load(work: _Examination, options: SessionOptions, runners: list[Any]) -> str:
    import onnxruntime

    from onnxtool.runtime.empty_inputs import is_harmless
    from onnxtool.runtime.runner import OnnxRunner
    from onnxtool.runtime.worker.worker import TrialWorker

    try:
        # Inputs that nobody gave must not end a program that imported this; a command is watched from outside.
        known = is_supervised() or is_harmless(work.proto)
        runners.append(OnnxRunner.open(work.path, options) if known else TrialWorker(work.path, options))
    except UnsupportedError as error:
        if _UNKNOWN_OPSET in str(error):
            work.find("OT104", _opset_line(str(error)))
            return f"onnxruntime {onnxruntime.__version__}"
        custom = "custom" if _has_custom_operators(work.proto) and not options.custom_op_libraries else ""
        work.find("OT103" if custom else "OT102", _dated(str(error)))
    except InputError as error:
        impossible = any(part in str(error) for part in _IMPOSSIBLE)
        beyond = not work.findings and not impossible and any(part in str(error) for part in _BEYOND_RUNTIME)
        work.find("OT102" if beyond else "OT101", str(error))
    return f"onnxruntime {onnxruntime.__version__}"


def _opset_line(message: str) -> str:
    """The two numbers of the runtime's long message."""
    found = re.search(r"Opset (\d+) is under development.*for domain ([\w.]+) is till opset (\d+)", message)
    return message if found is None else f"{found[2]} opset {found[1]}; this runtime knows those up to {found[3]}"


def _dated(message: str) -> str:
    """The runtime's message, with the opset that brought the operator which it lacks."""
    found = re.search(r"implementation for (?:[\w.]+:)?(\w+)\((\d+)\)", message)
    if found is None or not onnx.defs.has(found[1]):
        return message
    first = min(
        s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == found[1] and not s.domain
    )
    told = f"{found[1]} exists since opset {first}"
    return (
        f"{message} ({told}, in this form since opset {found[2]})" if first != int(found[2]) else f"{message} ({told})"
    )


def _has_custom_operators(proto: onnx.ModelProto) -> bool:
    from onnxtool.model.header import read_header

    standard = {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "ai.onnx.preview"}
    names = read_header(proto).operators
    return any(name.rpartition(".")[0] not in standard for name in names)


def _run(work: _Examination, runner: Any, data: str | os.PathLike[str] | None, seed: int) -> str:
    from onnxtool.runtime.data.read_feeds import read_feeds
    from onnxtool.runtime.feeds import random_feeds

    if data is not None:
        given = read_feeds(data, runner.inputs)
        try:
            for feeds in given.feeds:
                _judge_shapes(work, runner.run(feeds))
        except (InputError, UnsupportedError) as error:
            work.find("OT111", str(error))
        return f"on {data}"
    declared = specs(work.proto.graph.input)
    failure = ""
    for batch, length in _AFTER_CRASH if crashed_before() else _SIZES:
        try:
            feeds = random_feeds(_narrow(runner.inputs, declared), seed, batch=batch, length=length)
            values = runner.run(feeds)
        except ResourceError as error:
            raise ResourceError(f"{work.path}: {error}") from error
        except OnnxToolError as error:
            failure = failure or str(error)
            continue
        _judge_values(work, values)

        def again(other: int, batch: int = batch, length: int | None = length) -> Mapping[str, Any]:
            drawn = random_feeds(_narrow(runner.inputs, declared), other, batch=batch, length=length)
            return runner.run(drawn)  # type: ignore[no-any-return]

        def negative(feeds: Mapping[str, Any] = feeds, values: Mapping[str, Any] = values) -> Mapping[str, Any]:
            """With integers that are axes counted from the end; what is no axis may not take them."""
            turned = {n: -1 - a if a.dtype.kind == "i" and a.ndim < 2 else a for n, a in feeds.items()}
            with suppress(OnnxToolError):
                values = runner.run(turned)
            return values

        if all(s.dtype != "string" for s in declared):  # of texts that nobody gave, any shape may come out
            _judge_shapes(work, values, [*(partial(again, seed + 1 + i) for i in range(_DRAWS)), negative])
        return "on random inputs " + ", ".join(f"{k}{list(v.shape)}" for k, v in list(feeds.items())[:4])
    work.find("OT114" if _always_fails(runner.inputs) else "OT112", failure)
    return "on random inputs of several sizes"


def _always_fails(inputs: Iterable[TensorSpec]) -> bool:
    """Would other data do better? Not when nothing but float tensors of fixed size go in.

    Integers, scalars and vectors may be sizes, axes or scales, and dynamic dims may have to be multiples of something.
    """
    return all(
        not isinstance(s.dtype, str)
        and s.dtype.kind in "fV"
        and s.shape is not None
        and len(s.shape) >= 2
        and all(isinstance(d, int) for d in s.shape[1:])
        for s in inputs
    )


def _narrow(inputs: Iterable[TensorSpec], declared: Iterable[TensorSpec]) -> list[TensorSpec]:
    """The session's inputs with the file's own dim names, where the runtime dropped them."""
    named = {s.name: s for s in declared}
    result = []
    for spec in inputs:
        own = named.get(spec.name)
        result.append(TensorSpec(spec.name, spec.dtype, own.shape) if own is not None and own.shape else spec)
    return result


def _judge_values(work: _Examination, values: Mapping[str, Any]) -> None:
    import numpy as np

    for name, value in values.items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size and not np.isfinite(value).any():
            work.find("OT113", "the output holds nothing but NaN and infinities on random inputs", name)


def _judge_shapes(
    work: _Examination, values: Mapping[str, Any], others: Sequence[Callable[[], Mapping[str, Any]]] = ()
) -> None:
    """A declared shape that the model does not keep: readers allocate by it, and the runtime shares memory by it.

    Args:
        work: takes what is found.
        values: what the model gives.
        others: runs on inputs of the same shapes with other values. Where the shape depends on values (sizes, axes, how
            many elements are not zero), inputs that nobody gave are no proof that the declared one is wrong.
    """
    import numpy as np

    for spec in specs(work.proto.graph.output):
        value = values.get(spec.name)
        if not isinstance(value, np.ndarray) or spec.has_shape(value.shape):
            continue
        if not _varies(spec.name, value.shape, others):
            declared = ", ".join("?" if d is None else str(d) for d in spec.shape or ())
            work.find("OT115", f"declared as [{declared}], the model gives {list(value.shape)}", spec.name)


def _varies(name: str, shape: tuple[int, ...], others: Sequence[Callable[[], Mapping[str, Any]]]) -> bool:
    """Whether an output has another shape for other values."""
    for run in others:
        try:
            value = run().get(name)
        except OnnxToolError:
            return True
        if getattr(value, "shape", shape) != shape:
            return True
    return False
