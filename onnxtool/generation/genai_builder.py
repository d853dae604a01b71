"""Runs onnxruntime-genai's graph builder, its command line unchanged, with what it does not read mended.

    python -m onnxtool.generation.genai_builder .../onnxruntime_genai/models/builder.py -i FOLDER -o OUT ...

As of onnxruntime-genai 0.18.0 it ends in a KeyError on Gemma 3 as transformers 5 describes it: rotations by kind of
attention. This module goes when a version reads `rope_parameters` of such a configuration.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from typing import Any

_GLOBAL, _LOCAL = "full_attention", "sliding_attention"


def with_flat_rotations(load: Callable[..., Any]) -> Callable[..., Any]:
    """A loader of configurations whose rotations by kind of attention also stand as transformers 4 had them."""

    def loaded(*arguments: Any, **settings: Any) -> Any:
        config = load(*arguments, **settings)
        kinds = getattr(config, "rope_parameters", None)
        if str(getattr(config, "model_type", "")).startswith("gemma3") and isinstance(kinds, dict) and _LOCAL in kinds:
            config.rope_local_base_freq = kinds[_LOCAL]["rope_theta"]
            config.rope_theta = kinds[_GLOBAL]["rope_theta"]
            config.rope_parameters = dict(kinds[_GLOBAL])
        return config

    return loaded


if __name__ == "__main__":
    import transformers

    transformers.AutoConfig.from_pretrained = with_flat_rotations(transformers.AutoConfig.from_pretrained)
    sys.argv = sys.argv[1:]
    sys.path.insert(0, os.path.dirname(sys.argv[0]))  # the builder looks for its own parts beside itself
    runpy.run_path(sys.argv[0], run_name="__main__")
