"""Hugging Face folders: config.json beside safetensors, loaded with the transformers library, never from a hub."""

from __future__ import annotations

import copy
import inspect
import os
import warnings
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

from onnxtool.conversion.source import Source
from onnxtool.errors import InputError, MissingExtraError, UnsafeError, UnsupportedError, UsageError, one_line
from onnxtool.model.domains import Domain
from onnxtool.model.safety.declared_sizes import verify_declared_sizes
from onnxtool.model.spec import Dim
from onnxtool.options.convert import ConvertOptions

# --task -> the class of transformers that builds the model for it.
TASKS = {
    "audio-classification": "AutoModelForAudioClassification",
    "automatic-speech-recognition": "AutoModelForSpeechSeq2Seq",
    "depth-estimation": "AutoModelForDepthEstimation",
    "feature-extraction": "AutoModel",
    "fill-mask": "AutoModelForMaskedLM",
    "image-classification": "AutoModelForImageClassification",
    "image-segmentation": "AutoModelForSemanticSegmentation",
    "object-detection": "AutoModelForObjectDetection",
    "multiple-choice": "AutoModelForMultipleChoice",
    "question-answering": "AutoModelForQuestionAnswering",
    "text-classification": "AutoModelForSequenceClassification",
    "text-generation": "AutoModelForCausalLM",
    "text2text-generation": "AutoModelForSeq2SeqLM",
    "token-classification": "AutoModelForTokenClassification",
}
_TEXT: tuple[Dim, ...] = ("batch", "sequence")
_SOUND: tuple[Dim, ...] = ("batch", "samples")
# The first dim of inputs of which there may be different numbers.
_APART = {"input_ids": "texts", "attention_mask": "texts", "token_type_ids": "texts", "pixel_values": "images"}


def load_pretrained(
    source: Source, options: ConvertOptions, notes: list[str]
) -> tuple[torch.nn.Module, dict[str, tuple[Dim, ...]]]:
    """Load the model of a folder.

    Returns:
        The module, and the shapes of its usual inputs.

    Raises:
        MissingExtraError: transformers is not installed.
        UnsafeError: the folder brings its own code, and `options.trust` is not set.
        UsageError: an unknown task.
        UnsupportedError: this transformers does not have the model's class.
        InputError: damaged.
    """
    if find_spec("transformers") is None:
        raise MissingExtraError(str(source), "transformers", "transformers")
    config = source.json("config.json")
    if config.get("auto_map") and not options.trust:
        raise UnsafeError(f"{source}: this model brings its own Python code. Pass --trust if you trust it.")
    if source.path is not None:
        verify_declared_sizes(source.path / "config.json", config, source.path)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    cls = _class_for(transformers, source, config, options, notes)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            transformers.logging.set_verbosity_error()
            transformers.logging.disable_progress_bar()
            module = cls.from_pretrained(
                str(source.path), local_files_only=True, **({"trust_remote_code": True} if options.trust else {})
            )
    except Exception as error:
        line = one_line(error)
        raise InputError(f"{source}: transformers cannot load this folder ({type(error).__name__}: {line}).") from error
    return module, made_ready(module, notes, _tokenizer_gives(transformers, source))


def is_pretrained(module: torch.nn.Module) -> bool:
    """Whether a module is one of the transformers library's."""
    return any(kind.__name__ == "PreTrainedModel" for kind in type(module).__mro__)


def made_ready(module: Any, notes: list[str], tokens: Collection[str] = ()) -> dict[str, tuple[Dim, ...]]:
    """Set up a model of transformers for an export.

    Args:
        module: changed in place.
        notes: things to say aloud; added to.
        tokens: what its tokenizer gives.

    Returns:
        The shapes of its usual inputs.
    """
    # A cache would add two outputs for each layer, of a class that no exporter flattens alike.
    if getattr(module.config, "use_cache", False):
        module.config.use_cache = False
        if "past_key_values" in inspect.signature(module.forward).parameters:
            notes.append("exported without a key-value cache")
    _choose_experts(module)
    shapes = usual_shapes(module, tokens)
    if "input_ids" in shapes and "token_type_ids" not in shapes and _has_segments(module):
        notes.append(
            "token_type_ids are taken as zeros, since no tokenizer gives them; for pairs of texts add "
            "--input-shape token_type_ids:batch,sequence"
        )
    takes = inspect.signature(module.forward).parameters
    if shapes.get("input_values") == _SOUND and "attention_mask" in set(takes) - set(shapes):
        notes.append(
            "exported without attention_mask: what is padded to the length of its batch counts as sound; give the file "
            "recordings of one length at a time"
        )
    if set(shapes) <= {"pixel_values", "pixel_mask"} and _takes_wider(module, shapes):
        *before, height, width = shapes["pixel_values"]
        notes.append(
            f"exported for images of {height} x {width}, the size of its configuration; it takes others too, each "
            f"named as numbers: --input-shape pixel_values:{','.join(map(str, before))},HEIGHT,WIDTH"
        )
    return shapes


