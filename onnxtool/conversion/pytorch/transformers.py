"""Hugging Face folders: config.json beside safetensors, loaded with the transformers library, never from a hub."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

from onnxtool.conversion.pytorch.usual_inputs import has_segments, left_out, takes_wider, usual_shapes
from onnxtool.conversion.source import Source
from onnxtool.errors import InputError, MissingExtraError, UnsafeError, UnsupportedError, UsageError, one_line
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
    if "input_ids" in shapes and "token_type_ids" not in shapes and has_segments(module):
        notes.append(
            "token_type_ids are taken as zeros, since no tokenizer gives them; for pairs of texts add "
            "--input-shape token_type_ids:batch,sequence"
        )
    takes = inspect.signature(module.forward).parameters
    if shapes.get("input_values", ())[-1:] == ("samples",) and "attention_mask" in set(takes) - set(shapes):
        notes.append(
            "exported without attention_mask: what is padded to the length of its batch counts as sound; give the file "
            "recordings of one length at a time"
        )
    others = left_out(module, shapes) if shapes else []
    if others:
        notes.append(f"left at their defaults: {', '.join(others)}; --input-shape makes inputs of those that you give")
    if takes_wider(module, shapes):
        *before, height, width = shapes["pixel_values"]
        notes.append(
            f"exported for images of {height} x {width}, the size of its configuration; it takes others too, each "
            f"named as numbers: --input-shape pixel_values:{','.join(map(str, before))},HEIGHT,WIDTH"
        )
    return shapes


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
