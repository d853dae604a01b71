"""What a framework model takes: tensors by name, and how they go into the arguments of its function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxtool.conversion.graph_interface import described
from onnxtool.errors import UsageError
from onnxtool.model.spec import Dim, TensorSpec
from onnxtool.options.convert import ConvertOptions

# Arguments with these names hold token numbers or positions in every common model family.
_INTEGER_NAMES = re.compile(
    r"(^|_)(ids|indices|tokens|positions)$|(^|_)attention_mask$|^(pixel_mask|padding_mask|idx|token_type)$"
)

Call = Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]


def holds_integers(name: str) -> bool:
    """Whether an argument of this name holds token numbers, positions or a mask."""
    return _INTEGER_NAMES.search(name) is not None


@dataclass(frozen=True)
class InputPlan:
    """The inputs of a model and how to call it with them.

    Attributes:
        specs: in the order of the arguments; names and shapes as the ONNX file will have them.
        call: tensors in that order -> (args, kwargs) of the function.
        guessed: names whose dtype nobody said.
    """

    specs: tuple[TensorSpec, ...]
    call: Call
    guessed: frozenset[str] = frozenset()

    def with_dtype(self, names: frozenset[str], dtype: np.dtype) -> InputPlan:
        """The same plan with another dtype for some inputs."""
        specs = tuple(replace(s, dtype=dtype) if s.name in names else s for s in self.specs)
        return replace(self, specs=specs, guessed=self.guessed - names)


@dataclass(frozen=True)
class Dtypes:
    """Of inputs for which the user names none.

    Attributes:
        floating: of numbers.
        integer: of token numbers and positions.
        of_sample: the dtype to compute in, for the dtype of a sample's array.
    """

    floating: np.dtype
    integer: np.dtype
    of_sample: Callable[[np.dtype], np.dtype]


@dataclass(frozen=True)
class Parameter:
    """An argument of the function that runs the model."""

    name: str
    required: bool
    keyword: bool
    variadic: bool
    as_tuple: bool


def signature_parameters(function: Callable[..., Any]) -> list[Parameter]:
    """The arguments of a Python function; **kwargs is left out."""
    return [
        Parameter(
            p.name,
            p.default is p.empty and p.kind is not p.VAR_POSITIONAL,
            p.kind is p.KEYWORD_ONLY,
            p.kind is p.VAR_POSITIONAL,
            "tuple" in str(p.annotation).lower(),
        )
        for p in inspect.signature(function).parameters.values()
        if p.kind is not p.VAR_KEYWORD
    ]


def plan_inputs(
    parameters: Sequence[Parameter], dtypes: Dtypes, options: ConvertOptions, notes: list[str]
) -> InputPlan:
    """Work out the inputs from the arguments of the model's function and from what the user said.

    An argument that is a tuple, list or dict of tensors is spelled by its parts: `--input-shape pair.0:batch,3`,
    `--input-shape batch.image:n,3,8,8`. Optional arguments are fed only when the user names them.

    Raises:
        UsageError: an input without a shape, or a name that the function does not have.
    """
    mentioned = _mentioned(options, parameters)
    leaves = _leaves(parameters, mentioned)
    if not leaves:
        raise UsageError("the model's function takes no input. Name what it takes with --input-shape NAME:DIMS.")
    sample = _sample_by_leaf(leaves, options)
    specs = []
    guessed = set()
    for name in leaves:
        array = sample.get(name)
        if array is not None:
            dtype = dtypes.of_sample(array.dtype)
            if dtype != array.dtype and not {name, ""} & set(options.input_dtypes):
                notes.append(f"{name}: the sample's {array.dtype} taken as {dtype}, as the weights; see --input-dtype")
            specs.append(TensorSpec(name, dtype, array.shape))
            continue
        dtype = dtypes.integer if holds_integers(name) else dtypes.floating
        guessed.add(name)
        specs.append(TensorSpec(name, dtype, None))
    if sample and not options.input_shapes:
        specs = _free_batch(specs, notes)
    final = tuple(_name_dims(spec) for spec in described(specs, options))
    _require_shapes(final)
    said = {*options.input_dtypes} | ({leaves[0]} if "" in options.input_dtypes else set())
    open_names = {new.name for new, old in zip(final, leaves, strict=True) if old in guessed - said}
    open_names -= set(options.input_dtypes)
    return InputPlan(final, _caller(leaves, parameters), frozenset(open_names))


def row_inputs(specs: Sequence[TensorSpec], sample: Mapping[str, np.ndarray]) -> set[str]:
    """The inputs whose rows belong together, so that a sample can be cut to some of them; none where they may not.

    Each begins with the same dynamic dim, which is no other dim too (a square matrix), and others have no dynamic dim
    of their own: of a graph's nodes [n, features] and edges [2, e] neither can be cut alone.
    """
    rows = [s for s in specs if s.shape and not isinstance(s.shape[0], int)]
    first, behind = {(s.shape or ())[0] for s in rows}, {dim for s in specs for dim in (s.shape or ())[1:]}
    shared = {dim for s in rows for dim in s.shape or ()}
    own = {d for s in specs for d in s.shape or () if not isinstance(d, int)} - shared
    together = len(first) == 1 == len({len(sample[s.name]) for s in rows}) and not first & behind
    return {s.name for s in rows} if together and not own else set()


def unique(names: Sequence[str]) -> list[str]:
    """The names, with _1, _2, ... after those that come again."""
    seen: set[str] = set()
    result = []
    for name in names:
        candidate, number = name, 0
        while candidate in seen:
            number += 1
            candidate = f"{name}_{number}"
        seen.add(candidate)
        result.append(candidate)
    return result


def name_dims(
    shapes: Mapping[str, tuple[int | None, ...]], *, channels_first: bool = False
) -> dict[str, tuple[Dim, ...]]:
    """Give unknown dims names: batch; height and width of images; length of sequences.

    A name other than batch gets the input's name in front when several inputs have such a dim.
    """
    several = sum(any(d is None for d in shape[1:]) for shape in shapes.values()) > 1
    result: dict[str, tuple[Dim, ...]] = {}
    for name, shape in shapes.items():
        inner = {axis for axis, dim in enumerate(shape) if dim is None and axis > 0}
        axes = range(2, len(shape)) if channels_first else range(1, len(shape) - 1)
        spatial = dict(zip(reversed(axes), ("width", "height", "depth"), strict=False))
        coloured = channels_first and len(shape) == 4 and shape[1] == 3 and inner
        if len(shape) in (4, 5) and (inner == set(axes) or (coloured and inner <= set(axes))):
            words = {axis: spatial[axis] for axis in inner}
        else:
            words = {axis: "length" if axis == 1 else f"dim_{axis}" for axis in inner}
        prefix = f"{name}_" if several else ""
        result[name] = tuple(
            dim if dim is not None else "batch" if axis == 0 else prefix + words[axis] for axis, dim in enumerate(shape)
        )
    return result


def _mentioned(options: ConvertOptions, parameters: Sequence[Parameter]) -> list[str]:
    """What the user names, but for names of `--input-names` that are no argument's own."""
    names = [*options.input_shapes, *options.input_dtypes, *(options.sample or {})]
    new = set(options.input_names) - {p.name for p in parameters}
    return [n for n in dict.fromkeys(names) if n and n not in new]


