"""The precision that a provider's own kernels have, where its profile tells."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.errors import OnnxToolError
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.timing.node_costs import profiled_events

# OpenVINO names its kernels "brgconv_avx512_amx_bf16", "jit_avx512_f16", "jit_uni_f32".
_TYPE = re.compile(r"_(bf16|f16|f32)$")
_NAMES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}


def kernel_precision(model: Path, feeds: Mapping[str, np.ndarray], options: SessionOptions) -> str:
    """The smallest float format that the kernels of one profiled run have; "" where they do not tell."""
    with tempfile.TemporaryDirectory(prefix="onnxtool-") as scratch:
        try:
            runner = OnnxRunner.open(model, replace(options, profile_prefix=str(Path(scratch) / "profile")))
            runner.run(feeds)
            events = profiled_events(runner.session)
        except (OnnxToolError, ValueError, OSError):
            return ""
    return precision_of_events(events)


def precision_of_events(events: Iterable[Mapping[str, Any]]) -> str:
    """The same of a profile's events: bfloat16 before float16 before float32, as they keep fewer digits."""
    found = set()
    for event in events:
        match = (
            _TYPE.search(str(event.get("args", {}).get("ov_exec_type", ""))) if event.get("cat") == "Kernel" else None
        )
        if match is not None:
            found.add(match[1])
    return next((_NAMES[t] for t in ("bf16", "f16", "f32") if t in found), "")
