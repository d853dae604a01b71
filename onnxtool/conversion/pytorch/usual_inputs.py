"""The arguments that a model of the transformers library is usually given, with their shapes.

`ROWS` says of each argument which shapes it may have, and along with what it is given. What the signature and the
configuration leave open (which of these shapes, which optional argument the model cannot do without) is found by
running the model on a few numbers.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from onnxtool.conversion.input_plan import holds_integers
from onnxtool.model.domains import Domain
from onnxtool.model.spec import Dim

Shape = tuple[Dim, ...]
Shapes = dict[str, Shape]
# For trials, different and small: a fixed size is none of them, so that no dim passes for another one.
_SIZES = {"batch": 2, "texts": 2, "images": 3, "recordings": 5, "sequence": 8, "decoder_sequence": 6, "samples": 4100}
_OTHER = 37
_LONGEST = 512  # tokens
# Arguments for training, for generation, or in place of others; and those that notes of their own tell of.
_WITHIN = re.compile(
    r"labels?$|^rewards$|embeds$|_values$|hidden_states|head_mask|positions?$|masked_pos|position_ids|_outputs|^(mask|return|future|"
    r"cache|encoder|decoder|target|logits)_|^(attention_mask|token_type_ids)$"
)


@dataclass(frozen=True)
class Row:
    """An argument.

    Attributes:
        forms: of the model, and the shapes of the arguments with rows above: the shapes that it may have, the usual
            one first; none where these leave it no place.
        beside: it is given along with each of these, where the model takes it.
        given: whether a model that takes it is given it.
        domain: of the model, what it may hold, where its name does not say that it holds integers: it does where the
            smallest is one.
    """

    forms: Callable[[Any, Shapes], tuple[Shape, ...]]
    beside: tuple[str, ...] = ()
    given: Callable[[Any], bool] = lambda _: True
    domain: Callable[[Any], Domain | None] = lambda _: None


def setting(config: Any, *names: str) -> Any:
    """The first of some settings that a configuration has and is not empty, or one of its parts has; else None."""
    parts = [config, *(part for part in getattr(config, "__dict__", {}).values() if hasattr(part, "__dict__"))]
    found = (getattr(part, name, None) for part in parts for name in names)
    return next((value for value in found if value), None)


def left_out(module: Any, shapes: Collection[str]) -> list[str]:
    """Arguments with tensors that are no inputs and may matter to what the model finds."""
    takes = inspect.signature(module.forward).parameters.items()
    return [n for n, p in takes if "Tensor" in str(p.annotation) and n not in shapes and not _WITHIN.search(n)]


def main_names(module: Any) -> list[str]:
    """Names of the argument, or the arguments, that a model of transformers is about; none of another module."""
    main = getattr(module, "main_input_name", [])
    return [main] if isinstance(main, str) else [*main]


def has_segments(module: Any) -> bool:
    """Whether the model tells the two texts of a pair apart by `token_type_ids`."""
    takes = "token_type_ids" in inspect.signature(module.forward).parameters
    sizes = getattr(module.config, "type_vocab_sizes", None) or [getattr(module.config, "type_vocab_size", 0) or 0]
    return takes and max(sizes) > 1


def usual_shapes(module: torch.nn.Module, tokens: Collection[str] = ()) -> Shapes:
    """The inputs that a transformers model is usually given, batch and lengths dynamic.

    Args:
        module: of transformers.
        tokens: what its tokenizer gives; segments of a pair of texts are an input where it gives them and the model
            tells them apart.

    Returns:
        In the order of the arguments; empty where an argument that it must be given has no row.
    """
    takes = {n: p for n, p in inspect.signature(module.forward).parameters.items() if p.kind is not p.VAR_KEYWORD}
    mains = main_names(module)
    needed = [n for n, p in takes.items() if n in mains or p.default is p.empty]
    if not needed or not set(needed) <= ROWS.keys():
        return {}
    optional = [n for n in takes if n in ROWS and n not in needed and not ROWS[n].beside]
    first: Shapes = {}
    for more in ([], *([name] for name in optional)):
        for shapes in _combinations(module, takes, [*needed, *more], tokens):
            first = first or shapes
            if _runs(module, shapes):
                return _counted_apart(module, shapes)
    return first


def usual_domains(module: Any) -> dict[str, Domain]:
    """What arguments may hold, of those whose names do not say it."""
    takes = inspect.signature(module.forward).parameters
    found = {name: row.domain(module) for name, row in ROWS.items() if name in takes}
    return {name: domain for name, domain in found.items() if domain is not None}


def usual_dims(module: Any) -> dict[str, int]:
    """Sizes for a model that cannot have them dynamic: texts are padded to the longest, the rest comes one by one."""
    longest = setting(getattr(module, "config", None), "max_text_len", "max_position_embeddings") or _LONGEST
    return {"batch": 1, "texts": 1, "images": 1, "sequence": min(longest, _LONGEST)}


def _combinations(
    module: Any, takes: Collection[str], chosen: Collection[str], tokens: Collection[str]
) -> Iterator[Shapes]:
    """The shapes of some arguments and of what is given along with them."""
    names = {*chosen}
    for name in (n for n in ROWS if n in takes):
        unsaid = name == "token_type_ids" and name not in tokens and not hasattr(module.config, "type_vocab_sizes")
        if names & {*ROWS[name].beside} and ROWS[name].given(module) and not unsaid:
            names.add(name)
    found: list[Shapes] = [{}]
    for name in (n for n in ROWS if n in names):
        found = [
            shapes if form is None else {**shapes, name: form}
            for shapes in found
            for form in ROWS[name].forms(module, shapes) or (None,)
        ]
    yield from ({n: shapes[n] for n in takes if n in shapes} for shapes in found)


def _counted_apart(module: Any, shapes: Shapes) -> Shapes:
    """Texts, images and recordings as dims of their own, where the model takes other numbers of each: CLIP's kind."""
    kinds = {"pixel_values": "images", "input_features": "recordings"}
    if "input_ids" in shapes and kinds.keys() & shapes.keys():
        apart = {name: (kinds.get(name, "texts"), *shape[1:]) for name, shape in shapes.items()}
        if _runs(module, apart):
            return apart
    return shapes


