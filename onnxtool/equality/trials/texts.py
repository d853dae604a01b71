"""Texts at which two models may part: words that the graphs know, others, joined ones, numbers written out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from onnxtool.equality.trials.changed_inputs import Changed
from onnxtool.equality.trials.graph_hints import GraphHints
from onnxtool.equality.trials.patterns import matching, nearly
from onnxtool.model.spec import TensorSpec
from onnxtool.report.trial_kind import TrialKind
from onnxtool.runtime.feeds import Feeds

_TEXTS = (
    ("unknown words", ("zzyzx", "qqq", "unseen", "Xylograph")),
    ("empty texts", ("", " ", "  ")),
    ("capitals and punctuation", ("ALPHA", "Alpha, beta!", "a-b", "it's")),
    ("accents", ("café", "naïve", "Ünïcödé", "Ελλάδα")),
    ("emoji", ("🙂", "👍🏽 ok", "日本語")),
)
_PARTS = ("alpha", "b", "", "12", "delta")  # of what is cut at a delimiter
_SAMPLES = 8  # texts of a pattern, at least
_MOST_PARTS, _KNOWN_PARTS = 9, 5


def text_values(
    specs: Sequence[TensorSpec], feeds: Feeds, facts: GraphHints, generator: np.random.Generator
) -> Iterator[Changed]:
    """Words of all kinds; those that the graph knows each at least once, as far as they fit into a few runs."""
    own = [s for s in specs if s.dtype == "string"]
    known = generator.permutation(np.array(facts.texts, dtype=object)) if own else np.zeros(0, object)
    place = 0
    for turn in range(16):
        if place >= len(known):
            break
        made = {}
        for spec in own:
            rows = np.size(feeds[spec.name])
            made[spec.name] = np.resize(known[place : place + rows], np.shape(feeds[spec.name]))
        place += np.size(feeds[own[0].name])
        yield f"known words{'' if turn == 0 else f', part {turn + 1}'}", TrialKind.TEXT, {**feeds, **made}
    for pattern in facts.patterns if own else ():
        texts = matching(pattern, generator, max(_SAMPLES, *(np.size(feeds[s.name]) for s in own)))
        for label, found in (("that match", texts), ("that nearly match", nearly(texts, generator))):
            drawn = np.array(found, dtype=object)
            if len(drawn):
                made = {s.name: np.resize(drawn, np.shape(feeds[s.name])) for s in own}
                yield f"texts {label} {pattern!r}", TrialKind.TEXT, {**feeds, **made}
    for gap in facts.delimiters:
        made = {}
        for spec in own:
            shape = np.shape(feeds[spec.name])
            counts = generator.integers(0, _MOST_PARTS, size=int(np.prod(shape)))
            words = np.array([*facts.texts[:_KNOWN_PARTS], *_PARTS], dtype=object)
            texts = [gap.join(generator.choice(words, count)) for count in counts.tolist()]
            made[spec.name] = np.array(texts, dtype=object).reshape(shape)
        if made:
            yield f"texts of several parts with {gap!r} between", TrialKind.TEXT, {**feeds, **made}
    for label, drawn_from in _TEXTS if own else ():
        made = {}
        for spec in own:
            old = np.asarray(feeds[spec.name], dtype=object)
            drawn = generator.choice(np.array(drawn_from, dtype=object), np.shape(old))
            made[spec.name] = np.where(generator.random(np.shape(old)) < 0.7, drawn, old)
        yield label, TrialKind.TEXT, {**feeds, **made}
