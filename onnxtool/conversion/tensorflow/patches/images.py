"""Operators of TensorFlow on images: resizes, crops and colours, by its own arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from onnxtool.conversion.tensorflow.patches.op_handlers import FLOAT, INT64, OperatorWriter, missing, wrong


def _between(write: OperatorWriter, a: str, b: str, share: str) -> str:
    """Of a and b, which one share of the way lies between."""
    return write.add("Add", a, write.add("Mul", write.add("Sub", b, a), share))


def _crop_and_resize(write: OperatorWriter) -> None:
    """Pixels at (or between the neighbours of) points evenly spread over boxes, by TensorFlow's own arithmetic.

    A crop of n > 1 rows samples y1 (H - 1) + i (y2 - y1) (H - 1) / (n - 1), one of a single row the middle of the box.
    Half a pixel goes up; points outside of the image get the extrapolation value.
    Source: tensorflow/core/kernels/image/crop_and_resize_op.cc.
    """
    image, boxes, box_image, crop_size = write.inputs
    node, one, int64 = write.node, write.constant(1), partial(write.constant, dtype=np.int64)
    size, crop = write.add("Shape", image), write.cast(crop_size, INT64)
    corners = [write.add("Gather", boxes, int64([corner]), axis=1) for corner in range(4)]  # [boxes, 1] each
    nearest = node.get_attr_value("method", b"bilinear") == b"nearest"
    pixels = write.cast(image, FLOAT)
    points, valid = [], []
    for axis in (0, 1):
        count = write.add("Gather", crop, int64(axis))
        last = write.add("Sub", write.cast(write.add("Gather", size, int64(axis + 1)), FLOAT), one)
        low, high = corners[axis], corners[axis + 2]
        steps = write.add("Max", write.cast(write.add("Sub", count, int64(1)), FLOAT), one)
        step = write.add("Div", write.add("Mul", write.add("Sub", high, low), last), steps)
        places = write.cast(write.add("Range", int64(0), count, int64(1)), FLOAT)
        spread = write.add("Add", write.add("Mul", low, last), write.add("Mul", places, step))
        middle = write.add("Mul", write.add("Mul", write.constant(0.5), write.add("Add", low, high)), last)
        point = write.add("Where", write.add("Greater", count, int64(1)), spread, middle)  # [boxes, count]
        inside = write.add("And", write.add("GreaterOrEqual", point, write.constant(0)),
                           write.add("LessOrEqual", point, last))  # fmt: skip
        ends = int64([2 - axis]), int64([2 - axis, 3])  # to [boxes, rows, columns], and with channels
        clipped = write.add("Min", write.add("Max", point, write.constant(0)), last)
        points.append(write.add("Unsqueeze", clipped, ends[0]))
        valid.append(write.add("Unsqueeze", inside, ends[1]))
    which = write.add("Unsqueeze", write.cast(box_image, INT64), int64([1, 2]))

    def taken(row: str, column: str) -> str:
        """float32[boxes, rows, columns, channels]: pixels at whole points."""
        parts = [which, write.cast(row, INT64), write.cast(column, INT64)]
        grid = write.add("Max", *parts)
        shape = write.add("Shape", grid)
        indices = [write.add("Unsqueeze", write.add("Expand", part, shape), int64([3])) for part in parts]
        return write.add("GatherND", pixels, write.add("Concat", *indices, axis=3))

    if nearest:
        half = write.constant(0.5)
        floors = [write.add("Floor", point) for point in points]
        rounded = [
            write.add(
                "Add", floor, write.cast(write.add("GreaterOrEqual", write.add("Sub", point, floor), half), FLOAT)
            )
            for point, floor in zip(points, floors, strict=True)
        ]
        found = taken(*rounded)
    else:
        (top, left), (bottom, right) = ([write.add(kind, p) for p in points] for kind in ("Floor", "Ceil"))
        down, along = (
            write.add("Unsqueeze", write.add("Sub", p, floor), int64([3]))
            for p, floor in zip(points, (top, left), strict=True)
        )

        above, below = (_between(write, taken(row, left), taken(row, right), along) for row in (top, bottom))
        found = _between(write, above, below, down)
    outside = write.constant(node.get_attr_value("extrapolation_value", 0.0))
    write.give("Where", write.add("And", *valid), found, outside)


def _resized_by(write: OperatorWriter, shares: Callable[[str, str, str], str]) -> None:
    """Rows @ image @ columns^T, in the place of an operator that takes images and a size.

    Args:
        write: the operator.
        shares: float32 sizes before and after, and their quotient -> float32[after, before], what each pixel adds.
    """
    if write.node.get_attr_value("align_corners"):
        raise NotImplementedError(f"{write.node.type} with align_corners")
    rows, columns = (shares(*sizes[1:]) for sizes in _sizes(write))
    image = write.add("Transpose", write.cast(write.inputs[0], FLOAT), perm=[0, 3, 1, 2])
    resized = write.add("MatMul", write.add("MatMul", rows, image), write.add("Transpose", columns, perm=[1, 0]))
    write.give("Transpose", resized, perm=[0, 2, 3, 1])


def _sizes(write: OperatorWriter) -> Iterator[tuple[int, str, str, str]]:
    """Of the rows and the columns: their axis, float32 sizes before and after, and the quotient of both."""
    shape = write.add("Shape", write.inputs[0])
    for axis in (0, 1):
        old = write.cast(write.add("Gather", shape, write.constant(axis + 1, np.int64)), FLOAT)
        new = write.cast(write.add("Gather", write.inputs[1], write.constant(axis, np.int64)), FLOAT)
        yield axis + 1, old, new, write.add("Div", old, new)


def _places(write: OperatorWriter, count: str, shift: float = 0.0) -> str:
    """float32[count]: shift, shift + 1, ..."""
    single = partial(write.constant, dtype=np.float32)
    return write.add("Add", write.add("Range", single(0), count, single(1)), single(shift))


def _resize_bicubic(write: OperatorWriter) -> None:
    """Cubic interpolation by Keys' kernel of a = -1/2, at distances in steps of 1/1024, which is TensorFlow's table.

    The runtime's Resize takes an empty batch for another scale.
    Source: tensorflow/core/kernels/image/resize_bicubic_op.cc.
    """
    if not write.node.get_attr_value("half_pixel_centers"):
        raise NotImplementedError("ResizeBicubic without half_pixel_centers")

    def shares(old: str, new: str, scale: str) -> str:
        half, steps = write.constant(0.5), write.constant(1024)
        point = write.add("Sub", write.add("Mul", _places(write, new, 0.5), scale), half)
        low = write.add("Floor", point)
        rest = write.add("Div", write.add("Round", write.add("Mul", write.add("Sub", point, low), steps)), steps)
        center = write.add("Unsqueeze", write.add("Add", low, rest), write.constant([1], np.int64))
        x = write.add("Abs", write.add("Sub", _places(write, old), center))
        weights = _keys(write, x)
        return write.add("Div", weights, write.add("ReduceSum", weights, write.constant([1], np.int64), keepdims=1))

    _resized_by(write, shares)


def _resize_area(write: OperatorWriter) -> None:
    """Means of the pixels that each new pixel covers.

    Source: tensorflow/core/kernels/image/resize_area_op.cc.
    """

    def shares(old: str, new: str, scale: str) -> str:
        one, pixels = write.constant(1), _places(write, old)
        places = write.add("Unsqueeze", _places(write, new), write.constant([1], np.int64))
        low = write.add("Max", write.add("Mul", places, scale), pixels)
        high = write.add("Min", write.add("Mul", write.add("Add", places, one), scale), write.add("Add", pixels, one))
        return write.add("Div", write.add("Max", write.add("Sub", high, low), write.constant(0)), scale)

    _resized_by(write, shares)


def _resize_bilinear(write: OperatorWriter) -> None:
    """Between the next columns, then the next rows, in TensorFlow's order and at its positions.

    The runtime's Resize, which is faster, divides where TensorFlow multiplies: among hundreds of pixels its positions
    are others by so much that it shows. It serves where an image of known size grows.
    Source: tensorflow/core/kernels/image/resize_bilinear_op.cc.
    """
    node, image, int64 = write.node, write.cast(write.inputs[0], FLOAT), partial(write.constant, dtype=np.int64)
    half = bool(node.get_attr_value("half_pixel_centers"))
    to_known = node.inputs[1].is_const()
    old, new = (write.graph.get_shape(name) for name in (node.input[0], node.output[0]))
    if old and new and all(0 < was <= now for was, now in zip(old[1:3], new[1:3], strict=True)):
        mode = "align_corners" if node.get_attr_value("align_corners") else "half_pixel" if half else "asymmetric"
        planes = write.add("Transpose", image, perm=[0, 3, 1, 2])
        others = write.add("Slice", write.add("Shape", planes), int64([0]), int64([2]))
        sizes = write.add("Concat", others, write.cast(write.inputs[1], INT64), axis=0)
        resized = write.add("Resize", planes, "", "", sizes, mode="linear", coordinate_transformation_mode=mode)
        write.give("Transpose", resized, perm=[0, 2, 3, 1])
        return
    found: list[tuple[list[str], str]] = []  # of rows and columns: places before and behind, how far from the first
    for axis, last, point in _positions(write, 0.5 if half else 0.0):
        low = write.add("Floor", point)
        ends = write.add("Max", low, write.constant(0)), write.add("Min", write.add("Ceil", point), last)
        share = write.add("Unsqueeze", write.add("Sub", point, low), int64([*range(1, 4 - axis)]))
        found.append(([write.cast(end, INT64) for end in ends], share))
    (rows, down), (columns, along) = found

    def widened(lines: str) -> str:
        left, right = (write.add("Gather", lines, end, axis=2) for end in columns)
        return _between(write, left, right, along)

    if to_known:  # of a large image only the rows that are used
        above, below = (widened(write.add("Gather", image, end, axis=1)) for end in rows)
    else:
        wide = widened(image)
        above, below = (write.add("Gather", wide, end, axis=1) for end in rows)
    write.give("Identity", _between(write, above, below, down))


def _cubic(write: OperatorWriter, x: str, *factors: float) -> str:
    """A polynomial of x, the highest power first."""
    total = write.constant(factors[0])
    for factor in factors[1:]:
        total = write.add("Add", write.add("Mul", total, x), write.constant(factor))
    return total


def _within(write: OperatorWriter, x: str, reach: float, inner: str, outer: str | None = None) -> str:
    """One value where x is less than a number, another one (or 0) elsewhere."""
    return write.add("Where", write.add("Less", x, write.constant(reach)), inner, outer or write.constant(0))


def _lanczos(write: OperatorWriter, x: str, reach: float) -> str:
    """Weights reach sin(pi x) sin(pi x / reach) / (pi x)^2, and 1 at 0."""
    near, angle = write.constant(1e-3), write.add("Mul", x, write.constant(np.pi))
    waves = write.add("Mul", write.add("Sin", angle), write.add("Sin", write.add("Div", angle, write.constant(reach))))
    square = write.add("Max", write.add("Mul", angle, angle), write.constant(1e-6))
    value = write.add("Div", write.add("Mul", write.constant(reach), waves), square)
    return write.add("Where", write.add("LessOrEqual", x, near), write.constant(1), _within(write, x, reach, value))


def _mitchell(write: OperatorWriter, x: str) -> str:
    outer = _within(write, x, 2, _cubic(write, x, -7 / 18, 2, -10 / 3, 16 / 9))
    return _within(write, x, 1, _cubic(write, x, 7 / 6, -2, 0, 8 / 9), outer)


def _keys(write: OperatorWriter, x: str) -> str:
    outer = _within(write, x, 2, _cubic(write, x, -0.5, 2.5, -4, 2))
    return _within(write, x, 1, _cubic(write, x, 1.5, -2.5, 0, 1), outer)


def _gaussian(write: OperatorWriter, x: str) -> str:
    return _within(write, x, 1.5, write.add("Exp", write.add("Mul", write.add("Mul", x, x), write.constant(-2))))


# What a pixel at some distance adds, as TensorFlow's sampling_kernels.h has it.
_KERNELS: dict[str, Callable[[OperatorWriter, str], str]] = {
    "lanczos1": partial(_lanczos, reach=1), "lanczos3": partial(_lanczos, reach=3),
    "lanczos5": partial(_lanczos, reach=5), "gaussian": _gaussian,
    "triangle": lambda write, x: write.add("Max", write.add("Sub", write.constant(1), x), write.constant(0)),
    "keyscubic": _keys, "mitchellcubic": _mitchell,
}  # fmt: skip


def _scale_and_translate(write: OperatorWriter) -> None:
    """Weighted means of the pixels around each place; with antialias of more where an image shrinks.

    Source: tensorflow/core/kernels/image/scale_and_translate_op.cc.
    """
    name = write.node.get_attr_str("kernel_type")
    if name not in _KERNELS:
        raise NotImplementedError(f"ScaleAndTranslate with the kernel {name}")
    _, _, scales, moves = write.inputs
    one, axes = write.constant(1), iter((0, 1))

    def shares(old: str, new: str, _: str) -> str:
        axis = write.constant(next(axes), np.int64)
        scale, move = (write.add("Gather", value, axis) for value in (scales, moves))
        step = write.add("Div", one, scale)
        point = write.add("Sub", write.add("Mul", _places(write, new, 0.5), step), write.add("Mul", step, move))
        column = write.add("Unsqueeze", point, write.constant([1], np.int64))
        apart = write.add("Abs", write.add("Sub", _places(write, old, 0.5), column))
        wide = write.add("Max", step, one) if write.node.get_attr_value("antialias") else one
        weights = _KERNELS[name](write, write.add("Mul", apart, write.add("Div", one, wide)))
        total = write.add("ReduceSum", weights, write.constant([1], np.int64), keepdims=1)
        inside = write.add("And", write.add("GreaterOrEqual", column, write.constant(0)),
                           write.add("LessOrEqual", column, old))  # fmt: skip
        return write.add("Where", inside, write.add("Div", weights, total), write.constant(0))

    _resized_by(write, shares)


def _hue_saturation_value(write: OperatorWriter, image: str) -> tuple[str, str, str]:
    """[..., 1] each of an image's red, green and blue [..., 3]: hue from 0 to 1, saturation and value.

    Source: tensorflow/core/kernels/image/colorspace_op.h.
    """
    add, zero, last = write.add, write.constant(0), write.constant([-1], np.int64)
    red, green, blue = (add("Gather", image, write.constant([k], np.int64), axis=-1) for k in range(3))
    value = add("ReduceMax", image, last)
    spread = add("Sub", value, add("ReduceMin", image, last))
    saturation = add("Where", add("Greater", value, zero), add("Div", spread, value), zero)
    sixth = add("Div", write.constant(1 / 6), spread)

    def hue(a: str, b: str, at: float) -> str:
        return add("Add", add("Mul", sixth, add("Sub", a, b)), write.constant(at))

    others = add("Where", add("Equal", green, value), hue(blue, red, 2 / 6), hue(red, green, 4 / 6))
    found = add("Where", add("Equal", red, value), hue(green, blue, 0), others)
    found = add("Where", add("Greater", spread, zero), found, zero)
    around = add("Where", add("Less", found, zero), add("Add", found, write.constant(1)), found)
    return around, saturation, value


def _red_green_blue(write: OperatorWriter, hue: str, saturation: str, value: str) -> None:
    """What `_hue_saturation_value` takes, of what it gives, in the operator's place."""
    add, number = write.add, write.constant
    angle, rest = add("Mul", hue, number(6)), add("Sub", number(1), saturation)

    def colour(at: float, sign: float, offset: float) -> str:
        away = add("Mul", add("Abs", add("Sub", angle, number(at))), number(sign))
        share = add("Min", add("Max", add("Add", away, number(offset)), number(0)), number(1))
        return add("Mul", add("Add", rest, add("Mul", saturation, share)), value)

    write.give("Concat", colour(3, 1, -1), colour(2, -1, 2), colour(4, -1, 2), axis=-1)