def _runs(module: Any, shapes: Mapping[str, Shape]) -> bool:
    """Whether the model takes inputs of these shapes; a dynamic dim has a small size."""
    domains = usual_domains(module)
    integers = {n for n in shapes if holds_integers(n) or (n in domains and isinstance(domains[n].low, int))}
    with suppress(Exception), torch.inference_mode():
        dtype = next((p.dtype for p in module.parameters() if p.dtype.is_floating_point), torch.float32)
        # A copy shares the weights; what a run changes in itself (Swin's windows) stays there.
        trial = copy.deepcopy(module, {id(t): t for t in (*module.parameters(), *module.buffers())})
        feeds = {}
        for name, shape in shapes.items():
            sizes = [d if isinstance(d, int) else _SIZES.get(str(d), _OTHER) for d in shape]
            feeds[name] = torch.ones(sizes, dtype=torch.int64 if name in integers else dtype)
        trial.eval()(**feeds)
        return True
    return False


def takes_wider(module: Any, shapes: Mapping[str, Shape]) -> bool:
    """Whether it runs on an image twice as wide as the usual one, or twice as high too, as some take squares alone."""
    pictures = {name: shape for name, shape in shapes.items() if name in ("pixel_values", "pixel_mask")}
    wide = {name: (*shape[:-1], 2 * int(shape[-1] or 0)) for name, shape in pictures.items()}
    large = {name: (*shape[:-2], 2 * int(shape[-2] or 0), shape[-1]) for name, shape in wide.items()}
    return bool(pictures) and any(_runs(module, {**shapes, **other}) for other in (wide, large))


def _text(module: Any, _: Shapes) -> tuple[Shape, ...]:
    several = type(module).__name__.endswith("ForMultipleChoice")
    return (("batch", "choices", "sequence") if several else ("batch", "sequence"),)


def _image(module: Any, _: Shapes) -> tuple[Shape, ...]:
    config = module.config
    size = setting(config, "image_size", "input_size", "crop_size") or 224
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    frames = [count for count in (setting(config, "num_frames", "frames_per_clip"),) if count]  # of a video
    return (("batch", *frames, setting(config, "num_channels") or 3, int(height), int(width)),)


