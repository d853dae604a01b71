"""Memory in huge pages: the same bytes, and nothing that is shared or a file's."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtool.runtime.session import memory
from onnxtool.runtime.session.memory import use_huge_pages


def test_memory_keeps_its_content() -> None:
    weights = np.arange(6 << 20, dtype=np.int32)
    done = use_huge_pages()
    assert done >= 0
    assert (weights == np.arange(6 << 20, dtype=np.int32)).all()


@pytest.mark.parametrize(
    ("line", "length"),
    [
        ("7f0000000000-7f0000800000 rw-p 00000000 00:00 0", 8 << 20),
        ("7f0000100000-7f0000500000 rw-p 00000000 00:00 0 [heap]", 2 << 20),
        ("7f0000000000-7f0000100000 rw-p 00000000 00:00 0", 0),
        ("7f0000000000-7f0000800000 r--p 00000000 00:00 0", 0),
        ("7f0000000000-7f0000800000 rw-s 00000000 00:00 0", 0),
        ("7f0000000000-7f0000800000 rw-p 00000000 08:01 77 /models/weights.bin", 0),
        ("7f0000000000-7f0000800000 rw-p 00000000 00:00 0 [stack]", 0),
    ],
)
def test_only_large_private_memory_is_taken(line: str, length: int) -> None:
    start, found = memory._large(line)
    assert found == length and start % (2 << 20) == 0
