"""Samples of a model with states: consecutive samples are steps, and outputs are fed back into inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnxtool.errors import UsageError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.source import DataSource
from onnxtool.runtime.feeds import adapt

# What people add to a state's name to call its next value.
_MARKS = re.compile(r"(_?(next|new|out|output|n|in|input|prev|0|1|t)_?$)|(^(next|new|out|prev|in)_)", re.IGNORECASE)


def state_pairs(texts: Sequence[str], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> dict[str, str]:
    """Input -> the output whose value is its next one.

    Args:
        texts: "OUTPUT:INPUT" for each state; none for pairs whose names tell ("h" and "hn", "state" and "new_state")
            and whose shapes agree.
        inputs, outputs: of the model.

    Raises:
        UsageError: another form, no such tensor, or no pair at all.
    """
    names = {s.name for s in inputs}, {s.name for s in outputs}
    found = {}
    for text in texts:
        output, colon, name = text.rpartition(":")
        if not colon or output not in names[1] or name not in names[0]:
            raise UsageError(
                f"--state {text}: write OUTPUT:INPUT; the model takes {', '.join(sorted(names[0]))} and gives "
                f"{', '.join(sorted(names[1]))}."
            )
        found[name] = output
    if not texts:
        roots = {_root(s.name): s for s in outputs}
        for spec in inputs:
            match = roots.get(_root(spec.name))
            if match is not None and match.dtype == spec.dtype and _rank(match) == _rank(spec):
                found[spec.name] = match.name
    if not found:
        raise UsageError("--steps: no output looks like the next value of an input; name them: --state OUTPUT:INPUT.")
    return found


def with_states(
    source: DataSource,
    specs: tuple[TensorSpec, ...],
    pairs: Mapping[str, str],
    steps: int,
    run: Callable[[Mapping[str, np.ndarray]], Mapping[str, Any]],
) -> DataSource:
    """Fill in the states of consecutive samples: zeros at first, then what the model gave, for so many steps.

    Args:
        source: samples of the other inputs; states that a sample brings are those of a first step.
        specs: all inputs of the model.
        pairs: of `state_pairs`.
        steps: after so many samples the states start anew.
        run: the float model.
    """
    states = {s.name: s for s in specs if s.name in pairs}

    def walk() -> Iterator[Mapping[str, np.ndarray]]:
        last: Mapping[str, Any] = {}
        for index, raw in enumerate(source.open()):
            first = index % steps == 0
            given = dict(raw) if first else {n: a for n, a in raw.items() if n not in states}
            if "" in given:  # a lone array, of the one input that is no state
                given[next(s.name for s in specs if s.name not in states)] = given.pop("")
            own = {n: _start(s) if first else np.asarray(last[pairs[n]]) for n, s in states.items()}
            feeds = adapt(specs, {**own, **given})
            yield feeds
            if (index + 1) % steps:
                last = run(feeds)

    return replace(source, open=walk, specs=specs, joins=False)


def _start(spec: TensorSpec) -> np.ndarray:
    dtype = spec.dtype if isinstance(spec.dtype, np.dtype) else np.dtype("float32")
    return np.zeros([d if isinstance(d, int) else 1 for d in spec.shape or ()], dtype)


def _root(name: str) -> str:
    shorter = _MARKS.sub("", name)
    return (shorter or name).lower()


def _rank(spec: TensorSpec) -> int | None:
    return None if spec.shape is None else len(spec.shape)
