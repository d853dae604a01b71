"""Sizes as people write them: 64MB, 1.5 GB, or a number of bytes."""

from __future__ import annotations

import re

from onnxtool.errors import UsageError


def parse_bytes(text: str, subject: str) -> int:
    """Turn "64MB", "1.5 GB" or plain bytes into a number of bytes (1 kB is 1000 bytes).

    Args:
        text: what was given.
        subject: how the message begins: the option or key, and what was written after it.

    Raises:
        UsageError: not such a size.
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?) ?([kmgt]?)b?", text.strip().lower(), re.ASCII)
    if match is None:
        raise UsageError(f"{subject}: write a size such as 64MB, 1.5GB, or a number of bytes.")
    return int(float(match[1]) * 1000 ** " kmgt".index(match[2] or " "))
