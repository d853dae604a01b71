"""A JAX function as a Runner: jitted, in float32, and in float64 for its rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from onnxtool.conversion.adapter import SourceModel
from onnxtool.conversion.float64_reference import Float64Reference
from onnxtool.conversion.graph_interface import named_outputs
from onnxtool.conversion.input_plan import Dtypes, InputPlan, plan_inputs
from onnxtool.conversion.jax.evaluation import computes_in_bfloat16, evaluate_in_float64, without_bfloat16
from onnxtool.conversion.jax.load import LoadedFunction
from onnxtool.conversion.quiet import quiet
from onnxtool.errors import InputError, UsageError, first_line
from onnxtool.model.spec import TensorSpec
from onnxtool.options.convert import ConvertOptions

# Sizes for all dynamic dims, to see what the function gives: a small one, and those that strides and patches need.
_SIZES = (16, 32, 224)
_BFLOAT16 = np.dtype(jax.numpy.bfloat16)


@dataclass(kw_only=True)
class JaxModel(SourceModel):
    """A function of flat arrays.

    Attributes:
        loaded: the function, and what is known of it.
        plan: how flat arrays become its arguments.
        sample: zeros on which it can be traced.
        in_float32: the function computes in bfloat16, which the runtime's CPU side does not.
    """

    loaded: LoadedFunction
    plan: InputPlan
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...] = ()
    form: str
    framework: str
    notes: list[str] = field(default_factory=list)
    sample: dict[str, np.ndarray] = field(default_factory=dict)
    in_float32: bool = False

    @classmethod
    def prepare(cls, loaded: LoadedFunction, options: ConvertOptions) -> JaxModel:
        """Lay the user's wishes over what the function takes, and see what it gives.

        Raises:
            UsageError: options that do not fit, or an input of 64 bits where JAX computes in 32.
            InputError: the function cannot be called with these inputs.
        """
        notes = list(loaded.notes)
        wide = bool(jax.config.jax_enable_x64)
        floating, integer = np.dtype("float32"), np.dtype("int64" if wide else "int32")
        plan = plan_inputs(loaded.parameters, Dtypes(floating, integer, _narrow), options, notes)
        for spec in plan.specs:
            if not wide and isinstance(spec.dtype, np.dtype) and _narrow(spec.dtype) != spec.dtype:
                raise UsageError(
                    f"input {spec.name!r} cannot be {spec.dtype}: JAX computes in 32 bits. Write --input-dtype "
                    f"{spec.name}:{_narrow(spec.dtype)}, or set jax_enable_x64 where the model is built."
                )
        framework = ", ".join(f"{package} {version(package)}" for package in loaded.packages)
        model = cls(loaded=loaded, plan=plan, inputs=plan.specs, form=loaded.form, framework=framework, notes=notes)
        model.outputs = named_outputs(model._probe(), model.inputs, options, notes)
        return model

    def call(self, *flat: Any) -> list[Any]:
        """Flat arrays -> flat outputs; what is traced."""
        return without_bfloat16(jax.make_jaxpr(self._called)(*flat), *flat) if self.in_float32 else self._called(*flat)

    def _called(self, *flat: Any) -> list[Any]:
        args, kwargs = self.plan.call(flat)
        return list(jax.tree.leaves(self.loaded.call(*args, **kwargs)))

    @cached_property
    def jitted(self) -> Any:
        """`call`, compiled for each shape."""
        return jax.jit(self.call)

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass, as XLA compiles it.

        Raises:
            InputError: the function does not run on these shapes.
        """
        return self._run(self.jitted, feeds)

    def as_written(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any] | None:
        """As of the base."""
        return self._run(jax.jit(self._called), feeds) if self.in_float32 else None

    def _run(self, forward: Any, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        with quiet(0):
            try:
                results = forward(*(feeds[s.name] for s in self.inputs))
                return {s.name: np.asarray(r) for s, r in zip(self.outputs, results, strict=True)}
            except Exception as error:
                raise InputError(f"the JAX function fails to run: {first_line(error)}") from error

    def rerounded(self) -> Float64Reference | None:
        """The same function in float64; None where it computes in 64 bits already."""
        if jax.config.jax_enable_x64:
            return None
        return Float64Reference(self, self.sample, self._in_float64)

    def _in_float64(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        arrays = [feeds[s.name] for s in self.inputs]
        with quiet(0):
            try:
                return evaluate_in_float64(jax.make_jaxpr(self.call)(*arrays), arrays)
            except Exception as error:
                raise InputError(f"the function does not run in float64: {type(error).__name__}") from error

    def _probe(self) -> list[TensorSpec]:
        """Names and dtypes of the outputs; their dims are the exporter's to say."""
        failure: Exception | None = None
        for size in _SIZES:
            shapes = [tuple(d if isinstance(d, int) else size for d in s.shape or ()) for s in self.inputs]
            abstract = [jax.ShapeDtypeStruct(n, s.dtype) for n, s in zip(shapes, self.inputs, strict=True)]
            args, kwargs = self.plan.call(abstract)
            try:
                with quiet(0):
                    traced, found = jax.make_jaxpr(self.loaded.call, return_shape=True)(*args, **kwargs)
            except Exception as error:
                failure = failure or error
                continue
            self.sample = {s.name: np.zeros(n, s.dtype) for n, s in zip(shapes, self.inputs, strict=True)}
            self.in_float32 = computes_in_bfloat16(traced) and not any(s.dtype == _BFLOAT16 for s in self.inputs)
            if self.in_float32:
                self.notes.append("bfloat16 is computed as float32, which holds its weights exactly")
            leaves = jax.tree_util.tree_flatten_with_path(found)[0]
            names = _names([path for path, _ in leaves])
            dtypes = [np.dtype(leaf.dtype) for _, leaf in leaves]
            dtypes = [np.dtype("float32") if self.in_float32 and d == _BFLOAT16 else d for d in dtypes]
            return [TensorSpec(name, dtype, None) for name, dtype in zip(names, dtypes, strict=True)]
        assert failure is not None
        said = f"{type(failure).__name__}: {first_line(failure)}"
        raise InputError(f"the JAX function cannot be called with these inputs: {said}") from failure


def _narrow(dtype: np.dtype) -> np.dtype:
    """What JAX makes of a dtype."""
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype)) if dtype.kind in "iufcb" else dtype


def _names(paths: Sequence[tuple[Any, ...]]) -> list[str]:
    """Output names after their places in what the function returns: a dict's keys, else output_0, output_1."""
    if len(paths) == 1 and not any(hasattr(key, "key") or hasattr(key, "name") for key in paths[0]):
        return ["output"]
    parts = [[str(next(getattr(k, a) for a in ("key", "name", "idx") if hasattr(k, a))) for k in p] for p in paths]
    return [f"output_{'_'.join(p)}" if p and p[0].isdigit() else "_".join(p) for p in parts]