def _takes_wider(module: Any, shapes: Mapping[str, tuple[Any, ...]]) -> bool:
    """Whether it runs on an image twice as wide as the usual one."""
    sizes = {name: [1, *shape[1:-1], 2 * shape[-1]] for name, shape in shapes.items()}
    # A copy shares the weights; what a run changes in itself (Swin's windows) stays there.
    trial = copy.deepcopy(module, {id(t): t for t in (*module.parameters(), *module.buffers())})
    with suppress(Exception), torch.inference_mode():
        trial.eval()(**{name: torch.ones(size) for name, size in sizes.items()})
        return bool(sizes)
    return False


def _choose_experts(module: Any) -> None:
    """Experts (Mixtral and its like) as products over gathered weights: of the ways that transformers 5 computes them,
    the loop depends on the data and the grouped product has no ONNX operator.
    """
    if getattr(type(module), "_can_set_experts_implementation", lambda: False)():
        with suppress(Exception):
            module.set_experts_implementation("batched_mm")


def import_class(source: Source, options: ConvertOptions) -> None:
    """Import the class that `load_pretrained` will use, with all that it needs; what fails is said there."""
    config = source.json("config.json")
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        import transformers

        cls = _class_for(transformers, source, config, options, [])
        if hasattr(cls, "_model_mapping"):  # one that chooses by the kind of model
            names = transformers.models.auto.configuration_auto.CONFIG_MAPPING
            cls._model_mapping[names[config["model_type"]]]


def _class_for(
    transformers: ModuleType, source: Source, config: Mapping[str, Any], options: ConvertOptions, notes: list[str]
) -> Any:
    if options.task is not None:
        if options.task not in TASKS:
            raise UsageError(f"--task {options.task}: must be one of {', '.join(TASKS)}.")
        return getattr(transformers, TASKS[options.task])
    names = config.get("architectures") or []
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else "AutoModel"
    cls = getattr(transformers, name, None) if name.isidentifier() else None
    if cls is None or not hasattr(cls, "from_pretrained"):
        if config.get("auto_map") and options.trust:
            return transformers.AutoModel
        raise UnsupportedError(
            f"{source}: transformers {transformers.__version__} has no {name!r}. Choose a class with --task: "
            f"{', '.join(TASKS)}."
        )
    notes.append(f"loaded as {name}, as its config.json says")
    return cls


def _tokenizer_gives(transformers: ModuleType, source: Source) -> Collection[str]:
    """Names of what the folder's tokenizer makes of a text; none where there is no tokenizer in it."""
    if source.path is None or not (source.path / "tokenizer_config.json").exists():
        return ()
    with suppress(Exception):  # one that this transformers does not know: the usual inputs
        own = source.json("tokenizer_config.json")
        names = own.get("model_input_names")
        if not isinstance(names, list):
            names = getattr(transformers, own["tokenizer_class"]).model_input_names
        return tuple(n for n in names if isinstance(n, str))
    return ()


def _has_segments(module: Any) -> bool:
    """Whether the model tells the two texts of a pair apart by `token_type_ids`."""
    takes = "token_type_ids" in inspect.signature(module.forward).parameters
    return takes and (getattr(module.config, "type_vocab_size", 0) or 0) > 1


