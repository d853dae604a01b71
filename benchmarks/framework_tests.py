"""Conversions of what the frameworks' own tests hold: each operator or layer with the inputs of its tests.

    python benchmarks/framework_tests.py pytorch|jax|keras [--each 2] [--dynamic] [--start N] [--only TEXT]

PyTorch's operator database and jax2tf's harnesses come with the wheels, and so do the tests of Keras' layers. They
import expecttest (pytorch) and absl-py (jax, keras). What is written is run at further inputs, with `--dynamic`
(pytorch: each size of 2 or more is a free dim) at further sizes too, and held against the framework.

    written   "OK"
    wrong     other numbers than the framework's at some of these inputs, under "OK"

Hours for all of it; what ends the process is gone on behind with `--start`.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).parent.parent))
import onnxtool
from onnxtool.errors import OnnxToolError

Feeds = Mapping[str, np.ndarray]
_SECONDS = 60  # for one conversion


@dataclass
class Case:
    """One source of a test.

    Attributes:
        name: of the operator or layer, and what is particular.
        source: what `onnxtool.convert` takes.
        options: of `onnxtool.convert`.
        run: what the framework gives for feeds by name; raises where it refuses them.
        further: feeds to hold the file against the framework on.
    """

    name: str
    source: Any
    options: Mapping[str, Any]
    run: Callable[[Feeds], Sequence[np.ndarray]]
    further: Callable[[], Iterator[Feeds]]


def pytorch(each: int, *, dynamic: bool) -> Iterator[Case]:
    """Operators on float32 tensors."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    class Applies(torch.nn.Module):
        def __init__(self, function: Any, sample: Any) -> None:
            super().__init__()
            self.function, self.tensors = function, list[torch.Tensor]()
            self.arguments = [self._told(a) for a in (sample.input, *sample.args)]
            self.named = {name: self._told(a) for name, a in sample.kwargs.items()}

        def _told(self, argument: Any) -> Any:
            if isinstance(argument, torch.Tensor):
                self.tensors.append(argument.detach())
                return next
            if isinstance(argument, (list, tuple)) and any(isinstance(a, torch.Tensor) for a in argument):
                inner = [self._told(a) for a in argument]
                return lambda given: [one(given) for one in inner]
            return lambda _: argument

        def apply(self, *tensors: torch.Tensor) -> Any:
            given = iter(tensors)
            arguments = [one(given) for one in self.arguments]
            return self.function(*arguments, **{name: one(given) for name, one in self.named.items()})

    def outputs(found: Any) -> list[np.ndarray]:
        if isinstance(found, torch.Tensor):
            return [found.detach().numpy()]
        return [a for part in found for a in outputs(part)] if isinstance(found, (list, tuple)) else []

    for operator in (o for o in op_db if torch.float32 in o.dtypes):
        try:
            samples = list(operator.sample_inputs("cpu", torch.float32))
        except Exception:
            continue
        order = np.random.default_rng(0).permutation(len(samples))
        for place in sorted({0, *order[: each - 1].tolist()}) if samples else ():
            module = Applies(operator.op, samples[place])
            tensors = module.tensors
            if not tensors or any(t.layout != torch.strided or t.dtype.is_complex for t in tensors):
                continue
            names = [f"t{k}" for k in range(len(tensors))]
            space: dict[str, Any] = {"Applies": Applies}
            listed = ", ".join(names)
            exec(f"class Named(Applies):\n def forward(self, {listed}): return self.apply({listed})", space)
            module.__class__ = space["Named"]

            def run(feeds: Feeds, module: Any = module, names: Sequence[str] = names) -> list[np.ndarray]:
                return outputs(module(*(torch.from_numpy(np.array(feeds[n])) for n in names)))

            sample = {n: t.numpy() for n, t in zip(names, tensors, strict=True)}
            yield Case(
                f"{operator.name} {operator.variant_test_name} {place}",
                module.eval(),
                {
                    "sample": sample,
                    "input_shapes": {n: _free(a.shape) if dynamic else a.shape for n, a in sample.items()},
                    "exporter": "dynamo",
                },
                run,
                lambda sample=sample: _others(sample, resized=dynamic),
            )


