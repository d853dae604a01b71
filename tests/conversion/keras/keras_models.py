"""Keras models, one for each family of layers, small and with random weights. Names and sizes are part of tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import Input, Model, Sequential, ops
from keras import layers as L

_ACTIVATION_NAMES = """
    relu relu6 elu selu gelu silu softplus softsign sigmoid hard_sigmoid hard_silu tanh exponential leaky_relu mish
    log_softmax softmax celu glu sparse_plus hard_tanh tanh_shrink squareplus
"""
ACTIVATIONS = _ACTIVATION_NAMES.split()


@keras.saving.register_keras_serializable("tests")
class Subclassed(Model):
    """Two dense layers in a class of its own."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.first, self.second = L.Dense(8, activation="gelu"), L.Dense(3)

    def call(self, x: Any) -> Any:
        return self.second(self.first(x))


def stack(*layers: Any) -> Any:
    return Sequential(list(layers))


def subclassed() -> Any:
    model = Subclassed(name="subclassed")
    model(ops.zeros((2, 6)))
    return model


def residual() -> Any:
    image = Input((16, 16, 3), name="image")
    y = L.Conv2D(8, 3, padding="same", strides=2)(image)
    y = L.Add()([y, L.Conv2D(8, 3, padding="same")(y)])
    return Model(image, L.Dense(4, name="scores")(L.GlobalAveragePooling2D()(y)))


def lstm_states() -> Any:
    steps = Input((None, 4), name="steps")
    sequence, hidden, cell = L.LSTM(5, return_state=True, return_sequences=True)(steps)
    named = (("sequence", sequence), ("hidden", hidden), ("cell", cell))
    return Model(steps, [L.Identity(name=n)(t) for n, t in named])


def attention(causal: bool = False) -> Any:
    steps = Input((None, 12), name="steps")
    y = L.MultiHeadAttention(3, 4)(steps, steps, use_causal_mask=causal)
    y = L.LayerNormalization()(L.Add()([steps, y]))
    return Model(steps, L.Dense(2, name="out")(y))


def dot_attention() -> Any:
    query, value = Input((None, 8), name="query"), Input((None, 8), name="value")
    return Model([query, value], L.Attention(use_scale=True, name="attended")([query, value]))


def grouped_attention() -> Any:
    steps = Input((None, 16), name="steps")
    return Model(steps, L.GroupQueryAttention(4, 4, 2, name="attended")(steps, steps))


def transformer() -> Any:
    tokens = Input((12,), dtype="int64", name="tokens")
    x = L.Embedding(60, 16)(tokens) + L.Embedding(12, 16)(ops.arange(12))
    x = L.LayerNormalization(epsilon=1e-6)(x + L.MultiHeadAttention(4, 4)(x, x))
    x = L.LayerNormalization()(x + L.Dense(16)(L.Dense(32, activation="gelu")(x)))
    return Model(tokens, L.Dense(60, name="logits")(x))


def resize() -> Any:
    image = Input((8, 8, 3), name="image")
    ways = {
        "bilinear": L.UpSampling2D(2, interpolation="bilinear")(image),
        "nearest": L.UpSampling2D(2)(image),
        "bicubic": L.Resizing(16, 16, interpolation="bicubic")(image),
    }
    return Model(image, [L.Identity(name=n)(t) for n, t in ways.items()])


def transposed() -> Any:
    image = Input((8, 8, 3), name="image")
    y = L.Conv2DTranspose(6, 3, strides=2, padding="same", activation="relu")(image)
    y = L.Conv2DTranspose(4, 4, strides=2)(y)
    return Model(image, L.Activation("tanh", name="picture")(y))


def depthwise() -> Any:
    return stack(
        Input((16, 16, 4), name="image"),
        L.DepthwiseConv2D(3, padding="same", depth_multiplier=2, strides=2),
        L.SeparableConv2D(8, 3, activation="swish", dilation_rate=2, padding="same"),
        L.GlobalMaxPooling2D(),
        L.Dense(3, name="out"),
    )


def signal() -> Any:
    return stack(
        Input((None, 4), name="signal"),
        L.ZeroPadding1D(2),
        L.Conv1D(8, 3, dilation_rate=2, padding="causal"),
        L.LeakyReLU(),
        L.SeparableConv1D(6, 3),
        L.MaxPooling1D(2),
        L.AveragePooling1D(2, padding="same"),
        L.GlobalMaxPooling1D(),
        L.Dense(2, name="out"),
    )


