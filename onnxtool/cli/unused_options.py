"""Options that were typed and would change nothing: an error instead of silence."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import typer

# Parameter of `quantize` -> the modes in which it does something; one that is not here does something in all of them.
QUANTIZE_MODES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("time_limit", "smallest"), ("auto",)),
    **dict.fromkeys(("target", "method", "percentile", "activations", "attention"), ("auto", "static")),
    **dict.fromkeys(("weights", "per_channel", "smooth", "equalize", "bias_correction"), ("auto", "static", "dynamic")),
    **dict.fromkeys(("op", "exclude", "compact", "fuse"), ("auto", "static", "dynamic", "int8", "int4")),
    **dict.fromkeys(("block_size", "symmetric", "round_to_nearest"), ("int8", "int4")),
    "keep_io": ("float16",),
}
# Parameters that say something of another one's value.
QUANTIZE_NEEDS: Mapping[str, tuple[str, ...]] = {
    "samples": ("data",),
    "image": ("data", "eval_data"),
    "metric": ("eval_data",),
    "steps": ("data",),
    "state": ("steps",),
}
BUNDLE_ONLY = ("max_perplexity", "max_size")
BUNDLE_TOO = ("model", "output", "mode", "eval_data", "time_limit", "threads", "html", "report_files", *BUNDLE_ONLY)
_ALWAYS = ("json", "verbose", "quiet")


def typed(context: typer.Context) -> dict[str, str]:
    """The parameters that the user wrote on the line, and the first name of each option ("--keep-io")."""
    found = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name is not None and source is not None and source.name == "COMMANDLINE":
            is_option = parameter.param_type_name == "option"
            found[parameter.name] = parameter.opts[-1] if is_option else parameter.name.upper()
    return found


def reject_other_modes(mode: str, given: Mapping[str, str], modes: Mapping[str, Collection[str]]) -> None:
    """Refuse options that do nothing in this mode.

    Raises:
        UsageError: there is one.
    """
    from onnxtool.errors import UsageError

    for name, option in given.items():
        if name in modes and mode not in modes[name]:
            others = " or ".join(modes[name]) if len(modes[name]) < 3 else ", ".join(modes[name])
            raise UsageError(f"{option} does nothing with --mode {mode}: it goes with {others}.")


def reject_alone(given: Mapping[str, str], needs: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse options that only say more about others which are not there.

    Raises:
        UsageError: there is one.
    """
    from onnxtool.errors import UsageError

    names = {"data": "--data", "eval_data": "--eval"}
    for name, option in given.items():
        if name in needs and not any(n in given for n in needs[name]):
            raise UsageError(f"{option} goes with {' or '.join(names[n] for n in needs[name])}.")


def reject_for_bundle(given: Mapping[str, str], *, bundle: bool) -> None:
    """Refuse a model's options for a bundle of a language model, and a bundle's options for a model.

    Raises:
        UsageError: there is one.
    """
    from onnxtool.errors import UsageError

    for name, option in given.items():
        if bundle and name not in (*BUNDLE_TOO, *_ALWAYS):
            raise UsageError(f"{option} does nothing for a bundle, which is quantized within --max-perplexity.")
        if not bundle and name in BUNDLE_ONLY:
            raise UsageError(f"{option} goes with a bundle of a language model (see convert), not with a model.")
