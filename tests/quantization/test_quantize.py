"""`onnxtool.quantize` on the real model: accuracy, provenance, and what is left behind when it fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxtool
from onnxtool.errors import InputError, OnnxToolError, UsageError
from onnxtool.model import io
from onnxtool.model.file import ModelFile
from onnxtool.model.provenance.metadata import read_history
from onnxtool.options.quantize import QuantizeOptions
from onnxtool.quantization import targets
from onnxtool.quantization.inputs import open_inputs
from onnxtool.quantization.recipe import QuantRecipe, from_dict
from onnxtool.quantization.search.search import search
from onnxtool.report.quantize import QuantizeReport
from onnxtool.runtime.runner import OnnxRunner
from tests.quantization.quant_models import build, weights


@pytest.fixture(scope="module")
def static(fixtures: Path, digits_onnx: Path, tmp_path_factory: pytest.TempPathFactory) -> QuantizeReport:
    target = tmp_path_factory.mktemp("static") / "int8.onnx"
    report: QuantizeReport = onnxtool.quantize(
        digits_onnx,
        target,
        mode="static",
        data=fixtures / "calib.npz",
        eval_data=fixtures / "eval.npz",
        labels="label",
    )
    return report


def test_int8_keeps_the_accuracy_of_the_digits_model(static: QuantizeReport, fixtures: Path) -> None:
    # judged by a session of its own, not by the report
    data = np.load(fixtures / "eval.npz")
    assert static.output is not None
    logits = OnnxRunner.open(static.output).run({"image": data["image"]})["logits"]
    accuracy = float((logits.argmax(axis=1) == data["label"]).mean())
    assert accuracy >= 0.9958 - 0.01
    assert static.metric is not None
    assert static.metric.value == pytest.approx(accuracy)
    assert static.metric.float_value == pytest.approx(716 / 719)


def test_the_file_is_small_and_runs_in_integer_kernels(static: QuantizeReport) -> None:
    assert static.output is not None
    assert static.bytes_after == Path(static.output).stat().st_size
    assert static.size_ratio < 0.3
    assert static.kernels["QLinearConv"] == 3
    assert static.kernels["QGemm"] == 2
    assert not {"Conv", "nchwc.Conv", "Gemm", "DequantizeLinear"} & set(static.kernels)
    assert static.quantized == {"Conv": (3, 3), "Gemm": (2, 2)}


def test_the_report_says_what_was_measured(static: QuantizeReport) -> None:
    assert static.ok
    assert static.latency is not None
    assert 0 < static.latency.low <= static.latency.value <= static.latency.high
    assert static.fidelity is not None
    assert static.fidelity.sqnr_db > 30
    assert static.fidelity.agreement is not None
    assert static.fidelity.agreement > 0.99
    assert static.to_dict()["schema"] == "onnxtool/quantize/2"


def test_the_file_passes_the_checker_and_carries_its_history(static: QuantizeReport, digits_onnx: Path) -> None:
    model = onnx.load(static.output)
    onnx.checker.check_model(model, full_check=True)
    (step,) = read_history({p.key: p.value for p in model.metadata_props})
    assert step["command"] == "quantize"
    assert step["source_sha256"] == io.sha256(digits_onnx)
    assert from_dict(step["recipe"]).mode == "static"


def test_the_same_call_gives_the_same_bytes(
    static: QuantizeReport, fixtures: Path, digits_onnx: Path, tmp_path: Path
) -> None:
    onnxtool.quantize(digits_onnx, tmp_path / "again.onnx", mode="static", data=fixtures / "calib.npz")
    assert static.output is not None
    assert (tmp_path / "again.onnx").read_bytes() == Path(static.output).read_bytes()


def test_dynamic_needs_no_data(digits_onnx: Path, tmp_path: Path) -> None:
    report = onnxtool.quantize(digits_onnx, tmp_path / "dynamic.onnx", mode="dynamic")
    assert report.kernels["DynamicQuantizeMatMul"] == 2
    assert report.warnings, "the error was measured on random inputs, which must be said"
    assert report.metric is None


def test_takes_arrays_and_functions(fixtures: Path, digits_onnx: Path, tmp_path: Path) -> None:
    images = np.load(fixtures / "calib.npz")["image"]
    a = onnxtool.quantize(digits_onnx, tmp_path / "a.onnx", mode="static", data={"image": images})
    b = onnxtool.quantize(digits_onnx, tmp_path / "b.onnx", mode="static", data=lambda: (i[None] for i in images))
    assert a.ok
    assert b.ok
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_judges_with_a_metric_of_the_users_own(fixtures: Path, digits_onnx: Path, tmp_path: Path) -> None:
    script = tmp_path / "metric.py"
    script.write_text("def top2(outputs, labels):\n    best = outputs['logits'].argsort(1)[:, -2:]\n"
                      "    return (best == labels[:, None]).any(1).mean()\n")  # fmt: skip
    report = onnxtool.quantize(
        digits_onnx,
        tmp_path / "q.onnx",
        mode="static",
        data=fixtures / "calib.npz",
        eval_data=fixtures / "eval.npz",
        labels="label",
        metric=f"{script}:top2",
    )
    assert report.metric.float_value >= 716 / 719
    assert report.metric.name.endswith("metric.py:top2")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"mode": "static"}, UsageError, "Random inputs"),
        ({"mode": "static", "data": "missing.npz"}, InputError, "missing.npz: no such file"),
        ({"mode": "static", "data": {"pixels": np.zeros((3, 5)), "z": 1}}, InputError, "the model takes image"),
        ({"mode": "static", "data": {"image": np.full((2, 1, 8, 8), np.nan, "f4")}}, InputError, "holds NaN"),
        ({"mode": "dynamic", "labels": "label"}, UsageError, "--labels goes with --eval"),
        ({"mode": "dynamic", "eval_data": "EVAL"}, UsageError, "--eval needs --labels"),
        ({"mode": "dynamic", "eval_data": "EVAL", "labels": "y"}, InputError, "no array 'y'"),
        ({"mode": "dynamic", "eval_data": "EVAL", "labels": "image"}, InputError, "fit none of the outputs"),
        ({"mode": "dynamic", "eval_data": "EVAL", "labels": "label", "metric": "best"}, UsageError, "--metric best"),
        ({"mode": "int3"}, UsageError, "--mode int3"),
        ({"mode": "dynamic", "op_types": ("Softmax",)}, UsageError, "--op Softmax"),
    ],
)  # fmt: skip
def test_says_what_is_wrong_and_writes_nothing(
    options: dict[str, object],
    error: type[OnnxToolError],
    words: str,
    fixtures: Path,
    digits_onnx: Path,
    tmp_path: Path,
) -> None:
    options = {k: fixtures / "eval.npz" if isinstance(v, str) and v == "EVAL" else v for k, v in options.items()}
    with pytest.raises(error, match=words):
        onnxtool.quantize(digits_onnx, tmp_path / "q.onnx", **options)
    assert list(tmp_path.iterdir()) == []


def test_may_write_over_its_input(digits_onnx: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(digits_onnx.read_bytes())
    report = onnxtool.quantize(path, path, mode="dynamic")
    assert report.bytes_before == digits_onnx.stat().st_size
    assert report.bytes_after == path.stat().st_size < report.bytes_before


@pytest.mark.parametrize(("scale", "refused"), [(255, True), (1, False)])
@pytest.mark.parametrize("kind", [np.uint8, np.int16])
def test_integers_for_a_float_input_are_refused_unless_they_are_asked_for(
    fixtures: Path, digits_onnx: Path, tmp_path: Path, scale: int, refused: bool, kind: type
) -> None:
    images = np.load(fixtures / "calib.npz")["image"][:8]
    data = {"image": (images / images.max() * scale).astype(kind)}
    if refused:
        with pytest.raises(InputError, match=r"'image' is u?int.* \(0 to 255 in the first sample\).*--data-as-is"):
            onnxtool.quantize(digits_onnx, tmp_path / "out.onnx", mode="static", data=data)
    report = onnxtool.quantize(digits_onnx, tmp_path / "out.onnx", mode="static", data=data, data_as_is=refused)
    assert report.ok and any("'image' is" in w for w in report.warnings) == refused


def _table(tmp_path: Path) -> Path:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    onnx.save(build([node], {"w": weights(8, 4)}, {"x": ["n", 8]}, {"y": ["n", 4]}), tmp_path / "table.onnx")
    return tmp_path / "table.onnx"


def test_samples_that_are_all_the_same_are_refused(tmp_path: Path) -> None:
    data = {"x": np.zeros((16, 8), np.float32)}
    with pytest.raises(InputError, match="all samples are the same"):
        onnxtool.quantize(_table(tmp_path), tmp_path / "out.onnx", mode="static", data=data)
    assert not (tmp_path / "out.onnx").exists()
    data["x"][15, 0] = 1
    report = onnxtool.quantize(_table(tmp_path), tmp_path / "out.onnx", mode="static", data=data)
    assert any("7 of 8 columns of 'x' are the same in all samples" in w for w in report.warnings)


@pytest.mark.parametrize(("varying", "said"), [(16, True), (32, False)])
def test_pictures_of_which_most_is_always_the_same_are_told(digits_onnx: Path, varying: int, said: bool) -> None:
    pictures = np.full((24, 1, 8, 8), 0.5, np.float32)
    pictures.reshape(24, 64)[:, :varying] = np.random.default_rng(0).random((24, varying))
    report = onnxtool.quantize(digits_onnx, None, mode="static", data={"image": pictures})
    assert any(f"{64 - varying} of 64 values of 'image' are the same" in w for w in report.warnings) == said


def test_a_mode_that_is_named_is_judged_on_all_samples_and_says_what_breaks_the_budget(
    digits_onnx: Path, fixtures: Path, tmp_path: Path
) -> None:
    data = {"image": np.load(fixtures / "calib.npz")["image"]}
    options = {"mode": "int4", "data": data}
    report = onnxtool.quantize(digits_onnx, tmp_path / "q.onnx", max_drop=0.5, **options)
    assert report.fidelity is not None and report.fidelity.samples == len(data["image"]) == 128
    refused = onnxtool.quantize(digits_onnx, tmp_path / "r.onnx", max_drop=1e-5, **options)
    assert "logits" in refused.verdict or "classes" in refused.verdict


def _half_wrong(outputs: dict[str, np.ndarray], labels: np.ndarray) -> float:
    """A metric that loses with every bit of noise: minus the distance to the float model's logits."""
    return -float(np.abs(outputs["logits"] - labels).mean())


