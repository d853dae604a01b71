"""SavedModel folders and frozen graphs: signatures, names, unsafe operators."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxtool.conversion.convert import convert, open_source
from onnxtool.conversion.source import Source
from onnxtool.conversion.tensorflow.environment import import_tensorflow, quiet
from onnxtool.conversion.tensorflow.load import refuse_unsafe
from onnxtool.errors import InputError, UnsafeError, UsageError
from onnxtool.options.convert import ConvertOptions
from onnxtool.runtime.runner import OnnxRunner
from tests.conftest import Result

WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3) / 7


@pytest.fixture(scope="module")
def tf() -> Any:
    return import_tensorflow("the tests")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, tf: Any) -> Path:
    """A SavedModel with three signatures."""
    folder = tmp_path_factory.mktemp("tensorflow") / "model"
    module = tf.Module()
    module.weight = tf.Variable(WEIGHT)
    words = tf.lookup.KeyValueTensorInitializer(["alpha", "beta"], tf.constant([3, 7], tf.int64))
    module.table = tf.lookup.StaticHashTable(words, -1)

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32, name="x")])
    def scores(x: Any) -> Any:
        return {"scores": x @ module.weight, "best": tf.argmax(x @ module.weight, axis=1)}

    @tf.function(input_signature=[tf.TensorSpec((None, None, 3), tf.float32, name="steps")])
    def mean(steps: Any) -> Any:
        return {"mean": tf.reduce_mean(steps, axis=1), "double": steps * 2.0}

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name="word")])
    def lookup(word: Any) -> Any:
        return {"id": module.table.lookup(word)}

    module.scores, module.mean, module.lookup = scores, mean, lookup
    with quiet():
        signatures = {"serving_default": scores, "mean": mean, "lookup": lookup}
        tf.saved_model.save(module, str(folder), signatures=signatures)
    return folder


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory, tf: Any) -> Path:
    """A frozen graph: x -> matmul -> softmax -> Identity."""
    folder = tmp_path_factory.mktemp("frozen")
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, 4), name="x")
        hidden = tf.matmul(x, tf.constant(WEIGHT), name="hidden")
        tf.nn.softmax(hidden, name="probabilities")
    tf.io.write_graph(graph, str(folder), "graph.pb", as_text=False)
    return folder / "graph.pb"


def test_the_default_signature_keeps_names_and_types(saved: Path, tmp_path: Path) -> None:
    report = convert(saved, tmp_path / "out.onnx")
    assert report.ok
    assert "signature serving_default" in report.form
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    assert [str(s.info()) for s in runner.inputs] == ["x: float32[batch, 4]"]
    assert {str(s.info()) for s in runner.outputs} == {"scores: float32[batch, 3]", "best: int64[batch]"}
    x = np.random.default_rng(0).standard_normal((7, 4)).astype(np.float32)
    found = runner.run({"x": x})
    np.testing.assert_allclose(found["scores"], x @ WEIGHT, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found["best"], (x @ WEIGHT).argmax(axis=1))


def test_a_chosen_signature_with_two_dynamic_dims(saved: Path, tmp_path: Path) -> None:
    assert convert(saved, tmp_path / "out.onnx", signature="mean").ok
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    assert [str(s.info()) for s in runner.inputs] == ["steps: float32[batch, length, 3]"]
    assert {str(s.info()) for s in runner.outputs} == {"mean: float32[batch, 3]", "double: float32[batch, length, 3]"}
    steps = np.random.default_rng(0).standard_normal((2, 11, 3)).astype(np.float32)
    np.testing.assert_allclose(runner.run({"steps": steps})["mean"], steps.mean(axis=1), rtol=1e-4, atol=1e-5)


def test_lookup_tables_come_along(saved: Path, tmp_path: Path) -> None:
    assert convert(saved, tmp_path / "out.onnx", signature="lookup").ok
    words = np.array(["beta", "omega", "alpha"], dtype=object)
    assert OnnxRunner.open(tmp_path / "out.onnx").run({"word": words})["id"].tolist() == [7, -1, 3]


def test_an_unknown_signature_names_the_known_ones(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="lookup, mean, serving_default"):
        convert(saved, tmp_path / "out.onnx", signature="nope")


def test_variables_of_functions_for_xla_are_frozen(tf: Any, tmp_path: Path) -> None:
    module = tf.Module()
    module.weight = tf.Variable(WEIGHT)
    compiled = tf.function(lambda x: x @ module.weight, jit_compile=True)
    module.call = tf.function(lambda x: {"y": compiled(x)}, input_signature=[tf.TensorSpec((None, 4), name="x")])
    tf.saved_model.save(module, str(tmp_path / "model"))
    assert convert(tmp_path / "model", tmp_path / "out.onnx", effort="quick").ok


def test_a_damaged_saved_model_is_an_input_error(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(b"\x08\x01\x12\xff\xff\x7f cut")
    with pytest.raises(InputError, match="damaged or cut off"):
        convert(folder, tmp_path / "out.onnx")


def test_the_command_takes_the_folder_and_stays_quiet(
    saved: Path, tmp_path: Path, onnxtool: Callable[..., Result]
) -> None:
    result = onnxtool("convert", saved, "-o", tmp_path / "out.onnx", "--signature", "mean")
    assert result.returncode == 0, result.stderr
    text = result.stdout + result.stderr
    assert "SavedModel, signature mean" in text
    for noise in ("Warning", "WARNING", "oneDNN", "absl", "tf2onnx"):
        assert noise not in text


def test_a_frozen_graph_finds_its_inputs_and_outputs(frozen: Path, tmp_path: Path) -> None:
    report = convert(frozen, tmp_path / "out.onnx")
    assert report.ok
    assert any("x:0" in note and "probabilities:0" in note for note in report.notes)
    assert [str(o) for o in report.outputs] == ["probabilities: float32[batch, 3]"]


def test_named_tensors_cut_a_frozen_graph(frozen: Path, tmp_path: Path) -> None:
    report = convert(frozen, tmp_path / "out.onnx", frozen_inputs=("x",), frozen_outputs=("hidden:0",))
    assert report.ok
    x = np.eye(4, dtype=np.float32)
    np.testing.assert_allclose(OnnxRunner.open(tmp_path / "out.onnx").run({"x": x})["hidden"], WEIGHT, rtol=1e-6)


def test_an_unknown_tensor_is_a_usage_error(frozen: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no tensor 'y:0'.*probabilities"):
        convert(frozen, tmp_path / "out.onnx", frozen_outputs=("y",))


def test_a_graph_that_writes_files_is_refused(tf: Any, tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, 2), name="x")
        with tf.control_dependencies([tf.io.write_file(str(tmp_path / "written"), "boo")]):
            tf.identity(x, name="y")
    tf.io.write_graph(graph, str(tmp_path), "graph.pb", as_text=False)
    with pytest.raises(UnsafeError, match=r"WriteFile.*--trust"):
        open_source(tmp_path / "graph.pb")
    assert not (tmp_path / "written").exists()


def test_a_saved_model_that_writes_files_is_refused_also_as_text_and_in_inner_functions(
    tf: Any, tmp_path: Path
) -> None:
    target = tmp_path / "written"
    module = tf.Module()

    @tf.function
    def inner(x: Any) -> Any:
        tf.print("boo", output_stream=f"file://{target}")
        return x * 2

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32, name="x")])
    def outer(x: Any) -> Any:
        return {"y": inner(x)}

    folder = tmp_path / "model"
    with quiet():
        tf.saved_model.save(module, str(folder), signatures={"serving_default": outer})
    with pytest.raises(UnsafeError, match=r"PrintV2.*--trust"):
        open_source(folder)

    from google.protobuf import text_format
    from tensorflow.core.protobuf import saved_model_pb2

    proto = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    (folder / "saved_model.pb").unlink()
    (folder / "saved_model.pbtxt").write_text(text_format.MessageToString(proto))
    with pytest.raises(UnsafeError, match=r"PrintV2.*--trust"):
        open_source(folder)
    (folder / "saved_model.pbtxt").write_text("meta_graphs { nonsense")
    with pytest.raises(InputError, match=r"saved_model.pbtxt is damaged"):
        open_source(folder)
    assert not target.exists()


def test_a_signature_that_saves_checkpoints_is_refused(tf: Any, tmp_path: Path) -> None:
    module = tf.Module()
    module.weight = tf.Variable(WEIGHT)

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32, name="x")])
    def call(x: Any) -> Any:
        tf.raw_ops.SaveV2(prefix=str(tmp_path / "w"), tensor_names=["a"], shape_and_slices=[""], tensors=[x])
        return {"y": x @ module.weight}

    with quiet():
        tf.saved_model.save(module, str(tmp_path / "model"), signatures={"serving_default": call})
    with pytest.raises(UnsafeError, match=r"SaveV2.*--trust"):
        open_source(tmp_path / "model")


@pytest.mark.parametrize(
    ("operator", "outside"),
    [
        *((name, True) for name in ("ReadFile", "EagerPyFunc", "TextLineDataset", "ExperimentalSqlDataset")),
        *((name, True) for name in ("TFRecordReaderV2", "DebugIdentityV3", "DecodeProtoV2", "CreateSummaryFileWriter")),
        *((name, True) for name in ("DataServiceDatasetV4", "SnapshotDatasetV2", "ImmutableConst", "RpcCall")),
        *((name, False) for name in ("SaveV2", "ScalarSummary", "MatMul", "PrintV2", "TensorSliceDataset")),
        *((name, False) for name in ("InitializeTableFromTextFileV2", "DeepCopy", "Print")),
    ],
)
def test_which_operators_reach_outside(tf: Any, operator: str, outside: bool) -> None:
    graph = tf.compat.v1.GraphDef()
    graph.node.add(op=operator)
    with pytest.raises(UnsafeError) if outside else nullcontext():
        refuse_unsafe(Source(None), graph, ConvertOptions())


def test_a_cut_off_graph_is_an_input_error(frozen: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.pb"
    cut.write_bytes(frozen.read_bytes()[:-20])
    with pytest.raises(InputError, match="damaged or cut off"):
        convert(cut, tmp_path / "out.onnx")


def test_optimizer_state_of_keras_2_is_left_aside(tf: Any, tmp_path: Path) -> None:
    from tensorflow.core.protobuf import saved_model_pb2
    from tensorflow.python.keras.optimizer_v2.adam import Adam

    module = tf.Module()
    module.weight = tf.Variable(WEIGHT)
    module.optimizer = Adam()
    module.optimizer.apply_gradients([(tf.ones_like(module.weight), module.weight)])

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32, name="x")])
    def scores(x: Any) -> Any:
        return {"scores": x @ module.weight}

    folder = tmp_path / "trained"
    with quiet():
        tf.saved_model.save(module, str(folder), signatures=scores)
    proto = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    objects = [n.user_object for n in proto.meta_graphs[0].object_graph_def.nodes]
    ours = [o for o in objects if o.identifier == "tf_deprecated_optimizer"]
    assert len(ours) == 1
    ours[0].identifier = "optimizer"  # as Keras 2 wrote it, which TensorFlow alone cannot revive
    (folder / "saved_model.pb").write_bytes(proto.SerializeToString())

    report = convert(folder, tmp_path / "out.onnx")
    assert report.ok
    x = np.ones((2, 4), np.float32)
    np.testing.assert_allclose(
        OnnxRunner.open(tmp_path / "out.onnx").run({"x": x})["scores"], x @ module.weight.numpy(), rtol=1e-5
    )


def test_an_output_with_the_key_of_an_input_gets_another_name(tf: Any, tmp_path: Path) -> None:
    module = tf.Module()
    module.call = tf.function(lambda x: {"x": 2 * x}, input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.call.get_concrete_function())
    report = convert(tmp_path / "model", tmp_path / "out.onnx", effort="quick")
    assert [o.name for o in report.outputs] == ["x_output"]
    assert any("'x' is called 'x_output'" in note for note in report.notes)
