"""Images and tables as requests."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from onnxtool.errors import InputError
from onnxtool.model.image_options import ImageOptions
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.images import read_pictures
from onnxtool.runtime.input_kinds import CHANNELS
from onnxtool.runtime.protocol_v2.uploads import form_file
from onnxtool.serving.faults import HttpError
from onnxtool.serving.inference_routes import read_form, table_answer

PIXELS = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)


def png() -> bytes:
    image = pytest.importorskip("PIL.Image")
    target = io.BytesIO()
    image.fromarray(PIXELS).save(target, "PNG")
    return target.getvalue()


@pytest.mark.parametrize(("shape", "axes"), [((None, None, None, 3), (0, 1, 2)), ((1, 3, None, None), (2, 0, 1))])
def test_an_image_comes_as_its_pixels(shape: tuple[int | None, ...], axes: tuple[int, ...]) -> None:
    found = read_form("image/png", png(), [TensorSpec("x", np.dtype("uint8"), shape)])
    assert np.array_equal(found["x"], PIXELS.transpose(axes)[None])


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("turned", [1, 3, 6, 8])
def test_a_picture_is_the_same_for_predict_and_run(tmp_path: Path, channels: int, turned: int) -> None:
    """Also one that its EXIF data turns, and of any size where the model leaves that open."""
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(turned).integers(0, 256, (5, 7, 4), dtype=np.uint8)
    exif = image.Exif()
    exif[0x112] = turned
    picture = image.fromarray(pixels).convert(CHANNELS[channels])
    picture.save(tmp_path / "p.png", exif=exif)
    upright = np.rot90(np.asarray(picture).reshape(5, 7, -1), {1: 0, 3: 2, 6: 3, 8: 1}[turned])
    for shape, axes in (((1, None, None, channels), (0, 1, 2)), ((1, channels, None, None), (2, 0, 1))):
        specs = [TensorSpec("x", np.dtype("uint8"), shape)]
        sent = read_form("image/png", (tmp_path / "p.png").read_bytes(), specs)["x"]
        (read,) = read_pictures([tmp_path / "p.png"], specs, ImageOptions())
        assert np.array_equal(sent[0], upright.transpose(axes)) and np.array_equal(read["x"], sent)


def test_of_sixteen_bits_the_upper_eight_are_taken(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.array([[0, 255, 256], [40_000, 65_280, 65_535]], np.uint16)
    image.fromarray(pixels).save(tmp_path / "p.png")
    specs = [TensorSpec("x", np.dtype("uint8"), (1, None, None, 1))]
    sent = read_form("image/png", (tmp_path / "p.png").read_bytes(), specs)["x"]
    (read,) = read_pictures([tmp_path / "p.png"], specs, ImageOptions())
    assert np.array_equal(sent[0, :, :, 0], pixels >> 8) and np.array_equal(read["x"], sent)


def test_the_file_of_a_form_is_taken_as_it_is() -> None:
    head = b"Content-Disposition: form-data; name=f; filename=t.csv\r\nContent-Type: text/csv"
    content = b"a,b\r\n1,2\r\n--\r\n\r\n"
    form = b"--X\r\n" + head + b"\r\n\r\n" + content + b"\r\n--X--\r\n"
    kind = "multipart/form-data; boundary=X"
    assert form_file(kind, form, "image/*") == ("text/csv", content)
    for sent, text, taken in (
        (b"text/csv; charset=utf-8", content, "text/csv"),
        (b"application/octet-stream", content, "image/*"),
        (b"text/plain", b' {"a": 1}', "application/json"),
        (b"image/webp", b"RIFF", "image/webp"),
    ):
        told = form.replace(b"text/csv", sent).replace(content, text)
        assert form_file(kind, told, "image/*") == (taken, text)
    bare = form.replace(b"\r\nContent-Type: text/csv", b"")
    assert form_file(kind, bare, "image/*") == ("image/*", content)
    for wrong in (form[:-4], form.replace(b"--X", b"--Z"), form[:-4] + b"\r\n" + form, b""):
        with pytest.raises(InputError, match="exactly one file"):
            form_file(kind, wrong, "image/*")
    with pytest.raises(InputError, match="exactly one file"):
        form_file("multipart/form-data", form, "image/*")


def test_a_model_that_takes_floats_takes_no_image() -> None:
    with pytest.raises(HttpError) as caught:
        read_form("image/png", png(), [TensorSpec("x", np.dtype("float32"), (1, 3, None, None))])
    assert caught.value.status == 415


def test_broken_pixels_are_the_clients_fault() -> None:
    pytest.importorskip("PIL")
    with pytest.raises(InputError, match="not a sound"):
        read_form("image/png", b"\x89PNG\r\n\x1a\nxx", [TensorSpec("x", np.dtype("uint8"), (None, None, None, 3))])


@pytest.mark.parametrize("text", ["1,2\n3,4\n", "a,b\n1,2\n3,4\n"])
def test_a_table_comes_as_one_matrix(text: str) -> None:
    found = read_form("text/csv", text.encode(), [TensorSpec("x", np.dtype("float32"), (None, 2))])
    assert np.array_equal(found["x"], np.float32([[1, 2], [3, 4]]))


def test_columns_go_to_the_inputs_of_their_names() -> None:
    specs = [TensorSpec("age", np.dtype("int64"), (None, 1)), TensorSpec("city", "string", (None, 1))]
    found = read_form("text/csv", b"city,age\nRome,3\nOslo,4\n", specs)
    assert found["age"].tolist() == [[3], [4]] and found["city"].tolist() == [["Rome"], ["Oslo"]]


@pytest.mark.parametrize("text", ["", "1,2\n3\n", "1,x\n", "\xff", "a,b\n"])
def test_a_broken_table_is_the_clients_fault(text: str) -> None:
    with pytest.raises(InputError):
        read_form("text/csv", text.encode("latin-1"), [TensorSpec("x", np.dtype("float32"), (None, 2))])


def test_a_table_of_names_alone_is_the_clients_fault() -> None:
    specs = [TensorSpec(n, np.dtype("float32"), (None, 1)) for n in ("a", "b")]
    with pytest.raises(InputError, match="there are no rows"):
        read_form("text/csv", b"a,b\n", specs)


def test_a_missing_column_is_named() -> None:
    specs = [TensorSpec(n, np.dtype("float32"), (None, 1)) for n in ("a", "b")]
    with pytest.raises(InputError, match="no column 'b'"):
        read_form("text/csv", b"a\n1\n", specs)


def test_bad_cells_are_named_by_line_and_column() -> None:
    specs = [TensorSpec(n, np.dtype("float32"), (None, 1)) for n in ("a", "b")]
    with pytest.raises(InputError, match="line 3, column 'b': 'x' is not a number"):
        read_form("text/csv", b"b;a\n1;2\nx;2\n", specs)


def test_a_table_comes_back_with_the_names_of_classes() -> None:
    specs = [TensorSpec("p", np.dtype("float32"), (None, 2), columns=("no", "yes"))]
    outputs = {"label": np.array(["no", "yes"]), "p": np.float32([[0.9, 0.1], [0.2, 0.8]])}
    assert table_answer(outputs, specs) == b"label,p[no],p[yes]\nno,0.9,0.1\nyes,0.2,0.8\n"
    with pytest.raises(HttpError):
        table_answer({"a": np.zeros(2), "b": np.zeros(3)}, specs)
