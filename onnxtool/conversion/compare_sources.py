"""`compare` of Python: models of any framework in memory beside files."""

from __future__ import annotations

from functools import wraps
from typing import Any

from onnxtool.conversion.convert import open_source
from onnxtool.conversion.factory import adapter_for
from onnxtool.equality import compare as files
from onnxtool.model.io.in_memory import is_model
from onnxtool.report.compare import CompareReport
from onnxtool.runtime.runner import Runner


@wraps(files.compare)
def compare(a: Any, b: Any, **settings: Any) -> CompareReport:
    """As of `equality.compare`, whose docstring this one is given."""
    return files.compare(_opened(a), _opened(b), **settings)


def _opened(model: Any) -> Any:
    """An estimator, booster, torch module or Keras model as a Runner; all else as it is."""
    if isinstance(model, (str, Runner)) or hasattr(model, "__fspath__") or is_model(model):
        return model
    return model if adapter_for(model) is None else open_source(model)
