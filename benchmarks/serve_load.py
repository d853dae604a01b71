"""`onnxtool serve` under a mixed load: every answer is held against a run of the same inputs alone.

    python benchmarks/serve_load.py [--requests 100000] [--clients 32] [--faults] [-- OPTIONS OF serve]

Clients send requests of eight models, of different batch sizes, lengths and element types, in JSON and in binary. With
`--faults` a process of a model is killed every 2 s, clients send slowly or leave before their answer, model files are
replaced by equal ones, and SIGTERM comes while clients still send. Exit code 1 if a request is lost, gets a wrong
answer, or fails though its process was not killed.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

from onnxtool.options.session import SessionOptions
from onnxtool.runtime.protocol_v2.tensors import (
    HEADER_LENGTH,
    decode_response,
    encode_request,
)
from onnxtool.runtime.runner import OnnxRunner

sys.path.insert(0, str(Path(__file__).parent))
from serve import DIGITS, Server

_HEAD = '<ir_version: 10, opset_import: ["" : 20]> m '
_WEIGHTS = {"w": (16, 32), "v": (32, 4)}
_MLP = "h = Relu(a) \n y = MatMul(h, v)"
# Graphs whose rows are independent, and some whose rows are not: what is joined with others gives other answers there.
_GRAPHS = {
    "sums": "(int64[n, t] x) => (int64[n, t] y) { axis = Constant <value_int = 1> () \n y = CumSum(x, axis) }",
    "mlp": f"(float[n, 16] x) => (float[n, 4] y) {{ a = MatMul(x, w) \n {_MLP} }}",
    "far": """(float[n, 16] x) => (float[n, 16] y) {
        zero = Constant <value_ints = [0]> () \n thousand = Constant <value_float = 1000.0> ()
        d = Sub(x, thousand) \n r = Relu(d) \n s = ReduceSum <keepdims = 1> (r, zero) \n y = Add(x, s) }""",
    "quantized": f"""(float[n, 16] x) => (float[n, 4] y) {{
        q, s, z = DynamicQuantizeLinear(x) \n d = DequantizeLinear(q, s, z) \n a = MatMul(d, w) \n {_MLP} }}""",
    "texts": "(string[n] x, string[n] u) => (string[n] y) { y = StringConcat(x, u) }",
    "halves": "(float16[n, 5] x) => (float16[n, 5] y, bool[n, 5] b) { y = Add(x, x) \n b = Greater(y, x) }",
    "doubles": "(double[n, t] x, uint8[n, t] u) => (double[n, t] y) { f = Cast <to = 11> (u) \n y = Mul(x, f) }",
}


@dataclass
class Case:
    """One request and its answer: both are made once."""

    model: str
    body: bytes
    headers: dict[str, str]
    expected: dict[str, np.ndarray]


def build(folder: Path) -> dict[str, Path]:
    """Write the models."""
    generator = np.random.default_rng(0)
    paths = {}
    for name, text in _GRAPHS.items():
        proto = parser.parse_model(_HEAD + text)
        for weight, shape in _WEIGHTS.items():
            if any(weight in node.input for node in proto.graph.node):
                values = generator.standard_normal(shape, np.float32)
                proto.graph.initializer.append(numpy_helper.from_array(values, weight))
        paths[name] = folder / f"{name}.onnx"
        onnx.save(proto, paths[name])
    paths["digits"] = Path(shutil.copy(DIGITS, folder / "digits.onnx"))
    return paths


def feeds_of(runner: OnnxRunner, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Inputs of one size for each named dim; one number in twenty is far out."""
    sizes: dict[object, int] = {}
    found = {}
    for spec in runner.inputs:
        shape = [d if isinstance(d, int) else sizes.setdefault(d, int(generator.choice([1, 1, 2, 3, 7, 40])))
                 for d in spec.shape or ()]  # fmt: skip
        if isinstance(spec.dtype, str):
            texts = ["", "a", "naïve", "字", "x" * 300]
            found[spec.name] = generator.choice(np.array(texts, object), shape)
        elif spec.dtype.kind in "iu":
            found[spec.name] = generator.integers(0, 100, shape).astype(spec.dtype)
        else:
            values = generator.standard_normal(shape)
            found[spec.name] = np.where(generator.random(shape) < 0.05, 1500 * values, values).astype(spec.dtype)
    return found


