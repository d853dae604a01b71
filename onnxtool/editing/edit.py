"""`edit`: operations on a finished model, in the order given, each proven before anything is written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxtool import progress
from onnxtool.editing.context import EditContext
from onnxtool.editing.operation import Operation
from onnxtool.editing.proofs import verify_standard
from onnxtool.editing.registry import describe_operations, parse_operations
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import OnnxToolError, UsageError
from onnxtool.keyword_options import options_as_keywords, with_settings
from onnxtool.model import io
from onnxtool.model.diff import diff
from onnxtool.model.file import ModelFile
from onnxtool.model.ir.queries import input_specs, output_specs, stays_external
from onnxtool.model.provenance.metadata import DIGEST_KEY, HISTORY_KEY, add_history, versions
from onnxtool.options.edit import EditOptions
from onnxtool.report.certificate import Verdict
from onnxtool.report.edit import EditReport, EditStep, OperationListReport, Proof
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT, SessionOptions
from onnxtool.runtime.worker.apart import try_in_child

PathLike = str | os.PathLike[str]
_LARGE_EXTERNAL = 1 << 26  # bytes; weights that lie beside the source stay beside the result


@options_as_keywords(EditOptions)
def edit(
    source: PathLike,
    output: PathLike | None,
    operations: Sequence[Operation | tuple[str, str] | str],
    *,
    options: SessionOptions = EXACT,
    **settings: Any,
) -> EditReport:
    """Apply operations to a model in order, prove each one, and write the result.

    Args:
        source: the .onnx file.
        output: the file to write, replaced as a whole; None with `dry_run`.
        operations: each as "name=text" ("rename-input=x=image"), as (name, text), or as an Operation.
        options: how models are run.
        settings: fields of EditOptions by name:

    Raises:
        UsageError: an operation's text, or a name in it, is wrong.
        UnsupportedError: an operation cannot be done to this model; the message names the node.
        VerdictError: a proof fails. Nothing was written.
        InputError, UnsafeError, ResourceError: as of `io.load` and `io.save`.
    """
    asked = with_settings(EditOptions(), settings, "edit")
    file = ModelFile.of(source)
    if output is None and not asked.dry_run:
        raise UsageError("edit needs -o OUT.onnx (or --dry-run).")
    if output is not None:
        io.check_model_output(Path(output))
    todo = _parsed(operations)
    if not todo:
        raise UsageError("edit needs at least one operation. To see all of them: onnxtool edit --list-operations")
    model = file.graph()
    if asked.verify:
        try_in_child(file.path, options, asked.seed)
    given = asked.reference
    context = EditContext(
        options=options,
        tolerance=Tolerance(asked.rtol, asked.atol),
        seed=asked.seed,
        verify=asked.verify,
        allow_unproven=asked.allow_unproven,
        reference=OnnxRunner.open(given, options) if isinstance(given, (str, os.PathLike)) else given,
        warnings=[*filter(None, [file.age])],
        external=stays_external(model, _LARGE_EXTERNAL),
        pictures=tuple(Path(p) for p in asked.pictures),
    )
    steps = []
    with progress.task("editing", len(todo)) as task:
        for operation in todo:
            model, step = _apply(operation, model, context, file.path)
            steps.append(step)
            task.advance()
    size_before = file.bytes
    _record(model, todo, file)
    changes = None
    if asked.dry_run:
        with tempfile.TemporaryDirectory(prefix="onnxtool-") as folder:
            scratch = Path(folder) / "edited.onnx"
            _save(model, scratch, context)
            kept = (HISTORY_KEY, DIGEST_KEY)  # these change with every run
            changes = tuple(c for c in diff(file, scratch).changes if c.what != "metadata" or c.name not in kept)
            size_after = io.total_bytes(scratch)
    else:
        assert output is not None
        for path, write in context.files:
            write(path)
        _save(model, Path(output), context)
        size_after = io.total_bytes(output)
    return EditReport(
        source=str(file),
        output=None if asked.dry_run else str(output),
        inputs=tuple(s.info() for s in input_specs(model)),
        outputs=tuple(s.info() for s in output_specs(model)),
        steps=tuple(steps),
        bytes_before=size_before,
        bytes_after=size_after,
        changes=changes,
        warnings=tuple(dict.fromkeys(context.warnings)),
        require=asked.require,
        verdict=_verdict([step.proof for step in steps]),
    )


def _verdict(proofs: Sequence[Proof | None]) -> Verdict:
    """That of the weakest proof."""
    if any(p is None or not p.compared for p in proofs):
        return "not tested"
    return "certified" if all(p is not None and p.certified for p in proofs) else "tested"


def list_operations() -> OperationListReport:
    """Every operation, built in or added by another package."""
    return OperationListReport(describe_operations())


def _parsed(operations: Sequence[Operation | tuple[str, str] | str]) -> list[Operation]:
    done: list[Operation] = []
    pending: list[tuple[str, str]] = []
    for item in operations:
        if isinstance(item, Operation):
            done += [*parse_operations(pending), item]
            pending = []
        elif isinstance(item, str):
            name, _, text = item.partition("=")
            pending.append((name, text))
        else:
            pending.append(item)
    return [*done, *parse_operations(pending)]


def _apply(operation: Operation, model: ir.Model, context: EditContext, source: Path) -> tuple[ir.Model, EditStep]:
    before = model.clone()
    context.assumptions.clear()
    option = f"--{operation.name} {operation.text}".strip()
    try:
        after = operation.apply(model, context)
        proof = None
        if context.verify:
            verify_standard(after)
            proof = operation.prove(before, after, context)
    except UsageError:
        raise
    except OnnxToolError as error:
        raise type(error)(f"{source}: {option}: {str(error).removesuffix('.')}. Nothing was written.") from error
    return after, EditStep(operation.name, operation.text, operation.done, proof, tuple(context.assumptions))


def _record(model: ir.Model, todo: Sequence[Operation], file: ModelFile) -> None:
    """Add the step to the model's history, which a user who has cleared the metadata does not want."""
    model.metadata_props.pop(DIGEST_KEY, None)  # of the source
    if any(o.name == "clear-metadata" for o in todo) and HISTORY_KEY not in model.metadata_props:
        return
    told = [f"{o.name}={o.text}" if o.text else o.name for o in todo]
    details = {"source_sha256": file.sha256, "operations": told, "versions": versions("onnx", "onnx-ir")}
    add_history(model, "edit", details)


def _save(model: ir.Model, output: Path, context: EditContext) -> None:
    if context.chunk is not None:
        io.save_chunked(model, output, context.chunk)
    else:
        io.save(model, output, external=context.external)
