"""Does a bundle generate what its source generates? Logits, tokens, text, end of text, cache."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from onnxtool import progress
from onnxtool.errors import OnnxToolError, one_line
from onnxtool.generation.bundle import Bundle
from onnxtool.generation.decoder import Decoder, greedy
from onnxtool.generation.quantization.perplexity import load_text
from onnxtool.generation.reference import SourceGenerator
from onnxtool.generation.tokenizer import BundleTokenizer, Message
from onnxtool.report.bundle.convert import PromptProof, RuntimeProof, TextProof

NEW_TOKENS = 64
_STEPS = 3  # tokens of a text that are given one by one
_COMPARED = 256  # of the last tokens of a text: all logits of a long one may not fit into memory
_BEYOND = 40  # tokens behind the end of a window of attention
_MOST_READ = 8192
# The first is a token alone; the others are continued by the model, cut to the length of the shortest: a sentence,
# code, figures, a story.
PROMPTS = (
    "The",
    "The capital of France is Paris, and the capital of Italy is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) +",
    "Shopping list:\n1. 2 kg of potatoes, 3.50\n2. 12 eggs, 4.20\n3. bread, 2.95\n4.",
    "Once upon a time there was a small village between two rivers. In spring the water rose, and the people carried "
    "their goods up the hill, where 12 families had built a hall of oak and stone. Nobody remembered who had laid the "
    "first stone; the oldest woman of the village, who was 93, said that her grandmother had asked the same question. "
    "One evening a stranger came down the road with a lamp in her hand and",
)
TEXTS = (
    *PROMPTS,
    "",
    "  two spaces, a\ttab\n\nand lines  ",
    "Zürich, naïve café, 東京 and Ελλάδα, 🙂👩‍🚀!",
    "1234567890 3.14159 x_1 += [a] {b} <c> \\d+",
)
CHATS: tuple[tuple[Message, ...], ...] = (
    ({"role": "user", "content": "What is the capital of France?"},),
    ({"role": "system", "content": "Answer in one word."}, {"role": "user", "content": "Is water wet?"}),
    (
        {"role": "user", "content": "Count to three."},
        {"role": "assistant", "content": "One, two, three."},
        {"role": "user", "content": " Once more,\nplease: <b>&amp;"},
    ),
)


def prove_tokens(decoder: Decoder, reference: SourceGenerator, tokens: int = NEW_TOKENS) -> list[PromptProof]:
    """Continue prompts greedily, and read texts of several lengths; let the source judge every step.

    The source sees a prompt with the bundle's whole answer at once: its most probable token after every prefix is what
    its own greedy search would have chosen there, so that one pass of it proves all steps. The prompts are continued
    side by side, which reads the weights once for all of them. Where attention ends at a window, or positions are
    scaled otherwise from some length on, one of the texts is longer than that.

    Args:
        decoder: the bundle's.
        reference: the source.
        tokens: new tokens for each prompt; fewer where the context ends before.
    """
    context = decoder.bundle.context
    prompts = [reference.encode(p) or [0] for p in PROMPTS[1:]]
    together = max(1, min(*map(len, prompts), context - tokens))
    lengths = _lengths(context, reference)
    text = reference.encode(load_text(None)[1], special=False) or [0]
    text = (text * (1 + max(lengths) // len(text)))[: max(lengths)]
    with progress.task("comparing tokens", 1 + len(lengths)) as task:
        proofs = _continued(decoder, reference, np.asarray([p[:together] for p in prompts]), min(tokens, context - 1))
        task.advance()
        for length in lengths:
            proofs.append(_read(decoder, reference, text[:length]))
            task.advance()
    return proofs


def _lengths(context: int, reference: SourceGenerator) -> list[int]:
    """Of the texts that are read: a few tokens, an odd number, many, more than a window of attention."""
    lengths = {min(n, context) for n in (2, 47, 130)}
    special = reference.special_length
    if special is not None and special + _BEYOND < min(context, _MOST_READ):
        lengths.add(special + _BEYOND)
    return sorted(lengths)


def _continued(decoder: Decoder, reference: SourceGenerator, prompts: np.ndarray, tokens: int) -> list[PromptProof]:
    """Greedy answers to [prompts, length] of tokens."""
    try:
        steps, answers = greedy(decoder, prompts, tokens)
    except OnnxToolError:  # made for one sequence at a time
        alone = [greedy(decoder, p[None], tokens) for p in prompts]
        steps, answers = (np.concatenate(parts) for parts in zip(*alone, strict=True))
    everything = np.concatenate([prompts, answers[:, :-1]], axis=1)
    expected = reference.batch_logits(everything)[..., : steps.shape[-1]]
    half = everything.shape[1] // 2 + 1
    proofs = []
    for each, prompt in enumerate(prompts):
        decoder.start(everything.shape[1])
        first = decoder.run(everything[each, :half])
        parts = np.concatenate([first, decoder.run(everything[each, half:])]) if half < everything.shape[1] else first
        proofs.append(token_proof(prompt.size, expected[each], first, steps[each], parts, answers[each]))
    return proofs


def _read(decoder: Decoder, reference: SourceGenerator, text: list[int]) -> PromptProof:
    """A text at once, in two parts, and its last tokens one by one; of long ones, only the last logits are compared."""
    ids = np.asarray(text)
    steps = min(_STEPS, ids.size - 1)
    kept = min(ids.size, _COMPARED)
    wanted = reference.logits(text, last=kept)
    head = ids.size - steps
    parts = [ids[:head], *(ids[i : i + 1] for i in range(head, ids.size))]
    stepped = _last(decoder, parts, steps + 1)
    whole = _last(decoder, [ids], kept)
    half = ids.size // 2 + 1
    wanted = wanted[:, : whole.shape[-1]]
    chunked = _last(decoder, [ids[:half], ids[half:]], kept)
    return token_proof(head, wanted, whole, stepped, chunked, stepped.argmax(-1))


def token_proof(
    prompt: int, wanted: np.ndarray, whole: np.ndarray, stepped: np.ndarray, chunked: np.ndarray, answer: np.ndarray
) -> PromptProof:
    """What two ways to compute logits have in common with the source's, for the tokens that end a text.

    Args:
        prompt: tokens before the first that is judged.
        wanted: the source's logits, float32 [tokens, vocabulary].
        whole: of one pass, for the first tokens of `wanted`.
        stepped: of single steps, for the last tokens of `wanted`.
        chunked: of several tokens on top of a cache, for all of `wanted`.
        answer: int64 tokens that were chosen after each step.
    """
    scale = float(np.abs(wanted).max()) or 1.0
    last = wanted[-len(stepped) :]
    equal = last.argmax(-1) == answer
    undecided = last.max(-1) - np.take_along_axis(last, answer[:, None], -1)[:, 0] <= 1e-5 * scale
    return PromptProof(
        prompt_tokens=prompt,
        tokens=len(answer),
        equal=int(equal.sum()),
        undecided=int((undecided & ~equal).sum()),
        prefill_error=_error(whole, wanted[: len(whole)], scale),
        step_error=_error(stepped, last, scale),
        chunk_error=_error(chunked, wanted, scale),
        cache_error=_error(stepped, chunked[-len(stepped) :], scale),
    )


def _last(decoder: Decoder, parts: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Logits of the last `count` tokens, given in parts to an empty cache."""
    decoder.start(sum(map(len, parts)))
    found: list[np.ndarray] = []
    for part in parts:
        if len(part):
            found = [*found, decoder.run(part)][-count:]
    return np.concatenate(found)[-count:]


