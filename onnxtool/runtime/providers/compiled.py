"""EPContext: a model in the form that a provider has compiled, which loads without compiling again."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxtool.errors import OnnxToolError, UnsupportedError
from onnxtool.model import io
from onnxtool.model.provenance.metadata import COMPILE_STEP, add_history, versions
from onnxtool.report.optimize import CompiledForm
from onnxtool.runtime.providers.resolve import library_of
from onnxtool.runtime.providers.spec import parse_providers
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions, create_session, requested_providers

if TYPE_CHECKING:
    import onnx_ir as ir

# One protobuf message; larger ones would need a file beside the model, whose place the provider decides.
_LARGEST = 1_800_000_000


def write_compiled(model: Path, target: Path, options: SessionOptions) -> CompiledForm:
    """Have the first provider compile a model and keep the result, with what it was made from.

    The file is for this provider, these versions and this kind of device only; `verify` tells when they have changed.

    Args:
        model: an .onnx file.
        target: the file to write.
        options: the provider, with the options that the compiled form has too.

    Raises:
        UnsupportedError: the provider has no compiled form, or the model is too large for one file.
        InputError, UsageError: as `create_session`.

    Source: onnxruntime.ai/docs/execution-providers/EP-Context-Design.html
    """
    io.check_output(target)
    if io.total_bytes(model) > _LARGEST:
        raise UnsupportedError(f"{model}: too large to be compiled into one file.")
    name = requested_providers(options)[0]
    began = time.perf_counter()
    create_session(model, options)
    compiling = time.perf_counter() - began
    with tempfile.TemporaryDirectory(prefix="onnxtool-") as scratch:
        made = Path(scratch) / "compiled.onnx"
        settings = (
            ("ep.context_enable", "1"),
            ("ep.context_file_path", io.native_path(made)),
            ("ep.context_embed_mode", "1"),
        )
        try:
            create_session(model, replace(options, settings=(*options.settings, *settings)))
        except OnnxToolError as error:
            raise UnsupportedError(f"{name} gives no compiled form of {model}: {error}") from error
        if not made.exists():
            raise UnsupportedError(f"{name} has no compiled form: it compiled no part of {model}.")
        compiled = io.load(made)
        nodes = sum(node.op_type == "EPContext" for node in compiled.graph)
        if not nodes:
            raise UnsupportedError(f"{name} has no compiled form: it compiled no part of {model}.")
        _note(compiled, model, name, options)
        size = io.save(compiled, target)
    began = time.perf_counter()
    OnnxRunner.open(target, options)
    loading = time.perf_counter() - began
    return CompiledForm(
        str(target), " ".join(map(str, parse_providers(options.provider))), nodes, size, compiling, loading
    )


def _note(compiled: ir.Model, model: Path, name: str, options: SessionOptions) -> None:
    """Where it came from, and what it fits."""
    source = io.load(model)
    compiled.metadata_props.update(source.metadata_props)
    compiled.metadata_props.pop("onnxtool.digest", None)
    package = library_of(name)[0].replace("_", "-")
    details = {
        "source": model.name,
        "source_sha256": io.sha256(model),
        "provider": " ".join(map(str, parse_providers(options.provider))),
        "versions": versions("onnxruntime", *([package] if package else [])),
    }
    add_history(compiled, COMPILE_STEP, details)