@pytest.fixture(scope="module")
def strict_eval(fixtures: Path, digits_onnx: Path) -> tuple[dict[str, np.ndarray], np.ndarray]:
    data = np.load(fixtures / "eval.npz")["image"][:64]
    return {"image": data}, OnnxRunner.open(digits_onnx).run({"image": data})["logits"]


def test_a_budget_that_is_given_holds_in_a_mode_that_is_named(
    fixtures: Path, digits_onnx: Path, tmp_path: Path, strict_eval: tuple[dict[str, np.ndarray], np.ndarray]
) -> None:
    feeds, logits = strict_eval
    options = {"mode": "int4", "eval_data": feeds, "labels": logits, "metric": _half_wrong}
    refused = onnxtool.quantize(digits_onnx, tmp_path / "q.onnx", max_drop=0.0, **options)
    assert not refused.ok
    assert refused.output is None
    assert refused.metric is not None
    assert refused.metric.drop > 0.01
    assert "--max-drop" in refused.verdict
    assert not list(tmp_path.iterdir())
    allowed = onnxtool.quantize(digits_onnx, tmp_path / "q.onnx", max_drop=1.0, **options)
    assert allowed.ok
    assert not [w for w in allowed.warnings if "auto would not write" in w]


def test_a_named_mode_without_a_budget_says_that_it_loses_more_than_the_default(
    digits_onnx: Path, tmp_path: Path, strict_eval: tuple[dict[str, np.ndarray], np.ndarray]
) -> None:
    feeds, logits = strict_eval
    report = onnxtool.quantize(
        digits_onnx, tmp_path / "q.onnx", mode="int4", eval_data=feeds, labels=logits, metric=_half_wrong
    )
    assert report.ok
    assert (tmp_path / "q.onnx").exists()
    assert [w for w in report.warnings if "auto would not write" in w]


