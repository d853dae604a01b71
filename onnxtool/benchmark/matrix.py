"""One model in several settings: providers, threads and session settings in one alternation, each found equal."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnxruntime

from onnxtool import progress
from onnxtool.benchmark.bench import MARGIN, bench_feeds, judge, session_call, timed_blocks
from onnxtool.benchmark.session_code import CHANGES, SAVED, changed, code_of, combined, settings_of
from onnxtool.equality.provider_proof import prove_on_provider
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import InputError, OnnxToolError, UsageError
from onnxtool.model import io
from onnxtool.model.file import ModelFile
from onnxtool.model.io.in_memory import ModelLike, takes_models
from onnxtool.report.compare import ProviderProof
from onnxtool.report.measurement.bench import BenchMatrixReport, BestSetting, LoadCost, MeasuredSetting
from onnxtool.runtime import cpu
from onnxtool.runtime.data.read_feeds import read_feeds
from onnxtool.runtime.feeds import Feeds, feeds_bytes
from onnxtool.runtime.providers.spec import parse_providers, short_name
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import DEFAULT, SessionOptions, create_session, resolved_providers
from onnxtool.runtime.timing.load_cost import load_cost
from onnxtool.runtime.timing.timing import Ratio, Timing, block_ratio
from onnxtool.runtime.worker.isolation import ResourceAllowance, crashed_while, guarded

# A provider that takes longer than this to load and run a few times, in a process of its own, is taken for hung.
LIMIT = 120.0
# The proof of one setting opens several sessions, and each provider compiles in its own time.
_ALLOWANCE = ResourceAllowance(scale=10.0)
# So many of the fastest are measured again.
_AGAIN = 3
_LONGER = 2.0  # times the budget, for what decides
_LARGEST_SAVED = 1_800_000_000


@dataclass
class _Setting:
    """One row in the making."""

    options: SessionOptions
    changes: tuple[str, ...] = ()
    path: Path = Path()
    load: LoadCost | None = None
    proof: ProviderProof | None = None
    failure: str = ""
    timings: tuple[Timing, ...] = field(default=(), repr=False)
    ratio: Ratio | None = None

    @property
    def name(self) -> str:
        threads = self.options.threads
        words = "all cores" if threads is None else f"{threads} thread{'s' if threads > 1 else ''}"
        return ", ".join([_provider(self.options), words, *self.changes])

    @property
    def equal(self) -> bool:
        return self.proof is not None and self.proof.ok


def _provider(options: SessionOptions) -> str:
    return " ".join(map(str, parse_providers(options.provider)))


@takes_models("model")
def bench_matrix(
    model: ModelLike,
    providers: Sequence[str],
    *,
    data: str | os.PathLike[str] | Feeds | None = None,
    batch: int | None = None,
    threads: Sequence[int] = (),
    tune: bool = False,
    budget: float = 2.0,
    seed: int = 0,
    options: SessionOptions = DEFAULT,
    tolerance: Tolerance = Tolerance(),  # noqa: B008  (frozen)
    show_code: bool = False,
) -> BenchMatrixReport:
    """Measure one model on several providers, with several numbers of threads, and choose.

    Each setting first loads and runs in a process of its own, so that one that crashes or hangs costs one line. Its
    outputs are held against the CPU without the runtime's optimizations. What is left is timed in one alternation; the
    fastest that are equal are timed once more against the CPU's default, and the choice is never slower than that.

    Args:
        model: an .onnx file, or a model in memory.
        providers: each is one candidate, as `parse_provider` reads it; the CPU's default is always measured.
        data: inputs, as for `bench`.
        batch: size of the inputs' first dim where it is dynamic; 1 unless given.
        threads: numbers of intra-op threads to try; what the runtime chooses (all cores) unless given.
        tune: also try session settings on the CPU: spinning, arena, memory pattern, execution mode, graph level,
            prepacking, and the graph that the runtime saves.
        budget: seconds of measuring for each setting.
        seed: of random inputs.
        options: libraries of plugins and of custom operators.
        tolerance: for floats (docs/equality.md).
        show_code: have the terminal show the winner's code.

    Raises:
        InputError: the model or the data cannot be used on the CPU.
        UsageError: a provider is not there.
    """
    file = ModelFile.of(model)
    file.verify()
    path = file.path
    for text in providers:
        resolved_providers(replace(options, provider=text))  # one that is not there is no result
    default = replace(options, provider="cpu", threads=None)
    with tempfile.TemporaryDirectory(prefix="onnxtool-") as scratch:
        settings = _settings(path, providers, threads, tune, options, default, Path(scratch))
        feeds, origin = _inputs(path, data, batch, seed, default)
        with progress.task("measuring", len(settings) + 2) as task:
            for setting in settings:
                _try(setting, path, feeds, tolerance)
                task.advance()
            _refuse_failed(settings[0])
            running = [s for s in settings if not s.failure]
            _time(running, feeds, budget)
            task.advance()
            best, ratio = _choose(running, feeds, budget)
            task.advance()
    return BenchMatrixReport(
        model=str(path),
        rows=tuple(_row(s) for s in settings),
        best=_best(best, ratio, path),
        batch=next((a.shape[0] for a in feeds.values() if getattr(a, "ndim", 0)), 1),
        data=origin,
        cpu=cpu.model_name(),
        cores=cpu.usable_cores(),
        runtime=f"onnxruntime {onnxruntime.__version__}",
        warnings=tuple(_warnings(settings)),
        show_code=show_code,
    )


def _settings(
    path: Path,
    providers: Sequence[str],
    threads: Sequence[int],
    tune: bool,
    options: SessionOptions,
    default: SessionOptions,
    scratch: Path,
) -> list[_Setting]:
    """The CPU's default first, then each provider with each number of threads, then single changes of the default."""
    found = [_Setting(default, path=path)]
    for text in providers:
        for count in threads or (None,):
            own = replace(options, provider=text, threads=count)
            if not (_provider(own) == "cpu" and count is None):
                found.append(_Setting(own, path=path))
    if tune:
        found += [_Setting(change(default), (name,), path) for name, change in CHANGES.items()]
        saved = _saved(path, default, scratch)
        if saved is not None:
            found.append(_Setting(changed(default, (SAVED,)), (SAVED,), saved))
    return found


