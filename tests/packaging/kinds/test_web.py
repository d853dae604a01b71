"""`--for web`: a real browser gives the native answers; what it lacks is found before."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxtool.errors import InputError, UnsupportedError, UsageError
from onnxtool.options.package import WebBackend, WebOptions
from onnxtool.packaging.browser_runner import find_browser
from onnxtool.packaging.kinds import web
from onnxtool.packaging.package import package
from onnxtool.packaging.registry import open_package
from onnxtool.packaging.server_process import free_port
from onnxtool.runtime.protocol_v2.uploads import decode_picture
from onnxtool.runtime.runner import OnnxRunner

BROWSER = find_browser(None)
# The npm package is no part of this project: a folder with it is named by a variable.
_NAMED = os.environ.get("ONNXRUNTIME_WEB")
needs_runtime = pytest.mark.skipif(
    not _NAMED or BROWSER is None, reason="ONNXRUNTIME_WEB does not name the npm package, or there is no Chromium"
)
RUNTIME = Path(_NAMED or ".")


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    """The files of the package, without their content."""
    folder = tmp_path / "node_modules" / "onnxruntime-web"
    (folder / "dist").mkdir(parents=True)
    (folder / "package.json").write_text('{"name": "onnxruntime-web", "version": "1.0.0", "license": "MIT"}')
    for name in web._RUNTIME + web._WEBGPU:
        (folder / "dist" / name).write_bytes(b"MatMulInteger\0")
    return tmp_path / "node_modules"


@needs_runtime
@pytest.mark.parametrize("model", ["tiny", "mixed"])
def test_a_browser_gives_the_native_answers(model: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    path = request.getfixturevalue(model)
    report = package(path, tmp_path / "page", kinds=["web"], web=WebOptions(runtime_folder=RUNTIME))
    (made,) = report.packages
    assert made.proof.equal and made.proof.started.complete and "WASM" in made.proof.started.how
    assert max(o.max_abs for o in made.proof.outputs) <= 1e-6
    reference = OnnxRunner.open(path)
    runner = open_package(tmp_path / "page", trust=True)
    try:
        feeds = {n[6:]: a for n, a in np.load(tmp_path / "page" / "golden" / "case1.npz").items() if n[0] == "i"}
        feeds = {n: a.astype(object) if a.dtype.kind == "U" else a for n, a in feeds.items()}
        for name, expected in reference.run(feeds).items():
            got = runner.run(feeds)[name]
            assert got.dtype == expected.dtype and np.array_equal(got, expected)
    finally:
        runner.close()


@needs_runtime
def test_the_pages_work_from_a_plain_server(mixed: Path, tmp_path: Path) -> None:
    """The package's own server and smoke test, without anything of ours."""
    folder = tmp_path / "page"
    package(mixed, folder, kinds=["web"], web=WebOptions(runtime_folder=RUNTIME))
    port = free_port()
    server = subprocess.Popen([sys.executable, "-I", "-B", str(folder / "serve.py"), str(port)], stdout=subprocess.PIPE)
    try:
        command = [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'u'}"]
        command += ["--virtual-time-budget=60000", "--timeout=60000", "--dump-dom"]
        shown = ""
        for _ in range(10):  # until the server listens, and the page is done before the browser's own clock ends
            done = subprocess.run(
                [*command, f"http://127.0.0.1:{port}/test.html"], capture_output=True, text=True, check=False
            )
            shown = done.stdout
            if ": equal" in shown:
                break
        assert shown.count(": equal") == 3, shown
        for _ in range(10):
            page = subprocess.run(
                [*command, f"http://127.0.0.1:{port}/index.html"], capture_output=True, text=True, check=False
            ).stdout
            if "ready: wasm" in page:
                break
        assert "ready: wasm" in page
        assert page.count('type="text"') == 2 and page.count('type="number"') == 6  # two columns of each
    finally:
        server.terminate()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()


_FILLED_IN = """<iframe src="index.html"></iframe><pre></pre><script type="module">
const cases = CASES, page = document.querySelector("iframe").contentWindow;
const find = (id) => page.document.getElementById(id);
const until = async (done) => { while (!done()) await new Promise((next) => setTimeout(next, 20)); };
await until(() => find("state")?.textContent.startsWith("ready"));
for (const values of cases) {
  find("answer").textContent = "";
  const elements = [...page.document.querySelectorAll("textarea, input")];
  for (const [i, element] of elements.entries()) {
    if (element.type !== "file") { element.value = values[i]; continue; }
    const chosen = new page.DataTransfer(), [name, bytes] = values[i] ?? [];
    if (name) chosen.items.add(new page.File([Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0))], name));
    element.files = chosen.files;
    element.dispatchEvent(new page.Event("change"));
  }
  if (!Array.isArray(values[0])) find("form").requestSubmit(); // a page runs by itself on a file
  await until(() => find("answer").textContent);
  document.querySelector("pre").append(find("answer").textContent.replace(/[0-9.]+ ms/, "").replace(/\\n+/g, ";"), "|");
}
document.querySelector("pre").append("done");
</script>"""


