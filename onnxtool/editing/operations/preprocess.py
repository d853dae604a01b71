"""Pictures as they are at the input: resized, cropped and normalized by the model itself, with standard operators.

Only `encoded` (the bytes of a JPEG or PNG file) takes an operator of onnxruntime-extensions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from onnxtool.editing import pictures
from onnxtool.editing.context import EditContext
from onnxtool.editing.graph_builder import Builder, find_input
from onnxtool.editing.operation import Operation
from onnxtool.editing.operations.inputs import replace_input
from onnxtool.editing.proofs import compare, probes_of
from onnxtool.errors import UnsupportedError, UsageError, VerdictError
from onnxtool.model.image_options import ImageOptions, parse_options
from onnxtool.model.ir.queries import value_spec
from onnxtool.model.spec import Dim
from onnxtool.optimization.opset import lift_opset
from onnxtool.report.edit import Proof
from onnxtool.runtime.feeds import flatten
from onnxtool.runtime.session.extensions import PICTURES

_ANTIALIAS = 18  # the opset in which Resize got it
# Measured with onnxruntime-extensions 0.15.2 and Pillow 13.0: JPEG files with halved colours (most of them) come out up
# to 44 of 255 levels away at edges of colour (0.3 to 0.9 on average), for the colours are not smoothed; a file that is
# cut off makes it wait for ever, and one that is neither JPEG nor PNG ends the process.
_DECODER = (
    "JPEG files with halved colours come out some levels away from Pillow at edges of colour; and the decoder of "
    "onnxruntime-extensions ends or hangs the process on a broken file: let nobody send one unchecked"
)
Resize = Callable[[np.ndarray, tuple[int, int]], "np.ndarray | None"]


class Preprocess(Operation):
    """Take pictures as they are: "image: u8 nhwc, resize=256, crop=224, scale=255, mean=A/B/C, std=A/B/C"."""

    name: ClassVar[str] = "pre"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        name, found, words = text.rpartition(":")
        self._given = name.strip() if found else None
        self._outside, self._fixed, self._encoded = "nhwc", False, False
        rest = []
        for part in (p.strip() for p in words.split(",")):
            flags = part.split()
            if all(f in ("u8", "uint8", "nhwc", "nchw", "fixed", "encoded") for f in flags):
                self._outside = next((f for f in flags if f in ("nhwc", "nchw")), self._outside)
                self._fixed = self._fixed or "fixed" in flags
                self._encoded = self._encoded or "encoded" in flags
            else:
                rest.append(part)
        self._numbers = [part for part in rest if part.partition("=")[0].strip() in ("scale", "mean", "std")]
        self.options = parse_options(",".join(rest), f"--{self.name}")
        _verify(self.options, text)
        if self._encoded and self._fixed:
            raise UsageError(f"--{self.name} {text}: a file has any size; leave out fixed.")
        self._inner, self._size, self._layout, self._channels = "", (0, 0), "nchw", 3
        self._input = ""

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        value = self._picture_input(model)
        self._input = value.name or ""
        spec = value_spec(value)
        assert spec.shape is not None and not isinstance(spec.dtype, str)
        if self._numbers and spec.dtype.kind in "iu":
            given = ", ".join(self._numbers)
            raise UsageError(f"--{self.name}: {spec.info()} takes levels as they are; leave out {given}.")
        self._layout, self._channels, self._size = self._geometry(spec.shape)
        if not self._fixed:
            model = lift_opset(model, _ANTIALIAS)
            value = find_input(model, self._input, self.name)
        batch = spec.shape[0]
        sides: tuple[Dim, Dim] = self._size if self._fixed else (f"{self._input}_height", f"{self._input}_width")
        shape: tuple[Dim, ...] = (
            (batch, *sides, self._channels) if self._outside == "nhwc" else (batch, self._channels, *sides)
        )
        if self._encoded:
            if isinstance(batch, int) and batch != 1:
                raise UnsupportedError(f"{self._input} takes {batch} pictures at once, and a file is one: --set-shape.")
            context.use_extensions(f"--{self.name} encoded")
            shape = (f"{self._input}_bytes",)
        new = replace_input(model, value, ir.TensorType(ir.DataType.UINT8), ir.Shape(shape))
        build = Builder(model, f"{self._input}_pre")
        made = self._built(build, new, spec.dtype)
        made.type, made.shape = value.type, value.shape
        self._inner = made.name or ""
        ir.convenience.replace_all_uses_with(value, made, replace_graph_outputs=True)
        build.at_start()
        how = "of any size" if not self._fixed else f"of {self._size[0]}x{self._size[1]}"
        self.done = f"{self._input} takes uint8 pictures {how}, {self._outside}"
        if self._encoded:
            model.opset_imports[PICTURES] = 1
            context.warnings.append(_DECODER)
            self.done = f"{self._input} takes the bytes of a JPEG or PNG file"
        return model

    def _picture_input(self, model: ir.Model) -> ir.Value:
        if self._given:
            value = find_input(model, self._given, self.name)
        else:
            inputs = [v for v in model.graph.inputs if v.name not in model.graph.initializers]
            if len(inputs) != 1:
                names = ", ".join(v.name or "" for v in inputs)
                raise UsageError(f"--{self.name} needs a name (NAME: u8 ...): the model has inputs {names}.")
            value = inputs[0]
        spec = value_spec(value)
        if spec.shape is None or len(spec.shape) != 4 or isinstance(spec.dtype, str):
            raise UsageError(f"--{self.name}: {spec.info()} is not a picture: that has four dims.")
        return value

    def _geometry(self, shape: tuple[Dim, ...]) -> tuple[str, int, tuple[int, int]]:
        layout: str = self.options.layout
        if layout == "auto":
            layout = "nhwc" if shape[3] in (1, 3) and shape[1] not in (1, 3) else "nchw"
        channels, height, width = shape[1:] if layout == "nchw" else (shape[3], *shape[1:3])
        own = (height, width) if isinstance(height, int) and isinstance(width, int) else None
        size = self.options.crop or own
        if size is None:
            raise UsageError(f"--{self.name}: {self._input} leaves the size open; give it, such as crop=224.")
        if own is not None and own != size:
            raise UsageError(f"--{self.name}: crop={size[0]}x{size[1]}, but the model takes {own[0]}x{own[1]}.")
        channels = channels if isinstance(channels, int) else 3
        if channels not in (1, 3):
            raise UsageError(f"--{self.name}: {self._input} has {channels} channels; a picture has 1 or 3.")
        for name, numbers in (("mean", self.options.mean), ("std", self.options.std)):
            if len(numbers) not in (1, channels):
                raise UsageError(f"--{self.name}: {name} has {len(numbers)} numbers for {channels} channels.")
        return layout, channels, size

    def _built(self, build: Builder, source: ir.Value, dtype: np.dtype) -> ir.Value:
        data = source
        if self._encoded:
            data = self._decoded(build, source)
        elif self._outside == "nhwc":
            data = build.add("Transpose", [data], "planes", {"perm": [0, 3, 1, 2]}, ir.DataType.UINT8)
        if not self._fixed:
            # On floats: what the runtime does on uint8 rounds twice, and comes out up to 2/255 away from Pillow.
            data = build.add("Cast", [data], "levels", {"to": int(ir.DataType.FLOAT)}, ir.DataType.FLOAT)
            data = self._resized(build, data)
        if self.options.order == "bgr" and self._channels == 3:
            order = build.constant([2, 1, 0], "bgr", np.int64)
            data = build.add("Gather", [data, order], "bgr_planes", {"axis": 1}, data.dtype)
        target = ir.DataType.from_numpy(dtype)
        if dtype.kind not in "iu":
            data = self._normalized(build, data)
            if target != ir.DataType.FLOAT:
                data = build.add("Cast", [data], "cast", {"to": int(target)}, target)
        elif not self._fixed:
            data = build.add("Round", [data], "whole_levels", None, ir.DataType.FLOAT)
            data = build.add("Cast", [data], "cast", {"to": int(target)}, target)
        elif target != ir.DataType.UINT8:
            data = build.add("Cast", [data], "cast", {"to": int(target)}, target)
        if self._layout == "nhwc":
            data = build.add("Transpose", [data], "pixels", {"perm": [0, 2, 3, 1]}, target)
        if data is source:
            data = build.add("Identity", [data], "same", None, target)
        return data

    def _decoded(self, build: Builder, source: ir.Value) -> ir.Value:
        """One picture, uint8 [1, channels, height, width], red first, from the bytes of its file."""
        byte = ir.DataType.UINT8
        # [height, width, 1 or 3], blue first
        data = build.add("DecodeImage", [source], "decoded", None, byte, PICTURES)
        data = build.add("Expand", [data, build.constant([1, 1, 3], "colours", np.int64)], "coloured", None, byte)
        data = build.add("Gather", [data, build.constant([2, 1, 0], "rgb", np.int64)], "red_first", {"axis": 2}, byte)
        data = build.add("Transpose", [data], "planes", {"perm": [2, 0, 1]}, byte)
        data = build.add("Unsqueeze", [data, build.constant([0], "first", np.int64)], "one_picture", None, byte)
        if self._channels == 3:
            return data
        # Pillow's grey: ITU-R 601-2 in 16 bits of fraction (src/libImaging/Convert.c, L24).
        whole = ir.DataType.INT32
        data = build.add("Cast", [data], "colours_whole", {"to": int(whole)}, whole)
        shares = build.constant(np.array([19595, 38470, 7471]).reshape(1, 3, 1, 1), "grey_shares", np.int32)
        data = build.add("Mul", [data, shares], "grey_parts", None, whole)
        channel = build.constant([1], "channel", np.int64)
        data = build.add("ReduceSum", [data, channel], "grey_sum", {"keepdims": 1}, whole)
        data = build.add("Add", [data, build.constant(32768, "grey_half", np.int32)], "grey_rounded", None, whole)
        data = build.add("Div", [data, build.constant(65536, "grey_whole", np.int32)], "grey_level", None, whole)
        return build.add("Cast", [data], "grey", {"to": int(byte)}, byte)

    def _resized(self, build: Builder, data: ir.Value) -> ir.Value:
        shape = build.add("Shape", [data], "shape", None, ir.DataType.INT64)
        zero, two, four = (build.constant([n], f"at_{n}", np.int64) for n in (0, 2, 4))
        planes = build.add("Slice", [shape, zero, two], "planes_shape", None, ir.DataType.INT64)
        crop = build.constant(self._size, "size", np.int64)
        sides = crop
        if self.options.resize is not None:
            own = build.add("Slice", [shape, two, four], "sides", None, ir.DataType.INT64)
            exact = build.add("Cast", [own], "sides_exact", {"to": int(ir.DataType.DOUBLE)}, ir.DataType.DOUBLE)
            short = build.add("ReduceMin", [exact], "short_side", {"keepdims": 1}, ir.DataType.DOUBLE)
            wanted = build.constant([self.options.resize], "resize", np.float64)
            share = build.add("Div", [wanted, short], "share", None, ir.DataType.DOUBLE)
            longer = build.add("Mul", [exact, share], "sides_scaled", None, ir.DataType.DOUBLE)
            rounded = build.add("Round", [longer], "sides_rounded", None, ir.DataType.DOUBLE)
            whole = build.add("Cast", [rounded], "sides_whole", {"to": int(ir.DataType.INT64)}, ir.DataType.INT64)
            sides = build.add("Max", [whole, crop], "sides_target", None, ir.DataType.INT64)
        sizes = build.add("Concat", [planes, sides], "sizes", {"axis": 0}, ir.DataType.INT64)
        how = {
            "mode": "linear",
            "antialias": 1,
            "exclude_outside": 1,  # the weights at the edges are those of Pillow then
            "coordinate_transformation_mode": "half_pixel",
        }
        resized = build.add("Resize", [data, None, None, sizes], "resized", how, ir.DataType.FLOAT)
        if self.options.resize is None:
            return resized
        margin = build.add("Sub", [sides, crop], "margin", None, ir.DataType.INT64)
        start = build.add("Div", [margin, build.constant([2], "half", np.int64)], "start", None, ir.DataType.INT64)
        end = build.add("Add", [start, crop], "end", None, ir.DataType.INT64)
        axes = build.constant([2, 3], "crop_axes", np.int64)
        return build.add("Slice", [resized, start, end, axes], "cropped", None, ir.DataType.FLOAT)

    def _normalized(self, build: Builder, data: ir.Value) -> ir.Value:
        kind = ir.DataType.FLOAT
        if data.dtype != kind:
            data = build.add("Cast", [data], "levels", {"to": int(kind)}, kind)
        if self.options.scale != 1:
            data = build.add(
                "Div", [data, build.constant(self.options.scale, "scale", np.float32)], "scaled", None, kind
            )
        for op, name, numbers, neutral in (
            ("Sub", "mean", self.options.mean, 0.0),
            ("Div", "std", self.options.std, 1.0),
        ):
            if any(n != neutral for n in numbers):
                array = np.asarray(numbers, np.float32).reshape(1, -1, 1, 1)
                data = build.add(op, [data, build.constant(array, name)], f"{name}_applied", None, kind)
        return data

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        given = pictures.generated(self._channels, self._size, context.seed) if not self._fixed else []
        given += pictures.read(context.pictures, self._channels)
        if self._fixed:
            given = [
                np.random.default_rng(context.seed).integers(0, 256, (*self._size, self._channels)).astype(np.uint8)
            ]
        watched = after.clone()
        inner = next(v for n in watched.graph for v in n.outputs if v.name == self._inner)
        watched.graph.outputs.append(inner)
        eye = context.runner(watched)
        old = context.runner(before)
        probes = probes_of(before, context, old)
        if self._encoded:
            probes = [p for p in probes if p.feeds[self._input].shape[0] == 1]
            if not probes:
                raise UnsupportedError(f"{before.graph.name or 'the model'} does not run on one picture.")
        probe = probes[0]
        count = probe.feeds[self._input].shape[0]
        cases, worst, judges = [], 0.0, set()
        for pixels in given:
            feeds = {**probe.feeds, self._input: self._fed(pixels, count)}
            seen = eye.run(feeds)[self._inner]
            for judge, resize in (("NumPy", pictures.numpy_resize), ("Pillow", pictures.pillow_resize)):
                off = self._levels_off(pixels, np.asarray(seen), resize)
                if off is not None:
                    judges.add(judge)
                    worst = max(worst, off)
            cases.append((feeds, flatten(old.run({**probe.feeds, self._input: np.asarray(seen)}))))
        if worst > 1.001:
            raise VerdictError(f"the proof fails: a pixel is {worst:.2f}/255 away from {' and '.join(sorted(judges))}.")
        claim = (
            f"{len(given)} pictures come out within {worst:.2g}/255 of {' and '.join(sorted(judges))}"
            f"{'' if self._fixed else ' (bilinear, with antialias)'}, and the model gives for them what it gave"
        )
        return compare(after, cases, context, claim, exact=False)

    def _fed(self, pixels: np.ndarray, count: int) -> np.ndarray:
        """What the new input gets for a picture: `count` times the same, or the bytes of a PNG file."""
        if self._encoded:
            return np.frombuffer(pictures.png(pixels), np.uint8)
        own = pixels if self._outside == "nhwc" else pixels.transpose(2, 0, 1)
        return np.ascontiguousarray(np.repeat(own[None], count, 0))

    def _levels_off(self, pixels: np.ndarray, seen: np.ndarray, resize: Resize) -> float | None:
        """How many of 255 levels the model's own tensor is away from what it should be, at worst."""
        height, width = pixels.shape[0], pixels.shape[1]
        sides = pictures.target_sides(height, width, self.options, self._size)
        resized = pixels if self._fixed else resize(pixels, sides)
        if resized is None:
            return None
        plain = seen.dtype.kind in "iu"
        options = ImageOptions(scale=1.0, order=self.options.order) if plain else self.options
        wanted = pictures.expected(pixels, options, self._size, resized)
        got = seen[0].astype(np.float32)
        got = got.transpose(1, 2, 0) if self._layout == "nchw" else got
        if got.shape != wanted.shape:
            raise VerdictError(f"the proof fails: {list(got.shape)} instead of {list(wanted.shape)}.")
        level = np.float32(1 / options.scale) / np.asarray(options.std, np.float32)
        # float16 has 11 bits: that rounding is the model's own type, not the pre-processing's.
        slack = np.abs(wanted) / 1024 if seen.dtype.itemsize == 2 else 0
        return float((np.maximum(np.abs(got - wanted) - slack, 0) / np.abs(level)).max())


def _verify(options: ImageOptions, text: str) -> None:
    """Numbers that make sense."""
    numbers = [*options.mean, *options.std, options.scale]
    if not all(np.isfinite(n) for n in numbers) or options.scale == 0 or 0 in options.std:
        raise UsageError(f"--pre {text}: scale and std must not be 0, and all numbers finite.")
    if abs(options.scale) < 1:
        raise UsageError(
            f"--pre {text}: pixels are divided by scale, so {options.scale:g} makes {255 / options.scale:,.0f} of 255. "
            f"To multiply by it, write scale={1 / options.scale:.6g}."
        )
    sides = [*(options.crop or ()), *([options.resize] if options.resize is not None else [])]
    if any(not 1 <= s <= 16384 for s in sides):
        raise UsageError(f"--pre {text}: a side lies between 1 and 16384.")
    if options.resize is None and options.crop is not None:
        return
    if options.resize is not None and options.crop is not None and options.resize < min(options.crop):
        raise UsageError(f"--pre {text}: resize={options.resize} is smaller than the crop.")
