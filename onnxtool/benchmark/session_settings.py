"""Session settings that people tune by hand, one change at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from onnxtool.runtime.session.session import SessionOptions

Change = Callable[[SessionOptions], SessionOptions]

# Words for each change -> what it does to the options. The saved file is no option: see `bench_matrix`.
CHANGES: Mapping[str, Change] = {
    "no spinning": lambda o: replace(o, settings=(*o.settings, ("session.intra_op.allow_spinning", "0"))),
    "no arena": lambda o: replace(o, arena=False),
    "no memory pattern": lambda o: replace(o, memory_pattern=False),
    "parallel execution": lambda o: replace(o, parallel=True),
    "graph level extended": lambda o: replace(o, optimization="extended"),
    "graph level basic": lambda o: replace(o, optimization="basic"),
    "no prepacking": lambda o: replace(o, prepack=False),
}
SAVED = "graph saved at level all"
# Changes of one kind exclude one another.
KINDS = (("graph level extended", "graph level basic", SAVED),)


def changed(options: SessionOptions, changes: tuple[str, ...]) -> SessionOptions:
    """Options with changes, by their words; a saved graph is not optimized again."""
    for change in changes:
        options = replace(options, optimization="off") if change == SAVED else CHANGES[change](options)
    return options


def combined(changes: list[str]) -> tuple[str, ...]:
    """Changes that go together, the better ones first: one of each kind."""
    kept: list[str] = []
    for change in changes:
        rivals = {c for kind in KINDS if change in kind for c in kind}
        if not rivals & set(kept):
            kept.append(change)
    return tuple(kept)
