"""What every command returns: frozen dataclasses, with no I/O and no rendering."""

from onnxtool.report.base import Report, TensorInfo, to_plain

__all__ = ["Report", "TensorInfo", "to_plain"]
