"""A Hugging Face folder or a GGUF file in, a bundle out; nothing is written unless it generates the same."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np

from onnxtool import progress
from onnxtool.errors import MissingExtraError, OnnxToolError, UnsupportedError, UsageError
from onnxtool.generation import builders
from onnxtool.generation.adapters import ADAPTER, set_apart
from onnxtool.generation.builders import repair_config, repair_shapes, seal_model
from onnxtool.generation.bundle import CONFIG, Bundle, check_output, record, source_digest, staged_folder
from onnxtool.generation.decoder import Decoder
from onnxtool.generation.proof import CHATS, PROMPTS, endless_text, prove_runtime, prove_text, prove_tokens
from onnxtool.generation.quantization.block_weights import write_blocks
from onnxtool.generation.quantization.kept_blocks import NEAR, KeptStore, kept_plan
from onnxtool.generation.quantization.perplexity import load_text, perplexity, ratio
from onnxtool.generation.reference import SourceGenerator
from onnxtool.generation.source import TextModelSource, open_source
from onnxtool.generation.tokenizer import BundleTokenizer
from onnxtool.model import io
from onnxtool.report.bundle.convert import BundleReport, Perplexity, PromptProof, RuntimeProof, TextProof
from onnxtool.runtime.worker.isolation import ResourceAllowance, guarded

_MOST_KEPT_LOSS = 0.005  # of perplexity; what the runtime's rounding of activations may cost a GGUF file's own weights
_PERPLEXITY_TOKENS = 1024  # quantize measures all of the text
# Frameworks are imported, a builder runs, the model runs some hundred times.
_PACE = ResourceAllowance(seconds_per_byte=2e-5, most_seconds=36_000.0, bytes_per_byte=40.0, scale=60.0)


@dataclass(frozen=True)
class _Proof:
    prompts: tuple[PromptProof, ...]
    text: TextProof
    runtime: RuntimeProof | None
    perplexity: Perplexity | None
    losses: np.ndarray | None = None

    def fault(self, rtol: float) -> str:
        """What is wrong, in a few words; "" when nothing is."""
        for proof in self.prompts:
            if not proof.within(rtol):
                worst = max(proof.prefill_error, proof.step_error, proof.chunk_error, proof.cache_error)
                return (
                    f"after {proof.prompt_tokens} tokens {proof.equal} of {proof.tokens} tokens are equal, the logits "
                    f"differ by up to {worst:.2g} of the largest"
                )
        if self.text.faults:
            return self.text.faults[0]
        if self.runtime is not None and not self.runtime.ok:
            return f"in the onnxruntime-genai runtime: {self.runtime.fault or 'other tokens'}"
        return ""


def convert_text_model(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    trust: bool = False,
    adapter: Path | None = None,
    separate_adapter: bool = False,
    eval_text: Path | None = None,
    rtol: float = 1e-3,
) -> BundleReport:
    """Convert a decoder that generates text into a bundle, and prove that it generates the same.

    Args:
        source: a Hugging Face folder, or a GGUF file.
        output: the folder to write; a bundle that is there is replaced as a whole.
        trust: load pickled weights, and code that the folder brings.
        adapter: a folder with a LoRA adapter, which is merged into the weights.
        separate_adapter: keep it apart instead, in the runtime's adapter format (`adapters.ADAPTER`).
        eval_text: a text to measure the perplexity on; None for the bundled one.
        rtol: tolerance of the logits, as a share of the largest.

    Returns:
        A report; with `ok` False nothing was written.

    Raises:
        InputError, UnsupportedError, UnsafeError, MissingExtraError: as what is read finds.
        UsageError: the output is a file, or a folder with something else in it; no adapter to keep apart.
    """
    source, output = Path(source), Path(output)
    check_output(output)
    if separate_adapter and adapter is None:
        raise UsageError("--separate-adapter goes with --adapter.")
    opened = open_source(source, trust=trust)
    text = load_text(eval_text)
    size = source.stat().st_size if source.is_file() else sum(f.stat().st_size for f in source.glob("*.safetensors"))
    with progress.task("converting", 3) as task, guarded("converting the language model", size, pace=_PACE):
        merged, apart = (None, adapter) if separate_adapter else (adapter, None)
        return _Conversion(opened, output, trust, merged, apart, text, rtol).run(task)


class _Conversion:
    def __init__(
        self,
        source: TextModelSource,
        output: Path,
        trust: bool,
        adapter: Path | None,
        apart: Path | None,
        text: tuple[str, str],
        rtol: float,
    ) -> None:
        self.source, self.output, self.trust, self.adapter, self.apart = source, output, trust, adapter, apart
        self.text, self.rtol = text, rtol
        self.clock = progress.StageClock()
        self.refused: list[str] = []
        self.notes: list[str] = []

    def run(self, task: progress.Task) -> BundleReport:
        # mobius has no form for adapters.
        candidates = [b for b in builders.BUILDERS if b.installed and (self.apart is None or b is builders.GENAI)]
        if not candidates:
            raise MissingExtraError(str(self.source.path), "onnxruntime-genai", "generation")
        with ExitStack() as stack, staged_folder(self.output) as staged:
            prepared = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onnxtool-")))
            direct = not (self.source.gguf or self.source.pickled or self.adapter)
            tied = bool(self.source.config.get("tie_word_embeddings", False))
            first = None
            if direct:  # the first builder works while the reference is loaded
                first = stack.enter_context(builders.start(candidates[0], self.source.path, staged, tied, self.apart))
            reference = SourceGenerator(self.source, trust=self.trust, adapter=self.adapter)
            self.clock.stop("load")
            task.advance()
            folder = self.source.path
            if not direct:
                folder = prepared
                reference.save(prepared)
                self.clock.stop("prepare")
            best: tuple[Bundle, _Proof, str] | None = None
            for builder in candidates:
                if first is None:
                    first = stack.enter_context(builders.start(builder, folder, staged, reference.tied, self.apart))
                said, first = first.wait(), None
                self.clock.stop("build")
                if said is not None or not (staged / CONFIG).is_file():
                    self.refused.append(f"{builder.name}: {said or 'wrote no ' + CONFIG}")
                    _empty(staged)
                    continue
                try:
                    bundle = self._repaired(staged, reference)
                    adapted = 0 if self.apart is None else set_apart(bundle)
                    proof = self._proven(bundle, reference)
                    if self.apart is not None and not proof.fault(self.rtol):
                        proof = self._proven_adapted(bundle, proof, adapted, self.apart)
                except OnnxToolError as error:
                    self.refused.append(f"{builder.name}: {error}".replace(f"{staged}{os.sep}", ""))
                    _empty(staged)
                    continue
                self.clock.stop("prove")
                fault = proof.fault(self.rtol)
                if not fault:
                    if self.source.gguf and proof.losses is not None:
                        self._keep_blocks(bundle, proof.losses, prepared)
                        self.clock.stop("keep blocks")
                    task.advance()
                    return self._finished(staged, bundle, reference, proof, builder.name)
                self.refused.append(f"{builder.name}: {fault}")
                best = best or (bundle, proof, builder.name)
                _empty(staged)
            if best is None:
                raise UnsupportedError(
                    f"{self.source.path}: no graph builder can build it ({'; '.join(self.refused)})."
                )
            return self._report(*best, reference, written=0)

    def _repaired(self, folder: Path, reference: SourceGenerator) -> Bundle:
        """The configuration says what the source says; the tokenizer is the source's own."""
        for stray in folder.glob("*.py"):
            stray.unlink()
        path = folder / CONFIG
        config = json.loads(path.read_bytes())
        repair_config(config, reference)
        path.write_text(json.dumps(config, indent=4) + "\n", encoding="utf-8")
        reference.save_tokenizer(folder)
        bundle = Bundle.open(folder)
        repair_shapes(bundle.model)
        return bundle

    def _proven(self, bundle: Bundle, reference: SourceGenerator) -> _Proof:
        decoder = Decoder(bundle)
        tokenizer = BundleTokenizer(bundle.folder)
        prompts = tuple(prove_tokens(decoder, reference))
        text = prove_text(bundle, tokenizer, reference)
        chat = reference.chat(CHATS[0])
        ids = reference.encode(PROMPTS[1]) if chat is None else reference.encode(chat, special=False)
        runtime = prove_runtime(decoder, ids or [0])
        measured = losses = None
        if all(p.within(self.rtol) for p in prompts):
            measured, losses = perplexity(decoder, tokenizer, *self.text, tokens=_PERPLEXITY_TOKENS)
        return _Proof(prompts, text, runtime, measured, losses)

    def _proven_adapted(self, bundle: Bundle, proof: _Proof, adapted: int, folder: Path) -> _Proof:
        """Prove the bundle with its adapter too; the source has it merged into its weights."""
        reference = SourceGenerator(self.source, trust=self.trust, adapter=folder)
        decoder = Decoder(bundle, adapter=bundle.folder / ADAPTER)
        prompts = tuple(prove_tokens(decoder, reference))
        runtime = prove_runtime(decoder, reference.encode(PROMPTS[1]) or [0])
        self.notes.append(
            f"the adapter {folder.name} is kept apart in {ADAPTER} (beside {adapted} products of the model); all was "
            f"proven without it, and tokens with it too: run BUNDLE --adapter BUNDLE/{ADAPTER}"
        )
        failed = runtime if runtime is not None and not runtime.ok else proof.runtime
        return replace(proof, prompts=(*proof.prompts, *prompts), runtime=failed)

    def _keep_blocks(self, bundle: Bundle, reference: np.ndarray, scratch: Path) -> None:
        """Store a GGUF file's weights as the blocks that they were, where that predicts the text as well."""
        folder = scratch / "blocks"
        shutil.copytree(bundle.folder, folder, ignore=shutil.ignore_patterns(f"{bundle.model.name}*"))
        model = io.load(bundle.model)
        kept = kept_plan(model)
        write_blocks(model, kept.plan, KeptStore())
        io.save(model, folder / bundle.model.name, external=True)
        found = Bundle.open(folder)
        tokenizer = BundleTokenizer(bundle.folder)
        losses = perplexity(Decoder(found), tokenizer, *self.text, tokens=_PERPLEXITY_TOKENS)[1]
        middle, low, high = ratio(losses, reference)
        change = f"perplexity {middle - 1:+.2%} [{low - 1:+.2%}, {high - 1:+.2%}] to the same weights in float32"
        runtime = prove_runtime(Decoder(found), tokenizer.encode(PROMPTS[1]).tolist() or [0])
        if middle > 1 + _MOST_KEPT_LOSS or (runtime is not None and runtime.fault):
            self.notes.append(f"the weights are float32: as blocks, {change}; quantize BUNDLE makes them small again")
            return
        for file in folder.glob(f"{bundle.model.name}*"):
            shutil.move(file, bundle.folder / file.name)
        near = f", {kept.near} rounded to {NEAR}, for which the runtime has a kernel" if kept.near else ""
        self.notes.append(f"of the file's weights {kept.exact} are kept bit by bit{near}; {change}")

    def _finished(
        self, staged: Path, bundle: Bundle, reference: SourceGenerator, proof: _Proof, builder: str
    ) -> BundleReport:
        warning = endless_text(bundle, BundleTokenizer(staged))
        report = self._report(bundle, proof, builder, reference, warnings=(warning,) if warning else ())
        digest = source_digest(self.source.path)
        seal_model(bundle.model, {"command": "convert", "source": self.source.path.name, "source_sha256": digest})
        record(staged, "convert", self.source.path, report)
        return replace(report, size_bytes=bundle.size, written=True)

    def _report(
        self,
        bundle: Bundle,
        proof: _Proof,
        builder: str,
        reference: SourceGenerator,
        *,
        warnings: tuple[str, ...] = (),
        written: int = 0,
    ) -> BundleReport:
        notes = [*reference.notes, *self.notes]
        return BundleReport(
            source=str(self.source.path),
            output=str(self.output),
            framework=f"transformers {version('transformers')}",
            architecture=type(reference.model).__name__,
            builder=builder,
            refused=tuple(self.refused),
            layers=bundle.layers,
            heads=bundle.heads,
            kv_heads=bundle.kv_heads,
            head_size=bundle.head_size,
            vocabulary=bundle.vocabulary,
            context=bundle.context,
            size_bytes=written,
            rtol=self.rtol,
            prompts=proof.prompts,
            text=proof.text,
            runtime=proof.runtime,
            perplexity=proof.perplexity,
            notes=tuple(notes),
            warnings=warnings,
            seconds=dict(self.clock.seconds),
        )


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
