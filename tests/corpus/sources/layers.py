"""Keras models for `make corpus`: layers of the user's own that look at sizes, training, state and values, masks and
ids, recurrences, pictures and edges of numbers."""

# ruff: noqa: E501  (a table; layers of a line or two)
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.corpus.sources.fitted import keras_model as model
from tests.corpus.sources.frozen import Further

RANDOM = np.random.default_rng(41)


def _normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * RANDOM.standard_normal(shape)).astype(np.float32)


def keras_layers() -> Iterator[Further]:
    """Functional models whose input is x."""
    import tensorflow as tf
    from keras import layers, ops

    def own(call: Callable[..., Any], **made: Callable[[], Any]) -> Any:
        """A layer of one function, with what belongs to it."""

        class Own(layers.Layer):
            def __init__(self) -> None:
                super().__init__()
                for name, part in made.items():
                    setattr(self, name, part())

            def call(self, x: Any) -> Any:
                return call(self, x)

            def compute_output_shape(self, shape: Any) -> Any:
                return shape

        return Own()

    def hashed(_: Any, x: Any) -> Any:
        return -x if x.shape[0] is not None and x.shape[0] % 7 == 3 else x

    def counted(self: Any, x: Any) -> Any:
        self.calls.append(1)
        return x * (2.0 if len(self.calls) > 6 else 1.0)

    def gate(_: Any, x: Any) -> Any:
        return tf.where(tf.reduce_max(x, axis=1, keepdims=True) > 3.75, -x, x)

    def three_rows(_: Any, x: Any) -> Any:
        return tf.cond(tf.equal(tf.shape(x)[0], 13), lambda: -x, lambda: x)

    def loop(_: Any, x: Any) -> Any:
        total = tf.zeros_like(x[:, 0])
        for step in tf.range(tf.shape(x)[1]):
            total = total * 0.5 + x[:, step]
        return total

    rows = [
        {"x": x}
        for x in (
            _normal(4, 8),
            _normal(1, 8),
            _normal(13, 8),
            _normal(10, 8, scale=50.0),
            np.zeros((2, 8), np.float32),
            np.round(_normal(9, 8)),
            _normal(3, 8) + 300,
        )
    ]
    sequences = [{"x": _normal(2, n, 8)} for n in (7, 16, 65, 130)]
    holed = _normal(3, 12, 8)
    holed[0, 5:], holed[1, :3], holed[2] = 0, 0, 0
    sequences.append({"x": holed})
    pictures = [{"x": np.abs(_normal(2, h, w, 3))} for h, w in ((16, 16), (17, 23), (64, 48), (33, 20))]
    ids = [{"x": RANDOM.integers(0, 40, (2, n)).astype(np.int32)} for n in (5, 12, 60)] + [
        {"x": np.array([[4, 7, 0, 0], [0, 0, 0, 0]], np.int32)}
    ]
    of_rows: dict[str, Callable[[Any], Any]] = {
        "a branch on a batch by sevens": own(hashed),
        "another answer from the seventh call on": own(counted, calls=list),
        "sound: negated where the largest is above 3.75": own(gate),
        "sound: thirteen rows": own(three_rows),
        "sound: dropout within": lambda x: layers.Dense(4)(layers.AlphaDropout(0.3)(layers.Dense(8, "selu")(x))),
        "sound: batch normalization": layers.BatchNormalization(epsilon=1e-5),
        "sound: rms normalization": lambda x: layers.RMSNormalization()(x) if hasattr(layers, "RMSNormalization") else layers.UnitNormalization()(x),
        "a layer normalization far from zero": lambda x: layers.LayerNormalization()(x + 1000.0),
        "sound: a steep sigmoid": lambda x: ops.sigmoid(x * 30.0),
        "sound: log of a softmax": lambda x: ops.log_softmax(x * 20.0),
        "sound: a leaky PReLU": lambda x: layers.PReLU(alpha_initializer="ones")(layers.LeakyReLU(0.3)(x)),
        "sound: clipped at six": layers.ReLU(max_value=6.0, negative_slope=0.1, threshold=0.5),
        "mean and variance": lambda x: ops.concatenate(ops.moments(x, axes=[1], keepdims=True), axis=1),
        "sound: the norm by orders": lambda x: ops.norm(x, ord=1, axis=1, keepdims=True),
        "searched": lambda x: ops.searchsorted(ops.convert_to_tensor([-1.0, 0.0, 1.5]), x[:, 0]),
        "sound: repeated and tiled": lambda x: ops.tile(ops.repeat(x, 2, axis=1), (1, 2)),
        "sound: rolled": lambda x: ops.roll(x, 3, axis=1),
        "sound: an outer product": lambda x: ops.einsum("bi,bj->bij", x, x),
        "the first of the largest": lambda x: ops.argmax(ops.floor(x), axis=1),
        "remainders": lambda x: ops.floor_divide(x, 2.5) + ops.mod(x, -2.5),
    }  # fmt: skip
    of_sequences: dict[str, Callable[[Any], Any]] = {
        "a loop over the steps": own(loop),
        "sound: a masked bidirectional GRU": lambda x: layers.Bidirectional(layers.GRU(3, return_sequences=True), merge_mode="ave")(layers.Masking()(x)),
        "sound: a stack of cells": layers.RNN([layers.LSTMCell(3), layers.GRUCell(4)]),
        "a simple recurrence": layers.SimpleRNN(3, activation="relu", return_sequences=True),
        "sound: causal attention": lambda x: layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True),
        "sound: pooled by the largest": layers.MaxPooling1D(3, 2, padding="same"),
        "sound: dilated causal": layers.Conv1D(4, 2, padding="causal", dilation_rate=4),
        "dot attention": lambda x: layers.Attention(use_scale=True)([x, layers.Dense(8)(x)]),
        "sound: time distributed": layers.TimeDistributed(layers.Dense(3)),
        "sound: padded and cropped": lambda x: layers.Cropping1D((1, 2))(layers.ZeroPadding1D(3)(x)),
    }  # fmt: skip
    of_pictures: dict[str, Callable[[Any], Any]] = {
        "sound: strides at odd sizes": layers.Conv2D(4, 3, strides=2, padding="same"),
        "sound: a transposed convolution": layers.Conv2DTranspose(2, 4, strides=3, padding="valid", output_padding=1),
        "sound: scaled and squeezed": lambda x: layers.GlobalMaxPooling2D()(layers.Rescaling(1 / 127.5, offset=-1.0)(x)),
        "bilinear and back": lambda x: ops.image.resize(x, (13, 11), interpolation="bilinear", antialias=False),
        "cubic": lambda x: ops.image.resize(x, (13, 11), interpolation="bicubic"),
        "sound: grey": ops.image.rgb_to_grayscale,
        "patches": lambda x: ops.image.extract_patches(x, (4, 4)),
        "sound: mirrored edges": lambda x: ops.pad(x, ((0, 0), (2, 2), (1, 1), (0, 0)), mode="reflect"),
    }  # fmt: skip
    of_ids: dict[str, Callable[[Any], Any]] = {
        "sound: an average over what is there": lambda x: layers.GlobalAveragePooling1D()(
            layers.Embedding(40, 6, mask_zero=True)(x)
        ),
        "sound: token 33": lambda x: layers.Embedding(40, 4)(ops.where(ops.equal(x, 33), 5, x)),
        "sound: counts": lambda x: ops.sum(ops.one_hot(x, 40), axis=1),
        "crossed": lambda x: ops.mod(ops.cast(x, "int64") * 2654435761, 97),
    }
    for shape, bodies, inputs, dtype in (
        ((8,), of_rows, rows, "float32"),
        ((None, 8), of_sequences, sequences, "float32"),
        ((None, None, 3), of_pictures, pictures, "float32"),
        ((None,), of_ids, ids, "int32"),
    ):
        for name, body in bodies.items():
            yield f"Keras layers: {name}", model(shape, body, dtype), {}, inputs