def _saved(path: Path, default: SessionOptions, scratch: Path) -> Path | None:
    """The graph that the runtime makes of the model at its highest level, for this processor."""
    if io.total_bytes(path) > _LARGEST_SAVED:
        return None
    target = scratch / "saved.onnx"
    try:
        create_session(path, replace(default, optimized_path=target))
    except OnnxToolError:
        return None
    return target if target.exists() else None


def _inputs(
    path: Path, data: str | os.PathLike[str] | Feeds | None, batch: int | None, seed: int, options: SessionOptions
) -> tuple[Feeds, str]:
    runner = OnnxRunner.open(path, options)
    if data is None:
        return bench_feeds(path, runner, None, batch, seed), f"random, seed {seed}"
    given = read_feeds(data, runner.inputs)
    return bench_feeds(path, runner, given.joined(), batch, seed), given.origin


def _try(setting: _Setting, path: Path, feeds: Feeds, tolerance: Tolerance) -> None:
    """Load and run it in a process of its own; then hold its outputs against the CPU.

    One that crashes only here takes the command with it, which is started once more and leaves it out.
    """
    if crashed_while(_measuring(setting)):
        setting.failure = "it ran, and crashed when it was run again"
        return
    try:
        setting.load = load_cost(setting.path, feeds, setting.options, limit=LIMIT)
        with guarded(_measuring(setting), io.total_bytes(path), feeds_bytes(feeds), _ALLOWANCE, retry=True):
            setting.proof = prove_on_provider(
                path, setting.options, feeds=[feeds], tolerance=tolerance, file=setting.path
            )
        setting.failure = setting.proof.failure
    except UsageError:
        raise
    except OnnxToolError as error:
        setting.failure = str(error)


def _measuring(setting: _Setting) -> str:
    return f"measuring {setting.name}"


def _refuse_failed(default: _Setting) -> None:
    if default.failure:
        raise InputError(f"{default.path}: does not run on the CPU: {default.failure}")


