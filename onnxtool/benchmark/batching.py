"""Does it pay to join requests into one run? Measured on this machine, once exact arithmetic has shown that it may be.

What is not certified to have independent rows is not joined: a few runs on random inputs show nothing of other values.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import onnx

from onnxtool.equality.certificate.independent_rows import row_dependence
from onnxtool.equality.equivalence_check import EquivalenceCheck
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import OnnxToolError
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.probes import find_probes
from onnxtool.runtime.runner import Runner
from onnxtool.runtime.timing.timing import measure

_SIZES = (16, 8, 4)
# Below this gain the wait of the first request in a batch is not worth it.
_WORTH = 1.2


@dataclass(frozen=True)
class BatchChoice:
    """What was found.

    Attributes:
        size: rows of requests to join into one run; 1 for never.
        gain: throughput of such a batch over that of single requests, side by side; None when not measured.
        reason: in words.
    """

    size: int
    gain: float | None
    reason: str


def choose_batch(runner: Runner, model: onnx.ModelProto, *, concurrency: int, seconds: float = 1.0) -> BatchChoice:
    """Measure batches beside as many single runs, `concurrency` of them at a time.

    Args:
        runner: what runs the model.
        model: the model itself, with the data of its weights.
        concurrency: runs at a time.
        seconds: of measuring, for all sizes together.
    """
    if not all(s.shape and not isinstance(s.shape[0], int) for s in (*runner.inputs, *runner.outputs)):
        return BatchChoice(1, None, "the first dim of an input or output is fixed")
    if dependence := row_dependence(model, _SIZES[0]).reason:
        return BatchChoice(1, None, f"that rows are independent is not certified: {dependence}")
    best = BatchChoice(1, None, "")
    with ThreadPoolExecutor(concurrency) as threads:
        for size in _SIZES:
            try:
                joined = find_probes(runner, runner.inputs, seed=0, wanted=1, batch=size)[0].feeds
            except OnnxToolError:
                continue
            singles = [{name: a[i : i + 1] for name, a in joined.items()} for i in range(size)]
            if (
                any(len(a) != size for a in joined.values())
                or not _same(runner, joined, singles)
                or _spreads(runner, joined)
            ):
                return BatchChoice(1, None, "the answer to a request depends on the others in its batch")

            def apart(singles: Sequence[Feeds] = singles) -> object:
                return list(threads.map(runner.run, singles))

            def together(joined: Feeds = joined) -> object:
                return runner.run(joined)

            one, all_ = measure([apart, together], budget=seconds / len(_SIZES), minimum=3, maximum=200, warmup=1)
            gain = one.median / all_.median
            if best.gain is None or gain > best.gain:
                best = BatchChoice(size, gain, "")
    if best.gain is None:
        return BatchChoice(1, None, "no random input of a batch's size runs")
    if best.gain < _WORTH:
        return BatchChoice(1, best.gain, f"a batch gives {best.gain:.2f} of the throughput of single requests")
    said = f"a batch of {best.size} gives {best.gain:.2f} of the throughput; its rows are certified as independent"
    return BatchChoice(best.size, best.gain, said)


def _same(runner: Runner, joined: Feeds, singles: Sequence[Feeds]) -> bool:
    together = runner.run(joined)
    try:
        alone = [runner.run(f) for f in singles]
        if any(np.ndim(v) == 0 or len(v) != 1 for one in alone for v in one.values()):
            return False
        expected = {name: np.concatenate([one[name] for one in alone]) for name in together}
        check = EquivalenceCheck(Tolerance(1e-3, 1e-5))
        check.add(joined, expected, together)
        return not check.report("batch").differs
    except (OnnxToolError, ValueError):
        return False


def _spreads(runner: Runner, joined: Feeds) -> bool:
    """Whether NaN or infinity in one row reaches another: 0 times infinity is no 0, as it is for exact numbers."""
    together = runner.run(joined)
    for poison in (np.nan, np.inf):
        feeds = {name: np.array(a) for name, a in joined.items()}
        for array in feeds.values():
            if array.dtype.kind in "fV":
                array[0] = poison
        try:
            poisoned = runner.run(feeds)
        except OnnxToolError:
            return True
        if not all(np.array_equal(poisoned[n][1:], v[1:], equal_nan=v.dtype.kind == "f") for n, v in together.items()):
            return True
    return False
