"""QuantRecipe: the full, serialisable description of one quantization. Same recipe, same source: same bytes."""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from onnxtool.errors import InputError, UsageError
from onnxtool.model.json_file import read_json
from onnxtool.options.quantize import ActivationType as ActivationType
from onnxtool.options.quantize import Fusions as Fusions
from onnxtool.options.quantize import Mode as Mode
from onnxtool.options.quantize import QuantizeOptions
from onnxtool.options.quantize import WeightType as WeightType
from onnxtool.quantization.calibration.range_estimators import estimators

# The Q/DQ form that a provider wants: the processor's own, or TensorRT's.
Form = Literal["", "tensorrt"]
# How one node runs: static and dynamic integer kernels, or block-quantized weights.
NodePlan = Literal["static", "dynamic", "blocks"]

SCHEMA = "onnxtool/quant-recipe/1"


@dataclass(frozen=True)
class QuantRecipe:
    """How a float model becomes a low-precision one.

    Attributes:
        mode: what was asked for; "auto" recipes are told by `plan`.
        activations: integer type of activations. u8 is the faster one for Conv on x86.
        weights: integer type of weights, always symmetric (u8 about 128).
        per_channel: one weight scale for each output channel instead of one for the tensor.
        per_tensor_nodes: where `per_channel`, the nodes whose weights have one scale all the same (a little faster).
        reduced: weights use 7 bits, against saturation of u8 x s8 products on x86 CPUs without VNNI.
        method: how ranges are read off the observed values: the name of a range estimator.
        coverage: share of values that the percentile method keeps.
        op_types: operator types to quantize; empty means the compute-heavy ones.
        exclude: names of nodes that stay float, or glob patterns of names or output tensors.
        plan: per node name, how it runs. None: every eligible node as `mode` says.
        ranges: per tensor, the calibrated (low, high); None until calibrated.
        keep_io: float16: inputs and outputs stay float32.
        block_size: int4 and int8: weights that share a scale.
        symmetric: int4 and int8: no zero point.
        search_scale: int4 and int8: choose each block's scale by its error, not by its extreme value.
        smooth: SmoothQuant strength in (0, 1): share of the outliers that goes into the weights; 0 leaves it off.
        channels: per tensor that is smoothed, the largest magnitude of each channel; None until calibrated.
        equalize: neighbouring convolutions share their range, channel by channel.
        bias_correction: the mean error of rounded weights goes into the biases.
        shifts: per node name, what is added to its bias, by channel; None until calibrated.
        attention: static: products of two activations are quantized too.
        compact: weights of nodes that stay float are stored in so many bits (8 or 16), and made float when the model is
            loaded; 0 leaves them as they are.
        fuse: what stays float as the runtime's own fused operators: attention (with rotary embeddings and SiLU;
            additions stay apart from the normalization behind them), or all (with these too).
        optimize: the level of graph optimization before quantizing.
        form: "tensorrt": zero points are 0 and biases stay float, as its parser wants them.
    """

    mode: Mode = "static"
    activations: ActivationType = "u8"
    weights: WeightType = "s8"
    per_channel: bool = True
    per_tensor_nodes: tuple[str, ...] = ()
    reduced: bool = False
    method: str = "minmax"
    coverage: float = 0.9999
    op_types: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    plan: Mapping[str, NodePlan] | None = None
    ranges: Mapping[str, tuple[float, float]] | None = field(default=None, repr=False)
    keep_io: bool = False
    block_size: int = 32
    symmetric: bool = True
    search_scale: bool = True
    smooth: float = 0.0
    channels: Mapping[str, Sequence[float]] | None = field(default=None, repr=False)
    equalize: bool = False
    bias_correction: bool = False
    shifts: Mapping[str, Sequence[float]] | None = field(default=None, repr=False)
    attention: bool = False
    compact: int = 0
    fuse: Fusions = ""
    optimize: str = "extended"
    form: Form = ""

    def __post_init__(self) -> None:
        choices = {
            "mode": Mode,
            "activations": ActivationType,
            "weights": WeightType,
            "fuse": Fusions,
            "form": Form,
        }
        for name, kinds in choices.items():
            if getattr(self, name) not in get_args(kinds):
                raise UsageError(f"--{name} {getattr(self, name)}: choose one of {', '.join(get_args(kinds))}.")
        if self.method not in estimators():
            raise UsageError(f"--method {self.method}: choose one of {', '.join(estimators())}.")
        if self.activations == "s8" and self.weights == "u8":
            raise UsageError("--activations s8 goes with --weights s8: the runtime has no integer kernel for s8 x u8.")
        if not 0.5 < self.coverage <= 1:
            raise UsageError(f"--percentile: {self.coverage:g} is not a share of values in (0.5, 1].")
        conditions = {"smooth": self.smooth, "equalize": self.equalize, "bias-correction": self.bias_correction}
        if self.attention and self.mode not in ("auto", "static"):
            raise UsageError(f"--attention goes with --mode static, not {self.mode}: its ranges have to be calibrated.")
        if self.compact not in (0, 8, 16):
            raise UsageError(f"--compact {self.compact}: choose 8 or 16 bits.")
        if self.fuse and self.mode == "float16":
            raise UsageError("--fuse goes with integer modes, not float16.")
        if self.compact and self.mode == "float16":
            raise UsageError("--compact goes with integer modes, not float16: there all weights have 16 bits.")
        for name, given in conditions.items():
            if given and self.mode not in ("auto", "static", "dynamic"):
                raise UsageError(f"--{name} goes with --mode auto, static or dynamic, not {self.mode}.")
        if not 0 <= self.smooth < 1:
            raise UsageError(f"--smooth {self.smooth:g}: choose a strength between 0 (off) and 1, such as 0.5.")
        if self.block_size < 16 or self.block_size & (self.block_size - 1):
            raise UsageError(f"--block-size {self.block_size}: choose a power of two from 16 up (32, 64, 128).")

    @property
    def fits_form(self) -> bool:
        """False where the plan, fused operators or stored weights are nothing that the form's provider takes."""
        static = all(how == "static" for how in (self.plan or {}).values()) and self.mode in ("auto", "static")
        return not self.form or (static and not self.fuse and not self.compact)

    def excludes(self, node_name: str, outputs: tuple[str, ...] = ()) -> bool:
        """True when `exclude` names this node or one of its outputs."""
        return any(
            name == pattern or fnmatch.fnmatchcase(name, pattern)
            for pattern in self.exclude
            for name in (node_name, *outputs)
        )

    def with_ranges(self, ranges: Mapping[str, tuple[float, float]]) -> QuantRecipe:
        """The recipe with calibrated ranges."""
        return replace(self, ranges=dict(ranges))

    def with_channels(self, channels: Mapping[str, Sequence[float]]) -> QuantRecipe:
        """The recipe with the magnitudes of channels that smoothing goes by."""
        return replace(self, channels=dict(channels))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; fields at their default are kept, so that a recipe outlives a change of defaults."""
        return {"schema": SCHEMA, **asdict(self)}

    @property
    def summary(self) -> str:
        """One short line for people: "static u8s8 per-channel minmax"."""
        if self.mode == "float16":
            return "float16" + (", float32 inputs and outputs" if self.keep_io else "")
        if self.mode in ("int4", "int8"):
            kind = "symmetric" if self.symmetric else "asymmetric"
            blocks = f"{self.mode} weights, blocks of {self.block_size}, {kind}"
            return blocks + (f", compact {self.compact}" if self.compact else "") + (", fused" if self.fuse else "")
        if self.compact and self.plan is not None and not self.plan:
            return f"float{' fused' if self.fuse else ''}, weights stored in {self.compact} bits"
        plans: set[str] = {*(self.plan or {}).values()} or {self.mode}
        words = ["+".join(sorted(plans)), f"{self.activations}{self.weights}"]
        words.append(self._granularity)
        if "static" in plans:
            words.append(self.method)
        if self.reduced:
            words.append("7-bit weights")
        words += self._conditioning
        return " ".join(words)

    @property
    def _conditioning(self) -> list[str]:
        """What is done to float weights besides."""
        return [
            *(["with attention"] if self.attention else []),
            *([f"smooth {self.smooth:g}"] if self.smooth else []),
            *(["equalized"] if self.equalize else []),
            *(["bias-corrected"] if self.bias_correction else []),
            *([f"fused {self.fuse}"] if self.fuse else []),
            *([f"compact {self.compact}"] if self.compact else []),
            *([f"as {self.form} takes it"] if self.form else []),
        ]

    def without_measurements(self) -> QuantRecipe:
        """The choices alone, without what calibration found: for reports and provenance."""
        return replace(self, ranges=None, channels=None, shifts=None)

    @property
    def _granularity(self) -> str:
        if self.per_channel and self.per_tensor_nodes:
            return f"per-channel ({len(self.per_tensor_nodes)} per-tensor)"
        return "per-channel" if self.per_channel else "per-tensor"

    def splits_channels(self, node_name: str) -> bool:
        """True when a node's weights have one scale for each output channel."""
        return self.per_channel and node_name not in self.per_tensor_nodes