def jax(each: int) -> Iterator[Case]:
    """Primitives on float32, int32 and truth values."""
    arguments, sys.argv = sys.argv, sys.argv[:1]  # which absl reads
    import jax as library
    from jax._src.internal_test_util.test_harnesses import all_harnesses

    sys.argv = arguments
    seen: Counter[str] = Counter()
    for harness in all_harnesses:
        if harness.dtype not in (np.float32, np.int32, np.bool_) or not harness.filter("cpu"):
            continue
        try:
            arrays = [np.asarray(a) for a in harness.dyn_args_maker(np.random.RandomState(1))]
        except Exception:
            continue
        seen[harness.group_name] += 1
        if seen[harness.group_name] > each or not arrays or any(a.dtype.kind not in "fib" for a in arrays):
            continue
        names = [f"t{k}" for k in range(len(arrays))]
        space: dict[str, Any] = {"harness": harness}
        listed = ", ".join(names)
        exec(f"def function({listed}): return harness.dyn_fun({listed})", space)
        function = space["function"]

        def run(feeds: Feeds, function: Any = function, names: Sequence[str] = names) -> list[np.ndarray]:
            return [np.asarray(a) for a in library.tree.leaves(library.jit(function)(*(feeds[n] for n in names)))]

        def further(harness: Any = harness, names: Sequence[str] = names) -> Iterator[Feeds]:
            for seed in (1, 6, 7):
                made = harness.dyn_args_maker(np.random.RandomState(seed))
                yield {n: np.asarray(a) for n, a in zip(names, made, strict=True)}

        sample = dict(zip(names, arrays, strict=True))
        shapes = {n: a.shape for n, a in sample.items()}
        yield Case(harness.fullname, function, {"sample": sample, "input_shapes": shapes}, run, further)


def keras(each: int) -> Iterator[Case]:
    """Layers as their tests make them, with random weights and a free batch."""
    import unittest

    import keras as library
    from keras.src.testing import test_case

    found: list[Case] = []

    def take(_: Any, layer: type, options: Any, input_shape: Any = None, input_dtype: Any = None, **rest: Any) -> None:
        if rest.get("input_sparse") or rest.get("input_ragged") or rest.get("call_kwargs"):
            return
        several = isinstance(input_shape, list) and bool(input_shape) and isinstance(input_shape[0], tuple)
        shapes = input_shape if several else [input_shape]
        kinds = input_dtype if isinstance(input_dtype, (list, tuple)) else [input_dtype] * len(shapes)
        generator = np.random.default_rng(0)
        try:
            inputs = [
                library.Input(shape[1:], dtype=kind or "float32", name=f"x{k}")
                for k, (shape, kind) in enumerate(zip(shapes, kinds, strict=True))
            ]
            model = library.Model(inputs, layer(**options)(inputs if several else inputs[0]))
            for weight in (w for w in model.weights if w.dtype == "float32"):
                drawn = generator.uniform(0.5, 2, weight.shape) if "variance" in weight.name else None
                weight.assign(generator.standard_normal(weight.shape) * 0.3 if drawn is None else drawn)
        except Exception:
            return

        def run(feeds: Feeds) -> list[np.ndarray]:
            given = [feeds[f"x{k}"] for k in range(len(inputs))]
            result = model(given if several else given[0], training=False)
            return [np.asarray(library.ops.cast(r, "float32")) for r in library.tree.flatten(result)]

        def further() -> Iterator[Feeds]:
            for batch, other in ((2, 5), (1, 9), (7, 1)):
                made = {}
                for tensor in inputs:
                    shape = (batch, *(other if d is None else d for d in tensor.shape[1:]))
                    floats = generator.standard_normal(shape) * batch
                    made[tensor.name] = (floats if "float" in tensor.dtype else floats > 0).astype(tensor.dtype)
                yield made

        found.append(Case(f"{layer.__name__} {str(options)[:100]}", model, {}, run, further))

    test_case.TestCase.run_layer_test = take
    test_case.TestCase.run_class_serialization_test = lambda *_, **__: None
    folder = Path(library.__file__).parent / "src" / "layers"
    for path in sorted(folder.rglob("*_test.py")):
        module = ".".join(("keras", *path.relative_to(folder.parent.parent).with_suffix("").parts))
        try:
            tests = unittest.defaultTestLoader.loadTestsFromName(module)
            tests.run(unittest.TestResult())
        except Exception as error:
            print(f"{module} does not load: {error}", file=sys.stderr)
        seen: Counter[str] = Counter()
        for case in found:
            seen[case.name.split()[0]] += 1
            if seen[case.name.split()[0]] <= each:
                yield case
        found.clear()


