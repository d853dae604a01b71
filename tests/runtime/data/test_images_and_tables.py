"""Pictures and tables as data."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

from onnxtool.errors import InputError, ResourceError, UsageError
from onnxtool.model.image_options import parse_options
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.open_data import open_data, read_labels

FLOAT = np.dtype("float32")
PICTURE = (TensorSpec("x", FLOAT, ("n", 3, 4, 6)),)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "cats").mkdir()
    for i in range(3):
        pixels = np.zeros((8, 12, 3), np.uint8)
        pixels[..., 0], pixels[..., 2] = 255, 51 * i
        image.fromarray(pixels).save(tmp_path / "cats" / f"{i}.png")
    return tmp_path / "cats"


def test_a_picture_of_too_many_pixels_is_beyond_a_limit(
    pictures: Path, onnxtool: Callable[..., CompletedProcess[str]], digits_onnx: Path
) -> None:
    # A header that claims 60,000 x 60,000; the file has some hundred bytes.
    small = (pictures / "0.png").read_bytes()
    header = b"IHDR" + struct.pack(">II", 60_000, 60_000) + small[24:29]
    large = small[:12] + header + struct.pack(">I", zlib.crc32(header)) + small[33:]
    (pictures / "large.png").write_bytes(large)
    with pytest.raises(ResourceError, match=r"has more than [0-9]+ pixels"):
        open_data(pictures / "large.png", PICTURE).first()
    done = onnxtool("run", digits_onnx, "--data", pictures / "large.png")
    assert (done.returncode, len(done.stderr.splitlines())) == (6, 1)


def test_pictures_are_resized_scaled_and_laid_out(pictures: Path) -> None:
    feeds = list(open_data(pictures, PICTURE).samples())
    assert len(feeds) == 3
    assert feeds[2]["x"].shape == (1, 3, 4, 6)
    np.testing.assert_allclose(feeds[2]["x"][0, :, 1, 1], [1.0, 0.0, 0.4], atol=1e-6)


def test_mean_std_order_and_channels_last(pictures: Path) -> None:
    specs = (TensorSpec("x", FLOAT, ("n", 4, 4, 3)),)
    options = parse_options("resize=4,mean=0.5/0.5/0.5,std=0.5/0.25/0.5,order=bgr")
    (first, *_) = open_data(pictures, specs, images=options).samples()
    assert first["x"].shape == (1, 4, 4, 3)
    np.testing.assert_allclose(first["x"][0, 0, 0], [-1.0, -2.0, 1.0], atol=1e-6)


def test_picture_sizes_that_nobody_gives_are_asked_for(pictures: Path) -> None:
    specs = (TensorSpec("x", FLOAT, ("n", 3, "h", "w")),)
    with pytest.raises(UsageError, match="crop=224"):
        open_data(pictures, specs).first()
    assert open_data(pictures, specs, images=parse_options("crop=5x7")).first()["x"].shape == (1, 3, 5, 7)


@pytest.mark.parametrize("text", ["size=3", "mean=a/b", "layout=chw", "resize"])
def test_picture_options_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--image"):
        parse_options(text)


def test_what_is_no_picture_is_named(pictures: Path) -> None:
    (pictures / "9.png").write_text("no picture")
    with pytest.raises(InputError, match=r"9\.png"):
        list(open_data(pictures, PICTURE).samples())


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text("a,b,kind,y\n1,2.5,red,0\n3,4.5,blue,1\n")
    return tmp_path / "t.csv"


def test_columns_become_features_without_the_labels(tmp_path: Path) -> None:
    path = tmp_path / "n.csv"
    path.write_text("a,b,y\n1,2.5,0\n3,4.5,1\n")
    specs = (TensorSpec("input", FLOAT, ("n", 2)),)
    rows = np.concatenate([f["input"] for f in open_data(path, specs, label="y").samples()])
    np.testing.assert_array_equal(rows, [[1, 2.5], [3, 4.5]])
    np.testing.assert_array_equal(read_labels(path, "y"), [0, 1])
    with pytest.raises(InputError, match=r"3 columns \(a, b, y\); the model takes 2"):
        open_data(path, specs).first()


def test_columns_go_to_inputs_of_their_name(table: Path) -> None:
    specs = (TensorSpec("a", np.dtype("int64"), ("n", 1)), TensorSpec("kind", "string", ("n", 1)))
    first, second = open_data(table, specs).samples()
    assert first["a"].tolist() == [[1]]
    assert second["kind"].tolist() == [["blue"]]


def test_cells_and_columns_that_do_not_fit_are_named(table: Path) -> None:
    with pytest.raises(InputError, match="line 2, column 'kind': 'red' is not a number"):
        open_data(table, (TensorSpec("x", FLOAT, ("n", 3)),), label="y").first()
    with pytest.raises(InputError, match="no column 'z'"):
        open_data(table, (TensorSpec("z", FLOAT, ("n",)), TensorSpec("a", FLOAT, ("n",)))).first()
    with pytest.raises(InputError, match="no column 'q'"):
        read_labels(table, "q")
