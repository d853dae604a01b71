"""Readers: every form gives the same samples; what does not fit is said in one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from onnxtool.errors import InputError, ResourceError, UsageError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data import archive
from onnxtool.runtime.data.archive import open_npz
from onnxtool.runtime.data.open_data import open_data, read_labels
from onnxtool.runtime.data.source import DataSource

SPECS = (TensorSpec("x", np.dtype("float32"), ("batch", 3)),)
VALUES = np.arange(30, dtype=np.float32).reshape(10, 3)


def values(data: object, **options: int) -> np.ndarray:
    return np.concatenate([f["x"] for f in open_data(data, SPECS, **options).samples()])


@pytest.fixture
def forms(tmp_path: Path) -> dict[str, object]:
    np.savez(tmp_path / "plain.npz", x=VALUES, y=np.arange(10))
    np.savez_compressed(tmp_path / "packed.npz", x=VALUES)
    np.savez(tmp_path / "columns.npz", x=np.asfortranarray(VALUES))
    np.save(tmp_path / "lone.npy", VALUES)
    for kind in ("npy", "npz", "bare"):
        (tmp_path / kind).mkdir()
    for i, row in enumerate(VALUES):
        np.save(tmp_path / "npy" / f"{i}.npy", row[None])
        np.save(tmp_path / "bare" / f"{i}.npy", row)
        np.savez(tmp_path / "npz" / f"{i}.npz", x=row[None])
    (tmp_path / "reader.py").write_text(
        "import numpy as np\n\ndef rows():\n    for i in range(10):\n"
        "        yield {'x': np.arange(3 * i, 3 * i + 3, dtype='f4')[None]}\n"
    )
    return {
        "npz": tmp_path / "plain.npz",
        "compressed npz": str(tmp_path / "packed.npz"),
        "columns-first npz": tmp_path / "columns.npz",
        "npy": tmp_path / "lone.npy",
        "folder of npy": tmp_path / "npy",
        "folder of npy without batch": tmp_path / "bare",
        "folder of npz": tmp_path / "npz",
        "script": f"{tmp_path / 'reader.py'}:rows",
        "arrays": {"x": VALUES},
        "list": [{"x": row[None]} for row in VALUES],
        "function": lambda: (row[None] for row in VALUES),
    }


FORMS = [
    *("npz", "compressed npz", "columns-first npz", "npy", "script", "arrays", "list", "function"),
    *("folder of npy", "folder of npy without batch", "folder of npz"),
]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_samples_again_and_again(forms: dict[str, object], form: str) -> None:
    source = open_data(forms[form], SPECS)
    for _ in range(2):
        feeds = list(source.samples())
        assert [f["x"].shape for f in feeds] == [(1, 3)] * 10
        np.testing.assert_array_equal(np.concatenate([f["x"] for f in feeds]), VALUES)


@pytest.mark.parametrize("form", ["npz", "folder of npy"])
def test_fewer_samples_are_spread_over_all(forms: dict[str, object], form: str) -> None:
    np.testing.assert_array_equal(values(forms[form], samples=4), VALUES[[0, 3, 6, 9]])


def test_a_script_gives_its_first_samples(forms: dict[str, object]) -> None:
    np.testing.assert_array_equal(values(forms["script"], samples=4), VALUES[:4])


def test_a_fixed_batch_takes_that_many_rows() -> None:
    specs = (TensorSpec("x", np.dtype("float32"), (4, 3)),)
    feeds = list(open_data({"x": VALUES}, specs).samples())
    assert [f["x"].shape for f in feeds] == [(4, 3), (4, 3)]


def test_an_array_with_one_more_dim_holds_whole_feeds() -> None:
    feeds = list(open_data({"x": np.zeros((5, 2, 3), np.float32)}, SPECS).samples())
    assert [f["x"].shape for f in feeds] == [(2, 3)] * 5


def test_a_constant_beside_samples_goes_with_each() -> None:
    specs = (*SPECS, TensorSpec("scale", np.dtype("float32"), ()))
    feeds = list(open_data({"x": VALUES, "scale": np.float32(2)}, specs).samples())
    assert len(feeds) == 10
    assert all(f["scale"] == 2 for f in feeds)


def test_batches_join_samples_of_one_shape() -> None:
    shapes = [f["x"].shape for f in open_data({"x": VALUES}, SPECS).batches(4)]
    assert shapes == [(4, 3), (4, 3), (2, 3)]


def test_samples_along_time_are_not_joined() -> None:
    songs: Iterator[dict[str, np.ndarray]] = iter([{"x": np.zeros((n, 3), np.float32)} for n in (1, 1, 4, 4, 1, 1)])
    source = DataSource("songs", 6, lambda: songs, SPECS)
    assert [f["x"].shape for f in source.batches(4)] == [(2, 3), (4, 3), (4, 3), (2, 3)]


def test_small_integers_become_floats() -> None:
    np.testing.assert_array_equal(values({"x": VALUES.astype(np.uint8)}), VALUES)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"z": VALUES, "w": VALUES}, "the data has z, w; the model takes x: float32"),
        ({"x": np.zeros((4, 5), np.float32)}, "sample 0: 'x' has shape"),
        ({"x": np.zeros((4, 3, 2, 2), np.float32)}, "has shape"),
        ({"x": np.array([["a", "b", "c"]])}, "sample 0: 'x' is string"),
        ({"x": np.array([[0, 0, 0], [0, np.nan, 0]], np.float32)}, "sample 1: 'x' holds NaN"),
        ({"x": np.array([[0, 0, 0], [0, 0, 0], [np.inf, 0, 0]], np.float32)}, "sample 2: 'x' holds infinity"),
        ({"x": np.zeros((0, 3), np.float32)}, "no samples"),
        ("/nowhere/at/all.npz", "no such file"),
    ],
)
def test_what_does_not_fit_is_named(data: object, words: str) -> None:
    with pytest.raises(InputError, match=words.replace("[", r"\[")):
        values(data)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no archive")
    whole = tmp_path / "whole.npz"
    np.savez(whole, x=np.zeros((1000, 3), np.float32))
    (tmp_path / "cut.npz").write_bytes(whole.read_bytes()[:5000])
    np.savez(tmp_path / "pickled.npz", x=np.array([{}, {}], dtype=object))
    (tmp_path / "empty").mkdir()
    for name, words in {
        "text.npz": "not an .npz",
        "cut.npz": "not an .npz",
        "pickled.npz": "pickled",
        "empty": "no .npy",
    }.items():
        with pytest.raises(InputError, match=words):
            values(tmp_path / name)


def test_scripts_that_fail_are_named(tmp_path: Path) -> None:
    script = tmp_path / "bad.py"
    script.write_text("raise ValueError('broken')")
    with pytest.raises(InputError, match="broken"):
        open_data(f"{script}:rows", SPECS)
    script.write_text("x = 1")
    with pytest.raises(UsageError, match="no function 'rows'"):
        open_data(f"{script}:rows", SPECS)
    with pytest.raises(UsageError, match="name the generator"):
        open_data(script, SPECS)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "yield {'x': np.zeros((1, 3), 'f4')}\n    raise ValueError('broken')",
            "fails at sample 1: ValueError: broken",
        ),
        ("return None", "fails at sample 0: TypeError"),
        ("yield {'y': 1, 'z': 2}", "the data has y, z; the model takes x"),
    ],
)
def test_generators_that_fail_are_named(tmp_path: Path, body: str, words: str) -> None:
    script = tmp_path / "rows.py"
    script.write_text(f"import numpy as np\n\ndef rows():\n    {body}\n")
    with pytest.raises(InputError, match=words):
        values(f"{script}:rows")


def test_labels_come_from_the_same_file(forms: dict[str, object]) -> None:
    np.testing.assert_array_equal(read_labels(forms["npz"], "y"), np.arange(10))
    with pytest.raises(InputError, match=r"no array 'z'.*it has x, y"):
        read_labels(forms["npz"], "z")


def test_archives_that_unpack_to_very_much_more_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, x=np.zeros((200_000, 3), np.float32))
    assert open_npz(path)["x"].shape == (200_000, 3)

    monkeypatch.setattr(archive, "_UNPACKED_LIMIT", 1_000_000)
    with pytest.raises(ResourceError, match="would unpack to"):
        open_data(path, SPECS)


def test_rows_are_read_without_unpacking_the_archive(tmp_path: Path) -> None:
    path = tmp_path / "large.npz"
    np.savez_compressed(path, x=np.zeros((4000, 1000), np.float32))
    import tracemalloc

    tracemalloc.start()
    assert sum(1 for _ in open_npz(path)["x"].read(1)) == 4000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000, "16 MB of rows should pass through a small window"


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (np.float32(2), [2.0, 2.0, 2.0]),
        (np.arange(3, dtype=np.float32), [0.0, 1.0, 2.0]),
        (np.arange(3, dtype=np.float32)[:, None], [0.0, 1.0, 2.0]),
    ],
    ids=["one for all", "one each", "one each in a column"],
)
def test_scalar_inputs_are_arrays_without_dims(tmp_path: Path, scale: np.ndarray, expected: list[float]) -> None:
    """A bare number is no array to the runtime."""
    np.savez(tmp_path / "scalar.npz", x=VALUES[:3], s=scale)
    specs = (*SPECS, TensorSpec("s", np.dtype("float32"), ()))
    found = [f["s"] for f in open_data(tmp_path / "scalar.npz", specs).samples()]
    assert all(isinstance(s, np.ndarray) and s.shape == () for s in found)
    assert [float(s) for s in found] == expected
    given = open_data([{"x": VALUES[:1], "s": np.float32(3)}], specs).first()["s"]
    assert isinstance(given, np.ndarray)


def test_a_sample_is_named_by_its_number_in_the_file() -> None:
    bad = VALUES.copy()
    bad[5] = np.nan
    source = open_data({"x": bad}, SPECS)
    measured, held_out = source.subset(lambda i: i % 4 != 3), source.subset(lambda i: i % 4 == 3)
    with pytest.raises(InputError, match="sample 5"):
        list(measured.samples())
    both = held_out.followed_by(measured.limited(3))
    assert [both.place(i).rpartition(" ")[2] for i in range(5)] == ["3", "7", "0", "4", "9"]
