"""What the runtime says, made readable."""

from __future__ import annotations

import pytest

from onnxtool.runtime.session import first_line

CASES = {
    "[ONNXRuntimeError] : 1 : FAIL : Load model from a failed:/onnxruntime_src/onnxruntime/core/graph/load.h:46 void "
    "onnxruntime::Validate(const std::unordered_map<std::basic_string<char>, int>&, bool, const std::string&, int) "
    "Opset 9999 is unknown": "Load model from a failed:Opset 9999 is unknown",
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code. Name:'r' Status Message: "
    "/onnxruntime_src/onnxruntime/core/reshape_helper.h:45 onnxruntime::ReshapeHelper::ReshapeHelper(const "
    "onnxruntime::TensorShape&, onnxruntime::TensorShapeVector&, bool) sizes differ": (
        "Non-zero status code. Name:'r' Status Message: sizes differ"
    ),
    "plain\n  words": "plain words",
    "": "ValueError",
}


@pytest.mark.parametrize("text", CASES)
def test_leaves_out_source_positions_and_codes(text: str) -> None:
    assert first_line(ValueError(text)) == CASES[text]
