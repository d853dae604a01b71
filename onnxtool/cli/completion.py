"""What the shell offers for the value of an option, after the words that stand on the line already.

An option names its function, which imports what it needs when it is asked.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import get_args


def _matching(known: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in known if word.startswith(incomplete)]


def passes(incomplete: str) -> list[str]:
    """Names of the optimizer's passes."""
    from onnxtool.optimization.registry import describe_passes

    return _matching((p.name for p in describe_passes()), incomplete)


def levels(incomplete: str) -> list[str]:
    """Levels of optimization."""
    from onnxtool.options.optimize import Level

    return _matching((level.value for level in Level), incomplete)


def exporters(incomplete: str) -> list[str]:
    """PyTorch's exporters."""
    from onnxtool.options.convert import Exporter

    return _matching(get_args(Exporter), incomplete)


def layouts(incomplete: str) -> list[str]:
    """Layouts of image inputs."""
    from onnxtool.options.convert import Layout

    return _matching(get_args(Layout), incomplete)


def targets(incomplete: str) -> list[str]:
    """Kinds of processors that choices are known for."""
    from onnxtool.options.shared import TARGETS

    return _matching(TARGETS, incomplete)


def quantize_targets(incomplete: str) -> list[str]:
    """What `quantize` knows besides: providers with a form of their own."""
    from onnxtool.quantization.targets import TARGETS

    return _matching(TARGETS, incomplete)


def quantized_operators(incomplete: str) -> list[str]:
    """Operators that quantize can make integer."""
    return _matching(("Conv", "Gemm", "MatMul", "LSTM"), incomplete)


def range_estimators(incomplete: str) -> list[str]:
    """Ways to read a range off observed values, those of other packages too."""
    from onnxtool.quantization.calibration.range_estimators import estimators

    return _matching(estimators(), incomplete)


def metrics(incomplete: str) -> list[str]:
    """Task metrics by name."""
    from onnxtool.quantization.evaluation.metrics import METRICS

    return _matching(METRICS, incomplete)


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
