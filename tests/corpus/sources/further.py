"""More models for `make corpus`: torch, Keras, TensorFlow, scikit-learn and boosters, with the inputs that show."""

# ruff: noqa: E501  (methods that need nothing of their object; a table)
from __future__ import annotations

import datetime
import math
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.corpus.sources.models import module

RANDOM = np.random.default_rng(2)
Feeds = dict[str, np.ndarray]
# What it hides, the model made anew, arguments of `convert`, inputs that show it.
Further = tuple[str, Callable[[], Any], dict[str, Any], list[Feeds]]


def _normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * RANDOM.standard_normal(shape)).astype(np.float32)


def torch_further() -> Iterator[Further]:
    """Modules whose input is x: [batch, length, 8], [batch, 8] or a picture."""
    lengths = [{"x": _normal(2, n, 8)} for n in (1, 7, 16, 65, 97, 195, 300, 601)] + [{"x": _normal(9, 33, 8)}]
    rows = [{"x": x} for x in (_normal(4, 8), _normal(1, 8), _normal(7, 8, scale=1e3), -np.abs(_normal(20, 8)) * 100)]
    pictures = [{"x": _normal(2, 3, h, w)} for h, w in ((16, 16), (17, 23), (33, 20), (64, 48), (5, 9))]
    groups: tuple[tuple[dict[str, Callable[..., Any]], dict[str, Any], list[Feeds]], ...] = (
        (_OF_LENGTHS, {"input_shapes": {"x": ("batch", "length", 8)}}, lengths),
        (_OF_ROWS, {"input_shapes": {"x": ("batch", 8)}}, rows),
        (_OF_PICTURES, {"input_shapes": {"x": ("batch", 3, "height", "width")}}, pictures),
    )
    for forwards, settings, inputs in groups:
        for name, forward in forwards.items():
            yield f"torch: {name}", lambda forward=forward: module(forward)().eval(), settings, inputs
    whole = {"input_shapes": {"x": ("batch", 8)}, "input_dtypes": {"x": "int64"}}
    numbers = [{"x": RANDOM.integers(-9, 9, (4, 8))}, {"x": RANDOM.integers(-(2**40), 2**40, (3, 8))}]
    for name, forward in _OF_INTEGERS.items():
        yield f"torch: {name}", lambda forward=forward: module(forward)().eval(), whole, numbers
    masked = {
        "input_shapes": {"ids": ("batch", "length"), "attention_mask": ("batch", "length")},
        "input_dtypes": {"ids": "int64", "attention_mask": "int64"},
    }
    tokens = [_tokens(3, 12, ""), _tokens(3, 12, "right"), _tokens(3, 12, "left"), _tokens(2, 150, "right")]
    for name, (forward, parts) in _OF_TOKENS.items():
        yield (
            f"torch: {name}",
            lambda forward=forward, parts=parts: module(forward, **parts)().eval(),
            masked,
            tokens,
        )


def _tokens(batch: int, length: int, padded: str) -> Feeds:
    mask = np.ones((batch, length), np.int64)
    for row in range(batch):
        if padded == "right":
            mask[row, length - 2 * row :] = 0
        if padded == "left":
            mask[row, : 2 * row] = 0
    return {"ids": RANDOM.integers(0, 50, (batch, length)), "attention_mask": mask}


def _where_on_shape(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.tensor(x.shape[1] > 100), x * 2, x)


