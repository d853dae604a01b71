"""Terminal view of a BundleReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import facts, table, verdict, warnings
from onnxtool.cli.render.text import duration, markup, number, size
from onnxtool.report.bundle.convert import BundleReport, Perplexity, RuntimeProof, TextProof

if TYPE_CHECKING:
    from rich.console import Console


def render(report: BundleReport, console: Console, verbose: int = 0) -> None:
    """The model, the proof prompt by prompt, what was refused, the verdict."""
    heads = f"{report.heads}, {report.kv_heads} of keys and values, of {report.head_size}"
    rows = [
        ("model", f"{report.architecture} ({report.framework})"),
        ("decoder", f"{report.layers} layers, heads: {heads}; {report.vocabulary} tokens, context {report.context}"),
        ("built by", report.builder),
        ("text", _text(report.text)),
        ("onnxruntime-genai", None if report.runtime is None else _runtime(report.runtime)),
        ("perplexity", None if report.perplexity is None else perplexity_line(report.perplexity)),
        ("time", ", ".join(f"{k} {duration(s)}" for k, s in report.seconds.items())),
    ]
    console.print(facts(rows))
    made = table("prompt", "equal tokens", "prefill", "steps", "in parts", "cache", right=_NUMBERS)
    for proof in report.prompts:
        equal = f"{proof.equal} of {proof.tokens}" + (f" ({proof.undecided} undecided)" if proof.undecided else "")
        errors = (proof.prefill_error, proof.step_error, proof.chunk_error, proof.cache_error)
        made.add_row(f"{proof.prompt_tokens} tokens", equal, *map(number, errors))
    console.print(made)
    console.print(f"differences of the logits as a share of the largest; {report.rtol:.2g} is allowed")
    for note in report.notes:
        console.print(f"note: {markup(note, 500)}")
    for line in report.refused:
        console.print(f"refused: {markup(line, 300)}")
    warnings(console, (*report.text.faults, *report.warnings))
    if report.ok:
        equal_tokens = sum(p.equal for p in report.prompts)
        verdict(console, True, f"{equal_tokens} tokens equal; wrote {report.output} ({size(report.size_bytes)})")
    else:
        verdict(console, False, f"it does not generate what its source generates; {report.output} was not written")


_NUMBERS = ("prefill", "steps", "in parts", "cache")


def _text(proof: TextProof) -> str:
    chats = f"{proof.chats} chats" if proof.chats else "no chat template"
    same = "as the source has them" if not proof.faults else f"{len(proof.faults)} faults"
    return f"{proof.texts} texts, {chats}, end of text {list(proof.eos)}: {same}"


def _runtime(proof: RuntimeProof) -> str:
    if proof.fault:
        return f"fails: {proof.fault}"
    ended = "ends at the same place" if proof.ended else "ends elsewhere"
    return f"{proof.equal} of {proof.tokens} tokens equal, {ended}"


def perplexity_line(found: Perplexity) -> str:
    """The figure with its interval."""
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}] on {found.tokens} tokens of {found.text}"
