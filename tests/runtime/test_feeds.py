"""Random and file-backed inputs."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from onnxtool.errors import InputError, ResourceError, UnsupportedError
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data import archive
from onnxtool.runtime.data.archive import read_npz
from onnxtool.runtime.feeds import adapt, random_feeds

FLOAT = np.dtype("float32")
INT = np.dtype("int64")


def test_one_name_is_one_size_over_all_inputs() -> None:
    specs = [
        TensorSpec("a", FLOAT, ("n", "len", 4)),
        TensorSpec("b", INT, ("n", "len")),
        TensorSpec("c", FLOAT, ("len",)),
    ]
    feeds = random_feeds(specs, batch=3, length=7)
    assert {k: v.shape for k, v in feeds.items()} == {"a": (3, 7, 4), "b": (3, 7), "c": (7,)}
    assert feeds["a"].dtype == FLOAT
    assert feeds["b"].dtype == INT


def test_same_seed_same_arrays_and_another_seed_others() -> None:
    specs = [TensorSpec("a", FLOAT, (2, 3))]
    np.testing.assert_array_equal(random_feeds(specs, 5)["a"], random_feeds(specs, 5)["a"])
    assert (random_feeds(specs, 5)["a"] != random_feeds(specs, 6)["a"]).any()


def test_floats_of_no_column_have_a_domain_too() -> None:
    spec = TensorSpec("x", np.dtype(np.float32), ("n",))
    assert random_feeds([spec], dims={"n": 0}, domains={"x": Domain(0.05, 1.0)})["x"].shape == (0,)


def test_integers_stay_in_their_domain() -> None:
    specs = [
        TensorSpec("ids", INT, (50, 50)),
        TensorSpec("flag", np.dtype("bool"), (9,)),
        TensorSpec("s", "string", (3,)),
    ]
    feeds = random_feeds(specs, domains={"ids": Domain(3, 11)})
    assert set(np.unique(feeds["ids"])) == set(range(3, 11))
    assert feeds["flag"].dtype == bool
    assert feeds["s"].dtype == object


def test_refuses_absurd_sizes_and_sequences() -> None:
    with pytest.raises(InputError, match="too large"):
        random_feeds([TensorSpec("a", FLOAT, (1 << 40, 1 << 40))])
    with pytest.raises(UnsupportedError, match="sequence"):
        random_feeds([TensorSpec("a", "sequence", None)])


def test_npz_without_pickle(tmp_path: Path) -> None:
    np.savez(tmp_path / "good.npz", a=np.ones(3))
    assert list(read_npz(tmp_path / "good.npz")) == ["a"]
    np.savez(tmp_path / "bad.npz", a=np.array([{}], dtype=object))
    with pytest.raises(InputError, match="pickled objects"):
        read_npz(tmp_path / "bad.npz")
    (tmp_path / "text.npz").write_text("no")
    with pytest.raises(InputError):
        read_npz(tmp_path / "text.npz")
    with pytest.raises(InputError, match="no such file"):
        read_npz(tmp_path / "none.npz")


def test_adapt_casts_integers_that_fit() -> None:
    for kind, fits, beyond in (("int32", [2**31 - 1, -(2**31)], 2**31), ("uint8", [255, 0], -1), ("uint64", [7], -1)):
        specs = [TensorSpec("x", np.dtype(kind), ("n",))]
        found = adapt(specs, {"x": np.array(fits)})["x"]
        assert found.dtype == kind and found.tolist() == fits
        assert adapt(specs, {"x": np.array([beyond])})["x"].dtype == np.int64
    assert adapt([TensorSpec("x", np.dtype("float32"), ("n",))], {"x": np.array([1])})["x"].dtype == np.int64


def test_adapt_picks_by_name_casts_floats_and_leaves_labels_out() -> None:
    specs = [TensorSpec("x", FLOAT, ("n", 2))]
    feeds = adapt(specs, {"x": np.zeros((4, 2)), "label": np.zeros(4, dtype=int)})
    assert list(feeds) == ["x"]
    assert feeds["x"].dtype == FLOAT
    assert adapt(specs, {"": np.zeros((4, 2), FLOAT)})["x"].shape == (4, 2)
    with pytest.raises(InputError, match="the data has other; the model takes x"):
        adapt(specs, {"other": np.zeros((4, 2), FLOAT)})
    with pytest.raises(InputError, match=r"x: float32\[n, 2\]"):
        adapt(specs, {"a": np.zeros(1), "b": np.zeros(1)})


def test_categories_are_drawn_from_their_own_column() -> None:
    spec = TensorSpec("x", "string", ("batch", 2))
    domain = Domain(0, 1, (("red", "green"), ("big", "small")))
    (feed,) = random_feeds([spec], 0, batch=40, domains={"x": domain}).values()
    assert feed.shape == (40, 2)
    assert set(feed[:, 0]) == {"red", "green"}
    assert set(feed[:, 1]) == {"big", "small"}


def test_one_list_of_categories_serves_every_place() -> None:
    spec = TensorSpec("x", np.dtype("int64"), ("batch",))
    (feed,) = random_feeds([spec], 0, batch=40, domains={"x": Domain(0, 1, (3, 70))}).values()
    assert feed.dtype == np.int64
    assert set(feed) == {3, 70}


def test_refuses_an_archive_with_something_else_inside(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("x.txt", "hello")
    with pytest.raises(InputError, match=r"'x\.txt', which is not an \.npy array"):
        read_npz(tmp_path / "d.npz")


def test_refuses_a_zip_bomb_before_unpacking_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "d.npz", x=np.zeros(2_000_000))
    assert read_npz(tmp_path / "d.npz")["x"].shape == (2_000_000,)
    monkeypatch.setattr(archive, "_UNPACKED_LIMIT", 1_000_000)
    with pytest.raises(ResourceError, match="would unpack to"):
        read_npz(tmp_path / "d.npz")


def test_random_inputs_have_a_limit_together() -> None:
    specs = [TensorSpec(name, np.dtype("float32"), (1 << 25,)) for name in ("a", "b", "c")]
    with pytest.raises(InputError, match=r"'c' .* too large for random data"):
        random_feeds(specs)


def test_dims_that_no_array_can_have_are_refused_also_beside_one_of_0() -> None:
    specs = [TensorSpec("x", np.dtype("float32"), ((1 << 63) - 1, 1, 0, 4, 0))]
    with pytest.raises(InputError, match="too large for random data"):
        random_feeds(specs)
    assert random_feeds([TensorSpec("x", np.dtype("float32"), (1 << 40, 0))])["x"].shape == (1 << 40, 0)
