"""`onnxtool quantize`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from onnxtool.cli.output import Output
from onnxtool.errors import UsageError
from onnxtool.options.option import REPORTS, Option, options_of
from onnxtool.options.quantize import QuantizeCommand

Declared = Mapping[str, Option]


def reject_other_modes(mode: str, given: Mapping[str, str], declared: Declared) -> None:
    """Refuse options that do nothing in this mode.

    Raises:
        UsageError: there is one.
    """
    for name, called in given.items():
        modes = declared[name].modes
        if modes and mode not in modes:
            others = " or ".join(modes) if len(modes) < 3 else ", ".join(modes)
            raise UsageError(f"{called} does nothing with --mode {mode}: it goes with {others}.")


def reject_alone(given: Mapping[str, str], declared: Declared) -> None:
    """Refuse options that only say more about others which are not there.

    Raises:
        UsageError: there is one.
    """
    for name, called in given.items():
        needs = declared[name].needs
        if needs and not any(n in given for n in needs):
            raise UsageError(f"{called} goes with {' or '.join(declared[n].flag for n in needs)}.")


def reject_for_bundle(given: Mapping[str, str], declared: Declared, *, bundle: bool) -> None:
    """Refuse a model's options for a bundle of a language model, and a bundle's options for a model.

    Raises:
        UsageError: there is one.
    """
    for name, called in given.items():
        option = declared[name]
        if bundle and not (option.bundle or option.argument or option.group == REPORTS):
            raise UsageError(f"{called} does nothing for a bundle, which is quantized within --max-perplexity.")
        if not bundle and option.bundle == "only":
            raise UsageError(f"{called} goes with a bundle of a language model (see convert), not with a model.")


def command(asked: QuantizeCommand, out: Output) -> None:
    """Make a model int8 within an accuracy budget, and show size, latency and error against the float model.

    A bundle (see convert) becomes one of 8 and 4 bits within a budget of perplexity, on the text of --eval.
    Exit 0 when the file was written; 1 when nothing keeps the budget (and, with auto, beats float): nothing is written.
    """
    began = time.perf_counter()
    from onnxtool.generation.bundle import is_bundle
    from onnxtool.words import session_options, taken_by

    declared = options_of(type(asked))
    bundle = is_bundle(asked.model)
    reject_for_bundle(out.given, declared, bundle=bundle)
    if bundle:
        from onnxtool.generation.quantization.quantize import BUNDLE_SECONDS, quantize_bundle

        seconds = asked.time_limit if "time_limit" in out.given else BUNDLE_SECONDS
        text = None if asked.eval_data is None else Path(asked.eval_data)
        bundled = {"max_bytes": asked.max_size, "eval_text": text, "time_limit": seconds}
        out.emit(quantize_bundle(asked.model, asked.output, **taken_by(quantize_bundle, asked) | bundled))
        return
    # Replaying a recipe, the line that made it may be repeated as it is.
    if asked.recipe_file is None or not Path(asked.recipe_file).exists():
        reject_other_modes(asked.mode, out.given, declared)
    reject_alone(out.given, declared)
    from onnxtool.quantization.quantize import quantize
    from onnxtool.quantization.search.time_budget import counted_from

    how = {"options": session_options(asked, threads=None)}
    with counted_from(began):
        out.emit(quantize(asked.model, asked.output, **taken_by(quantize, asked) | how))
