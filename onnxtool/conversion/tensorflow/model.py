"""A TensorFlow function as a Runner: a SavedModel's signature or a frozen graph."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxtool.conversion.adapter import SourceModel
from onnxtool.conversion.graph_interface import described, named
from onnxtool.conversion.tensorflow.dims import follow_dims, swapped, swaps
from onnxtool.conversion.tensorflow.environment import quiet, reason
from onnxtool.errors import InputError, UnsupportedError
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec
from onnxtool.options.convert import ConvertOptions

TO_NHWC = (0, 2, 3, 1)
TO_NCHW = (0, 3, 1, 2)


@dataclass(kw_only=True)
class TracedModel(SourceModel):
    """What TensorFlow runs: a function of flat tensors, which is traced.

    Attributes:
        nchw: whether rank-4 inputs and outputs are channels first at the interface (the model is channels last).
        concrete: the traced function over `inputs`, in order.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...] = ()
    form: str
    framework: str
    nchw: bool = False
    notes: list[str] = field(default_factory=list)
    limits: Sequence[str] = ("missing", "missing rows")  # what comparisons make of NaN differs from kernel to kernel
    feeds_hint: Mapping[str, Domain] | None = None
    concrete: Any = None

    @abstractmethod
    def trace(self) -> Any:
        """The forward pass as a concrete TensorFlow function with the inputs' dynamic dims; traced once.

        Raises:
            InputError: the model cannot be called with inputs of these shapes.
        """

    def signature(self) -> list[Any]:
        """A tf.TensorSpec for each input."""
        import tensorflow as tf

        return [
            tf.TensorSpec([d if isinstance(d, int) else None for d in s.shape or ()], tf.as_dtype(s.dtype))
            for s in self.inputs
        ]

    def name_outputs(self, names: Callable[[], Sequence[str]], options: ConvertOptions) -> None:
        """Trace the model, and describe what it gives; `names` are known once it is traced."""
        traced = self.trace()
        known = [None if t.shape.rank is None else tuple(t.shape.as_list()) for t in traced.outputs]
        dims = follow_dims(self.inputs, known, traced)
        types = ["string" if t.dtype.name == "string" else np.dtype(t.dtype.as_numpy_dtype) for t in traced.outputs]
        outputs = [TensorSpec(n, t, d) for n, t, d in zip(names(), types, dims, strict=True)]
        self.outputs = named(outputs, options.output_names, "--output-names")


@dataclass(kw_only=True)
class TensorFlowModel(TracedModel):
    """A function of flat tensors.

    Attributes:
        function: tensors in the model's own layout, in the order of `inputs` -> output tensors.
        dtypes: the tf.DType that `function` wants for each input.
        trackable: what owns the variables and tables, kept alive with the model.
    """

    function: Callable[..., Sequence[Any]]
    dtypes: tuple[Any, ...]
    trackable: Any = None

    @classmethod
    def prepare(
        cls,
        function: Callable[..., Sequence[Any]],
        inputs: Sequence[tuple[TensorSpec, Any]],
        output_names: Sequence[str],
        form: str,
        options: ConvertOptions,
        *,
        trackable: Any = None,
        notes: Sequence[str] = (),
    ) -> TensorFlowModel:
        """Lay the user's wishes over what the function takes, and trace it.

        Args:
            function: tensors in the order of `inputs` -> tensors in the order of `output_names`.
            inputs: (what it takes, its tf.DType) for each input.
            output_names: one for each tensor that it gives.
            form: what the source is, in words for the report.
            options: the user's wishes.
            trackable: the object that owns its lookup tables, if it may have some.
            notes: what the user should know of the source.

        Raises:
            UsageError: options that do not fit the inputs.
            InputError: the function cannot be called with these shapes.
            UnsupportedError: an input of unknown rank, without --input-shape.
        """
        import tensorflow as tf

        nchw = options.layout == "nchw"
        own = [TensorSpec(s.name, s.dtype, swapped(s.shape, nchw)) for s, _ in inputs]
        specs = described(own, options)
        for spec in specs:
            if spec.shape is None:
                raise UnsupportedError(f"input {spec.name!r} has no known rank. Give --input-shape {spec.name}:...")
        model = cls(
            function=function,
            inputs=specs,
            dtypes=tuple(d for _, d in inputs),
            form=form,
            framework=f"tensorflow {tf.__version__}",
            nchw=nchw,
            trackable=trackable,
            notes=list(notes),
        )
        model.name_outputs(lambda: output_names, options)
        return model

    def call(self, *flat: Any) -> list[Any]:
        """The forward pass in the interface's layout and dtypes; also what is traced."""
        import tensorflow as tf

        arguments = [
            tf.cast(tf.transpose(t, TO_NHWC) if swaps(s.shape, self.nchw) else t, d) if d != tf.string else t
            for t, s, d in zip(flat, self.inputs, self.dtypes, strict=True)
        ]
        # An output that is an input needs a tensor of its own.
        results = [tf.identity(r) for r in self.function(*arguments)]
        return [tf.transpose(r, TO_NCHW) if swaps(r.shape, self.nchw) else r for r in results]

    def trace(self) -> Any:
        """As of the base."""
        import tensorflow as tf

        if self.concrete is None:
            with quiet():
                try:
                    function = tf.function(self.call, input_signature=self.signature(), autograph=False)
                    self.concrete = function.get_concrete_function()
                except Exception as error:
                    raise InputError(f"the TensorFlow function cannot be traced: {reason(error)}") from error
        return self.concrete

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass in TensorFlow.

        Raises:
            InputError: the model does not run on these shapes.
        """
        import tensorflow as tf

        with quiet():
            try:
                results = self.call(*(tf.constant(feeds[s.name]) for s in self.inputs))
                names = [s.name for s in self.outputs]
                return {name: result.numpy() for name, result in zip(names, results, strict=True)}
            except Exception as error:
                raise InputError(f"the TensorFlow model fails to run: {reason(error)}") from error
