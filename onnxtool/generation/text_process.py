"""A bundle as a model whose run is a text; `main` is what its process runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from onnxtool.errors import ResourceError
from onnxtool.generation.bundle import Bundle
from onnxtool.generation.decoder import Decoder, cache_bytes_per_token
from onnxtool.generation.generate import TextStream, continue_tokens
from onnxtool.generation.sampling import Sampler, Sampling
from onnxtool.generation.tokenizer import BundleTokenizer
from onnxtool.model.spec import TensorSpec
from onnxtool.options.session import SessionOptions
from onnxtool.runtime.session.session import bytes_beside
from onnxtool.runtime.worker.child import RunCall, serve_runs
from onnxtool.runtime.worker.isolation import native_limits

MODULE = "onnxtool.generation.text_process"
_INPUTS = (TensorSpec("ids", np.dtype(np.int64), (None,)), TensorSpec("task", "string", (1,)))


@dataclass(frozen=True)
class TextTask:
    """What is to follow a prompt.

    Attributes:
        max_tokens: the most new tokens; 0 for no text.
        sampling: how tokens are chosen.
        stop: texts at which it ends.
        shown: its parts are shown as they come.
    """

    max_tokens: int
    sampling: Sampling
    stop: Sequence[str] = ()
    shown: bool = False

    def feeds(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """The inputs of the run that does it after a prompt of these tokens, int64 [tokens]."""
        return {"ids": ids, "task": np.array([json.dumps(asdict(self))], object)}


def open_texts(
    folder: str | Path, options: SessionOptions
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...], RunCall]:
    """A bundle's inputs, its outputs, and what runs it: one text at a time.

    Its run gives {"text": str, "tokens": their number, "ended": why, as of `continue_tokens`}.

    Raises:
        OnnxToolError: as of `Bundle.open`, `BundleTokenizer` and `Decoder`.
    """
    bundle = Bundle.open(folder)
    tokenizer, decoder = BundleTokenizer(bundle.folder), Decoder(bundle, options, generates=True)

    def run(feeds: Mapping[str, np.ndarray], how: ort.RunOptions, show: Callable[[str], None]) -> dict[str, Any]:
        asked = json.loads(feeds["task"][0])
        if not asked["max_tokens"]:
            return {"text": "", "tokens": 0, "ended": "max tokens"}
        decoder.run_options = how
        stream = TextStream(tokenizer, asked["stop"], show if asked["shown"] else lambda _: None)

        def ends(token: int) -> bool:
            if how.terminate:
                raise ResourceError("the text was ended.")
            return stream.add(token) is not None

        sampler = Sampler(Sampling(**asked["sampling"]))
        tokens, ended, _ = continue_tokens(decoder, feeds["ids"], asked["max_tokens"], sampler, ends)
        return {"text": stream.finish(), "tokens": len(tokens), "ended": ended}

    return _INPUTS, (), run


def text_bytes(bundle: Bundle) -> int:
    """Bytes of memory that a run of a bundle may take: for the keys, the values and the logits of its whole context."""
    per_token = cache_bytes_per_token(bundle) + 4 * bundle.vocabulary
    return native_limits(bytes_beside(Path(bundle.folder)))[1] + bundle.context * per_token


def main() -> None:
    """Hold a bundle."""
    serve_runs(open_texts)


if __name__ == "__main__":
    main()
