"""Mutated models: whatever the bytes, a command ends with a known exit code and one line.

The same mutations in every run, so that a failure is the fault of a change; benchmarks/fuzz.py looks for new ones.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxtool.errors import OnnxToolError
from onnxtool.model import io
from tests.hostile.cases import Case, codes, file
from tests.hostile.corpus import try_case
from tests.hostile.graphs import sound

ANYTHING = codes(0, 1, 3, 4, 5, 6)
WHOLE = sound().SerializeToString()
Edit = tuple[int, int, bytes]
EDITS = st.lists(
    st.tuples(st.integers(0, len(WHOLE)), st.integers(0, 8), st.binary(max_size=8)), min_size=1, max_size=6
)


def mutate(edits: list[Edit]) -> bytes:
    """Each edit replaces some bytes at a place by others."""
    data = WHOLE
    for place, cut, put in edits:
        data = data[:place] + put + data[place + cut :]
    return data


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(EDITS)
def test_reading_bytes_gives_a_model_or_an_error_of_ours(edits: list[Edit]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(mutate(edits))
        try:
            io.to_proto(io.load(path))
        except OnnxToolError as error:
            assert str(path) in str(error)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(EDITS, st.sampled_from(["check", "inspect", "optimize", "run"]))
def test_commands_end_in_order_on_mutated_bytes(edits: list[Edit], command: str) -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert not try_case(Case("mutated", file("m.onnx", mutate(edits)), ANYTHING), Path(folder), [command])


FIELDS = st.sampled_from(["input", "output", "op_type", "domain", "attribute", "dims", "elem_type", "name", "opset"])


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(FIELDS, st.text(max_size=5), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=4))
def test_commands_end_in_order_on_mutated_fields(changes: list[tuple[str, str, int]]) -> None:
    model = sound()
    for field, text, number in changes:
        change_field(model, field, text, number)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        case = Case("fields", file("m.onnx", model.SerializeToString()), ANYTHING)
        assert not try_case(case, Path(folder), ["check", "optimize"])


def change_field(model: onnx.ModelProto, field: str, text: str, number: int) -> None:
    """Put a strange value into one field of the first node, initializer or input."""
    node, graph = model.graph.node[number % 2], model.graph
    if field in ("input", "output"):
        getattr(node, field)[0] = text
    elif field in ("op_type", "domain", "name"):
        setattr(node, field, text)
    elif field == "attribute":
        node.attribute.add(name=text or "alpha", type=onnx.AttributeProto.INT, i=number)
    elif field == "dims":
        graph.initializer[number % 2].dims[0] = number
    elif field == "elem_type":
        graph.input[0].type.tensor_type.elem_type = number % 64
    else:
        model.opset_import[0].version = number
