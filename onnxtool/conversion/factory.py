"""Calling the user's own code: `--factory file.py:function` or `package.module:Class`."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from onnxtool.conversion.tensorflow.environment import (
    prepare_environment,
    quiet,
    silent_native_stderr,
    tensorflow_backend,
)
from onnxtool.errors import InputError, UsageError
from onnxtool.options.convert import ConvertOptions
from onnxtool.user_code import importable, load_file

# What was built to see what it is, for the adapter that then asks for it: a factory is called once.
_built: ContextVar[tuple[ConvertOptions, Any] | None] = ContextVar("built", default=None)


def keep_built(options: ConvertOptions, model: Any) -> None:
    """Let the next `call_factory` with these options give this model."""
    _built.set((options, model))


def call_factory(options: ConvertOptions, target: Any = None) -> Any:
    """Build the model that `options.factory` names, with `options.factory_args`.

    Naming the factory is the user's consent to run it: it is their own code, no content of the model file.

    Args:
        options: names the factory.
        target: what `find_factory` gave, where it has been called already.

    Raises:
        UsageError: malformed, no such file, module or attribute, or arguments that do not fit.
        InputError: the factory itself fails.
    """
    ready = _built.get()
    if ready is not None and ready[0] is options:
        _built.set(None)
        return ready[1]
    target = find_factory(options) if target is None else target
    arguments = dict(options.factory_args)
    if not callable(target):
        if arguments:
            raise UsageError(f"--factory {options.factory}: is not a function or class, so it takes no --factory-arg.")
        return target
    with importable(options.python_path):
        try:
            return target(**arguments)
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            if isinstance(error, TypeError) and "argument" in reason:
                advice = "Give it" if "missing" in reason else "Arguments are given"
                raise UsageError(f"--factory {options.factory}: {reason}. {advice} with --factory-arg.") from error
            raise InputError(f"--factory {options.factory} failed: {type(error).__name__}: {reason}") from error


def find_factory(options: ConvertOptions) -> Any:
    """Import what `options.factory` names, without calling it.

    Raises:
        UsageError: malformed, or no such file, module or attribute.
        InputError: the file cannot be imported.
    """
    text = options.factory or ""
    place, colon, attribute = text.rpartition(":")
    if not colon or not place or not attribute:
        raise UsageError(f"--factory {text}: write file.py:function or package.module:Class.")
    with importable(options.python_path):
        module = load_file(Path(place), f"--factory {text}") if place.endswith(".py") else _from_name(place, text)
    target: Any = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            offered = [n for n in dir(module) if not n.startswith("_") and callable(getattr(module, n))]
            raise UsageError(f"--factory {text}: {place} has no {part!r}; it has {', '.join(offered[:12])}.")
        target = getattr(target, part)
    return target


def _from_name(name: str, text: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        file = Path(f"{name.replace('.', '/')}.py")
        if file.is_file():
            advice = f"For the file here write --factory {file.as_posix()}{text.removeprefix(name)}."
        else:
            advice = "Install it, or add its folder with --pythonpath."
        raise UsageError(f"--factory {text}: no module {error.name!r}. {advice}") from error
    except Exception as error:
        reason = " ".join(str(error).split())
        raise InputError(f"--factory {text}: {name} fails to import: {type(error).__name__}: {reason}") from error


# The package of a base class -> the adapter for it.
_ADAPTERS = {
    "torch": "pytorch",
    "keras": "keras",
    "sklearn": "sklearn",
    "xgboost": "boosting",
    "lightgbm": "boosting",
    "catboost": "sklearn",
    "flax": "jax",
    "equinox": "jax",
    "jax": "jax",
    "jaxlib": "jax",
}


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
    if hasattr(model, "get_params") and hasattr(model, "fit"):
        return "sklearn"  # boosters have estimators of this interface too
    if isinstance(model, tuple) and model:
        model = model[0]  # a module of Flax or Equinox, and what it has learned
    if isinstance(model, (FunctionType, MethodType, partial)):
        return "jax" if "jax" in sys.modules else None
    packages = [cls.__module__.partition(".")[0] for cls in type(model).__mro__]
    return next((_ADAPTERS[p] for p in packages if p in _ADAPTERS), None)


def _seed(seed: int) -> None:
    """The same random weights in every run, whichever framework the factory uses."""
    if "keras" in sys.modules:
        sys.modules["keras"].utils.set_random_seed(seed)
    if "torch" in sys.modules or ("keras" not in sys.modules and find_spec("torch") is not None):
        import torch

        torch.manual_seed(seed)
