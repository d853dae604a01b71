"""ORT format with its operators and snippets, and the C++ package."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from onnxtool.errors import UnsupportedError
from onnxtool.packaging.kind import TEMPLATES
from onnxtool.packaging.kinds.cpp import compiler_and_headers
from onnxtool.packaging.kinds.ort import required_operators
from onnxtool.packaging.package import package
from onnxtool.runtime.runner import OnnxRunner

COMPILER, HEADERS = compiler_and_headers()
needs_compiler = pytest.mark.skipif(
    COMPILER is None or HEADERS is None, reason="no C++ compiler, or ONNXRUNTIME_INCLUDE does not name the headers"
)
LANGUAGES = ("Android.kt", "iOS.swift", "Model.cs", "Model.java", "model.js", "model.cpp")


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every element type that C++ has, a scalar, and a name with a quote."""
    types = {
        'ids"0': (TensorProto.INT64, ["n", 2]),
        "flag": (TensorProto.BOOL, ["n"]),
        "half": (TensorProto.FLOAT16, ["n", 3]),
        "größe": (TensorProto.INT32, [1]),
        "byte": (TensorProto.UINT8, [2, 2]),
        "wide": (TensorProto.DOUBLE, []),
    }
    graph = helper.make_graph(
        [helper.make_node("Identity", [n], [f"{n}:out"]) for n in types],
        "numbers",
        [helper.make_tensor_value_info(n, t, d) for n, (t, d) in types.items()],
        [helper.make_tensor_value_info(f"{n}:out", t, d) for n, (t, d) in types.items()],
    )
    path = tmp_path_factory.mktemp("numbers") / "numbers.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def test_ort_format_gives_the_files_answers(digits_onnx: Path, tmp_path: Path) -> None:
    report = package(digits_onnx, tmp_path / "out", kinds=["ort"])
    assert report.ok and report.packages[0].proof.started.complete
    case = np.load(tmp_path / "out" / "golden" / "case0.npz")
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.ort"), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"image": case["input/image"]})
    assert np.allclose(got, case["output/logits"], 1e-4, 1e-4)
    command = [sys.executable, "-B", str(tmp_path / "out" / "smoke_test.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count("equal") == 3, done.stderr


def test_recorded_infinities_allow_no_other_numbers() -> None:
    differs = runpy.run_path(str(TEMPLATES / "every" / "recorded.py"))["differs"]
    recorded = np.float32([1, np.inf, np.nan])
    assert not differs(recorded, recorded) and not differs(recorded, np.float32([1.000001, np.inf, np.nan]))
    assert all(differs(recorded, np.float32(got)) for got in ([2, np.inf, np.nan], [1, 2, np.nan], [1, np.inf, 2]))


def test_onnx_runtimes_build_reads_the_operators(digits_onnx: Path, tmp_path: Path) -> None:
    parser = pytest.importorskip("onnxruntime.tools.reduced_build_config_parser")
    package(digits_onnx, tmp_path / "out", kinds=["ort"])
    needed, types = parser.parse_config(str(tmp_path / "out" / "required_operators_and_types.config"), True)
    assert "Conv" in needed["ai.onnx"][20] and "MaxPool" in needed["ai.onnx"][20]
    if parser.have_flatbuffers:
        assert types._globally_allowed_types == {"float", "int64_t", "int32_t", "bool"}


def test_operators_inside_branches_are_needed_too() -> None:
    inner = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.DOUBLE)],
        "inner",
        [],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [1])],
    )
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)],
        "g",
        [
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT16, [1]),
        ],
        [helper.make_tensor_value_info("z", TensorProto.DOUBLE, [1])],
    )
    text = required_operators(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    assert "ai.onnx;18;Cast,If\n" in text
    assert "!globally_allowed_types;MLFloat16,bool,double,int32_t,int64_t\n" in text


def test_snippets_name_the_models_own_tensors(numbers: Path, tmp_path: Path) -> None:
    package(numbers, tmp_path / "out", kinds=["ort"])
    for name in LANGUAGES:
        text = (tmp_path / "out" / "snippets" / name).read_text()
        assert json.dumps('ids"0') in text and '"wide:out"' in text, name
    assert '"größe": try ORTValue' in (tmp_path / "out" / "snippets" / "iOS.swift").read_text(encoding="utf-8")
    assert "input0: LongBuffer" in (tmp_path / "out" / "snippets" / "Android.kt").read_text()
    assert "byte[] input4" in (tmp_path / "out" / "snippets" / "Model.cs").read_text()
    if shutil.which("node"):
        code = (tmp_path / "out" / "snippets" / "model.js").read_bytes()
        command = ["node", "--input-type=module", "--check"]
        assert subprocess.run(command, input=code, capture_output=True, check=False).returncode == 0


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Texts, and numbers beside them."""
    text = """<ir_version: 10, opset_import: ["" : 20]>
    m (string[n] title, float[n] size) => (string[n] title_out, float[n] size_out) {
        title_out = Identity(title) size_out = Neg(size) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "texts.onnx")
    return tmp_path / "texts.onnx"


def test_snippets_take_texts(texts: Path, tmp_path: Path) -> None:
    package(texts, tmp_path / "out", kinds=["ort"])
    for name in LANGUAGES:
        lines = (tmp_path / "out" / "snippets" / name).read_text().splitlines()
        code = "\n".join(line for line in lines if not line.startswith("//"))
        assert '"title"' in code and code.count("input0") >= 2 and code.count("input1") >= 2, name
        assert name == "model.js" or re.search(r"(?i)string[\]>&[]*", code), name


@needs_compiler
@pytest.mark.parametrize("model", ["numbers", "texts"])
def test_the_snippet_compiles(model: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    package(request.getfixturevalue(model), tmp_path / "out", kinds=["ort"])
    command = [str(COMPILER), "-std=c++17", "-Wall", "-fsyntax-only", f"-I{HEADERS}"]
    code = tmp_path / "out" / "snippets" / "model.cpp"
    done = subprocess.run([*command, str(code)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_compiler
@pytest.mark.parametrize("model", ["tiny", "numbers"])
def test_the_program_gives_the_files_answers(model: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    report = package(request.getfixturevalue(model), tmp_path / "out", kinds=["cpp"])
    assert report.ok and report.packages[0].proof.started.complete
    assert "compiled" in report.packages[0].proof.started.how


@needs_compiler
def test_the_smoke_test_knows_good_from_bad(tiny: Path, tmp_path: Path) -> None:
    from onnxtool.packaging.kinds.cpp import CompiledRunner

    package(tiny, tmp_path / "out", kinds=["cpp"])
    runner = OnnxRunner.open(tiny)
    program = CompiledRunner(str(COMPILER), HEADERS or Path(), tmp_path / "out", runner.inputs, runner.outputs)
    try:
        command = [str(program._program), str(tmp_path / "out" / "model.onnx")]
        case = tmp_path / "out" / "golden" / "case0"
        assert subprocess.run([*command, str(case)], check=False, capture_output=True).returncode == 0
        for wrong in (1, np.inf):
            np.fromfile(case / "output0.bin", np.float32).__add__(wrong).tofile(case / "output0.bin")
            assert subprocess.run([*command, str(case)], check=False, capture_output=True).returncode == 1
        assert subprocess.run([*command, str(tmp_path)], check=False, capture_output=True).returncode == 3
    finally:
        program.close()


def test_without_headers_the_report_says_so(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxtool.packaging.kinds.cpp.compiler_and_headers", lambda: ("c++", None))
    report = package(tiny, tmp_path / "out", kinds=["cpp"])
    assert not report.packages[0].proof.started.complete and "ONNXRUNTIME_INCLUDE" in report.warnings[0]
    header = (tmp_path / "out" / "model.hpp").read_text()
    assert "Tensor<float> input0;  // x: float32[batch, 3]" in header and "@" not in header
    assert "@" not in (tmp_path / "out" / "main.cpp").read_text()
    assert (tmp_path / "out" / "golden" / "case0" / "output0.dims").read_text() == "2 2\n"


def test_texts_are_refused_in_cpp(mixed: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="'text' is string"):
        package(mixed, tmp_path / "out", kinds=["cpp"])
