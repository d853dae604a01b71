"""`onnxtool bench`."""

from __future__ import annotations

from onnxtool.cli.output import Output
from onnxtool.errors import UsageError
from onnxtool.options.bench import BenchCommand
from onnxtool.report.base import Report


def command(asked: BenchCommand, out: Output) -> None:
    """Measure latency, throughput, load time and peak memory of models, side by side.

    Several models take turns in one run; ratios to the first come with 95 % confidence intervals.
    """
    from onnxtool.words import taken_by

    if len(asked.provider) > 1 or asked.session_settings or asked.best:
        out.emit(_settings_of_one(asked))
        return
    from onnxtool.generation.bundle import is_bundle
    from onnxtool.packaging.manifest import is_package
    from onnxtool.runtime.protocol_v2.client import url_of

    first = asked.models[0]
    url = url_of(first)
    if url is not None:
        out.emit(_served(asked, url))
    elif is_package(first):
        from onnxtool.packaging.registry import serve_package

        with serve_package(first, trust=asked.trust) as url:
            out.emit(_served(asked, url))
    elif is_bundle(first):
        from onnxtool.generation.bench import bench_bundles

        out.emit(bench_bundles(asked.models, **taken_by(bench_bundles, asked)))
    else:
        from onnxtool.benchmark.bench import bench

        out.emit(bench(asked.models, **taken_by(bench, asked)))


def _settings_of_one(asked: BenchCommand) -> Report:
    """One model with several providers or settings of its session."""
    from onnxtool.benchmark.matrix import bench_matrix
    from onnxtool.words import session_options, taken_by

    if len(asked.models) > 1:
        raise UsageError("several --provider, --session-settings and --best take one model.")
    profiled = asked.profiled or asked.trace or asked.baseline
    if len(asked.batches) > 1 or profiled or asked.require_provider:
        raise UsageError(
            "several --provider, --session-settings and --best go with one --batch, and without --profile, "
            "--trace, --baseline and --require-provider."
        )
    how = {
        "batch": asked.batches[0] if asked.batches else None,
        "tune": asked.session_settings,
        "options": session_options(asked, provider=()),
        "show_code": asked.best,
    }
    return bench_matrix(asked.models[0], asked.provider or ("cpu",), **taken_by(bench_matrix, asked) | how)


def _served(asked: BenchCommand, url: str) -> Report:
    """A server, and the file that it serves."""
    from onnxtool.benchmark.load_test import bench_endpoint
    from onnxtool.words import session_options, taken_by

    if len(asked.models) > 2:
        raise UsageError("bench URL takes one file beside it: the one that it serves.")
    how = {
        "batch": asked.batches[0] if asked.batches else None,
        "connections": asked.connections or (1, 4),
        "options": session_options(asked, threads=asked.threads[0] if asked.threads else None),
    }
    file = asked.models[1] if len(asked.models) > 1 else None
    return bench_endpoint(url, file, **taken_by(bench_endpoint, asked) | how)