def _root_of_length(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x / math.sqrt(x.shape[1])


def _top_of_length(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.topk(min(5, x.shape[1]), 1)[0].sum(1)


def _halves(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x[:, : x.shape[1] // 2].sum(1) - x[:, x.shape[1] // 2 :].sum(1)


def _squeezed(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.sum(1, keepdim=True).squeeze()


def _row_by_row(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.stack([row.mean(0) for row in x])


def _blocks(self: Any, x: torch.Tensor) -> torch.Tensor:
    return sum(x[:, i : i + 16].sum(1) * (i + 1) for i in range(0, x.shape[1], 16))


def _padded_to_eight(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.pad(x, (0, 0, 0, (-x.shape[1]) % 8)).sum(1)


def _causal(self: Any, x: torch.Tensor) -> torch.Tensor:
    unseen = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
    return (x @ x.transpose(1, 2)).masked_fill(unseen, float("-inf")).softmax(-1) @ x


def _cached(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self, "known"):
        self.known = {}
    if x.shape[1] not in self.known:
        self.known[x.shape[1]] = torch.arange(x.shape[1]).float()[None, :, None] / x.shape[1]
    return x + self.known[x.shape[1]]


def _rolled(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.roll(x.shape[1] // 2, 1)


_OF_LENGTHS: dict[str, Callable[..., Any]] = {
    "torch.where on a shape": _where_on_shape,
    "the root of the length": _root_of_length,
    "as many as the length has": _top_of_length,
    "halves of a length": _halves,
    "squeeze without a dim": _squeezed,
    "a row at a time": _row_by_row,
    "blocks by range()": _blocks,
    "sound: padded to a multiple of eight": _padded_to_eight,
    "sound: a causal mask": _causal,
    "a cache by length": _cached,
    "rolled by half of its length": _rolled,
}


def _int_of_item(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * int(x.abs().max().item())


def _set_of_signs(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * len(set(torch.sign(x).flatten().tolist()))


def _order_of_outputs(self: Any, x: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"b": x * 2, "a": x + 1} if x.shape[0] > 5 else {"a": x + 1, "b": x * 2}


def _batch_statistics(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.batch_norm(x, None, None, training=True)


def _seeded(self: Any, x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(0)
    return x + torch.randn(x.shape[0], 8)


def _generator(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x + torch.randn(1, 8, generator=torch.Generator().manual_seed(3))


def _clock(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * (1 + int(time.time() * 1000) % 7)


def _weekday(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * (1 + datetime.datetime.now().weekday())


def _environment(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * float(os.environ.get("SCALE", "2"))


def _python_random(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * random.random()


def _counter(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.count = getattr(self, "count", 0) + 1
    return x * self.count


def _in_place(self: Any, x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def _halved(self: Any, x: torch.Tensor) -> torch.Tensor:
    while x.norm() > 10:
        x = x / 2
    return x


def _rounded_halves(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.round(x * 2) / 2


def _equal_largest(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.round(x).argmax(1)


def _repaired(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(x.log(), nan=-5.0, neginf=-9.0)


def _to_bytes(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.uint8).float()


def _histogram(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.histc(x, 10, -5, 5)


def _scattered(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(10).scatter_add(0, x.clamp(0, 9).long().flatten(), x.flatten())


def _quantile(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.quantile(0.3, dim=1)


def _gumbel(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.gumbel_softmax(x)


def _batch_as_heads(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.view(-1, 4, 2).transpose(0, 1).reshape(x.shape[0], 8) if x.shape[0] == 4 else x


def _detector(self: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores, kept = x[:, 4].sigmoid(), []
    order = scores.argsort(descending=True).tolist()
    while order:
        first = order.pop(0)
        kept.append(first)
        order = [i for i in order if (x[first, :4] - x[i, :4]).abs().sum() > 1]
    return x[kept], scores[kept]


def _chosen_rows(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x[x.sum(1) > 0]


_OF_ROWS: dict[str, Callable[..., Any]] = {
    "an int taken out of a tensor": _int_of_item,
    "the number of a set": _set_of_signs,
    "outputs in another order": _order_of_outputs,
    "batch norm with the batch's own statistics": _batch_statistics,
    "random numbers of a fixed seed": _seeded,
    "a generator of a fixed seed": _generator,
    "the clock": _clock,
    "the weekday": _weekday,
    "the environment": _environment,
    "Python's random numbers": _python_random,
    "a counter": _counter,
    "sound: an input changed in place": _in_place,
    "a loop on a norm": _halved,
    "halves that are rounded": _rounded_halves,
    "the first of equal ones": _equal_largest,
    "sound: NaN repaired": _repaired,
    "floats to bytes": _to_bytes,
    "a histogram": _histogram,
    "a sum by index": _scattered,
    "a quantile": _quantile,
    "Gumbel's noise": _gumbel,
    "a batch of the number of heads": _batch_as_heads,
    "a detector that suppresses boxes by itself": _detector,
    "rows chosen by their sum": _chosen_rows,
}


def _smaller(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.interpolate(x, scale_factor=0.7, mode="bilinear")


def _antialiased(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True)


def _adaptive(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.adaptive_avg_pool2d(x, 4)


def _ceiled(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.max_pool2d(x, 3, 2, ceil_mode=True)


def _square_only(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[2] == x.shape[3] else x


_OF_PICTURES: dict[str, Callable[..., Any]] = {
    "pictures of 0.7 times the size": _smaller,
    "resized with antialiasing": _antialiased,
    "pooled to four by four": _adaptive,
    "sound: a pool that rounds up": _ceiled,
    "square pictures": _square_only,
}


def _floored(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x // 3 + x % 3


def _truncated(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.div(x, 3, rounding_mode="trunc") + torch.fmod(x, 3)


def _shifted(self: Any, x: torch.Tensor) -> torch.Tensor:
    return (x >> 2) ^ (x & 12)


def _narrowed(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.int8).to(torch.int64) + x.to(torch.int32).to(torch.int64)


_OF_INTEGERS: dict[str, Callable[..., Any]] = {
    "sound: floor division of integers": _floored,
    "sound: truncated division of integers": _truncated,
    "shifts and bits of negative integers": _shifted,
    "integers through narrower types": _narrowed,
}


def _encoded(self: Any, ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    return self.encoder(self.embedding(ids), src_key_padding_mask=attention_mask == 0) * attention_mask[..., None]


def _packed(self: Any, ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    lengths = attention_mask.sum(1).cpu()
    packed = nn.utils.rnn.pack_padded_sequence(self.embedding(ids), lengths, batch_first=True, enforce_sorted=False)
    return self.cell(packed)[1][0][0]


def _averaged(self: Any, ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    weight = attention_mask[..., None].float()
    return (self.embedding(ids) * weight).sum(1) / weight.sum(1).clamp(min=1e-9)


def _all_there(self: Any, ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    return self.embedding(ids) if attention_mask.all() else self.embedding(ids) * attention_mask[..., None]


def _last_token(self: Any, ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    return self.embedding(ids)[torch.arange(ids.shape[0]), attention_mask.sum(1) - 1]


_EMBEDDING = {"embedding": lambda: nn.Embedding(50, 8)}
_OF_TOKENS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "sound: TransformerEncoder with padding": (
        _encoded,
        {**_EMBEDDING, "encoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)},
    ),
    "packed sequences": (_packed, {**_EMBEDDING, "cell": lambda: nn.LSTM(8, 4, batch_first=True)}),
    "sound: a mean over a mask": (_averaged, _EMBEDDING),
    "a branch on a mask of ones": (_all_there, _EMBEDDING),
    "sound: the last token by the mask": (_last_token, _EMBEDDING),
}  # fmt: skip


def classical_further() -> Iterator[Further]:
    """Fitted estimators and boosters."""
    import catboost
    import lightgbm
    import xgboost
    from sklearn import calibration, ensemble, impute, linear_model, naive_bayes, neighbors, preprocessing, svm, tree

    rows = _normal(300, 4).astype(np.float64)
    target, classes = rows[:, 0] ** 2 + rows[:, 1], np.digitize(rows[:, 0], [-0.5, 0.5])
    holed = np.where(RANDOM.random(rows.shape) < 0.2, np.nan, rows)
    sparse = np.where(np.abs(rows) < 0.5, 0.0, rows)
    usual = [{"X": x.astype(np.float32)} for x in (rows, rows * 100, rows * 0, -np.abs(rows) * 50, rows[:1])]
    with_holes = [{"X": x.astype(np.float32)} for x in (holed, rows)]
    voters = [("a", linear_model.LogisticRegression()), ("b", naive_bayes.GaussianNB())]
    few = {"n_estimators": 5, "verbose": -1, "min_child_samples": 5}
    quiet = {"iterations": 5, "verbose": 0, "allow_writing_files": False}
    fits: dict[str, tuple[Any, np.ndarray, np.ndarray | None, list[Feeds]]] = {
        "neighbours by distance, at their own points": (neighbors.KNeighborsClassifier(3, weights="distance"), rows, classes, usual),
        "neighbours at equal distance": (neighbors.KNeighborsClassifier(4), np.round(rows), classes, usual),
        "calibrated by steps": (calibration.CalibratedClassifierCV(svm.LinearSVC(), method="isotonic", cv=3), rows, classes > 0, usual),
        "sound: voting with weights": (ensemble.VotingClassifier(voters, voting="soft", weights=[1, 5]), rows, classes, usual[:1]),  # a hundred times further out, float32 alone moves it by 0.001
        "modified Huber": (linear_model.SGDClassifier(loss="modified_huber"), rows, classes, usual),
        "a support vector machine that breaks ties": (svm.SVC(break_ties=True, probability=True, random_state=0), rows, classes, usual),
        "an imputer with an indicator": (impute.SimpleImputer(add_indicator=True), holed, None, with_holes),
        "sound: an imputer of a constant": (impute.SimpleImputer(strategy="constant", fill_value=-1), holed, None, with_holes),
        "bins by quantiles": (preprocessing.KBinsDiscretizer(4, encode="ordinal", quantile_method="linear"), rows, None, usual),
        "a tree far from zero": (tree.DecisionTreeRegressor(), rows + 1e7, target, [{"X": (rows + 1e7).astype(np.float32)}]),
        "sound: LightGBM, features with zeros": (lightgbm.LGBMRegressor(**few), sparse, target, usual),
        "sound: LightGBM, quantile": (lightgbm.LGBMRegressor(objective="quantile", alpha=0.9, **few), rows, target, usual),
        "LightGBM, use_missing=False": (lightgbm.LGBMRegressor(use_missing=False, **few), holed, target, usual),
        "sound: LightGBM, monotone": (lightgbm.LGBMRegressor(monotone_constraints=[1, 0, 0, 0], **few), rows, target, usual),
        "sound: LightGBM, a steep sigmoid": (lightgbm.LGBMClassifier(sigmoid=2.5, **few), rows, classes > 0, usual),
        "sound: XGBoost, base_score": (xgboost.XGBRegressor(n_estimators=5, base_score=7.0), rows, target, usual),
        "XGBoost, missing=-1": (xgboost.XGBRegressor(n_estimators=5, missing=-1.0), np.round(rows), target, [{"X": np.round(rows).astype(np.float32)}]),
        "XGBoost, dart": (xgboost.XGBRegressor(n_estimators=5, booster="dart", rate_drop=0.5), rows, target, usual),
        "XGBoost, linear": (xgboost.XGBRegressor(n_estimators=5, booster="gblinear"), rows, target, usual),
        "XGBoost, parallel trees": (xgboost.XGBClassifier(n_estimators=3, num_parallel_tree=3), rows, classes, usual),
        "CatBoost, missing values as largest": (catboost.CatBoostRegressor(nan_mode="Max", **quiet), holed, target, with_holes),
        "CatBoost, one against all": (catboost.CatBoostClassifier(loss_function="MultiClassOneVsAll", **quiet), rows, classes, usual),
        "CatBoost, several targets": (catboost.CatBoostRegressor(loss_function="MultiRMSE", **quiet), rows, np.stack([target, -target], 1), usual),
    }  # fmt: skip
    for name, (estimator, given, wanted, inputs) in fits.items():
        made = _fitted(estimator, given, wanted)
        yield f"classical: {name}", made, {}, inputs


def _fitted(estimator: Any, rows: np.ndarray, target: np.ndarray | None) -> Callable[[], Any]:
    known: list[Any] = []

    def make() -> Any:
        if not known:
            known.append(estimator.fit(rows) if target is None else estimator.fit(rows, target))
        return known[0]

    return make


def keras_further() -> Iterator[Further]:
    """Functional models whose input is x."""
    import keras
    import tensorflow as tf
    from keras import layers

    def model(shape: tuple[int | None, ...], body: Callable[[Any], Any]) -> Callable[[], Any]:
        def make() -> Any:
            keras.utils.set_random_seed(0)
            given = layers.Input(shape, name="x")
            return keras.Model(given, body(given))

        return make

    sequences = [{"x": _normal(2, n, 8)} for n in (7, 16, 97, 195)]
    holed = _normal(3, 12, 8)
    holed[0, 5:], holed[1, :3], holed[2, 4:6] = 0, 0, 0
    sequences.append({"x": holed})
    rows = [{"x": x} for x in (_normal(4, 8), _normal(1, 8), _normal(7, 8, scale=1e3))]
    pictures = [{"x": _normal(2, h, w, 3)} for h, w in ((16, 16), (17, 23), (64, 48))]
    of_lengths: dict[str, Callable[[Any], Any]] = {
        "sound: masking before an LSTM": lambda x: layers.LSTM(4)(layers.Masking()(x)),
        "a Python branch on the length": layers.Lambda(lambda t: t * 2 if (t.shape[1] or 0) > 100 else t),
        "sound: tf.cond on the length": layers.Lambda(
            lambda t: tf.cond(tf.shape(t)[1] > 100, lambda: t * 2, lambda: t)
        ),
    }
    of_rows: dict[str, Callable[[Any], Any]] = {
        "noise at inference": layers.Lambda(lambda t: t + tf.random.normal(tf.shape(t))),
        "sound: a stateless seed": layers.Lambda(lambda t: t + tf.random.stateless_normal((8,), seed=[1, 2])),
        "batch norm in training mode": lambda x: layers.BatchNormalization()(x, training=True),
        "sound: floor division": layers.Lambda(
            lambda t: tf.cast(tf.cast(tf.clip_by_value(t, -1e6, 1e6), tf.int32) // 3, tf.float32)
        ),
    }
    of_pictures: dict[str, Callable[[Any], Any]] = {
        "sound: resizing": layers.Resizing(20, 24),
        "cropped at the center": layers.CenterCrop(30, 30),
    }
    for shape, bodies, inputs in (
        ((None, 8), of_lengths, sequences),
        ((8,), of_rows, rows),
        ((None, None, 3), of_pictures, pictures),
    ):
        for name, body in bodies.items():
            yield f"Keras: {name}", model(shape, body), {}, inputs
    stateful = layers.Input(batch_shape=(2, 5, 8), name="x")
    yield (
        "Keras: a stateful LSTM",
        lambda: keras.Model(stateful, layers.LSTM(4, stateful=True)(stateful)),
        {},
        [{"x": _normal(2, 5, 8)}],
    )
