"""Random pairs of models through `compare`: planted faults must be found, sound pairs must not be called different.

    python benchmarks/fuzz_equality.py [--faults 300] [--sound 300] [--minutes N] [--seed 0] [--effort quick]

Faults: a changed weight, a wrong axis, a frozen branch, a baked size, a pad that is off by one, a dropped mask, another
activation, another constant integer. A fault counts only where it shows: inputs made for the model (all rows of its
table, several sizes, masks, both sides of its branches) must give outputs that are apart by 1 % of a column, or the
faulty model must fail to run; these inputs are not shown to `compare`. Sound pairs are the model and what ONNX Runtime
(basic, extended) or our passes (basic, extended, unproven) make of it. Prints what was missed with the number that
makes it again (`--seed N --faults 1`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.fuzz_models import ACTIVATIONS, Graph, random_model
from onnxtool.equality.compare import compare
from onnxtool.errors import OnnxToolError
from onnxtool.model import io
from onnxtool.optimization.pipeline import optimize_model

Fault = Callable[[onnx.ModelProto, Graph, np.random.Generator], bool]
_SIZES = ((2, 16), (1, 9), (5, 23), (3, 1), (1, 45), (17, 5))


def _choose(found: list[onnx.NodeProto], r: np.random.Generator) -> onnx.NodeProto | None:
    return found[int(r.integers(len(found)))] if found else None


def changed_weight(model: onnx.ModelProto, _: Graph, r: np.random.Generator) -> bool:
    """One element of one weight is off by its own size."""
    floats = [t for t in model.graph.initializer if t.data_type == 1 and int(np.prod(t.dims)) > 1]
    if not floats:
        return False
    tensor = floats[int(r.integers(len(floats)))]
    array = numpy_helper.to_array(tensor).copy()
    place = tuple(int(r.integers(d)) for d in array.shape)
    array[place] += array.std() + abs(array[place])
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return True


def wrong_axis(model: onnx.ModelProto, _: Graph, r: np.random.Generator) -> bool:
    """A Softmax or CumSum along another axis."""
    node = _choose([n for n in model.graph.node if n.op_type in ("Softmax", "CumSum")], r)
    if node is None:
        return False
    if node.op_type == "Softmax":
        node.attribute[0].i = 1 if node.attribute[0].i in (-1, 3) else -1
        return True
    tensor = next(t for t in model.graph.initializer if t.name == node.input[1])
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(0, np.int64), tensor.name))
    return True


def frozen_branch(model: onnx.ModelProto, _: Graph, r: np.random.Generator) -> bool:
    """Always the same branch of an If."""
    node = next((n for n in model.graph.node if n.op_type == "If"), None)
    if node is None:
        return False
    condition = numpy_helper.from_array(np.asarray(bool(r.integers(2))), "frozen")
    model.graph.initializer.append(condition)
    node.input[0] = "frozen"
    return True


def baked_size(model: onnx.ModelProto, graph: Graph, r: np.random.Generator) -> bool:
    """A computed size becomes that of the usual sample."""
    inner = [n for n in model.graph.node if n.op_type == "Shape"]
    if not inner:
        return False
    feeds = graph.feeds(r, 2, 16)
    size = next(iter(feeds.values())).shape
    for node in inner:
        constant = numpy_helper.from_array(np.asarray(size, np.int64), f"{node.output[0]}_baked")
        model.graph.initializer.append(constant)
        for reader in model.graph.node:
            names = [constant.name if i == node.output[0] else i for i in reader.input]
            del reader.input[:]
            reader.input.extend(names)
    return True


def shifted_pad(model: onnx.ModelProto, _: Graph, r: np.random.Generator) -> bool:
    """A pad that is off by one on either side; the output keeps its size."""
    node = _choose([n for n in model.graph.node if n.op_type == "Conv"], r)
    if node is None:
        return False
    pads = next(a for a in node.attribute if a.name == "pads")
    del pads.ints[:]
    pads.ints.extend([[0, 1, 2, 1], [1, 2, 1, 0]][int(r.integers(2))])
    return True


def dropped_mask(model: onnx.ModelProto, _: Graph, r: np.random.Generator) -> bool:
    """One reader of the mask sees ones."""
    found = [n for n in model.graph.node if "attention_mask" in n.input]
    node = _choose(found, r)
    if node is None:
        return False
    model.graph.node.insert(0, onnx.helper.make_node("Mul", ["attention_mask", "nothing"], ["zeros_"]))
    model.graph.node.insert(1, onnx.helper.make_node("Add", ["zeros_", "one_"], ["ones_"]))
    for name, number in (("nothing", 0), ("one_", 1)):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(number, np.int64), name))
    node.input[0] = "ones_"
    return True


def other_activation(model: onnx.ModelProto, _: Graph, r: np.random.Generator) -> bool:
    """Another activation function."""
    node = _choose([n for n in model.graph.node if n.op_type in ACTIVATIONS], r)
    if node is None:
        return False
    node.op_type = str(r.choice([a for a in ACTIVATIONS if a != node.op_type]))
    return True


def other_integer(model: onnx.ModelProto, _: Graph, r: np.random.Generator) -> bool:
    """One constant of integer arithmetic is off by one."""
    found = [t for t in model.graph.initializer if t.data_type == 6 and int(np.prod(t.dims)) > 1]
    if not found:
        return False
    tensor = found[int(r.integers(len(found)))]
    array = numpy_helper.to_array(tensor).copy()
    array[int(r.integers(array.size))] += 1
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return True


FAULTS: dict[str, Fault] = {
    "changed weight": changed_weight,
    "wrong axis": wrong_axis,
    "frozen branch": frozen_branch,
    "baked size": baked_size,
    "off-by-one pad": shifted_pad,
    "dropped mask": dropped_mask,
    "other activation": other_activation,
    "other integer": other_integer,
}


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    """On the runtime without its own optimizations."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def shows(a: onnx.ModelProto, b: onnx.ModelProto, graph: Graph, seed: int) -> bool:
    """Whether a fault shows on inputs made for the model: by 1 % of a column, or by failing to run."""
    right, wrong = session(a), session(b)
    generator = np.random.default_rng(seed)
    for batch, length in _SIZES * 4:
        feeds = graph.feeds(generator, batch, length)
        expected = right.run(None, feeds)
        try:
            found = wrong.run(None, {i.name: feeds[i.name] for i in wrong.get_inputs()})
        except Exception:  # the runtime's own kinds of errors
            return True
        for x, y in zip(expected, found, strict=True):
            if x.shape != y.shape:
                return True
            if x.dtype.kind != "f":
                if (x != y).any():
                    return True
                continue
            axis = tuple(range(x.ndim - 1)) if x.ndim > 1 else None
            scale = np.sqrt((x.astype("f8") ** 2).mean(axis=axis)) + 1e-7
            if (np.abs(x - y).astype("f8") > 0.01 * (scale + np.abs(x))).any():
                return True
    return False