def _sound(module: Any, _: Shapes) -> tuple[Shape, ...]:
    """Samples of a recording, or of its channels; or its spectrum, which audio spectrogram transformers take under the
    same name.
    """
    config = module.config
    if hasattr(config, "num_mel_bins") and hasattr(config, "frequency_stride"):
        return (("batch", config.max_length, config.num_mel_bins),)
    return ("batch", "samples"), ("batch", getattr(config, "audio_channels", 1), "samples")


def _spectrum(module: Any, _: Shapes) -> tuple[Shape, ...]:
    """Features of a recording along time: of the 30 s that Whisper takes, or of any length."""
    features = setting(module.config, "feature_projection_input_dim", "input_feat_per_channel", "num_mel_bins") or 80
    whole = (("batch", features, 2 * (getattr(module.config, "max_source_positions", 0) or 1500)),)
    return *whole, ("batch", "frames", features), ("batch", features, "frames"), ("batch", 1, "frames", features)


def _series(module: Any, _: Shapes) -> tuple[Shape, ...]:
    """The past of a time series, as far back as the model looks, of one or several series."""
    config = module.config
    length = (getattr(config, "context_length", None) or 0) + max(getattr(config, "lags_sequence", None) or [0])
    series = getattr(config, "num_input_channels", 0)
    several = getattr(config, "input_size", 1)
    channels = (series,) if series else (several,) if several > 1 else ()
    return (("batch", length, *channels),) if length else ()


def _places(_: Any, shapes: Shapes) -> tuple[Shape, ...]:
    """One number for each token, sample or frame of a text or recording; none of one whose length is fixed."""
    whole: Shape = next((shapes[n] for n in ROWS["attention_mask"].beside if n in shapes), ())
    free = tuple(d for d in whole if isinstance(d, str))
    return (free,) if len(free) > 1 else ()


def _given_masks(module: Any) -> bool:
    """Of models that hear samples, feature extractors give masks to those with layer norm; others know zeros alone."""
    return getattr(module.config, "feat_extract_norm", "layer") == "layer"


def _segments(module: Any, shapes: Shapes) -> tuple[Shape, ...]:
    """Which text of a pair a token is of; or row, column and more of a cell in a table (TAPAS)."""
    kinds = getattr(module.config, "type_vocab_sizes", None)
    return ((*shapes["input_ids"], len(kinds)) if kinds else shapes["input_ids"],)


def _segment_kinds(module: Any) -> Domain | None:
    kinds = getattr(module.config, "type_vocab_sizes", None)
    return Domain(0, max(kinds), tuple(tuple(range(n)) for n in kinds)) if kinds else None


