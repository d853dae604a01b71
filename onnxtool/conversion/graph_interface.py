"""The outside of an exported graph: input and output names and dynamic dims, as the source model has them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.model.spec import TensorSpec, apply_input_shapes
from onnxtool.options.convert import ConvertOptions


def described(specs: Sequence[TensorSpec], options: ConvertOptions) -> tuple[TensorSpec, ...]:
    """What the user said of the inputs laid over what the adapter knows of them: shapes, dtypes, names.

    `--input-shape`, `--input-dtype` and `--sample` go by the model's own names or by those of `--input-names`.

    Raises:
        UsageError: an unknown input, another rank, or another number of names.
    """
    renamed = named(specs, options.input_names, "--input-names")
    own = {new.name: old.name for new, old in zip(renamed, specs, strict=True)}
    shapes = {own.get(n, n) or None: dims for n, dims in options.input_shapes.items()}
    shaped = apply_input_shapes(specs, shapes)
    dtypes = {own.get(n, n): dtype for n, dtype in options.input_dtypes.items()}
    unknown = [n for n in dtypes if n and n not in {s.name for s in specs}]
    if unknown:
        raise UsageError(f"--input-dtype: no input {unknown[0]!r}; the model has {', '.join(s.name for s in specs)}.")
    if "" in dtypes and len(specs) != 1:
        raise UsageError("--input-dtype needs a name (NAME:int64): the model has several inputs.")
    typed = [replace(s, dtype=dtypes.get(s.name, dtypes.get("", s.dtype))) for s in shaped]
    return named(typed, options.input_names, "--input-names")


def described_rows(specs: Sequence[TensorSpec], options: ConvertOptions) -> tuple[TensorSpec, ...]:
    """`described`, of inputs that are rows whose width was set when the model was fitted.

    Raises:
        UsageError: as of `described`, another width, or another number of rows for some of the inputs.
    """
    found = described(specs, options)
    rows = {s.shape[0] for s in found if s.shape}
    if len(rows) > 1:
        raise UsageError(
            f"--input-shape: the inputs are columns of one table, of {' and '.join(sorted(map(str, rows)))} rows: "
            "give all of them the same."
        )
    for own, given in zip(specs, found, strict=True):
        if own.shape is not None and given.shape is not None and given.shape[1:] != own.shape[1:]:
            width = ", ".join(map(str, own.shape[1:]))
            columns = "1 column" if width == "1" else f"{width} columns"
            raise UsageError(
                f"--input-shape {given.name}: the model was fitted on {columns}, and takes "
                f"{given.name}:batch,{width} alone."
            )
    return found


def named(specs: Sequence[TensorSpec], names: Sequence[str], option: str) -> tuple[TensorSpec, ...]:
    """`specs` with other names, in order; () keeps theirs.

    Raises:
        UsageError: not as many names as tensors, or a name twice.
    """
    if not names:
        return tuple(specs)
    if len(names) != len(specs):
        have = ", ".join(s.name for s in specs)
        raise UsageError(f"{option} gives {len(names)} names; the model has {len(specs)}: {have}.")
    if len(set(names)) != len(names):
        raise UsageError(f"{option} gives a name twice.")
    return tuple(replace(s, name=n) for s, n in zip(specs, names, strict=True))


def named_outputs(
    specs: Sequence[TensorSpec], inputs: Sequence[TensorSpec], options: ConvertOptions, notes: list[str]
) -> tuple[TensorSpec, ...]:
    """`specs` with the names that the user gives them, or their own but for those of inputs, which is said in `notes`.

    In a graph there is one value of each name.
    """
    taken = {s.name for s in inputs} if not options.output_names else set()
    own = [replace(s, name=f"{s.name}_output") if s.name in taken else s for s in specs]
    for before, spec in zip(specs, own, strict=True):
        if spec.name != before.name:
            notes.append(f"output {before.name!r} is called {spec.name!r} in the file, since an input has its name")
    return named(own, options.output_names, "--output-names")


def align(model: ir.Model, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
    """Give graph inputs and outputs the names and dims of the source model, in place.

    They are matched by name when the names are the same set, otherwise by position.

    Raises:
        UnsupportedError: the exporter left another number of inputs or outputs.
    """
    graph = model.graph
    _separate_outputs(graph)
    for values, specs, what in ((graph.inputs, inputs, "inputs"), (graph.outputs, outputs, "outputs")):
        if len(values) != len(specs):
            raise UnsupportedError(
                f"the exporter gave {len(values)} {what} ({', '.join(v.name or '?' for v in values)}), "
                f"the model has {len(specs)} ({', '.join(s.name for s in specs)})."
            )
        by_name = {v.name: v for v in values}
        ordered = [by_name[s.name] for s in specs] if {s.name for s in specs} == set(by_name) else list(values)
        values[:] = ordered
    targets = dict(zip(graph.inputs, inputs, strict=True)) | dict(zip(graph.outputs, outputs, strict=True))
    _make_room(graph, targets)
    for value, spec in targets.items():
        value.name = spec.name
        if spec.shape is not None:
            value.shape = ir.Shape(list(spec.shape))


def observe_output_dims(
    model: ir.Model,
    inputs: Sequence[TensorSpec],
    runs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
) -> None:
    """Hold the declared dims of the outputs against the sizes that were seen, in place.

    An exporter may declare a size it traced with as fixed, or give a dim a name of its own making. A dim that
    changed between the runs gets the name of the input dim that changed alike, otherwise a name after the output; a
    nameless dim that never changed becomes fixed.

    Args:
        model: its graph outputs are changed.
        inputs: with their dynamic dims.
        runs: (feeds, outputs) of the source at different sizes.
    """
    if len(runs) < 2:
        return
    seen = {}
    for spec in inputs:
        for axis, dim in enumerate(spec.shape or ()):
            if isinstance(dim, str):
                seen[dim] = tuple(np.shape(feeds[spec.name])[axis] for feeds, _ in runs)
    by_sizes = {sizes: dim for dim, sizes in reversed(seen.items())}
    for value in model.graph.outputs:
        name = value.name or ""
        found = [outputs[name] for _, outputs in runs if name in outputs]
        shapes = [np.shape(array) for array in found if not isinstance(array, list)]
        if value.shape is None or len(shapes) != len(runs) or {len(s) for s in shapes} != {len(value.shape)}:
            continue
        dims: list[int | str | None] = []
        for axis, declared in enumerate(value.shape):
            sizes = tuple(shape[axis] for shape in shapes)
            plain = declared if isinstance(declared, int) else declared.value
            dims.append(_dim_of(plain, sizes, by_sizes, set(seen), f"{name}_dim_{axis}"))
        value.shape = ir.Shape(dims)


def _dim_of(
    declared: int | str | None,
    sizes: tuple[int, ...],
    by_sizes: Mapping[tuple[int, ...], str],
    known: set[str],
    fallback: str,
) -> int | str:
    changed = len(set(sizes)) > 1
    if isinstance(declared, int):
        return by_sizes.get(sizes, fallback) if changed else declared
    words = set(re.findall(r"[A-Za-z_]\w*", declared or "")) - {"Max", "Min", "Mod", "floor", "ceiling"}
    if declared and words <= known:
        return declared  # "batch", "2*batch": the exporter proved it
    if not changed:
        return sizes[0]
    return by_sizes.get(sizes, fallback)


def _separate_outputs(graph: ir.Graph) -> None:
    """An output that is an input, an initializer or another output gets an Identity of its own to carry the name."""
    seen: set[ir.Value] = set()
    for index, value in enumerate(graph.outputs):
        if value.is_graph_input() or value.is_initializer() or value in seen:
            node = ir.node("Identity", [value])
            copy = node.outputs[0]
            copy.name, copy.type, copy.shape = f"{value.name}_output_{index}", value.type, value.shape
            graph.append(node)
            graph.outputs[index] = copy
        seen.add(graph.outputs[index])


def _make_room(graph: ir.Graph, targets: Mapping[ir.Value, TensorSpec]) -> None:
    """Rename inner tensors whose name a graph input or output is about to take."""
    wanted = {spec.name for spec in targets.values()}
    inner = [o for node in graph.all_nodes() for o in node.outputs] + list(graph.initializers.values())
    taken = wanted | {v.name for v in inner}
    for value in inner:
        if value.name in wanted and value not in targets:
            number = 1
            while f"{value.name}_{number}" in taken:
                number += 1
            taken.add(f"{value.name}_{number}")
            value.name = f"{value.name}_{number}"
