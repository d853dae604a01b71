"""The rules of check: each fires on a model made for it, and keeps quiet on the same model put right."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.errors import InputError, UsageError
from onnxtool.lint.catalog import RULES
from onnxtool.lint.check import check, check_all, explain
from onnxtool.model import io
from onnxtool.model.provenance.metadata import add_history
from onnxtool.optimization.optimize import optimize
from onnxtool.report.check import Severity

Node = onnx.NodeProto
LARGE = np.linspace(0.1, 1.7, 64 * 64, dtype=np.float32).reshape(64, 64)


def node(operator: str, inputs: list[str], outputs: list[str], **attributes: object) -> Node:
    return helper.make_node(operator, inputs, outputs, name=f"{operator}_{outputs[0]}", **attributes)


def model(
    nodes: list[Node],
    weights: dict[str, np.ndarray] | None = None,
    *,
    inputs: dict[str, tuple[int, list[int | str]]] | None = None,
    outputs: dict[str, tuple[int, list[int | str]]] | None = None,
    opset: int = 20,
    domain: str | None = None,
) -> onnx.ModelProto:
    def infos(specs: dict[str, tuple[int, list[int | str]]]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(n, t, d) for n, (t, d) in specs.items()]

    graph = helper.make_graph(
        nodes,
        "g",
        infos(inputs or {"x": (TensorProto.FLOAT, ["n", 64])}),
        infos(outputs or {"y": (TensorProto.FLOAT, ["n", 64])}),
        [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="test")


def relu(**options: object) -> onnx.ModelProto:
    return model([node("Relu", ["x"], ["y"])], **options)  # type: ignore[arg-type]


def product(weight: np.ndarray, **more: np.ndarray) -> onnx.ModelProto:
    return model([node("MatMul", ["x", "w"], ["y"])], {"w": weight, **more})


def changed(base: onnx.ModelProto, change: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
    change(base)
    return base


def with_value(value: float) -> np.ndarray:
    weight = LARGE.copy()
    weight[3, 5] = value
    return weight


def batchnorm(extra_reader: bool) -> onnx.ModelProto:
    weights = {"w": np.ones((4, 4, 1, 1), np.float32)} | {n: np.ones(4, np.float32) for n in ("s", "b", "m", "v")}
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("BatchNormalization", ["c", "s", "b", "m", "v"], ["bn"]),
        node("Add", ["bn", "c"], ["y"]) if extra_reader else node("Relu", ["bn"], ["y"]),
    ]
    edge = (TensorProto.FLOAT, ["n", 4, 2, 2])
    return model(nodes, weights, inputs={"x": edge}, outputs={"y": edge})  # type: ignore[dict-item]


def quantized(both: bool) -> onnx.ModelProto:
    weights = {"s": np.array(0.1, np.float32), "z": np.array(0, np.uint8), "w": LARGE}
    weights |= {"wq": np.ones((64, 64), np.int8), "ws": np.array(0.1, np.float32), "wz": np.array(0, np.int8)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["wq", "ws", "wz"], ["wd"]),
        node("MatMul", ["d", "wd" if both else "w"], ["h"]),
        node("MatMul", ["h", "w"], ["y"]),
    ]
    return model(nodes, weights)


def doubled_transpose(times: int) -> onnx.ModelProto:
    names = ["x", *(f"t{i}" for i in range(times - 1)), "y"]
    nodes = [node("Transpose", [a], [b], perm=[1, 0]) for a, b in pairwise(names)]
    square = (TensorProto.FLOAT, [8, 8])
    return model(nodes, inputs={"x": square}, outputs={"y": square})  # type: ignore[dict-item]


def scaled(scale: float) -> onnx.ModelProto:
    weights = {"s": np.array(scale, np.float32), "z": np.array(0, np.uint8)}
    return model(
        [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])], weights
    )


def stored_as(kind: type) -> onnx.ModelProto:
    return product(LARGE.astype(np.float16).astype(np.float32) if kind is np.float16 else LARGE)


def constant_part(constant: bool) -> onnx.ModelProto:
    source = "w" if constant else "x"
    nodes = [node("Neg", [source], ["h"]), node("Add", ["x", "h"], ["y"])]
    return model(nodes, {"w": np.ones(64, np.float32)})


def two_weights(same: bool) -> onnx.ModelProto:
    weights = {"w": LARGE, "v": LARGE.copy() if same else LARGE + 1}
    return model([node("MatMul", ["x", "w"], ["h"]), node("MatMul", ["h", "v"], ["y"])], weights)


def two_layers(zeros: float) -> onnx.ModelProto:
    generator = np.random.default_rng(0)
    weights = {"w": generator.standard_normal((64, 512)), "v": generator.standard_normal((512, 64))}
    sparse = {n: (w * (generator.random(w.shape) >= zeros)).astype(np.float32) for n, w in weights.items()}
    return model([node("MatMul", ["x", "w"], ["h"]), node("MatMul", ["h", "v"], ["y"])], sparse)


def leaky(reference: bool) -> onnx.ModelProto:
    """A LeakyRelu in a function that takes its slope, and in the graph where nothing could give one."""
    body = helper.make_node("LeakyRelu", ["a"], ["b"])
    body.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    made = model([node("F", ["x"], ["h"], domain="f", slope=0.5), node("LeakyRelu", ["h"], ["y"])], domain="f")
    imports = [helper.make_opsetid("", 20)]
    made.functions.append(helper.make_function("f", "F", ["a"], ["b"], [body], imports, ["slope"]))
    if reference:
        made.graph.node[1].attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    return made


F, D, I64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64
ROWS: list[int | str] = ["n", 64]
# id -> (a model where it fires, the same without the cause)
CASES: dict[str, tuple[Callable[[], onnx.ModelProto], Callable[[], onnx.ModelProto]]] = {
    "OT010": (lambda: relu(inputs={"x": (F, ROWS), "u": (F, ROWS)}), relu),
    "OT011": (
        lambda: changed(two_weights(False), lambda m: [setattr(n, "name", "same") for n in m.graph.node]),
        lambda: two_weights(False),
    ),
    "OT012": (lambda: relu(opset=11), relu),
    "OT013": (
        lambda: changed(relu(), lambda m: m.opset_import.add(domain="ai.onnx", version=19)),
        # As skl2onnx writes forests: one version twice.
        lambda: changed(relu(), lambda m: m.opset_import.extend([*m.opset_import, *m.opset_import])),
    ),
    "OT014": (lambda: leaky(True), lambda: leaky(False)),
    "OT120": (
        lambda: model([node("RandomNormalLike", ["x"], ["r"]), node("Add", ["x", "r"], ["y"])]),
        relu,
    ),
    "OT201": (
        lambda: model([node("Gelu", ["x"], ["y"], domain="com.microsoft")], domain="com.microsoft"),
        relu,
    ),
    "OT202": (lambda: relu(inputs={"x": (D, ROWS)}, outputs={"y": (D, ROWS)}), relu),
    "OT203": (
        lambda: model([node("Cast", ["x"], ["y"], to=F)], inputs={"x": (I64, ROWS)}),
        relu,
    ),
    "OT204": (lambda: relu(inputs={"x": (F, ["n", "k"])}, outputs={"y": (F, ["n", "k"])}), relu),
    "OT206": (lambda: model([node("Sign", ["x"], ["y"])]), relu),
    "OT207": (lambda: model([node("Erf", ["x"], ["y"])]), relu),
    "OT301": (lambda: batchnorm(False), lambda: batchnorm(True)),
    "OT302": (lambda: doubled_transpose(2), lambda: doubled_transpose(1)),
    "OT303": (lambda: constant_part(True), lambda: constant_part(False)),
    "OT304": (lambda: model([node("Identity", ["x"], ["i"]), node("Relu", ["i"], ["y"])]), relu),
    "OT305": (lambda: quantized(False), lambda: quantized(True)),
    "OT401": (lambda: product(with_value(np.nan)), lambda: product(LARGE)),
    "OT402": (lambda: product(with_value(-np.inf)), lambda: product(LARGE)),
    "OT403": (lambda: product(LARGE * np.float32(1e-39)), lambda: product(LARGE)),
    "OT404": (lambda: product(with_value(1e5)), lambda: product(LARGE)),
    "OT405": (lambda: scaled(0.0), lambda: scaled(0.5)),
    "OT501": (lambda: product(LARGE, unused=np.ones(3, np.float32)), lambda: product(LARGE)),
    "OT502": (lambda: two_weights(True), lambda: two_weights(False)),
    "OT503": (lambda: product(np.full((64, 64), 0.3, np.float32)), lambda: product(LARGE)),
    "OT505": (lambda: stored_as(np.float16), lambda: stored_as(np.float32)),
    "OT506": (lambda: two_layers(0.9), lambda: two_layers(0.0)),
    "OT601": (lambda: changed(relu(), lambda m: setattr(m, "doc_string", "made in /home/someone/secret")), relu),
    "OT602": (
        lambda: changed(relu(), lambda m: setattr(m.graph.node[0], "doc_string", 'File "a.py", line 3, in f')),
        relu,
    ),
    "OT603": (lambda: changed(relu(), lambda m: setattr(m.graph.node[0], "name", "\x1b[2Jx")), relu),
    "OT701": (lambda: changed(relu(), lambda m: m.ClearField("producer_name")), relu),
    "OT702": (relu, lambda: changed(relu(), lambda m: m.metadata_props.add(key="license", value="MIT"))),
}


@pytest.mark.parametrize("identifier", CASES)
def test_rule_fires_on_its_cause_and_only_then(identifier: str, tmp_path: Path) -> None:
    for make, expected in zip(CASES[identifier], (True, False), strict=True):
        path = tmp_path / f"{expected}.onnx"
        path.write_bytes(make().SerializeToString())
        report = check(path)
        assert identifier not in {f.id for f in report.findings} or expected
        assert identifier in {f.id for f in report.findings} or not expected
        # ONNX Runtime refuses nodes of one name, which the specification allows.
        wrong = [f.message for f in report.findings if f.severity is Severity.ERROR]
        assert report.ok or identifier in ("OT011", "OT013", "OT014"), wrong


def test_every_rule_has_a_test() -> None:
    # Stages: tests/lint/test_check.py. What providers take: test_quantized_forms.py. The rest: below.
    elsewhere = {f"OT{n:03}" for n in (1, 2, 3, 101, 102, 103, 104, 111, 112, 113, 114, 115, 116)}
    below = {"OT205", "OT504", "OT604", "OT605", "OT703"}
    assert set(RULES) == set(CASES) | elsewhere | {"OT208", "OT209"} | below


@pytest.mark.parametrize("identifier", [i for i, r in RULES.items() if r.fix == "Run: onnxtool optimize."])
def test_what_optimize_is_advised_for_it_mends(identifier: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(CASES[identifier][0]().SerializeToString())
    assert identifier in {f.id for f in check(path).findings}
    assert optimize(path, tmp_path / "o.onnx", bench=False).ok
    assert identifier not in {f.id for f in check(tmp_path / "o.onnx").findings}


def transposes(*perms: list[int], read: bool = False, out: bool = False) -> onnx.ModelProto:
    """A chain of transposes; what the first gives is also read by another node, or an output."""
    nodes = [node("Transpose", [f"t{i}"], [f"t{i + 1}"], perm=p) for i, p in enumerate(perms)]
    nodes[0].input[0] = "x"
    nodes.append(node("Relu", [f"t{len(perms)}"], ["y"]))
    outputs: dict[str, tuple[int, list[int | str]]] = {"y": (F, ["a", "b", "c"])}
    if read:
        nodes.append(node("Neg", ["t1"], ["z"]))
        outputs["z"] = (F, ["d", "e", "f"])
    if out:
        outputs["t1"] = (F, ["d", "e", "f"])
    return model(nodes, inputs={"x": (F, ["i", "j", "k"])}, outputs=outputs)


TURN, TURN_BACK = [1, 2, 0], [2, 0, 1]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: transposes(TURN, TURN), 1),
        (lambda: transposes(TURN, TURN, read=True), 0),  # one for each reader either way
        (lambda: transposes(TURN, TURN, out=True), 0),
        (lambda: transposes(TURN, TURN_BACK, read=True), 1),
        (lambda: transposes(TURN, TURN_BACK, out=True), 1),
    ],
)
def test_transposes_are_told_only_where_one_can_go(
    made: Callable[[], onnx.ModelProto], expected: int, tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(made().SerializeToString())
    assert len(check(path, select=["OT302"]).findings) == expected
    before = len(made().graph.node)
    report = optimize(path, tmp_path / "o.onnx", bench=False)
    assert (len(onnx.load(tmp_path / "o.onnx").graph.node) < before) == bool(expected), report
    assert not check(tmp_path / "o.onnx", select=["OT302"]).findings


def test_an_identity_between_input_and_output_has_to_stay(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model([node("Identity", ["x"], ["y"])]).SerializeToString())
    assert not check(path, select=["OT304"]).findings


def test_targets_tell_what_they_lack(tmp_path: Path) -> None:
    nodes = [
        node("Erf", ["x"], ["a"]),
        node("Sign", ["a"], ["b"]),
        node("Sign", ["b"], ["y"]),
        node("Sign", ["w"], ["c"]),
    ]
    path = tmp_path / "m.onnx"
    path.write_bytes(model(nodes, {"w": LARGE}).SerializeToString())
    told = [f.message for f in check(path, select=["OT206", "OT207"]).findings]
    # The Sign of a weight is computed before any target sees it.
    assert told == ["WebGPU lacks Sign (2)", "Core ML lacks Sign (2)", "NNAPI lacks Sign (2), Erf (1)"]


@pytest.mark.parametrize(
    ("domain", "advice", "never"),
    [("com.microsoft", "without --level all", "library"), ("com.mine", "--custom-op-library", "--level all")],
)
def test_operators_outside_the_standard_get_the_advice_that_fits_their_owner(
    tmp_path: Path, domain: str, advice: str, never: str
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model([node("Gelu", ["x"], ["y"], domain=domain)], domain=domain), path)
    (finding,) = (f for f in check(path).findings if f.id == "OT201")
    assert advice in finding.fix and never not in finding.fix


def test_a_missing_operator_is_told_with_its_opset(tmp_path: Path) -> None:
    # A type that no kernel of the runtime takes: the operator itself is old.
    edge = {"x": (TensorProto.UINT16, ["n", 64])}
    made = model(
        [node("Einsum", ["x"], ["y"], equation="nk->kn")], inputs=edge, outputs={"y": (TensorProto.UINT16, [64, "n"])}
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    (found,) = check(path, select=["OT102"]).findings
    assert "Einsum exists since opset 12" in found.message


def test_sequence_output_is_told(tmp_path: Path) -> None:
    sequence = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    made = model([node("SplitToSequence", ["x"], ["y"], axis=0)], inputs={"x": (F, [4, 2])})
    made.graph.output[0].CopyFrom(sequence)
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    assert [f.where for f in check(path, select=["OT205"]).findings] == ["y"]


def test_absurd_dims_are_told(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(
        relu(inputs={"x": (F, [1 << 31, 1 << 31])}, outputs={"y": (F, [1 << 31, 1 << 31])}).SerializeToString()
    )
    assert "OT604" in {f.id for f in check(path).findings}


def test_external_weights_are_checked_too(tmp_path: Path) -> None:
    weight = with_value(np.nan)
    onnx.save(product(weight), tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    found = {f.id: f.where for f in check(tmp_path / "m.onnx").findings}
    assert "OT605" in found
    assert found["OT401"] == "w"


def test_near_the_limit_of_protobuf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(product(LARGE).SerializeToString())
    assert not check(path, select=["OT504"]).findings
    monkeypatch.setattr("onnxtool.lint.rules.weights.PROTOBUF_LIMIT", 17_000)
    assert check(path, select=["OT504"]).findings


def test_history_is_provenance(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(relu().SerializeToString())
    assert check(path, select=["OT703"]).findings
    lifted = io.load(path)
    add_history(lifted, "optimize", {})
    io.save(lifted, path)
    assert not check(path, select=["OT703"]).findings


def test_select_and_ignore_take_ids_beginnings_and_families(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(relu(opset=11).SerializeToString())

    def found(**options: list[str]) -> set[str]:
        return {f.id for f in check(path, **options).findings}  # type: ignore[arg-type]

    assert found(select=["ot012"]) == {"OT012"}
    assert found(select=["OT7"]) == found(select=["metadata"]) == {"OT702", "OT703"}
    assert "OT012" not in found(ignore=["specification"])
    assert found(select=["OT7"], ignore=["OT702"]) == {"OT703"}
    with pytest.raises(UsageError, match="OT999"):
        found(select=["OT999"])


def test_folders_patterns_and_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.onnx").write_bytes(relu().SerializeToString())
    (tmp_path / "sub" / "b.onnx").write_bytes(product(with_value(np.nan)).SerializeToString())
    both = check_all([tmp_path])
    assert [Path(r.model).name for r in both.reports] == ["a.onnx", "b.onnx"]
    assert both.ok
    assert not check_all([tmp_path], fail_on=Severity.WARNING).ok
    assert len(check_all([str(tmp_path / "*.onnx")]).reports) == 1
    (tmp_path / "bad.onnx").write_text("text")
    report = check_all([tmp_path])
    assert not report.ok
    assert [u.exit_code for u in report.unreadable] == [3]
    with pytest.raises(InputError, match=r"no \.onnx file"):
        check_all([str(tmp_path / "*.nothing")])


def test_explain() -> None:
    assert [r.id for r in explain(["ot301"]).rules] == ["OT301"]
    assert len(explain(["all"]).rules) == len(RULES)
    with pytest.raises(UsageError, match="no such finding"):
        explain(["OT000"])