def make_cases(paths: dict[str, Path], each: int) -> list[Case]:
    generator, cases = np.random.default_rng(1), []
    for name, path in paths.items():
        runner = OnnxRunner.open(path, SessionOptions())
        for number in range(each):
            feeds = feeds_of(runner, generator)
            parts, length = encode_request(feeds, binary=number % 4 != 0)
            headers = {HEADER_LENGTH: str(length)} if number % 4 else {}
            cases.append(Case(name, b"".join(parts), headers, dict(runner.run(feeds))))
    return cases


def is_right(case: Case, found: dict[str, np.ndarray], *, joined: bool) -> bool:
    """Bit-equal; where requests may be joined, floats may differ as sums of other lengths do."""
    if list(found) != list(case.expected):
        return False
    for name, expected in case.expected.items():
        have = found[name]
        if have.shape != expected.shape or (have.dtype != expected.dtype and expected.dtype.kind not in "OUS"):
            return False
        if np.array_equal(have, expected):
            continue
        scale = float(np.abs(expected).max(initial=0.0)) if expected.dtype.kind == "f" else 0.0
        if not joined or not np.allclose(have, expected, rtol=1e-5, atol=1e-6 * scale):
            return False
    return True


class Load:
    """Clients at work, and what became of their requests."""

    def __init__(self, server: Server, cases: list[Case], requests: int, *, joined: bool) -> None:
        self.server, self.cases, self.left, self.joined = server, cases, requests, joined
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.lock, self.ended, self.closing = threading.Lock(), threading.Event(), threading.Event()

    def count(self, what: str, reason: str = "") -> None:
        with self.lock:
            self.counts[what] += 1
            if reason:
                self.reasons[f"{what}: {reason[:200]}"] += 1

    def take(self) -> bool:
        with self.lock:
            self.left -= 1
            return self.left >= 0 or (self.closing.is_set() and not self.ended.is_set())

    def client(self, number: int) -> None:
        choose = random.Random(number)
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=90)
        while self.take():
            case = choose.choice(self.cases)
            if connection.sock is None:
                try:
                    connection.connect()
                except ConnectionRefusedError:
                    if not self.closing.is_set():
                        self.count("lost", "refused at connecting")
                    return
            try:
                connection.request("POST", f"/v2/models/{case.model}/infer", case.body, case.headers)
                answer = connection.getresponse()
                status, body, length = answer.status, answer.read(), answer.getheader(HEADER_LENGTH)
            except (OSError, http.client.HTTPException) as error:
                self.count("lost", f"{case.model}: {type(error).__name__}: {error}")
                connection.close()
                continue
            if status != 200:
                text = body.decode("utf-8", "replace")
                died = status == 500 and "killed" in text
                self.count("died with its process" if died else "failed", "" if died else f"{case.model}: {text}")
                continue
            found = decode_response(body, None if length is None else int(length))
            right = is_right(case, found, joined=self.joined)
            self.count("right" if right else "wrong", "" if right else case.model)

    def kill(self) -> None:
        """Kill a process of a model every 2 s."""
        choose = random.Random(0)
        while not self.closing.wait(2.0):
            there = workers_of(self.server.process.pid)
            if there:
                os.kill(choose.choice(there), signal.SIGKILL)
                self.server.events.append({"event": "kill", "time": str(time.time())})
                self.count("kills")

    def annoy(self, number: int) -> None:
        """Send slowly, leave in the middle of a body, or leave before the answer, with a reset or without."""
        choose = random.Random(1000 + number)
        while not self.closing.is_set():
            case = choose.choice(self.cases)
            lines = [f"POST /v2/models/{case.model}/infer HTTP/1.1", "Host: localhost"]
            lines += [f"{k}: {v}" for k, v in {**case.headers, "Content-Length": str(len(case.body))}.items()]
            whole = "\r\n".join([*lines, "", ""]).encode() + case.body
            try:
                with socket.create_connection(("127.0.0.1", self.server.port), 30) as client:
                    kind = choose.choice(["slow", "cut", "leave", "reset"])
                    self.count(f"annoyed: {kind}")
                    if kind == "slow":
                        for at in range(0, len(whole), max(1, len(whole) // 10)):
                            client.sendall(whole[at : at + max(1, len(whole) // 10)])
                            time.sleep(0.1)
                        client.recv(100)
                    client.sendall(whole[: len(whole) // 2 if kind == "cut" else len(whole)])
                    if kind == "reset":
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                pass
            time.sleep(0.02)

    def replace(self, paths: dict[str, Path]) -> None:
        """Put an equal file in the place of a model's every 3 s."""
        choose = random.Random(2)
        while not self.closing.wait(3.0):
            path = paths[choose.choice(sorted(paths))]
            proto = onnx.load(path)
            proto.doc_string = f"the same again, {time.time()}"
            onnx.save(proto, path.with_suffix(".new"))
            os.replace(path.with_suffix(".new"), path)
            self.count("files replaced")


def workers_of(pid: int) -> list[int]:
    """Processes of models below a server."""
    below, found = {pid}, []
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    for _ in range(8):
        below |= {child for child, parent in parents.items() if parent in below}
    for child in sorted(below - {pid}):
        try:
            if Path(f"/proc/{child}/comm").read_text() == "onnxtool model\n":
                found.append(child)
        except OSError:
            continue
    return found


def main() -> int:
    own, _, options = " ".join(sys.argv[1:]).partition("-- ")
    options_parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options_parser.add_argument("--requests", type=int, default=100_000)
    options_parser.add_argument("--clients", type=int, default=32)
    options_parser.add_argument("--faults", action="store_true")
    options_parser.add_argument("--log", type=Path, help="write the server's events here")
    arguments = options_parser.parse_args(own.split())
    with tempfile.TemporaryDirectory() as scratch:
        paths = build(Path(scratch))
        cases = make_cases(paths, 40)
        reload = "equal" if arguments.faults else "off"
        served = [f"{name}={path}" for name, path in paths.items()]
        server = Server(*served, "--drain-delay", "0.5", *options.split(), reload=reload)
        load = Load(server, cases, arguments.requests, joined="auto" in options)
        clients = [threading.Thread(target=load.client, args=(n,)) for n in range(arguments.clients)]
        others = []
        if arguments.faults:
            others = [threading.Thread(target=load.kill), threading.Thread(target=load.replace, args=(paths,))]
            others += [threading.Thread(target=load.annoy, args=(n,)) for n in range(4)]
        began = time.perf_counter()
        for thread in [*clients, *others]:
            thread.start()
        while load.left > 200:  # SIGTERM comes while the clients still send
            time.sleep(0.05)
        load.closing.set()
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(90)
        load.ended.set()
        for thread in [*clients, *others]:
            thread.join()
        seconds = time.perf_counter() - began
    for what, count in sorted(load.counts.items()):
        print(f"{what:24} {count}")
    for reason, count in load.reasons.most_common(15):
        print(f"  {count} x {reason}")
    if arguments.log is not None:
        arguments.log.write_text("".join(json.dumps(event) + "\n" for event in server.events))
    events = Counter(event["event"] for event in server.events)
    print(f"{seconds:.0f} s; exit {code}; events: {json.dumps(events)}")
    excess = load.counts["died with its process"] - load.counts["kills"]
    bad = load.counts["lost"] + load.counts["wrong"] + load.counts["failed"] + max(0, excess) + code
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
