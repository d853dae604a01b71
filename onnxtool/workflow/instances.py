"""From the file to what is built: one instance for each model and each combination of its matrix."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from onnxtool.errors import UsageError
from onnxtool.model.io import check_model_name
from onnxtool.words import texts
from onnxtool.workflow.constraints import Constraints, parse_constraints
from onnxtool.workflow.file import WorkflowFile
from onnxtool.workflow.file_schema import CONSTRAINTS
from onnxtool.workflow.steps import SOURCE_OPTIONS, STEPS, BenchStep, Step

_OUTPUT = "build/{name}.onnx"
_AS_FLOAT = ("float32", "float")


@dataclass(frozen=True)
class Instance:
    """One model that is built.

    Attributes:
        name: the model's, with its place in the matrix: "digits[opset=17]".
        model: the name in the file.
        axes: its place in the matrix.
        source: path or URL; None where a factory makes the whole model, or `upstream` gives it.
        upstream: the instance whose result is the source.
        steps: in order.
        output: where the result goes.
        tags: words to choose it by.
        constraints: what the result has to keep.
        depends: paths and patterns of files that the factory reads.
        runs_on: what a worker has to declare to measure it, or to run it on an execution provider.
    """

    name: str
    model: str
    axes: Mapping[str, Any]
    source: str | None
    upstream: str | None
    steps: tuple[Step, ...]
    output: str
    tags: tuple[str, ...]
    constraints: Constraints
    depends: tuple[str, ...] = ()
    runs_on: tuple[str, ...] = ()


def expand(file: WorkflowFile) -> dict[str, Instance]:
    """Every instance of a file, by name, each after the one it takes its source from.

    Raises:
        UsageError: two models with one output, a source that is missing or goes in a circle, an axis without use.
    """
    found: dict[str, Instance] = {}
    for name, table in file.models.items():
        for axes in _combinations(table.get("matrix", {})):
            instance = _instance(file, name, table, axes)
            found[instance.name] = instance
    _check_outputs(file, found)
    return _ordered(found)


def choose(instances: Mapping[str, Instance], targets: Sequence[str]) -> list[Instance]:
    """The instances that are meant by names, patterns and `tag:WORD`, and those that they need.

    Raises:
        UsageError: a target that is nothing.
    """
    wanted: set[str] = set(instances) if not targets else set()
    for target in targets:
        named = {i.name for i in instances.values() if _matches(i, target)}
        if not named:
            tags = sorted({f"tag:{t}" for i in instances.values() for t in i.tags})
            raise UsageError(f"{target}: no such model; there are {', '.join([*instances, *tags][:12])}.")
        wanted |= named
    pending = list(wanted)
    while pending:
        upstream = instances[pending.pop()].upstream
        if upstream is not None and upstream not in wanted:
            wanted.add(upstream)
            pending.append(upstream)
    return [i for i in instances.values() if i.name in wanted]


def _matches(instance: Instance, target: str) -> bool:
    if target.startswith("tag:"):
        return target[4:] in instance.tags
    return target in (instance.name, instance.model) or fnmatchcase(instance.model, target)


def _combinations(matrix: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*matrix.values()):
        yield dict(zip(matrix, values, strict=True))


def _instance(file: WorkflowFile, name: str, table: Mapping[str, Any], axes: Mapping[str, Any]) -> Instance:
    where = f"{file.path.name}: models.{name}"
    if "source" in table and "from" in table:
        raise UsageError(f"{where}: has a source and from; give one of them.")
    if "source" not in table and "from" not in table and "factory" not in table:
        raise UsageError(f"{where}: has no source (nor factory, nor from).")
    slug = "-".join([name, *map(str, axes.values())]).replace("/", "_")
    values = {**axes, "name": slug, "model": name}
    used: set[str] = set()
    filled = {k: _filled(v, values, used, f"{where}.{k}") for k, v in table.items() if k != "matrix"}
    steps = [_with_axes(s, axes, used) for s in _steps(file, filled, where)]
    for axis in axes:
        if axis not in used:
            raise UsageError(f"{where}.matrix.{axis}: no step has an option {axis}, and no text holds {{{axis}}}.")
    folder = file.settings.get("output")
    output = filled.get("output") or (f"{folder}/{slug}.onnx" if folder else _OUTPUT.format(name=slug))
    given = {k: filled.get(k, file.defaults.get(k)) for k in CONSTRAINTS}
    constraints = parse_constraints(where, given)
    return Instance(
        name=name if not axes else f"{name}[{','.join(f'{k}={v}' for k, v in axes.items())}]",
        model=name,
        axes=dict(axes),
        source=filled.get("source"),
        upstream=filled.get("from"),
        steps=_measured(tuple(_with_constraints(s, constraints) for s in steps if s is not None), constraints),
        output=output,
        tags=texts(filled.get("tags", ())),
        constraints=constraints,
        depends=texts(filled.get("depends", ())),
        runs_on=texts(filled.get("runs-on", file.defaults.get("runs-on", ()))),
    )


def _filled(value: Any, axes: Mapping[str, Any], used: set[str], where: str) -> Any:
    """`value` with {axis} replaced; a text that is one placeholder and nothing else takes the axis' own type."""
    if isinstance(value, Mapping):
        return {k: _filled(v, axes, used, where) for k, v in value.items()}
    if isinstance(value, list):
        return [_filled(v, axes, used, where) for v in value]
    if not isinstance(value, str):
        return value
    for axis, entry in axes.items():
        mark = f"{{{axis}}}"
        if mark in value:
            used.add(axis)
            if value == mark:
                return entry
            value = value.replace(mark, str(entry))
    return value


