"""Inputs in any form that --data takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtool
from onnxtool.errors import InputError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.open_data import open_data
from onnxtool.runtime.data.read_feeds import read_feeds

FREE = (TensorSpec("x", np.dtype(np.float32), ("batch", 3)),)
ONE = (TensorSpec("x", np.dtype(np.float32), (1, 3)),)
ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


def linear(path: Path, batch: int | str) -> Path:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 1])],
        [numpy_helper.from_array(np.ones((3, 1), np.float32), "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_an_archive_that_fits_is_one_run() -> None:
    given = read_feeds({"x": ROWS, "label": ROWS}, FREE)
    assert [f["x"].shape for f in given.feeds] == [(4, 3)]
    assert given.notes == ("given arrays: 'label' left out; the model takes x",)
    assert read_feeds({"x": ROWS}, FREE).notes == ()


@pytest.mark.parametrize("read", [read_feeds, open_data])
def test_the_only_array_by_another_name_is_refused(read: Callable[..., object]) -> None:
    with pytest.raises(InputError, match=r"the data has rows; the model takes x: float32"):
        read({"rows": ROWS}, FREE)


def test_more_rows_than_a_fixed_batch_takes_are_several_runs() -> None:
    given = read_feeds({"x": ROWS}, ONE)
    assert [f["x"].shape for f in given.feeds] == [(1, 3)] * 4
    np.testing.assert_array_equal(given.joined()["x"], ROWS)


def test_a_table_is_one_batch_where_the_model_takes_any(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n0,1,2\n3,,5\n")
    (feeds,) = read_feeds(path, FREE).feeds
    np.testing.assert_array_equal(feeds["x"], [[0, 1, 2], [3, np.nan, 5]])


@pytest.mark.parametrize(("first", "rows"), [("1.5,2,3", 3), ("0,1,2", 2), ("a,b,c", 2)])
def test_a_table_without_a_header_loses_no_row(tmp_path: Path, first: str, rows: int) -> None:
    # "0,1,2" is the header that pandas writes for a table without names
    path = tmp_path / "t.csv"
    path.write_text(f"{first}\n4,5,6\n7,8,9\n")
    given = read_feeds(path, FREE)
    assert given.joined()["x"].shape == (rows, 3)
    assert bool(given.notes) == (rows == 3)


def test_pictures_say_what_becomes_of_them(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for index in range(3):
        image.fromarray(np.full((9, 7), 51 * index, np.uint8)).save(tmp_path / f"{index}.png")
    (tmp_path / "notes.txt").write_text("not a picture")
    specs = (TensorSpec("image", np.dtype(np.float32), ("batch", 1, 8, 8)),)
    given = read_feeds(tmp_path, specs)
    assert given.joined()["image"].shape == (3, 1, 8, 8)
    assert given.joined()["image"][2].max() == pytest.approx(0.4)
    how, skipped = given.notes
    for words in ("3 pictures", "resized to 8x8", "divided by 255", "no mean"):
        assert words in how
    assert "1 other file was left out" in skipped


def test_run_and_compare_take_tables_and_join_what_was_run_alone(tmp_path: Path) -> None:
    model, table = linear(tmp_path / "m.onnx", 1), tmp_path / "t.csv"
    table.write_text("a,b,c\n1,2,3\n4,5,6\n")
    report = onnxtool.run(model, data=table)
    np.testing.assert_array_equal(report.values["y"], [[6], [15]])
    compared = onnxtool.compare(model, linear(tmp_path / "n.onnx", 1), data=table)
    assert compared.ok
    assert len(compared.runs) == 2
    assert onnxtool.check(model, data=str(table)).ok
    assert onnxtool.bench(model, data=table, budget=0.01).ok


def test_compare_says_which_names_it_paired(tmp_path: Path) -> None:
    model = onnx.load(linear(tmp_path / "m.onnx", 1))
    other = onnx.compose.add_prefix(model, "my_")
    onnx.save(other, tmp_path / "n.onnx")
    (said,) = [w for w in onnxtool.compare(tmp_path / "m.onnx", tmp_path / "n.onnx").warnings if "paired" in w]
    assert "'x' with 'my_x'" in said and "'y' with 'my_y'" in said