def usual_shapes(module: torch.nn.Module, tokens: Collection[str] = ()) -> dict[str, tuple[Dim, ...]]:
    """The inputs that a transformers model is usually given, batch and lengths dynamic.

    Args:
        module: of transformers.
        tokens: what its tokenizer gives; segments of a pair of texts are an input where it gives them and the model
            tells them apart.
    """
    takes = inspect.signature(module.forward).parameters
    config: Any = module.config
    image = _image_shape(config)
    text = ("batch", "choices", "sequence") if type(module).__name__.endswith("ForMultipleChoice") else _TEXT
    known: dict[str, tuple[Dim, ...]] = {
        "input_ids": text,
        "attention_mask": text,
        "pixel_values": image,
        "input_features": (
            "batch",
            getattr(config, "num_mel_bins", 80),
            2 * getattr(config, "max_source_positions", 1500),
        ),
        "input_values": _sound_shape(config),
        "decoder_input_ids": ("batch", "decoder_sequence"),
        **_series_shapes(config),
    }
    main = getattr(module, "main_input_name", "input_ids")
    chosen = {main: known[main]} if main in known and main in takes else {}
    if main == "past_values":
        chosen |= {n: known[n] for n, p in takes.items() if n in known and p.default is p.empty}
    if main == "input_ids" and "attention_mask" in takes:
        chosen["attention_mask"] = text
    if main == "input_ids" and box_places(module):
        chosen["bbox"] = (*text, 4)
    # Their feature extractors give a mask to models of this kind only; the others were trained on zeros.
    if main == "input_values" and "attention_mask" in takes and getattr(config, "feat_extract_norm", "") == "layer":
        chosen["attention_mask"] = known["input_values"]
    if main == "pixel_values" and "pixel_mask" in takes:
        chosen["pixel_mask"] = (image[0], *image[2:])
    if main == "input_ids" and "token_type_ids" in tokens and _has_segments(module):
        chosen["token_type_ids"] = text
    if main == "input_ids" and "pixel_values" in takes:
        chosen["pixel_values"] = image
        if _counts_apart(module, image):
            chosen = {name: (_APART[name], *shape[1:]) for name, shape in chosen.items()}
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in takes:
        chosen["decoder_input_ids"] = known["decoder_input_ids"]
    return {name: chosen[name] for name in takes if name in chosen}


def _series_shapes(config: Any) -> dict[str, tuple[Dim, ...]]:
    """The past of a time series, as far back as the model looks."""
    length = (getattr(config, "context_length", None) or 0) + max(getattr(config, "lags_sequence", None) or [0])
    series = getattr(config, "num_input_channels", None)
    several = (series,) if series else (config.input_size,) if getattr(config, "input_size", 1) > 1 else ()
    times = ("batch", length, getattr(config, "num_time_features", 0))
    values = dict.fromkeys(("past_values", "past_observed_mask"), ("batch", length, *several))
    return {**values, "past_time_features": times} if length else {}


def box_places(module: Any) -> dict[str, Domain]:
    """Which left, upper, right and lower edges the box of a token may have, where a model of layouts takes it."""
    size = getattr(module.config, "max_2d_position_embeddings", 0)
    if not size or "bbox" not in inspect.signature(module.forward).parameters:
        return {}
    low, high = tuple(range(size // 2)), tuple(range(size // 2, size))
    return {"bbox": Domain(0, size, (low, low, high, high))}


def _counts_apart(module: torch.nn.Module, image: tuple[Dim, ...]) -> bool:
    """Whether it takes two texts with three images, as CLIP and its like do: then their numbers are two dims."""
    tokens = torch.ones(2, 4, dtype=torch.int64)
    with suppress(Exception), torch.inference_mode():
        module.eval()(input_ids=tokens, attention_mask=tokens, pixel_values=torch.zeros(3, *image[1:]))
        return True
    return False


def _sound_shape(config: Any) -> tuple[Dim, ...]:
    """Samples of a recording, or its spectrum, which audio spectrogram transformers take under the same name."""
    if hasattr(config, "num_mel_bins") and hasattr(config, "frequency_stride"):
        return ("batch", config.max_length, config.num_mel_bins)
    return _SOUND


def _image_shape(config: Any) -> tuple[Dim, ...]:
    parts = [config, *(getattr(config, n, None) for n in ("vision_config", "encoder"))]
    vision = next((p for p in parts if getattr(p, "image_size", None)), config)
    size = getattr(vision, "image_size", None) or getattr(config, "input_size", None) or 224
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    frames = (config.num_frames,) if getattr(config, "num_frames", None) else ()  # of a video
    return ("batch", *frames, getattr(vision, "num_channels", 3), int(height), int(width))
