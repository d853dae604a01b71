"""The source model in its own framework: what every bundle is held against."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.conversion.quiet import quiet
from onnxtool.errors import InputError, MissingExtraError, UnsupportedError, one_line
from onnxtool.generation.source import TextModelSource
from onnxtool.generation.tokenizer import Message

# Weights that transformers may leave out because others stand for them.
_TIED = ("lm_head.weight", "embed_out.weight", "rotary_emb.inv_freq", ".attn.bias", ".masked_bias", "position_ids")


class SourceGenerator:
    """A model of transformers in float32, and its tokenizer."""

    def __init__(self, source: TextModelSource, *, trust: bool = False, adapter: Path | None = None) -> None:
        """Load both.

        Raises:
            MissingExtraError: transformers, or for a GGUF file or an adapter what they need, is not installed.
            InputError: damaged, weights missing, of other shapes than the configuration says.
            UnsupportedError: this transformers does not have the model's class.
        """
        _need("transformers", source)
        if source.gguf:
            _need("gguf", source)
            _need("accelerate", source)
        if adapter is not None:
            _need("peft", source)
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        self.notes: list[str] = []
        self.copied = source.gguf or source.pickled or adapter is not None
        with quiet(0):
            self._load(source, trust, adapter)
        self.config = self.model.config

    def _load(self, source: TextModelSource, trust: bool, adapter: Path | None) -> None:
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        where = str(source.path)
        settings: dict[str, Any] = {"local_files_only": True}
        if source.gguf:
            where = str(source.path.parent)
            settings["gguf_file"] = source.path.name
        if trust:
            settings["trust_remote_code"] = True
        try:
            with torch.no_grad():
                self.model, info = transformers.AutoModelForCausalLM.from_pretrained(
                    where, dtype=torch.float32, output_loading_info=True, use_safetensors=not source.pickled, **settings
                )
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(where, **settings)
        except Exception as error:
            raise _failure(source, error) from error
        _verify_complete(source, info)
        if source.gguf:
            # Its weights are plain float32 by now; what is left of the quantization would forbid to save them.
            self.model.config.__dict__.pop("quantization_config", None)
            self.model.hf_quantizer = None
        if adapter is not None:
            self.model = _merged(self.model, adapter)
            self.notes.append(f"the adapter {adapter.name} is merged into the weights")
        self.model.eval()

    @property
    def eos(self) -> tuple[int, ...]:
        """Ids of the tokens at which `generate` of transformers ends."""
        for config in (getattr(self.model, "generation_config", None), self.config):
            found = getattr(config, "eos_token_id", None)
            if found is not None:
                return tuple(found) if isinstance(found, (list, tuple)) else (int(found),)
        return ()

    @property
    def context(self) -> int:
        """The most tokens that the model was made for."""
        for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
            found = getattr(self.config, name, None)
            if isinstance(found, int) and found > 0:
                return found
        return 2048

    @property
    def tied(self) -> bool:
        """The embedding's weights are the head's too."""
        head, table = self.model.get_output_embeddings(), self.model.get_input_embeddings()
        return head is not None and table is not None and head.weight.data_ptr() == table.weight.data_ptr()

    @property
    def special_length(self) -> int | None:
        """The number of tokens from which on the model works otherwise: the window of attention ends, or positions are
        scaled by other factors; None where there is no such number.
        """
        config = self.config
        scaling = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
        if isinstance(scaling, dict) and "longrope" in (scaling.get("rope_type"), scaling.get("type")):
            found = getattr(config, "original_max_position_embeddings", None)
            found = found or scaling.get("original_max_position_embeddings")
            if isinstance(found, int):
                return found
        window = getattr(config, "sliding_window", None)
        used = getattr(config, "use_sliding_window", True) is not False
        return window if isinstance(window, int) and window > 0 and used else None

    def logits(self, tokens: Sequence[int], last: int | None = None) -> np.ndarray:
        """Float32 logits [tokens, vocabulary] of one pass over all tokens, without a cache; of the `last` alone."""
        found: np.ndarray = self.batch_logits(np.asarray([list(tokens)]), last)[0]
        return found if last is None else found[-last:]

    def batch_logits(self, tokens: np.ndarray, last: int | None = None) -> np.ndarray:
        """Likewise of int64 [batch, tokens]; more than the `last` ones where the model gives all of them."""
        import torch

        some = {} if last is None or last >= tokens.shape[1] or not self._keeps else {"logits_to_keep": last}
        with torch.inference_mode():
            logits = self.model(input_ids=torch.tensor(tokens), use_cache=False, **some).logits
        found: np.ndarray = logits.float().numpy()
        return found

    @property
    def _keeps(self) -> bool:
        return "logits_to_keep" in inspect.signature(self.model.forward).parameters

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Token ids of a text."""
        return [int(i) for i in self.tokenizer(text, add_special_tokens=special)["input_ids"]]

    def chat(self, messages: Sequence[Message], *, answer: bool = True) -> str | None:
        """The text of a chat; None where the tokenizer has no template or the template refuses the chat."""
        if not getattr(self.tokenizer, "chat_template", None):
            return None
        try:
            return str(self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=answer))
        except Exception:
            return None

    def save(self, folder: Path) -> None:
        """Write configuration, float32 weights as safetensors, and tokenizer."""
        self.model.save_pretrained(folder, safe_serialization=True)
        self.save_tokenizer(folder)

    def save_tokenizer(self, folder: Path) -> None:
        """Write tokenizer.json, its settings and the chat template."""
        self.tokenizer.save_pretrained(folder)


def _need(package: str, source: TextModelSource) -> None:
    if find_spec(package) is None:
        raise MissingExtraError(str(source.path), package, "generation")


def _verify_complete(source: TextModelSource, info: dict[str, Any]) -> None:
    """Transformers fills what is missing with random numbers, and says so in a log alone."""
    missing = sorted(k for k in info.get("missing_keys", ()) if not k.endswith(_TIED))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"{source.path}: the weight {missing[0]!r}{more} is missing; is config.json this model's?")
    wrong = list(info.get("mismatched_keys", ()))
    if wrong:
        name = wrong[0][0] if isinstance(wrong[0], (tuple, list)) else wrong[0]
        raise InputError(f"{source.path}: the weight {name!r} has another shape than config.json says.")


def _failure(source: TextModelSource, error: Exception) -> Exception:
    line = one_line(error, 250)
    text = line.lower()
    if isinstance(error, MemoryError):
        return error
    if (
        "does not recognize this architecture" in text
        or "not supported yet" in text
        or "unrecognized configuration" in text
    ):
        return UnsupportedError(f"{source.path}: transformers does not have this kind of model ({line}).")
    return InputError(f"{source.path}: transformers cannot load this ({type(error).__name__}: {line}).")


def _merged(model: Any, adapter: Path) -> Any:
    """The model with a LoRA adapter added to its weights."""
    import peft

    if not (adapter / "adapter_config.json").is_file():
        raise InputError(f"{adapter}: has no adapter_config.json.")
    if not (adapter / "adapter_model.safetensors").is_file():
        raise InputError(f"{adapter}: has no adapter_model.safetensors.")
    try:
        wrapped = peft.PeftModel.from_pretrained(model, str(adapter), local_files_only=True)
        merged = wrapped.merge_and_unload()
    except Exception as error:
        line = one_line(error, 250)
        raise InputError(f"{adapter}: this adapter does not fit the model ({type(error).__name__}: {line}).") from error
    return merged
