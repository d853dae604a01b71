"""Options of a server that exclude each other."""

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
