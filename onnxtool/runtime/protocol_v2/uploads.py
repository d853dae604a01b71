"""Files that are sent to /predict: the one in a form, and pictures."""

from __future__ import annotations

import io
from email.message import Message
from typing import Any

import numpy as np

from onnxtool.errors import InputError

_MAX_PIXELS = 1 << 26


def form_file(content_type: str, body: bytes, usual: str) -> tuple[str, bytes]:
    """The file of a form of the type multipart/form-data: its type, and its bytes.

    Args:
        content_type: of the form.
        body: of the form.
        usual: type of a file that is no JSON, where the form tells none that is known here: curl, Python and browsers
            send tables and pictures with types as general as text/plain.

    Raises:
        InputError: not a form, or one that does not hold exactly one file.
    """
    head = Message()
    head["content-type"] = content_type
    boundary = str(head.get_boundary("")).encode("latin-1", "replace")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary, 3)
    if not boundary or len(parts) != 3 or not parts[2].startswith(b"--"):
        raise InputError("a form must hold exactly one file, between the boundaries that its Content-Type names.")
    lines, _, content = parts[1].partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b":", 1) for line in lines.split(b"\r\n") if b":" in line)
    kind = fields.get(b"content-type", b"").split(b";")[0].strip().decode("latin-1")
    if kind.startswith("image/") or kind in ("text/csv", "application/json"):
        return kind, content
    return "application/json" if content[:64].lstrip()[:1] in (b"{", b"[") else usual, content


def upright(image: Any, mode: str) -> Any:
    """A picture of Pillow's in another mode, turned as its EXIF data says. Of 16 bits the upper 8 stay, as everywhere
    else; Pillow makes all above 255 white.
    """
    from PIL import ImageOps

    if image.mode.startswith("I"):
        image = image.point(lambda value: value * (1 / 256)).convert("L")
    return ImageOps.exif_transpose(image).convert(mode)


def decode_picture(body: bytes, axis: int, mode: str) -> np.ndarray:
    """The pixels of an image file, uint8 [1, height, width, channels] or [1, channels, height, width], turned as its
    EXIF data says; the model itself scales and normalises them.

    Args:
        body: of a PNG, JPEG, WebP or BMP file.
        axis: of the channels: 3 or 1.
        mode: what Pillow calls such pixels: "L", "RGB" or "RGBA".

    Raises:
        InputError: not such a file, or too many pixels.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(body), formats=("PNG", "JPEG", "WEBP", "BMP")) as image:
            if image.width * image.height <= _MAX_PIXELS:
                pixels = np.asarray(upright(image, mode), np.uint8)
                pixels = pixels.reshape(*pixels.shape[:2], -1)
                return np.ascontiguousarray(pixels if axis == 3 else pixels.transpose(2, 0, 1))[None]
    except Exception as error:  # its decoders raise whatever a damaged file leads them to
        raise InputError(f"not a sound PNG, JPEG, WebP or BMP image ({type(error).__name__}).") from error
    raise InputError(f"the image has more than {_MAX_PIXELS} pixels.")
