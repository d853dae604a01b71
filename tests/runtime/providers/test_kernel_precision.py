"""What the names of OpenVINO's kernels tell."""

from __future__ import annotations

import pytest

from onnxtool.runtime.timing.node_costs import precision_of_events


@pytest.mark.parametrize(
    ("types", "precision"),
    [
        (("jit_uni_f32", "brgconv_avx512_amx_bf16", "jit_avx512_f16"), "bfloat16"),
        (("jit_uni_f32", "ref_f16"), "float16"),
        (("ref_any_f32",), "float32"),
        (("jit_i8", "unknown_bf160"), ""),
        ((), ""),
    ],
)
def test_the_smallest_format_counts(types: tuple[str, ...], precision: str) -> None:
    events = [{"cat": "Kernel", "args": {"ov_exec_type": t}} for t in types]
    assert precision_of_events([*events, {"cat": "Node", "args": {"ov_exec_type": "jit_bf16"}}]) == precision