def _free(shape: Sequence[int]) -> tuple[int | str, ...]:
    return tuple(f"d{n}" if n >= 2 else n for n in shape)


def _others(sample: Feeds, *, resized: bool) -> Iterator[Feeds]:
    """The sample, and arrays drawn in its likeness; sizes of one number get another one together."""
    yield sample
    for seed in range(4):
        generator, sizes = np.random.default_rng(seed), dict[int, int]()
        made = {}
        for name, array in sample.items():
            changed = [sizes.setdefault(n, int(generator.integers(1, 12))) if n >= 2 else n for n in array.shape]
            shape = tuple(changed) if resized and seed >= 2 else array.shape
            most = np.abs(array.astype(np.float64)).max(initial=0)
            if array.dtype.kind == "f":
                drawn = generator.standard_normal(shape) * max(most, 1e-3) * 0.6
                drawn = np.abs(drawn) + 1e-3 if array.min(initial=0) >= 0 else drawn
            else:
                drawn = array if shape == array.shape else generator.integers(0, int(most) + 1, shape)
            made[name] = np.asarray(drawn).astype(array.dtype)
        yield made


def differs(case: Case, path: Path) -> str:
    """What the file gives otherwise than the framework; nothing where it draws random numbers."""
    session = onnxruntime.InferenceSession(path)
    taken = {i.name for i in session.get_inputs()}
    for feeds in case.further():
        try:
            expected, again = (case.run(feeds) for _ in range(2))
        except Exception:
            continue
        if not all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(expected, again, strict=True)):
            return ""
        try:
            given = session.run(None, {n: a for n, a in feeds.items() if n in taken})
        except Exception as error:
            return f"does not run: {str(error)[-120:]}"
        for right, found in zip(expected, given, strict=True):
            a, b = right.astype(np.float64), found.astype(np.float64)
            if a.shape != b.shape:
                return f"{a.shape} against {b.shape}"
            scale = np.abs(a[np.isfinite(a)]).max(initial=0)
            if not np.allclose(a, b, rtol=1e-3, atol=1e-4 * scale + 1e-6, equal_nan=True):
                return f"off by {np.nanmax(np.abs(a - b)):.3g} of {scale:.3g}"
    return ""


def main() -> None:
    """Print each case that is not written, or wrong, and how many were written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("framework", choices=("pytorch", "jax", "keras"))
    parser.add_argument("--each", type=int, default=2, help="cases of one operator, primitive or layer")
    parser.add_argument("--dynamic", action="store_true", help="sizes of 2 or more are free dims (pytorch)")
    parser.add_argument("--start", type=int, default=0, help="leave out so many cases")
    parser.add_argument("--only", default="", help="cases with this in their name")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    onnxruntime.set_default_logger_severity(4)
    makers = {"pytorch": lambda n: pytorch(n, dynamic=options.dynamic), "jax": jax, "keras": keras}
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError(f"more than {_SECONDS} s")))
    outcomes: Counter[str] = Counter()
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        cases = itertools.islice(makers[options.framework](options.each), options.start, None)
        for number, case in enumerate(cases, options.start):
            if options.only not in case.name:
                continue
            signal.alarm(_SECONDS)
            try:
                report = onnxtool.convert(case.source, path, effort="quick", **case.options)
                verdict: str = report.comparison.verdict if report.comparison else ""
                said: str = verdict
                outcome: str = "written" if report.ok else verdict
                if report.ok and (said := differs(case, path)):
                    outcome = "wrong"
            except (OnnxToolError, TimeoutError) as error:
                said, outcome = str(error), "refused"
            except Exception as error:
                said, outcome = f"{type(error).__name__}: {error}", "fault"
            finally:
                signal.alarm(0)
            outcomes[outcome] += 1
            if outcome != "written":
                print(f"{number} {case.name}: {outcome}: {said[:300]}", flush=True)
    print(f"{dict(outcomes)} in {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