def fill_in(folder: Path, cases: Sequence[Sequence[object]]) -> list[str]:
    """What the demo of a package answers to each of several values for all its fields."""
    (folder / "fill.html").write_text(_FILLED_IN.replace("CASES", json.dumps(cases)))
    port = free_port()
    server = subprocess.Popen([sys.executable, "-I", "-B", str(folder / "serve.py"), str(port)], stdout=subprocess.PIPE)
    try:
        command = [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu"]
        command += [f"--user-data-dir={folder.with_name('u')}", "--virtual-time-budget=60000", "--timeout=60000"]
        command += ["--dump-dom", f"http://127.0.0.1:{port}/fill.html"]
        shown = ""
        for _ in range(10):
            shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            if "done</pre>" in shown:
                break
        return shown.partition("<pre>")[2].partition("done</pre>")[0].split("|")[:-1]
    finally:
        server.terminate()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()


def picture(mode: str, color: tuple[int, ...]) -> tuple[str, str]:
    """A PNG file of 2 by 1 pixels, in base64."""
    image, file = pytest.importorskip("PIL.Image"), io.BytesIO()
    image.new(mode, (2, 1), color).save(file, "PNG")
    return f"{mode}.png", base64.b64encode(file.getvalue()).decode()


@needs_runtime
def test_the_demo_answers_nothing_without_a_picture_that_it_can_read(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
    m (uint8[n, h, w, 3] x) => (int64[n, 3] y) {
        i = Cast <to = 7> (x)  axes = Constant <value_ints = [1, 2]> ()  y = ReduceSum <keepdims = 0> (i, axes) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    folder = tmp_path / "page"
    package(tmp_path / "m.onnx", folder, kinds=["web"], web=WebOptions(runtime_folder=RUNTIME))
    cases = {
        "x: no picture is chosen": None,
        "y [1,3] 14, 40, 60": picture("RGB", (7, 20, 30)),
        "x: notes.png is no picture": ("notes.png", "AAAA"),
        "x: RGBA.png is transparent": picture("RGBA", (7, 20, 30, 40)),
        "y [1,3] 2, 4, 6": picture("RGB", (1, 2, 3)),
    }
    answers = fill_in(folder, [[given] for given in cases.values()])
    for said, answer in zip(cases, answers, strict=True):
        assert said in answer, (said, answers)


@needs_runtime
def test_the_demo_turns_pictures_as_serve_does(tmp_path: Path) -> None:
    """Each orientation that EXIF has, of WebP too, where browsers do not agree."""
    image = pytest.importorskip("PIL.Image")
    text = """<ir_version: 10, opset_import: ["" : 20]>
    m (uint8[n, h, w, 3] x) => (int64[n, k] y) {
        i = Cast <to = 7> (x)  s = Constant <value_ints = [1, -1]> ()  y = Reshape (i, s) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    package(tmp_path / "m.onnx", tmp_path / "page", kinds=["web"], web=WebOptions(runtime_folder=RUNTIME))
    pixels = image.fromarray(np.random.default_rng(0).integers(0, 256, (2, 3, 3)).astype(np.uint8))
    files = []
    for kind, orientation in (("PNG", 8), ("JPEG", 6), *(("WEBP", n) for n in range(1, 9))):
        exif, file = image.Exif(), io.BytesIO()
        exif[0x0112] = orientation
        pixels.save(file, kind, exif=exif, lossless=True, quality=100, subsampling=0)
        files.append(file.getvalue())
    answers = fill_in(tmp_path / "page", [[("a", base64.b64encode(file).decode())] for file in files])
    for file, answer in zip(files, answers, strict=True):
        values = decode_picture(file, 3, "RGB").reshape(-1).tolist()
        assert f"[1,18] {', '.join(map(str, values))};" in answer


@needs_runtime
def test_the_demo_answers_nothing_for_what_was_not_filled_in(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
    m (string[n] t, int64[n, 1] c, uint8[n, 1] s, float[n, 2, 1] f) =>
      (string[n] t1, int64[n, 1] c1, uint8[n, 1] s1, float[n, 2, 1] f1) {
        t1 = Identity(t) c1 = Identity(c) s1 = Identity(s) f1 = Neg(f) }"""
    proto = onnx.parser.parse_model(text)
    onnx.helper.set_model_props(proto, {"onnxtool.columns": json.dumps({"c": ["age"], "c1": ["years"]})})
    onnx.save(proto, tmp_path / "m.onnx")
    folder = tmp_path / "page"
    package(tmp_path / "m.onnx", folder, kinds=["web"], web=WebOptions(runtime_folder=RUNTIME))
    good = ["a", "9223372036854775807", "255", "[[[1],[2]]]"]
    cases = {
        "f1 [1,2,1] -1, -2": good,
        "c1 [1,1] 9223372036854775807;largest: years 9223372036854775807": good,
        "agree in n: t has 2, c has 1": ["a\nb", *good[1:]],
        "t: no text": ["", *good[1:]],
        "agree in n: t has 3, c has 1": ["a\n\nb\n", *good[1:]],  # an empty text is one, too
        "f: lists of different lengths": [*good[:3], "[[[1],[2]],[[3]],[[4],[5],[6]]]"],
        "f: 1e+39 is out of": [*good[:3], "[[[1],[1e39]]]"],
        "age: nothing is not": ["a", "", *good[2:]],
        "age: 1.5 is not": ["a", "1.5", *good[2:]],
        "age: 9223372036854775808 is out of": ["a", "9223372036854775808", *good[2:]],
        "s, column 0: 256 is out of": ["a", "1", "256", good[3]],
        "f: null is not": [*good[:3], "[[[1],[null]]]"],
        "f: true is not": [*good[:3], "[[[1],[true]]]"],
    }
    answers = fill_in(folder, list(cases.values()))
    for said, answer in zip(cases, answers, strict=True):
        assert said in answer, (said, answers)


@needs_runtime
def test_an_operator_that_the_runtime_lacks_is_named(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("NoSuchOperatorAtAll", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    wasm = (web.runtime_folder(RUNTIME) / "dist" / web._WASM).read_bytes()
    assert web.missing_operators(tmp_path / "m.onnx", wasm) == ["NoSuchOperatorAtAll"]


def test_names_of_operators_are_looked_up(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [
            helper.make_node("MatMulInteger", ["a", "b"], ["c"]),
            helper.make_node("DequantizeLinear", ["c", "s"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("a", TensorProto.INT8, [1, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])],
        [
            helper.make_tensor("b", TensorProto.INT8, [1, 1], [1]),
            helper.make_tensor("s", TensorProto.FLOAT, [], [1.0]),
        ],
    )
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    assert web.missing_operators(tmp_path / "m.onnx", b"..QMatMulInteger\0..") == ["DequantizeLinear"]


def test_without_a_browser_the_report_says_so(
    tiny: Path, tmp_path: Path, stub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "find_browser", lambda given: given)
    report = package(tiny, tmp_path / "page", kinds=["web"], web=WebOptions(runtime_folder=stub))
    assert not report.packages[0].proof.started.complete and "no Chromium" in report.warnings[0]
    types = (tmp_path / "page" / "model.d.ts").read_text()
    assert '"x": Tensor<Float32Array>;' in types and "float32[batch, 3]" in types
    assert json.loads((tmp_path / "page" / "runtime" / "package.json").read_text())["license"] == "MIT"
    (part,) = json.loads((tmp_path / "page" / "sbom.cdx.json").read_text())["components"]
    assert part["purl"] == "pkg:npm/onnxruntime-web@1.0.0"
    for name in ("index.html", "test.html", "model.js"):
        text = (tmp_path / "page" / name).read_text()
        assert "@" not in text and "https://" not in text


def test_types_are_those_of_the_model(mixed: Path, tmp_path: Path, stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "find_browser", lambda given: given)
    package(mixed, tmp_path / "page", kinds=["web"], web=WebOptions(runtime_folder=stub))
    types = (tmp_path / "page" / "model.d.ts").read_text()
    for line in ('"ids/0": Tensor<BigInt64Array>;', '"text": Tensor<string[]>;', '"flag": Tensor<Uint8Array>;'):
        assert line in types
    if shutil.which("node"):
        for name in ("model.js", "demo.js", "npz.js"):
            code = (tmp_path / "page" / name).read_bytes()
            command = ["node", "--input-type=module", "--check"]
            done = subprocess.run(command, input=code, capture_output=True, check=False)
            assert done.returncode == 0, done.stderr


def test_the_runtime_is_found_where_npm_puts_it(stub: Path, tmp_path: Path) -> None:
    place = stub / "onnxruntime-web"
    assert web.runtime_folder(place) == web.runtime_folder(stub) == web.runtime_folder(stub.parent) == place
    with pytest.raises(UsageError, match="--runtime-folder"):
        web.runtime_folder(None)
    with pytest.raises(InputError, match="is not the npm package"):
        web.runtime_folder(tmp_path / "node_modules" / "onnxruntime-web" / "dist")
    (place / "dist" / web._WASM).unlink()
    with pytest.raises(InputError, match="has no dist/"):
        web.runtime_folder(place)


def test_bfloat16_is_refused(tmp_path: Path, stub: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [2])],
        [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match="bfloat16"):
        package(tmp_path / "m.onnx", tmp_path / "page", kinds=["web"], web=WebOptions(runtime_folder=stub))


@pytest.mark.parametrize(("backend", "count"), [("wasm", 3), ("webgpu", 6)])
def test_the_runtime_for_webgpu_is_packed_where_it_is_asked_for(
    tiny: Path, tmp_path: Path, stub: Path, monkeypatch: pytest.MonkeyPatch, backend: WebBackend, count: int
) -> None:
    monkeypatch.setattr(web, "find_browser", lambda _: None)
    package(tiny, tmp_path / "page", kinds=["web"], web=WebOptions(runtime_folder=stub, web_backend=backend))
    packed = {p.name for p in (tmp_path / "page" / "runtime").glob("ort*")}
    assert len(packed) == count and any("webgpu" in name for name in packed) == (backend == "webgpu")
    text = (tmp_path / "page" / "model.js").read_text()
    assert f"HAS_WEBGPU = {json.dumps(backend == 'webgpu')};" in text
