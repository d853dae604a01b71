"""Custom operators with the runtime's side of them: a library that is compiled here, and onnxruntime-extensions."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxtool.conversion.convert import convert
from onnxtool.errors import UnsupportedError

pytest.importorskip("torch")

EXAMPLE = Path(__file__).parents[3] / "examples" / "custom_operator"
Command = Callable[..., subprocess.CompletedProcess[str]]

NET = """
import torch

if not hasattr(torch.ops.onnxtool_tests, 'twice'):
    @torch.library.custom_op('onnxtool_tests::twice', mutates_args=())
    def twice(x: torch.Tensor, k: float) -> torch.Tensor:
        return x * 2 * k

    twice.register_fake(lambda x, k: torch.empty_like(x))

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.ops.onnxtool_tests.twice(x.relu(), 1.5) + 1

class Named(torch.nn.Module):
    def forward(self, x):
        if torch.onnx.is_in_onnx_export():
            return torch.onnx.ops.symbolic('onnxtool_tests::twice', (x,), {'k': 0.25}, dtype=x.dtype, shape=x.shape)
        return x / 2

class Wrong(torch.nn.Module):
    def forward(self, x):
        if torch.onnx.is_in_onnx_export():
            return torch.onnx.ops.symbolic('onnxtool_tests::twice', (x,), {'k': 0.5}, dtype=x.dtype, shape=x.shape)
        return x / 2

def traced():
    return torch.jit.trace(Net(), torch.zeros(2, 3))
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("custom") / "custom_net.py"
    path.write_text(NET, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runtime's side of onnxtool_tests::twice."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler")
    path = tmp_path_factory.mktemp("library") / "twice.so"
    source = Path(__file__).with_name("custom_operator.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(path)], check=True)
    return path


@pytest.mark.parametrize(
    ("factory", "opset", "factor"),
    [("Net", None, 1.5), ("Net", 17, 1.5), ("traced", None, 1.5), ("Named", None, 0.25)],
    ids=["torch.export", "TorchScript exporter", "TorchScript module", "named while exporting"],
)
def test_are_verified_with_the_library(
    net: Path, library: Path, tmp_path: Path, factory: str, opset: int | None, factor: float
) -> None:
    given: dict[str, Any] = {"factory": f"{net}:{factory}", "input_shapes": {"x": ("batch", 3)}, "opset": opset}
    report = convert(None, tmp_path / "out.onnx", **given, custom_op_libraries=(library,))

    assert report.ok and report.comparison is not None and len(report.comparison.runs) == 3
    node = next(n for n in onnx.load(tmp_path / "out.onnx").graph.node if n.domain == "onnxtool_tests")
    assert (node.op_type, len(node.input), [(a.name, a.f) for a in node.attribute]) == ("twice", 1, [("k", factor)])


def test_the_library_is_what_is_compared(net: Path, library: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"factory": f"{net}:Wrong", "input_shapes": {"x": ("batch", 3)}}
    report = convert(None, tmp_path / "out.onnx", **given, custom_op_libraries=(library,))

    assert not report.ok and not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("factory", ["traced", "Named"])
def test_without_the_library_the_operator_is_named(net: Path, tmp_path: Path, factory: str) -> None:
    with pytest.raises(UnsupportedError, match=r"operator onnxtool_tests::?twice .*--custom-op-library"):
        convert(None, tmp_path / "out.onnx", factory=f"{net}:{factory}", input_shapes={"x": ("batch", 3)})


def test_the_commands_take_the_library(onnxtool: Command, net: Path, library: Path, tmp_path: Path) -> None:
    given = ("convert", "--factory", f"{net}:Net", "--input-shape", "x:batch,3", "-o", tmp_path / "out.onnx")
    loaded = ("--custom-op-library", library)
    refused = onnxtool(*given)
    written = onnxtool(*given, *loaded)

    assert refused.returncode == 4
    assert len(refused.stderr.strip().splitlines()) == 1 and "onnxtool_tests::twice" in refused.stderr
    assert written.returncode == 0, written.stderr
    assert onnxtool("check", tmp_path / "out.onnx").returncode == 1
    assert onnxtool("check", tmp_path / "out.onnx", *loaded).returncode == 0


def test_the_example(onnxtool: Command, tmp_path: Path) -> None:
    extensions = pytest.importorskip("onnxruntime_extensions", reason="needs onnxruntime-extensions")
    library = ("--custom-op-library", extensions.get_library_path())
    given = ("convert", "--factory", f"{EXAMPLE / 'net.py'}:Whiten", "--input-shape", "x:3,3")
    done = onnxtool(*given, *library, "-o", tmp_path / "whiten.onnx")
    refused = onnxtool(*given, "-o", tmp_path / "none.onnx")

    assert done.returncode == 0, done.stderr
    assert refused.returncode == 4 and "ai.onnx.contrib:Inverse" in refused.stderr
    np.savez(tmp_path / "in.npz", x=np.eye(3, dtype=np.float32))
    run = onnxtool("run", tmp_path / "whiten.onnx", "--data", tmp_path / "in.npz", *library)
    assert run.returncode == 0, run.stderr