def _box_places(module: Any) -> Domain | None:
    """Which left, upper, right and lower edges the box of a token may have."""
    size = getattr(module.config, "max_2d_position_embeddings", 0)
    low, high = tuple(range(size // 2)), tuple(range(size // 2, size))
    return Domain(0, size, (low, low, high, high)) if size else None


def _tokens(module: Any) -> Domain | None:
    """Numbers of tokens, where the model has a table of them."""
    size = getattr(module.config, "vocab_size", 0)
    tables = (part for part in module.modules() if isinstance(part, torch.nn.Embedding))
    return Domain(0, size) if any(table.num_embeddings == size for table in tables) else None


def _text_or_image(module: Any, shapes: Shapes) -> tuple[Shape, ...]:
    """Bytes of a text; else a picture, or features of anything."""
    if _tokens(module):
        return _text(module, shapes)
    pictures = _image(module, shapes)
    single = (tuple(shape[:1] + shape[-3:]) for shape in pictures)
    return (*dict.fromkeys((*single, *pictures)), *_dims("batch", "sequence", ".d_model")(module, shapes))


def _patches(module: Any) -> Domain | None:
    """Row and column of a patch, then its pixels."""
    rows, pixels = (setting(module.config, name) or 0 for name in ("seq_len", "patch_embed_hidden_size"))
    values = tuple(step / 8 for step in range(-16, 17))
    return Domain(0.0, 0.0, (*(tuple(range(rows)),) * 2, *(values,) * pixels)) if rows and pixels else None


def _patch(module: Any, _: Shapes) -> tuple[Shape, ...]:
    domain = _patches(module)
    return (("batch", "patches", len(domain.values)),) if domain else ()


def _dims(*dims: Dim) -> Callable[[Any, Shapes], tuple[Shape, ...]]:
    """A shape in which ".setting" is a number of the configuration; none where that is 0 or missing."""

    def forms(module: Any, _: Shapes) -> tuple[Shape, ...]:
        shape = [setting(module.config, d[1:]) if isinstance(d, str) and d.startswith(".") else d for d in dims]
        return (tuple(shape),) if all(shape) else ()

    return forms


def _is_encoder_decoder(module: Any) -> bool:
    return bool(getattr(module.config, "is_encoder_decoder", False))


# Those that others stand beside come first.
ROWS: dict[str, Row] = {
    "input_ids": Row(_text),
    "input_values": Row(_sound),
    "input_features": Row(_spectrum),
    "past_values": Row(_series),
    "pixel_values": Row(_image, ("input_ids",)),
    "pixel_values_videos": Row(_image),
    "inputs": Row(_text_or_image, domain=_tokens),
    "flattened_patches": Row(_patch, domain=_patches),
    "spectrogram": Row(_dims("batch", "frames", ".model_in_dim")),
    "states": Row(_dims("batch", "sequence", ".state_dim")),
    "actions": Row(_dims("batch", "sequence", ".act_dim"), ("states",)),
    "returns_to_go": Row(_dims("batch", "sequence", 1), ("states",)),
    "timesteps": Row(
        _dims("batch", "sequence"), ("states",), domain=lambda m: Domain(0, getattr(m.config, "max_ep_len", 1))
    ),
    "visual_feats": Row(_dims("batch", "objects", ".visual_feat_dim"), ("input_ids",)),
    "visual_pos": Row(_dims("batch", "objects", ".visual_pos_dim"), ("visual_feats",)),
    "visual_attention_mask": Row(_dims("batch", "objects"), ("visual_feats",)),
    "attention_mask": Row(
        _places,
        ("input_ids", "input_values", "input_features", "inputs", "flattened_patches", "states"),
        _given_masks,
    ),
    "padding_mask": Row(_places, ("input_values",)),
    "token_type_ids": Row(_segments, ("input_ids",), has_segments, _segment_kinds),
    "xpath_tags_seq": Row(_dims("batch", "sequence", ".max_depth"), ("input_ids",), domain=lambda _: Domain(0, 2)),
    "xpath_subs_seq": Row(_dims("batch", "sequence", ".max_depth"), ("input_ids",), domain=lambda _: Domain(0, 2)),
    "bbox": Row(lambda _, shapes: ((*shapes["input_ids"], 4),), ("input_ids",), domain=_box_places),
    "pixel_mask": Row(lambda _, shapes: ((*(i := shapes["pixel_values"])[:1], *i[-2:]),), ("pixel_values",)),
    "task_inputs": Row(
        _dims("batch", ".task_seq_len"), domain=lambda m: Domain(0, getattr(m.config, "text_encoder_vocab_size", 1))
    ),
    "input_points": Row(_dims("batch", "prompts", "points", 2), ("pixel_values",)),
    "input_labels": Row(_dims("batch", "prompts", "points"), ("pixel_values",), domain=lambda _: Domain(0, 2)),
    "noise_sequence": Row(_dims("batch", "frames", ".model_in_channels"), ("input_features",)),
    "past_observed_mask": Row(_series),
    "past_time_features": Row(lambda m, _: tuple((*s[:2], m.config.num_time_features) for s in _series(m, {}))),
    "static_real_features": Row(_dims("batch", ".num_static_real_features"), ("past_values",)),
    "static_categorical_features": Row(
        _dims("batch", ".num_static_categorical_features"),
        ("past_values",),
        domain=lambda m: Domain(0, min(getattr(m.config, "cardinality", None) or [1])),
    ),
    "decoder_input_ids": Row(
        _dims("batch", "decoder_sequence"),
        ("input_ids", "input_values", "input_features", "pixel_values", "flattened_patches"),
        _is_encoder_decoder,
    ),
    "decoder_input_values": Row(
        _dims("batch", "decoder_frames", ".num_mel_bins"), ("input_ids", "input_values"), _is_encoder_decoder
    ),
}
