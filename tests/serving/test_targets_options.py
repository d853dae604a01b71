"""Options of a server that exclude or need each other."""

from __future__ import annotations

import pytest

from onnxtool.errors import UsageError
from onnxtool.options.serve import ServeOptions
from onnxtool.serving.serve import serve


@pytest.mark.parametrize("workers", [2, None])
def test_workers_are_refused_beside_in_process(workers: int | None) -> None:
    both = ServeOptions(workers=workers, in_process=True)
    for given in ({"options": both}, {"own": {"no.onnx": both}}):
        with pytest.raises(UsageError, match="takes no other number of workers"):
            serve("no.onnx", **given)


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        (ServeOptions(concurrency=2), "concurrency goes with in-process"),
        (ServeOptions(max_delay=0.01), "batching auto"),
    ],
)
def test_options_that_would_do_nothing_are_refused(options: ServeOptions, needed: str) -> None:
    with pytest.raises(UsageError, match=needed):
        serve("no.onnx", options=options)
