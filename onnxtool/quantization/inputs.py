"""What a quantization works on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import onnx_ir as ir

from onnxtool.equality.compare_runners import probe_feeds
from onnxtool.errors import OnnxToolError, UsageError
from onnxtool.model import io
from onnxtool.model.domains import input_domains
from onnxtool.model.file import ModelFile
from onnxtool.model.image_options import ImageOptions, parse_options
from onnxtool.model.ir.editing import hold_arrays
from onnxtool.model.ir.queries import input_specs
from onnxtool.options.quantize import QuantizeOptions
from onnxtool.quantization.evaluation.bounds import CONFIDENCE
from onnxtool.quantization.evaluation.output_kind import OutputKind, parse_kinds
from onnxtool.quantization.evaluation.task_metric import LabelledTask, open_task
from onnxtool.quantization.preprocess.constant_fills import loading
from onnxtool.quantization.preprocess.prepare import prepare
from onnxtool.runtime.data.open_data import open_data
from onnxtool.runtime.data.source import DataSource, state_pairs, with_states
from onnxtool.runtime.in_turn import RunnerInTurn, Turn
from onnxtool.runtime.probes import runnable_feeds
from onnxtool.runtime.runner import CastingRunner, OnnxRunner
from onnxtool.runtime.session.session import DEFAULT, SessionOptions

FIDELITY_SAMPLES = 32
ENOUGH = 8  # samples that differ
SPREAD_SAMPLES = 128  # how many are read to see in what they differ
_HELD_OUT = 4  # every fourth sample
_MIN_TO_SPLIT = 8
LARGE = 1_500_000_000
_IN_TURN = 400_000_000  # bytes of weights from which on one session is loaded at a time


class Spread(NamedTuple):
    """How many samples were read until there were enough that differ, and how many of these do."""

    read: int
    different: int


def spread(data: DataSource) -> Spread:
    """Of a source's first samples."""
    found, count = set(), 0
    for count, feeds in enumerate(data.limited(SPREAD_SAMPLES).samples(), 1):  # noqa: B007
        found.add(hash(tuple(value.tobytes() for value in feeds.values())))
        if len(found) >= ENOUGH:
            break
    return Spread(count, len(found))


@dataclass(frozen=True)
class QuantizationInputs:
    """What a quantization works on.

    Attributes:
        source: the float model.
        original: the float model as it came.
        prepared: optimized and named.
        data: calibration samples; None without.
        task: labelled data; None without.
        threads: for timing.
        session: the providers to run candidates on.
        kinds: what outputs are for, where the user says so.
        confidence: of what is said to be lost at most.
        turn: which of the runners is loaded, where the model is too large for two.
    """

    source: ModelFile
    original: ir.Model
    prepared: ir.Model
    data: DataSource | None
    task: LabelledTask | None
    threads: int
    session: SessionOptions = DEFAULT
    kinds: Mapping[str, OutputKind] = field(default_factory=dict)
    confidence: float = CONFIDENCE
    turn: Turn = field(default_factory=Turn)

    @cached_property
    def one_at_a_time(self) -> bool:
        """True when no two sessions should be in memory together."""
        return self.is_large or io.weight_bytes(self.original) > _IN_TURN

    @property
    def is_large(self) -> bool:
        """True when float model and result should not be in memory together."""
        return io.weight_bytes(self.original) > LARGE

    def runner(self, model: ir.Model | os.PathLike[str] | bytes, optimized_path: Path | None = None) -> OnnxRunner:
        """A session as latency is measured with; the runtime's own graph goes to `optimized_path`.

        Large models are loaded in turn: one that is in memory should be on the disk by then.
        """
        if not self.one_at_a_time:
            return self._opened(model, optimized_path)
        paths = [optimized_path]  # where the runtime's graph is written, the first time
        return RunnerInTurn(self.turn, lambda: self._opened(model, paths.pop() if paths else None))

    def _opened(self, model: ir.Model | os.PathLike[str] | bytes, optimized_path: Path | None) -> OnnxRunner:
        with loading(self.prepared):
            options = replace(self.session, threads=self.threads)
            try:
                return CastingRunner.open(model, replace(options, optimized_path=optimized_path))
            except OnnxToolError as error:
                if optimized_path is None or "compiled nodes" not in str(error):
                    raise
                return CastingRunner.open(model, options)

    def probes(self, most: int | None = FIDELITY_SAMPLES) -> DataSource:
        """Samples to judge on: the calibration data, or seeded random inputs."""
        data = self.task.data if self.data is None and self.task is not None else self.data
        return self._random if data is None else data.limited(most)

    @cached_property
    def spread(self) -> Spread:
        """Of the calibration samples, which there have to be."""
        assert self.data is not None
        return spread(self.data)

    @cached_property
    def _random(self) -> DataSource:
        specs = input_specs(self.original)
        domains = input_domains(self.original)
        if self.is_large:
            return open_data(probe_feeds(specs, domains=domains), specs)
        feeds = runnable_feeds(self.runner(self.original), specs, 0, domains, wanted=3)
        return open_data(feeds, specs)

    def split(self, least: int = FIDELITY_SAMPLES) -> tuple[DataSource, DataSource]:
        """Calibration samples, and those to judge on: held-out ones, and up to the `least` number the others behind.

        A range is hardly a thing to fit too closely: to judge on a handful of samples errs more.
        """
        assert self.data is not None
        if self.data.count is not None and self.data.count < _MIN_TO_SPLIT:
            return self.data, self.data
        measured = self.data.subset(lambda i: i % _HELD_OUT != _HELD_OUT - 1)
        held_out = self.data.subset(lambda i: i % _HELD_OUT == _HELD_OUT - 1)
        missing = least - (held_out.count if held_out.count is not None else least)
        return measured, held_out if missing <= 0 else held_out.followed_by(measured.limited(missing))


