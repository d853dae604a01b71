"""Provenance of a converted file: what it was made of, with what, how, and whether it was found equal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.conversion.adapter import SourceModel
from onnxtool.conversion.source import Source
from onnxtool.model.provenance.metadata import add_history, versions
from onnxtool.model.spec import dtype_name
from onnxtool.options.convert import ConvertOptions
from onnxtool.report.compare import CompareReport

# Options that say nothing of the file: where code lies on this machine, how talkative to be.
_LEFT_OUT = {"python_path", "verbose", "sample", "keep_counterexample"}


def record(
    graph: ir.Model,
    source: Source,
    model: SourceModel,
    options: ConvertOptions,
    comparison: CompareReport | None,
    *,
    reproducible: bool = False,
) -> None:
    """Write the provenance into the model's metadata_props, as a step of its history.

    Args:
        graph: changed in place.
        source: what was converted.
        model: as the adapter loaded it.
        options: those that differ from the defaults are recorded.
        comparison: the proof; None when there was none, which is recorded too.
        reproducible: leave out measured values, which differ from machine to machine.
    """
    add_history(
        graph,
        "convert",
        {
            "source": source.path.name if source.path else _bare(options.factory or str(source)),
            "source_sha256": source.sha256(),
            "form": model.form,
            "framework": model.framework,
            "versions": versions("onnx", "onnx-ir", "onnxscript", "onnxruntime", "numpy"),
            "options": _options(options),
            "notes": list(model.notes),
            "verification": _verification(comparison, reproducible),
        },
    )


def _verification(comparison: CompareReport | None, reproducible: bool) -> Any:
    if comparison is None:
        return "none: switched off with --no-verify"
    result: dict[str, Any] = {
        "equal": comparison.ok,
        "rtol": comparison.rtol,
        "atol": comparison.atol,
        "data": "sample" if "sample" in comparison.data else comparison.data,
        "runs": [{name: list(shape) for name, shape in run.items()} for run in comparison.runs],
    }
    if comparison.rule:
        result["rule"] = comparison.rule
    seen = comparison.coverage
    # How many inputs there was time for is a measured value too.
    if seen is not None and not reproducible:
        result["beyond"] = {
            "effort": seen.effort,
            "seed": seen.seed,
            "inputs": dict(seen.inputs),
            "tried": list(seen.tried),
            "refused_by_source": len(seen.refused),
            "unreached": [str(branch) for branch in seen.unreached],
            "branches": seen.parts,
            "complete": seen.complete,
        }
    if not reproducible:
        result["max_abs"] = {o.name: float(f"{o.max_abs:.3g}") for o in comparison.outputs if np.isfinite(o.max_abs)}
    return result


def _options(options: ConvertOptions) -> dict[str, Any]:
    default = ConvertOptions()
    return {
        f.name: _plain(f.name, getattr(options, f.name))
        for f in fields(options)
        if f.name not in _LEFT_OUT and getattr(options, f.name) != getattr(default, f.name)
    }


def _plain(name: str, value: Any) -> Any:
    if name == "factory":
        return _bare(value)
    if name == "custom_op_libraries":
        return [library.name for library in value]
    if isinstance(value, Mapping):
        return {str(k): _plain("", v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain("", v) for v in value]
    if isinstance(value, np.dtype):
        return dtype_name(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


def _bare(factory: str) -> str:
    """A factory without the folders of this machine: "net.py:make"."""
    return factory.replace("\\", "/").rpartition("/")[2]
