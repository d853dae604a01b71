"""Encoder-decoders (T5, BART, Whisper, TrOCR): a folder with encoder, decoder and decoder with cache, proven by tokens.

The layout is the one that optimum and transformers.js read. The proof: the graphs together write greedy answers, for
inputs of several lengths and two at a time, and transformers judges each token in one pass without a cache; the merged
decoder takes the same tokens.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool import progress
from onnxtool.conversion.quiet import quiet
from onnxtool.errors import InputError, UnsupportedError, needs_extra, one_line
from onnxtool.generation.bundle import check_output, record, staged_folder
from onnxtool.generation.proof import PROMPTS, token_proof
from onnxtool.generation.seq2seq_graphs import DECODER, ENCODER, MERGED, WITH_PAST, export_graphs
from onnxtool.generation.source import verify_code, verify_unpickled, verify_weights
from onnxtool.model.json_file import read_json
from onnxtool.model.safety.declared_sizes import verify_declared_sizes
from onnxtool.report.bundle.convert import BundleReport, PromptProof, TextProof
from onnxtool.runtime.session.session import create_session
from onnxtool.runtime.worker.isolation import ResourceAllowance, guarded

TASKS = {
    "text2text-generation": "AutoModelForSeq2SeqLM",
    "automatic-speech-recognition": "AutoModelForSpeechSeq2Seq",
    "image-to-text": "AutoModelForImageTextToText",
}
_PACE = ResourceAllowance(seconds_per_byte=2e-5, most_seconds=36_000.0, bytes_per_byte=40.0, scale=60.0)
_NEW_TOKENS = 24
_LEAVE = ("*.safetensors", "*.safetensors.index.json", "*.bin", "*.h5", "*.msgpack", "*.onnx", "*.py", ".*")


def is_encoder_decoder(path: Path | None) -> bool:
    """True for a Hugging Face folder whose config.json names an encoder-decoder."""
    if path is None or not (path / "config.json").is_file():
        return False
    try:
        return read_json(path / "config.json").get("is_encoder_decoder") is True
    except InputError:
        return False


def wants_encoder_decoder(source: Path | None, output: Path, task: str | None) -> bool:
    """True where convert is to write such a folder: unless the output is an .onnx file."""
    return output.suffix != ".onnx" and (task is None or task in TASKS) and is_encoder_decoder(source)


def convert_encoder_decoder(
    source: Path, output: Path, *, task: str | None = None, trust: bool = False, rtol: float = 1e-3
) -> BundleReport:
    """Convert an encoder-decoder that generates text, and prove that it generates the same.

    Args:
        source: a Hugging Face folder.
        output: the folder to write.
        task: one of `TASKS`; None to try them in turn.
        trust: load pickled weights, and code that the folder brings.
        rtol: tolerance of the logits, as a share of the largest.

    Returns:
        A report; with `ok` False nothing was written.

    Raises:
        InputError, UnsupportedError, UnsafeError, MissingExtraError: as what is read finds.
        UsageError: the output is a file, or a folder with something else in it.
    """
    check_output(output)
    config = read_json(source / "config.json")
    verify_code(source, config, trust)
    verify_unpickled(source, verify_weights(source), trust)
    verify_declared_sizes(source / "config.json", config, source)
    size = sum(f.stat().st_size for f in source.glob("*.safetensors"))
    clock = progress.StageClock()
    with (
        staged_folder(output) as staged,
        guarded("converting the encoder-decoder", size, pace=_PACE),
        progress.task("converting", 3) as steps,
    ):
        model = _load(source, task, trust)
        clock.stop("load")
        steps.advance()
        try:
            export_graphs(model, staged, _inputs(model, source, 9))
        except Exception as error:
            line = one_line(error, 200)
            raise UnsupportedError(f"{source}: PyTorch cannot export it ({type(error).__name__}: {line}).") from error
        clock.stop("build")
        steps.advance()
        proofs = tuple(_proven(staged, model, source))
        clock.stop("prove")
        report = _report(source, output, model, proofs, rtol, clock.seconds)
        if not all(p.within(rtol) for p in proofs):
            return report
        for file in sorted(source.iterdir()):
            if file.is_file() and not any(file.match(pattern) for pattern in _LEAVE):
                shutil.copyfile(file, staged / file.name)
        record(staged, "convert", source, report)
        written = sum(f.stat().st_size for f in staged.rglob("*") if f.is_file())
        return replace(report, size_bytes=written, written=True)


def _load(source: Path, task: str | None, trust: bool) -> Any:
    with needs_extra(str(source), "transformers", "generation"):
        import torch
        import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    fault: Exception | None = None
    for name in [TASKS[task]] if task else TASKS.values():
        try:
            with quiet(0):
                settings: dict[str, Any] = {"trust_remote_code": True} if trust else {}
                model = getattr(transformers, name).from_pretrained(
                    str(source), local_files_only=True, dtype=torch.float32, attn_implementation="eager", **settings
                )
            return model.eval()
        except Exception as error:
            fault = fault or error
    line = one_line(fault, 250)
    raise InputError(f"{source}: transformers cannot load this ({type(fault).__name__}: {line}).") from fault


def _inputs(model: Any, source: Path, length: int) -> np.ndarray:
    """What the encoder takes, two at a time: ids of real text, or noise in the shape of speech or of a picture."""
    config = model.config
    random = np.random.default_rng(length)
    name = model.main_input_name
    if name == "input_features":
        frames = 2 * config.max_source_positions
        return random.standard_normal((2, config.num_mel_bins, frames)).astype(np.float32)
    if name == "pixel_values":
        vision = config.encoder
        size = vision.image_size if isinstance(vision.image_size, (tuple, list)) else (vision.image_size,) * 2
        return random.standard_normal((2, vision.num_channels, *size)).astype(np.float32)
    if name != "input_ids":
        raise UnsupportedError(f"{source}: an encoder that takes {name!r} is not supported.")
    from transformers import AutoTokenizer

    with quiet(0):
        tokenizer = AutoTokenizer.from_pretrained(str(source), local_files_only=True)
    ids = [(tokenizer(p)["input_ids"] * length)[:length] for p in PROMPTS[1:3]]
    return np.asarray(ids, np.int64)


def _proven(folder: Path, model: Any, source: Path) -> Iterator[PromptProof]:
    sessions = {name: create_session(folder / name) for name in (ENCODER, DECODER, WITH_PAST, MERGED)}
    text = model.main_input_name == "input_ids"
    for length in (9, 3, 40) if text else (1, 2):
        taken = _inputs(model, source, length)
        mask = np.ones(taken.shape[:2], np.int64)
        if text and length > 4:
            mask[1, -2:] = 0  # the second text is shorter
        yield from _answers(sessions, model, taken, mask if text else None)


def _answers(sessions: dict[str, Any], model: Any, taken: np.ndarray, mask: np.ndarray | None) -> Iterator[PromptProof]:
    """Greedy answers of the graphs, judged by the source."""
    import torch

    start = model.generation_config.decoder_start_token_id
    start = model.config.decoder_start_token_id if start is None else start
    limit = getattr(model.config, "max_target_positions", None) or _NEW_TOKENS + 1
    steps = min(_NEW_TOKENS, int(limit) - 1)
    feeds: dict[str, np.ndarray] = {str(model.main_input_name): taken}
    if mask is not None:
        feeds |= {"attention_mask": mask, "encoder_attention_mask": mask}
    feeds["encoder_hidden_states"] = _run(sessions[ENCODER], feeds)["last_hidden_state"]
    encoded = dict(feeds)
    ids = np.full((len(taken), 1), start if start is not None else 0, np.int64)
    answer, logits, name = [ids], [], DECODER
    for _ in range(steps):
        found = _run(sessions[name], feeds | {"input_ids": answer[-1]})
        logits.append(found["logits"][:, -1])
        feeds |= {k.replace("present", "past_key_values"): v for k, v in found.items() if k.startswith("present")}
        answer.append(logits[-1].argmax(-1)[:, None])
        name = WITH_PAST
    given, tokens = np.concatenate(answer[:-1], axis=1), np.concatenate(answer[1:], axis=1)
    whole = _run(sessions[DECODER], feeds | {"input_ids": given})["logits"]
    with torch.no_grad():
        inputs: dict[str, Any] = {model.main_input_name: torch.from_numpy(taken)}
        if mask is not None:
            inputs["attention_mask"] = torch.from_numpy(mask)
        expected = model(**inputs, decoder_input_ids=torch.from_numpy(given), use_cache=False).logits.numpy()
    stepped, merged = np.stack(logits, axis=1), _merged_steps(sessions[MERGED], encoded, given)
    for row in range(len(taken)):
        yield token_proof(taken.shape[-1], expected[row], whole[row], stepped[row], merged[row], tokens[row])


def _merged_steps(session: Any, feeds: dict[str, np.ndarray], given: np.ndarray) -> np.ndarray:
    """Logits [batch, tokens, vocabulary] of the merged decoder, token by token."""
    feeds = dict(feeds)
    for value in session.get_inputs():
        if value.name.startswith("past_key_values"):
            shape = [len(given), *(d if isinstance(d, int) else 0 for d in value.shape[1:])]
            feeds[value.name] = np.zeros(shape, np.float32)
    logits = []
    for step in range(given.shape[1]):
        found = _run(
            session, feeds | {"input_ids": given[:, step : step + 1], "use_cache_branch": np.array([step > 0])}
        )
        logits.append(found["logits"][:, -1])
        present = {k: v for k, v in found.items() if k.startswith("present") and (step == 0 or ".encoder." not in k)}
        feeds |= {k.replace("present", "past_key_values"): v for k, v in present.items()}
    return np.stack(logits, axis=1)


def _run(session: Any, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    inputs = {i.name: feeds[i.name] for i in session.get_inputs()}
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, inputs), strict=True))


def _report(
    source: Path, output: Path, model: Any, proofs: tuple[PromptProof, ...], rtol: float, seconds: dict[str, float]
) -> BundleReport:
    decoder = getattr(model.config, "decoder", model.config)  # of a pair of models, else one configuration for both
    heads = _first(decoder, "decoder_attention_heads", "num_heads", "num_attention_heads")
    width = _first(decoder, "d_model", "hidden_size")
    end = getattr(model.generation_config, "eos_token_id", None)
    ends = tuple(end) if isinstance(end, (list, tuple)) else () if end is None else (int(end),)
    return BundleReport(
        source=str(source),
        output=str(output),
        framework=f"transformers {version('transformers')}",
        architecture=type(model).__name__,
        builder=f"torch.onnx {version('torch')}",
        refused=(),
        layers=_first(decoder, "decoder_layers", "num_decoder_layers", "num_hidden_layers"),
        heads=heads,
        kv_heads=heads,
        head_size=_first(decoder, "d_kv") or width // max(1, heads),
        vocabulary=int(decoder.vocab_size),
        context=_first(decoder, "max_target_positions", "max_position_embeddings", "n_positions"),
        size_bytes=0,
        rtol=rtol,
        prompts=proofs,
        text=TextProof(0, 0, ends),
        runtime=None,
        perplexity=None,
        notes=(f"{ENCODER}, {DECODER}, {WITH_PAST} and {MERGED} with the source's configuration and tokenizer",),
        seconds=seconds,
    )


def _first(config: Any, *names: str) -> int:
    """The first of these settings that there is; 0 where there is none."""
    found = (getattr(config, name, None) for name in names)
    return next((value for value in found if isinstance(value, int)), 0)
