"""A model that comes from `--factory` alone: which framework it is of shows when it is built."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from onnxtool.conversion.adapter import ConvertOptions
from onnxtool.conversion.factory import call_factory, find_factory, keep_built
from onnxtool.conversion.tensorflow.environment import (
    prepare_environment,
    quiet,
    silent_native_stderr,
    tensorflow_backend,
)

# The package of a base class -> the adapter for it.
_ADAPTERS = {"torch": "pytorch", "keras": "keras"}


def choose_adapter(options: ConvertOptions) -> ConvertOptions:
    """Build the model, and name the adapter for it in the options; they stay as they are when none fits.

    Raises:
        UsageError, InputError: as `call_factory`.
    """
    prepare_environment(options.verbose)
    with quiet(options.verbose), tensorflow_backend():
        with silent_native_stderr(options.verbose):
            target = find_factory(options)
        _seed(options.seed)
        model = call_factory(options, target)
    name = adapter_for(model)
    chosen = options if name is None else replace(options, adapter=name)
    keep_built(chosen, model)
    return chosen


def adapter_for(model: Any) -> str | None:
    """The name of the adapter for a model, by the packages of its classes; None for none."""
    if isinstance(model, type):
        return None
    packages = [cls.__module__.partition(".")[0] for cls in type(model).__mro__]
    return next((_ADAPTERS[p] for p in packages if p in _ADAPTERS), None)


def _seed(seed: int) -> None:
    """The same random weights in every run, whichever framework the factory uses."""
    if "keras" in sys.modules:
        sys.modules["keras"].utils.set_random_seed(seed)
    if "torch" in sys.modules or ("keras" not in sys.modules and find_spec("torch") is not None):
        import torch

        torch.manual_seed(seed)
