"""Files of frameworks that are damaged, lie about their sizes, or nest without end."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.hostile.cases import Case, codes, file
from tests.hostile.files import framework, zip_bomb, zipped

FIXTURES = Path(__file__).parents[2] / "fixtures"
DEEP = 200_000


def cases() -> Iterator[Case]:
    """All of them; `convert` looks into these, to the other commands they are no model."""
    refused = framework(2, 3, 4)
    for name, content in texts().items():
        yield Case(f"framework-{name}", file(name.rpartition("-")[2], content), refused)
    for name, content in archives().items():
        yield Case(f"framework-{name}", file(name.rpartition("-")[2], content), framework(2, 3, 4, 5, 6))
    odd = swapped((FIXTURES / "digits_keras.keras").read_bytes(), "metadata.json", b'"3"')
    yield Case("framework-keras-metadata-is-text", file("m.keras", odd), framework(0, 3))
    for name, (right, content) in hdf5_files().items():
        yield Case(f"framework-hdf5-{name}", file("m.h5", content), framework(right))
    for name, members in folders().items():
        yield Case(f"folder-{name}", folder(members), codes(3, convert=(2, 3, 4, 5), compare=(2, 3, 4, 5), diff=(2, 3)))
    yield Case("folder-symlinked-savedmodel", symlinked, codes(3, convert=(3, 4, 5), compare=(3, 4, 5), diff=(2, 3)))


def texts() -> dict[str, bytes]:
    """XGBoost, LightGBM and safetensors files: JSON that nests, numbers that lie."""
    learner = {
        "learner_model_param": {"num_feature": "4", "num_class": "0", "base_score": "5E-1", "num_target": "1"},
        "objective": {"name": "reg:squarederror", "reg_loss_param": {"scale_pos_weight": "1"}},
        "gradient_booster": {
            "name": "gbtree",
            "model": {"gbtree_model_param": {"num_trees": "1000000000", "num_parallel_tree": "1"}, "trees": []},
        },
    }
    tree = {
        "tree_param": {"num_nodes": "3", "num_feature": "4", "num_deleted": "0", "size_leaf_vector": "1"},
        "left_children": [1 << 30, -1, -1],
        "right_children": [0, -1, -1],
        "parents": [0, 0, 0],
        "split_indices": [1 << 30, 0, 0],
        "split_conditions": [0.5, 1.0, 2.0],
        "default_left": [0, 0, 0],
        "base_weights": [0, 1, 2],
        "loss_changes": [0, 0, 0],
        "sum_hessian": [1, 1, 1],
        "id": 0,
        "split_type": [0, 0, 0],
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
    }
    looped = json.loads(json.dumps(learner))
    looped["gradient_booster"]["model"].update(
        gbtree_model_param={"num_trees": "1", "num_parallel_tree": "1"}, trees=[tree], tree_info=[0]
    )
    booster = "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\nmax_feature_idx=3\n"
    names = "objective=regression\nfeature_names=a b c d\nfeature_infos=[0:1] [0:1] [0:1] [0:1]\n"
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}).encode()
    twice = json.dumps({"__metadata__": {str(i): "x" for i in range(50_000)}}).encode()
    tree_text = "Tree=0\nnum_leaves=2\nnum_cat=0\nsplit_feature=0\nsplit_gain=1\n\n"
    return {
        "treeless-lightgbm.txt": (
            f"{booster}{names}tree_sizes={len(tree_text)}\n\n{tree_text}\nend of trees\n".encode()
        ),
        "nested-xgboost.json": b'{"learner":' + b"[" * DEEP + b"]" * DEEP + b"}",
        "many-trees-xgboost.json": json.dumps({"learner": learner, "version": [3, 0, 0]}).encode(),
        "looping-tree-xgboost.json": json.dumps({"learner": looped, "version": [3, 0, 0]}).encode(),
        "unclosed-xgboost.json": b'{"learner":{"gradient_booster":',
        "lying-xgboost.ubj": b"{L\0\0\0\0\0\0\0\x07learner[$d#L" + struct.pack(">q", 1 << 40),
        "header-only-lightgbm.txt": (booster + names).encode(),
        "lying-lightgbm.txt": (booster + names + "tree_sizes=99999999999\n\nTree=0\nnum_leaves=2000000000\n").encode(),
        "negative-lightgbm.txt": (booster + names + "tree_sizes=80\n\nTree=0\nnum_leaves=-5\nnum_cat=0\n").encode(),
        "negative-range-model.safetensors": struct.pack("<Q", len(header)) + header + bytes(8),
        "header-alone-model.safetensors": struct.pack("<Q", len(twice)) + twice,
        "nested-model.safetensors": struct.pack("<Q", 2 * DEEP) + b"[" * DEEP + b"]" * DEEP,
        "tflite-of-offsets-model.tflite": b"\x1c\0\0\0TFL3" + b"\xff\xff\xff\x7f" * 64,
        "catboost-of-noise-model.cbm": b"CBM1" + struct.pack("<I", 1 << 30) + bytes(200),
    }


def archives() -> dict[str, bytes]:
    """Zip archives of PyTorch, Keras and skops with parts cut off, swapped or inflated; HDF5 cut off."""
    keras = (FIXTURES / "digits_keras.keras").read_bytes()
    torch = (FIXTURES / "digits_cnn.pt").read_bytes()
    skops = (FIXTURES / "digits_forest.skops").read_bytes()
    weights = members(keras)["model.weights.h5"]
    deep = b"[" * DEEP + b"]" * DEEP
    script = {"m/version": b"3\n", "m/constants.pkl": b"\x80\x02).", "m/data.pkl": b"\x80\x02N."}
    code = zipped(script | {"m/code/__torch__/net.py": b"class Net(Module):\n  pass\n" * 9})
    packed = code.index(b"net.py") + len(b"net.py")
    program = {"m/archive_format": b"pt2", "m/archive_version": b"0", "m/models/model.json": b"{}"}
    return {
        "script-code-packed-wrongly-m.pt": code[:packed] + b"\xff" * 8 + code[packed + 8 :],
        "weights-cut-model.keras": swapped(keras, "model.weights.h5", weights[: len(weights) // 2]),
        "weights-of-noise-model.keras": swapped(keras, "model.weights.h5", weights[:64] + b"\xff" * 5000),
        "weights-missing-model.keras": swapped(keras, "model.weights.h5", None),
        "config-nested-model.keras": swapped(keras, "config.json", deep),
        "config-of-numbers-model.keras": swapped(keras, "config.json", b"[1, 2]"),
        "weights-bomb-model.keras": zip_bomb("model.weights.h5"),
        "cut-model.h5": weights[: len(weights) // 3],
        "no-model-model.h5": weights,
        "schema-nested-model.skops": swapped(skops, "schema.json", deep),
        "schema-bomb-model.skops": zip_bomb("schema.json"),
        "array-missing-model.skops": swapped(skops, next(n for n in members(skops) if n.endswith(".npy")), None),
        "children-outside-model.skops": stored({n: children_outside(c) for n, c in members(skops).items()}),
        "storage-missing-model.pt": swapped(torch, next(n for n in members(torch) if n.endswith("/data/0")), None),
        "storage-cut-model.pt": swapped(torch, next(n for n in members(torch) if n.endswith("/data/0")), b"\0" * 4),
        "script-without-code-model.pt": zipped(script),
        "script-cut-model.pt": zipped({**script, "m/code/__torch__.py": b"class M(Module):\n" * 50})[:-60],
        "script-that-writes-model.pt": zipped(
            {
                **script,
                "m/code/__torch__.py": b"class M(Module):\n  def forward(self, x: Tensor) -> Tensor:\n"
                b'    torch.save(x, "ran")\n    return x\n',
            }
        ),
        "script-of-noise-model.pt": zipped({**script, "m/code/__torch__.py": b"\xff\xfe" * 500}),
        "program-empty-model.pt2": zipped(program),
        "program-nested-model.pt2": zipped({**program, "m/models/model.json": deep}),
        "program-of-lies-model.pt2": zipped(
            {**program, "m/models/model.json": b'{"graph_module": 1, "opset_version": {"aten": -1}}'}
        ),
    }


def hdf5_files() -> dict[str, tuple[int, bytes]]:
    """HDF5 that takes its bytes from other files or declares what is not there; each with its right exit code."""
    try:
        import h5py
    except ImportError:
        return {}

    def made(fill: Callable[[Any], object]) -> bytes:
        buffer = io.BytesIO()
        with h5py.File(buffer, "w") as model:
            model.create_group("model_weights/dense")
            fill(model["model_weights/dense"])
        return buffer.getvalue()

    virtual = h5py.VirtualLayout((4,), "f4")
    virtual[:] = h5py.VirtualSource("/etc/other.h5", "d", (4,))
    broken = made(lambda group: group.create_dataset("w", data=np.zeros(4)))
    return {
        "external-bytes": (
            5,
            made(lambda group: group.create_dataset("w", (4,), "f4", external=[("/etc/passwd", 0, 16)])),
        ),
        "external-link": (5, made(lambda group: group.update(w=h5py.ExternalLink("/etc/other.h5", "/d")))),
        "virtual": (5, made(lambda group: group.create_virtual_dataset("w", virtual))),
        "bomb": (6, made(lambda group: group.create_dataset("w", (1 << 20, 1 << 20), "f4", chunks=(1024, 1024)))),
        "broken-node": (3, broken.replace(b"SNOD", b"SNAD")),
    }


def folders() -> dict[str, dict[str, bytes]]:
    """Folders of Hugging Face and TensorFlow."""
    deep = b"[" * DEEP + b"]" * DEEP
    bert = {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 1 << 40, "num_hidden_layers": 1 << 30}
    remote = {"model_type": "evil", "auto_map": {"AutoModel": "evil.Model"}, "architectures": ["Model"]}
    return {
        "config-nested": {"config.json": deep, "model.safetensors": b""},
        "config-no-object": {"config.json": b"[]", "model.safetensors": b""},
        "config-of-a-giant": {"config.json": json.dumps(bert).encode(), "model.safetensors": b""},
        "config-with-code": {
            "config.json": json.dumps(remote).encode(),
            "evil.py": b"open('ran', 'w')\nclass Model: pass\n",
            "model.safetensors": struct.pack("<Q", 2) + b"{}",
        },
        "savedmodel-of-noise": {"saved_model.pb": b"\xff" * 500, "variables/variables.index": b"\0" * 50},
        "savedmodel-as-text-that-writes": {
            "saved_model.pbtxt": b'saved_model_schema_version: 1 meta_graphs { graph_def { node { op: "WriteFile" } } }'
        },
        "savedmodel-empty": {"saved_model.pb": b""},
        "empty": {},
    }


def children_outside(content: bytes) -> bytes:
    """A tree's nodes with children that are far beyond its end; other content as it is."""
    if not content.startswith(b"\x93NUMPY"):
        return content
    array = np.load(io.BytesIO(content))
    if "left_child" not in (array.dtype.names or ()):
        return content
    array["left_child"][0] = 1 << 40
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def folder(content: dict[str, bytes]) -> Callable[[Path], Path]:
    """A writer of a folder."""

    def write(where: Path) -> Path:
        made = where / "model"
        made.mkdir()
        for name, data in content.items():
            (made / name).parent.mkdir(exist_ok=True)
            (made / name).write_bytes(data)
        return made

    return write


def symlinked(where: Path) -> Path:
    """A SavedModel whose variables lie elsewhere."""
    made = folder({"saved_model.pb": b"\x08\x01\x12\x00"})(where)
    (where / "elsewhere").mkdir()
    (where / "elsewhere" / "variables.index").write_bytes(b"S" * 4096)
    (made / "variables").symlink_to("../elsewhere")
    return made


def members(archive: bytes) -> dict[str, bytes]:
    """What a zip archive holds."""
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def swapped(archive: bytes, member: str, content: bytes | None) -> bytes:
    """The archive with another content of a member, or without it."""
    held = members(archive)
    if content is None:
        del held[member]
    else:
        held[member] = content
    return stored(held)


def stored(held: dict[str, bytes]) -> bytes:
    """An archive without compression, as PyTorch needs it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as packed:
        for name, content in held.items():
            packed.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()
