"""Pictures as they are at the input, held against Pillow where it is installed, and NumPy."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from onnxtool.editing import pictures
from onnxtool.errors import InputError, UnsupportedError, UsageError
from onnxtool.model.image_options import parse_options
from onnxtool.runtime.session.extensions import extensions_library
from tests.editing.conftest import Edited, Editor

IMAGE = """
g (float[n, 3, 20, 24] image) => (float[n, 3, 20, 24] y) { y = Identity(image) }
"""
NORMAL = "scale=255, mean=0.485/0.456/0.406, std=0.229/0.224/0.225"


def picture(height: int, width: int, channels: int = 3) -> np.ndarray:
    generator = np.random.default_rng(height)
    y, x = np.mgrid[0:height, 0:width]
    base = 120 + 90 * np.sin(x / 5)[..., None] + 40 * np.cos(y / 3)[..., None]
    return np.clip(base + generator.normal(0, 20, (height, width, channels)), 0, 255).astype(np.uint8)


def wanted(pixels: np.ndarray, words: str, size: tuple[int, int] = (20, 24)) -> np.ndarray:
    options = parse_options(words)
    sides = pictures.target_sides(*pixels.shape[:2], options, size)
    resized = pictures.pillow_resize(pixels, sides)
    return pictures.expected(
        pixels, options, size, pictures.numpy_resize(pixels, sides) if resized is None else resized
    )


def levels_off(made: Edited, words: str, pixels: np.ndarray) -> float:
    """How many of 255 levels the worst pixel is off."""
    got = made.run(image=pixels[None])["y"][0].transpose(1, 2, 0)
    return float((np.abs(got - wanted(pixels, words)) * np.float32([0.229, 0.224, 0.225]) * 255).max())


@pytest.mark.parametrize("sides", [(60, 50), (23, 90), (20, 24), (11, 13)])
def test_resized_cropped_and_normalized_as_pillow_does(edited: Editor, sides: tuple[int, int]) -> None:
    words = f"resize=28, crop=20x24, {NORMAL}"
    made = edited(IMAGE, f"pre=image: u8 nhwc, {words}")
    assert levels_off(made, words, picture(*sides)) < 1.01
    assert str(made.report.inputs[0]) == "image: uint8[n, image_height, image_width, 3]"


def test_straight_to_the_models_size(edited: Editor) -> None:
    made = edited(IMAGE, f"pre=image: u8 nhwc, {NORMAL}")
    assert levels_off(made, NORMAL, picture(41, 77)) < 1.01


def test_a_model_that_takes_levels_has_no_use_for_a_mean(edited: Editor) -> None:
    with pytest.raises(UsageError, match=r"takes levels as they are; leave out mean=0\.5"):
        edited(IMAGE.replace("float[", "uint8["), "pre=image: u8 nhwc, fixed, mean=0.5")


def test_the_proof_says_that_it_is_with_antialias(edited: Editor) -> None:
    proof = edited(IMAGE, f"pre=u8 nhwc, resize=24, {NORMAL}").report.steps[0].proof
    assert proof is not None
    assert "with antialias" in proof.claim
    assert "/255 of NumPy" in proof.claim


def test_a_fixed_picture_is_not_resized(edited: Editor) -> None:
    made = edited(IMAGE, "pre=image: u8 nchw fixed, scale=255")
    assert "Resize" not in [n.op_type for n in made.proto.graph.node]
    pixels = picture(20, 24)
    got = made.run(image=np.ascontiguousarray(pixels.transpose(2, 0, 1)[None]))["y"]
    assert np.allclose(got[0].transpose(1, 2, 0), pixels / 255, atol=1e-6)


def test_blue_first(edited: Editor) -> None:
    made = edited(IMAGE, "pre=image: u8 nhwc fixed, scale=1, order=bgr")
    pixels = picture(20, 24)
    assert np.array_equal(made.run(image=pixels[None])["y"][0].transpose(1, 2, 0), pixels[..., ::-1].astype(np.float32))


def test_channels_last_and_one_channel(edited: Editor) -> None:
    text = "g (float[1, 20, 24, 1] image) => (float[1, 20, 24, 1] y) { y = Identity(image) }"
    made = edited(text, "pre=image: u8 nhwc, scale=255")
    pixels = picture(50, 40, 1)
    got = made.run(image=pixels[None])["y"][0]
    assert np.abs(got - wanted(pixels, "scale=255")).max() * 255 < 1.01


def test_a_large_picture_is_within_one_level(edited: Editor) -> None:
    text = "g (float[1, 3, 224, 224] image) => (float[1, 3, 224, 224] y) { y = Identity(image) }"
    words = f"resize=256, crop=224, {NORMAL}"
    made = edited(text, f"pre=image: u8 nhwc, {words}")
    generator = np.random.default_rng(0)
    pixels = np.clip(picture(505, 683) + generator.normal(0, 25, (505, 683, 3)), 0, 255).astype(np.uint8)
    got = made.run(image=pixels[None])["y"][0].transpose(1, 2, 0)
    off = np.abs(got - wanted(pixels, words, (224, 224))) * np.float32([0.229, 0.224, 0.225]) * 255
    assert off.max() < 1.01


def test_a_model_that_takes_whole_numbers(edited: Editor) -> None:
    made = edited(IMAGE.replace("float[", "uint8["), "pre=image: u8 nhwc, resize=28, crop=20x24")
    pixels = picture(50, 61)
    got = made.run(image=pixels[None])["y"][0].transpose(1, 2, 0).astype(int)
    assert np.abs(got - wanted(pixels, "resize=28, crop=20x24, scale=1")).max() <= 1


def test_a_model_that_takes_half_precision(edited: Editor) -> None:
    made = edited(IMAGE.replace("float[", "float16["), f"pre=image: u8 nhwc, resize=28, {NORMAL}")
    assert made.run(image=picture(40, 40)[None])["y"].dtype == np.float16


def test_older_operators_are_lifted_for_antialias(edited: Editor) -> None:
    made = edited(IMAGE, "pre=image: u8 nhwc, scale=255", opset=13)
    assert made.proto.opset_import[0].version == 18


def test_on_pictures_of_the_users(edited: Editor, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(picture(64, 48)).save(tmp_path / "one.png")
    made = edited(IMAGE, f"pre=image: u8 nhwc, resize=32, {NORMAL}", pictures=[tmp_path / "one.png"])
    proof = made.report.steps[0].proof
    assert proof is not None
    assert proof.runs == 5
    (tmp_path / "two.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match="not a picture"):
        edited(IMAGE, "pre=image: u8 nhwc", pictures=[tmp_path / "two.png"])


def test_numpy_and_pillow_agree() -> None:
    pytest.importorskip("PIL")
    for sides, target in (((60, 50), (20, 24)), ((9, 40), (30, 21)), ((20, 24), (20, 24))):
        pixels = picture(*sides)
        by_pillow = pictures.pillow_resize(pixels, target)
        assert by_pillow is not None
        assert np.abs(by_pillow.astype(int) - pictures.numpy_resize(pixels, target)).max() <= 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("image: u8, frob=3", "--pre frob=3"),
        ("image: u8, std=0", "must not be 0"),
        ("image: u8, scale=nan", "finite"),
        ("image: u8, scale=0.00392", "makes 65,051 of 255. To multiply by it, write scale=255.102"),
        ("image: u8, crop=10", "but the model takes 20x24"),
        ("image: u8, mean=1/2", "2 numbers for 3 channels"),
        ("image: u8, resize=99999", "between 1 and 16384"),
        ("picture: u8", "there is no input 'picture'"),
    ],
)
def test_nonsense_is_refused(edited: Editor, words: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        edited(IMAGE, f"pre={words}")


def test_what_is_not_a_picture_is_refused(edited: Editor) -> None:
    with pytest.raises(UsageError, match="is not a picture"):
        edited("g (float[2, 3] x) => (float[2, 3] y) { y = Neg(x) }", "pre=x: u8")


@pytest.mark.parametrize("channels", [1, 3])
def test_encoded_pictures_are_those_that_pillow_reads(edited: Editor, channels: int) -> None:
    if find_spec("onnxruntime_extensions") is None:  # importing it changes the environment
        pytest.skip("onnxruntime-extensions is not installed")
    Image = pytest.importorskip("PIL.Image")
    import onnxruntime

    text = IMAGE.replace(" 3,", f" {channels},")
    made = edited(text, "pre=image: encoded, resize=28, crop=20x24, scale=255")
    assert str(made.report.inputs[0]) == "image: uint8[image_bytes]"
    assert any("let nobody send one unchecked" in w for w in made.report.warnings)
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(extensions_library("a test")))
    session = onnxruntime.InferenceSession(made.output, options, providers=["CPUExecutionProvider"])
    for shown in ("RGB", "L", "RGBA", "P"):
        held = io.BytesIO()
        Image.fromarray(picture(70, 50)).convert(shown).save(held, "PNG")
        pixels = np.asarray(Image.open(held).convert("RGB" if channels == 3 else "L")).reshape(70, 50, channels)
        got = session.run(None, {"image": np.frombuffer(held.getvalue(), np.uint8)})[0][0].transpose(1, 2, 0)
        off = np.abs(got - wanted(pixels, "resize=28, crop=20x24, scale=255")) * 255
        # Pillow takes transparent and indexed pictures to grey by ways of its own.
        assert off.max() < (1.01 if channels == 3 or shown in ("RGB", "L") else 2.01), shown


def test_encoded_pictures_come_one_by_one(edited: Editor) -> None:
    if find_spec("onnxruntime_extensions") is None:
        pytest.skip("onnxruntime-extensions is not installed")
    with pytest.raises(UnsupportedError, match="takes 2 pictures at once"):
        edited(IMAGE.replace("[n,", "[2,"), "pre=image: encoded")
    with pytest.raises(UsageError, match="leave out fixed"):
        edited(IMAGE, "pre=image: encoded fixed")
