"""Tables in every form: the same rows give the same inputs, and what does not fit is named by its place."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onnxtool.errors import InputError, MissingExtraError, ResourceError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.formats import table_file
from onnxtool.runtime.data.open_data import open_data, open_table, read_labels
from onnxtool.runtime.data.read_feeds import read_feeds
from onnxtool.runtime.data.source import DataPath
from onnxtool.runtime.output_files import write_outputs
from tests.conftest import Brought

SPECS = (
    TensorSpec("age", np.dtype("int64"), ("n", 1)),
    TensorSpec("income", np.dtype("float64"), ("n", 1)),
    TensorSpec("city", "string", ("n", 1)),
    TensorSpec("member", np.dtype("bool"), ("n", 1)),
)
COLUMNS = {
    "city": ["Köln", "", 'a,"b";\n'],
    "age": [2**53 + 1, -3, 0],
    "member": [True, False, True],
    "income": [0.1, np.nan, -2.5],
}
CELLS = [["Köln", 2**53 + 1, True, "0.1"], ["", -3, False, ""], ['"a,""b"";\n"', 0, True, "-2.5"]]


def text(delimiter: str = ",", header: str = "city,age,member,income") -> str:
    rows = [header.replace(",", delimiter), *(delimiter.join(map(str, cells)) for cells in CELLS)]
    return "\r\n".join(rows)


def _csv(folder: Path) -> Path:
    (folder / "t.csv").write_bytes(text(",").encode())
    return folder / "t.csv"


def _semicolons(folder: Path) -> DataPath:
    (folder / "t.csv").write_bytes(text(";").replace("0.1", "0,1").replace("-2.5", "-2,5").encode("utf-8-sig"))
    return DataPath(str(folder / "t.csv"), ",")


def _tabs(folder: Path) -> Path:
    (folder / "t.tsv").write_bytes(text("\t").encode())
    return folder / "t.tsv"


def _gz(folder: Path) -> Path:
    (folder / "t.CSV.gz").write_bytes(gzip.compress(text("|").encode("utf-16")))
    return folder / "t.CSV.gz"


def _lines(folder: Path) -> Path:
    values = COLUMNS | {"income": [0.1, None, -2.5], "city": ["Köln", None, 'a,"b";\n']}
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    (folder / "t.jsonl").write_text("\n\n".join(map(json.dumps, rows)), encoding="utf-8")
    return folder / "t.jsonl"


def _written(suffix: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        if suffix != ".jsonl":
            pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[tables]'")
        write_outputs(folder / f"t{suffix}", {n: np.array(v) for n, v in COLUMNS.items()})
        return folder / f"t{suffix}"

    return make


def _rows(_: Path) -> object:
    return [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]


def _pandas(_: Path) -> object:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(COLUMNS | {"city": ["Köln", None, 'a,"b";\n']}, index=[7, 8, 9])
    return frame.astype({"city": "category", "age": "Int64", "member": "boolean"}).assign(id=1)


def _polars(_: Path) -> object:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    return polars.DataFrame(COLUMNS | {"city": ["Köln", None, 'a,"b";\n']}).lazy()


FORMS = {
    "csv": _csv,
    "semicolons and decimal commas": _semicolons,
    "tabs": _tabs,
    "gz, utf-16": _gz,
    "json lines": _lines,
    **{f"own {s}": _written(s) for s in (".jsonl", ".parquet", ".feather", ".csv.zst")},
    "rows": _rows,
    "columns": lambda _: COLUMNS,
    "pandas": _pandas,
    "polars": _polars,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_inputs(tmp_path: Path, form: str) -> None:
    (feeds,) = read_feeds(FORMS[form](tmp_path), SPECS).feeds
    for spec in SPECS:
        wanted = np.array(COLUMNS[spec.name], object if spec.dtype == "string" else spec.dtype)[:, None]
        assert feeds[spec.name].dtype == wanted.dtype
        np.testing.assert_array_equal(feeds[spec.name], wanted)


def test_columns_that_a_model_does_not_take_are_said() -> None:
    pandas = pytest.importorskip("pandas")
    given = read_feeds(pandas.DataFrame(COLUMNS).assign(id=1), SPECS)
    assert given.notes == ("given table: column id left out, which the model does not take",)


BAD = {
    "one cell too few": ("city,age,member,income\nx,1,True\n", "line 2: 3 cells, where the header has 4"),
    "one too many, late": (text() + "\r\nx,1,True,1,1\r\n", "line 6: 5 cells"),
    "empty": ("", "the file is empty"),
    "header alone": ("city,age,member,income\n", "there are no rows"),
    "column twice": ("city,age,age,member,income\nx,1,1,1,1\n", "'age' is there 2 times"),
    "column missing": ("city,Age,member,income\nx,1,1,1\n", r"no column 'age' \(is it 'Age'\?\); it has city, Age"),
    "text for a number": ("city,age,member,income\nx,1,1,1\nx,1,1,ten\n", "line 3, column 'income': 'ten' is not a n"),
    "underscores": ("city,age,member,income\nx,1,1,1_0\n", "line 2, column 'income': '1_0' is not a number"),
    "decimal comma": ("city;age;member;income\nx;1;1;1,5\n", r"column 'income'.*--decimal ,"),
    "part of a number": ("city,age,member,income\nx,1.5,1,1\n", "column 'age': 1.5 is not a whole number"),
    "too large": ("city,age,member,income\nx,9223372036854775808,1,1\n", "column 'age': 9223372036854775808 does n"),
    "beyond all floats": (
        "city,age,member,income\nx,1,1,inf\nx,1,1,-1e400\n",
        "line 3, column 'income': '-1e400' does not",
    ),
    "missing integer": ("city,age,member,income\nx,,1,1\n", "column 'age': it is empty, and only floats"),
    "no boolean": ("city,age,member,income\nx,1,2,1\n", "column 'member': 2 does not fit; the model takes bool"),
    "quote that does not end": ('city,age,member,income\n"x,1,1,1\n', "line 2: cannot be read as CSV"),
    "huge field": (f"city,age,member,income\n{'x' * 200_000},1,1,1\n", "line 2.*field larger"),
    "another encoding": (b"city,age,member,income\na,1,1,1\nK\xf6ln,1,1,1\n", "line 3: byte 0xF6 is not UTF-8"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_table_is_named_by_its_place(tmp_path: Path, name: str) -> None:
    content, words = BAD[name]
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=rf"t\.csv.*{words}"):
        read_feeds(path, SPECS)


LINES = {
    "key missing": ('{"a": 1}\n{"b": 1}', "line 2: there is no 'a'; write null"),
    "not JSON": ('{"a": 1}\n{"a": ', "line 2: not valid JSON"),
    "an array": ('[{"a": 1}]', "line 1: JSON lines hold one object"),
    "key twice": ('{"a": 1, "a": 2}', "line 1.*'a' stands twice"),
    "text": ('{"a": 1}\n\n{"a": "1"}', "line 3, column 'a': '1' is not a number"),
    "nested": ('{"a": {"b": 1}}', r"an object \(nested\) is not a number"),
    "deep": ("[" * 100_000, "line 1: not valid JSON"),
    "unequal lists": ('{"a": [1]}\n{"a": [1, 2]}', "line 2, column 'a': .* no list like the others"),
}


@pytest.mark.parametrize("name", LINES)
def test_bad_json_lines_are_named_by_their_place(tmp_path: Path, name: str) -> None:
    content, words = LINES[name]
    (tmp_path / "t.jsonl").write_text(content)
    with pytest.raises(InputError, match=words):
        read_feeds(tmp_path / "t.jsonl", (TensorSpec("a", np.dtype("float32"), ("n", 1)),))


def test_infinity_comes_back_from_json_lines(tmp_path: Path) -> None:
    values = np.array([np.inf, -np.inf, np.nan, 0.1], np.float32)
    write_outputs(tmp_path / "t.jsonl", {"a": values})
    assert [json.loads(line)["a"] for line in (tmp_path / "t.jsonl").read_text().splitlines()] == [
        "Infinity",
        "-Infinity",
        None,
        0.1,
    ]
    (feeds,) = read_feeds(tmp_path / "t.jsonl", (TensorSpec("a", np.dtype("float32"), ("n",)),)).feeds
    np.testing.assert_array_equal(feeds["a"], values)


@pytest.mark.parametrize("number", ["-1" + "0" * 400, "1e39"], ids=["integer", "float"])
def test_what_would_become_infinite_is_refused(number: str, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(f'{{"a": {number}}}')
    with pytest.raises(InputError, match=r"line 1, column 'a': -?1[0e].* does not fit"):
        read_feeds(tmp_path / "t.jsonl", (TensorSpec("a", np.dtype("float32"), ("n",)),))


def test_files_that_unpack_to_very_much_more_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_file, "UNPACKED_LIMIT", 1_000_000)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a\n" + b"1\n" * 2_000_000))
    with pytest.raises(ResourceError, match="unpacks to more than"):
        read_feeds(tmp_path / "t.csv.gz", (TensorSpec("a", np.dtype("float32"), ("n",)),))
    (tmp_path / "cut.csv.gz").write_bytes((tmp_path / "t.csv.gz").read_bytes()[:-1000])
    monkeypatch.setattr(table_file, "UNPACKED_LIMIT", 1 << 30)
    with pytest.raises(InputError, match="ended before"):
        read_feeds(tmp_path / "cut.csv.gz", (TensorSpec("a", np.dtype("float32"), ("n",)),))


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_damaged_and_nested_tables_are_refused(tmp_path: Path, suffix: str) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[tables]'")
    from onnxtool.runtime.data.formats import arrow

    path, specs = tmp_path / f"t{suffix}", (TensorSpec("a", np.dtype("float32"), ("n", 1)),)
    whole = arrow.write(pyarrow.table({"a": [{"b": 1}]}).to_pydict(), suffix)
    path.write_bytes(whole)
    with pytest.raises(InputError, match=r"row 0, column 'a': an object \(nested\)"):
        read_feeds(path, specs)
    for damaged in (whole[: len(whole) // 2], b"", b"PAR1 ARROW1", whole.replace(b"a", b"\xff")):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=f"t{suffix}"):
            read_feeds(path, specs)


def test_a_missing_library_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(MissingExtraError, match=r"t\.parquet: this needs pyarrow.*\[tables\]"):
        open_table(tmp_path / "t.parquet")


def test_a_matrix_is_made_of_the_columns_that_it_is_known_to_have(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("y,b,a\n0,1,2\n")
    spec = TensorSpec("X", np.dtype("float32"), ("n", 2), columns=("a", "b"))
    (feeds,) = read_feeds(tmp_path / "t.csv", (spec,)).feeds
    assert feeds["X"].tolist() == [[2, 1]]
    (tmp_path / "t.csv").write_text("y,b\n0,1\n")
    with pytest.raises(InputError, match="no column 'a'"):
        read_feeds(tmp_path / "t.csv", (spec,))


def test_an_output_table_can_be_an_input_table(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    specs = (TensorSpec("s", np.dtype("float32"), ("n", 2, 3)), TensorSpec("k", np.dtype("int8"), ("n",)))
    write_outputs(tmp_path / "t.csv", {"s": values, "k": np.array([1, 2], np.int8)})
    (feeds,) = read_feeds(tmp_path / "t.csv", specs).feeds
    np.testing.assert_array_equal(feeds["s"], values)
    assert feeds["k"].tolist() == [1, 2]


def test_a_large_table_runs_in_parts_that_are_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n" + "\n".join(map(str, range(5000))))
    given = read_feeds(tmp_path / "t.csv", (TensorSpec("a", np.dtype("float32"), ("n", 1)),))
    assert len(given.feeds) > 1
    assert given.joined()["a"].reshape(-1).tolist() == list(range(5000))


def test_rows_of_a_frame_are_samples_without_their_labels() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"b": [1, 2, 3], "y": ["p", "q", "p"], "a": [4.0, 5.0, 6.0]})
    spec = TensorSpec("x", np.dtype("float32"), ("n", 2))
    samples = [f["x"].tolist() for f in open_data(frame, (spec,), label="y").samples()]
    assert samples == [[[1, 4]], [[2, 5]], [[3, 6]]]
    assert read_labels(frame, "y").tolist() == ["p", "q", "p"]
    (feeds,) = read_feeds(frame.iloc[1], (TensorSpec("a", np.dtype("float32"), ("n", 1)),)).feeds
    assert feeds["a"].tolist() == [[5]]


def test_counted_columns_are_taken_in_their_order() -> None:
    pandas = pytest.importorskip("pandas")
    spec = TensorSpec("X", np.dtype("float32"), ("n", 2), columns=("a", "b"))
    (feeds,) = read_feeds(pandas.DataFrame([[1, 2]]), (spec,)).feeds
    assert feeds["X"].tolist() == [[1, 2]]
    single = [TensorSpec(f"column_{i}", np.dtype("float32"), ("n", 1)) for i in range(2)]
    (feeds,) = read_feeds(pandas.DataFrame([[1, 2]]), single).feeds
    assert {name: array.tolist() for name, array in feeds.items()} == {"column_0": [[1]], "column_1": [[2]]}
    last = replace(single[0], name="column_2")
    (feeds,) = read_feeds(pandas.DataFrame([["no input", 1, 2]]), [last, single[1]]).feeds
    assert {name: array.tolist() for name, array in feeds.items()} == {"column_2": [[2]], "column_1": [[1]]}
    with pytest.raises(InputError, match="there is no column 'x0'"):
        read_feeds(pandas.DataFrame([[1, 2, 3]]), [replace(s, name=f"x{i}") for i, s in enumerate(single)])


def test_a_format_of_another_package_reads_and_writes(tmp_path: Path, brought: Brought) -> None:
    """By its entry point, whose name is the suffix."""
    from onnxtool.runtime.data.formats import json_lines

    brought("rows", json_lines.__name__, "onnxtool.data_formats")
    spec = TensorSpec("a", np.dtype("float32"), ("n",))
    write_outputs(tmp_path / "t.rows", {"a": np.float32([1, 2])})
    (feeds,) = read_feeds(tmp_path / "t.rows", (spec,)).feeds
    assert feeds["a"].tolist() == [1, 2]
    with pytest.raises(InputError, match=r"not an \.npz"):
        read_feeds(_csv(tmp_path).rename(tmp_path / "t.other"), (spec,))


def test_what_is_no_number_in_a_frame_is_refused() -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    spec = TensorSpec("a", np.dtype("float32"), ("n", 1))
    with pytest.raises(InputError, match=r"an object \(nested\)"):
        read_feeds(polars.DataFrame({"a": [{"b": 1.0}, {"b": 2.0}]}), (spec,))
    lists = polars.Series([[1.0], [2.0]], dtype=polars.Array(polars.Float32, 1))
    (feeds,) = read_feeds(polars.DataFrame({"a": lists}), (spec,)).feeds
    assert feeds["a"].tolist() == [[1], [2]]


def test_dates_in_a_frame_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": pandas.to_datetime(["2020-01-01"])})
    for dtype in ("float32", "int64"):
        with pytest.raises(InputError, match=r"column 'a': .* is a date"):
            read_feeds(frame, (TensorSpec("a", np.dtype(dtype), ("n", 1)),))


@pytest.mark.parametrize("values", [np.zeros(3), [0, 0, 0], np.zeros((3, 1))])
def test_columns_that_the_model_does_not_know_are_not_taken_in_their_order(values: object) -> None:
    with pytest.raises(InputError, match="the data has z; the model takes x"):
        read_feeds({"z": values}, (TensorSpec("x", np.dtype("float32"), ("n", 1)),))


def test_arrays_that_no_input_has_are_said(tmp_path: Path) -> None:
    specs = (TensorSpec("x", np.dtype("float32"), ("n", 2)),)
    np.savez(tmp_path / "data.npz", x=np.ones((3, 2), np.float32), y=np.arange(3), z=np.arange(3))
    path = tmp_path / "data.npz"
    assert read_feeds(path, specs).notes == (f"{path}: 'y', 'z' left out; the model takes x",)
    assert open_data(path, specs, label="y").notes == (f"{path}: 'z' left out; the model takes x",)
