"""Archives of arrays: nothing is unpacked that is very much larger than its file; rows come as they were written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxtool.errors import InputError, ResourceError
from onnxtool.runtime.data import archive
from onnxtool.runtime.data.archive import open_npy, open_npz, read_npz


def test_what_unpacks_to_very_much_more_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many, packed, plain = np.zeros(200_000), tmp_path / "packed.npz", tmp_path / "plain.npz"
    np.savez_compressed(packed, x=many)
    np.savez(plain, x=many)
    assert open_npz(packed)["x"].shape == (200_000,)  # small enough, however it is packed
    monkeypatch.setattr(archive, "_UNPACKED_LIMIT", 100_000)
    assert open_npz(plain)["x"].shape == (200_000,)
    with pytest.raises(ResourceError, match="would unpack to"):
        open_npz(packed)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_whole_blocks_of_rows_are_read_in_either_order(order: str, name: str, tmp_path: Path) -> None:
    array, path = np.arange(15.0).reshape(5, 3), tmp_path / name
    written = np.asfortranarray(array) if order == "F" else array
    if name.endswith("npz"):
        np.savez(path, x=written)
        columns = open_npz(path)["x"]
    else:
        np.save(path, written)
        columns = open_npy(path)[""]
    for rows, blocks in ((1, 5), (2, 2), (5, 1), (6, 0)):
        found = list(columns.blocks(rows) if hasattr(columns, "blocks") else columns.read(rows))
        assert len(found) == blocks
        for place, block in enumerate(found):
            assert block.tolist() == array[place * rows : (place + 1) * rows].tolist()


def test_a_file_that_is_cut_off_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(15.0).reshape(5, 3))
    path.write_bytes(path.read_bytes()[:-1])
    columns = open_npy(path)[""]
    with pytest.raises(InputError, match="cut off"):
        list(columns.read(5))


def test_objects_and_other_members_are_refused(tmp_path: Path) -> None:
    import zipfile

    np.savez(tmp_path / "o.npz", x=np.array([{}], object))
    with pytest.raises(InputError, match="pickled objects"):
        open_npz(tmp_path / "o.npz")
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as file:
        file.writestr("script.py", "print(1)")
    with pytest.raises(InputError, match=r"holds 'script\.py', which is not an \.npy array"):
        open_npz(tmp_path / "m.npz")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"hello", "is not an .npz or .npy file"),
        (b"", "is not an .npz or .npy file"),
        (b"\x80\x04K\x01.", "holds pickled objects"),
        (b"\x93NUMPY", "is damaged or cut off"),
    ],
)
def test_what_is_no_archive_is_called_what_it_is(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_npz(path)


def test_objects_in_an_archive_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "o.npz", fine=np.ones(2), words=np.array(["a", None], object))
    with pytest.raises(InputError, match="array 'words' holds pickled objects"):
        read_npz(tmp_path / "o.npz")
    np.save(tmp_path / "o.npy", np.array(["a", None], object))
    with pytest.raises(InputError, match="holds pickled objects"):
        read_npz(tmp_path / "o.npy")
    np.save(tmp_path / "x.npy", np.ones(2))
    assert read_npz(tmp_path / "x.npy")[""].tolist() == [1, 1]