def open_inputs(
    source: ModelFile, asked: QuantizeOptions, level: str, session: SessionOptions = DEFAULT
) -> QuantizationInputs:
    """Load the model and open the data; all that can be wrong with either is said here.

    Args:
        source: the float model.
        asked: which data, labels, metric, kinds of outputs, states, threads.
        level: of the graph optimization before quantizing.
        session: how models are run.

    Raises:
        InputError: model or data cannot be used.
        UsageError: labels without data or the other way round.
    """
    original = source.graph(in_place=False)
    if io.weight_bytes(original) <= LARGE:
        hold_arrays(original)
    kinds = parse_kinds(asked.output_kinds, [v.name or "" for v in original.graph.outputs])
    specs = input_specs(original)
    images = parse_options(asked.images) if isinstance(asked.images, str) else asked.images
    opened = _open(source, original, asked, images)
    if opened is not None:
        opened.first()
    task = None
    if asked.eval_data is not None:
        column = asked.labels if isinstance(asked.labels, str) else None
        labelled = open_data(asked.eval_data, specs, images=images, label=column)
        task = open_task(asked.eval_data, labelled, asked.labels, asked.metric, asked.confidence)
    elif asked.labels is not None:
        raise UsageError("--labels goes with --eval: the labelled data.")
    prepared = _prepared(source, original, level, asked.mode == "float16")
    timed = replace(session, spinning="runs")
    return QuantizationInputs(source, original, prepared, opened, task, asked.threads, timed, kinds, asked.confidence)


def _open(source: ModelFile, original: ir.Model, asked: QuantizeOptions, images: ImageOptions) -> DataSource | None:
    """The calibration samples; with `steps`, those of a model whose outputs are fed back into its states."""
    specs = input_specs(original)
    if asked.steps is None:
        if asked.states:
            raise UsageError("--state goes with --steps N: how many samples follow one another.")
        return None if asked.data is None else open_data(asked.data, specs, samples=asked.samples, images=images)
    if asked.data is None:
        raise UsageError("--steps goes with --data: the samples that follow one another.")
    runner = OnnxRunner.open(source)
    pairs = state_pairs(asked.states, specs, runner.outputs)
    others = [s for s in specs if s.name not in pairs]
    opened = open_data(asked.data, others, images=images)
    walked = with_states(opened, tuple(specs), pairs, asked.steps, runner.run)
    # The states of a step come of those before it: only the first samples can be taken alone.
    return walked if asked.samples is None else replace(walked, count=None).limited(asked.samples)


def _prepared(source: ModelFile, original: ir.Model, level: str, half: bool) -> ir.Model:
    try:
        return prepare(original, level, half=half)
    except OnnxToolError:
        raise
    except Exception:
        # A model that breaks the rules may break a pass; the runtime says what is wrong with it. If it takes the
        # model, the fault is ours.
        OnnxRunner.open(source, SessionOptions(optimization="off"))
        raise
