"""A float bundle in, a smaller and faster one within a budget of perplexity out."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from onnxtool import progress
from onnxtool.errors import UsageError
from onnxtool.generation.adapters import adapted
from onnxtool.generation.bench import decode_speeds
from onnxtool.generation.bundle import PROVENANCE, Bundle, check_output, record, staged_folder
from onnxtool.generation.decoder import Decoder, sparing
from onnxtool.generation.proof import PROMPTS, prove_runtime
from onnxtool.generation.quantization.block_weights import (
    CalibratedStore,
    WeightPlan,
    head_of,
    products,
    write_blocks,
)
from onnxtool.generation.quantization.calibration import (
    LayerGroup,
    groups_of,
    input_moments,
    sampled_tokens,
    widest_within,
)
from onnxtool.generation.quantization.perplexity import divergence, load_split_text, perplexity, ratio
from onnxtool.generation.tokenizer import BundleTokenizer
from onnxtool.generation.verify import follow
from onnxtool.model import io
from onnxtool.quantization.algorithms.smooth_quant import smooth
from onnxtool.quantization.algorithms.weight_only import BlockFormat
from onnxtool.report.bundle.convert import Perplexity
from onnxtool.report.bundle.quantize import BundleCandidate, BundleQuantizeReport, GroupSensitivity
from onnxtool.runtime.session.memory import release_memory
from onnxtool.runtime.worker.isolation import ResourceAllowance, guarded

BUNDLE_SECONDS = 300.0
MODES = ("auto", "int8", "int4")
_PACE = ResourceAllowance(seconds_per_byte=2e-5, most_seconds=36_000.0, bytes_per_byte=40.0, scale=60.0)
_INT8 = (BlockFormat(8, 32), BlockFormat(8, 64), BlockFormat(8, 128))
_INT4 = BlockFormat(4, 32, symmetric=False, calibrated=True)
_SENSITIVITY_TOKENS = 256
_SENSITIVITY_SHARE = 0.7  # of the time; groups that were not measured by then stay in 8 bits
# Bytes of moments and of float weights up to which weights are smoothed and rounded by GPTQ; those of larger models are
# rounded to the nearest, one weight in memory at a time.
_MOST_MOMENTS = 4 << 30
_MOST_SMOOTHED = 4 << 30
_SMOOTHING = 0.4  # share of the inputs' range that goes into the weights
_SMOOTHING_TEXTS = 4  # of the calibration texts: a mean square of each input needs no more
_EQUAL = 1e-6  # nats; smoothing changes nothing but rounding
_AS_FAST = 0.97  # a candidate that is so near the fastest may win by its accuracy


@dataclass
class _Measured:
    plan: WeightPlan
    bundle: Bundle
    ratio: tuple[float, float, float]
    bytes: int
    speed: float = 0.0
    judged: bool = False

    def within(self, budget: float, max_bytes: int | None) -> bool:
        """By the upper end of the interval."""
        return self.ratio[2] <= 1 + budget and (max_bytes is None or self.bytes <= max_bytes)


def quantize_bundle(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    mode: str = "auto",
    max_perplexity: float = 0.01,
    max_bytes: int | None = None,
    eval_text: Path | None = None,
    time_limit: float = BUNDLE_SECONDS,
    threads: int | None = None,
) -> BundleQuantizeReport:
    """Store a bundle's weights in 8 and 4 bits; the fastest on this machine that keeps the budget is written.

    Candidates of 8 bits go first. Where there is time, groups of products go to 4 bits, the least sensitive first, as
    many as the budget allows.

    Args:
        folder: a float32 bundle.
        output: the folder to write.
        mode: "auto", "int8" (8 bits alone) or "int4" (mixed, and 4 bits in all layers).
        max_perplexity: by what share the perplexity may rise; 0.01 is 1 %.
        max_bytes: the largest size of the model with its weights.
        eval_text: what perplexity is measured on; None for the bundled text.
        time_limit: seconds after which no further candidate of 4 bits is tried.
        threads: of the runtime while speed is measured; None for all cores.

    Returns:
        A report; with `ok` False nothing keeps the budget, and nothing was written.

    Raises:
        InputError, UnsupportedError, ResourceError: as what is read finds.
        UsageError: an unknown mode, or an output that cannot be a bundle.
    """
    if mode not in MODES:
        raise UsageError(f"--mode {mode}: of a bundle it is one of {', '.join(MODES)}.")
    output = Path(output)
    check_output(output)
    bundle = Bundle.open(Path(folder))
    began = time.perf_counter()
    with (
        guarded("quantizing the language model", bundle.model_bytes, pace=_PACE),
        tempfile.TemporaryDirectory(prefix="onnxtool-") as scratch,
        staged_folder(output) as staged,
        progress.task("quantizing", 4) as task,
    ):
        choosing, judging = load_split_text(eval_text)
        search = _PlanSearch(bundle, Path(scratch), choosing, max_perplexity, max_bytes)
        found = search.run(mode, lambda share=1.0: time.perf_counter() - began > share * time_limit, task)
        speeds = decode_speeds([bundle, *(m.bundle for m in found)], threads)
        for measured, speed in zip(found, speeds[1:], strict=True):
            measured.speed = speed
        chosen, reference = search.judged_choice(found, mode, judging)
        report = BundleQuantizeReport(
            source=str(folder),
            output=str(output),
            mode=mode,
            max_perplexity=max_perplexity,
            max_bytes=max_bytes,
            bytes_before=bundle.model_bytes,
            perplexity=reference,
            tokens_per_second=speeds[0],
            threads=threads,
            candidates=tuple(_candidate(m, chosen, max_perplexity, max_bytes) for m in found),
            sensitivities=search.sensitivities,
        )
        if chosen is not None:
            report = _written(report, bundle, chosen, staged)
        return replace(report, seconds=time.perf_counter() - began)


def _written(report: BundleQuantizeReport, source: Bundle, chosen: _Measured, staged: Path) -> BundleQuantizeReport:
    for file in chosen.bundle.folder.iterdir():
        shutil.copyfile(file, staged / file.name)
    decoder = Decoder(chosen.bundle, sparing(chosen.bundle))
    ids = BundleTokenizer(source.folder).encode(PROMPTS[1])
    same = follow(Decoder(source, sparing(source)), decoder, ids)
    report = replace(
        report,
        agreement=same.equal / same.tokens,
        runtime=prove_runtime(decoder, ids.tolist() or [0]),
    )
    if report.runtime is not None and not report.runtime.ok and report.runtime.fault:
        return report
    report = replace(report, written=True)
    record(staged, "quantize", source.model, report, earlier=source.folder)
    return report


def _fastest(fitting: Sequence[_Measured], mode: str) -> _Measured | None:
    """The fastest; of those that are as fast, the most accurate. int4 wants the smallest."""
    if not fitting:
        return None
    if mode == "int4":
        return min(fitting, key=lambda m: m.bytes)
    top = max(m.speed for m in fitting)
    return min((m for m in fitting if m.speed >= _AS_FAST * top), key=lambda m: m.ratio[0])


def _candidate(found: _Measured, chosen: _Measured | None, budget: float, max_bytes: int | None) -> BundleCandidate:
    return BundleCandidate(
        plan=str(found.plan),
        bytes=found.bytes,
        ratio=found.ratio[0],
        low=found.ratio[1],
        high=found.ratio[2],
        tokens_per_second=found.speed,
        judged=found.judged,
        within_budget=found.within(budget, max_bytes),
        chosen=found is chosen,
    )


class _PlanSearch:
    def __init__(
        self, bundle: Bundle, scratch: Path, text: tuple[str, str], budget: float, max_bytes: int | None
    ) -> None:
        self.bundle, self.scratch, self.text = bundle, scratch, text
        self.budget, self.max_bytes = budget, max_bytes
        self.tokenizer = BundleTokenizer(bundle.folder)
        self.store = CalibratedStore()
        self.float, self.smoothed = bundle, False
        self.sensitivities: tuple[GroupSensitivity, ...] = ()
        self.perplexity, self.losses = perplexity(Decoder(bundle, sparing(bundle)), self.tokenizer, *text)
        self._number = 0

    def run(self, mode: str, late: Callable[..., bool], task: progress.Task) -> list[_Measured]:
        """Candidates, measured but not timed; `late` takes the share of the time after which it is late."""
        self._calibrate(mode)
        task.advance()
        formats = _INT8 if mode != "int4" else _INT8[1:2]
        found = [self.measure(WeightPlan(how, how, how, smoothed=self.smoothed)) for how in formats]
        task.advance()
        if mode == "int8" or late():
            return found
        fitting = [m for m in found if m.within(self.budget, None)]
        base = min(fitting or found, key=lambda m: m.ratio[0])  # what leaves the most of the budget for 4 bits
        if mode == "int4":
            found.append(self.measure(replace(base.plan, layers=_INT4)))
            if found[-1].within(self.budget, self.max_bytes):
                return found
        if not fitting:
            return found
        ordered = self._ordered(base.plan, lambda: late(_SENSITIVITY_SHARE))
        task.advance()
        mixed = widest_within(
            ordered,
            lambda groups: self.measure(_with(base.plan, groups)),
            lambda m: m.within(self.budget, None),
            late,
        )
        within = [m for m in mixed if m.within(self.budget, None)]
        if within:  # the same products in 4 bits, the others in the other kinds of 8 bits
            widest = max(within, key=lambda m: len(m.plan.exceptions)).plan
            for other in (m for m in fitting if m is not base and not late()):
                mixed.append(self.measure(replace(other.plan, exceptions=widest.exceptions)))
        return found + mixed

    def measure(self, plan: WeightPlan) -> _Measured:
        """Write a candidate to the scratch folder and measure its perplexity."""
        bundle = self._write(plan)
        losses = perplexity(Decoder(bundle, sparing(bundle)), self.tokenizer, *self.text)[1]
        release_memory(bundle.model_bytes)
        return _Measured(plan, bundle, ratio(losses, self.losses), bundle.model_bytes)

    def judged_choice(
        self, found: list[_Measured], mode: str, text: tuple[str, str]
    ) -> tuple[_Measured | None, Perplexity]:
        """The fastest within the budget on a text that did not choose, and the float bundle's perplexity there.

        Those that are preferred are judged first; each one's ratio becomes that of this text.
        """
        figure, reference = perplexity(Decoder(self.bundle, sparing(self.bundle)), self.tokenizer, *text)
        left = [m for m in found if m.within(self.budget, self.max_bytes)]
        while left:
            best = _fastest(left, mode)
            assert best is not None
            losses = perplexity(Decoder(best.bundle, sparing(best.bundle)), self.tokenizer, *text)[1]
            best.ratio, best.judged = ratio(losses, reference), True
            release_memory(best.bundle.model_bytes)
            if best.within(self.budget, self.max_bytes):
                return best, figure
            left.remove(best)
        return None, figure

    def _calibrate(self, mode: str) -> None:
        """Smooth what the products read, and take the moments that GPTQ needs, where there is memory for both."""
        model = io.load(self.bundle.model)
        nodes = products(model)
        inputs = {_weight_name(n): n.inputs[0] for n in nodes}
        names = {w: str(v.name) for w, v in inputs.items() if v is not None and v.producer() is not None}
        widths = {names[w]: _weight_shape(n)[0] for n in nodes if (w := _weight_name(n)) in names}
        if sum(4 * k * k for k in widths.values()) > _MOST_MOMENTS or self.bundle.model_bytes > _MOST_SMOOTHED:
            return
        tokens = sampled_tokens(Decoder(self.bundle))
        head = head_of(model, nodes)
        # The head may share its weight with the embedding; elsewhere smoothing would take an operation of its own.
        smoothed = [str(v.name) for w, v in inputs.items() if v is not None and w in names and _scalable(v)]
        if head is not None:
            smoothed = [n for n in smoothed if n != names.get(_weight_name(head))]
        unscalable = {str(v.name) for v in adapted(model)}
        smoothed = [n for n in smoothed if n not in unscalable]
        few = input_moments(self.bundle, list(dict.fromkeys(smoothed)), tokens[:_SMOOTHING_TEXTS])
        smooth(model, {n: np.sqrt(np.diag(m)) for n, m in few.items()}, _SMOOTHING)
        folder = self._folder("smoothed")
        io.save(model, folder / self.bundle.model.name, external=True)
        found = Bundle.open(folder)
        ids = self._sensitivity_ids()
        self.smoothed = divergence(self._logits(self.bundle, ids), self._logits(found, ids)) < _EQUAL
        self.float = found if self.smoothed else self.bundle
        if mode == "int8":
            return
        moments = input_moments(self.float, list(widths), tokens)
        found_nodes = products(io.load(self.float.model))
        read = {_weight_name(n): str(n.inputs[0].name) for n in found_nodes if n.inputs[0] is not None}
        self.store.moments = {weight: moments[name] for weight, name in read.items() if name in moments}
        release_memory(self.float.model_bytes)

    def _write(self, plan: WeightPlan) -> Bundle:
        folder = self._folder(f"{self._number}")
        self._number += 1
        graph = io.load(self.float.model)
        write_blocks(graph, plan, self.store)
        io.save(graph, folder / self.bundle.model.name, external=True)
        return Bundle.open(folder)

    def _folder(self, name: str) -> Path:
        """A folder with all that a bundle has beside its model."""
        folder = self.scratch / name
        folder.mkdir()
        for file in self.bundle.folder.iterdir():
            if file.is_file() and not file.name.startswith(self.bundle.model.name) and file.name != PROVENANCE:
                shutil.copyfile(file, folder / file.name)
        return folder

    def _sensitivity_ids(self) -> np.ndarray:
        ids = self.tokenizer.encode(self.text[1], special=False)
        return ids[: min(_SENSITIVITY_TOKENS, self.bundle.context)]

    @staticmethod
    def _logits(bundle: Bundle, ids: np.ndarray) -> np.ndarray:
        decoder = Decoder(bundle, sparing(bundle))
        decoder.start(ids.size)
        logits = decoder.run(ids)
        release_memory(bundle.model_bytes)
        return logits

    def _ordered(self, base: WeightPlan, late: Callable[[], bool]) -> list[LayerGroup]:
        """Groups of products, by what 4 bits in them cost for each byte they save; the cheapest first."""
        model = io.load(self.float.model)
        nodes = products(model)
        groups = groups_of(nodes, self.bundle.layers)
        head = head_of(model, nodes)
        if head is not None:
            groups.append(LayerGroup("head", (str(head.name),), math.prod(_weight_shape(head))))
        ids = self._sensitivity_ids()
        reference = self._logits(self.bundle, ids)
        start = divergence(reference, self._logits(self._write(base), ids))
        costs: list[tuple[float, float, LayerGroup]] = []
        with progress.task("measuring sensitivity", len(groups)) as task:
            for group in groups:
                if late():
                    break
                made = self._write(_with(base, [group]))
                loss = max(divergence(reference, self._logits(made, ids)) - start, 1e-9)
                shutil.rmtree(made.folder, ignore_errors=True)
                costs.append((loss / group.weights, loss, group))
                task.advance()
        costs.sort(key=lambda c: (c[0], c[2].name))
        self.sensitivities = tuple(GroupSensitivity(g.name, g.weights, loss) for _, loss, g in costs)
        return [g for _, _, g in costs]


def _scalable(value: ir.Value) -> bool:
    """What comes out of a normalization, or of the product of a gate."""
    producer = value.producer()
    return producer is not None and (producer.op_type == "Mul" or producer.op_type.endswith("Normalization"))


def _weight_name(product: ir.Node) -> str:
    weight = product.inputs[1]
    assert weight is not None
    return str(weight.name)


def _weight_shape(product: ir.Node) -> tuple[int, int]:
    weight = product.inputs[1]
    assert weight is not None and weight.const_value is not None
    rows, columns = weight.const_value.shape.numpy()
    return int(rows), int(columns)


def _with(base: WeightPlan, groups: Sequence[LayerGroup]) -> WeightPlan:
    """The plan with these groups in 4 bits."""
    return replace(base, exceptions={name: _INT4 for g in groups for name in g.nodes})
