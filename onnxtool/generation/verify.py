"""Is a bundle as onnxtool wrote it, does it run, and do two generate the same?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from onnxtool.errors import InputError, OnnxToolError
from onnxtool.generation.bundle import Bundle, digests, history, recorded_files, source_digest, total
from onnxtool.generation.decoder import Decoder, greedy
from onnxtool.generation.proof import CHATS, PROMPTS, endless_text
from onnxtool.generation.quantization.perplexity import load_text, perplexity, ratio
from onnxtool.generation.tokenizer import BundleTokenizer
from onnxtool.lint.catalog import rule
from onnxtool.options.shared import Effort
from onnxtool.report.bundle.compare import BundleCompareReport, PromptComparison
from onnxtool.report.check import CheckReport, Stage
from onnxtool.report.verify import VerifyReport
from onnxtool.runtime.session.session import SessionOptions

_TOKENS = 64
_QUICK_TEXT = 2000  # characters
BUNDLE_RTOL = 1e-3  # of the logits, as a share of the largest


def verify_bundle(folder: str | Path, *, source: Path | None = None) -> VerifyReport:
    """Hold a bundle's files, and a source where one is given, against the digests in its provenance.

    Raises:
        InputError: not a bundle, or one that onnxtool did not write.
    """
    folder = Bundle.open(folder).folder
    recorded, actual = recorded_files(folder), digests(folder)
    steps = history(folder)
    digest = step = None
    if source is not None:
        if not source.exists():
            raise InputError(f"{source}: no such file or folder.")
        digest = source_digest(source)
        step = next((str(s.get("command")) for s in steps if s.get("source_sha256") == digest), None)
    return VerifyReport(
        model=str(folder),
        recorded=total(recorded),
        actual=total(actual),
        external=tuple(recorded),
        history=tuple(steps),
        source=None if source is None else str(source),
        source_sha256=digest,
        source_step=step,
    )


def with_generation(report: CheckReport, folder: Path) -> CheckReport:
    """A check of a bundle's model, with one more stage: tokenizer, chat template, and a few tokens with the cache.

    Raises:
        InputError: not a bundle.
    """
    bundle = Bundle.open(folder)
    detail, findings = "", list(report.findings)
    try:
        tokenizer = BundleTokenizer(bundle.folder)
        decoder = Decoder(bundle, SessionOptions(threads=1))
        ids = tokenizer.encode(PROMPTS[1])[:64]
        decoder.start(min(bundle.context, len(ids) + 4))
        decoder.run(ids)
        for token in range(3):
            decoder.run(np.asarray([token]))
        if tokenizer.chat_template is not None:
            tokenizer.chat(CHATS[0])
        wrong = [e for e in bundle.eos if not 0 <= e < bundle.vocabulary]
        if wrong or not bundle.eos:
            raise InputError(f"a text ends at the tokens {list(bundle.eos)}, of {bundle.vocabulary}.")
        state, detail = "passed", "tokenizer, chat template, a prompt and three steps with the cache"
        warning = endless_text(bundle, tokenizer)
        if warning:
            state = "warned"
            findings.append(rule("OT112").finding(warning, ""))
    except OnnxToolError as error:
        state = "failed"
        findings.append(rule("OT111").finding(str(error), ""))
    stage = Stage("generation", state, 0.0, detail)
    return replace(report, stages=(*report.stages, stage), findings=tuple(findings))


def compare_bundles(
    a: str | Path,
    b: str | Path,
    *,
    eval_text: Path | None = None,
    rtol: float = BUNDLE_RTOL,
    effort: Effort = "normal",
) -> BundleCompareReport:
    """Let both follow the first one's greedy answers, and hold logits, tokens and perplexity beside one another; the
    perplexity of effort "quick" is that of a short text.

    Raises:
        InputError: not bundles, or of other vocabularies.
    """
    first, second = Bundle.open(a), Bundle.open(b)
    if first.vocabulary != second.vocabulary:
        raise InputError(f"{b}: has {second.vocabulary} tokens, {a} has {first.vocabulary}.")
    tokenizer = BundleTokenizer(first.folder)
    left, right = Decoder(first), Decoder(second)
    prompts = tuple(follow(left, right, tokenizer.encode(p)) for p in PROMPTS)
    name, text = load_text(eval_text)
    text = text[:_QUICK_TEXT] if effort == "quick" else text
    perplexities = [perplexity(d, tokenizer, name, text) for d in (left, right)]
    return BundleCompareReport(
        a=str(a),
        b=str(b),
        rtol=rtol,
        prompts=prompts,
        perplexities=(perplexities[0][0], perplexities[1][0]),
        ratio=ratio(perplexities[1][1], perplexities[0][1]),
    )


def follow(left: Decoder, right: Decoder, ids: np.ndarray) -> PromptComparison:
    """Let one decoder continue a prompt greedily and the other follow; both lose what is in their caches.

    Args:
        left: what chooses the tokens.
        right: what is held against it, of the same vocabulary.
        ids: the prompt, int64 [tokens].
    """
    context = min(left.bundle.context, right.bundle.context)
    ids = ids[: max(1, context - _TOKENS)] if len(ids) else np.asarray([0])
    tokens = min(_TOKENS, context - len(ids))
    (own,), (answer,) = greedy(left, ids[None], tokens)
    right.start(len(ids) + tokens)
    other = right.run(np.concatenate([ids, answer[:-1]]))[len(ids) - 1 :]
    error = float(np.abs(own - other).max()) / (float(np.abs(own).max()) or 1.0)
    return PromptComparison(len(ids), tokens, int((other.argmax(-1) == answer).sum()), error)
