"""Generating text: sampling, stop texts, ends, streaming."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxtool.errors import InputError, UsageError
from onnxtool.generation.bundle import Bundle
from onnxtool.generation.generate import TextStream, generate
from onnxtool.generation.sampling import Sampler, Sampling
from onnxtool.generation.tokenizer import BundleTokenizer


def test_greedy_takes_the_most_probable_token() -> None:
    assert Sampler(Sampling()).next(np.asarray([0.0, 3.0, 1.0], np.float32)) == 1


def test_draws_follow_temperature_and_top_p() -> None:
    logits = np.log(np.asarray([0.6, 0.3, 0.1], np.float32))
    drawn = Sampler(Sampling(1.0, seed=1))
    counts = np.bincount([drawn.next(logits) for _ in range(4000)], minlength=3) / 4000
    assert np.allclose(counts, [0.6, 0.3, 0.1], atol=0.03)
    two = Sampler(Sampling(1.0, top_p=0.85, seed=1))
    assert {two.next(logits) for _ in range(300)} == {0, 1}
    one = Sampler(Sampling(1.0, top_k=1, seed=1))
    assert {one.next(logits) for _ in range(50)} == {0}


def test_the_seed_decides(bundle: Path) -> None:
    first, again = (generate(bundle, prompt="the", max_tokens=12, sampling=Sampling(1.0, seed=5)) for _ in range(2))
    other = generate(bundle, prompt="the", max_tokens=12, sampling=Sampling(1.0, seed=6))
    assert first.tokens == again.tokens != other.tokens


def test_text_is_written_as_it_comes(bundle: Path) -> None:
    pieces: list[str] = []
    report = generate(bundle, prompt="the quick", max_tokens=12, write=pieces.append)
    assert "".join(pieces) == report.text and len(pieces) > 3
    assert report.ended in ("max tokens", "end of text")


def test_a_text_ends_at_the_token_that_ends_texts(bundle: Path, tmp_path: Path) -> None:
    import json
    import shutil

    plain = generate(bundle, prompt="the quick", max_tokens=8)
    copy = shutil.copytree(bundle, tmp_path / "copy")
    config = json.loads((copy / "genai_config.json").read_text())
    config["model"]["eos_token_id"] = [plain.tokens[3]]
    (copy / "genai_config.json").write_text(json.dumps(config))
    report = generate(copy, prompt="the quick", max_tokens=8)
    assert report.ended == "end of text"
    assert report.tokens == plain.tokens[: plain.tokens.index(plain.tokens[3])]


def test_a_stop_text_is_held_back_and_left_out(bundle: Path) -> None:
    tokenizer = BundleTokenizer(bundle)
    pieces: list[str] = []
    stream = TextStream(tokenizer, ["lazy dog"], pieces.append)
    for token in tokenizer.encode("the lazy fox; a lazy dog sleeps").tolist():
        if stream.add(token) is not None:
            break
    assert stream.finish() == "the lazy fox; a "
    assert "".join(pieces) == "the lazy fox; a "


def test_half_a_character_is_not_written(bundle: Path) -> None:
    tokenizer = BundleTokenizer(bundle)
    pieces: list[str] = []
    stream = TextStream(tokenizer, [], pieces.append)
    for token in tokenizer.encode("é京").tolist():
        stream.add(token)
    assert [p for p in pieces if p] == ["é", "京"]


def test_a_prompt_longer_than_the_context_is_one_line(bundle: Path) -> None:
    with pytest.raises(InputError, match="its context 256"):
        generate(bundle, prompt="the quick brown fox " * 100)


def test_a_text_stops_at_the_context(bundle: Path) -> None:
    prompt = BundleTokenizer(bundle).decode([40] * 250)
    report = generate(bundle, prompt=prompt, max_tokens=50)
    assert report.ended in ("context", "end of text")
    assert report.prompt_tokens + len(report.tokens) <= Bundle.open(bundle).context


def test_needs_a_prompt_or_a_chat(bundle: Path) -> None:
    with pytest.raises(UsageError):
        generate(bundle)