def sound_variants(model: onnx.ModelProto, folder: Path) -> dict[str, Path]:
    """What optimizers make of a model."""
    made = {}
    for name, level in (("runtime basic", "BASIC"), ("runtime extended", "EXTENDED")):
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
        path = folder / f"{name.replace(' ', '_')}.onnx"
        options.optimized_model_filepath = str(path)
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        made[name] = path
    for level in ("basic", "extended"):
        changed = io.from_proto(model)
        optimize_model(changed, level)
        path = folder / f"own_{level}.onnx"
        io.save(changed, path)
        made[f"passes {level}"] = path
    return made


def differs(a: Path, b: Path, effort: str) -> tuple[bool, str]:
    """The verdict, and why."""
    try:
        report = compare(a, b, effort=effort)  # type: ignore[arg-type]
    except OnnxToolError as error:
        return True, str(error)
    wrong = [f"{o.name}: {o.note or o.max_abs}" for o in report.outputs if not o.ok]
    return not report.ok, "; ".join(wrong)


def main() -> int:
    """Print the share of faults found, by kind, and the false alarms."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--sound", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--effort", default="quick")
    asked = parser.parse_args()
    ort.set_default_logger_severity(4)
    end = time.monotonic() + 60 * asked.minutes
    planted, found, alarms, sound = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    seed = asked.seed - 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        while time.monotonic() < end and (planted.total() < asked.faults or sound.total() < asked.sound):
            seed += 1
            generator = np.random.default_rng(seed)
            family, graph = random_model(generator)
            model = graph.model()
            path = folder / "a.onnx"
            onnx.save(model, path)
            if sound.total() < asked.sound:
                for kind, other in sound_variants(model, folder).items():
                    sound[kind] += 1
                    wrong, why = differs(path, other, asked.effort)
                    if wrong:
                        alarms[kind] += 1
                        print(f"false alarm: seed {seed}, {family}, {kind}: {why}", flush=True)
            names = list(FAULTS)
            for kind in generator.permutation(names):
                faulty = onnx.ModelProto()
                faulty.CopyFrom(model)
                if planted.total() >= asked.faults or not FAULTS[kind](faulty, graph, generator):
                    continue
                if not shows(model, faulty, graph, seed):
                    continue
                onnx.save(faulty, folder / "b.onnx")
                planted[kind] += 1
                if differs(path, folder / "b.onnx", asked.effort)[0]:
                    found[kind] += 1
                else:
                    print(f"missed: seed {seed}, {family}, {kind}", flush=True)
                break
    print("| fault | planted | found |\n|---|---|---|")
    for kind, count in planted.items():
        print(f"| {kind} | {count} | {found[kind]} |")
    share = found.total() / max(planted.total(), 1)
    print(f"found {found.total()} of {planted.total()} ({share:.1%}); {alarms.total()} false alarms in {sound.total()}")
    return int(bool(alarms) or share < 0.98)


if __name__ == "__main__":
    sys.exit(main())