def _to_hsv(write: OperatorWriter) -> None:
    write.give("Concat", *_hue_saturation_value(write, write.inputs[0]), axis=-1)


def _from_hsv(write: OperatorWriter) -> None:
    image = write.inputs[0]
    _red_green_blue(write, *(write.add("Gather", image, write.constant([k], np.int64), axis=-1) for k in range(3)))


def _adjust_saturation(write: OperatorWriter) -> None:
    image, factor = write.inputs
    hue, saturation, value = _hue_saturation_value(write, image)
    more = write.add("Mul", saturation, write.cast(factor, write.dtype))
    clipped = write.add("Min", write.add("Max", more, write.constant(0)), write.constant(1))
    _red_green_blue(write, hue, clipped, value)


def _resize_nearest(write: OperatorWriter) -> None:
    """Rows and columns gathered: floor((i + 1/2) H / h), in TensorFlow's order, which decides between two pixels.

    With corners aligned, i (H - 1) / (h - 1) rounded, halves up.
    Source: tensorflow/core/kernels/image/resize_nearest_neighbor_op.cc and image_resizer_state.h.
    """
    node, image = write.node, write.inputs[0]
    half, aligned = write.constant(0.5, np.float32), node.get_attr_value("align_corners")
    for axis, last, point in list(_positions(write, 0.5 if node.get_attr_value("half_pixel_centers") else 0.0, 0.0)):
        place = write.add("Floor", write.add("Add", point, half) if aligned else point)
        image = write.add("Gather", image, write.cast(write.add("Min", place, last), INT64), axis=axis)
    write.give("Identity", image)


