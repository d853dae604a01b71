"""Certificates of optimized models, and of mutants of them.

    python benchmarks/certificates.py FOLDER [MUTANTS [compare]]

FOLDER holds models (`*/model.onnx` or `*.onnx`). Each is optimized at the default level and held against its source;
then the optimized file is held against copies of itself with one change each: by the certificate alone, or by all that
`compare` does.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

import onnxtool
from onnxtool.equality.certificate.certify import certify
from onnxtool.errors import OnnxToolError
from onnxtool.runtime.feeds import random_feeds
from onnxtool.runtime.runner import OnnxRunner

# Attributes that may change without any effect: what follows is a Reshape, or no dim is 0.
_HARMLESS = (
    "stash_type",
    "allowzero",
    "keepdims",
    "noop_with_empty_axes",
    "storage_order",
    "ceil_mode",
    "count_include_pad",
)


def mutant(model: onnx.ModelProto, rng: random.Random) -> tuple[str, onnx.ModelProto, str] | None:
    """A copy with one change: the kind of change, the copy, what was changed."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    kind = rng.choice(("bit", "bit", "attribute", "order", "shape", "removed"))
    nodes = list(copy.graph.node)
    if kind == "bit":
        floats = [t for t in copy.graph.initializer if t.data_type == onnx.TensorProto.FLOAT and np.prod(t.dims)]
        if not floats:
            return None
        tensor = rng.choice(floats)
        array = numpy_helper.to_array(tensor).copy()
        flat = array.reshape(-1).view(np.int32)
        flat[rng.randrange(flat.size)] ^= 1
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        what = tensor.name
    elif kind == "attribute":
        pairs = [
            (n, a)
            for n in nodes
            for a in n.attribute
            if a.type in (1, 2, 7) and n.op_type != "Constant" and a.name not in _HARMLESS
        ]
        if not pairs:
            return None
        node, attribute = rng.choice(pairs)
        what = f"{node.op_type} {node.output[0]}: {attribute.name}"
        if attribute.type == 1:
            attribute.f = float(np.nextafter(np.float32(attribute.f), np.float32(9)))
        elif attribute.type == 2:
            flags = ("transA", "transB", "largest", "sorted", "exclusive", "reverse", "fmod", "select_last_index")
            attribute.i = 1 - attribute.i if attribute.name in flags else attribute.i + rng.choice((1, -1))
        else:
            place = rng.randrange(len(attribute.ints))
            attribute.ints[place] += rng.choice((1, -1))
    elif kind == "order":
        several = [
            n for n in nodes if len(n.input) > 1 and n.input[0] != n.input[1] and n.op_type not in ("Add", "Mul", "Max")
        ]
        if not several:
            return None
        node = rng.choice(several)
        node.input[0], node.input[1] = node.input[1], node.input[0]
        what = f"{node.op_type} {node.output[0]}"
    elif kind == "shape":
        whole = [t for t in copy.graph.initializer if t.data_type == onnx.TensorProto.INT64 and 0 < np.prod(t.dims) < 9]
        if not whole:
            return None
        tensor = rng.choice(whole)
        array = numpy_helper.to_array(tensor).copy()
        array.reshape(-1)[rng.randrange(array.size)] += 1
        what = f"{tensor.name} {array}, used by {[n.op_type for n in nodes if tensor.name in n.input]}"
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    else:
        single = [n for n in nodes if n.input and len(n.output) == 1]
        if not single:
            return None
        node = rng.choice(single)
        for other in nodes:
            for i, name in enumerate(other.input):
                if name == node.output[0]:
                    other.input[i] = node.input[0]
        for output in copy.graph.output:
            if output.name == node.output[0]:
                return None
        copy.graph.node.remove(node)
        what = f"{node.op_type} {node.output[0]}"
    return kind, copy, what


def said(a: onnx.ModelProto, b: onnx.ModelProto) -> str:
    """What the runtime makes of a certified mutant: the largest difference of two runs at each of two sizes."""
    found = []
    try:
        sessions = [ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]) for m in (a, b)]
    except Exception as error:
        return f"the runtime refuses it: {str(error)[:100]}"
    for size in (2, 5):
        try:
            feeds = random_feeds(OnnxRunner(sessions[0]).inputs, batch=size, length=8 * size)
            outputs = [s.run(None, feeds) for s in sessions]
        except Exception as error:
            found.append(f"fails: {str(error)[:80]}")
            continue
        for x, y in zip(*outputs, strict=True):
            same = np.shape(x) == np.shape(y) and np.array_equal(x, y, equal_nan=np.asarray(x).dtype.kind == "f")
            found.append("equal" if same else "another shape" if np.shape(x) != np.shape(y) else "other numbers")
    return ", ".join(found)


def compared(a: onnx.ModelProto, b: onnx.ModelProto) -> str:
    """The verdict of `compare`; "refused" where B does not load or run."""
    try:
        return str(onnxtool.compare(a, b).verdict)
    except OnnxToolError:
        return "refused"


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    files = sorted([*folder.glob("*/model.onnx"), *folder.glob("*.onnx")])
    rng, tally = random.Random(0), Counter()
    print("| model | nodes | verdict | seconds | peak MB |\n|---|---|---|---|---|")
    for file in files:
        with tempfile.TemporaryDirectory() as work:
            out = Path(work) / "b.onnx"
            onnxtool.optimize(file, output=out)
            a, b = onnx.load(file), onnx.load(out)
        began = time.perf_counter()
        report = certify(a, b)
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        told = report.verdict if report.ok else report.reason
        name = file.parent.name if file.name == "model.onnx" else file.stem
        print(f"| {name} | {len(a.graph.node)} -> {len(b.graph.node)} | {told} | {seconds:.1f} | {peak} |", flush=True)
        for _ in range(count):
            made = mutant(b, rng)
            if made is None:
                continue
            if "compare" in sys.argv[3:]:
                verdict = compared(b, made[1])
                tally[made[0], verdict] += 1
                if verdict == "certified" or (verdict == "tested" and made[0] != "bit"):
                    print(verdict, name, made[0], made[2], "the runtime says", said(b, made[1]), flush=True)
                continue
            found = certify(b, made[1], most=2, seconds=2)
            word = (
                "certified" if found.ok else "apart" if found.first or "not the same" in found.reason else "not decided"
            )
            tally[made[0], word] += 1
            if found.ok:
                print("certified mutant:", name, made[0], made[2], "the runtime says", said(b, made[1]), flush=True)
            elif word == "not decided":
                tally["why", found.reason[:60]] += 1
    for key, number in sorted(tally.items()):
        print(*key, number)


if __name__ == "__main__":
    main()
