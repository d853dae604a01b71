"""Run a bundle's decoder on the embedded runtime, with its key-value cache kept in place."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnxruntime as ort

from onnxtool.errors import InputError, UnsupportedError
from onnxtool.generation.adapters import read_adapter
from onnxtool.generation.bundle import Bundle
from onnxtool.model.io import read_proto
from onnxtool.runtime.session.memory import use_huge_pages
from onnxtool.runtime.session.session import SessionOptions, classify, create_session
from onnxtool.runtime.worker.isolation import guarded, native_silence

_DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_HUGE_PAGES_ABOVE = 64 << 20  # bytes of the model; a smaller one is in the processor's caches anyway
_MAPPED_ABOVE = 2 << 30  # bytes of the model
_FED = {"input_ids", "attention_mask", "position_ids"}


def sparing(bundle: Bundle) -> SessionOptions:
    """Options under which the weights of a large bundle stay in the mapped file, and are read anew for each run.

    Rearranged for speed they would take as much memory once more.
    """
    return SessionOptions(prepack=bundle.model_bytes <= _MAPPED_ABOVE, arena=bundle.model_bytes <= _MAPPED_ABOVE)


class Decoder:
    """A decoder with its cache: `run` takes the next tokens and gives the logits of each.

    Attributes:
        bundle: where it is from.
        adapter: whose weights are added, or None.
        length: tokens in the cache.
        capacity: tokens that the cache has room for.
        run_options: of the runtime, for the next runs.
    """

    run_options: ort.RunOptions | None = None

    def __init__(
        self,
        bundle: Bundle,
        options: SessionOptions = SessionOptions(),  # noqa: B008  (frozen)
        *,
        generates: bool = False,
        adapter: Path | None = None,
    ) -> None:
        """Load the model.

        Args:
            bundle: where it is.
            options: of the session.
            generates: many tokens will come, one after the other: worth to prepare the memory for.
            adapter: an .onnx_adapter file, whose weights are added.

        Raises:
            InputError, UnsupportedError, ResourceError: as `create_session`; also for a model that is not a decoder
                with a cache of one key and one value for each layer, or an adapter of another one.
        """
        self.bundle, self.adapter = bundle, adapter
        self.session = create_session(bundle.model, options)
        if generates and bundle.model_bytes > _HUGE_PAGES_ABOVE:
            use_huge_pages()
        inputs = {i.name: i for i in self.session.get_inputs()}
        outputs = [o.name for o in self.session.get_outputs()]
        names = bundle.config["model"]["decoder"]
        self._past = _expanded(names, "inputs", "past", bundle.layers)
        self._present = _expanded(names, "outputs", "present", bundle.layers)
        missing = [n for n in ("input_ids", *self._past) if n not in inputs]
        missing += [n for n in ("logits", *self._present) if n not in outputs]
        if missing:
            raise UnsupportedError(f"{bundle.model}: not a decoder with a cache: it has no {missing[0]!r}.")
        other = [n for n in inputs if n not in _FED and n not in self._past]
        if other:
            raise UnsupportedError(f"{bundle.model}: its input {other[0]!r} is not one of a text decoder.")
        self._positions = "position_ids" in inputs
        self._mask = "attention_mask" in inputs
        self._shapes = [inputs[n].shape for n in self._past]
        self._dtype = _DTYPES.get(inputs[self._past[0]].type)
        if self._dtype is None:
            raise UnsupportedError(f"{bundle.model}: a cache of {inputs[self._past[0]].type} is not supported.")
        self._shared = bundle.shared_cache and _writes_in_place(bundle)
        self._cache: list[ort.OrtValue] = []
        self._binding = self.session.io_binding()
        if adapter is not None:
            known = {i.name: i.shape for i in self.session.get_overridable_initializers()}
            self._weights = read_adapter(adapter, known)  # holds the memory that is bound
            for name, weight in self._weights.items():
                self._binding.bind_ortvalue_input(name, weight)
        self.length = self.capacity = self.batch = 0

    def start(self, capacity: int, batch: int = 1) -> None:
        """Empty the cache, and make room for `capacity` tokens in each of `batch` sequences.

        Raises:
            InputError: more than the model's context.
        """
        if capacity > self.bundle.context:
            raise InputError(
                f"{self.bundle.folder}: {capacity} tokens are more than its context of {self.bundle.context}."
            )
        if not self._shared or capacity > self.capacity or batch != self.batch:
            rows = capacity if self._shared else 0
            self._cache = [
                ort.OrtValue.ortvalue_from_numpy(np.zeros(self._row(s, batch, rows), self._dtype)) for s in self._shapes
            ]
            self.capacity, self.batch = capacity, batch
            self._bind_cache()
        self.length = 0

    def run(self, tokens: np.ndarray) -> np.ndarray:
        """Take the next tokens.

        Args:
            tokens: int64 [tokens], or [batch, tokens].

        Returns:
            float32 logits, [tokens, vocabulary] or [batch, tokens, vocabulary].

        Raises:
            InputError: the cache has no room, or the model fails.
        """
        ids = np.ascontiguousarray(np.atleast_2d(tokens), np.int64)
        new = ids.shape[1]
        total = self.length + new
        if total > self.capacity:
            raise InputError(
                f"{self.bundle.folder}: {total} tokens are more than the {self.capacity} there is room for."
            )
        try:
            if self.length == 0:
                with (
                    guarded("running the decoder", self.bundle.model_bytes, 4 * new * self.bundle.vocabulary),
                    native_silence(),
                ):
                    logits = self._run(ids, total)
            else:
                logits = self._run(ids, total)
        except Exception as error:
            failure = classify(error)
            raise type(failure)(f"{self.bundle.model}: {failure}") from error
        self.length = total
        return logits[0] if np.ndim(tokens) == 1 else logits

    def _run(self, ids: np.ndarray, total: int) -> np.ndarray:
        binding = self._binding
        batch, new = ids.shape
        binding.bind_cpu_input("input_ids", ids)
        if self._mask:
            binding.bind_cpu_input("attention_mask", np.ones((batch, total), np.int64))
        if self._positions:
            positions = np.broadcast_to(np.arange(self.length, total, dtype=np.int64), (batch, new))
            binding.bind_cpu_input("position_ids", np.ascontiguousarray(positions))
        binding.bind_output("logits", "cpu")  # in the place of the last one, whose memory is the caller's
        self.session.run_with_iobinding(binding, self.run_options)
        if self._shared:
            logits = binding.get_outputs()[0]
        else:
            logits, *self._cache = binding.get_outputs()
            self._bind_cache()
        return np.asarray(logits.numpy(), np.float32)

    def _bind_cache(self) -> None:
        """Where keys and values come from and go to; buffers that are written in place stay bound for all steps."""
        binding = self._binding
        for name, value in zip(self._past, self._cache, strict=True):
            binding.bind_ortvalue_input(name, value)
        binding.clear_binding_outputs()
        binding.bind_output("logits", "cpu")
        for name, value in zip(self._present, self._cache, strict=True):
            if self._shared:
                binding.bind_ortvalue_output(name, value)
            else:
                binding.bind_output(name, "cpu")

    def _row(self, shape: list[int | str], batch: int, rows: int) -> tuple[int, ...]:
        """The cache's shape: [batch, key-value heads, rows, head size], as the file has it where it says."""
        heads = shape[1] if isinstance(shape[1], int) else self.bundle.kv_heads
        size = shape[3] if isinstance(shape[3], int) else self.bundle.head_size
        return (batch, heads, rows, size)