def volume() -> Any:
    return stack(
        Input((6, 8, 8, 2), name="volume"),
        L.Conv3D(4, 3, padding="same"),
        L.MaxPooling3D(),
        L.Conv3DTranspose(3, 2, strides=2),
        L.GlobalAveragePooling3D(),
        L.Dense(2, name="out"),
    )


def several() -> Any:
    left, right = Input((4,), name="left"), Input((6,), name="right")
    both = L.Concatenate()([L.Dense(5)(left), L.Dense(5)(right)])
    return Model([left, right], [L.Dense(2, name="first")(both), L.Dense(3, name="second")(both)])


def dictionaries() -> Any:
    left, right = Input((4,), name="left"), Input((6,), name="right")
    both = L.Concatenate()([L.Dense(5)(left), L.Dense(5)(right)])
    return Model({"right": right, "left": left}, {"second": L.Dense(3)(both), "first": L.Dense(2)(both)})


def normalizations() -> Any:
    return stack(
        Input((8, 8, 8), name="image"),
        L.GroupNormalization(4),
        L.LayerNormalization(),
        L.UnitNormalization(),
        L.RMSNormalization(),
        L.SpectralNormalization(L.Conv2D(4, 3)),
        L.GlobalAveragePooling2D(name="out"),
    )


def activations() -> Any:
    x = Input((10,), name="x")
    made = {name: L.Activation(name, name=f"a_{name}")(x) for name in ACTIVATIONS}
    # Alone, at -15 it holds little but the error of the runtime's Sigmoid, times a number that the graph does not tell.
    made["glu"] = L.Rescaling(1.0, offset=1.0, name="glu_and_one")(made["glu"])
    return Model(x, list(made.values()))


def shapes() -> Any:
    return stack(
        Input((6, 6, 3), name="image"),
        L.PReLU(shared_axes=[1, 2]),
        L.Cropping2D(1),
        L.ZeroPadding2D(2),
        L.Permute((3, 1, 2)),
        L.Reshape((-1,)),
        L.RepeatVector(2),
        L.Flatten(),
        L.Dense(3, name="out"),
    )


def preprocessing() -> Any:
    return stack(
        Input((8, 8, 3), name="image"),
        L.Rescaling(1 / 127.5, offset=-1),
        L.CenterCrop(6, 6),
        L.Normalization(mean=[0.1, 0.2, 0.3], variance=[0.4, 0.5, 0.6]),
        L.RandomFlip(),
        L.GaussianNoise(0.3),
        L.Flatten(name="out"),
    )


def operations() -> Any:
    x = Input((6, 4), name="x")
    y = ops.matmul(ops.softmax(ops.einsum("bij,bkj->bik", x, x), axis=-1), x)
    y = ops.concatenate([y, ops.square(x)], axis=-1)
    best, _ = ops.top_k(ops.sum(y, axis=-1), k=3)
    named = {
        "joined": y,
        "best": best,
        "index": ops.argmax(y, axis=-1),
        "running": ops.cumsum(x, axis=1),
        "length": ops.norm(x, axis=-1),
        "chosen": ops.where(x > 0, x, -x * 0.5),
    }
    return Model(x, [L.Identity(name=n)(t) for n, t in named.items()])


def shared() -> Any:
    encoder = L.Dense(5, activation="tanh")
    a, b = Input((4,), name="a"), Input((4,), name="b")
    return Model([a, b], L.Dot(1, normalize=True, name="similarity")([encoder(a), encoder(b)]))


def unet() -> Any:
    image = Input((16, 16, 1), name="image")
    a = L.Conv2D(4, 3, padding="same", activation="relu")(image)
    b = L.Conv2D(8, 3, padding="same", activation="relu")(L.MaxPooling2D()(a))
    joined = L.Concatenate()([a, L.UpSampling2D()(b)])
    return Model(image, L.Conv2D(1, 1, activation="sigmoid", name="mask")(joined))


def buckets() -> Any:
    x = Input((3,), name="x")
    return Model(
        x, L.CategoryEncoding(4, output_mode="one_hot", name="out")(L.Discretization([-1.0, 0.0, 1.0])(x[:, :1]))
    )


