"""The 99th percentile of one model's requests while requests to other models crash, hang or exhaust their processes.

    python benchmarks/serve_hostile.py [OPTIONS OF serve]

Three rounds: seconds without and with the hostile requests, in turn. The aim is a ratio of at most 2.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
from onnx import parser

from onnxtool.benchmark.load_test import Exchange
from onnxtool.errors import OnnxToolError
from onnxtool.runtime.protocol_v2.client import V2Client
from onnxtool.runtime.protocol_v2.tensors import HEADER_LENGTH, encode_request

sys.path.insert(0, str(Path(__file__).parent))
from serve import DIGITS, Server

_HEAD = '<ir_version: 10, opset_import: ["" : 20]> m '
_GRAPHS = {
    "crash": "(int32[n] x, int32[n] z) => (int32[n] y) { y = Div(x, z) }",
    "memory": "(int64[r] x) => (float[a] y) { y = ConstantOfShape(x) }",
    "hang": """(int64 x, float[1] z) => (float[1] y) { c = Constant <value = bool {1}> ()
        y = Loop(x, c, z) <body = b (int64 i, bool ci, float[1] v) => (bool co, float[1] w) {
            co = Identity(ci) \n w = Add(v, v) }> }""",
}


def hostile_feeds(kind: str, number: int) -> dict[str, np.ndarray]:
    """Inputs that no request has had before: those that have ended two processes are refused."""
    if kind == "crash":
        return {"x": np.int32([-(2**31), number]), "z": np.int32([-1, 1])}
    if kind == "memory":
        return {"x": np.int64([2**33 + number])}
    return {"x": np.array(10**12 + number), "z": np.float32([0])}


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        paths = {name: Path(scratch) / f"{name}.onnx" for name in _GRAPHS}
        for name, path in paths.items():
            onnx.save(parser.parse_model(_HEAD + _GRAPHS[name]), path)
        server = Server(f"digits={DIGITS}", *(f"{n}={p}" for n, p in paths.items()), *sys.argv[1:])
        image = np.random.default_rng(0).random((4, 1, 8, 8), np.float32)
        exchange = Exchange(f"{server.url}/v2/models/digits", {"image": image}, {})
        counts: Counter[str] = Counter()

        def percentiles(seconds: float) -> np.ndarray:
            samples, until = [], time.perf_counter() + seconds
            with exchange.connect() as once:
                while time.perf_counter() < until:
                    began = time.perf_counter()
                    assert once() == 200
                    samples.append(1e3 * (time.perf_counter() - began))
                    time.sleep(0.002)
            return np.percentile(samples, [50, 99, 100])

        def attack(kind: str, ended: threading.Event) -> None:
            while not ended.wait(0.2):
                counts["sent"] += 1
                parts, length = encode_request(hostile_feeds(kind, counts["sent"]))
                client = V2Client(server.url, seconds=0.5 if kind == "hang" else 10)
                try:
                    status = client.request(
                        "POST", f"/v2/models/{kind}/infer", b"".join(parts), {HEADER_LENGTH: str(length)}
                    )[0]
                    counts[f"{kind}: {status}"] += 1
                except OnnxToolError:
                    counts[f"{kind}: the client left"] += 1
                client.close()

        percentiles(1)
        for _ in range(3):
            usual, ended = percentiles(4), threading.Event()
            threads = [threading.Thread(target=attack, args=(kind, ended)) for kind in _GRAPHS]
            for thread in threads:
                thread.start()
            beside = percentiles(6)
            ended.set()
            for thread in threads:
                thread.join()
            time.sleep(1.5)
            print(
                f"ms, median 99 % most: {usual.round(2)}; beside: {beside.round(2)}; ratio {beside[1] / usual[1]:.2f}"
            )
        print(dict(counts), "exit", server.stop())


if __name__ == "__main__":
    main()
