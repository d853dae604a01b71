"""Models that are objects, not files: the public functions take both.

The functions behind the commands work on files, because isolation, external data and provenance do. A model that is an
object is written to a temporary file for the call, and where no output path is named the result is read back.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Union

from onnxtool.errors import ResourceError, UsageError
from onnxtool.report.base import Report

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

# What a public function takes for a model.
ModelLike = Union[str, "os.PathLike[str]", "onnx.ModelProto", "ir.Model"]
LABEL = "model in memory"

P = ParamSpec("P")
R = TypeVar("R", bound=Report)


def as_path(model: object) -> Path:
    """The path that was given for a model.

    Raises:
        UsageError: something that is neither a path nor a model.
    """
    if isinstance(model, (str, os.PathLike)):
        return Path(model)
    raise UsageError(f"a model is a path, an onnx.ModelProto or an onnx_ir.Model, not a {type(model).__name__}.")


def takes_models(*names: str, output: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function of paths take `onnx.ModelProto` and `onnx_ir.Model` for some of its arguments.

    Args:
        names: the arguments that are models, or sequences of models.
        output: the argument that names the file to write. Where it is None, the report's `result` is the written model
            as an `onnx_ir.Model`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{function.__name__}(): {error}") from None
            given = bound.arguments
            with ExitStack() as stack:
                folder = _Folder(stack)
                for name in names:
                    if name in given:
                        given[name] = folder.files(given[name])
                wanted = output is not None and given.get(output) is None
                if wanted and output is not None:
                    given[output] = folder.path()
                report = function(*bound.args, **bound.kwargs)
                if wanted and output is not None and report.ok and given[output].exists():
                    report = _with_result(report, _read(given[output]))
                return folder.relabelled(report)

        return call

    return decorate


class _Folder:
    """A temporary folder that is made when the first model needs it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._folder: Path | None = None
        self._files = 0

    def path(self) -> Path:
        """A free path."""
        if self._folder is None:
            self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="onnxtool-")))
        self._files += 1
        return self._folder / f"model{self._files}.onnx"

    def files(self, value: Any) -> Any:
        """Models become paths; paths and all else stay as they are."""
        if isinstance(value, Sequence) and not isinstance(value, str):
            return [self.files(item) for item in value]
        if not is_model(value):
            return value
        from onnxtool.model.io.read import from_proto
        from onnxtool.model.io.write import save

        path = self.path()
        kind = type(value).__module__.partition(".")[0]
        save(value.clone() if kind == "onnx_ir" else from_proto(value), path)
        return path

    def relabelled(self, report: R) -> R:
        """The report without the names of temporary files."""
        if self._folder is None:
            return report
        changed: R = _relabelled(report, str(self._folder))
        return changed


def is_model(value: object) -> bool:
    """True for an `onnx.ModelProto` and an `onnx_ir.Model`; imports neither package."""
    name = type(value).__name__
    package = type(value).__module__.partition(".")[0]
    return (name, package) in (("ModelProto", "onnx"), ("Model", "onnx_ir"))


def _with_result(report: R, model: ir.Model) -> R:
    fields: dict[str, Any] = {"result": model}
    return dataclasses.replace(report, **fields)


def _relabelled(value: Any, folder: str) -> Any:
    if isinstance(value, str):
        return re.sub(re.escape(folder) + r"[^\s:;,'\"]*", LABEL, value)
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(_relabelled(item, folder) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f.name for f in dataclasses.fields(value) if f.init]
        changes = {name: _relabelled(getattr(value, name), folder) for name in fields}
        changes = {name: new for name, new in changes.items() if new is not getattr(value, name)}
        return dataclasses.replace(value, **changes) if changes else value
    return value


def _read(path: Path) -> ir.Model:
    """A model that does not need its file any more."""
    import onnx_ir as ir

    from onnxtool.model.io.read import load

    model = load(path)
    try:
        for graph in model.graphs():
            for value in graph.initializers.values():
                tensor = value.const_value
                if isinstance(tensor, ir.ExternalTensor):
                    value.const_value = ir.Tensor(tensor.numpy().copy(), name=tensor.name)
    except MemoryError as error:
        raise ResourceError("the result does not fit in memory; name an output path.") from error
    return model
