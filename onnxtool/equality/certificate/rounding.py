"""How far rounding takes two models apart that are the same real function.

Only the parts in which they compute in different ways are run, on the values that A has there: in float32 both, and A
in float64, which is as good as exact beside them. Where B rounds far more coarsely than A (a difference of two large
numbers in place of a small one) or gives NaN or infinity where A gives numbers, a certificate says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxtool.equality.certificate.parts import ModelPart
from onnxtool.errors import OnnxToolError
from onnxtool.model.cut_model import cut_model, with_outputs
from onnxtool.model.proto_nodes import all_nodes
from onnxtool.report.certificate import PartRounding
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT

Array = np.ndarray
Feeds = Mapping[str, Array]
# B may round so many times as coarsely as A: six bits. Another order of additions is within it by far.
COARSER = 64.0
FAR = "numbers beside 100"  # a thousand deviations from zero
_LARGEST = 1 << 21  # elements of one value: ONNX's own implementation is slow
_DRAWS = 2
_SPECIAL = {"zeros": 0.0, "NaN": np.nan, "infinity": np.inf, "minus infinity": -np.inf}


def rounding_of(
    a: onnx.ModelProto, b: onnx.ModelProto, parts: Sequence[ModelPart], feeds: Feeds, deadline: float
) -> list[PartRounding]:
    """Run the parts of two models beside each other.

    Args:
        a, b: the models.
        parts: where they compute in different ways.
        feeds: of A; the floats among them are replaced by others of many sizes too.
        deadline: of this thread's processor time; what is left then is not measured.

    Returns:
        Of each kind of part the first that could be run; of a kind that rounds coarsely for some numbers, all others
        too, as it hangs on the numbers that they meet.
    """
    kinds: dict[str, list[ModelPart]] = {}
    for part in parts:
        kinds.setdefault(part.kind, []).append(part)
    found: list[PartRounding] = []
    try:
        runs = list(_values(a, [part for part, *_ in kinds.values()], feeds, deadline))
        for first, *others in kinds.values() if runs else ():
            found += _measured(a, b, first, runs, deadline)
            free = rounding_inputs({n: runs[0][1][n] for n in first.inputs}, integers_divide(a)) if others else ()
            if any(_is_coarse(r) for r in _measured(a, b, first, list(free), deadline)):
                for part in others:
                    found += _measured(a, b, part, list(_values(a, [part], feeds, deadline)), deadline)
    except OnnxToolError:
        return found
    return found


def _is_coarse(rounding: PartRounding) -> bool:
    return rounding.coarser > COARSER or bool(rounding.unlike)


def _values(
    a: onnx.ModelProto, parts: Sequence[ModelPart], feeds: Feeds, deadline: float
) -> Iterator[tuple[str, Feeds]]:
    """What A has where parts begin, on inputs of all sizes and with numbers that are none."""
    names = sorted({n for part in parts for n in part.inputs} - set(feeds))
    runner = OnnxRunner.open(with_outputs(a, names), EXACT)
    for label, made in rounding_inputs(feeds, integers_divide(a)):
        if time.thread_time() > deadline:
            return
        try:
            outputs = runner.run(made)
        except OnnxToolError:
            continue
        yield label, {**made, **{n: outputs[n] for n in names}}


def integers_divide(model: onnx.ModelProto) -> bool:
    """Whether integers may be divided, of which some end the process: those that NaN becomes, say."""
    return any(n.op_type in ("Div", "Mod") for n in all_nodes(model.graph.node)) and any(
        n.op_type == "Cast" for n in all_nodes(model.graph.node)
    )


def rounding_inputs(feeds: Feeds, careful: bool = True) -> Iterator[tuple[str, Feeds]]:
    """Inputs of all sizes by what is particular about them; the same each time.

    Args:
        feeds: inputs, of which the floats are replaced.
        careful: none has NaN or infinities.
    """
    generator = np.random.default_rng(17)

    floats = {n: x for n, x in feeds.items() if x.dtype.kind == "f"}

    def each(change: Callable[[Array], Any]) -> Feeds:
        with np.errstate(all="ignore"):
            return {**feeds, **{n: np.asarray(change(x)).astype(x.dtype) for n, x in floats.items()}}

    def normal(x: Array) -> Array:
        return generator.standard_normal(x.shape)

    def sprinkled(number: float) -> Feeds:
        """With the number at some places of each input, others for each."""
        made = {n: normal(x).astype(x.dtype) for n, x in floats.items()}
        for start, x in enumerate(made.values()):
            with np.errstate(all="ignore"):
                x.reshape(-1)[start % max(x.size, 1) :: max(x.size // 4, len(made) + 1)] = number
        return {**feeds, **made}

    yield "the given inputs", feeds
    yield "normal numbers", each(normal)
    for scale in (1e-6, 1e-3, 30.0, 1e3, 1e8):
        scaled = each(lambda x: normal(x) * scale)  # noqa: B023  (called at once)
        yield f"numbers around {scale:g}", scaled
        yield f"positive numbers around {scale:g}", {n: np.abs(x) if n in floats else x for n, x in scaled.items()}
    yield FAR, each(lambda x: 100 + 0.1 * normal(x))
    for label, number in _SPECIAL.items():
        if number == 0 or not careful:
            yield label, sprinkled(number)


def _measured(
    a: onnx.ModelProto, b: onnx.ModelProto, part: ModelPart, runs: Sequence[tuple[str, Feeds]], deadline: float
) -> list[PartRounding]:
    """How a part rounds on some inputs; nothing where it cannot be run, or the time is over."""
    try:
        found = _rounding(a, b, part, runs, deadline)
    except (OnnxToolError, ValueError, LookupError, TypeError, RuntimeError, NotImplementedError):
        return []  # an operator that ONNX's implementation lacks, or has for float32 alone
    return [] if found is None else [found]


def _rounding(
    a: onnx.ModelProto, b: onnx.ModelProto, part: ModelPart, runs: Sequence[tuple[str, Feeds]], deadline: float
) -> PartRounding | None:
    own = {n: runs[0][1][n] for n in part.inputs}
    theirs = {n: own[name] for n, name in part.theirs.items()}
    if max((x.size for x in own.values()), default=0) > _LARGEST:
        return None
    cut = cut_model(a, [o for n in part.nodes[0] for o in n.output], own, [part.output[0]], fixed=False)
    cut_b = cut_model(b, [o for n in part.nodes[1] for o in n.output], theirs, [part.output[1]], fixed=False)
    first, second = OnnxRunner.open(cut, EXACT), OnnxRunner.open(cut_b, EXACT)
    exact = ReferenceEvaluator(in_doubles(cut))
    worst = (0.0, 0.0)
    where = unlike = ""
    for label, values in runs:
        if time.thread_time() > deadline:
            return None
        given = {n: values[n] for n in part.inputs}
        x = np.asarray(first.run(given)[part.output[0]])
        y = np.asarray(second.run({n: given[name] for n, name in part.theirs.items()})[part.output[1]])
        if x.shape != y.shape or x.dtype != y.dtype:
            return None
        if x.dtype.kind != "f":
            if (x != y).any() and not unlike:
                unlike = label
            continue
        if ((np.isfinite(x) != np.isfinite(y)) | (np.isinf(x) & (x == -y))).any() and not unlike:
            unlike = label
        if label in _SPECIAL:
            continue
        with np.errstate(all="ignore"):
            right = _run(exact, given)
            moved = [np.abs(_run(exact, _beside(given, seed)) - right) for seed in range(_DRAWS)]
            largest = np.abs(right[np.isfinite(right)]).max(initial=0.0)
            unit = np.float64(np.spacing(x.dtype.type(largest))) + np.max(moved, axis=0)
            off = [np.abs(z.astype(np.float64) - right) / unit for z in (x, y)]
        held = np.isfinite(off[0]) & np.isfinite(off[1])
        error_a, error_b = (float(o[held].max(initial=0.0)) for o in off)
        if error_b / max(error_a, 1.0) > worst[1] / max(worst[0], 1.0):
            worst, where = (error_a, error_b), label
    operators = tuple(" ".join(n.op_type for n in nodes) for nodes in part.nodes)
    return PartRounding(part.output[1], operators[0], operators[1], worst[0], worst[1], where, unlike)


def _run(exact: ReferenceEvaluator, feeds: Feeds) -> Array:
    wide = {n: x.astype(np.float64) if x.dtype.kind == "f" else x for n, x in feeds.items()}
    outputs: list[Any] = exact.run(None, wide)  # type: ignore[assignment]
    return np.asarray(outputs[0], np.float64)


def _beside(feeds: Feeds, seed: int) -> Feeds:
    """Floats moved by up to half a unit in the last place, as whatever made them may have done."""
    generator = np.random.default_rng(seed)
    made = {}
    for name, x in feeds.items():
        moved = x
        if x.dtype.kind == "f":
            step = np.finfo(x.dtype).eps / 2 * generator.choice([-1.0, 1.0], x.shape)
            moved = x.astype(np.float64) * (1 + step)
        made[name] = moved
    return made


def in_doubles(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with float64 wherever it has float32 or float16."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    floats = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)

    def tensor(held: TensorProto) -> None:
        if held.data_type in floats:
            held.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(held).astype(np.float64), held.name))

    def graph(held: onnx.GraphProto) -> None:
        for weight in held.initializer:
            tensor(weight)
        for info in (*held.input, *held.output, *held.value_info):
            if info.type.tensor_type.elem_type in floats:
                info.type.tensor_type.elem_type = TensorProto.DOUBLE
        nodes(held.node)

    def nodes(held: Iterable[onnx.NodeProto]) -> None:
        for node in held:
            for attribute in node.attribute:
                if attribute.name in ("value_float", "value_floats"):
                    numbers = np.array(helper.get_attribute_value(attribute), np.float32).astype(np.float64)
                    attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(numbers)))
                elif attribute.name in ("to", "dtype") and attribute.i in floats:
                    attribute.i = TensorProto.DOUBLE
                elif attribute.HasField("t"):
                    tensor(attribute.t)
                elif attribute.HasField("g"):
                    graph(attribute.g)

    graph(wide.graph)
    for function in wide.functions:
        nodes(function.node)
    return wide
