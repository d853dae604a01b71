"""`onnxtool inspect`."""

from __future__ import annotations

from pathlib import Path

from onnxtool.cli.output import Output
from onnxtool.errors import UsageError
from onnxtool.options.inspect import InspectCommand


def command(asked: InspectCommand, out: Output) -> None:
    """Show a model's anatomy: inputs, outputs, operators, parameters, compute."""
    from onnxtool.generation.bundle import is_bundle
    from onnxtool.words import session_options, taken_by

    if is_bundle(asked.model):
        from onnxtool.generation.inspect import inspect_bundle

        out.emit(inspect_bundle(asked.model))
        return
    if asked.placement:
        from onnxtool.runtime.providers.place import place

        options = session_options(asked)
        out.emit(place(asked.model, data=asked.data, options=options, required=asked.require_provider))
        return
    if out.given.keys() & {"provider", "require_provider", "ep_library", "data", "threads", "custom_op_library"}:
        raise UsageError("inspect runs nothing without --placement: give it with --provider, --data and --threads.")
    from onnxtool.model.inspect import inspect
    from onnxtool.runtime.worker.isolation import GRAPH, guarded

    size = asked.model.stat().st_size if asked.model.is_file() else 0
    with guarded("inferring shapes", size, pace=GRAPH):
        report = inspect(asked.model, **taken_by(inspect, asked))
    if asked.sbom is not None:
        _write_sbom(asked.model, asked.sbom)
    out.emit(report)


def _write_sbom(model: Path, path: Path) -> None:
    import json

    from onnxtool.model.io import check_output, write_atomic
    from onnxtool.model.provenance.sbom import sbom

    check_output(path)
    write_atomic(path, (json.dumps(sbom(model), indent=2, ensure_ascii=False) + "\n").encode())
