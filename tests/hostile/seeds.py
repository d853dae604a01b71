"""Small whole files of the frameworks, and changes to them that are likely to get past the first look."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.hostile.frameworks import members, stored
from tests.hostile.mutations import change_bytes, change_field

# How a file of this name is converted, where its name alone does not do.
OPTIONS = {
    "script.pt": ("--input-shape", "2,4"),
    "recurrent.pt": ("--input-shape", "2,5,4"),
    "digits_cnn.pt": ("--factory", str(Path(__file__).parents[2] / "fixtures" / "digits_cnn.py") + ":make"),
}
OPTIONS["digits_cnn.pt"] += ("--input-shape", "batch,1,8,8")
_PROTOS = {
    "saved_model.pb": ("tensorflow.core.protobuf.saved_model_pb2", "SavedModel"),
    "graph.pb": ("tensorflow.core.framework.graph_pb2", "GraphDef"),
}


def server(name: str) -> str:
    """Which libraries the process that converts a seed has imported before it forks; see `warm_process.warm`."""
    end = name.rpartition(".")[2]
    if end in ("pt", "pt2", "safetensors"):
        return "pytorch"
    return "tensorflow" if end in ("keras", "h5", "pb", "tflite") else "trees"


def change_named(name: str, content: bytes, generator: np.random.Generator) -> bytes:
    """Change a file: fields of TensorFlow's graphs, else as `change_file`."""
    if name not in _PROTOS or generator.random() < 0.3:
        return change_file(content, generator)
    from importlib import import_module

    module, kind = _PROTOS[name]
    graph = getattr(import_module(module), kind).FromString(content)
    for _ in range(int(generator.integers(1, 4))):
        change_field(graph, generator)
    changed: bytes = graph.SerializeToString()
    return changed


def change_file(content: bytes, generator: np.random.Generator) -> bytes:
    """Change a framework's file: a member of an archive, a value of a JSON text, or bytes."""
    if content.startswith(b"PK") and generator.random() < 0.8:
        held = members(content)
        name = list(held)[int(generator.integers(0, len(held)))]
        kind = generator.random()
        if kind < 0.1:
            del held[name]
        else:
            held[name] = change_file(held[name], generator)
        return stored(held)
    if content[:1] == b"{" and generator.random() < 0.7:
        try:
            return json.dumps(change_json(json.loads(content), generator)).encode()
        except ValueError:
            pass
    return change_bytes(content, generator)


def change_json(value: Any, generator: np.random.Generator) -> Any:
    """Put something else in one place."""
    odd: tuple[Any, ...] = (None, -1, 0, 1 << 40, 1e300, "", "x", [], {}, True, "-1", [[]], "os.system")
    if isinstance(value, (dict, list)) and value and generator.random() < 0.9:
        key = list(value)[int(generator.integers(0, len(value)))] if isinstance(value, dict) else None
        place = key if key is not None else int(generator.integers(0, len(value)))
        if generator.random() < 0.05:
            del value[place]
        else:
            value[place] = change_json(value[place], generator)
        return value
    return odd[int(generator.integers(0, len(odd)))]


def seeds() -> list[dict[str, bytes]]:
    """Small whole files of the frameworks that are installed, by name; the first of a group is given to the command."""
    found: list[dict[str, bytes]] = []
    data = np.random.default_rng(0).random((60, 4))
    target = (data[:, 0] > data[:, 1]).astype(int)
    with tempfile.TemporaryDirectory() as name:
        where = Path(name)
        for make in (_boosted, _torch, _keras, _transformers):
            try:
                make(where, data, target)
            except ImportError:
                continue
        for path in sorted(where.iterdir()):
            files = sorted((p for p in path.rglob("*") if p.is_file()), key=_first) if path.is_dir() else [path]
            root = path if path.is_dir() else where
            found.append({str(p.relative_to(root)): p.read_bytes() for p in files})
    return found


def _first(path: Path) -> tuple[bool, str]:
    return path.name not in ("saved_model.pb", "config.json"), str(path)


def _boosted(where: Path, data: np.ndarray, target: np.ndarray) -> None:
    import lightgbm
    import xgboost

    for suffix in ("json", "ubj"):
        model = xgboost.XGBClassifier(n_estimators=3, max_depth=2).fit(data, target)
        model.save_model(where / f"xgboost.{suffix}")
    made = lightgbm.LGBMClassifier(n_estimators=3, num_leaves=4, min_child_samples=2, verbose=-1).fit(data, target)
    made.booster_.save_model(where / "lightgbm.txt")


def _torch(where: Path, data: np.ndarray, target: np.ndarray) -> None:
    import torch
    from safetensors.torch import save_file

    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2)).eval()
    example = torch.zeros(2, 4)
    torch.jit.trace(model, example).save(str(where / "script.pt"))
    torch.jit.trace(torch.nn.LSTM(4, 3, batch_first=True), torch.zeros(2, 5, 4)).save(str(where / "recurrent.pt"))
    torch.export.save(torch.export.export(model, (example,)), str(where / "program.pt2"))
    torch.save(model.state_dict(), where / "weights.pt")  # neither has the model's code, so both are refused
    save_file(model.state_dict(), where / "weights.safetensors")


def _keras(where: Path, data: np.ndarray, target: np.ndarray) -> None:
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "relu"), keras.layers.Dense(2)])
    model.save(where / "small.keras")
    model.save(where / "small.h5")
    model.export(where / "saved", verbose=False)
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    (where / "small.tflite").write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
    recurrent = keras.Sequential([keras.Input((None, 3)), keras.layers.LSTM(4), keras.layers.Dense(2)])
    recurrent.save(where / "recurrent.keras")
    convolution = keras.Sequential(
        [keras.Input((8, 8, 1)), keras.layers.Conv2D(2, 3), keras.layers.BatchNormalization(), keras.layers.Flatten()]
    )
    called = tf.function(convolution).get_concrete_function(tf.TensorSpec([None, 8, 8, 1], tf.float32))
    frozen = convert_variables_to_constants_v2(called).graph.as_graph_def()
    (where / "graph.pb").write_bytes(frozen.SerializeToString())


def _transformers(where: Path, data: np.ndarray, target: np.ndarray) -> None:
    import transformers

    small = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 1}
    transformers.BertModel(transformers.BertConfig(**small, vocab_size=20)).save_pretrained(where / "bert")
