"""Small files of frameworks that are whole, and whose program takes time or memory without end."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.hostile.cases import QUICK, Case, file
from tests.hostile.files import framework
from tests.hostile.frameworks import FIXTURES, folder, members, stored, swapped

HUGE = 50_000  # of which two make a square of 10 GB
SHAPE = ("--input-shape", "2,4")


def cases() -> Iterator[Case]:
    """All of them: beyond the limits (6), or refused by the framework itself (3, 4)."""
    right = framework(3, 4, 6)
    for name, content in scripts().items():
        yield Case(f"torch-{name}", file("m.pt", content), right, options=SHAPE, limit=QUICK)
    for name, change in keras_configs().items():
        content = reconfigured((FIXTURES / "digits_keras.keras").read_bytes(), change)
        yield Case(f"keras-{name}", file("m.keras", content), right, limit=QUICK)
    for name, graph in graphs().items():
        yield Case(f"framework-graph-{name}", file("m.pb", graph), right, limit=QUICK)
    saved = saved_model(initializer())
    yield Case("folder-savedmodel-that-balloons-when-loaded", folder(saved), right, limit=QUICK)
    yield Case("torch-program-that-balloons", program, right, limit=QUICK)


def scripts() -> dict[str, bytes]:
    """TorchScript: `forward` runs when the model is converted, `__setstate__` when it is loaded."""
    endless = "    while True:\n      x = torch.add(x, 1)\n    return x\n"
    hoard = (
        "    hoard = annotate(List[Tensor], [])\n    for i in range(1000000):\n"
        "      _0 = torch.append(hoard, torch.rand([1000, 1000]))\n    return torch.stack(hoard)\n"
    )
    large = f"    return torch.add(x, torch.sum(torch.ones([{HUGE}, {HUGE}])))\n"
    doubling = "    for i in range(40):\n      x = torch.cat([x, x])\n    return x\n"
    looped = "    x = torch.ones([1])\n    while True:\n      x = torch.add(x, 1)\n    self.training = False\n"
    hoarded = looped.replace("torch.add(x, 1)", "torch.cat([x, x])").replace("ones([1])", "ones([1000])")
    whole = "    return x\n"
    return {
        "script-that-never-ends": script(endless),
        "script-that-hoards": script(hoard),
        "script-of-a-giant": script(large),
        "script-that-doubles": script(doubling),
        "script-that-never-ends-when-loaded": script(whole, looped),
        "script-that-doubles-when-loaded": script(whole, hoarded),
    }


def script(forward: str, setstate: str = "") -> bytes:
    """A TorchScript archive of one module with this `forward`, and this `__setstate__` if it has one."""
    code = "class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n"
    code += f"  def forward(self: __torch__.M, x: Tensor) -> Tensor:\n{forward}"
    state = b"}X\x08\0\0\0training\x89s"
    if setstate:
        code += "  def __getstate__(self: __torch__.M) -> int:\n    return 1\n"
        code += f"  def __setstate__(self: __torch__.M, state: int) -> NoneType:\n{setstate}    return None\n"
        state = b"K\x01"
    return stored(
        {
            "m/data.pkl": b"\x80\x02c__torch__\nM\n)\x81" + state + b"b.",
            "m/code/__torch__.py": code.encode(),
            "m/constants.pkl": b"\x80\x02).",
            "m/version": b"3\n",
        }
    )


def program(where: Path) -> Path:
    """An exported program that fills a square of 10 GB; exporting works on shapes alone."""
    import torch

    class Giant(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.full((HUGE, HUGE), 1.0).sum()

    torch.export.save(torch.export.export(Giant(), (torch.zeros(2, 4),)), str(where / "m.pt2"))
    return where / "m.pt2"


def keras_configs() -> dict[str, Callable[[dict[str, Any]], object]]:
    """Layers far larger than their weights in the file."""

    def first(config: dict[str, Any], kind: str) -> dict[str, Any]:
        layers = config["config"]["layers"]
        found: dict[str, Any] = next(layer["config"] for layer in layers if layer["class_name"] == kind)
        return found

    return {
        "dense-of-a-giant": lambda config: first(config, "Dense").update(units=3 * 10**6),
        "convolution-of-a-giant": lambda config: first(config, "Conv2D").update(filters=250_000, kernel_size=[99, 99]),
        "input-of-a-giant": lambda config: first(config, "InputLayer").update(batch_shape=[None, HUGE, HUGE, 1]),
    }


def reconfigured(archive: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """A `.keras` file whose configuration is changed."""
    config = json.loads(members(archive)["config.json"])
    change(config)
    return swapped(archive, "config.json", json.dumps(config).encode())


FLOAT, INT32, STRING, BOOL = 1, 3, 7, 10


def graphs() -> dict[str, bytes]:
    """Frozen graphs of TensorFlow."""
    x = node("x", "Placeholder", dtype=typed(FLOAT), shape=shape(2, 4))
    fill = [
        *square(),
        node("y", "AddV2", ["x", "sum"], T=typed(FLOAT)),
    ]
    frame, number = text("loop"), b"\x18\x02"
    loop = [
        node(
            "in",
            "Enter",
            ["x"],
            T=typed(FLOAT),
            frame_name=frame,
            is_constant=b"\x28\x00",
            parallel_iterations=b"\x18\x01",
        ),
        node("merge", "Merge", ["in", "next"], T=typed(FLOAT), N=number),
        node("always", "Const", ["^merge"], dtype=typed(BOOL), value=scalar(BOOL, b"\x58\x01")),
        node("on", "LoopCond", ["always"]),
        node("turn", "Switch", ["merge", "on"], T=typed(FLOAT)),
        node("again", "AddV2", ["turn:1", "turn:1"], T=typed(FLOAT)),
        node("next", "NextIteration", ["again"], T=typed(FLOAT)),
        node("y", "Exit", ["turn"], T=typed(FLOAT)),
    ]
    return {"of-a-giant": b"".join([x, *fill]), "that-never-ends": b"".join([x, *loop])}


def square() -> list[bytes]:
    """Nodes that fill a square of 10 GB with ones and add them up."""
    return [
        node("sides", "Const", dtype=typed(INT32), value=ints(HUGE, HUGE)),
        node("one", "Const", dtype=typed(FLOAT), value=scalar(FLOAT, b"\x2d\0\0\x80\x3f")),
        node("square", "Fill", ["sides", "one"], T=typed(FLOAT), index_type=typed(INT32)),
        node("axes", "Const", dtype=typed(INT32), value=ints(0, 1)),
        node("sum", "Sum", ["square", "axes"], T=typed(FLOAT), Tidx=typed(INT32), keep_dims=b"\x28\x00"),
    ]


def initializer() -> list[bytes]:
    """Nodes of a graph that fills a square of 10 GB when it is initialized."""
    return [
        *square(),
        node("stays", "Greater", ["sum", "one"], T=typed(FLOAT)),
        node("init", "Assert", ["stays", "sum"], T=part(1, part(6, bytes([FLOAT])))),
        node("x", "Placeholder", dtype=typed(FLOAT), shape=shape(2, 4)),
        node("y", "Identity", ["x"], T=typed(FLOAT)),
    ]


def saved_model(nodes: Iterable[bytes]) -> dict[str, bytes]:
    """A SavedModel in the form of TensorFlow 1, whose node "init" runs when it is loaded."""

    def tensor(name: bytes) -> bytes:
        return part(1, name) + b"\x10\x01" + part(3, part(2, b"\x08\x02") + part(2, b"\x08\x04"))

    signature = part(1, part(1, b"x") + part(2, tensor(b"x:0"))) + part(2, part(1, b"y") + part(2, tensor(b"y:0")))
    signature += part(3, b"tensorflow/serving/predict")
    start = part(1, b"__saved_model_init_op") + part(
        2, part(2, part(1, b"__saved_model_init_op") + part(2, part(1, b"init")))
    )
    graph = (
        part(1, part(4, b"serve"))
        + part(2, b"".join(nodes))
        + part(5, part(1, b"serving_default") + part(2, signature))
        + part(5, start)
    )
    return {"saved_model.pb": b"\x08\x01" + part(2, graph)}


def node(name: str, operator: str, inputs: Iterable[str] = (), **attributes: bytes) -> bytes:
    """A node of a GraphDef in the wire format: so that TensorFlow need not be there to make the corpus."""
    body = part(1, name.encode()) + part(2, operator.encode())
    body += b"".join(part(3, i.encode()) for i in inputs)
    return part(1, body + b"".join(part(5, part(1, k.encode()) + part(2, v)) for k, v in attributes.items()))


def part(number: int, content: bytes) -> bytes:
    """A field with a length."""
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Seven bits at a time."""
    out = io.BytesIO()
    while value > 127:
        out.write(bytes([value & 127 | 128]))
        value >>= 7
    out.write(bytes([value]))
    return out.getvalue()


def typed(kind: int) -> bytes:
    """An attribute that is a type."""
    return b"\x30" + bytes([kind])


def text(value: str) -> bytes:
    """An attribute that is a string."""
    return part(2, value.encode())


def shape(*dims: int) -> bytes:
    """An attribute that is a shape."""
    return part(7, b"".join(part(2, b"\x08" + varint(d)) for d in dims))


def ints(*values: int) -> bytes:
    """An attribute that is a vector of 32-bit integers."""
    packed = part(7, b"".join(varint(v) for v in values))
    return part(8, b"\x08\x03" + part(2, part(2, b"\x08" + varint(len(values)))) + packed)


def scalar(kind: int, value: bytes) -> bytes:
    """An attribute that is a scalar; `value` is its field in the wire format."""
    return part(8, b"\x08" + bytes([kind]) + part(2, b"") + value)