def _leaves(parameters: Sequence[Parameter], mentioned: Sequence[str]) -> list[str]:
    """Tensor names in the order of the arguments: "x", or "pair.0" and "pair.1" for the parts of one argument."""
    leaves: list[str] = []
    used: set[str] = set()
    for parameter in parameters:
        parts = [m for m in mentioned if m == parameter.name or m.startswith(parameter.name + ".")]
        if parameter.variadic:  # function(*xs): the inputs are those named that belong to no other argument
            others = {p.name for p in parameters}
            parts = [m for m in mentioned if m.split(".")[0] not in others] + parts
        parts.sort(key=lambda name: tuple(int(p) for p in name.split(".")[1:] if p.isdigit()))
        if parts or not parameter.required:
            leaves += parts
        else:
            leaves.append(parameter.name)
        used.update(parts)
    return leaves


def _sample_by_leaf(leaves: Sequence[str], options: ConvertOptions) -> Mapping[str, np.ndarray]:
    sample = options.sample or {}
    if len(leaves) == 1 and len(sample) == 1:
        return {leaves[0]: next(iter(sample.values()))}
    own = dict(zip(options.input_names, leaves, strict=False))
    return {own.get(name, name): array for name, array in sample.items()}


def _free_batch(specs: Sequence[TensorSpec], notes: list[str]) -> list[TensorSpec]:
    """Make the first dim of the sample dynamic, where all inputs share it."""
    first = {s.shape[0] for s in specs if s.shape}
    if len(first) != 1:
        return list(specs)
    notes.append("the sample's first dim became the dynamic dim batch; --input-shape says otherwise")
    return [replace(s, shape=("batch", *s.shape[1:])) if s.shape else s for s in specs]


def _name_dims(spec: TensorSpec) -> TensorSpec:
    """Give unnamed dynamic dims ("?") names."""
    dims = tuple(f"{spec.name}_dim_{axis}" if dim is None else dim for axis, dim in enumerate(spec.shape or ()))
    return spec if spec.shape is None else replace(spec, shape=dims)


def _require_shapes(specs: Sequence[TensorSpec]) -> None:
    missing = [s.name for s in specs if s.shape is None]
    if missing:
        listed = ", ".join(s.name for s in specs)
        raise UsageError(
            f"the shape of input {missing[0]!r} is not known (inputs: {listed}). Give it with "
            f"--input-shape {missing[0]}:batch,3,224,224 (a word makes a dim dynamic), or real inputs with --sample."
        )


def _caller(leaves: Sequence[str], parameters: Sequence[Parameter]) -> Call:
    by_name = {p.name: p for p in parameters}
    names = list(leaves)

    def call(tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        arguments: dict[str, Any] = {}
        variadic: list[Any] = []
        for name, tensor in zip(names, tensors, strict=True):
            head, _, rest = name.partition(".")
            if head not in by_name or by_name[head].variadic:
                variadic.append(tensor)
            elif rest:
                _place(arguments.setdefault(head, {}), rest.split("."), tensor)
            else:
                arguments[head] = tensor
        args, kwargs = [], {}
        positional = True
        for parameter in parameters:
            if parameter.variadic:
                args += variadic
            elif parameter.name not in arguments:
                positional = False  # from the first one left out, the rest goes by name
            else:
                value = _listed(arguments[parameter.name], parameter.as_tuple)
                if positional and not parameter.keyword:
                    args.append(value)
                else:
                    kwargs[parameter.name] = value
        return tuple(args), kwargs

    return call


def _place(tree: dict[str, Any], path: Sequence[str], tensor: object) -> None:
    for part in path[:-1]:
        tree = tree.setdefault(part, {})
    tree[path[-1]] = tensor


def _listed(value: Any, as_tuple: bool) -> Any:
    """Dicts with keys 0, 1, 2, ... become lists (or tuples), all the way down."""
    if not isinstance(value, dict):
        return value
    inner = {key: _listed(item, as_tuple) for key, item in value.items()}
    if set(inner) != {str(i) for i in range(len(inner))}:
        return inner
    items = [inner[str(i)] for i in range(len(inner))]
    return tuple(items) if as_tuple else items