def _open_all(settings: Sequence[_Setting], feeds: Feeds) -> list[Callable[[], object]]:
    calls = []
    for setting in settings:
        # Threads that keep spinning after their session's run would slow the next one's.
        with guarded(_measuring(setting), io.total_bytes(setting.path), feeds_bytes(feeds), _ALLOWANCE, retry=True):
            runner = OnnxRunner.open(setting.path, replace(setting.options, spinning="runs"))
            runner.run(feeds)
        calls.append(session_call(runner, feeds))
    return calls


def _time(settings: Sequence[_Setting], feeds: Feeds, budget: float) -> None:
    whole = budget * len(settings)
    found = timed_blocks(lambda: _open_all(settings, feeds), whole, alone=len(settings) == 1)
    for setting, timings in zip(settings, found, strict=True):
        setting.timings = timings
        setting.ratio = block_ratio(timings, found[0]) if setting is not settings[0] else None


def _choose(settings: Sequence[_Setting], feeds: Feeds, budget: float) -> tuple[_Setting, Ratio]:
    """The fastest that is equal and surely faster than the default, measured once more beside it, and longer.

    What the first measurement leaves unclear gets this second chance too: a busy machine makes wide intervals.
    """
    default, even = settings[0], Ratio(1.0, 1.0, 1.0)
    faster = sorted(
        (s for s in settings[1:] if s.equal and s.ratio is not None and s.ratio.value < 1 - MARGIN),
        key=lambda s: s.ratio.value if s.ratio is not None else 1.0,
    )
    changes = combined([s.changes[0] for s in faster if len(s.changes) == 1])
    if len(changes) > 1:
        parts = [s for s in faster if s.changes and s.changes[0] in changes]
        path = next((s.path for s in parts if SAVED in s.changes), default.path)
        faster.insert(0, _Setting(changed(default.options, changes), changes, path, parts[0].load, parts[0].proof))
    again = [replace(s, timings=(), ratio=None) for s in (default, *faster[:_AGAIN])]
    if len(again) == 1:
        return default, even
    _time(again, feeds, _LONGER * budget)
    sure = [s for s in again[1:] if s.ratio is not None and s.ratio.high < 1]
    best = min(sure, key=lambda s: s.ratio.value if s.ratio is not None else 1.0, default=None)
    return (default, even) if best is None or best.ratio is None else (best, best.ratio)


def _row(setting: _Setting) -> MeasuredSetting:
    samples = tuple(s for t in setting.timings for s in t.samples)
    ratio = setting.ratio
    return MeasuredSetting(
        name=setting.name,
        provider=_provider(setting.options),
        threads=setting.options.threads,
        changes=setting.changes,
        verdict="failed" if setting.failure else "equal" if setting.equal else "differs",
        proof=setting.proof,
        load=setting.load,
        median=Timing(samples).median if samples else None,
        ratio=ratio.value if ratio else None,
        ratio_low=ratio.low if ratio else None,
        ratio_high=ratio.high if ratio else None,
        speed=judge(ratio) if ratio else "",
        failure=setting.failure,
    )


def _best(best: _Setting, ratio: Ratio, path: Path) -> BestSetting:
    settings = settings_of(best.options)
    if SAVED in best.changes:
        settings["model"] = "saved by the runtime: SessionOptions.optimized_model_filepath at ORT_ENABLE_ALL, here"
    return BestSetting(best.name, ratio.value, ratio.low, ratio.high, settings, code_of(best.options, path.name))


def _warnings(settings: Sequence[_Setting]) -> list[str]:
    """One line for each provider with reduced precision, whatever its threads, and for each that failed."""
    lines: dict[str, str] = {}
    if not settings[0].equal:
        lines["default"] = (
            "the CPU's default itself differs from the CPU without the runtime's optimizations on these inputs: no "
            "setting can be told right; give real ones (--data)"
        )
    for setting in settings:
        if setting.proof is not None and setting.proof.reduced:
            lines.setdefault(f"reduced {short_name(setting.proof.provider)}", setting.proof.summary)
        elif setting.failure:
            lines.setdefault(f"failed {_provider(setting.options)}", f"{setting.name}: {setting.failure}")
    return list(lines.values())
