"""`onnxtool edit`."""

# ruff: noqa: ARG001  (operations are taken from the command line in their order, see OrderedCommand)

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from onnxtool.cli import options as o
from onnxtool.cli.output import Output

_GIVEN = "onnxtool.operations"
# Options of the command that are not operations.
_PLAIN = frozenset(
    {"output", "dry_run", "no_verify", "list_operations", "source", "data", "rtol", "atol", "seed"}
    | {"provider", "ep_library", "threads", "custom_op_library", "json", "verbose", "quiet", "help"}
)


class OrderedCommand(TyperCommand):
    """Remembers in which order the operations stood on the command line, which click's parser knows and drops."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note the operations as (name, text) pairs, then parse as usual."""
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        taken: dict[str, int] = {}
        given: list[tuple[str, str]] = []
        for parameter in order:
            name = parameter.name or ""
            value = values.get(name)
            if name in _PLAIN or parameter.param_type_name != "option":
                continue
            if isinstance(value, (list, tuple)):
                text = value[taken.get(name, 0)]
                taken[name] = taken.get(name, 0) + 1
            else:
                text = ""
            option, text = name.replace("_", "-"), str(text)
            if option == "operation":
                option, _, text = text.partition("=")
            given.append((option, text))
        ctx.meta[_GIVEN] = given
        return super().parse_args(ctx, args)


def _taking(name: str, metavar: str, text: str) -> Any:
    return typer.Option(f"--{name}", metavar=metavar, help=text, show_default=False)


Texts = list[str] | None


