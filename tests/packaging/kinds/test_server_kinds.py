"""Triton, KServe, MLflow and Azure: what they read is in their form; the libraries read it where they are installed."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxtool.cli.views import serving
from onnxtool.cli.views.view import Verdict
from onnxtool.errors import InputError, UnsupportedError, UsageError
from onnxtool.model.spec import TensorSpec
from onnxtool.packaging.kinds.mlflow import _columns
from onnxtool.packaging.package import package
from onnxtool.packaging.registry import open_package
from onnxtool.packaging.server_process import ScoringRunner, ServerProcess, clean_environment, free_port
from onnxtool.runtime.session.extensions import extensions_library
from onnxtool.runtime.session.session import SessionOptions

yaml = pytest.importorskip("yaml")


def upper_case(path: Path) -> Path:
    """text string[n] -> y string[n], by an operator of onnxruntime-extensions."""
    graph = helper.make_graph(
        [helper.make_node("StringUpper", ["text"], ["y"], domain="ai.onnx.contrib")],
        "upper",
        [helper.make_tensor_value_info("text", TensorProto.STRING, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, ["n"])],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.contrib", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), path)
    return path


@pytest.mark.skipif(find_spec("onnxruntime_extensions") is None, reason="needs onnxruntime-extensions")
@pytest.mark.parametrize("kind", ["fastapi", "azureml"])
def test_operators_of_the_extensions_go_with_the_model(tmp_path: Path, kind: str) -> None:
    model = upper_case(tmp_path / "upper.onnx")
    options = SessionOptions(custom_op_libraries=(extensions_library("a test"),))
    report = package(model, tmp_path / "out", kinds=[kind], options=options)
    assert report.ok and report.packages[0].proof.started.complete
    written = [p.read_text(encoding="utf-8") for p in (tmp_path / "out").iterdir() if p.suffix in (".txt", ".yaml")]
    assert any("onnxruntime-extensions==" in text for text in written)


@pytest.mark.skipif(find_spec("onnxruntime_extensions") is None, reason="needs onnxruntime-extensions")
def test_operators_of_the_extensions_that_cannot_go_with_the_model(tmp_path: Path) -> None:
    model = upper_case(tmp_path / "upper.onnx")
    with pytest.raises(UnsupportedError, match="--custom-op-library onnxruntime-extensions"):
        package(model, tmp_path / "out", kinds=["fastapi"])
    options = SessionOptions(custom_op_libraries=(extensions_library("a test"),))
    with pytest.raises(UnsupportedError, match=r"--for triton cannot carry .*; fastapi, kserve, azureml can"):
        package(model, tmp_path / "out", kinds=["fastapi", "triton"], options=options)
    with pytest.raises(UsageError, match="no other library"):
        package(model, tmp_path / "out", kinds=["fastapi"], options=SessionOptions(custom_op_libraries=(model,)))
    assert not (tmp_path / "out").exists()


def test_the_application_of_a_usual_model_needs_no_extensions(tiny: Path, tmp_path: Path) -> None:
    package(tiny, tmp_path / "out", kinds=["azureml"])
    for file in (p for p in (tmp_path / "out").rglob("*") if p.suffix in (".py", ".yaml")):
        assert "extensions" not in file.read_text(encoding="utf-8").replace("inference.extensions", "")


@pytest.mark.parametrize("kind", ["triton", "mlflow", "azureml"])
def test_every_element_type_comes_through(mixed: Path, tmp_path: Path, kind: str) -> None:
    report = package(mixed, tmp_path / "out", kinds=[kind])
    assert report.ok
    assert {o.name for o in report.packages[0].proof.outputs} == {"ids/0:out", "flag:out", "half.x:out", "text:out"}


def test_what_was_not_started_is_said(tiny: Path, tmp_path: Path) -> None:
    report = package(tiny, tmp_path / "out", kinds=["triton"])
    assert not report.packages[0].proof.started.complete
    assert "not tested; " in report.warnings[0] and "there is no tritonserver here" in report.warnings[0]
    assert "python smoke_test.py http://127.0.0.1:8000" in report.warnings[0]
    (verdict,) = (part for part in serving.package(report) if isinstance(part, Verdict))
    assert verdict.text == "triton: not tested"


def test_tritons_configuration_names_types_and_dims(tiny: Path, mixed: Path, tmp_path: Path) -> None:
    package(tiny, tmp_path / "a", kinds=["triton"], name="small")
    text = (tmp_path / "a" / "models" / "small" / "config.pbtxt").read_text()
    assert 'name: "small"' in text and 'backend: "onnxruntime"' in text
    assert '{ name: "x" data_type: TYPE_FP32 dims: [-1, 3] }' in text
    package(mixed, tmp_path / "b", kinds=["triton"])
    text = (tmp_path / "b" / "models" / "mixed_types" / "config.pbtxt").read_text()
    for name in ("TYPE_INT64", "TYPE_BOOL", "TYPE_FP16", "TYPE_STRING"):
        assert name in text


def test_triton_joins_no_requests(tiny: Path, tmp_path: Path) -> None:
    """Nothing shows that one row of a batch does not change the answer to another."""
    package(tiny, tmp_path / "out", kinds=["triton"], name="small")
    text = (tmp_path / "out" / "models" / "small" / "config.pbtxt").read_text()
    assert "max_batch_size: 0 " in text and "dynamic_batching" not in text
    assert "Requests are not joined" in (tmp_path / "out" / "README.md").read_text()


def test_triton_itself_reads_its_configuration(tiny: Path, mixed: Path, tmp_path: Path) -> None:
    service = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    from google.protobuf import text_format

    for model, name in ((tiny, "tiny"), (mixed, "mixed_types")):
        package(model, tmp_path / name, kinds=["triton"])
        text = (tmp_path / name / "models" / name / "config.pbtxt").read_text()
        assert text_format.Parse(text, service.ModelConfig()).name == name


def test_kserve_starts_the_container_of_the_package(tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    assert package(tiny, tmp_path / "out", kinds=["kserve"]).packages[0].proof.started.complete
    service = yaml.safe_load((tmp_path / "out" / "inference-service.yaml").read_text())
    assert (service["apiVersion"], service["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    (container,) = service["spec"]["predictor"]["containers"]
    pod = service["spec"]["predictor"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["terminationGracePeriodSeconds"] > 30
    assert container["securityContext"]["readOnlyRootFilesystem"] and container["livenessProbe"]
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    assert container["image"] == "tiny:1" and container["ports"][0]["containerPort"] == 8000
    assert (tmp_path / "out" / "Dockerfile").is_file()


def test_mlflow_finds_its_onnx_flavour_and_pyfunc(tiny: Path, tmp_path: Path) -> None:
    package(tiny, tmp_path / "out", kinds=["mlflow"])
    document = yaml.safe_load((tmp_path / "out" / "MLmodel").read_text())
    pyfunc = document["flavors"]["python_function"]
    assert (tmp_path / "out" / pyfunc["code"] / f"{pyfunc['loader_module']}.py").is_file()
    for flavour in document["flavors"].values():
        assert (tmp_path / "out" / flavour["data"]).is_file()
    for file in document["flavors"]["python_function"]["env"].values():
        assert (tmp_path / "out" / file).is_file()
    (tensor,) = json.loads(document["signature"]["inputs"])
    assert tensor == {"name": "x", "type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 3]}}
    pinned = (tmp_path / "out" / "requirements.txt").read_text().split()
    assert yaml.safe_load((tmp_path / "out" / "conda.yaml").read_text())["dependencies"][-1] == {"pip": pinned}


def test_mlflow_takes_data_frames_where_columns_have_names() -> None:
    specs = [TensorSpec("x", np.dtype("float32"), ("n", 2), columns=("age", "size"))]
    assert [(c["name"], c["type"]) for c in _columns(specs)] == [("age", "double"), ("size", "double")]
    assert not _columns([replace(specs[0], columns=())]) and not _columns(specs * 2)
    table = [TensorSpec("age", np.dtype("int32"), ("n", 1)), TensorSpec("town", "string", ("n", 1))]
    assert [(c["name"], c["type"]) for c in _columns(table)] == [("age", "long"), ("town", "string")]


def test_mlflow_answers_a_data_frame_with_a_column_for_each_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")

    def loaded(scale: str, labels: str) -> Any:
        text = f"""<ir_version: 10, opset_import: ["" : 20]> m
        (double[n, 1] age, string[n, 1] town) => (string[n] name, double[n, 2] score) <int64[1] a = {{1}}> {{
            name = Squeeze(town, a) b = Constant<value = double {{{scale}}}>() c = Mul(age, b)
            score = Concat<axis = 1>(age, c) }}"""
        proto = onnx.parser.parse_model(text)
        onnx.helper.set_model_props(proto, {"onnxtool.columns": json.dumps({"score": list(labels)})})
        folder = tmp_path / scale
        onnx.save(proto, tmp_path / f"m{scale}.onnx")
        package(tmp_path / f"m{scale}.onnx", folder, kinds=["mlflow"])
        pyfunc = yaml.safe_load((folder / "MLmodel").read_text())["flavors"]["python_function"]
        monkeypatch.syspath_prepend(folder / pyfunc["code"])
        return importlib.import_module(pyfunc["loader_module"])._load_pyfunc(str(folder / pyfunc["data"]))

    # Both are loaded by one process, as in a notebook.
    for model, scale, labels in ((loaded("2", "ab"), 2, "ab"), (loaded("3", "cd"), 3, "cd")):
        frame = pandas.DataFrame({"town": ["Bonn", "Ulm"], "age": [30.0, 7.0]}, index=[5, 9])
        found = model.predict(frame)
        assert found.to_dict("list") == {
            "name": ["Bonn", "Ulm"],
            f"score[{labels[0]}]": [30.0, 7.0],
            f"score[{labels[1]}]": [30.0 * scale, 7.0 * scale],
        }
        assert list(found.index) == [5, 9]
        arrays = model.predict({"age": np.array([[30.0]]), "town": np.array([["Bonn"]], object)})
        assert arrays["score"].tolist() == [[30.0, 30.0 * scale]]
        for broken in (frame.drop(columns="age"), frame.assign(town=[None, "Ulm"]), frame.assign(other=1)):
            with pytest.raises(Exception, match=r"town|age|other"):
                model.predict(broken)


_PYFUNC = """
import sys, mlflow, numpy as np
model = mlflow.pyfunc.load_model(sys.argv[1])
print(model.predict({"x": np.float32([[1, 2, 3]])})["y"].tolist())
"""


@pytest.mark.skipif("MLFLOW_PYTHON" not in os.environ, reason="MLFLOW_PYTHON does not name a Python with mlflow")
def test_mlflow_itself_loads_the_model(tiny: Path, tmp_path: Path) -> None:
    """mlflow wants other versions than ours at times, so that it has an environment of its own."""
    package(tiny, tmp_path / "out", kinds=["mlflow"])
    for arguments, said in (
        ([str(tmp_path / "out" / "smoke_test.py")], "equal\n"),
        (["-c", _PYFUNC], "[[0.0, 8.5]]\n"),
    ):
        command = [os.environ["MLFLOW_PYTHON"], "-B", *arguments, str(tmp_path / "out")]
        done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
        assert done.returncode == 0 and done.stdout.endswith(said), done.stderr


@pytest.mark.parametrize("kind", ["kserve", "mlflow", "azureml", "ort", "triton"])
def test_the_bill_of_materials_lists_what_the_folder_installs(tiny: Path, tmp_path: Path, kind: str) -> None:
    package(tiny, tmp_path / "out", kinds=[kind])
    parts = json.loads((tmp_path / "out" / "sbom.cdx.json").read_text())["components"]
    file = tmp_path / "out" / "requirements.txt"
    wanted = set(file.read_text().split()) if file.exists() else set()
    if kind == "azureml":
        wanted.add("azureml-inference-server-http==1.5.1")
    assert {f"{part['name']}=={part['version']}" for part in parts} == wanted and (wanted or kind == "triton")
    assert all(part["purl"] == f"pkg:pypi/{part['name']}@{part['version']}" for part in parts)


def test_azures_script_answers_as_the_file(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert package(tiny, out, kinds=["azureml"]).packages[0].proof.started.complete
    deployment = yaml.safe_load((out / "deployment.yml").read_text())
    assert (
        out / deployment["code_configuration"]["code"] / deployment["code_configuration"]["scoring_script"]
    ).is_file()
    assert (out / deployment["environment"]["conda_file"]).is_file()
    assert (out / deployment["model"]["path"] / "model.onnx").is_file()
    assert yaml.safe_load((out / "endpoint.yml").read_text())["name"] == deployment["endpoint_name"]
    command = [sys.executable, "-B", str(out / "smoke_test.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
    assert done.returncode == 0 and done.stdout.count("equal") == 3, done.stderr


_WRONG_REQUESTS = """
import os, sys, types
sys.path.insert(0, "src")
os.environ["AZUREML_MODEL_DIR"] = "model"
module = types.ModuleType("aml_response")
module.AMLResponse = lambda message, status, json_str: (message, status)
for name in ("azureml_inference_server_http", "azureml_inference_server_http.api"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["azureml_inference_server_http.api.aml_response"] = module
import score
score.init()
inputs = ('{"z": [[1, 2, 3]]}', '{"x": [[1, 2]]}', '{"x": [1, 2, 3]}', '{"x": [["a", 2, 3]]}', '{"x": [[true, 2, 3]]}',
          '{"x": [[NaN, 2, 3]]}', '{"x": [[1e400, 2, 3]]}', '5',
          '{"x": [[1, 2, 3]], "x": [[4, 5, 6]]}')
for wrong in ("", "[]", "{}", *(f'{{"inputs": {given}}}' for given in inputs)):
    message, status = score.run(wrong)
    assert status == 400 and message["error"], wrong
    assert wrong != "{}" or 'has no "inputs"' in message["error"], message
print(score.run('{"inputs": {"x": [[1, 2, 3]]}}'))
"""


def test_azures_script_tells_what_is_wrong_with_a_request(tiny: Path, tmp_path: Path) -> None:
    package(tiny, tmp_path / "out", kinds=["azureml"])
    command = [sys.executable, "-I", "-B", "-c", _WRONG_REQUESTS]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path / "out", check=False)
    assert done.stdout == "{'outputs': {'y': [[0.0, 8.5]]}}\n", done.stderr
    pinned = json.loads((tmp_path / "out" / "conda.yaml").read_text())["dependencies"][-1]["pip"]
    assert all("==" in line for line in pinned)


_SCORING = """
import http.server, json, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200, {})
    def do_POST(self):
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["inputs"]["x"]
        key = os.environ["ANSWER_KEY"]
        self.answer(200 if given else 500, {key: {"y": [[2.5]], "t": ["a"]}} if given else {"error": "no rows"})
    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.mark.parametrize("key", ["outputs", "predictions"])
