"""What commands do while tests run, except where a test is about the search: less.

`--effort normal` stands for quick, which tries 16 inputs of 40, the most telling ones (the fixture `all_trials` has
all); what is timed, or judged once more as time allows, has a tenth of the time (no test asserts speed), and so has the
certificate of `optimize`, beside its proof; models with many weights have none: that of the bundled one takes longer
than all else that a command does. The last search of a proof, which changes inputs at random, takes few steps at either
effort.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from onnxtool import walkthrough
from onnxtool.conversion import equivalence
from onnxtool.equality import judge_again
from onnxtool.equality.certificate import models
from onnxtool.equality.search import branch_distance, difference
from onnxtool.equality.trials import observe, trial
from onnxtool.optimization import fusion_selection, optimize
from onnxtool.quantization import kernel_table
from onnxtool.runtime.timing import timing

# What `--effort` stands for, in each place that reads it.
_TABLES = (
    equivalence.CERTIFICATE_SECONDS,
    trial._SECONDS,
    observe._MOST_TRIALS,
    branch_distance._RUNS,
)
_NORMAL = tuple(table["normal"] for table in _TABLES)  # type: ignore[attr-defined]
TRIALS = observe._MOST_TRIALS["quick"]  # for users
# Of 40: every correction of a library that the tests know is still seen to be needed.
_FEW_TRIALS = 16
_STEPS = dict(difference._MOST_STEPS)
_FEW_STEPS = {"normal": 5, "quick": 5}
_CERTIFIED = 2**14, models.MOST_WEIGHTS  # bytes of weights
_TENTHS = (
    *((module, "_BUDGET") for module in (timing, fusion_selection, kernel_table, walkthrough)),
    (judge_again, "_SECONDS"),
    (optimize, "_CERTIFYING"),
)
_SECONDS = tuple(getattr(module, name) for module, name in _TENTHS)


def are_quick() -> bool:
    """Whether "normal" is "quick" in this process."""
    return bool(trial._SECONDS["normal"] == trial._SECONDS["quick"])


@contextmanager
def meaning(*, quick: bool) -> Iterator[None]:
    """Makes "normal" the same as "quick" and the rest as little, or all of it what it is for users."""
    with ExitStack() as changed:
        trials = _FEW_TRIALS if quick else TRIALS
        changed.enter_context(mock.patch.dict(observe._MOST_TRIALS, quick=trials))
        for table, normal in zip(_TABLES, _NORMAL, strict=True):
            changed.enter_context(mock.patch.dict(table, normal=table["quick"] if quick else normal))  # type: ignore
        steps = _FEW_STEPS if quick else _STEPS
        changed.enter_context(mock.patch.dict(difference._MOST_STEPS, steps))
        changed.enter_context(mock.patch.object(models, "MOST_WEIGHTS", _CERTIFIED[0] if quick else _CERTIFIED[1]))
        for (module, name), seconds in zip(_TENTHS, _SECONDS, strict=True):
            changed.enter_context(mock.patch.object(module, name, seconds / 10 if quick else seconds))
        yield
