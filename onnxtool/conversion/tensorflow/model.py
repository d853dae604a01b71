"""A TensorFlow function as a Runner: a SavedModel's signature or a frozen graph."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.conversion.adapter import SourceModel
from onnxtool.conversion.float64_reference import Float64Reference
from onnxtool.conversion.graph_interface import described, named_outputs
from onnxtool.conversion.tensorflow.environment import quiet, reason
from onnxtool.errors import InputError, UnsupportedError
from onnxtool.model.domains import Domain
from onnxtool.model.spec import Dim, TensorSpec
from onnxtool.options.convert import ConvertOptions

if TYPE_CHECKING:
    import onnx_ir as ir

# Distinct sizes for dynamic dims, to see which output dim follows which input dim. Multiples of 32, for strides.
_PROBE_SIZES = (32, 64, 96, 128, 160, 192)


def follow_dims(
    inputs: Sequence[TensorSpec], shapes: Sequence[tuple[int | None, ...] | None], call: Callable[..., Sequence[Any]]
) -> list[tuple[Dim, ...] | None]:
    """Name the unknown dims of the outputs after the input dims that they follow.

    The first is the batch. For others the model runs once with a distinct size for each dynamic input dim; a dim that
    follows none stays unnamed (None).

    Args:
        inputs: what the model takes.
        shapes: what TensorFlow knows of the outputs' shapes.
        call: tensors in the order of `inputs` -> output tensors.
    """
    first = inputs[0].shape if inputs else None
    batch = first[0] if first and isinstance(first[0], str) else None
    observed: list[tuple[int, ...]] = []
    by_size: dict[int, str] = {}
    if any(d is None for s in shapes for d in (s or ())[1:]):
        words = dict.fromkeys(d for s in inputs for d in s.dynamic_dims if d != batch)
        sizes = dict(zip(words, _PROBE_SIZES, strict=False))
        by_size = {size: word for word, size in sizes.items()}
        observed = _observe(inputs, sizes | ({batch: 3} if batch else {}), call)
    if [len(s) for s in observed] != [-1 if s is None else len(s) for s in shapes]:
        observed = [(0,) * len(s or ()) for s in shapes]
    return [
        None
        if shape is None
        else tuple(
            dim if dim is not None else batch if axis == 0 else by_size.get(seen[axis])
            for axis, dim in enumerate(shape)
        )
        for shape, seen in zip(shapes, observed, strict=True)
    ]


def _observe(
    inputs: Sequence[TensorSpec], sizes: Mapping[str, int], call: Callable[..., Sequence[Any]]
) -> list[tuple[int, ...]]:
    import tensorflow as tf

    if any(isinstance(s.dtype, str) or s.shape is None for s in inputs):
        return []
    feeds = [np.zeros([_size(d, sizes) for d in s.shape or ()], s.dtype) for s in inputs]
    with quiet():
        try:
            return [tuple(t.shape) for t in call(*(tf.constant(f) for f in feeds))]
        except Exception:  # sizes that do not go together: equal lengths wanted, a fixed patch grid
            return []


def _size(dim: Dim, sizes: Mapping[str, int]) -> int:
    return dim if isinstance(dim, int) else sizes.get(dim or "", 1)


def swaps(shape: Any, nchw: bool) -> bool:
    """Whether a tensor of this shape is transposed for `--layout nchw`."""
    return nchw and shape is not None and len(shape) == 4


def swapped(shape: tuple[Dim, ...] | None, nchw: bool) -> tuple[Dim, ...] | None:
    """A channels-last shape as the interface shows it."""
    return tuple(shape[axis] for axis in (0, 3, 1, 2)) if shape is not None and swaps(shape, nchw) else shape


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
    def trace_at(self, signature: Sequence[Any]) -> Any:
        """The forward pass as a concrete TensorFlow function of inputs with these specs.

        Raises:
            InputError: the model cannot be called with inputs of these shapes.
        """

    def trace(self) -> Any:
        """The forward pass with the inputs' dynamic dims; traced once.

        Raises:
            InputError: as of `trace_at`.
        """
        if self.concrete is None:
            self.concrete = self.trace_at(self.signature())
        return self.concrete

    def operator_trace(self, feeds: Mapping[str, np.ndarray]) -> ir.Model:
        """The operations that the model's own code makes of inputs of these shapes.

        Raises:
            UnsupportedError: the data decides a loop or a branch, or an operation has no exact form.
        """
        import tensorflow as tf

        from onnxtool.conversion.tensorflow.operator_trace import operator_trace

        arrays = [np.asarray(feeds[s.name]) for s in self.inputs]
        specs = [tf.TensorSpec(a.shape, tf.as_dtype(s.dtype)) for a, s in zip(arrays, self.inputs, strict=True)]
        return operator_trace(self.trace_at(specs), arrays, self.inputs, self.outputs)

    def rerounded(self) -> Float64Reference:
        """The same function with other roundings: in float64."""
        from onnxtool.conversion.tensorflow.float64_reference import in_float64

        shapes = {s.name: [_size(d, {}) for d in s.shape or ()] for s in self.inputs}
        sample = {s.name: np.zeros(shapes[s.name], s.dtype) for s in self.inputs if not isinstance(s.dtype, str)}
        return in_float64(self, self.trace(), sample)

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
        self.outputs = named_outputs(outputs, self.inputs, options, self.notes)


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

    def trace_at(self, signature: Sequence[Any]) -> Any:
        """As of the base."""
        import tensorflow as tf

        with quiet():
            try:
                return tf.function(self.call, input_signature=signature, autograph=False).get_concrete_function()
            except Exception as error:
                raise InputError(f"the TensorFlow function cannot be traced: {reason(error)}") from error

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
                return {name: _array(result) for name, result in zip(names, results, strict=True)}
            except Exception as error:
                raise InputError(f"the TensorFlow model fails to run: {reason(error)}") from error


def _array(result: Any) -> np.ndarray:
    """Of a tensor; its texts, which TensorFlow has as bytes, as they are read."""
    array: np.ndarray = np.asarray(result.numpy())
    if array.dtype.kind not in "OS":
        return array
    texts = [text.decode(errors="surrogateescape") for text in array.reshape(-1).tolist()]
    return np.array(texts, object).reshape(array.shape)
