"""How a provider is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxtool.errors import UsageError
from onnxtool.runtime.providers.spec import ProviderSpec, parse_provider, parse_providers, short_name


def test_name_and_options() -> None:
    spec = parse_provider("openvino:INFERENCE_PRECISION_HINT=f32,cache_dir=/tmp/c")
    assert spec == ProviderSpec("openvino", (("INFERENCE_PRECISION_HINT", "f32"), ("cache_dir", "/tmp/c")))
    assert parse_provider(str(spec)) == spec
    assert parse_provider("cpu") == ProviderSpec("cpu")


def test_commas_inside_json_belong_to_the_value() -> None:
    spec = parse_provider('openvino:load_config={"CPU":{"A":"1","B":[2,3]}},device_type=CPU')
    assert spec.get("load_config") == '{"CPU":{"A":"1","B":[2,3]}}'
    assert spec.get("device_type") == "CPU"


def test_a_value_may_hold_an_equals_sign() -> None:
    assert parse_provider("a:k=v=w").get("k") == "v=w"


def test_options_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "options.json"
    path.write_text('{"device_id": 1, "load_config": {"CPU": {}}, "name": "x"}', encoding="utf-8")
    spec = parse_provider(f"cuda:@{path},name=y")
    assert dict(spec.options) == {"device_id": "1", "load_config": '{"CPU": {}}', "name": "y"}


@pytest.mark.parametrize("text", ["", ":", "cuda:", "cuda:device", "cuda:=1", "cuda:@missing.json"])
def test_refuses_other_forms(text: str) -> None:
    with pytest.raises(UsageError, match="--provider"):
        parse_provider(text)


@pytest.mark.parametrize("content", ["[1]", "{", "3"])
def test_refuses_a_file_without_an_object(tmp_path: Path, content: str) -> None:
    path = tmp_path / "options.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=r"options\.json"):
        parse_provider(f"cuda:@{path}")


def test_priority_is_the_order_given_and_none_is_the_cpu() -> None:
    assert [s.name for s in parse_providers(("tensorrt", "cuda"))] == ["tensorrt", "cuda"]
    assert parse_providers(()) == (ProviderSpec("cpu"),)
    assert parse_providers("cpu") == (ProviderSpec("cpu"),)


def test_refuses_one_provider_twice_under_two_names() -> None:
    with pytest.raises(UsageError, match="2 times"):
        parse_providers(("cuda", "CUDAExecutionProvider:device_id=1"))


def test_setting_an_option_replaces_it() -> None:
    assert ProviderSpec("a", (("k", "1"), ("l", "2"))).having("k", "3").options == (("l", "2"), ("k", "3"))


@pytest.mark.parametrize(
    ("name", "short"), [("CUDAExecutionProvider", "cuda"), ("cuda", "cuda"), ("WebGpuExecutionProvider", "webgpu")]
)
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short
