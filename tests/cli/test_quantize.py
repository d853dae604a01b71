"""`onnxtool quantize`, the real command."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from onnxtool.cli.views.quantize import _off
from onnxtool.report.quantize import Fidelity

Run = Callable[..., object]


def test_static_shows_size_latency_accuracy_and_error(onnxtool: Run, fixtures: Path, tmp_path: Path) -> None:
    target = tmp_path / "int8.onnx"
    done = onnxtool(
        *("quantize", fixtures / "digits_cnn.onnx", "-o", target, "--mode", "static"),
        *("--data", fixtures / "calib.npz", "--eval", fixtures / "eval.npz", "--labels", "label"),
        env={"COLUMNS": "80"},
    )
    assert done.returncode == 0, done.stderr
    assert target.exists()
    for word in ("size", "latency", "accuracy", "0.9958", "SQNR", "3 QLinearConv", "3 of 3 Conv", "OK"):
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_json_holds_the_report(onnxtool: Run, fixtures: Path, tmp_path: Path) -> None:
    done = onnxtool(
        *("quantize", fixtures / "digits_cnn.onnx", "-o", tmp_path / "q.onnx", "--mode", "dynamic", "--json", "-"),
        *("--data", fixtures / "calib.npz", "--per-tensor", "--exclude", "logits", "--samples", "8"),
    )
    report = json.loads(done.stdout)
    assert report["schema"] == "onnxtool/quantize/2"
    assert report["ok"] is True
    assert report["recipe"]["per_channel"] is False
    assert report["quantized"]["Gemm"] == [1, 2]
    assert report["fidelity"]["samples"] == 8


def test_static_without_data_says_why_random_data_is_no_calibration(
    onnxtool: Run, digits_onnx: Path, tmp_path: Path
) -> None:
    done = onnxtool("quantize", digits_onnx, "-o", tmp_path / "q.onnx", "--mode", "static")
    assert done.returncode == 2
    assert done.stderr.startswith("error: --mode static needs --data")
    assert "Random inputs" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--mode", "static", "--data", "nowhere.npz"), 3, "no such file"),
        (("--mode", "static", "--data", "{fixtures}/eval_forest.npz"), 3, "the model takes image: float32"),
        (("--mode", "static", "--data", "{fixtures}/eval_keras.npz"), 3, "has shape [1, 8, 8, 1]"),
        (("--mode", "dynamic", "--exclude", "nothing*"), 2, "--exclude nothing*"),
        (("--mode", "dynamic", "--op", "Conv"), 2, "--op Conv"),
        (("--mode", "dynamic", "--smooth", "0.5"), 2, "--smooth needs --data"),
        (("--mode", "dynamic", "--bias-correction"), 2, "--bias-correction needs --data"),
        (("--mode", "int4", "--equalize"), 2, "--equalize does nothing"),
        (("--mode", "dynamic", "--compact", "4"), 2, "choose 8 or 16 bits"),
        (
            ("--mode", "dynamic", "--attention"),
            2,
            "--attention does nothing with --mode dynamic: it goes with auto or static",
        ),
        (
            ("--mode", "static", "--data", "{fixtures}/calib.npz", "--activations", "s8", "--weights", "u8"),
            2,
            "s8 x u8",
        ),
    ],
)
def test_mistakes_get_one_line_and_their_exit_code(
    onnxtool: Run, fixtures: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    arguments = tuple(a.format(fixtures=fixtures) for a in arguments)
    done = onnxtool("quantize", fixtures / "digits_cnn.onnx", "-o", tmp_path / "q.onnx", *arguments)
    assert done.returncode == code
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_an_output_that_is_a_folder_is_refused_before_any_work(
    onnxtool: Run, digits_onnx: Path, tmp_path: Path
) -> None:
    done = onnxtool("quantize", digits_onnx, "-o", tmp_path, "--mode", "dynamic")
    assert done.returncode == 2
    assert "is a folder" in done.stderr


def test_auto_shows_the_frontier_and_writes_it_as_a_page(onnxtool: Run, fixtures: Path, tmp_path: Path) -> None:
    done = onnxtool(
        *("quantize", fixtures / "digits_cnn.onnx", "-o", tmp_path / "q.onnx", "--data", fixtures / "calib.npz"),
        *("--time-limit", "15", "--html", tmp_path / "frontier.html", "--json", tmp_path / "q.json"),
        *("--recipe", tmp_path / "recipe.json"),
        env={"COLUMNS": "80"},
    )
    assert done.returncode == 0, done.stderr
    assert "recipes tried" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    page = (tmp_path / "frontier.html").read_text()
    frontier = json.loads((tmp_path / "q.json").read_text())["frontier"]
    timed = [c for c in frontier if c["latency"] and c["fidelity"]]  # what is slower is not judged
    assert page.count("<circle") == len(timed) + 3  # and the legend's
    assert page.count('class="best"') == 2
    assert "<script" not in page
    assert "http" not in page
    assert sum(c["chosen"] for c in frontier) == 1
    again = onnxtool(
        "quantize", fixtures / "digits_cnn.onnx", "-o", tmp_path / "r.onnx", "--recipe", tmp_path / "recipe.json"
    )
    assert again.returncode == 0
    assert (tmp_path / "r.onnx").read_bytes() == (tmp_path / "q.onnx").read_bytes()


def test_exit_1_when_nothing_is_worth_writing(onnxtool: Run, fixtures: Path, tmp_path: Path) -> None:
    done = onnxtool(
        *("quantize", fixtures / "digits_cnn.onnx", "-o", tmp_path / "q.onnx", "--data", fixtures / "calib.npz"),
        *("--max-drop", "0", "--time-limit", "8", "--eval", fixtures / "eval.npz", "--labels", "label"),
        *("--metric", f"{tmp_path / 'strict.py'}:strict"),
    )
    assert done.returncode == 2, "the metric's file is not there yet"
    (tmp_path / "strict.py").write_text(
        "SEEN = []\n\ndef strict(outputs, labels):\n    SEEN.append(1)\n    return 1.0 / len(SEEN)\n"
    )
    done = onnxtool(
        *("quantize", fixtures / "digits_cnn.onnx", "-o", tmp_path / "q.onnx", "--data", fixtures / "calib.npz"),
        *("--max-drop", "0", "--time-limit", "8", "--eval", fixtures / "eval.npz", "--labels", "label"),
        *("--metric", f"{tmp_path / 'strict.py'}:strict"),
    )
    assert done.returncode == 1
    assert "FAILED  no recipe keeps the accuracy budget" in done.stdout
    assert not (tmp_path / "q.onnx").exists()


@pytest.mark.parametrize("mode", ["float16", "int8", "int4"])
def test_every_mode_writes_a_file_that_runs(onnxtool: Run, digits_onnx: Path, tmp_path: Path, mode: str) -> None:
    done = onnxtool("quantize", digits_onnx, "-o", tmp_path / "q.onnx", "--mode", mode, "--json", "-")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bytes_after"] == (tmp_path / "q.onnx").stat().st_size
    assert onnxtool("run", tmp_path / "q.onnx").returncode == 0


def test_what_makes_a_model_easier_to_quantize_is_asked_for_by_name(
    onnxtool: Run, fixtures: Path, tmp_path: Path
) -> None:
    done = onnxtool(
        *("quantize", fixtures / "digits_cnn.onnx", "-o", tmp_path / "q.onnx", "--mode", "static", "--per-tensor"),
        *("--data", fixtures / "calib.npz", "--smooth", "0.5", "--equalize", "--bias-correction", "--compact", "16"),
        *("--op", "Conv", "--recipe", tmp_path / "r.json", "--json", "-"),
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    summary = report["summary"].replace(" 7-bit weights", "")  # of processors without VNNI
    assert summary == "static u8s8 per-tensor minmax smooth 0.5 equalized bias-corrected compact 16"
    assert report["fidelity"]["sqnr_db"] > 20
    assert report["recipe"]["shifts"] is None, "measurements are in the recipe file alone"
    recipe = json.loads((tmp_path / "r.json").read_text())
    assert recipe["shifts"] and recipe["channels"] and recipe["ranges"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--mode", "static", "--data", "{fixtures}/calib.npz", "--smallest"), "--smallest does nothing with --mode"),
        (("--mode", "int8", "--time-limit", "100"), "--time-limit does nothing with --mode int8: it goes with auto"),
        (("--mode", "int4", "--target", "vnni"), "--target does nothing"),
        (("--mode", "int8", "--keep-io"), "--keep-io does nothing with --mode int8: it goes with float16"),
        (("--mode", "static", "--data", "{fixtures}/calib.npz", "--block-size", "32"), "--block-size does nothing"),
        (("--mode", "float16", "--exclude", "logits"), "--exclude does nothing"),
        (("--mode", "int8", "--samples", "3"), "--samples goes with --data"),
        (("--mode", "int8", "--metric", "accuracy"), "--metric goes with --eval"),
        (("--max-size", "3MB"), "goes with a bundle"),
        (("--max-drop", "3"), "a share from 0 to 1"),
    ],
)
def test_an_option_without_effect_is_an_error(
    onnxtool: Run, fixtures: Path, digits_onnx: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    line = [a.format(fixtures=fixtures) for a in arguments]
    done = onnxtool("quantize", digits_onnx, "-o", tmp_path / "q.onnx", *line)
    assert done.returncode == 2
    assert words in done.stderr
    assert not list(tmp_path.iterdir())


def test_what_the_weakest_column_loses_is_one_line_for_people() -> None:
    """0.1 % measured, 0.5 % at the end of the interval, 1 % allowed."""
    bounds = {"margin_db": 3.0103}
    found = Fidelity(40, 1.0, None, 256, column_db=30, weakest="y[3]", margin_db=10, bounds=bounds)
    assert _off(found, "95 %") == "y[3] loses 0.1 %  (at most 0.5 %, 95 %, 256 samples; 1 % is allowed)"
    vectors = Fidelity(40, 1.0, None, 64, neighbours=0.998, bounds={"neighbours": 0.995})
    assert _off(vectors, "95 %") == "what is nearest loses 0.2 %  (at most 0.5 %, 95 %, 64 samples)"
    assert _off(replace(vectors, neighbours=None), "95 %") == ""
