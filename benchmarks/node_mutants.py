"""Mutated node tests of the onnx package through `compare`: which changed operators are not called different.

    python benchmarks/node_mutants.py [--seed 0] [--count 200]

Of each test one attribute is changed or left out. Only mutants that ONNX Runtime tells apart on the test's own inputs
count; it runs in a process of its own, since mutants may end it. An error is loud, and no wrong verdict.
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import random
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.test.case.node import collect_testcases

import onnxtool
from onnxtool.errors import OnnxToolError

_OF_EACH = 2
_FAR = 5e-3  # of the largest number: what is nearer may be rounding
_WORDS = {
    "mode": ("linear", "nearest", "cubic", "constant", "reflect", "edge", "wrap", "avg", "max", "DCR", "CRD"),
    "reduction": ("none", "add", "mul", "max", "min", "mean", "sum"),
    "coordinate_transformation_mode": ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"),
    "nearest_mode": ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"),
    "direction": ("LEFT", "RIGHT", "forward", "reverse"),
    "padding_mode": ("zeros", "border", "reflection"),
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    "approximate": ("none", "tanh"),
    "post_transform": ("NONE", "SOFTMAX", "LOGISTIC", "PROBIT"),
}


def serve(pipe: Connection) -> None:
    """The child: runs models as they come; None for one that is refused."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    while True:
        model, feeds = pipe.recv()
        try:
            pipe.send(onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds))
        except Exception:  # of many kinds
            pipe.send(None)


class Child:
    """ONNX Runtime in a process of its own, which is started again when it has died."""

    def __init__(self) -> None:
        self._pipe: Connection | None = None

    def run(self, model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[Any] | None:
        """The outputs; None where it refuses or dies."""
        if self._pipe is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, other = context.Pipe()
            context.Process(target=serve, args=(other,), daemon=True).start()
            other.close()
        try:
            self._pipe.send((model.SerializeToString(), feeds))
            found: list[Any] | None = self._pipe.recv()
        except (EOFError, OSError):
            self._pipe = None
            return None
        return found


def mutants(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.ModelProto]]:
    """What was changed, and the copy."""
    kinds = onnx.AttributeProto
    for n, node in enumerate(model.graph.node):
        for a, attribute in enumerate(node.attribute):
            held = helper.get_attribute_value(attribute)
            new: list[Any] = []
            if attribute.type == kinds.INT:
                new = [held + 1, held - 1]
            elif attribute.type == kinds.FLOAT:
                new = [held * 1.05 + 0.01, -held]
            elif attribute.type in (kinds.INTS, kinds.FLOATS):
                new = [[*held[:k], held[k] + 1, *held[k + 1 :]] for k in range(len(held))] + [[*held][::-1]]
            elif attribute.type == kinds.STRING:
                new = [word for word in _WORDS.get(attribute.name, ()) if word.encode() != held]
            for value in new:
                made = copy.deepcopy(model)
                made.graph.node[n].attribute[a].CopyFrom(helper.make_attribute(attribute.name, value))
                yield f"{node.op_type} {attribute.name} {held} -> {value}", made
            made = copy.deepcopy(model)
            del made.graph.node[n].attribute[a]
            yield f"{node.op_type} without {attribute.name}", made


def differ(expected: Sequence[Any], given: Sequence[Any]) -> bool:
    """Whether outputs are further apart than rounding takes them."""
    for one, other in zip(expected, given, strict=True):
        a, b = np.asarray(one), np.asarray(other)
        if a.shape != b.shape or a.dtype != b.dtype:
            return True
        if a.dtype.kind in "OUSb":
            if (a != b).any():
                return True
            continue
        wide = a.astype(np.complex128)
        largest = float(np.abs(np.nan_to_num(wide, posinf=0, neginf=0)).max(initial=1e-30))
        if not np.allclose(wide, b.astype(np.complex128), rtol=_FAR, atol=_FAR * largest, equal_nan=True):
            return True
    return False


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    rng, child, words = random.Random(asked.seed), Child(), Counter[str]()
    cases = [case for case in collect_testcases(None) if "expanded" not in case.name]
    rng.shuffle(cases)
    for case in cases:
        inputs = case.data_sets[0][0]
        if words.total() >= asked.count or not all(isinstance(array, np.ndarray) for array in inputs):
            continue
        feeds = {value.name: array for value, array in zip(case.model.graph.input, inputs, strict=False)}
        expected = child.run(case.model, feeds)
        made = [*mutants(case.model)] if expected is not None else []
        rng.shuffle(made)
        left = _OF_EACH
        for what, model in made:
            given = child.run(model, feeds) if left else None
            if expected is None or given is None or not differ(expected, given):
                continue
            left -= 1
            try:
                report = onnxtool.compare(case.model, model)
            except OnnxToolError as error:
                words["error"] += 1
                print(f"{case.name}: {what}: {str(error)[:120]}", flush=True)
                continue
            words[report.verdict] += 1
            if report.verdict != "different":
                print(f"{case.name}: {what}: {report.verdict}, {report.warnings}", flush=True)
    print("| verdict | mutants |\n|---|---|")
    for word, count in words.most_common():
        print(f"| {word} | {count} |")


if __name__ == "__main__":
    main()
