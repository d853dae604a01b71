"""PaddlePaddle's programs become files that compute the same; a wrong file is not written, and no pickle is read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import onnxtool
from onnxtool.conversion.convert import open_source
from onnxtool.conversion.paddle import model as paddle_model
from onnxtool.conversion.paddle import patches
from onnxtool.conversion.registry import find_adapter
from onnxtool.conversion.source import Source
from onnxtool.errors import InputError, OnnxToolError, UnsafeError, UnsupportedError, UsageError
from onnxtool.options.convert import ConvertOptions
from onnxtool.runtime.runner import OnnxRunner

# Not imported: PaddlePaddle crashes in a process that has TensorFlow.
needs_paddle = pytest.mark.skipif(
    find_spec("paddle") is None or find_spec("paddle2onnx") is None, reason="the extra paddle is not installed"
)
JSON = b'{"base_code":{"magic":"pir","trainable":true,"version":4},"program":{"regions":[]}}'
TOKENS = {"ids": np.arange(10).reshape(2, 5), "x": np.random.default_rng(1).standard_normal((2, 5, 8), np.float32)}
PROTOBUF = b"\x0a\xb3\x68\x08\x00\x10" + b"\xff" * 9 + b"\x01\x1a\x1c\x0a"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paddle")
    for flag in ("1", "0"):
        environment = {**os.environ, "FLAGS_enable_pir_api": flag, "PYTHONWARNINGS": "ignore"}
        command = [sys.executable, str(Path(__file__).with_name("saved_programs.py")), str(folder)]
        subprocess.run(command, check=True, capture_output=True, env=environment)
    return folder


@pytest.fixture(scope="module")
def source(programs: Path) -> Callable[[str], Any]:
    """What PaddlePaddle itself gives."""
    return lambda name: open_source(programs / name)


@needs_paddle
@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("images.json", {"image": ("batch", 3, "height", "width")}),
        ("old.pdmodel", {"ids": ("batch", "ids_length"), "x": ("batch", "x_length", 8)}),
    ],
)
def test_a_program_of_each_version_keeps_its_numbers(
    programs: Path,
    source: Callable[[str], Any],
    name: str,
    shapes: dict[str, tuple[int | str, ...]],
    tmp_path: Path,
) -> None:
    report = onnxtool.convert(programs / name, tmp_path / "m.onnx")

    assert report.ok
    assert {spec.name: tuple(spec.shape or ()) for spec in report.inputs} == shapes
    numbers = np.random.default_rng(0)
    feeds = {"image": numbers.standard_normal((2, 3, 6, 10), np.float32)} if "image" in shapes else TOKENS
    want, got = source(name).run(feeds), OnnxRunner.open(tmp_path / "m.onnx").run(feeds)
    assert list(want) == list(got) == ["fetch_name_0"]
    np.testing.assert_allclose(got["fetch_name_0"], want["fetch_name_0"], rtol=1e-4, atol=1e-5)


@needs_paddle
def test_small_biases_and_the_end_of_a_softmax_are_kept(
    programs: Path, source: Callable[[str], Any], tmp_path: Path
) -> None:
    shapes = {"ids": ("n", "t"), "x": ("n", "t", 8)}
    report = onnxtool.convert(programs / "tokens.pdiparams", tmp_path / "m.onnx", input_shapes=shapes)
    feeds = {"ids": np.array([[1, 2]]), "x": np.zeros((1, 2, 8), np.float32)}
    feeds["x"][0, 0, 0] = 9.0

    want, got = source("tokens.json").run(feeds), OnnxRunner.open(tmp_path / "m.onnx").run(feeds)

    assert report.inputs[1].shape == ("n", "t", 8)
    assert want["fetch_name_0"][0, 1, 0] == got["fetch_name_0"][0, 1, 0] == 0.0  # 0 times 1 / sqrt(1e-6), and not NaN
    assert want["fetch_name_1"].min() == got["fetch_name_1"].min() == -64.0


@needs_paddle
@pytest.mark.parametrize(
    ("patch", "name"),
    list(
        zip(
            [*patches.PROGRAM_PATCHES, *patches.GRAPH_PATCHES],
            ["images", "dilated", "tokens", "tokens", "sampled", "sampled"],
            strict=True,
        )
    ),
)
def test_a_patch_is_needed(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patch: Any, name: str
) -> None:
    # Programs are corrected in another process: that one is started without its patches.
    if patch in patches.PROGRAM_PATCHES:
        code = (
            "from onnxtool.conversion.paddle import worker; from onnxtool.runtime.worker.tasks import run_tasks\n"
            "worker.PROGRAM_PATCHES.clear(); run_tasks(lambda setup: worker.Program(*setup))"
        )
        (tmp_path / "unpatched_worker.py").write_text(code)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(paddle_model, "WORKER", "unpatched_worker")
    else:
        monkeypatch.setattr(
            paddle_model, "GRAPH_PATCHES", [other for other in patches.GRAPH_PATCHES if other is not patch]
        )

    try:
        written = onnxtool.convert(programs / f"{name}.json").ok
    except OnnxToolError:
        written = False

    assert not written, "paddle2onnx is right without this patch: it can go"


@needs_paddle
@pytest.mark.parametrize(
    "fault",
    [
        lambda graph: _first(graph, "Conv").replace_input_with(1, graph_weight(graph, 1.02)),
        lambda graph: _first(graph, "LeakyRelu").attributes.update(alpha=ir.AttrFloat32("alpha", 0.21)),
    ],
    ids=["weight", "attribute"],
)
def test_a_wrong_graph_is_refused(
    programs: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[ir.Graph], None]
) -> None:
    right = paddle_model.PaddleModel._export

    def wrong(self: paddle_model.PaddleModel, opset: int) -> ir.Model:
        model = right(self, opset)
        fault(model.graph)
        return model

    monkeypatch.setattr(paddle_model.PaddleModel, "_export", wrong)

    assert not onnxtool.convert(programs / "images.json").ok


def _first(graph: ir.Graph, operator: str) -> ir.Node:
    return next(node for node in graph if node.op_type == operator)


def graph_weight(graph: ir.Graph, factor: float) -> ir.Value:
    """The weight of the convolution, of which one number is another."""
    made = _first(graph, "Conv").inputs[1]
    assert made is not None
    producer = made.producer()
    array = (made.const_value if producer is None else producer.attributes["value"].as_tensor()).numpy().copy()  # type: ignore[union-attr]
    array.reshape(-1)[5] *= factor
    value = ir.Value(name="wrong", const_value=ir.tensor(array))
    graph.register_initializer(value)
    return value


@needs_paddle
@pytest.mark.parametrize(
    ("name", "kind", "match"),
    [
        ("chosen.json", UnsupportedError, r"no form for an operator of it .*: erfinv, relu"),
        ("recurrent.json", UnsupportedError, "leaves out the operator"),
    ],
)
def test_what_paddle2onnx_lacks_is_said(programs: Path, name: str, kind: type[OnnxToolError], match: str) -> None:
    with pytest.raises(kind, match=match):
        onnxtool.convert(programs / name)


@needs_paddle
@pytest.mark.parametrize("name", ["images.json", "old.pdmodel"])
@pytest.mark.parametrize("part", ["program", "weights"])
def test_damaged_files_are_refused(programs: Path, tmp_path: Path, name: str, part: str) -> None:
    for suffix in (Path(name).suffix, ".pdiparams"):
        shutil.copy((programs / name).with_suffix(suffix), tmp_path)
    damaged = (tmp_path / name).with_suffix(".pdiparams" if part == "weights" else Path(name).suffix)
    damaged.write_bytes(damaged.read_bytes()[:300])

    with pytest.raises(InputError, match=r"PaddlePaddle cannot load it|damaged or cut off"):
        onnxtool.convert(tmp_path / name)


@needs_paddle
def test_a_crash_is_one_line_and_the_next_run_has_a_process(programs: Path) -> None:
    model = open_source(programs / "images.json")
    feeds = {"image": np.ones((1, 3, 4, 4), np.float32)}
    want = model.run(feeds)
    inner = model._model  # type: ignore[attr-defined]
    inner._process._own.process._process.kill()

    with pytest.raises(InputError, match="fails to run"):
        model.run(feeds)
    np.testing.assert_array_equal(model.run(feeds)["fetch_name_0"], want["fetch_name_0"])


@needs_paddle
@pytest.mark.usefixtures("normal_effort")
def test_an_embedding_is_compared_on_indices_that_it_has(programs: Path) -> None:
    # Every other negative index is an error in Paddle; of -1 it makes zeros, and the file takes the last row.
    assert onnxtool.convert(programs / "tokens.json").ok
    with pytest.raises(InputError, match="negative indices"):
        open_source(programs / "tokens.json").run({**TOKENS, "ids": np.full((2, 5), -1)})
    for name in ("tokens.json", "old.pdmodel"):  # Paddle itself reads the memory behind the table
        with pytest.raises(InputError, match="input 'ids' holds 10; its embedding has rows 0 to 9"):
            open_source(programs / name).run({**TOKENS, "ids": np.full((2, 5), 10)})


@needs_paddle
@pytest.mark.parametrize("name", ["sampled", "dilated"])
def test_what_paddle2onnx_writes_in_another_form_is_corrected(programs: Path, name: str) -> None:
    report = onnxtool.convert(programs / f"{name}.json")
    assert report.ok
    assert name == "dilated" or report.outputs[1].shape == ()


@needs_paddle
def test_the_dtype_of_an_input_stays(programs: Path) -> None:
    with pytest.raises(UsageError, match="float32 for good"):
        onnxtool.convert(programs / "images.json", input_dtypes={"image": "float64"})


@needs_paddle
def test_the_pickle_beside_old_weights_is_not_read(programs: Path, tmp_path: Path) -> None:
    for suffix in (".pdmodel", ".pdiparams"):
        shutil.copy((programs / "old").with_suffix(suffix), tmp_path)
    proof = tmp_path / "was_run"
    (tmp_path / "old.pdiparams.info").write_bytes(b"cos\nsystem\n(S'touch " + str(proof).encode() + b"'\ntR.")

    assert onnxtool.convert(tmp_path).ok
    assert not proof.exists()


@pytest.mark.parametrize(("name", "content"), [("m.json", JSON), ("m.pdmodel", PROTOBUF), ("m.pdiparams", b"\0" * 40)])
def test_programs_are_known_by_what_they_hold(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)

    assert find_adapter(Source(tmp_path / name), ConvertOptions()).name == "paddle"
    if name != "m.pdiparams":
        assert find_adapter(Source(tmp_path), ConvertOptions()).name == "paddle"


@pytest.mark.parametrize(
    ("names", "kind", "match"),
    [
        (("w.pdparams",), UnsafeError, "pickle of weights"),
        (("w.pdiparams",), InputError, "weights alone"),
        (("a.json", "b.json"), InputError, "several programs"),
    ],
)
def test_what_is_no_program_is_refused(
    tmp_path: Path, names: tuple[str, ...], kind: type[OnnxToolError], match: str
) -> None:
    for name in names:
        (tmp_path / name).write_bytes(JSON if name.endswith("json") else b"\x80\x04cos\nsystem\n.")

    with pytest.raises(kind, match=match):
        onnxtool.convert(tmp_path if len(names) > 1 else tmp_path / names[0])


def test_biases_that_the_exporter_drops_are_found_by_their_number() -> None:
    def scale(bias: float) -> dict[str, Any]:
        return {"#": "1.scale", "A": [{"N": "bias", "AT": {"#": "0.a_f32", "D": bias}}]}

    blocks = [{"ops": [scale(1.0), {"#": "1.relu", "A": []}, scale(1e-6), scale(0.0)]}]

    assert patches.lost_biases({"program": {"regions": [{"blocks": blocks}]}}) == {"p2o.pd_op.scale.1.0": 1e-6}
