"""Reports as HTML pages that need nothing else: no scripts, no fonts, no requests."""

from onnxtool.cli.render.html.page import render

__all__ = ["render"]
