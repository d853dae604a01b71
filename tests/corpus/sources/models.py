"""Models for `make corpus`: each right on random inputs of the usual kind, and hard to write elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

RANDOM = np.random.default_rng(1)
Source = tuple[str, type[torch.nn.Module], list[np.ndarray]]


def module(forward: Callable[..., torch.Tensor], **attributes: Any) -> type[torch.nn.Module]:
    """A class of modules with one method, which keeps its line numbers."""

    def made(self: torch.nn.Module) -> None:
        torch.nn.Module.__init__(self)
        torch.manual_seed(0)
        for name, value in attributes.items():
            setattr(self, name, value() if callable(value) else value)

    return type("Net", (torch.nn.Module,), {"__init__": made, "forward": forward})


def _normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * RANDOM.standard_normal(shape)).astype(np.float32)


def _longer(limit: int) -> Callable[..., torch.Tensor]:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > limit:
            return x * 2
        return x

    return forward


def _exactly(self: Any, x: torch.Tensor) -> torch.Tensor:
    if x.shape[1] == 97:
        return x * 2
    return x


def _remainder(self: Any, x: torch.Tensor) -> torch.Tensor:
    if x.shape[1] % 13 == 0:
        return x * 2
    return x


def _product(self: Any, x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] * x.shape[1] > 777:
        return x * 2
    return x


def _batch_of_one(self: Any, x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 1:
        return x - x.mean(0, keepdim=True)
    return x


def _buckets(self: Any, x: torch.Tensor) -> torch.Tensor:
    for bucket in (10, 50, 190, 600):
        if x.shape[1] <= bucket:
            return x * bucket
    return x


def _power_of_two(self: Any, x: torch.Tensor) -> torch.Tensor:
    size = 1
    while size < x.shape[1]:
        size *= 2
    return x / size


def _logarithm(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * int(math.log2(x.shape[1]))


def _truncated(self: Any, x: torch.Tensor) -> torch.Tensor:
    if x.shape[1] > 200:
        x = x[:, :200]
    return x.sum(1)


def _dynamic_base(self: Any, x: torch.Tensor) -> torch.Tensor:
    n = x.shape[1]
    base = 10000.0 if n <= 350 else 10000.0 * n / 350
    angles = torch.outer(torch.arange(n).float(), 1 / base ** (torch.arange(0, 8, 2).float() / 8))
    return x * torch.cat([angles.cos(), angles.sin()], -1)


def _numpy_mean(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 2 if float(x.detach().numpy().mean()) > 3 else x


def _largest(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x / max(1.0, float(x.abs().max()))


def _first_time(self: Any, x: torch.Tensor) -> torch.Tensor:
    if self.seen:
        return x * 2
    self.seen = True
    return x


def _while_exporting(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 2 if torch.compiler.is_exporting() else x


def _log_sigmoid(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.logsigmoid(x)


def _log_cumulative(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.logcumsumexp(x, 1)


def _chunks(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.stack([c.mean(1) for c in x.split(32, 1)], 1).sum(1)


def _loop(self: Any, x: torch.Tensor) -> torch.Tensor:
    state = torch.zeros_like(x[:, 0])
    for step in range(x.shape[1]):
        state = torch.tanh(state + x[:, step])
    return state


def _noise(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x + 1e-2 * torch.rand(x.shape[0], 1)


def _dropout(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x, 0.5, training=True)


def _recurrent(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.cell(x)[0]


def _threshold(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.where((x > 41) & (x < 41.5), x * 9, x)


def _one_value(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.where(x == 37, x * 0, x)


def _bucketized(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.bucketize(x, self.bounds, right=True).float()


def _rounded(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.round(x, decimals=2)


def _window(self: Any, x: torch.Tensor) -> torch.Tensor:
    n = x.shape[1]
    return torch.ones(n, n).tril().triu(-128) @ x


def torch_sources() -> Iterator[Source]:
    """(what it hides, the module's class, inputs that show it)."""
    sequences = [_normal(2, n, 8) for n in (7, 16, 65, 97, 195, 256, 352, 601)]
    rows = [_normal(4, 8), _normal(1, 8), _normal(4, 8, scale=1e4), _normal(4, 8) + 50, -np.abs(_normal(20, 8)) * 100]
    for limit in (64, 256, 500):
        yield f"a branch on length {limit}", module(_longer(limit)), sequences
    yield "a branch on length 5000", module(_longer(5000)), [*sequences, _normal(1, 5001, 8)]
    for name, forward in {
        "a branch on one length": _exactly,
        "a branch on a remainder": _remainder,
        "a branch on batch times length": _product,
        "buckets of lengths": _buckets,
        "the next power of two": _power_of_two,
        "a logarithm of the length": _logarithm,
        "cut off at 200": _truncated,
        "rotary angles that grow from 350 on": _dynamic_base,
        "pieces of 32": _chunks,
        "a loop over the length": _loop,
    }.items():
        yield name, module(forward), sequences
    for name, forward in {
        "a batch of one": _batch_of_one,
        "a mean taken by numpy": _numpy_mean,
        "a number taken out of a tensor": _largest,
        "another answer while exporting": _while_exporting,
        "random noise": _noise,
        "dropout that is always on": _dropout,
        "log_sigmoid of large numbers": _log_sigmoid,
        "logcumsumexp of large numbers": _log_cumulative,
    }.items():
        yield name, module(forward), rows
    yield "another answer the first time", module(_first_time, seen=False), rows
    yield "a GRU with time first", module(_recurrent, cell=lambda: torch.nn.GRU(8, 4)), sequences
    yield "sound: an LSTM", module(_recurrent, cell=lambda: torch.nn.LSTM(8, 4, batch_first=True)), sequences
    exact = np.full((2, 8), 37, np.float32)
    yield "sound: one exact value", module(_one_value), [*rows, exact]
    yield "sound: a narrow range", module(_threshold), [*rows, exact + np.float32(4.25)]
    bounds = torch.tensor([-500.0, -3.0, 0.5, 77.0])
    yield "sound: bucketize", module(_bucketized, bounds=bounds), [*rows, np.full((1, 8), 77, np.float32)]
    yield "sound: rounding to two places", module(_rounded), rows[:2]
    yield "sound: a window of 128", module(_window), sequences


def classical_sources() -> Iterator[tuple[str, Callable[[], Any], list[np.ndarray]]]:
    """(what it hides, how to fit it, rows that show it)."""
    import catboost
    import lightgbm
    import sklearn.ensemble as ensemble
    import sklearn.preprocessing as preprocessing
    import xgboost

    rows = _normal(300, 4).astype(np.float64)
    target = rows[:, 0] ** 2 + rows[:, 1]
    classes = np.digitize(rows[:, 0], [-0.5, 0.5])
    holed = np.where(RANDOM.random(rows.shape) < 0.2, np.nan, rows)
    sparse = np.where(np.abs(rows) < 0.3, 0.0, rows)
    usual = [rows, rows * 100, rows * 0, -np.abs(rows) * 50]
    few = {"n_estimators": 5, "verbose": -1, "min_child_samples": 5}
    quiet = {"iterations": 5, "verbose": 0, "allow_writing_files": False}
    forest = ensemble.RandomForestRegressor(5, random_state=0)
    yield "a forest fitted with missing values", lambda: forest.fit(holed, target), [holed, rows]
    boosted = ensemble.HistGradientBoostingClassifier(max_iter=5)
    yield "histogram boosting at its thresholds", lambda: boosted.fit(rows, classes), usual
    poisson = ensemble.HistGradientBoostingRegressor(loss="poisson", max_iter=5)
    yield "histogram boosting with a Poisson loss", lambda: poisson.fit(rows, np.abs(target)), usual
    clipped = preprocessing.MaxAbsScaler(clip=True)
    yield "a scaler that clips", lambda: clipped.fit(rows), usual[:2]
    largest = preprocessing.Normalizer("max")
    yield "a normalizer by the largest", lambda: largest.fit(rows), usual[:2]
    for name, options, data in (
        ("LightGBM: zero_as_missing", {"zero_as_missing": True}, sparse),
        ("LightGBM: random forest", {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}, rows),
        ("LightGBM: linear_tree", {"linear_tree": True}, rows),
        ("LightGBM: reg_sqrt", {"reg_sqrt": True}, rows),
        ("LightGBM: dart", {"boosting_type": "dart"}, rows),
    ):
        booster = lightgbm.LGBMRegressor(**few, **options)
        yield name, lambda booster=booster, data=data: booster.fit(data, target), [data, *usual]
    one_against_all = lightgbm.LGBMClassifier(objective="multiclassova", **few)
    yield "LightGBM: multiclassova", lambda: one_against_all.fit(rows, classes), usual
    for name, options in (
        ("XGBoost: several targets", {}),
        ("XGBoost: logistic regression", {"objective": "reg:logistic"}),
        ("XGBoost: Poisson", {"objective": "count:poisson"}),
    ):
        given = np.column_stack([target, -target]) if "targets" in name else (rows[:, 0] > 0).astype(float)
        model = xgboost.XGBRegressor(n_estimators=5, **options)
        yield name, lambda model=model, given=given: model.fit(rows, given), usual
    for loss in ("Poisson", "Tweedie:variance_power=1.5", "RMSE"):
        model = catboost.CatBoostRegressor(loss_function=loss, **quiet)
        yield f"CatBoost: {loss}", lambda model=model: model.fit(rows, np.abs(target)), usual