def command(
    context: typer.Context,
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help="The .onnx file.", show_default=False)] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="OUT.onnx", help="The file to write; replaced as a whole.", show_default=False
        ),
    ] = None,
    set_shape: Annotated[
        Texts,
        _taking("set-shape", "NAME:DIMS", "Set an input's dims: a number fixes one, a word (batch) makes it dynamic."),
    ] = None,
    name_dim: Annotated[
        Texts, _taking("name-dim", "OLD:NEW", "Rename a symbolic dim; INPUT[AXIS] for one without a name.")
    ] = None,
    rename_input: Annotated[Texts, _taking("rename-input", "OLD=NEW", "Give an input another name.")] = None,
    rename_output: Annotated[Texts, _taking("rename-output", "OLD=NEW", "Give an output another name.")] = None,
    add_output: Annotated[Texts, _taking("add-output", "TENSOR", "Make an inner tensor an output too.")] = None,
    remove_output: Annotated[
        Texts, _taking("remove-output", "NAME", "Remove an output, and what was computed for it alone.")
    ] = None,
    remove_input: Annotated[
        Texts,
        _taking("remove-input", "NAME[=VALUE]", "Remove an input that nothing reads, or give it a number or a .npy."),
    ] = None,
    io_dtype: Annotated[
        Texts, _taking("io-dtype", "NAME:DTYPE", "Give an input or output another element type, such as image:uint8.")
    ] = None,
    layout: Annotated[
        Texts, _taking("layout", "NAME:nhwc|nchw", "Take an input, or give an output, in this order of dims.")
    ] = None,
    extract: Annotated[Texts, _taking("extract", "IN,IN:OUT,OUT", "Keep only what lies between these tensors.")] = None,
    append: Annotated[Texts, _taking("append", "OTHER.onnx", "Put another model behind this one.")] = None,
    prepend: Annotated[Texts, _taking("prepend", "OTHER.onnx", "Put another model before this one.")] = None,
    connect: Annotated[
        Texts, _taking("connect", "OUTPUT=INPUT", "What goes where in the --append or --prepend before it.")
    ] = None,
    pre: Annotated[
        Texts,
        _taking(
            "pre",
            "WORDS",
            'Take pictures as they are: "image: u8 nhwc, resize=256, crop=224, scale=255, mean=A/B/C, std=A/B/C"; the '
            "words of quantize --image, fixed for pictures that have the model's size, and encoded for the bytes of a "
            "JPEG or PNG file (by onnxruntime-extensions).",
        ),
    ] = None,
    post: Annotated[
        Texts,
        _taking(
            "post",
            "WORDS",
            "What is done with an output: softmax, argmax, topk=N, labels=FILE, "
            "nms=BOXES,SCORES,iou=0.45,score=0.25; OUTPUT: before it where there are several.",
        ),
    ] = None,
    tokenizer: Annotated[
        Texts,
        _taking(
            "tokenizer",
            "FOLDER|FILE.json",
            "Take text: the model makes input_ids (attention_mask, token_type_ids) of it, by onnxruntime-extensions.",
        ),
    ] = None,
    opset: Annotated[Texts, _taking("opset", "N", "Convert to another version of the operator set.")] = None,
    ir_version: Annotated[Texts, _taking("ir-version", "N", "Write another version of the file format.")] = None,
    metadata: Annotated[Texts, _taking("metadata", "KEY=VALUE", "Set an entry of the metadata.")] = None,
    clear_metadata: Annotated[bool, typer.Option("--clear-metadata", help="Remove all metadata.")] = False,
    doc: Annotated[Texts, _taking("doc", "TEXT", "Set the model's description.")] = None,
    external_data: Annotated[
        Texts,
        _taking("external-data", "always|never|SIZE", "Weights beside the model, in it, or beside it from a size on."),
    ] = None,
    chunk: Annotated[
        Texts, _taking("chunk", "SIZE", "Weights beside the model, in files of up to this size, such as 2GB.")
    ] = None,
    strip_weights: Annotated[
        Texts,
        _taking("strip-weights", "WEIGHTS.safetensors", "Move the large weights to a file, and leave the graph."),
    ] = None,
    refit: Annotated[
        Texts, _taking("refit", "WEIGHTS.safetensors", "Put weights back into a model that was stripped.")
    ] = None,
    replace_weight: Annotated[Texts, _taking("replace-weight", "NAME=FILE.npy", "Give a weight other numbers.")] = None,
    operation: Annotated[
        Texts, _taking("operation", "NAME=VALUE", "An operation that another package has added.")
    ] = None,
    list_operations: Annotated[
        bool, typer.Option("--list-operations", help="Describe every operation, and exit.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing; show what would change, as diff does.")
    ] = False,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Leave the proofs out.")] = False,
    source: Annotated[
        Path | None,
        typer.Option(
            "--source",
            metavar="FILE",
            help="A model with the same weights that is right at every size, ONNX or a framework's file; dims that "
            "become dynamic are proven against it.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data", metavar="PICTURE", help="Picture that --pre is proven on. Repeatable.", show_default=False
        ),
    ] = None,
    rtol: o.RtolOption = 1e-3,
    atol: o.AtolOption = 1e-5,
    seed: o.SeedOption = 0,
    provider: o.ProviderOption = None,
    ep_library: o.EpLibraryOption = None,
    threads: o.ThreadsOption = None,
    custom_op_library: o.CustomOpOption = None,
    json: o.JsonOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Change a finished model: shapes, inputs and outputs, parts, pre- and post-processing, versions, storage.

    Operations apply in the order given. Each is proven by running the model before and after it; when a proof fails,
    nothing is written (exit 1), and what cannot be done to a model is refused with the node named (exit 4).
    """
    with Output(json, verbose, quiet) as out:
        from onnxtool.errors import UsageError

        if list_operations:
            from onnxtool.editing.edit import list_operations as describe

            out.emit(describe())
            return
        if model is None:
            raise UsageError("edit needs a MODEL (or --list-operations).")

        from onnxtool.cli.convert_options import convert_options, opened
        from onnxtool.cli.session import session_options
        from onnxtool.editing.edit import edit

        out.emit(
            edit(
                model,
                output,
                context.meta[_GIVEN],
                dry_run=dry_run,
                verify=not no_verify,
                reference=opened(source, model, convert_options()) if source is not None else None,
                rtol=rtol,
                atol=atol,
                seed=seed,
                pictures=data or (),
                options=session_options(provider, threads, custom_op_library, ep_library, "off"),
            )
        )