def from_dict(data: Mapping[str, Any], where: str = "recipe") -> QuantRecipe:
    """Read a recipe back.

    Raises:
        InputError: another schema, or fields that do not belong.
    """
    if data.get("schema") != SCHEMA:
        raise InputError(f"{where}: this is not a quantization recipe (schema {SCHEMA}).")
    values = {k: v for k, v in data.items() if k != "schema"}
    unknown = set(values) - {f.name for f in fields(QuantRecipe)}
    if unknown:
        raise InputError(f"{where}: unknown field {sorted(unknown)[0]!r}; was it written by a newer onnxtool?")
    try:
        for name in ("op_types", "exclude", "per_tensor_nodes"):
            values[name] = tuple(values.get(name, ()))
        if values.get("ranges") is not None:
            values["ranges"] = {k: (float(v[0]), float(v[1])) for k, v in values["ranges"].items()}
        for name in ("channels", "shifts"):
            if values.get(name) is not None:
                values[name] = {k: tuple(float(x) for x in v) for k, v in values[name].items()}
        return QuantRecipe(**values)
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(f"{where}: not a valid recipe ({error}).") from error


def load_recipe(path: str | os.PathLike[str]) -> QuantRecipe:
    """Read a recipe file.

    Raises:
        InputError: missing, no JSON, or no recipe.
    """
    return from_dict(read_json(path), str(path))


def requested_recipe(asked: QuantizeOptions) -> QuantRecipe:
    """How the model is quantized, as far as it was asked for.

    Raises:
        UsageError: options that do not fit together.
    """
    own = {f.name for f in fields(asked)}
    chosen: dict[str, Any] = {f.name: getattr(asked, f.name) for f in fields(QuantRecipe) if f.name in own}
    return QuantRecipe(**chosen | {"op_types": tuple(asked.op_types), "exclude": tuple(asked.exclude)})


def dump_recipe(recipe: QuantRecipe) -> str:
    """The recipe as JSON text; floats keep every digit, so that a replay gives the same bytes."""
    return json.dumps(recipe.to_dict(), indent=1, sort_keys=True) + "\n"
