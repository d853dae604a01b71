"""From what was asked for to what a session is given. Plugins are stood in for; test_openvino.py has the real one."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from onnxtool.errors import UsageError
from onnxtool.runtime.providers import resolve
from onnxtool.runtime.providers.resolve import Plugin
from onnxtool.runtime.providers.spec import parse_provider, parse_providers


def device(name: str, kind: str = "CPU", own: str = "CPU") -> Any:
    hardware = SimpleNamespace(type=f"OrtHardwareDeviceType.{kind}: 0", vendor="Someone")
    return SimpleNamespace(ep_name=name, ep_metadata={"ov_device": own}, device=hardware)


@pytest.fixture
def openvino(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A registered plugin with a CPU and a GPU."""
    devices = [device("OpenVINOExecutionProvider"), device("OpenVINOExecutionProvider", "GPU", "GPU.0")]
    for module in (resolve,):
        monkeypatch.setattr(module, "plugin_devices", lambda: devices)
    return devices


def given(text: str, threads: int | None = None) -> resolve.ResolvedProvider:
    return resolve.resolve(parse_providers(text), threads)[0]


def test_the_cpu_is_the_last_resort_and_comes_once() -> None:
    assert [p.name for p in resolve.resolve(parse_providers("cpu"))] == ["CPUExecutionProvider"]


def test_properties_of_openvino_become_its_configuration(openvino: list[Any]) -> None:
    found = given("openvino:INFERENCE_PRECISION_HINT=f32,cache_dir=c")
    assert json.loads(found.options.pop("load_config")) == {"CPU": {"INFERENCE_PRECISION_HINT": "f32"}}
    assert found.options == {"cache_dir": "c"}
    assert found.devices == (openvino[0],)


def test_a_device_is_chosen_and_its_properties_go_to_it(openvino: list[Any]) -> None:
    found = given("openvino:device=gpu,NUM_STREAMS=2")
    assert found.devices == (openvino[1],)
    assert json.loads(found.options["load_config"]) == {"GPU.0": {"NUM_STREAMS": "2"}}
    assert "device" not in found.options
    with pytest.raises(UsageError, match=r"no device 'npu'; it has cpu, gpu, gpu\.0"):
        given("openvino:device=npu")


def test_properties_join_a_configuration_that_is_given(openvino: list[Any]) -> None:
    found = given('openvino:load_config={"CPU":{"A":"1"},"GPU":{}},B=2')
    assert json.loads(found.options["load_config"]) == {"CPU": {"A": "1", "B": "2"}, "GPU": {}}
    with pytest.raises(UsageError, match="load_config is JSON"):
        given("openvino:load_config=file.json,B=2")


def test_what_openvino_would_ignore_is_refused(openvino: list[Any]) -> None:
    with pytest.raises(UsageError, match="would ignore it"):
        given("openvino:inference_precision=f32")


def test_options_of_the_built_in_openvino_reach_the_plugin(openvino: list[Any]) -> None:
    found = given("openvino:precision=FP32,num_of_threads=3")
    assert json.loads(found.options["load_config"])["CPU"] == {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": "3",
    }


@pytest.mark.parametrize(
    ("text", "threads"),
    [
        ("openvino", "1"),
        ("openvino:INFERENCE_NUM_THREADS=4", "4"),
        ("openvino:num_of_threads=4", "4"),
        ('openvino:load_config={"CPU":{"INFERENCE_NUM_THREADS":"4"}}', "4"),
    ],
)
def test_threads_of_the_session_reach_the_providers_own(openvino: list[Any], text: str, threads: str) -> None:
    assert json.loads(given(text, 1).options["load_config"])["CPU"]["INFERENCE_NUM_THREADS"] == threads


def test_a_missing_provider_comes_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "installed_plugins", lambda: ())
    monkeypatch.setattr(resolve, "available_providers", lambda: ["AzureExecutionProvider", "CPUExecutionProvider"])
    with pytest.raises(UsageError, match=r"has .*cpu.*pip install onnxruntime-ep-nv-tensorrt-rtx"):
        resolve.resolve([parse_provider("NvTensorRTRTX")])
    with pytest.raises(UsageError, match=r"has [a-z., ]*cpu[a-z., ]*$"):
        resolve.resolve([parse_provider("abacus")])


def test_an_installed_plugin_without_a_device_is_said_to_be_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "find_devices", lambda *_: [])
    monkeypatch.setattr(resolve, "installed_plugins", lambda: (Plugin("onnxruntime-ep-x", "1.0", "module", "x"),))
    with pytest.raises(UsageError, match=r"onnxruntime-ep-x 1\.0 is installed, and finds no device on this machine"):
        resolve.resolve([parse_provider("x")])