def test_servers_of_other_projects_are_asked_in_their_form(tmp_path: Path, key: str) -> None:
    port = free_port()
    command = [sys.executable, "-I", "-B", "-c", _SCORING, str(port)]
    server = ServerProcess(command, tmp_path, port, "/", {"ANSWER_KEY": key})
    outputs = [TensorSpec("y", np.dtype("float32"), ("n", 1)), TensorSpec("t", "string", ("n",))]
    runner = ScoringRunner(server, "/score", [TensorSpec("x", np.dtype("float32"), ("n",))], outputs)
    try:
        found = runner.run({"x": np.ones(1, np.float32)})
        assert found["y"].dtype == np.float32 and found["y"].tolist() == [[2.5]] and found["t"].tolist() == ["a"]
        with pytest.raises(InputError, match=r"answers 500.*no rows"):
            runner.run({"x": np.ones(0, np.float32)})
    finally:
        runner.close()


def test_mlflows_folder_installs_what_its_server_needs(tiny: Path, tmp_path: Path) -> None:
    package(tiny, tmp_path / "out", kinds=["mlflow"])
    names = {line.partition("==")[0] for line in (tmp_path / "out" / "requirements.txt").read_text().split()}
    assert {"mlflow-skinny", "fastapi", "uvicorn", "pandas"} <= names


def test_azure_itself_reads_its_files(tiny: Path, tmp_path: Path) -> None:
    azure = pytest.importorskip("azure.ai.ml")
    package(tiny, tmp_path / "out", kinds=["azureml"])
    assert azure.load_online_endpoint(tmp_path / "out" / "endpoint.yml").name == "tiny"
    assert azure.load_online_deployment(tmp_path / "out" / "deployment.yml").endpoint_name == "tiny"
    assert azure.load_model(tmp_path / "out" / "model.yml").type == "custom_model"


def test_a_script_that_fails_says_why(tiny: Path, tmp_path: Path) -> None:
    package(tiny, tmp_path / "out", kinds=["azureml"])
    (tmp_path / "out" / "src" / "score.py").write_text("raise RuntimeError('broken on purpose')")
    runner = open_package(tmp_path / "out", trust=True)
    with pytest.raises(InputError, match="broken on purpose"):
        runner.run({})
