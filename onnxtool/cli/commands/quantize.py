"""`onnxtool quantize`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onnxtool.cli import unused_options as unused
from onnxtool.options.option import options_of

if TYPE_CHECKING:
    from onnxtool.cli.output import Output
    from onnxtool.options.quantize import QuantizeCommand


def command(asked: QuantizeCommand, out: Output) -> None:
    """Make a model int8 within an accuracy budget, and show size, latency and error against the float model.

    A bundle (see convert) becomes one of 8 and 4 bits within a budget of perplexity, on the text of --eval.
    Exit 0 when the file was written; 1 when nothing keeps the budget (and, with auto, beats float): nothing is written.
    """
    from onnxtool.generation.bundle import is_bundle
    from onnxtool.words import session_options, taken_by

    declared = options_of(type(asked))
    bundle = is_bundle(asked.model)
    unused.reject_for_bundle(out.given, declared, bundle=bundle)
    if bundle:
        from onnxtool.generation.quantization.quantize import BUNDLE_SECONDS, quantize_bundle

        seconds = asked.time_limit if "time_limit" in out.given else BUNDLE_SECONDS
        text = None if asked.eval_data is None else Path(asked.eval_data)
        bundled = {"max_bytes": asked.max_size, "eval_text": text, "time_limit": seconds}
        out.emit(quantize_bundle(asked.model, asked.output, **taken_by(quantize_bundle, asked) | bundled))
        return
    # Replaying a recipe, the line that made it may be repeated as it is.
    if asked.recipe_file is None or not Path(asked.recipe_file).exists():
        unused.reject_other_modes(asked.mode, out.given, declared)
    unused.reject_alone(out.given, declared)
    from onnxtool.quantization.quantize import quantize

    how = {"options": session_options(asked, threads=None)}
    out.emit(quantize(asked.model, asked.output, **taken_by(quantize, asked) | how))