@pytest.mark.parametrize("name", ["data", "eval_data"])
def test_an_id_beyond_its_table_is_named_with_file_and_sample(name: str, tmp_path: Path) -> None:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Gather", ["table", "ids"], ["h"]), onnx.helper.make_node("MatMul", ["h", "w"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["n"])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 3])],
        [
            onnx.numpy_helper.from_array(np.ones((7, 32), np.float32), "table"),
            onnx.numpy_helper.from_array(np.ones((32, 3), np.float32), "w"),
        ],
    )
    imports = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=imports, ir_version=8), tmp_path / "m.onnx")
    np.savez(tmp_path / "bad.npz", ids=np.array([0, 1, 9, 2]), label=np.zeros(4, np.int64))
    options = {name: tmp_path / "bad.npz"} | ({"labels": "label"} if name == "eval_data" else {})
    with pytest.raises(InputError, match=r"bad\.npz, sample 2: input 'ids' holds 9"):
        onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode="dynamic", **options)
    assert not (tmp_path / "q.onnx").exists()


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_weights_have_seven_bits_where_sums_of_eight_saturate(
    mode: str, fixtures: Path, digits_onnx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for reduced in (False, True):
        monkeypatch.setattr(targets, "this_machine", lambda *_, r=reduced: targets.Target("", reduced=r, note="7 bits"))
        data = fixtures / "calib.npz"
        report = onnxtool.quantize(digits_onnx, tmp_path / "q.onnx", mode=mode, data=data)
        assert ("7-bit weights" in report.summary) == ("7 bits" in report.warnings) == reduced


def test_a_search_of_a_small_model_takes_its_ranges_from_all_samples(tmp_path: Path) -> None:
    """The last calibration sample alone is ten times as large as those that are looked at for sizes."""
    proto = build(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weights(16, 16)}, {"x": [None, 16]}, {"y": [None, 16]}
    )
    onnx.save(proto, tmp_path / "m.onnx")
    rows = np.random.default_rng(0).normal(size=(33, 16)).astype(np.float32)
    rows[32] *= 10  # the 33rd: no held-out one
    np.savez(tmp_path / "x.npz", x=rows)
    job = open_inputs(ModelFile(tmp_path / "m.onnx"), QuantizeOptions(data=str(tmp_path / "x.npz")), "extended")
    outcome = search(job, QuantRecipe(mode="auto"), 0.01, 20.0)
    recipes = [t.recipe for t in outcome.trials if t.recipe.method == "minmax" and "x" in (t.recipe.ranges or {})]
    assert recipes and all(max(map(abs, (r.ranges or {})["x"])) > 10 for r in recipes)
