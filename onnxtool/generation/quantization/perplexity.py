"""How well a decoder predicts a text, with an interval, and how much worse than another one."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from onnxtool import progress
from onnxtool.bundled_data import bundled_folder
from onnxtool.errors import InputError
from onnxtool.generation.decoder import Decoder
from onnxtool.generation.tokenizer import BundleTokenizer
from onnxtool.report.bundle.convert import Perplexity
from onnxtool.runtime.timing.timing import student_quantile

_BUNDLED, _KINDS = "prose.txt", "kinds.txt"
_LEAST_PARAGRAPHS = 8
_WINDOW = 256  # tokens that are predicted from one another
MOST_TOKENS = 8192
_MAX_BYTES = 1 << 24


def load_text(path: Path | None) -> tuple[str, str]:
    """Name and content of the text to measure on; None for the bundled one, whose authors died before 1900.

    Raises:
        InputError: missing, too large or not UTF-8.
    """
    if path is None:
        return "bundled prose", (bundled_folder() / _BUNDLED).read_text(encoding="utf-8")
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path}: larger than 16 MB; a part of it will do.")
        return path.name, path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}).") from error


def load_split_text(path: Path | None) -> tuple[tuple[str, str], tuple[str, str]]:
    """Name and content of a text that chooses between candidates, and of one that gives the verdict on the choice.

    Every other paragraph each, so that both have all kinds of text: of the bundled ones prose, dialogue, code, and two
    other languages.

    Raises:
        InputError: as `load_text`.
    """
    name, text = load_text(path)
    if path is None:
        name, text = "bundled texts", text + "\n\n" + (bundled_folder() / _KINDS).read_text(encoding="utf-8")
    mark = "\n\n" if text.count("\n\n") >= _LEAST_PARAGRAPHS else "\n"
    parts = text.split(mark)
    if len(parts) < 2:
        parts = [text[: len(text) // 2], text[len(text) // 2 :]]
    choosing, judging = mark.join(parts[::2]), mark.join(parts[1::2])
    return (f"{name}, every other paragraph", choosing), (f"{name}, the other paragraphs", judging)


def perplexity(
    decoder: Decoder, tokenizer: BundleTokenizer, name: str, text: str, *, tokens: int = MOST_TOKENS
) -> tuple[Perplexity, np.ndarray]:
    """Perplexity on a text, in windows that begin anew.

    Args:
        decoder: its cache is emptied.
        tokenizer: the bundle's.
        name: what the text is called in the report.
        text: what is predicted.
        tokens: at most so many of its tokens.

    Returns:
        The figure, and the negative log-likelihood of each predicted token (float64), for `ratio`.

    Raises:
        InputError: the text is shorter than two tokens.
    """
    ids = tokenizer.encode(text, special=False)[:tokens]
    window = min(_WINDOW, decoder.bundle.context)
    pieces = [ids[i : i + window] for i in range(0, len(ids), window)]
    pieces = [p for p in pieces if len(p) > 1]
    if not pieces:
        raise InputError(f"{name}: a text of {len(ids)} tokens is too short to measure on.")
    losses = []
    with progress.task("measuring perplexity", len(pieces)) as task:
        for piece in pieces:
            decoder.start(len(piece))
            losses.append(_losses(decoder.run(piece)[:-1], piece[1:]))
            task.advance()
    every = np.concatenate(losses)
    mean = float(every.mean())
    spread = _half_width(every)
    return Perplexity(name, every.size, _exp(mean), _exp(mean - spread), _exp(mean + spread)), every


def ratio(losses: np.ndarray, reference: np.ndarray) -> tuple[float, float, float]:
    """How many times the perplexity of another model on the same tokens, with its 95 % interval.

    The tokens are paired: what is hard for one model is hard for the other, so that the interval of the ratio is much
    narrower than those of the two figures.
    """
    difference = losses - reference
    mean, spread = float(difference.mean()), _half_width(difference)
    return _exp(mean), _exp(mean - spread), _exp(mean + spread)


def divergence(reference: np.ndarray, logits: np.ndarray) -> float:
    """Mean Kullback-Leibler divergence of the predictions from the reference's, in nats; both [tokens, vocabulary].

    It tells small changes apart on far fewer tokens than perplexity does: it has no part of chance in it.
    """
    total = 0.0
    for expected, actual in zip(reference, logits, strict=True):
        wanted, found = (v.astype(np.float64) - v.max() for v in (expected, actual))
        wanted -= np.log(np.exp(wanted).sum())
        found -= np.log(np.exp(found).sum())
        total += float((np.exp(wanted) * (wanted - found)).sum())
    return max(total, 0.0) / len(reference)


def _losses(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Negative log-likelihood of each target, float64 [tokens]."""
    values = logits.astype(np.float64)
    top = values.max(axis=-1, keepdims=True)
    total = np.log(np.exp(values - top).sum(axis=-1)) + top[:, 0]
    return np.asarray(total - values[np.arange(len(targets)), targets])


def _half_width(values: np.ndarray) -> float:
    """Of the mean's 95 % interval, from the means of windows: neighbouring tokens are not independent."""
    groups = np.array_split(values, max(2, min(64, values.size // 32)))
    means = np.asarray([g.mean() for g in groups if g.size])
    if len(means) < 2:
        return 0.0
    return student_quantile(0.975, len(means) - 1) * float(means.std(ddof=1)) / math.sqrt(len(means))


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0)) if math.isfinite(value) else float("inf")
