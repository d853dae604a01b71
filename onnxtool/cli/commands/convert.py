"""`onnxtool convert`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxtool.cli import completion as complete
from onnxtool.cli import options as o
from onnxtool.cli.output import Output

if TYPE_CHECKING:
    from onnxtool.report.convert import ConvertReport
    from onnxtool.runtime.session.session import SessionOptions

_PYTORCH, _KERAS, _CLASSICAL = "PyTorch", "Keras and TensorFlow", "Classical machine learning"
SourceArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="SOURCE", help="The model: a file or folder. None with --factory alone.", show_default=False
    ),
]
SampleOption = Annotated[
    Path | None,
    typer.Option(
        "--sample",
        metavar="FILE.npz",
        help="Real inputs to verify on, in place of random ones; they give shapes and dtypes too.",
        show_default=False,
    ),
]


def command(
    output: o.OutputOption,
    source: SourceArgument = None,
    factory: o.FactoryOption = None,
    factory_arg: o.FactoryArgOption = None,
    pythonpath: o.PythonPathOption = None,
    trust: o.TrustOption = False,
    input_shape: o.InputShapeOption = None,
    input_dtype: o.InputDtypeOption = None,
    sample: SampleOption = None,
    input_names: Annotated[
        str | None, typer.Option("--input-names", metavar="A,B,...", help="Names for the inputs.", show_default=False)
    ] = None,
    output_names: Annotated[
        str | None, typer.Option("--output-names", metavar="A,B,...", help="Names for the outputs.", show_default=False)
    ] = None,
    opset: Annotated[
        int | None,
        typer.Option(
            "--opset", help="Opset to write; the newest that the runtime fully has unless given.", show_default=False
        ),
    ] = None,
    rtol: o.RtolOption = 1e-3,
    atol: o.AtolOption = 1e-5,
    effort: o.EffortOption = o.Effort.normal,
    strict: o.StrictOption = False,
    keep_counterexample: o.KeepCounterexampleOption = None,
    seed: o.SeedOption = 0,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Write without comparing; the file's metadata says so.")
    ] = False,
    keep_failed: Annotated[
        Path | None,
        typer.Option(
            "--keep-failed", metavar="FILE", help="Keep a file that fails the comparison.", show_default=False
        ),
    ] = None,
    reproducible: Annotated[
        bool, typer.Option("--reproducible", help="The same bytes from run to run: no measured values in the metadata.")
    ] = False,
    custom_op_library: o.CustomOpOption = None,
    exporter: Annotated[
        str,
        typer.Option(
            "--exporter",
            autocompletion=complete.exporters,
            help="auto, dynamo or torchscript.",
            rich_help_panel=_PYTORCH,
        ),
    ] = "auto",
    keep_metadata: Annotated[
        bool,
        typer.Option("--keep-metadata", help="Keep torch's stack traces in the file.", rich_help_panel=_PYTORCH),
    ] = False,
    task: Annotated[
        str | None,
        typer.Option(
            "--task", help="Hugging Face: what the model is for.", rich_help_panel=_PYTORCH, show_default=False
        ),
    ] = None,
    adapter: Annotated[
        Path | None,
        typer.Option(
            "--adapter",
            metavar="DIR",
            help="Language model: merge the LoRA adapter in this folder.",
            rich_help_panel=_PYTORCH,
            show_default=False,
        ),
    ] = None,
    separate_adapter: Annotated[
        bool,
        typer.Option(
            "--separate-adapter",
            help="Keep the LoRA weights of --adapter apart, as a file for run --adapter.",
            rich_help_panel=_PYTORCH,
        ),
    ] = False,
    eval_text: Annotated[
        Path | None,
        typer.Option(
            "--eval",
            metavar="FILE.txt",
            help="Language model: measure the perplexity on this text.",
            rich_help_panel=_PYTORCH,
            show_default=False,
        ),
    ] = None,
    signature: Annotated[
        str | None,
        typer.Option("--signature", help="SavedModel: which one.", rich_help_panel=_KERAS, show_default=False),
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            "--inputs", metavar="A,B,...", help="Frozen graph: its inputs.", rich_help_panel=_KERAS, show_default=False
        ),
    ] = None,
    outputs: Annotated[
        str | None,
        typer.Option(
            "--outputs",
            metavar="A,B,...",
            help="Frozen graph: its outputs.",
            rich_help_panel=_KERAS,
            show_default=False,
        ),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout",
            autocompletion=complete.layouts,
            help="nchw turns image inputs channels-first.",
            rich_help_panel=_KERAS,
            show_default=False,
        ),
    ] = None,
    zipmap: Annotated[
        bool,
        typer.Option("--zipmap/--no-zipmap", help="Probabilities as a map, not a tensor.", rich_help_panel=_CLASSICAL),
    ] = False,
    float64: Annotated[
        bool, typer.Option("--float64", help="Keep doubles where the runtime can.", rich_help_panel=_CLASSICAL)
    ] = False,
    provider: o.ProviderOption = None,
    ep_library: o.EpLibraryOption = None,
    json: o.JsonOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Turn a PyTorch, Keras, TensorFlow or scikit-learn model into a verified ONNX file.

    The original and the ONNX file are run on the same inputs; the file is written only if they agree.
    Exit 0 when it was written, 1 when the outputs differ. A language model (a Hugging Face folder or a GGUF file)
    becomes a bundle that generates the same tokens where OUT is a folder: convert FOLDER -o BUNDLE/.
    """
    with Output(json, verbose, quiet) as out:
        from onnxtool.generation.source import wants_bundle

        if source is not None and wants_bundle(source, output, task):
            from onnxtool.generation.convert import convert_text_model

            out.emit(
                convert_text_model(
                    source,
                    output,
                    trust=trust,
                    adapter=adapter,
                    separate_adapter=separate_adapter,
                    eval_text=eval_text,
                    rtol=rtol,
                )
            )
            return
        if source is not None and source.is_dir():
            from onnxtool.generation.encoder_decoder import convert_encoder_decoder, wants_encoder_decoder

            if wants_encoder_decoder(source, output, task):
                out.emit(convert_encoder_decoder(source, output, task=task, trust=trust, rtol=rtol))
                return
        if adapter is not None or separate_adapter or eval_text is not None:
            from onnxtool.errors import UsageError

            raise UsageError("--adapter and --eval go with a language model and a folder to write: -o BUNDLE/.")
        from onnxtool.cli.convert_options import convert_options
        from onnxtool.cli.session import session_options
        from onnxtool.conversion.convert import convert

        options = convert_options(
            factory=factory,
            factory_arg=factory_arg,
            pythonpath=pythonpath,
            trust=trust,
            input_shape=input_shape,
            input_dtype=input_dtype,
            sample=sample,
            input_names=input_names,
            output_names=output_names,
            opset=opset,
            seed=seed,
            effort=effort.value,
            strict=strict,
            keep_counterexample=keep_counterexample,
            verbose=verbose,
            custom_op_library=custom_op_library,
            exporter=exporter,
            keep_metadata=keep_metadata,
            task=task,
            signature=signature,
            inputs=inputs,
            outputs=outputs,
            layout=layout,
            zipmap=zipmap,
            float64=float64,
        )
        from onnxtool.generation.embedding import OUTPUT, convert_embedding_model, is_embedding_model

        if source is not None and task in (None, OUTPUT.replace("_", "-")) and is_embedding_model(source):
            out.emit(convert_embedding_model(source, output, options, rtol=rtol, atol=atol))
            return
        report = convert(
            source,
            output,
            options=options,
            rtol=rtol,
            atol=atol,
            verify_result=not no_verify,
            keep_failed=keep_failed,
            reproducible=reproducible,
        )
        if provider and report.written:
            report = _on_provider(report, session_options(provider, None, custom_op_library, ep_library), seed)
        out.emit(report)


def _on_provider(report: ConvertReport, options: SessionOptions, seed: int) -> ConvertReport:
    """Add what the file gives on the provider asked for."""
    from dataclasses import replace

    from onnxtool.equality.provider_proof import prove_on_provider

    return replace(report, providers=(prove_on_provider(report.output, options, seed=seed),))
