"""Options that were typed and would change nothing: an error instead of silence."""

from __future__ import annotations

from collections.abc import Mapping

from onnxtool.errors import UsageError
from onnxtool.options.option import REPORTS, Option

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
