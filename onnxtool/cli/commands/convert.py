"""`onnxtool convert`."""

from __future__ import annotations

from dataclasses import replace

from onnxtool.cli.output import Output
from onnxtool.errors import UsageError
from onnxtool.options.convert import ConvertCommand


def command(asked: ConvertCommand, out: Output) -> None:
    """Turn a trained model of any framework into a verified ONNX file.

    The framework may be PyTorch, Hugging Face, Keras, TensorFlow, JAX, PaddlePaddle, scikit-learn, XGBoost, LightGBM
    or CatBoost. The original and the ONNX file are run on the same inputs; the file is written only if they agree.
    Exit 0 when it was written, 1 when the outputs differ. A language model (a Hugging Face folder or a GGUF file)
    becomes a bundle that generates the same tokens where OUT is a folder: convert FOLDER -o BUNDLE/.
    """
    from onnxtool.words import part_of, session_options, taken_by

    source, output, task = asked.source, asked.output, asked.task
    from onnxtool.generation.source import wants_bundle

    if source is not None and wants_bundle(source, output, task):
        from onnxtool.generation.convert import convert_text_model

        out.emit(convert_text_model(source, output, **taken_by(convert_text_model, asked) | {"adapter": asked.lora}))
        return
    if source is not None and source.is_dir():
        from onnxtool.generation.encoder_decoder import convert_encoder_decoder, wants_encoder_decoder

        if wants_encoder_decoder(source, output, task):
            out.emit(convert_encoder_decoder(source, output, **taken_by(convert_encoder_decoder, asked)))
            return
    if asked.lora is not None or asked.separate_adapter or asked.eval_text is not None:
        raise UsageError("--adapter and --eval go with a language model and a folder to write: -o BUNDLE/.")
    from onnxtool.cli.sources import needs_factory
    from onnxtool.conversion.convert import convert
    from onnxtool.options.convert import ConvertOptions

    needs_factory(asked)
    options = part_of(ConvertOptions, asked)
    report = convert(source, output, **taken_by(convert, asked) | {"options": options})
    if asked.provider and report.written:
        from onnxtool.equality.provider_proof import prove_on_provider

        proof = prove_on_provider(report.output, session_options(asked), seed=asked.seed)
        report = replace(report, providers=(proof,))
    out.emit(report)
