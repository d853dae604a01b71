"""Bundles under the other commands: check, verify, compare, inspect, bench, and the command line over all."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onnxtool.cli.app import app
from onnxtool.errors import InputError, UnsafeError
from onnxtool.generation.bench import bench_bundles
from onnxtool.generation.bundle import Bundle
from onnxtool.generation.inspect import inspect_bundle
from onnxtool.generation.verify import compare_bundles, verify_bundle, with_generation
from onnxtool.lint.check import check


@pytest.fixture
def copy(bundle: Path, tmp_path: Path) -> Path:
    return shutil.copytree(bundle, tmp_path / "copy")


def configured(folder: Path, **model: object) -> Path:
    """The bundle with other entries in the model part of its configuration."""
    path = folder / "genai_config.json"
    config = json.loads(path.read_text())
    config["model"] |= model
    path.write_text(json.dumps(config))
    return folder


def test_a_bundle_is_verified_file_by_file(copy: Path, folder: Path) -> None:
    report = verify_bundle(copy, source=folder)
    assert report.ok and report.source_step == "convert" and "tokenizer.json" in report.external
    assert not verify_bundle(copy, source=copy).ok
    (copy / "chat_template.jinja").write_text("other")
    assert not verify_bundle(copy).ok


def test_a_bundle_of_others_is_one_line(copy: Path) -> None:
    (copy / "provenance.json").unlink()
    with pytest.raises(InputError, match="did not write this bundle"):
        verify_bundle(copy)


def test_a_check_runs_the_tokenizer_and_the_cache(copy: Path) -> None:
    sound = with_generation(check(copy / "model.onnx"), copy)
    assert sound.ok and sound.stages[-1].name == "generation" and sound.stages[-1].state == "passed"
    (copy / "tokenizer.json").write_text("{}")
    broken = with_generation(check(copy / "model.onnx"), copy)
    assert not broken.ok and "not a tokenizer" in broken.findings[-1].message


def test_a_chat_that_never_ends_is_a_warning(copy: Path) -> None:
    report = with_generation(check(copy / "model.onnx"), configured(copy, eos_token_id=9))
    assert report.stages[-1].state == "warned"
    assert "<|im_end|>" in report.findings[-1].message


def test_no_end_of_text_is_a_fault(copy: Path) -> None:
    report = with_generation(check(copy / "model.onnx"), configured(copy, eos_token_id=None))
    assert not report.ok


def test_a_bundle_equals_itself_and_not_another(bundle: Path, copy: Path) -> None:
    import numpy as np
    import onnx_ir as ir

    from onnxtool.model import io

    assert compare_bundles(bundle, copy).ok
    model = io.load(copy / "model.onnx")
    norm = next(v for n, v in model.graph.initializers.items() if "final_norm" in n)
    assert norm.const_value is not None
    norm.const_value = ir.Tensor(-np.asarray(norm.const_value.numpy()), name=norm.name)
    for value in model.graph.initializers.values():
        assert value.const_value is not None
        value.const_value = ir.Tensor(value.const_value.numpy().copy(), name=value.name)
    io.save(model, copy / "model.onnx")
    report = compare_bundles(bundle, copy)
    assert not report.ok and abs(report.ratio[0] - 1) > 0.1


def test_a_model_outside_the_folder_is_refused(copy: Path) -> None:
    path = copy / "genai_config.json"
    config = json.loads(path.read_text())
    config["model"]["decoder"]["filename"] = "../../model.onnx"
    path.write_text(json.dumps(config))
    with pytest.raises(UnsafeError, match="outside the folder"):
        Bundle.open(copy)


@pytest.mark.parametrize("name", ["num_hidden_layers", "head_size"])
def test_what_no_model_of_its_size_has_is_refused_before_anything_is_made_of_it(copy: Path, name: str) -> None:
    config = json.loads((copy / "genai_config.json").read_text())
    decoder = config["model"]["decoder"] | {name: 10**9}
    with pytest.raises(InputError, match=f"{name} is 1000000000, but its weights"):
        Bundle.open(configured(copy, decoder=decoder))


@pytest.mark.parametrize(
    "entries",
    [{"vocab_size": -1}, {"decoder": {}}, {"context_length": "many"}, {"context_length": math.inf}, {"decoder": 7}],
)
def test_a_configuration_that_is_none_is_one_line(copy: Path, entries: dict[str, object]) -> None:
    with pytest.raises(InputError, match="not the configuration of a decoder"):
        Bundle.open(configured(copy, **entries))


def test_memory_is_model_and_cache(bundle: Path) -> None:
    report = inspect_bundle(bundle)
    assert report.cache_bytes_per_token == 2 * 2 * 2 * 16 * 4
    assert report.memory == {256: report.model_bytes + 256 * report.cache_bytes_per_token}
    assert report.chat_template and set(report.weights) == {"float32"}
    assert report.parameters == 320 * 64 + 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96 + 2 * 64) + 64


def test_a_bundle_is_measured_in_a_process_of_its_own(bundle: Path) -> None:
    report = bench_bundles([bundle], contexts=(16,), threads=(1,), batches=(1, 3))
    (measured,) = report.generators
    assert report.ok and [(s.context, s.batch) for s in measured.speeds] == [(16, 1), (16, 3)] and measured.threads == 1
    assert measured.speeds[0].decode_per_second > 0 and measured.runtime.startswith("onnxruntime")


def test_the_command_line_takes_bundles(bundle: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> dict[str, object]:
        result = CliRunner().invoke(app, [*arguments, "--json", str(tmp_path / "out.json"), "-q"])
        assert result.exit_code == 0, result.output
        found: dict[str, object] = json.loads((tmp_path / "out.json").read_text())
        return found

    assert run("inspect", str(bundle))["schema"] == "onnxtool/bundle_inspect/1"
    assert run("verify", str(bundle))["ok"]
    assert run("check", str(bundle))["ok"]
    assert run("compare", str(bundle), str(bundle))["ok"]
    said = run("run", str(bundle), "--chat", "the quick fox", "--max-tokens", "5")
    assert said["schema"] == "onnxtool/generate/1" and said["ended"] in ("max tokens", "end of text")
    quantized = run("quantize", str(bundle), "-o", str(tmp_path / "q"), "--mode", "int8", "--max-perplexity", "2%")
    assert quantized["written"] and (tmp_path / "q" / "model.onnx").is_file()


def test_json_on_stdout_is_all_that_run_writes(bundle: Path) -> None:
    line = [sys.executable, "-m", "onnxtool", "run", str(bundle), "--prompt", "the", "--max-tokens", "4", "--json", "-"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["text"] and done.stderr == ""
    loud = subprocess.run([*line, "-v"], capture_output=True, text=True, check=True)
    assert json.loads(loud.stdout)["text"].strip() in loud.stderr
