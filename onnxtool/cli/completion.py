"""What the shell offers for the value of an option, after the words that stand on the line already.

An option names its function or a place of `_PLACES`, which is imported when the shell asks.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import get_args


def _matching(known: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in known if word.startswith(incomplete)]


# Where the values of an option stand, by the name that it is declared with: names, a Literal, an Enum, or a function.
_PLACES = {
    "passes": ("onnxtool.optimization.registry", "describe_passes"),
    "levels": ("onnxtool.options.optimize", "Level"),
    "exporters": ("onnxtool.options.convert", "Exporter"),
    "layouts": ("onnxtool.options.convert", "Layout"),
    "targets": ("onnxtool.options.shared", "TARGETS"),
    "quantize_targets": ("onnxtool.quantization.targets", "TARGETS"),
    "range_estimators": ("onnxtool.quantization.calibration.range_estimators", "estimators"),
    "metrics": ("onnxtool.quantization.evaluation.metrics", "METRICS"),
}


def completions(name: str, incomplete: str) -> list[str]:
    """The values that begin with what is written.

    Args:
        name: a function of this module, or a place.
        incomplete: what is written.
    """
    if name not in _PLACES:
        own: list[str] = globals()[name](incomplete)
        return own
    module, attribute = _PLACES[name]
    found = getattr(import_module(module), attribute)
    known = get_args(found) or (found() if isfunction(found) else found)
    return _matching((getattr(k, "value", getattr(k, "name", k)) for k in known), incomplete)


def quantized_operators(incomplete: str) -> list[str]:
    """Operators that quantize can make integer."""
    return _matching(("Conv", "Gemm", "MatMul", "LSTM"), incomplete)


def providers(incomplete: str) -> list[str]:
    """Execution providers of the installed runtime, in short."""
    import onnxruntime

    names = (n.removesuffix("ExecutionProvider").lower() for n in onnxruntime.get_available_providers())
    return _matching(names, incomplete)


def findings(incomplete: str) -> list[str]:
    """Ids of check's findings and their families; after a comma, the next one."""
    from onnxtool.lint.catalog import RULES
    from onnxtool.lint.rule import FAMILIES

    before, comma, last = incomplete.rpartition(",")
    return [before + comma + word for word in _matching((*RULES, *FAMILIES), last)]


def input_names(incomplete: str) -> list[str]:
    """Inputs of the model on the line, with the colon that a shape or a type follows."""
    return _matching((f"{name}:" for name in _edge("inputs")), incomplete)


def input_files(incomplete: str) -> list[str]:
    """Inputs of the model on the line, with the sign that a file follows."""
    return _matching((f"{name}=" for name in _edge("inputs")), incomplete)


def output_names(incomplete: str) -> list[str]:
    """Outputs of the model on the line, with the colon that a value follows."""
    return _matching((f"{name}:" for name in _edge("outputs")), incomplete)


def node_names(incomplete: str) -> list[str]:
    """Names of the nodes of the model on the line."""
    with suppress(Exception):
        from onnxtool.model.io import read_proto

        return _matching((n.name for n in read_proto(_model()).graph.node if n.name), incomplete)
    return []


def _edge(side: str) -> list[str]:
    """Names of the inputs or outputs; none where there is no model that can be read: a shell shows no errors."""
    with suppress(Exception):
        from onnxtool.model.header import read_header
        from onnxtool.model.io import read_proto

        return [spec.name for spec in getattr(read_header(read_proto(_model())), side)]
    return []


def _model() -> Path:
    """The first .onnx file on the line; the parser gives up at an option whose value is still to come, so that it does
    not tell.
    """
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    with suppress(ValueError):  # a quote that is still open
        return next(path for word in shlex.split(line) if (path := Path(word)).suffix == ".onnx" and path.is_file())
    raise LookupError(line)