def _error(actual: np.ndarray, expected: np.ndarray, scale: float) -> float:
    difference = float(np.abs(actual - expected).max()) / scale
    return difference if np.isfinite(difference) else float("inf")


def prove_text(bundle: Bundle, tokenizer: BundleTokenizer, reference: SourceGenerator) -> TextProof:
    """Hold tokenizer, chat template and the tokens that end a text against the source's."""
    faults = []
    for text in TEXTS:
        for special in (True, False):
            ids = tokenizer.encode(text, special=special).tolist()
            if ids != reference.encode(text, special=special):
                faults.append(f"the tokenizer gives other tokens for {text[:40]!r}")
    rendered = 0
    for chat in CHATS:
        for answer in (True, False):
            expected = reference.chat(chat, answer=answer)
            if expected is None:
                continue
            rendered += 1
            actual = tokenizer.chat(chat, answer=answer)
            if actual != expected:
                faults.append(f"the chat template gives another text for a chat of {len(chat)} messages")
    if set(bundle.eos) != set(reference.eos):
        faults.append(f"a text ends at the tokens {sorted(bundle.eos)}, the source's at {sorted(reference.eos)}")
    return TextProof(len(TEXTS), rendered, bundle.eos, tuple(dict.fromkeys(faults)))


def endless_text(bundle: Bundle, tokenizer: BundleTokenizer) -> str | None:
    """A warning where the token with which the chat template ends an answer does not end a text."""
    if tokenizer.chat_template is None:
        return None
    content = "Yes."
    chat = [{"role": "user", "content": "Yes?"}, {"role": "assistant", "content": content}]
    text = tokenizer.chat(chat, answer=False)
    rest = tokenizer.encode(text[text.rfind(content) + len(content) :], special=False).tolist()
    if not rest or any(token in bundle.eos for token in rest):
        return None
    return (
        f"the chat template ends an answer with {tokenizer.token(rest[0])!r}, which is not one of the tokens that end "
        "a text: answers may go on until --max-tokens. The source has the same fault (its generation_config.json)."
    )


def prove_runtime(decoder: Decoder, ids: Sequence[int]) -> RuntimeProof | None:
    """Continue one prompt in the onnxruntime-genai runtime, until the end of text; None where it is not installed."""
    if find_spec("onnxruntime_genai") is None:
        return None
    bundle = decoder.bundle
    tokens = min(NEW_TOKENS, bundle.context - len(ids))
    answer = greedy(decoder, np.asarray([ids]), tokens)[1][0, :tokens]
    ends = np.flatnonzero(np.isin(answer, bundle.eos))
    own = answer[: ends[0] + 1].tolist() if ends.size else answer.tolist()
    try:
        other = runtime_tokens(bundle, ids, tokens, decoder.adapter)
    except Exception as error:
        return RuntimeProof(len(own), 0, False, one_line(error, 200))
    equal = sum(a == b for a, b in zip(own, other, strict=False))
    return RuntimeProof(len(own), equal, len(own) == len(other))


def runtime_tokens(bundle: Bundle, ids: Sequence[int], tokens: int, adapter: Path | None = None) -> list[int]:
    """New tokens of the onnxruntime-genai runtime, greedily, with the one that ends the text."""
    import onnxruntime_genai as genai

    model = genai.Model(str(bundle.folder))
    settings = genai.GeneratorParams(model)
    settings.set_search_options(max_length=len(ids) + tokens, do_sample=False, repetition_penalty=1.0)
    generator = genai.Generator(model, settings)
    if adapter is not None:
        adapters = genai.Adapters(model)
        adapters.load(str(adapter), adapter.name)
        generator.set_active_adapter(adapters, adapter.name)
    generator.append_tokens(np.asarray(ids, np.int32))
    found: list[int] = []
    while not generator.is_done():
        generator.generate_next_token()
        found.append(int(generator.get_next_tokens()[0]))  # its sequence leaves out the token that ends the text
    return found