def greedy(decoder: Decoder, prompts: np.ndarray, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Continue prompts of one length, int64 [prompts, length], with the most probable tokens.

    Returns:
        Logits of the steps, float32 [prompts, tokens, vocabulary], and the tokens, int64 [prompts, tokens].
    """
    count, length = prompts.shape
    decoder.start(length + tokens, count)
    steps = [decoder.run(prompts)[:, -1]]
    for _ in range(tokens - 1):
        steps.append(decoder.run(steps[-1].argmax(-1)[:, None])[:, -1])
    stacked = np.stack(steps, axis=1)
    return stacked, stacked.argmax(-1)


def cache_bytes_per_token(bundle: Bundle) -> int:
    """Bytes of keys and values that one token adds to the cache, of all layers together."""
    element = 2 if _cache_is_half(bundle) else 4
    return 2 * bundle.layers * bundle.kv_heads * bundle.head_size * element


def _cache_is_half(bundle: Bundle) -> bool:
    half = 10  # onnx.TensorProto.FLOAT16
    inputs = read_proto(bundle.model).graph.input
    return any(i.name.startswith("past") and i.type.tensor_type.elem_type == half for i in inputs)


def _expanded(decoder: dict[str, dict[str, str]], side: str, prefix: str, layers: int) -> list[str]:
    """The names of the cache's tensors: key of layer 0, value of layer 0, key of layer 1, ..."""
    names = decoder.get(side) or {}
    patterns = [names.get(f"{prefix}_{part}_names", "") for part in ("key", "value")]
    if any(len(re.findall(r"%d", p)) != 1 or p.count("%") != 1 for p in patterns):
        raise UnsupportedError(f"genai_config.json: its {side} name no keys and values for each layer.")
    return [p.replace("%d", str(layer)) for layer in range(layers) for p in patterns]


def _writes_in_place(bundle: Bundle) -> bool:
    """True when every key and value comes from an operator that writes into the buffer of the old ones."""
    operators = [str(n.op_type) for n in read_proto(bundle.model).graph.node]
    return operators.count("GroupQueryAttention") >= bundle.layers
