"""Does a bundle generate what its source generates? Logits, tokens, text, end of text, cache."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np

from onnxtool import progress
from onnxtool.generation.bundle import Bundle
from onnxtool.generation.decoder import Decoder
from onnxtool.generation.reference import Reference
from onnxtool.generation.sampling import Sampler, Sampling
from onnxtool.generation.tokenizer import BundleTokenizer, Message
from onnxtool.report.bundle import PromptProof, RuntimeProof, TextProof

NEW_TOKENS = 64
# Continued by the model: one token alone, a sentence, a paragraph with figures and code, something long.
PROMPTS = (
    "The",
    "The capital of France is Paris, and the capital of Italy is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) +",
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


def prove_tokens(decoder: Decoder, reference: Reference, tokens: int = NEW_TOKENS) -> list[PromptProof]:
    """Continue each prompt greedily, and let the source judge every step.

    The source sees the prompt with the bundle's whole answer at once: its most probable token after every prefix is
    what its own greedy search would have chosen there, so that one pass of it proves all steps.

    Args:
        decoder: the bundle's.
        reference: the source.
        tokens: new tokens for each prompt; fewer where the context ends before.
    """
    proofs = []
    with progress.task("comparing tokens", len(PROMPTS)) as task:
        for prompt in PROMPTS:
            ids = reference.encode(prompt) or [0]
            room = decoder.bundle.context - tokens
            proofs.append(_prove_prompt(decoder, reference, ids[: max(1, room)], tokens))
            task.advance()
    return proofs


def _prove_prompt(decoder: Decoder, reference: Reference, ids: list[int], tokens: int) -> PromptProof:
    tokens = min(tokens, decoder.bundle.context - len(ids))
    greedy = Sampler(Sampling())
    decoder.start(len(ids) + tokens)
    first = decoder.run(np.asarray(ids))
    steps = [first[-1]]
    answer: list[int] = []
    for _ in range(tokens):
        answer.append(greedy.next(steps[-1]))
        if len(answer) < tokens:
            steps.append(decoder.run(np.asarray(answer[-1:]))[-1])
    everything = np.asarray(ids + answer[:-1])
    expected = reference.logits(everything.tolist())[:, : first.shape[-1]]
    scale = float(np.abs(expected).max()) or 1.0
    whole = _fresh(decoder, [everything])
    half = max(1, len(everything) // 2)
    chunked = _fresh(decoder, [everything[:half], everything[half:]])
    stepped = np.stack(steps)
    wanted = expected[len(ids) - 1 :]
    equal = wanted.argmax(-1) == np.asarray(answer)
    undecided = wanted.max(-1) - np.take_along_axis(wanted, np.asarray(answer)[:, None], -1)[:, 0] <= 1e-5 * scale
    return PromptProof(
        prompt_tokens=len(ids),
        tokens=tokens,
        equal=int(equal.sum()),
        undecided=int((undecided & ~equal).sum()),
        prefill_error=_error(whole, expected, scale),
        step_error=_error(stepped, wanted, scale),
        chunk_error=_error(chunked, expected, scale),
        cache_error=_error(stepped, whole[len(ids) - 1 :], scale),
    )


def _fresh(decoder: Decoder, parts: Sequence[np.ndarray]) -> np.ndarray:
    """Logits of all tokens, given in parts to an empty cache."""
    decoder.start(sum(map(len, parts)))
    return np.concatenate([decoder.run(p) for p in parts if len(p)])


def _error(actual: np.ndarray, expected: np.ndarray, scale: float) -> float:
    difference = float(np.abs(actual - expected).max()) / scale
    return difference if np.isfinite(difference) else float("inf")


def prove_text(bundle: Bundle, tokenizer: BundleTokenizer, reference: Reference) -> TextProof:
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


def prove_runtime(decoder: Decoder, ids: Sequence[int], tokens: int = NEW_TOKENS) -> RuntimeProof | None:
    """Continue one prompt in the onnxruntime-genai runtime, until the end of text; None where it is not installed."""
    if find_spec("onnxruntime_genai") is None:
        return None
    bundle = decoder.bundle
    tokens = min(tokens, bundle.context - len(ids))
    decoder.start(len(ids) + tokens)
    logits = decoder.run(np.asarray(ids))[-1]
    own: list[int] = []
    while len(own) < tokens and (not own or own[-1] not in bundle.eos):
        own.append(int(logits.argmax()))
        if len(own) < tokens:
            logits = decoder.run(np.asarray(own[-1:]))[-1]
    try:
        other = runtime_tokens(bundle, ids, tokens)
    except Exception as error:
        return RuntimeProof(len(own), 0, False, " ".join(str(error).split())[:200])
    equal = sum(a == b for a, b in zip(own, other, strict=False))
    return RuntimeProof(len(own), equal, len(own) == len(other))


def runtime_tokens(bundle: Bundle, ids: Sequence[int], tokens: int) -> list[int]:
    """New tokens of the onnxruntime-genai runtime, greedily, with the one that ends the text."""
    import onnxruntime_genai as genai

    model = genai.Model(str(bundle.folder))
    settings = genai.GeneratorParams(model)
    settings.set_search_options(max_length=len(ids) + tokens, do_sample=False, repetition_penalty=1.0)
    generator = genai.Generator(model, settings)
    generator.append_tokens(np.asarray(ids, np.int32))
    found: list[int] = []
    while not generator.is_done():
        generator.generate_next_token()
        found.append(int(generator.get_next_tokens()[0]))  # its sequence leaves out the token that ends the text
    return found