def _steps(file: WorkflowFile, table: Mapping[str, Any], where: str) -> list[Step]:
    """The steps with their options: of the command's defaults, of the model, of the step itself, the last one wins."""
    listed = table.get("steps") or file.defaults.get("steps") or _usual_steps(table)
    made = []
    for entry in listed:
        command = entry if isinstance(entry, str) else entry["step"]
        own = {} if isinstance(entry, str) else {k: v for k, v in entry.items() if k != "step"}
        options = {**file.defaults.get(command, {}), **table.get(command, {}), **own}
        kind = STEPS[command]
        if kind.runs_framework:
            options = {**{k: v for k, v in table.items() if k in SOURCE_OPTIONS}, **options}
        if kind.searches:
            options = {**_quantize_data(file, table, where), **options}
        elif "custom-op-library" in table and "custom-op-library" in kind.declared():
            options.setdefault("custom-op-library", table["custom-op-library"])
        made.append(_with_data_set(file, kind(options)))
    return made


def _usual_steps(table: Mapping[str, Any]) -> list[str]:
    is_onnx = "from" in table or ("factory" not in table and str(table.get("source", "")).endswith(".onnx"))
    quantized = any(k in table for k in ("calibration", "evaluation", "quantize"))
    return [*([] if is_onnx else ["convert"]), "optimize", *(["quantize"] if quantized else []), "check"]


def _quantize_data(file: WorkflowFile, table: Mapping[str, Any], where: str) -> dict[str, Any]:
    found = {}
    for key, option in (("calibration", "data"), ("evaluation", "eval")):
        if key in table:
            if table[key] not in file.data:
                raise UsageError(
                    f"{where}.{key}: there is no data set {table[key]!r}; write a table [data.{table[key]}]."
                )
            found[option] = table[key]
    return found


def _with_data_set(file: WorkflowFile, step: Step) -> Step:
    """Names of data sets replaced by their paths; what else a set says stands for options that are not given."""
    known, made = step.declared(), dict(step.options)
    for name, value in step.options.items():
        if known[name].role == "data" and value in file.data:
            table = file.data[value]
            made[name] = table["path"]
            extra = ("labels", "metric") if name == "eval" else ("image", "samples")
            for key in extra:
                if key in table and key in known:
                    made.setdefault(key, table[key])
    return replace(step, options=made)


