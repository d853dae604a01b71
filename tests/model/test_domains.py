"""Which values the inputs of a graph may take."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from onnxtool.model import io
from onnxtool.model.domains import Domain, input_domains, threshold_domain
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import random_feeds
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT

CASES = {
    "indices": ("(int64[n] i, float[n] f) => (float[n, 2] y) <float[5, 2] w = {1,2,3,4,5,6,7,8,9,10}>",
                "y = Gather(w, i)", {"i": Domain(0, 5)}),
    "one-hot": ("(int64[n] i, int64 depth) => (float[n, k] y) <float[2] v = {0, 1}>",
                "y = OneHot(i, depth, v)", {"depth": Domain(2, 9)}),
    "one-hot of known depth": ("(int64[n] i) => (float[n, 7] y) <float[2] v = {0, 1}, int64 d = {7}>",
                "y = OneHot(i, d, v)", {"i": Domain(0, 7)}),
    "texts that are numbers": ("(string[n] t) => (float[n] y)", "u = Identity(t) y = Cast<to = 1>(u)",
        {"t": Domain(0, 0, ("0", "1", "-2", "7", "12", "150", "-3000", "65537", "3.5", "-0.25", "1e3", "2.5e-3"))}),
    "texts that are integers": ("(string[n] t) => (int64[n] y)", "y = Cast<to = 7>(t)",
        {"t": Domain(0, 0, ("0", "1", "-2", "7", "12", "150", "-3000", "65537"))}),
    "texts that stay texts": ("(string[n] t) => (bool[n] y)", "u = Cast<to = 8>(t) y = Equal(u, t)", {}),
    "mask": ("(int64[n, k] attention_mask) => (float[n, k] y)", "y = Cast<to = 1>(attention_mask)",
             {"attention_mask": Domain(1, 2)}),
    "sequence lengths": ("(float[6, n, 2] x, int32[n] lengths) => (float[6, n, 2] y)",
                "l = Cast<to = 7>(lengths) y = ReverseSequence<time_axis = 0, batch_axis = 1>(x, l)",
                {"lengths": Domain(1, 7)}),
    "sequence lengths of a dynamic time axis": ("(float[t, n, 2] x, int64[n] lengths) => (float[t, n, 2] y)",
                "y = ReverseSequence<time_axis = 0, batch_axis = 1>(x, lengths)", {"lengths": Domain(1, 2)}),
    "lengths of a GRU": ("(float[6, n, 2] x, int32[n] lengths) => (float[6, 1, n, 1] y) "
                "<float[1, 3, 2] w = {1,1,1,1,1,1}, float[1, 3, 1] r = {1,1,1}>",
                "y = GRU<hidden_size = 1>(x, w, r, , lengths)", {"lengths": Domain(1, 7)}),
    "root": ("(float[n, 2] x) => (float[n, 2] y)", "a = Relu(x) y = Sqrt(a)", {"x": Domain(0.05, 1.0)}),
    "logarithm": ("(float[n, 2] x) => (float[n, 2] y)", "y = Log(x)", {"x": Domain(0.05, 1.0)}),
    "square, then root": ("(float[n, 2] x) => (float[n, 2] y)", "a = Mul(x, x) y = Sqrt(a)", {}),
}  # fmt: skip


def model(case: str) -> onnx.ModelProto:
    signature, body, _ = CASES[case]
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> m {signature} {{ {body} }}')


@pytest.mark.parametrize("case", CASES)
def test_domains_are_found_and_the_model_runs_on_them(case: str) -> None:
    found = input_domains(io.from_proto(model(case)))
    assert found == CASES[case][2]
    runner = OnnxRunner.open(model(case), EXACT)
    for seed in range(20):
        for value in runner.run(random_feeds(runner.inputs, seed, domains=found)).values():
            assert np.isfinite(value).all()


def test_rows_of_a_table_fall_on_both_sides_of_each_columns_thresholds() -> None:
    features, thresholds = np.array([0, 0, 2, 2]), np.array([0.1, 0.3, 1000.0, 3000.0])
    domain = threshold_domain(features, thresholds, 3)
    assert domain is not None
    drawn = random_feeds([TensorSpec("x", np.dtype("float64"), ("n", 3))], batch=200, domains={"x": domain})["x"]
    for feature, threshold in zip(features, thresholds, strict=True):
        assert 0 < np.mean(drawn[:, feature] > threshold) < 1
    assert np.ptp(drawn[:, 0]) < 1
    assert np.ptp(drawn[:, 1]) > 1000, "a column without a threshold lies where all thresholds do"
    assert threshold_domain(features[:0], thresholds[:0], 3) is None
