"""Calibration: text at the model's own probabilities, and the inputs of its products."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from onnxtool.generation.bundle import Bundle
from onnxtool.generation.decoder import Decoder
from onnxtool.generation.quantization.block_weights import products
from onnxtool.generation.quantization.calibration import input_moments, sampled_tokens
from onnxtool.generation.quantization.perplexity import divergence
from onnxtool.model import io


def test_the_model_predicts_its_own_text_better_than_others(bundle: Path) -> None:
    decoder = Decoder(Bundle.open(bundle))
    own = sampled_tokens(decoder, 8, 40)
    assert own.shape == (8, 40) and (own == sampled_tokens(decoder, 8, 40)).all()
    other = np.random.default_rng(5).integers(0, decoder.bundle.vocabulary, own.shape)
    losses = []
    for tokens in (own, other):
        decoder.start(40, 8)
        logits = decoder.run(tokens)[:, :-1].astype(np.float64)
        total = np.log(np.exp(logits).sum(-1))
        losses.append((total - np.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]).mean())
    assert losses[0] < losses[1] - 0.5


def test_moments_are_those_of_what_the_products_read(bundle: Path) -> None:
    opened = Bundle.open(bundle)
    names = [str(n.inputs[0].name) for n in products(io.load(opened.model)) if n.inputs[0] is not None]
    tokens = np.arange(30).reshape(2, 15)
    found = input_moments(opened, names, tokens)
    once = input_moments(opened, names[:1], tokens[:1])
    again = input_moments(opened, names[:1], tokens[1:])
    np.testing.assert_allclose(found[names[0]], once[names[0]] + again[names[0]], rtol=1e-4, atol=1e-3)
    assert found[names[-1]].shape == (64, 64) and (np.linalg.eigvalsh(found[names[-1]]) > -1e-2).all()


def test_the_divergence_is_zero_for_what_only_shifts() -> None:
    logits = np.random.default_rng(0).standard_normal((4, 9)).astype(np.float32)
    assert divergence(logits, logits + 3) < 1e-9
    sure = np.asarray([[20.0, 0.0]])
    assert abs(divergence(sure, np.zeros((1, 2))) - np.log(2)) < 1e-6
