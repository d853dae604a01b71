"""Real data for `quantize_survey.py` that needs no network: speech, pictures, printed text, sentences, digits.

Speech is read by espeak-ng (a system package), pictures are those that scikit-image carries, text is printed in the
fonts that matplotlib carries, and sentences are the docstrings of Python's standard library.
"""

from __future__ import annotations

import importlib
import inspect
import io
import pkgutil
import re
import subprocess
import sys
import wave
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

RATE = 16000
VOICES = ("en-us", "en-gb+f3", "de", "fr", "en-us+m5", "es", "it", "en-gb")


@cache
def sentences(count: int = 600) -> tuple[tuple[str, str], ...]:
    """(what a function is called and the first sentence about it, the rest of its docstring): pairs that belong."""
    found: dict[str, tuple[str, str]] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules() if m.name in sys.stdlib_module_names):
        if module.startswith("_") or module in ("antigravity", "this", "idlelib", "test", "turtledemo", "lib2to3"):
            continue
        try:
            loaded = importlib.import_module(module)
        except Exception:
            continue
        for name, thing in sorted(vars(loaded).items()):
            text = inspect.getdoc(thing) if callable(thing) else None
            parts = re.split(r"\n\s*\n", text or "", maxsplit=1)
            if len(parts) == 2 and 30 < len(parts[0]) < 200 and len(parts[1]) > 120:
                first, rest = (" ".join(p.split()) for p in parts)
                found.setdefault(first, (f"{name}: {first}", rest[:600]))
    pairs = list(found.values())
    chosen = np.random.default_rng(0).permutation(len(pairs))[:count]
    return tuple(pairs[i] for i in chosen)


@cache
def speech(count: int = 32) -> tuple[np.ndarray, ...]:
    """Spoken sentences, 16 kHz, in [-1, 1], half of them with noise; needs espeak-ng."""
    noise, spoken = np.random.default_rng(0), []
    for index, (text, _) in enumerate(sentences()[:count]):
        command = ["espeak-ng", "-v", VOICES[index % len(VOICES)], "-s", str(130 + 7 * (index % 9)), "--stdout", text]
        with wave.open(io.BytesIO(subprocess.run(command, capture_output=True, check=True).stdout)) as file:
            # What espeak-ng pipes has no length in its header.
            raw = np.frombuffer(file.readframes(1 << 24), np.int16).astype(np.float32) / 32768
            rate = file.getframerate()
        moments = np.arange(0, len(raw) - 1, rate / RATE)
        sound = np.interp(moments, np.arange(len(raw)), raw)
        sound = np.concatenate([np.zeros(RATE // 2), sound, np.zeros(RATE // 2)])
        sound += noise.normal(0, (0.0, 0.02, 0.002, 0.05)[index % 4], len(sound))
        spoken.append(sound.astype(np.float32).clip(-1, 1))
    return tuple(spoken)


def windows(length: int, count: int, step: int | None = None) -> list[np.ndarray]:
    """So many stretches of speech of `length` samples."""
    sound = np.concatenate(speech())
    step = step or max((len(sound) - length) // count, 1)
    return [sound[i * step : i * step + length] for i in range(count)]


def pictures(packages: Path, size: int, count: int) -> list[np.ndarray]:
    """Crops of photographs, [size, size, 3], 0 to 255."""
    from PIL import Image

    names = ("astronaut.png", "coffee.png", "chelsea.png", "rocket.jpg", "motorcycle_left.png", "ihc.png", "retina.jpg")
    names += ("hubble_deep_field.jpg", "camera.png", "coins.png", "grass.png", "page.png")
    found = [Image.open(packages / "scikit_image" / "skimage" / "data" / n).convert("RGB") for n in names]
    draw, crops = np.random.default_rng(1), []
    for index in range(count):
        picture = found[index % len(found)]
        side = int(min(picture.size) * draw.uniform(0.4, 1.0))
        left, top = (int(draw.integers(0, edge - side + 1)) for edge in picture.size)
        crop = picture.crop((left, top, left + side, top + side)).resize((size, size))
        crops.append(np.asarray(crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draw.random() < 0.5 else crop))
    return crops


def words(count: int) -> Iterator[str]:
    """Short stretches of text."""
    draw = np.random.default_rng(2)
    for first, _ in sentences()[:count]:
        split = first.split()
        at = int(draw.integers(0, max(len(split) - 3, 1)))
        yield " ".join(split[at : at + 3])[:24]


def printed(text: str, width: int, height: int, index: int = 0) -> np.ndarray:
    """A line of text in print, [height, width, 3], 0 to 255."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    name = ("DejaVuSans.ttf", "DejaVuSerif.ttf", "DejaVuSans-Bold.ttf", "DejaVuSansMono.ttf")[index % 4]
    draw = np.random.default_rng(index)
    paper, ink = int(draw.integers(190, 256)), int(draw.integers(0, 90))
    picture = Image.new("RGB", (width, height), (paper, paper, paper - int(draw.integers(0, 20))))
    size = int(height * draw.uniform(0.5, 0.7))
    font = ImageFont.truetype(str(folder / name), size)
    while font.getlength(text) > width - 8 and size > 8:
        size -= 1
        font = ImageFont.truetype(str(folder / name), size)
    ImageDraw.Draw(picture).text((4, (height - 1.2 * size) / 2), text, fill=(ink, ink, ink + 10), font=font)
    array = np.asarray(picture, np.float32) + draw.normal(0, draw.uniform(0, 12), (height, width, 3))
    return array.clip(0, 255).astype(np.uint8)


def page(index: int, size: int) -> np.ndarray:
    """A page with lines of text here and there, [size, size, 3]."""
    draw = np.random.default_rng(index)
    sheet = np.full((size, size, 3), int(draw.integers(200, 256)), np.uint8)
    for line, text in enumerate(words(6 + index)):
        if line < index:
            continue
        height, width = int(draw.integers(24, 44)), int(draw.integers(size // 3, int(size * 0.9)))
        top, left = int(draw.integers(0, size - height)), int(draw.integers(0, size - width))
        sheet[top : top + height, left : left + width] = printed(text, width, height, index * 7 + line)
    return sheet


def digits(size: int, *, channels: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Handwritten digits of scikit-learn, moved and scaled: [N, channels, size, size] in [0, 1], and labels."""
    from PIL import Image
    from sklearn.datasets import load_digits

    found = load_digits()
    draw, result = np.random.default_rng(3), []
    for digit in found.images:
        side = int(size * draw.uniform(0.6, 0.95))
        canvas = np.zeros((size, size), np.float32)
        top, left = draw.integers(0, size - side + 1, 2)
        scaled = Image.fromarray((digit * 15.9).astype(np.uint8)).resize((side, side), Image.Resampling.BILINEAR)
        canvas[top : top + side, left : left + side] = np.asarray(scaled, np.float32) / 255
        result.append(np.repeat(canvas[None], channels, axis=0) + draw.normal(0, 0.05, (1, size, size)))
    return np.array(result, np.float32), found.target.astype(np.int64)