def steps(*layers: Any, length: int | None = None) -> Any:
    return stack(Input((length, 6), name="steps"), *layers, L.Dense(2, name="out"))


FAMILIES: dict[str, Callable[[], Any]] = {
    "convolution, normalization, pooling": lambda: stack(
        Input((8, 8, 3), name="image"),
        L.Conv2D(8, 3, padding="same", use_bias=False),
        L.BatchNormalization(),
        L.ReLU(),
        L.MaxPooling2D(),
        L.Flatten(),
        L.Dense(5, activation="softmax", name="probabilities"),
    ),
    "residual": residual,
    "subclassed": subclassed,
    "LSTM": lambda: steps(L.LSTM(8, return_sequences=True), L.LSTM(5)),
    "LSTM with states": lstm_states,
    "LSTM, masked": lambda: stack(
        Input((None,), dtype="int32", name="tokens"),
        L.Embedding(50, 8, mask_zero=True),
        L.LSTM(6),
        L.Dense(2, name="out"),
    ),
    "GRU": lambda: steps(L.GRU(8, return_sequences=True), L.GRU(5)),
    "GRU, reset before": lambda: steps(L.GRU(8, reset_after=False), length=7),
    "SimpleRNN": lambda: steps(L.SimpleRNN(8), length=7),
    "Bidirectional": lambda: steps(L.Bidirectional(L.LSTM(8, return_sequences=True)), L.Bidirectional(L.GRU(5))),
    "ConvLSTM": lambda: stack(
        Input((4, 8, 8, 2), name="frames"), L.ConvLSTM2D(4, 3, padding="same"), L.Flatten(), L.Dense(2, name="out")
    ),
    "TimeDistributed": lambda: stack(
        Input((None, 8, 8, 1), name="frames"),
        L.TimeDistributed(L.Conv2D(3, 3)),
        L.TimeDistributed(L.Flatten()),
        L.LSTM(4),
        L.Dense(2, name="out"),
    ),
    "group normalization of any size": lambda: stack(
        Input((None, None, 4), name="image"), L.GroupNormalization(2), L.Conv2D(3, 1, name="out")
    ),
    "TimeDistributed, masked": lambda: stack(
        Input((None,), dtype="int32", name="tokens"),
        L.Embedding(9, 6, mask_zero=True),
        L.TimeDistributed(L.Dense(3)),
        L.LSTM(4, name="out"),
    ),
    "TimeDistributed, masked inside": lambda: stack(
        Input((None, 5), dtype="int32", name="tokens"),
        L.Embedding(9, 6, mask_zero=True),
        L.TimeDistributed(L.LSTM(3), name="out"),
    ),
    "attention": attention,
    "attention, causal": lambda: attention(causal=True),
    "attention, two lengths": dot_attention,
    "attention, grouped queries": grouped_attention,
    "transformer": transformer,
    "embedding": lambda: stack(
        Input((None,), dtype="int32", name="tokens"),
        L.Embedding(100, 8),
        L.GlobalAveragePooling1D(),
        L.Dense(3, name="out"),
    ),
    "resize": resize,
    "transposed convolution": transposed,
    "depthwise convolution": depthwise,
    "grouped convolution": lambda: stack(
        Input((8, 8, 8), name="image"), L.Conv2D(16, 3, groups=4, padding="same"), L.Flatten(), L.Dense(3, name="out")
    ),
    "1-D convolution": signal,
    "3-D convolution": volume,
    "several inputs and outputs": several,
    "dictionaries": dictionaries,
    "normalizations": normalizations,
    "activations": activations,
    "shapes": shapes,
    "preprocessing": preprocessing,
    "operations": operations,
    "shared layers": shared,
    "nested model": lambda: stack(
        Input((4,), name="x"), stack(Input((4,)), L.Dense(5, activation="relu"), L.Dense(6)), L.Dense(2, name="out")
    ),
    "U-Net": unet,
    "image of any size": lambda: stack(
        Input((None, None, 3), name="image"),
        L.Conv2D(4, 3, strides=2, padding="same"),
        L.BatchNormalization(),
        L.GlobalAveragePooling2D(),
        L.Dense(2, name="out"),
    ),
    "EinsumDense": lambda: stack(
        Input((5, 6), name="x"), L.EinsumDense("abc,cd->abd", output_shape=(None, 7), bias_axes="d", name="out")
    ),
    "buckets": buckets,
}