def _with_axes(step: Step, axes: Mapping[str, Any], used: set[str]) -> Step | None:
    """A step with every axis of the matrix that is called like one of its options; None when it is left out."""
    options = dict(step.options)
    for axis, value in axes.items():
        if axis == "precision" and step.searches:
            used.add(axis)
            if value in _AS_FLOAT:
                return None
            options["mode"] = value
        elif axis in step.declared() and step.declared()[axis].role != "operation":
            used.add(axis)
            options[axis] = value
    return replace(step, options=options)


def _with_constraints(step: Step, constraints: Constraints) -> Step:
    if not step.searches or constraints.max_drop is None:
        return step
    return replace(step, options={"max-drop": constraints.max_drop, **step.options})


def _measured(steps: tuple[Step, ...], constraints: Constraints) -> tuple[Step, ...]:
    """Limits of latency and memory are held by what `bench` measures of the result, on one thread unless it says so."""
    if not (constraints.any_latency or constraints.max_memory is not None) or any(
        isinstance(s, BenchStep) for s in steps
    ):
        return steps
    return (*steps, BenchStep({"threads": "1"}))


def _check_outputs(file: WorkflowFile, instances: Mapping[str, Instance]) -> None:
    seen: dict[str, str] = {}
    for instance in instances.values():
        try:
            check_model_name(instance.output)
        except UsageError as error:
            raise UsageError(f"{file.path.name}: models.{instance.model}.output: {error}") from error
        place = instance.output if "://" in instance.output else str((file.root / instance.output).resolve())
        if place in seen:
            raise UsageError(
                f"{file.path.name}: {seen[place]} and {instance.name} have one output, {Path(instance.output).name}; "
                "put {name} or an axis of the matrix into it."
            )
        seen[place] = instance.name
        for step in instance.steps:
            folder = str(step.options.get("output", "")) if step.folder else ""
            if folder:
                other = seen.setdefault(str((file.root / folder).resolve()), f"a package of {instance.name}")
                if other != f"a package of {instance.name}":
                    raise UsageError(f"{file.path.name}: {other} and {instance.name} have one output, {folder}.")
        _refuse_overwriting(file, instance, instances.values())


def _refuse_overwriting(file: WorkflowFile, instance: Instance, instances: Iterable[Instance]) -> None:
    """An output that is a source or a data set: publishing it would destroy the user's file."""
    where = f"{file.path.name}: models.{instance.model}.output: {instance.output}"
    for other in instances:
        if other.source is not None and _is_same(file.root, instance.output, other.source):
            chain = f" To build on its result, write from = '{instance.model}' there." if other is not instance else ""
            raise UsageError(
                f"{where} is the same file as the source of {other.name}, which it would overwrite; give it another "
                f"name.{chain}"
            )
    for title, table in file.data.items():
        if _is_same(file.root, instance.output, str(table["path"])):
            raise UsageError(f"{where} is the same file as the data set {title}; give it another name.")


def _is_same(root: Path, output: str, other: str) -> bool:
    """Whether two paths or URLs are one file, also by way of a link."""
    if "://" in output or "://" in other:
        return output == other
    try:
        return (root / output).samefile(root / other)
    except OSError:
        return (root / output).resolve() == (root / other).resolve()  # one of them is not there yet


def _ordered(instances: Mapping[str, Instance]) -> dict[str, Instance]:
    done: dict[str, Instance] = {}

    def visit(instance: Instance, above: tuple[str, ...]) -> None:
        if instance.name in done:
            return
        if instance.name in above:
            chain = " -> ".join((*above[above.index(instance.name) :], instance.name))
            raise UsageError(f"models.{instance.model}.from: goes in a circle: {chain}.")
        if instance.upstream is not None:
            if instance.upstream not in instances:
                raise UsageError(f"models.{instance.model}.from: there is no model {instance.upstream!r}.")
            visit(instances[instance.upstream], (*above, instance.name))
        done[instance.name] = instance

    for instance in instances.values():
        visit(instance, ())
    return done
