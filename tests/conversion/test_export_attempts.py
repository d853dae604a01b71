"""Where the first exporter's graph fails the proof, another exporter is tried, and that is said."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest

import onnxtool
from onnxtool.conversion.export_attempts import refuse_blamed
from onnxtool.conversion.pytorch import export
from onnxtool.equality.equivalence_check import EquivalenceCheck
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import UnsupportedError
from onnxtool.options.convert import ConvertOptions

torch = pytest.importorskip("torch")


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell = torch.nn.GRU(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cell(x)[0]


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_a_recurrent_network_with_time_first(tmp_path: Path) -> None:
    net = Recurrent().eval()
    report = onnxtool.convert(net, tmp_path / "out.onnx", input_shapes={"x": ("time", "batch", 3)}, effort="quick")
    assert report.ok
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    for time, batch in ((1, 1), (7, 3), (40, 2)):
        x = np.random.default_rng(time).standard_normal((time, batch, 3)).astype(np.float32)
        found = session.run(None, {"x": x})[0]
        np.testing.assert_allclose(found, net(torch.from_numpy(x)).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_wrong_graph_of_the_first_is_left_for_the_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = export._captured

    def wrong(model, flat, *rest):  # type: ignore[no-untyped-def]
        graph = plain(model, flat, *rest)
        for node in graph.graph:
            if node.op_type == "Mul":
                node.op_type = "Add"
        return graph

    monkeypatch.setattr(export, "_captured", wrong)
    report = onnxtool.convert(Doubled(), tmp_path / "out.onnx", input_shapes={"x": ("batch", 3)}, effort="quick")
    assert report.ok
    assert any("because the graph of torch.export's failed the proof" in note for note in report.notes)
    found = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": np.ones((1, 3), np.float32)})[0]
    assert found.tolist() == [[2, 2, 2]]


def test_an_exporter_that_was_asked_for_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = export._captured

    def wrong(model, flat, *rest):  # type: ignore[no-untyped-def]
        graph = plain(model, flat, *rest)
        for node in graph.graph:
            if node.op_type == "Mul":
                node.op_type = "Add"
        return graph

    monkeypatch.setattr(export, "_captured", wrong)
    report = onnxtool.convert(
        Doubled(), tmp_path / "out.onnx", input_shapes={"x": ("batch", 3)}, effort="quick", exporter="dynamo"
    )
    assert not report.ok
    assert not (tmp_path / "out.onnx").exists()


def test_adapters_have_no_other_exporter_by_default() -> None:
    from onnxtool.conversion.boosting.adapter import BoostingAdapter

    assert BoostingAdapter().export_otherwise(None, ConvertOptions()) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("off", "little"), [(1e-5, True), (0.1, False)])
def test_a_small_difference_is_put_down_to_an_operator_as_well(off: float, little: bool) -> None:
    y = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    check = EquivalenceCheck(Tolerance(1e-7, 1e-7))
    check.add({}, {"y": y}, {"y": y + np.float32(off)})
    failure = SimpleNamespace(label="length 65", feeds={})
    observed = SimpleNamespace(trials=[])
    findings = SimpleNamespace(failure=failure, report=check.report(), observed=observed)
    proof = SimpleNamespace(further=SimpleNamespace(findings=findings), probes=[])
    model = SimpleNamespace(blamed=lambda feeds: ["net.py line 7"])
    with pytest.raises(UnsupportedError, match=r"net\.py line 7; with length 65 the outputs differ") as refusal:
        refuse_blamed(model, proof, "net.pt")  # type: ignore[arg-type]
    assert ("so little that an operator of the runtime may be to blame" in str(refusal.value)) is little


def test_a_failure_that_was_made_smaller_blames_no_branch_that_it_did_not_take() -> None:
    tried = SimpleNamespace(label="some values NaN", feeds={"x": np.zeros((2, 3))})
    smaller = SimpleNamespace(label="some values NaN", feeds={"x": np.zeros((1, 3))})
    findings = SimpleNamespace(failure=smaller, report=None, observed=SimpleNamespace(trials=[tried]))
    proof = SimpleNamespace(further=SimpleNamespace(findings=findings), probes=[])
    model = SimpleNamespace(blamed=lambda feeds: ["net.py line 7"] if len(feeds["x"]) == 1 else [])
    refuse_blamed(model, proof, "net.pt")  # type: ignore[arg-type]
    tried.feeds["x"] = np.zeros((1, 3))
    with pytest.raises(UnsupportedError, match=r"net\.py line 7"):
        refuse_blamed(model, proof, "net.pt")  # type: ignore[arg-type]


def test_inputs_that_turn_the_fewest_decisions_tell_which_one_is_to_blame() -> None:
    lines = {4: ["net.py line 1", "net.py line 2"], 16: ["net.py line 3"], 32: []}
    probes = [SimpleNamespace(feeds={"x": np.zeros((2, length))}) for length in lines]
    proof = SimpleNamespace(further=None, probes=probes)
    model = SimpleNamespace(blamed=lambda feeds: lines[feeds["x"].shape[1]])
    with pytest.raises(UnsupportedError, match=r"net\.py line 3"):
        refuse_blamed(model, proof, "net.pt")  # type: ignore[arg-type]
