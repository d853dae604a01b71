"""The files that run writes."""

from __future__ import annotations

import csv
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from onnxtool.errors import UsageError
from onnxtool.runtime.output_files import check_output_file, write_outputs


def table(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_a_table_has_a_row_for_each_sample_and_all_digits(tmp_path: Path) -> None:
    scores = np.random.default_rng(0).normal(size=(3, 2, 2)).astype(np.float32)
    labels = np.array(["a", 'b,"c"', "d\ne"])
    write_outputs(tmp_path / "o.csv", {"label": labels, "s": scores})
    head, *rows = table(tmp_path / "o.csv")
    assert head == ["label", "s[0,0]", "s[0,1]", "s[1,0]", "s[1,1]"]
    assert [row[0] for row in rows] == labels.tolist()
    np.testing.assert_array_equal(np.array([row[1:] for row in rows], np.float32), scores.reshape(3, 4))


def test_whole_numbers_and_smaller_floats_keep_their_values(tmp_path: Path) -> None:
    halves = np.array([0.1, 2.0], ml_dtypes.bfloat16)
    write_outputs(tmp_path / "o.CSV", {"n": np.array([2**63 - 1, -1]), "h": halves})
    _, *rows = table(tmp_path / "o.CSV")
    assert [row[0] for row in rows] == [str(2**63 - 1), "-1"]
    assert [np.float32(row[1]) for row in rows] == halves.astype(np.float32).tolist()


@pytest.mark.parametrize(
    "values",
    [{"a": np.zeros((2, 1)), "b": np.zeros((3, 1))}, {"a": np.float32(1)}, {"a": np.zeros(2), "b": np.int64(1)}],
)
def test_what_is_no_table_is_refused(tmp_path: Path, values: dict[str, np.ndarray]) -> None:
    with pytest.raises(UsageError, match=r"same number of rows.*a \["):
        write_outputs(tmp_path / "o.csv", values)
    assert not (tmp_path / "o.csv").exists()


def test_an_array_file_holds_one_array(tmp_path: Path) -> None:
    write_outputs(tmp_path / "o.npy", {"a": np.arange(4).reshape(2, 2)})
    np.testing.assert_array_equal(np.load(tmp_path / "o.npy"), [[0, 1], [2, 3]])
    with pytest.raises(UsageError, match="holds one array"):
        write_outputs(tmp_path / "two.npy", {"a": np.zeros(1), "b": np.zeros(1)})


@pytest.mark.parametrize("name", ["o.xlsx", "-", "o", "o.npz.gz", "o.gz"])
def test_other_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"written as \.npz, \.npy, .*\.csv"):
        check_output_file(tmp_path / name)
