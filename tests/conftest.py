"""What all tests share: the fixtures folder, the real command, small models."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO
from unittest import mock

import onnx
import pytest
from _pytest import runner
from onnx import TensorProto, helper

from onnxtool.equality.trials import observe
from onnxtool.installed_extensions import installed_extensions
from onnxtool.runtime.providers.trial import try_plugin
from tests import command_server, efforts

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does; see onnxtool/cli/app.py
# As TensorFlow's environment has it; JAX lets warnings through as soon as it is imported, in children too.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "fixtures"
Result = subprocess.CompletedProcess[str]
Brought = Callable[[str, str, str], None]


# What is dear to import or to build is shared by the tests of these: one worker takes all of a name (see the Makefile).
GROUPS = {
    "conversion/pytorch": "pytorch",
    "cli/test_convert.py": "pytorch",
    "cli/test_quickstart.py": "pytorch",
    "conversion/jax": "jax",
    "conversion/paddle": "paddle",
    "conversion/keras": "tensorflow",
    "conversion/tensorflow": "tensorflow",
    "conversion/sklearn": "trees",
    "conversion/boosting": "trees",
    "generation": "generation",
    "packaging/test_bundle_package.py": "generation",
    "serving/test_chat_routes.py": "generation",
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """With `--dist loadgroup`, tests of a file run in one worker, and so do those of a framework.

    By a scheduler of our own: xdist 3.8 writes the groups of marks into an attribute of tests that pytest 9.2 no longer
    has, and spreads the tests of a group over all workers.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0].removeprefix("tests/")
            return next((name for part, name in GROUPS.items() if file == part or file.startswith(f"{part}/")), file)

    return ByGroup(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported here stays: looking for garbage in it takes seconds, and finds none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_configure() -> None:
    """Tests have one environment, which does not name the test: a process of a model is forked from one that was
    started in the same environment, and each test would start one of its own. Garbage is looked for as by commands.
    """
    gc.set_threshold(50_000, 20, 50)
    runner._update_current_test_var = lambda item, when: None


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Bytes are not part of a test's name: a time in a compressed text gives each worker other names, and none runs."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="module", autouse=True)
def little_garbage() -> None:
    """What earlier modules left is let go; what stays is looked at no more: commands collect garbage to free memory."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def quick_proofs() -> Iterator[None]:
    """What compares without naming an effort does so at "quick", also when a fixture of the module does it.

    A test asks what a command makes of its model; a fault that only a long search finds is planted in the tests of
    tests/equality/search.
    """
    with efforts.meaning(quick=True):
        yield


@pytest.fixture(scope="module")
def all_trials(quick_proofs: None) -> Iterator[None]:
    """For tests of proofs themselves: effort quick, which "normal" stands for, tries as many inputs as for users."""
    with mock.patch.dict(observe._MOST_TRIALS, quick=efforts.TRIALS, normal=efforts.TRIALS):
        yield


@pytest.fixture
def normal_effort(quick_proofs: None) -> Iterator[None]:
    """For a test that is about the search: "normal" is what it is for users."""
    with efforts.meaning(quick=False):
        yield


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The folder of real models and data."""
    return FIXTURES


@pytest.fixture(scope="session")
def digits_onnx() -> Path:
    """The float32 digits CNN: image float32[batch,1,8,8] -> logits float32[batch,10]."""
    return FIXTURES / "digits_cnn.onnx"


@pytest.fixture(scope="session")
def onnxtool() -> Callable[..., Result]:
    """Run the real command: `onnxtool("check", path)` -> exit code, stdout, stderr.

    In a process that is forked from one with the libraries imported; with an environment of its own, in a new one.
    """

    def run(*args: object, env: dict[str, str] | None = None, cwd: Path | None = None, timeout: float = 300) -> Result:
        if set(env or ()) <= {"COLUMNS"}:
            words = [str(a) for a in args]
            kind = command_server.kind_for(words)
            quick, where = efforts.are_quick(), cwd or Path.cwd()
            done = command_server.run(words, where, timeout, kind, environment=env or {}, quick=quick)
            return Result(words, done.code, done.stdout, done.stderr)
        return subprocess.run(
            [sys.executable, "-m", "onnxtool", *map(str, args)],
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1", **(env or {})},
            cwd=cwd,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama in float32, as a Hugging Face folder; not to be changed."""
    from tests.generation import tiny

    return tiny.llama(tmp_path_factory.mktemp("source") / "llama")


@pytest.fixture(scope="session")
def warm_builders() -> Iterator[None]:
    """A builder of text models is forked from a process that has imported torch and transformers."""
    from onnxtool.generation import builders

    def start(
        module: str, *arguments: str, variables: Mapping[str, str], stdout: BinaryIO, cwd: str, **_: object
    ) -> command_server.Lasting:
        words, environment = ["-m", module, *arguments], {**os.environ, **variables, "PYTHONWARNINGS": "ignore"}
        log = Path(stdout.name)
        return command_server.Lasting(words, "builders", folder=Path(cwd), environment=environment, log=log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builders, "start_python", start)
        yield


@pytest.fixture(scope="session")
def llama_bundle(llama_folder: Path, warm_builders: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle made of it, once for all that serve, package or compare one; not to be changed."""
    from onnxtool.generation.convert import convert_text_model

    return Path(convert_text_model(llama_folder, tmp_path_factory.mktemp("bundles") / "llama").output)


@pytest.fixture(scope="session")
def openvino() -> None:
    """Skips a test where OpenVINO's plugin does not run a small model."""
    require_openvino()


def require_openvino() -> None:
    """Ask a process of its own, because the plugin may crash; skip, with the reason, where it does not run."""
    pytest.importorskip("onnxruntime_ep_openvino", reason="the plugin onnxruntime-ep-openvino is not installed")
    trial = try_plugin("onnxruntime_ep_openvino", "openvino")
    if trial.state != "runs":
        pytest.skip(f"OpenVINO's plugin: {trial.reason}")


@pytest.fixture
def relu_proto() -> onnx.ModelProto:
    """x float32[batch,3] -> y = relu(x w), with a 3x2 weight; a fresh copy for each test."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3, 2], [1.0, -1.0, 0.5, 0.25, -2.0, 3.0])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "relu",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch) -> Iterator[Brought]:
    """Makes it seem that a package brings something: name, "module:attribute", group of entry points."""
    found: list[importlib.metadata.EntryPoint] = []
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [e for e in found if e.group == group])
    installed_extensions.cache_clear()
    yield lambda name, target, group: found.append(importlib.metadata.EntryPoint(name, target, group))
    installed_extensions.cache_clear()
