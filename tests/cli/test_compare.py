"""`onnxtool compare` from the outside."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxtool.report.compare import CompareReport
from onnxtool.report.schema import json_schema

Tool = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def changed(digits_onnx: Path, tmp_path: Path) -> Path:
    """The digits model with its last bias moved by 0.25 in one class."""
    model = onnx.load(digits_onnx)
    gemm = [n for n in model.graph.node if n.op_type == "Gemm"][-1]
    bias = next(t for t in model.graph.initializer if t.name == gemm.input[2])
    values = numpy_helper.to_array(bias).copy()
    values[3] += 0.25
    bias.CopyFrom(numpy_helper.from_array(values, bias.name))
    path = tmp_path / "changed.onnx"
    onnx.save(model, path)
    return path


def test_a_model_equals_itself(onnxtool: Tool, digits_onnx: Path) -> None:
    done = onnxtool("compare", digits_onnx, digits_onnx)
    assert done.returncode == 0, done.stderr
    assert "OK" in done.stdout
    assert "logits" in done.stdout


def test_shows_where_a_changed_model_differs(onnxtool: Tool, digits_onnx: Path, changed: Path) -> None:
    done = onnxtool("compare", digits_onnx, changed, "--json", "-")
    assert done.returncode == 1
    plain = json.loads(done.stdout)
    jsonschema.validate(plain, json_schema(CompareReport))
    assert plain["verdict"] == "different"
    (logits,) = plain["outputs"]
    assert logits["max_abs"] == pytest.approx(0.25, abs=1e-4)
    assert logits["worst_index"][1] == 3
    assert done.stderr == ""  # nobody reads along, unless -v says so
    told = onnxtool("compare", digits_onnx, changed, "--json", "-", "-v")
    assert json.loads(told.stdout)["outputs"]
    assert "FAILED" in told.stderr


def write(path: Path, interface: str, body: str) -> None:
    text = f'<ir_version: 10, opset_import: ["" : 20]> m {interface} {{ {body} }}'
    onnx.save(onnx.parser.parse_model(text), path)


def test_what_exact_arithmetic_doubts_is_not_called_equal(onnxtool: Tool, tmp_path: Path) -> None:
    """A bound that no input reaches: no run differs, and nothing is shown."""
    for name, bound in (("a", "1.5"), ("b", "2.5")):
        body = f"h = Constant <value_float = {bound}> () s = Sigmoid (x) y = Min (s, h)"
        write(tmp_path / f"{name}.onnx", "(float[n] x) => (float[n] y)", body)
    done = onnxtool("compare", tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert done.returncode == 0, done.stderr
    assert "not shown to be the same function; no difference found" in " ".join(done.stdout.split())


def test_a_difference_that_is_said_is_not_denied_in_the_verdict(onnxtool: Tool, tmp_path: Path) -> None:
    for name, step in (("a", "GreaterOrEqual (x, two)"), ("b", "Not (less)")):
        body = f"two = Constant <value_float = 2.0> () less = Less (x, two) y = {step}"
        write(tmp_path / f"{name}.onnx", "(float[n] x) => (bool[n] y)", body)
    said = " ".join(onnxtool("compare", tmp_path / "a.onnx", tmp_path / "b.onnx").stdout.split())
    assert "NaN; no difference on the other inputs tried" in said
    assert "no other difference found" in said


@pytest.mark.usefixtures("normal_effort")
def test_a_certified_pair_that_differs_at_zero_is_not_called_equal_there(onnxtool: Tool, tmp_path: Path) -> None:
    """The same function of real numbers, of which one gives infinity below zero and one above."""
    for name, step in (("a", "Neg (x)"), ("b", "Sub (zero, x)")):
        body = f"zero = Constant <value_float = 0.0> () turned = {step} y = Reciprocal (turned)"
        write(tmp_path / f"{name}.onnx", "(float[n] x) => (float[n] y)", body)
    done = onnxtool("compare", tmp_path / "a.onnx", tmp_path / "b.onnx")
    said = " ".join(done.stdout.split())
    assert "certified" in said
    assert "equal but for what a warning names; no other difference found" in said


def test_what_exact_arithmetic_does_not_decide_is_not_called_equal(onnxtool: Tool, tmp_path: Path) -> None:
    """How many elements there are hangs on the data."""
    for name, body in (("a", "y = NonZero (x)"), ("b", "z = Identity (x) y = NonZero (z)")):
        write(tmp_path / f"{name}.onnx", "(float[n] x) => (int64[1, k] y)", body)
    said = " ".join(onnxtool("compare", tmp_path / "a.onnx", tmp_path / "b.onnx").stdout.split())
    assert "OK not decided by exact arithmetic; no difference found within" in said


def test_a_function_that_rounds_more_coarsely_is_not_called_equal(onnxtool: Tool, tmp_path: Path) -> None:
    bodies = {
        "a": "m = ReduceMean (x, axis) d = Sub (x, m) s = Mul (d, d) y = ReduceMean (s, axis)",
        "b": "m = ReduceMean (x, axis) s = Mul (x, x) q = ReduceMean (s, axis) p = Mul (m, m) y = Sub (q, p)",
    }
    for name, body in bodies.items():
        axis = "axis = Constant <value = int64[1] {1}> ()"
        write(tmp_path / f"{name}.onnx", "(float[n, 8] x) => (float[n, 1] y)", f"{axis} {body}")
    done = onnxtool("compare", tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert done.returncode == 0, done.stderr
    assert "the same function but for rounding, NaN or infinity; no other difference" in " ".join(done.stdout.split())


def test_uses_given_data(onnxtool: Tool, digits_onnx: Path, fixtures: Path) -> None:
    done = onnxtool("compare", digits_onnx, digits_onnx, "--data", fixtures / "calib.npz")
    assert done.returncode == 0, done.stderr
    assert "calib.npz" in done.stdout


def test_a_wider_tolerance_accepts_the_change(onnxtool: Tool, digits_onnx: Path, changed: Path) -> None:
    assert onnxtool("compare", digits_onnx, changed, "--tolerance", "logits:0,0.3").returncode == 0


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"picture": np.zeros((2, 1, 8, 8), np.float32), "label": np.zeros(2)}, "image"),
        ({"image": np.zeros((2, 1, 9, 8), np.float32)}, "image"),
        ({"image": np.zeros((2, 8), np.float32)}, "image"),
        ({"image": np.array(["a"], dtype=object)}, "object"),
    ],
)
def test_wrong_data_is_one_line_naming_what_is_expected(
    onnxtool: Tool, digits_onnx: Path, tmp_path: Path, arrays: dict[str, np.ndarray], expected: str
) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    done = onnxtool("compare", digits_onnx, digits_onnx, "--data", tmp_path / "bad.npz")
    assert done.returncode in (3, 5)
    assert len(done.stderr.splitlines()) == 1
    assert expected in done.stderr


def test_a_quantized_model_is_told_and_judged_by_its_budget(
    onnxtool: Tool, digits_onnx: Path, fixtures: Path, tmp_path: Path
) -> None:
    small = tmp_path / "int8.onnx"
    data = fixtures / "calib.npz"
    assert onnxtool("quantize", digits_onnx, "-o", small, "--mode", "static", "--data", data).returncode == 0
    plain = onnxtool("compare", digits_onnx, small, "--data", data)
    assert plain.returncode == 1
    assert "is quantized" in plain.stdout and "--quantized" in plain.stdout
    kept = onnxtool("compare", digits_onnx, small, "--data", data, "--quantized")
    assert kept.returncode == 0, kept.stdout
    assert "within the accuracy budget of quantize" in kept.stdout
    assert "equal within" not in kept.stdout


def test_a_model_that_lost_its_accuracy_is_beyond_the_budget(
    onnxtool: Tool, digits_onnx: Path, fixtures: Path, changed: Path
) -> None:
    model = onnx.load(changed)
    weight = max(model.graph.initializer, key=lambda t: len(t.raw_data))
    values = onnx.numpy_helper.to_array(weight)
    weight.CopyFrom(onnx.numpy_helper.from_array(values[::-1].copy(), weight.name))
    onnx.save(model, changed)
    done = onnxtool("compare", digits_onnx, changed, "--data", fixtures / "calib.npz", "--quantized")
    assert done.returncode == 1
    assert "beyond the accuracy budget of quantize" in done.stdout
