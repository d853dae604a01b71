"""What the commands say of bundles of language models."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtool.cli.text import count, duration, interval, number, plural, size
from onnxtool.cli.views.view import Facts, Line, Part, Table, Verdict, Words, warnings
from onnxtool.report.bundle.bench import BundleBenchReport, GeneratorSpeed
from onnxtool.report.bundle.compare import BundleCompareReport
from onnxtool.report.bundle.convert import BundleReport, Perplexity, RuntimeProof, TextProof
from onnxtool.report.bundle.inspect import BundleInspectReport, GenerateReport
from onnxtool.report.bundle.quantize import BundleCandidate, BundleQuantizeReport


def bundle(report: BundleReport) -> Iterator[Part]:
    """The model, the proof prompt by prompt, what was refused, the verdict."""
    verdict = f"it does not generate what its source generates; {report.output} was not written"
    if report.ok:
        equal = sum(p.equal for p in report.prompts)
        verdict = f"{equal} tokens equal; wrote {report.output} ({size(report.size_bytes)})"
    yield Verdict(verdict, report.source)
    heads = f"{report.heads}, {report.kv_heads} of keys and values, of {report.head_size}"
    yield Facts(
        (
            ("model", f"{report.architecture} ({report.framework})"),
            (
                "decoder",
                f"{report.layers} layers, heads: {heads}; {report.vocabulary} tokens, context {report.context}",
            ),
            ("built by", report.builder),
            ("text", _text(report.text)),
            ("onnxruntime-genai", None if report.runtime is None else _runtime(report.runtime)),
            ("perplexity", None if report.perplexity is None else _perplexity(report.perplexity)),
            ("time", ", ".join(f"{k} {duration(s)}" for k, s in report.seconds.items())),
        )
    )
    rows = [
        (
            f"{p.prompt_tokens} tokens",
            f"{p.equal} of {p.tokens}" + (f" ({p.undecided} undecided)" if p.undecided else ""),
            *map(number, (p.prefill_error, p.step_error, p.chunk_error, p.cache_error)),
        )
        for p in report.prompts
    ]
    numbers = ("prefill", "steps", "in parts", "cache")
    yield Table(("prompt", "equal tokens", *numbers), rows, numbers)
    yield Line(f"differences of the logits as a share of the largest; {report.rtol:.2g} is allowed")
    yield from (Line(note, "note:", "dim") for note in report.notes)
    yield from (Line(line, "refused:") for line in report.refused)
    yield from warnings((*report.text.faults, *report.warnings))


def _text(proof: TextProof) -> str:
    chats = f"{proof.chats} chats" if proof.chats else "no chat template"
    same = "as the source has them" if not proof.faults else plural(len(proof.faults), "fault")
    return f"{proof.texts} texts, {chats}, end of text {list(proof.eos)}: {same}"


def _runtime(proof: RuntimeProof) -> str:
    if proof.fault:
        return f"fails: {proof.fault}"
    ended = "ends at the same place" if proof.ended else "ends elsewhere"
    return f"{proof.equal} of {proof.tokens} tokens equal, {ended}"


def _perplexity(found: Perplexity) -> str:
    """The figure with its interval."""
    return f"{interval(found.value, found.low, found.high)} on {found.tokens} tokens of {found.text}"


def bundle_bench(report: BundleBenchReport) -> Iterator[Part]:
    """Load and memory, then a table for each length of the prompt."""
    counts = dict.fromkeys(g.threads for g in report.generators)
    threads = ", ".join("all cores" if n is None else plural(n, "thread") for n in counts)
    cache = f"{size(report.cache_bytes_per_token)} of keys and values for each token"
    yield Verdict(f"{threads} on {report.cpu}, {plural(report.cores, 'core')}; {cache}")
    several = len(counts) > 1
    held = [
        (_name(g, several), Words(g.fault, "bad"), "", "")
        if g.fault
        else (
            *(_name(g, several), g.runtime, duration(g.load_seconds)),
            "-" if g.peak_bytes is None else size(g.peak_bytes),
        )
        for g in report.generators
    ]
    yield Table(("generator", "runtime", "load", "peak memory"), held, ("load", "peak memory"))
    base = {(s.context, s.batch): s.decode_per_second for s in report.generators[0].speeds}
    numbers = ("first token", "prefill/s", "decode/s", "ratio")
    for (context, batch), first in base.items():
        rows = [
            (
                *(_name(g, several), duration(s.first_token_seconds)),
                *(f"{s.prefill_per_second:.1f}", f"{s.decode_per_second:.1f}", f"{s.decode_per_second / first:.2f}"),
            )
            for g in report.generators
            for s in g.speeds
            if (s.context, s.batch) == (context, batch)
        ]
        many = "" if batch == 1 else f", {batch} side by side"
        yield Table((f"prompt of {context} tokens{many}", *numbers), rows, numbers)


def _name(item: GeneratorSpeed, several: bool) -> str:
    """The last part of the path, with the number of threads where there are several."""
    threads = f" ({plural(item.threads, 'thread')})" if several and item.threads is not None else ""
    return item.name.rstrip("/").rpartition("/")[2] + threads


def bundle_compare(report: BundleCompareReport) -> Iterator[Part]:
    """Perplexities, then tokens and logits prompt by prompt."""
    value, low, high = (r - 1 for r in report.ratio)
    facts = (
        ("A", f"{report.a}: perplexity {_perplexity(report.perplexities[0])}"),
        ("B", f"{report.b}: perplexity {_perplexity(report.perplexities[1])}"),
        ("difference", f"{value:+.2%} [{low:+.2%}, {high:+.2%}]"),
    )
    rows = [(f"{p.prompt_tokens} tokens", f"{p.equal} of {p.tokens}", number(p.error)) for p in report.prompts]
    equal, total = sum(p.equal for p in report.prompts), sum(p.tokens for p in report.prompts)
    worst = number(max(p.error for p in report.prompts))
    logits = f"logits differ by up to {worst} of the largest, {report.rtol:.2g} is allowed"
    yield Verdict(f"{equal} of {total} tokens equal; {logits}")
    yield Facts(facts)
    yield Table(("prompt", "equal tokens", "logits"), rows, ("logits",))


def bundle_inspect(report: BundleInspectReport) -> Iterator[Part]:
    """The decoder, its weights, the memory at several contexts; the operators where there is room."""
    formats = ", ".join(f"{count(n)} in {form}" for form, n in report.weights.items())
    facts = (
        ("bundle", report.bundle),
        ("kind", report.type),
        ("layers", report.layers),
        ("heads", f"{report.heads}, {report.kv_heads} of keys and values, of {report.head_size}"),
        ("hidden size", report.hidden_size),
        ("vocabulary", f"{report.vocabulary}, a text ends at {list(report.eos)}"),
        ("context", report.context),
        ("chat template", "yes" if report.chat_template else "no"),
        ("parameters", f"{count(report.parameters)} ({formats})"),
        ("model", size(report.model_bytes)),
        ("cache", f"{size(report.cache_bytes_per_token)} for each token"),
    )
    columns = ("context", "cache", "model and cache")
    memory = [
        (str(context), size(int(context) * report.cache_bytes_per_token), size(total))
        for context, total in report.memory.items()
    ]
    operators = [(name, str(nodes)) for name, nodes in report.operators.items()]
    yield Facts(facts)
    yield Table(columns, memory, columns)
    yield Table(("operator", "nodes"), operators, ("nodes",), when="full")


def bundle_quantize(report: BundleQuantizeReport) -> Iterator[Part]:
    """The float bundle, what was tried, what was chosen; the sensitivities where there is room."""
    chosen = report.chosen
    verdict = f"nothing keeps the budget; {report.output} was not written"
    if chosen is not None and report.written:
        verdict = (
            f"{chosen.plan}: perplexity {chosen.ratio - 1:+.2%}, "
            f"{chosen.tokens_per_second / report.tokens_per_second:.2f}x the speed, "
            f"{chosen.bytes / report.bytes_before:.0%} of the size, {report.agreement:.0%} of greedy tokens equal; "
            f"wrote {report.output}"
        )
    yield Verdict(verdict, report.source)
    limit = "" if report.max_bytes is None else f", at most {size(report.max_bytes)}"
    yield Facts(
        (
            ("float bundle", f"{size(report.bytes_before)}, {report.tokens_per_second:.1f} tokens/s"),
            ("perplexity", _perplexity(report.perplexity)),
            ("budget", f"perplexity +{report.max_perplexity:.2%}{limit}"),
            ("time", duration(report.seconds)),
        )
    )
    numbers = ("size", "perplexity", "[95 %]", "tokens/s", "speed")
    yield Table(("weights", *numbers, ""), [_candidate(c, report) for c in report.candidates], numbers)
    losses = [(group.group, f"{group.weights:,}", f"{group.loss:+.4f}") for group in report.sensitivities]
    yield Table(("4 bits in", "weights", "loss"), losses, ("weights", "loss"), when="full")


def _candidate(item: BundleCandidate, report: BundleQuantizeReport) -> tuple[str, ...]:
    return (
        item.plan,
        size(item.bytes),
        f"{item.ratio - 1:+.2%}",
        f"[{item.low - 1:+.2%}, {item.high - 1:+.2%}]",
        f"{item.tokens_per_second:.1f}",
        f"{item.tokens_per_second / report.tokens_per_second:.2f}x",
        "chosen" if item.chosen else "" if item.within_budget else "over budget",
    )


def generate(report: GenerateReport) -> Iterator[Part]:
    """How many tokens, how fast; the text itself has been written as it came."""
    speed = f", then {report.tokens_per_second:.1f} tokens/s" if report.tokens_per_second else ""
    first = f"first token after {duration(report.first_token_seconds)}"
    counted = f"{report.prompt_tokens} + {len(report.tokens)} tokens ({report.ended})"
    yield Verdict(f"{counted}; loaded in {duration(report.load_seconds)}, {first}{speed}")
