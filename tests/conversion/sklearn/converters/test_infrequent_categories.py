"""Rare, unknown and missing categories are encoded as scikit-learn does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from tests.conversion.sklearn.converted_model import run_converted

TEXTS = np.array([["a", "x"]] * 9 + [["b", "y"]] * 6 + [["c", "z"]] * 2 + [["d", "z"]], dtype=object)
NUMBERS = np.array([[1, 7]] * 9 + [[2, 7]] * 6 + [[3, 8]] * 2 + [[4, 9]])
NEW_TEXTS = np.array([["a", "y"], ["b", "z"], ["c", "x"], ["d", "z"], ["unheard", "new"], ["b", "unheard"]], object)
NEW_NUMBERS = np.array([[1, 9], [2, 7], [3, 8], [4, 8], [5, 5], [1, 100]])


@pytest.mark.filterwarnings("ignore:Found unknown categories")
@pytest.mark.parametrize("rows", [(TEXTS, NEW_TEXTS), (NUMBERS, NEW_NUMBERS)], ids=["texts", "integers"])
@pytest.mark.parametrize(
    "options",
    [
        {"min_frequency": 3, "handle_unknown": "infrequent_if_exist"},
        {"min_frequency": 3, "handle_unknown": "ignore"},
        {"max_categories": 2, "handle_unknown": "infrequent_if_exist", "drop": "first"},
        {"min_frequency": 7, "handle_unknown": "ignore", "drop": "if_binary"},
        {"min_frequency": 1, "handle_unknown": "infrequent_if_exist"},
        {"handle_unknown": "warn", "drop": "first"},
    ],
    ids=lambda o: ",".join(map(str, o.values())),
)
def test_columns_of_rare_categories(
    rows: tuple[np.ndarray, np.ndarray], options: dict[str, Any], tmp_path: Path
) -> None:
    encoder = OneHotEncoder(**options).fit(rows[0])
    (found,) = run_converted(encoder, tmp_path, rows[1])
    np.testing.assert_array_equal(found, encoder.transform(rows[1]).toarray())


@pytest.mark.parametrize("rows", [(TEXTS, NEW_TEXTS), (NUMBERS, NEW_NUMBERS)], ids=["texts", "integers"])
@pytest.mark.parametrize("options", [{"min_frequency": 3}, {"max_categories": 2}], ids=["frequency", "number"])
def test_codes_of_rare_categories(rows: tuple[np.ndarray, np.ndarray], options: dict[str, Any], tmp_path: Path) -> None:
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, **options).fit(rows[0])
    (found,) = run_converted(encoder, tmp_path, rows[1])
    np.testing.assert_array_equal(found, encoder.transform(rows[1]))


@pytest.mark.parametrize("unknown", [-1, np.nan])
def test_missing_categories_have_a_code_of_their_own(unknown: float, tmp_path: Path) -> None:
    options = {"handle_unknown": "use_encoded_value", "unknown_value": unknown, "encoded_missing_value": -2}
    floats = np.array([[0.5], [1.5], [np.nan], [7.0]])
    encoder = OrdinalEncoder(**options).fit(floats[:3])
    (found,) = run_converted(encoder, tmp_path, floats.astype(np.float32))
    np.testing.assert_array_equal(found, encoder.transform(floats))
    texts = np.array([["a"], ["b"], [np.nan], ["unheard"]], dtype=object)
    encoder = OrdinalEncoder(**options).fit(texts[:3])
    (found,) = run_converted(encoder, tmp_path, np.array([["a"], ["b"], [""], ["unheard"]], object), prove=True)
    np.testing.assert_array_equal(found, encoder.transform(texts))


@pytest.mark.parametrize("unknown", [-1, np.nan])
def test_what_is_nearly_a_category_has_none(unknown: float, tmp_path: Path) -> None:
    fitted = np.array([[0.1, 3.0], [0.3, 1.0], [0.7, 2.0]])
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=unknown).fit(fitted)
    rows = np.concatenate([fitted, np.nextafter(fitted, 9), fitted.astype(np.float32).astype(np.float64)])
    (found,) = run_converted(encoder, tmp_path, rows)
    np.testing.assert_array_equal(found, encoder.transform(rows))


@pytest.mark.filterwarnings("ignore:Found unknown categories")
@pytest.mark.parametrize(
    "options",
    [
        {"handle_unknown": "ignore"},
        {"handle_unknown": "ignore", "drop": "first"},
        {"handle_unknown": "infrequent_if_exist", "min_frequency": 3},
    ],
    ids=lambda o: ",".join(map(str, o.values())),
)
def test_floats_are_categories_as_they_are(options: dict[str, Any], tmp_path: Path) -> None:
    fitted = np.where(NUMBERS == 2, 2.5, NUMBERS).astype(np.float64)
    encoder = OneHotEncoder(sparse_output=False, **options).fit(fitted)
    rows = np.array([[1.4, 7], [2.5, 7.9], [2.0, 8], [0.9, -7], [4, 9]], np.float32)
    (found,) = run_converted(encoder, tmp_path, rows)
    np.testing.assert_array_equal(found, encoder.transform(rows.astype(np.float64)))


def test_a_missing_number_is_a_category_of_its_own(tmp_path: Path) -> None:
    encoder = OneHotEncoder(sparse_output=False, handle_unknown="ignore").fit([[1.0], [np.nan], [3.0]])
    rows = np.array([[np.nan], [1], [0], [2.9]], np.float32)
    (found,) = run_converted(encoder, tmp_path, rows)
    np.testing.assert_array_equal(found, encoder.transform(rows.astype(np.float64)))