def _positions(write: OperatorWriter, shift: float, back: float | None = None) -> Iterator[tuple[int, str, str]]:
    """Of the rows and the columns: their axis, the last place, and where in the image each new pixel lies.

    That is (i + shift) times the quotient of the sizes (with aligned corners, of the sizes less one), less `back`,
    which is the shift unless given.
    """
    one, back = write.constant(1, np.float32), shift if back is None else back
    for axis, old, new, scale in _sizes(write):
        last = write.add("Sub", old, one)
        if write.node.get_attr_value("align_corners"):
            steps = write.add("Max", write.add("Sub", new, one), one)
            scale = write.add("Div", last, steps)  # noqa: PLW2901
        point = write.add("Mul", _places(write, new, shift), scale)
        yield axis, last, write.add("Sub", point, write.constant(back, np.float32)) if back else point


def _patches(write: OperatorWriter) -> None:
    """Each patch as the channels of one pixel: rows and columns of the image gathered, zeros around it."""
    node, image = write.node, write.inputs[0]
    sizes, steps, rates = (node.get_attr_value(name)[1:3] for name in ("ksizes", "strides", "rates"))
    shape = write.graph.get_shape(image)
    if shape is None or min(shape[1:]) < 0:
        raise NotImplementedError("ExtractImagePatches of an image of unknown size")
    int64, pads, counts = partial(write.constant, dtype=np.int64), np.zeros((2, 4), np.int64), []
    for axis, (size, step, rate) in enumerate(zip(sizes, steps, rates, strict=True), 1):
        reach = (size - 1) * rate + 1
        same = node.get_attr_str("padding") == "SAME"
        count = -(-shape[axis] // step) if same else (shape[axis] - reach) // step + 1
        missing_rows = max((count - 1) * step + reach - shape[axis], 0) if same else 0
        pads[:, axis] = missing_rows // 2, missing_rows - missing_rows // 2
        counts.append((count, np.arange(count)[:, None] * step + np.arange(size) * rate))
    image = write.add("Pad", image, int64(pads.reshape(-1))) if pads.any() else image
    (rows, vertical), (columns, horizontal) = counts
    found = write.add("Gather", write.add("Gather", image, int64(horizontal), axis=2), int64(vertical), axis=1)
    ordered = write.add("Transpose", found, perm=[0, 1, 3, 2, 4, 5])  # [batch, rows, columns, height, width, channels]
    write.give("Reshape", ordered, int64([-1, rows, columns, sizes[0] * sizes[1] * shape[3]]))


PATCHES = {
    "ExtractImagePatches": wrong("ExtractImagePatches", 13, _patches, "tf2onnx 1.17 has patches of one batch alone"),
    "CropAndResize": wrong("CropAndResize", 13, _crop_and_resize, "tf2onnx 1.17 rounds halves down in CropAndResize"),
    "ResizeBicubic": wrong("ResizeBicubic", 13, _resize_bicubic, "tf2onnx 1.17's bicubic fails on an empty batch"),
    "ResizeBilinear": wrong("ResizeBilinear", 13, _resize_bilinear, "tf2onnx 1.17 gives 223 rows for 224"),
    "ResizeNearestNeighbor": wrong(
        "ResizeNearestNeighbor", 13, _resize_nearest, "tf2onnx 1.17 divides where TensorFlow multiplies: another pixel"
    ),
    "ResizeArea": wrong("ResizeArea", 13, _resize_area, "tf2onnx 1.17 takes one pixel instead of the mean of an area"),
    "ScaleAndTranslate": missing("ScaleAndTranslate", 13, _scale_and_translate),
    "RGBToHSV": missing("RGBToHSV", 18, _to_hsv),
    "HSVToRGB": missing("HSVToRGB", 13, _from_hsv),
    "AdjustSaturation": wrong(
        "AdjustSaturation", 18, _adjust_saturation, "tf2onnx 1.17's AdjustSaturation changes pixels below zero"
    ),
}
