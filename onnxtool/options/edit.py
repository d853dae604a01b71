"""The options of `edit`: most of them are operations, which apply in the order in which they stand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxtool.options import shared
from onnxtool.options.option import GENERAL, OUTPUT, input_option, option, proof_option
from onnxtool.options.shared import Required, Runtime, Shown, Tolerances

Texts = tuple[str, ...]


def _operation(metavar: str, text: str, *, group: str = GENERAL, step: bool = True) -> Any:
    """An operation that takes a text; repeatable."""
    return option((), text, kind="texts", metavar=metavar, role="operation", group=group, step=step)


@dataclass(frozen=True)
class EditOptions(Tolerances):
    """How operations are proven.

    Attributes:
        reference: a model that is right at every size, for shapes that become dynamic: a file or a Runner.
    """

    dry_run: bool = option(False, "Write nothing; show what would change, as diff does.", step=False)
    verify: bool = proof_option(True, "Leave the proofs out.", "--no-verify", place=-1)
    allow_unproven: bool = proof_option(
        False, "Write the result although something is assumed that no run has shown (exit 1).", place=-1
    )
    require: Required = shared.REQUIRE(place=-1)
    reference: Any = input_option(
        None,
        "A model with the same weights that is right at every size, ONNX or a framework's file; dims that become "
        "dynamic are proven against it.",
        "--source",
        metavar="FILE",
        kind="path",
        role="file",
    )
    pictures: tuple[Path, ...] = input_option(
        (), "Picture that --pre is proven on. Repeatable.", "--data", metavar="PICTURE", role="files"
    )
    seed: int = shared.SEED()


@dataclass(frozen=True)
class EditCommand(EditOptions, Runtime, Shown):
    """What `edit` takes.

    Attributes:
        operations: what the options of operations say, as (name, text), in their order.
    """

    operations: tuple[tuple[str, str], ...] = ()
    model: Path | None = option(None, "The .onnx file.", argument=True, metavar="MODEL")
    output: Path | None = shared.WRITTEN(default=None)
    set_shape: Texts = _operation(
        "NAME:DIMS", "Set an input's dims: a number fixes one, a word (batch) makes it dynamic."
    )
    name_dim: Texts = _operation("OLD:NEW", "Rename a symbolic dim; INPUT[AXIS] for one without a name.")
    rename_input: Texts = _operation("OLD=NEW", "Give an input another name.")
    rename_output: Texts = _operation("OLD=NEW", "Give an output another name.")
    add_output: Texts = _operation("TENSOR", "Make an inner tensor an output too.")
    remove_output: Texts = _operation("NAME", "Remove an output, and what was computed for it alone.")
    remove_input: Texts = _operation(
        "NAME[=VALUE]", "Remove an input that nothing reads, or give it a number or a .npy."
    )
    io_dtype: Texts = _operation("NAME:DTYPE", "Give an input or output another element type, such as image:uint8.")
    layout: Texts = _operation(
        "NAME:nhwc|nchw", "Take an input, or give an output, in this order of dims.", group=OUTPUT
    )
    extract: Texts = _operation("IN,IN:OUT,OUT", "Keep only what lies between these tensors.")
    append: Texts = _operation("OTHER.onnx", "Put another model behind this one.")
    prepend: Texts = _operation("OTHER.onnx", "Put another model before this one.")
    connect: Texts = _operation("OUTPUT=INPUT", "What goes where in the --append or --prepend before it.")
    pre: Texts = _operation(
        "WORDS",
        'Take pictures as they are: "image: u8 nhwc, resize=256, crop=224, scale=255, mean=A/B/C, std=A/B/C"; the '
        "words of quantize --image, fixed for pictures that have the model's size, and encoded for the bytes of a "
        "JPEG or PNG file (by onnxruntime-extensions).",
    )
    post: Texts = _operation(
        "WORDS",
        "What is done with an output: softmax, argmax, topk=N, labels=FILE, nms=BOXES,SCORES,iou=0.45,score=0.25; "
        "OUTPUT: before it where there are several.",
    )
    tokenizer: Texts = _operation(
        "FOLDER|FILE.json",
        "Take text: the model makes input_ids (attention_mask, token_type_ids) of it, by onnxruntime-extensions.",
    )
    opset: Texts = _operation("N", "Convert to another version of the operator set.", group=OUTPUT)
    ir_version: Texts = _operation("N", "Write another version of the file format.")
    metadata: Texts = _operation("KEY=VALUE", "Set an entry of the metadata.")
    clear_metadata: bool = option(False, "Remove all metadata.", role="operation")
    doc: Texts = _operation("TEXT", "Set the model's description.")
    external_data: Texts = _operation(
        "always|never|SIZE", "Weights beside the model, in it, or beside it from a size on.", group=OUTPUT
    )
    chunk: Texts = _operation("SIZE", "Weights beside the model, in files of up to this size, such as 2GB.", step=False)
    strip_weights: Texts = _operation("WEIGHTS.safetensors", "Move the large weights to a file, and leave the graph.")
    refit: Texts = _operation("WEIGHTS.safetensors", "Put weights back into a model that was stripped.")
    replace_weight: Texts = _operation("NAME=FILE.npy", "Give a weight other numbers.")
    operation: Texts = _operation("NAME=VALUE", "An operation that another package has added.")
    list_operations: bool = option(False, "Describe every operation, and exit.", step=False)
