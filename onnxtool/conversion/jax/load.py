"""From what a factory gives to a pure function of arrays, in inference mode and with fixed random keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax

from onnxtool.conversion.input_plan import Parameter, signature_parameters
from onnxtool.errors import InputError, UsageError

# Arguments that switch dropout and batch statistics, with their value for inference.
_INFERENCE = {
    "train": False,
    "training": False,
    "is_training": False,
    "deterministic": True,
    "inference": True,
    "use_running_average": True,
}
_KEYS = ("key", "rng")


@dataclass(frozen=True)
class LoadedFunction:
    """A model as a function.

    Attributes:
        call: arguments of arrays -> a pytree of arrays; without side effects.
        parameters: those of its arguments that are inputs.
        form: "Flax NNX module".
        packages: whose versions the report names.
        notes: things to say aloud.
    """

    call: Callable[..., Any]
    parameters: list[Parameter]
    form: str
    packages: tuple[str, ...] = ("jax",)
    notes: list[str] = field(default_factory=list)


def load_function(model: Any, seed: int) -> LoadedFunction:
    """Make a function of a module or of a tuple (module, what it has learned).

    Args:
        model: an NNX or Equinox module, a bound Linen module, (Linen module, variables), (Equinox module, state), or
            anything that can be called on arrays.
        seed: of the random key for a function that insists on one.

    Raises:
        UsageError: a Linen module without its variables.
        InputError: it cannot be called, or its arguments are unknown.
    """
    packages: tuple[str, ...]
    module, *state = model if isinstance(model, tuple) and model else (model,)
    modules = {cls.__module__ for cls in type(module).__mro__}
    if any(name.startswith("flax.linen") for name in modules):
        called, call, form, packages = module.__call__, _linen(module, state), "Flax Linen module", ("jax", "flax")
    elif any(name.startswith("flax.nnx") for name in modules):
        called, call, form, packages = module.__call__, _nnx(module), "Flax NNX module", ("jax", "flax")
    elif any(name.startswith("equinox") for name in modules) and len(state) <= 1:
        called, call, form, packages = module, _equinox(module, state), "Equinox module", ("jax", "equinox")
    else:
        called, call, form, packages = model, model, "JAX function", ("jax",)
    if not callable(called):
        raise InputError(f"the factory gave a {type(model).__name__}, which cannot be called on arrays.")
    try:
        parameters = signature_parameters(called)
    except ValueError as error:
        raise InputError("the arguments of this function are not known; wrap it in one of your own.") from error
    fixed = {p.name: _INFERENCE[p.name] for p in parameters if p.name in _INFERENCE}
    notes = [f"called with {name}={value}" for name, value in fixed.items()]
    for name in (p.name for p in parameters if p.name in _KEYS and p.required):
        fixed[name] = jax.random.PRNGKey(seed)
        notes.append(f"called with {name}=jax.random.PRNGKey({seed})")
    inputs = [p for p in parameters if p.name not in fixed and not (p.name in _KEYS and not p.required)]
    if state and form == "Equinox module":
        inputs = [p for p in inputs if p.name != "state"]
    return LoadedFunction(partial(call, **fixed), inputs, form, packages, notes)


def _linen(module: Any, state: list[Any]) -> Callable[..., Any]:
    """Raises UsageError where the variables are not there."""
    variables = state[0] if state else None
    if not state and module.scope is not None:
        module, variables = module.unbind()
    if not isinstance(variables, Mapping):
        raise UsageError(
            "a Flax Linen module has no weights of its own: give (module, variables), or module.bind(variables)."
        )
    return partial(module.apply, variables)


def _nnx(module: Any) -> Callable[..., Any]:
    from flax import nnx

    inference = nnx.clone(module)
    inference.eval()
    definition, state = nnx.split(inference)

    def call(*args: Any, **kwargs: Any) -> Any:
        return nnx.merge(definition, state, copy=True)(
            *args, **kwargs
        )  # of its own each time: what it writes is let go

    return call


def _equinox(module: Any, state: list[Any]) -> Callable[..., Any]:
    import equinox

    inference = equinox.nn.inference_mode(module)
    if not state:
        return inference  # type: ignore[no-any-return]
    return lambda *args, **kwargs: inference(*args, state[0], **kwargs)[0]
