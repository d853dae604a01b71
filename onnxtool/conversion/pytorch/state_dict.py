"""State dicts: finding the weights in a checkpoint, stripping wrappers' prefixes, fitting them to a module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from onnxtool.errors import InputError, one_line

# Where training frameworks keep the weights inside a checkpoint, in the order of preference.
_CONTAINERS = ("state_dict", "model_state_dict", "model_state", "state_dict_ema", "model_ema", "model", "module", "net")
_SHOWN = 3


def find_weights(loaded: Any, subject: str, notes: list[str]) -> dict[str, torch.Tensor]:
    """The state dict in what a file holds: the object itself or an entry of a checkpoint.

    Raises:
        InputError: there are no weights in it.
    """
    if _is_state_dict(loaded):
        return dict(loaded)
    if isinstance(loaded, Mapping):
        found = [key for key, entry in loaded.items() if _is_state_dict(entry)]
        usual = [key for key in _CONTAINERS if key in found]
        if usual or len(found) == 1:
            key = (usual or found)[0]
            kind = "Lightning checkpoint" if "pytorch-lightning_version" in loaded else "checkpoint"
            others = ", ".join(repr(other) for other in found if other != key)
            notes.append(f"weights taken from the entry {key!r} of a {kind}" + (f", not {others}" if others else ""))
            return dict(loaded[key])
        keys = ", ".join(map(str, list(loaded)[:8]))
        if found:
            raise InputError(
                f"{subject}: this checkpoint holds several sets of weights ({', '.join(map(str, found[:8]))}). "
                "Save the one that is meant as a state_dict of its own."
            )
        raise InputError(f"{subject}: this checkpoint holds no weights that can be found; it has {keys}.")
    raise InputError(f"{subject}: this holds a {type(loaded).__name__}, neither weights nor a module.")


def load_weights(module: torch.nn.Module, weights: dict[str, torch.Tensor], subject: str, notes: list[str]) -> None:
    """Load weights into a module, which must take all of them and get all it has.

    Prefixes that wrappers add ("module.", "model.", "_orig_mod.") are stripped; entries that do not belong to the
    wrapped module are then left out. Both are said in `notes`.

    Raises:
        InputError: names or shapes do not fit; says which.
    """
    wanted = {name: value for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}
    chosen = _strip(weights, wanted, notes)
    _check(wanted, chosen, subject)
    _note_dtypes(wanted, chosen, notes)
    shared = _shared(module)
    # Taking over the tensors instead of copying them halves the memory, but would untie shared weights and
    # change dtypes.
    assign = not shared and all(wanted[n].dtype == chosen[n].dtype for n in wanted)
    try:
        with torch.no_grad():
            module.load_state_dict(chosen, strict=True, assign=assign)
    except RuntimeError as error:
        raise InputError(f"{subject}: the weights do not fit the factory's model: {one_line(error, 400)}") from error


def _is_state_dict(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and len(value) > 0
        and all(isinstance(k, str) for k in value)
        and any(isinstance(v, torch.Tensor) for v in value.values())
        and all(isinstance(v, (torch.Tensor, bytes, dict)) or k.endswith("_extra_state") for k, v in value.items())
    )


def _strip(
    weights: dict[str, torch.Tensor], wanted: Mapping[str, torch.Tensor], notes: list[str]
) -> dict[str, torch.Tensor]:
    names = set(wanted)
    if set(weights) == names or not names:
        return weights
    for prefix in _prefixes(weights):
        stripped = {n.removeprefix(prefix): v for n, v in weights.items() if n.startswith(prefix)}
        # A small model's names ("weight", "bias") end every layer's: the shapes, or most of the file, must fit too.
        fits = all(getattr(stripped.get(n), "shape", None) == v.shape for n, v in wanted.items())
        if set(stripped) == names and (fits or 2 * len(stripped) > len(weights)):
            notes.append(f"prefix {prefix} stripped from {len(stripped)} names")
            rest = [n for n in weights if not n.startswith(prefix)]
            if rest:
                notes.append(f"{len(rest)} entries of the checkpoint left out: {_some(rest)}")
            return stripped
    # The model may sit deeper than the weights: a factory that gives a wrapper of what was saved.
    for prefix in _prefixes(wanted):
        if {prefix + n for n in weights} == names:
            notes.append(f"prefix {prefix} added to {len(weights)} names")
            return {prefix + n: v for n, v in weights.items()}
    return weights


def _prefixes(names: Mapping[str, Any]) -> list[str]:
    found: dict[str, None] = {}
    for name in names:
        parts = name.split(".")
        for depth in range(1, min(len(parts), 4)):
            found[".".join(parts[:depth]) + "."] = None
    return list(found)


def _check(wanted: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor], subject: str) -> None:
    missing = [n for n in wanted if n not in given]
    unexpected = [n for n in given if n not in wanted and not n.endswith("_extra_state")]
    other = [n for n in wanted if n in given and wanted[n].shape != given[n].shape]
    parts = []
    if missing:
        parts.append(f"{len(missing)} missing ({_some(missing)})")
    if unexpected:
        parts.append(f"{len(unexpected)} not in the model ({_some(unexpected)})")
    if other:
        first = other[0]
        parts.append(
            f"{len(other)} of another shape ({first}: {list(given[first].shape)} in the file, "
            f"{list(wanted[first].shape)} in the model)"
        )
    if parts:
        raise InputError(
            f"{subject}: the weights do not fit the factory's model: {', '.join(parts)}. "
            "Is --factory the right one, with the right --factory-arg?"
        )


def _note_dtypes(wanted: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor], notes: list[str]) -> None:
    pairs = {
        (str(given[n].dtype).removeprefix("torch."), str(wanted[n].dtype).removeprefix("torch."))
        for n in wanted
        if given[n].dtype != wanted[n].dtype
    }
    for have, want in sorted(pairs):
        notes.append(f"{have} weights loaded into a {want} model")


def _shared(module: torch.nn.Module) -> bool:
    named = list(module.named_parameters(remove_duplicate=False))
    return len({id(p) for _, p in named}) < len(named)


def _some(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f", +{more} more" if more > 0 else "")
