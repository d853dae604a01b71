"""`convert`: a framework model in, a verified ONNX file out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from onnxtool import progress
from onnxtool.conversion.adapter import Adapter, SourceModel
from onnxtool.conversion.export_attempts import SPILL, ExportAttempts, refuse_blamed, release
from onnxtool.conversion.factory import adapter_for, call_factory, choose_adapter
from onnxtool.conversion.graph_interface import align, observe_output_dims
from onnxtool.conversion.provenance import record
from onnxtool.conversion.registry import find_adapter
from onnxtool.conversion.source import Source
from onnxtool.conversion.supervised_model import declared_bytes, supervised
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import InputError, UsageError
from onnxtool.keyword_options import options_as_keywords, with_settings
from onnxtool.model import io
from onnxtool.model.io.in_memory import as_path, takes_models
from onnxtool.model.ir.queries import all_nodes, input_specs, output_specs
from onnxtool.model.spec import parse_dtype, parse_input_shapes, write_columns
from onnxtool.options.convert import ConvertOptions
from onnxtool.report.convert import ConvertReport
from onnxtool.runtime.data.frames import as_table
from onnxtool.runtime.data.open_data import open_sample
from onnxtool.runtime.data.table import DataTable
from onnxtool.runtime.worker.isolation import FRAMEWORK, OWN, ResourceAllowance, guarded

# For adapters of other packages, which may import their framework while they load a file.
_IMPORTING = replace(FRAMEWORK, scale=6.0)
_OF_OBJECTS = ("sklearn", "boosting", "jax")  # adapters that take what a factory gives as they take an object in memory


@options_as_keywords(ConvertOptions)
@takes_models(output="output")
def convert(
    source: Any,
    output: str | os.PathLike[str] | None = None,
    *,
    options: ConvertOptions = ConvertOptions(),  # noqa: B008  (frozen)
    rtol: float = 1e-3,
    atol: float = 1e-5,
    verify_result: bool = True,
    allow_unproven: bool = False,
    keep_failed: str | os.PathLike[str] | None = None,
    reproducible: bool = False,
    **settings: Any,
) -> ConvertReport:
    """Convert a model, run it and the original on the same inputs, and write the file only if they agree.

    Args:
        source: file or folder; a torch module or exported program, a Keras model, a fitted estimator or a booster in
            memory; None when `factory` makes the whole model.
        output: the .onnx file to write. None: the report carries the result as a model.
        options: all that an adapter may want to know.
        rtol: relative tolerance for floats (wider where the model computes in float16 or bfloat16).
        atol: absolute tolerance for floats.
        verify_result: False skips the comparison; the file's metadata says so.
        allow_unproven: write the file although no run told anything of an output of numbers; `ok` stays False.
        keep_failed: where to keep a file that failed the comparison.
        reproducible: leave measured values out of the file's metadata, so that every run gives the same bytes.
        settings: fields of ConvertOptions by name, as in `convert(a, b, factory="net.py:make", trust=True)`; `sample`
            may be the path of an .npz file or of a table, or a data frame:

    Returns:
        A report; with `ok` False (outputs differ) nothing was written to `output`.

    Raises:
        InputError, UnsupportedError, UnsafeError, UsageError: as the adapter finds.
    """
    output = as_path(output)
    io.check_model_output(output)
    options = _with_settings(options, settings)
    if options.max_flips < 0:
        raise UsageError(f"--max-flips {options.max_flips}: a number of rows, 0 or more.")
    if options.max_flips and (options.sample is None or not verify_result):
        raise UsageError("--max-flips counts rows of --sample that change: give --sample, and no --no-verify.")
    clock = progress.StageClock()
    with progress.task("converting", 4) as task:
        opened, adapter, model = _open(source, options)
        options = with_arrays(options, model)
        clock.stop("load")
        task.advance()
        # Frameworks run the model to export it, with native code that takes its data for sound.
        adapter.prepare(opened, options, export=True)
        pace = _pace(adapter, options, opened)
        with guarded(f"exporting the model with {adapter.name}", opened.size, declared_bytes(model.inputs), pace):
            graph = adapter.export(model, options)
        align(graph, model.inputs, model.outputs)
        write_columns(graph.metadata_props, (*model.inputs, *model.outputs))
        clock.stop("export")
        task.advance()
        comparison = None
        names = (str(opened), str(output))
        attempts = ExportAttempts(opened, adapter, model, options, Tolerance(rtol, atol), names, pace)
        proof = attempts.observed(graph) if verify_result else None
        stays = proof is not None and attempts.stays
        if not stays:
            release(model)
        with io.spilled(graph, output) if io.weight_bytes(graph) > SPILL else nullcontext() as spill:
            if proof is not None:
                graph, comparison, proof = attempts.proven(graph, proof)
                with guarded(f"running the model with {adapter.name}", opened.size, pace=pace):
                    comparison = proof.certified(graph, comparison)
                release(model)
                if comparison.differs and model.dropped:
                    model.notes.append(f"options that the exporter may leave out: {', '.join(model.dropped)}")
                if comparison.differs and model.difference_hint:
                    model.notes.append(model.difference_hint)
                if comparison.ok and comparison.coverage is not None:
                    model.notes.extend(comparison.coverage.notes)
                observe_output_dims(graph, model.inputs, proof.seen)
            clock.stop("verify")
            task.advance()
            record(graph, opened, model, options, comparison, reproducible=reproducible)
            told = allow_unproven or comparison is None or not comparison.is_untold
            rows, accepted = None, told and (comparison is None or comparison.ok)
            if proof is not None and comparison is not None and comparison.differs and options.sample is not None:
                rows = proof.changed_rows(graph)
                # Of inputs beyond the sample nothing was allowed.
                accepted = comparison.coverage is None and rows is not None and rows[0] <= options.max_flips
            size = 0
            target = output if accepted else keep_failed
            if target is not None:
                size = io.save(graph, target, spill=spill)
            if proof is not None and comparison is not None and comparison.differs and not accepted:
                refuse_blamed(model, proof, str(opened))
        clock.stop("save")
        task.advance()
    written = target == output
    return ConvertReport(
        source=str(opened),
        output=str(output),
        form=model.form,
        framework=model.framework,
        source_sha256=opened.sha256(),
        inputs=tuple(s.info() for s in input_specs(graph)),
        outputs=tuple(s.info() for s in output_specs(graph)),
        opset=graph.opset_imports.get("", 0),
        nodes=sum(1 for _ in all_nodes(graph)),
        size_bytes=size if written else 0,
        comparison=comparison,
        notes=tuple(model.notes),
        seconds=clock.seconds,
        written=written,
        kept=None if written or target is None else str(target),
        untested=model.untested if comparison is not None else "",
        changed_rows=rows,
        max_flips=options.max_flips,
        require=options.require,
    )


def open_source(
    source: Any,
    options: ConvertOptions = ConvertOptions(),  # noqa: B008  (frozen)
    **settings: Any,
) -> SourceModel:
    """Load a framework model as a Runner, without converting it.

    Raises:
        InputError, UnsupportedError, UnsafeError, UsageError: as the adapter finds.
    """
    opened, adapter, model, pace = load_source(source, _with_settings(options, settings))
    return supervised(model, f"running the model with {adapter.name}", opened.size, pace)


def load_source(source: Any, options: ConvertOptions) -> tuple[Source, Adapter, SourceModel, ResourceAllowance]:
    """Load a framework model, and say how it came.

    Returns:
        What was opened, the adapter, the model, and what running it may take.

    Raises:
        InputError, UnsupportedError, UnsafeError, UsageError: as the adapter finds.
    """
    opened, adapter, model = _open(source, options)
    return opened, adapter, model, _pace(adapter, options, opened)


def _shapes(given: Sequence[Any]) -> dict[str, tuple[Any, ...]]:
    if not all(isinstance(item, str) and ("," in item or ":" in item) for item in given):
        return {"": tuple(given)}
    return {name or "": dims for name, dims in parse_input_shapes(given).items()}


def _with_settings(options: ConvertOptions, settings: Mapping[str, Any]) -> ConvertOptions:
    """`options` with single fields replaced; the path of a sample is read, dtypes may be words or numpy's, dims alone
    stand for the only input, and shapes may be written as on the command line ("x:batch,8").

    Raises:
        UsageError: no such option, or a shape that cannot be read.
    """
    shapes = settings.get("input_shapes")
    if isinstance(shapes, (str, list, tuple)):
        settings = {**settings, "input_shapes": _shapes([shapes] if isinstance(shapes, str) else shapes)}
    if settings.get("sample") is not None:
        settings = {**settings, "sample": open_sample(settings["sample"])}
    dtypes = settings.get("input_dtypes")
    if dtypes:
        named = {
            name: parse_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype) for name, dtype in dtypes.items()
        }
        settings = {**settings, "input_dtypes": named}
    return with_settings(options, settings, "convert")


def _open(source: Any, options: ConvertOptions) -> tuple[Source, Adapter, SourceModel]:
    if source is None and options.factory is None:
        raise UsageError("give a SOURCE file, or --factory file.py:function that builds the whole model.")
    if source is None or isinstance(source, (str, os.PathLike)):
        opened = Source(source)
    else:
        opened = Source(None, model=source)
        options = replace(options, adapter=options.adapter or _adapter_of(source))
    if opened.path is None and opened.model is None and options.adapter is None:
        with guarded("building the model with the factory", pace=OWN):
            options = choose_adapter(options)
    if opened.path is None and opened.model is None and options.adapter in _OF_OBJECTS:
        with guarded("building the model with the factory", pace=OWN):
            opened = Source(None, model=call_factory(options))
    adapter = find_adapter(opened, options)
    adapter.prepare(opened, options, export=False)
    with guarded(f"loading the model with {adapter.name}", opened.size, pace=_pace(adapter, options, opened)):
        withheld = isinstance(options.sample, DataTable) and not adapter.reads_tables
        known = replace(options, sample=None) if withheld else options
        return opened, adapter, adapter.load(opened, known)


def with_arrays(options: ConvertOptions, model: SourceModel) -> ConvertOptions:
    """`options` with a sample of arrays, by the names of the model's inputs; floats of a table as float64.

    Raises:
        InputError: the table does not fit the model.
    """
    sample = options.sample
    if isinstance(sample, Mapping):
        sample = as_table(sample, model.inputs) or sample
    if isinstance(sample, DataTable):
        double = np.dtype(np.float64)
        wide = [replace(s, dtype=double) if s.dtype == np.float32 else s for s in model.inputs]
        model.notes.extend((*sample.notes, *sample.left_out(wide)))
        try:
            return replace(options, sample=sample.arrays(wide))
        except InputError as error:
            raise InputError(f"{error} {model.advice}".rstrip()) from error
    if sample is not None and len(sample) == len(model.inputs) == 1 and options.input_names:
        return replace(options, sample={model.inputs[0].name: next(iter(sample.values()))})
    return options


def _adapter_of(model: Any) -> str:
    name = adapter_for(model)
    if name is None:
        raise UsageError(
            "convert takes a path, a torch module, a Keras model, a JAX function, an estimator or a booster, not a "
            f"{type(model).__name__}."
        )
    return name


def _pace(adapter: Adapter, options: ConvertOptions, opened: Source) -> ResourceAllowance:
    """What loading and running may take: untrusted files get tight limits, the user's own code does not."""
    if options.factory is not None or options.trust or opened.model is not None:
        return OWN
    return FRAMEWORK if adapter.imports_in_prepare else _IMPORTING
