"""The recorded proof of a converted file once more: the source and the file on the inputs of when it was written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from onnxtool.conversion.convert import load_source, with_arrays
from onnxtool.conversion.export_attempts import ExportAttempts
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import InputError, UsageError
from onnxtool.model import io
from onnxtool.model.provenance.metadata import read_history
from onnxtool.model.spec import parse_dtype
from onnxtool.options.convert import ConvertOptions
from onnxtool.report.compare import CompareReport

# Options of the record that say how the file was to be written, and those that the caller gives anew.
_OF_WRITING = {"opset", "strict"}
_ANEW = {"factory", "factory_args", "custom_op_libraries", "trust"}


def replay(
    model: str | os.PathLike[str], source: str | os.PathLike[str] | None, options: ConvertOptions | None = None
) -> CompareReport:
    """Run source and file again, with the seed, effort and rule that the file's history records.

    Args:
        model: a file that `convert` wrote, or one made of it since.
        source: what it was converted from; None where a factory makes the whole model.
        options: what a record does not hold: factory, trust, sample, where to import from.

    Returns:
        The comparison; a warning where the inputs differ from the recorded ones.

    Raises:
        UsageError: the file has no record of a proof, or the record needs a factory or a sample that was not given.
        InputError, UnsupportedError, UnsafeError: as for `convert`.
    """
    record = recorded_proof(model)
    verification: Mapping[str, Any] = record["verification"]
    chosen = recorded_options(record, options or ConvertOptions())
    if verification.get("data") == "sample" and chosen.sample is None:
        raise UsageError(f"{model}: the recorded proof ran on a sample. Give it with --sample.")
    opened, adapter, loaded, pace = load_source(source, chosen)
    chosen = with_arrays(chosen, loaded)
    adapter.prepare(opened, chosen, export=True)
    graph = io.load(Path(model))
    tolerance = Tolerance(float(verification["rtol"]), float(verification["atol"]))
    attempts = ExportAttempts(opened, adapter, loaded, chosen, tolerance, (str(opened), str(model)), pace)
    report = attempts.observed(graph, stays=True).compare(graph)
    return replace(report, warnings=(*report.warnings, *_other_inputs(report, verification)))


def recorded_proof(model: str | os.PathLike[str]) -> Mapping[str, Any]:
    """The step of a file's history that has a proof by `convert`.

    Raises:
        UsageError: there is none.
    """
    steps = read_history({entry.key: entry.value for entry in io.read_proto(Path(model)).metadata_props})
    found = [s for s in steps if s.get("command") == "convert" and isinstance(s.get("verification"), Mapping)]
    if not found:
        raise UsageError(f"{model}: its history records no proof by convert, so there is none to run again.")
    record = found[-1]
    if not {"rtol", "atol"} <= set(record["verification"]):
        raise InputError(f"{model}: the record of its proof is damaged.")
    return record


def recorded_options(record: Mapping[str, Any], given: ConvertOptions) -> ConvertOptions:
    """The options of a recorded conversion, with those that are given anew.

    Raises:
        UsageError: the conversion used a factory, and none is given.
    """
    options: Mapping[str, Any] = record.get("options") or {}
    if options.get("factory") and given.factory is None:
        raise UsageError(f"the model was built by {options['factory']}: give it with --factory.")
    seen = (record["verification"].get("beyond") or {}) if isinstance(record["verification"], Mapping) else {}
    settings: dict[str, Any] = {k: seen[k] for k in ("seed", "effort") if k in seen}
    known = {f.name for f in fields(ConvertOptions)} - _OF_WRITING - _ANEW
    for name, value in options.items():
        if name in known:
            settings[name] = _restored(name, value)
    return replace(given, **{k: v for k, v in settings.items() if getattr(given, k) == getattr(ConvertOptions(), k)})


def _restored(name: str, value: Any) -> Any:
    if name == "input_dtypes":
        return {key: parse_dtype(dtype) for key, dtype in value.items()}
    if name == "input_shapes":
        return {key: tuple(dims) for key, dims in value.items()}
    return tuple(value) if isinstance(value, list) else value


def _other_inputs(report: CompareReport, verification: Mapping[str, Any]) -> tuple[str, ...]:
    recorded = [{n: tuple(dims) for n, dims in run.items()} for run in verification.get("runs") or ()]
    now = [dict(run) for run in report.runs]
    if now[: len(recorded)] == recorded:
        return ()
    return ("the inputs have other sizes than those of the recorded proof: another version makes them differently.",)
