"""Which opset to write."""

from __future__ import annotations

from onnxtool.convert.adapter import ConvertOptions
from onnxtool.errors import UsageError

OLDEST = 9


def target_opset(options: ConvertOptions, newest_of_exporter: int) -> int:
    """The opset that an exporter should write.

    Args:
        options: `options.opset` if the user asked for one.
        newest_of_exporter: the newest that the exporter itself can write.

    Raises:
        UsageError: an opset was asked for that the embedded runtime or the exporter does not have.
    """
    limit = min(newest_runtime_opset(), newest_of_exporter)
    if options.opset is None:
        return limit
    if not OLDEST <= options.opset <= limit:
        raise UsageError(f"--opset {options.opset}: this exporter and the embedded runtime have {OLDEST} to {limit}.")
    return options.opset


def newest_runtime_opset() -> int:
    """The newest opset of the standard domain that the embedded runtime fully supports."""
    return 23
