"""`onnxtool serve` measured: overhead, saturation, memory, malformed requests, drain.

    python benchmarks/serve.py latency [--bento PYTHON] [--mlserver PYTHON]
                                                            binary tensors beside session.run, and other servers
    python benchmarks/serve.py memory [--requests 100000]   resident memory over many requests
    python benchmarks/serve.py malformed [--requests 10000] statuses of broken requests, and that the server lives
    python benchmarks/serve.py drain [--rounds 10]          SIGTERM under load: requests that were accepted and lost
    python benchmarks/serve.py workers [--rounds 10]        processes of their own beside --in-process, one beside two

Targets: 1.3x of session.run for tensors over 100 kB; 1.2 ms of overhead for small ones; 0.9 of the throughput of
session.run in a loop; flat memory; no crash and no wrong status; no lost request.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx

from onnxtool.benchmark.load_test import Exchange, bench_endpoint
from onnxtool.runtime.protocol_v2.client import RemoteRunner, V2Client

sys.path.insert(0, str(Path(__file__).parent))
from models import build_all

ROOT = Path(__file__).parent.parent
DIGITS = ROOT / "fixtures" / "digits_cnn.onnx"
LARGE = ("light-squeezenet", "light-shufflenet", "light-resnet50")
# What tutorials write: lists in JSON, a pydantic model, one session.
TUTORIAL = """
import numpy as np, onnxruntime as ort
from fastapi import FastAPI
from pydantic import BaseModel
app, session = FastAPI(), ort.InferenceSession({path!r})
class Input(BaseModel):
    data: list
@app.post("/predict")
def predict(given: Input):
    feeds = {{session.get_inputs()[0].name: np.array(given.data, dtype=np.float32)}}
    return {{"output": session.run(None, feeds)[0].tolist()}}
"""
BENTO = """
import bentoml, numpy as np, onnxruntime as ort
@bentoml.service
class Model:
    def __init__(self):
        self.session = ort.InferenceSession({path!r})
    @bentoml.api
    def predict(self, data: np.ndarray) -> np.ndarray:
        return self.session.run(None, {{self.session.get_inputs()[0].name: data.astype(np.float32)}})[0]
"""
MLSERVER = """
import onnxruntime as ort
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse
class Model(MLModel):
    async def load(self):
        self.session = ort.InferenceSession({path!r})
        return True
    async def predict(self, payload):
        array = NumpyCodec.decode_input(payload.inputs[0])
        found = self.session.run(None, {{payload.inputs[0].name: array}})[0]
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", found)])
"""


class Server:
    """A server process of ours."""

    def __init__(self, *arguments: object, reload: str = "off") -> None:
        command = [sys.executable, "-m", "onnxtool", "serve", *map(str, arguments), "--port", "0", "--reload", reload]
        self.events: list[dict[str, str]] = []
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            event = json.loads(line)
            if event["event"] == "listening":
                self.url = event["url"]
                self.port = int(self.url.rsplit(":", 1)[1])
                break
        else:
            raise SystemExit("the server did not start")
        threading.Thread(target=self._read_log, args=(self.process.stderr,), daemon=True).start()

    def _read_log(self, log: Iterable[str]) -> None:
        self.events.extend(map(json.loads, log))

    def resident(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def post_json(url: str, path: str, body: bytes) -> float:
    """Median seconds of a JSON request on one kept connection."""
    client, samples = V2Client(url), []
    until = time.perf_counter() + 3
    while time.perf_counter() < until or len(samples) < 8:
        began = time.perf_counter()
        status, _, answer = client.request("POST", path, body, {"Content-Type": "application/json"})
        samples.append(time.perf_counter() - began)
        assert status == 200, answer[:300]
    return statistics.median(samples[len(samples) // 5 :])


def beside(command: list[str], folder: str, port: int, path: str, body: bytes) -> float:
    """Start another server, wait for it, and time it."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        return post_json(f"http://127.0.0.1:{port}", path, body)
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def latency(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        paths = {"digits": DIGITS, **build_all(Path(scratch) / "models", list(LARGE))}
        server = Server(*(f"{name}={path}" for name, path in paths.items()))
        print("model                bytes   run ms  binary    +ms saturation   JSON tutorial   bento mlserver")
        for name, path in paths.items():
            report = bench_endpoint(f"{server.url}/v2/models/{name}", path, connections=(1, 2, 4, 8), budget=3)
            alone = next(r for r in report.results if r.loop == "session").median
            spec = RemoteRunner(f"{server.url}/v2/models/{name}").inputs[0]
            array = np.random.default_rng(0).random([d or 1 for d in spec.shape or ()], np.float32)
            plain = json.dumps({spec.name: array.tolist()}).encode()
            ours = post_json(server.url, f"/predict/{name}", plain) / alone
            body = json.dumps({"data": array.tolist()}).encode()
            port = free_port()
            (Path(scratch) / "tutorial.py").write_text(TUTORIAL.format(path=str(path)))
            command = [sys.executable, "-m", "uvicorn", "tutorial:app", "--port", str(port), "--log-level", "error"]
            tutorial = beside(command, scratch, port, "/predict", body) / alone
            bento = "-"
            if arguments.bento:
                port = free_port()
                (Path(scratch) / "bento.py").write_text(BENTO.format(path=str(path)))
                command = [arguments.bento, "-m", "bentoml", "serve", "bento:Model", "--port", str(port)]
                bento = f"{beside(command, scratch, port, '/predict', body) / alone:.2f}x"
            mlserver = "-"
            if arguments.mlserver:
                ports = [free_port() for _ in range(3)]
                place = Path(scratch) / "mlserver"
                place.mkdir(exist_ok=True)
                (place / "runtime.py").write_text(MLSERVER.format(path=str(path)))
                settings = dict(zip(("http_port", "grpc_port", "metrics_port"), ports, strict=True))
                (place / "settings.json").write_text(json.dumps(settings | {"parallel_workers": 0, "debug": False}))
                (place / "model-settings.json").write_text('{"name": "m", "implementation": "runtime.Model"}')
                entry = {
                    "name": spec.name,
                    "datatype": "FP32",
                    "shape": array.shape,
                    "data": array.reshape(-1).tolist(),
                }
                v2 = json.dumps({"inputs": [entry]}).encode()
                command = [str(Path(arguments.mlserver).with_name("mlserver")), "start", "."]
                mlserver = f"{beside(command, str(place), ports[0], '/v2/models/m/infer', v2) / alone:.2f}x"
            print(
                f"{name:18} {report.request_bytes:7} {1e3 * alone:8.2f} {report.latency_ratio:6.2f}x "
                f"{1e3 * (report.overhead or 0):+6.2f} {report.throughput_ratio:9.2f}x {ours:5.2f}x {tutorial:7.2f}x "
                f"{bento:>7} {mlserver:>7}"
            )
        server.stop()


def memory(arguments: argparse.Namespace) -> None:
    server = Server(DIGITS)
    feeds = {"image": np.random.default_rng(0).random((1, 1, 8, 8), np.float32)}
    exchange = Exchange(f"{server.url}/v2/models/digits_cnn", feeds, {})
    began, done = time.perf_counter(), 0
    tenth = arguments.requests // 10

    def work(count: int) -> None:
        with exchange.connect() as once:
            for _ in range(count):
                assert once() == 200

    for _ in range(10):
        threads = [threading.Thread(target=work, args=(tenth // 4,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        done += 4 * (tenth // 4)
        print(f"{done:7} requests: {server.resident():.1f} MB resident")
    print(f"{done / (time.perf_counter() - began):.0f} requests/s; exit {server.stop()}")


HEAD = b"POST /v2/models/digits_cnn/infer HTTP/1.1\r\nHost: localhost\r\n"


def broken(generator: random.Random) -> tuple[str, bytes, bool, set[int]]:
    """Kind, bytes to send, whether to close the sending side, and the statuses that are right."""
    good = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0.5] * 64}
    raw = np.zeros(64, np.float32).tobytes()

    def framed(body: bytes, *lines: bytes) -> bytes:
        return HEAD + b"".join(line + b"\r\n" for line in lines) + b"Content-Length: %d\r\n\r\n" % len(body) + body

    def binary(size: object, shape: list[int], header: int | None, data: bytes) -> bytes:
        entry = {"name": "image", "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": size}}
        head = json.dumps({"inputs": [entry]}).encode()
        length = len(head) if header is None else header
        return framed(head + data, b"Inference-Header-Content-Length: %d" % length)

    kind = generator.choice(
        ["dtype", "shape", "size", "header", "values", "json", "huge", "slow", "half", "cut", "noise", "name", "good"]
    )
    number = generator.choice([0, 1, -1, 2**31, 2**63, 255, 10**30])
    if kind == "dtype":
        entry = good | {"datatype": generator.choice(["FP16", "INT64", "BYTES", "BOOL", "X", None, 5])}
        return kind, framed(json.dumps({"inputs": [entry]}).encode()), False, {400}
    if kind == "shape":
        shape = generator.choice(
            [[64], [1, 1, 8, 9], [number], [1, 1, 8, -8], "x", [[1]], [1.5], [1] * 100, [2**40] * 4]
        )
        return kind, framed(json.dumps({"inputs": [good | {"shape": shape}]}).encode()), False, {400}
    if kind == "size":
        size = generator.choice([number, 255, 257, "256", 256.0, True, [1]])
        return kind, binary(size, [1, 1, 8, 8], None, raw), False, {400}
    if kind == "header":
        return kind, binary(256, [1, 1, 8, 8], generator.choice([0, 1, 5, 10**9, 10**11]), raw), False, {400}
    if kind == "values":
        data = generator.choice([["a"] * 64, [1e99] * 64, [[1], [1, 2]], None, {"a": 1}, [None] * 64, [0.5] * 63])
        return kind, framed(json.dumps({"inputs": [good | {"data": data}]}).encode()), False, {400}
    if kind == "json":
        body = generator.choice(
            [b"", b"{", b"[" * 50_000, b'{"inputs":', b"null", b"\xff\xfe", b'{"inputs":{}}', b"1" * 5000]
        )
        return kind, framed(body), False, {400}
    if kind == "huge":
        return (
            kind,
            HEAD + b"Content-Length: %d\r\n\r\n" % generator.choice([2**31, 10**12, 70_000_000]) + b" " * 1000,
            False,
            {413},
        )
    if kind == "slow":
        return kind, HEAD + b"Content-Length: 500\r\n\r\n" + b"{" * generator.randrange(100), False, {408}
    if kind == "half":
        return kind, framed(json.dumps({"inputs": [good]}).encode()), True, {200}
    if kind == "cut":
        whole = framed(json.dumps({"inputs": [good]}).encode())
        return kind, whole[: generator.randrange(5, len(whole) - 1)], True, {400}
    if kind == "noise":
        return kind, generator.randbytes(generator.randrange(1, 2000)) + b"\r\n\r\n", True, {400, 0}
    if kind == "name":
        return (
            kind,
            framed(json.dumps({"inputs": [good | {"name": generator.choice(["x", "", 5])}]}).encode()),
            False,
            {400},
        )
    return kind, framed(json.dumps({"inputs": [good]}).encode()), False, {200}


def send(port: int, data: bytes, half: bool) -> int:
    """The status of the answer; 0 when the connection is closed without one."""
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        try:
            connection.sendall(data)
            if half:
                connection.shutdown(socket.SHUT_WR)
            found = b""
            while b"\r\n" not in found:
                chunk = connection.recv(4096)
                if not chunk:
                    return 0
                found += chunk
        except ConnectionError:
            return 0
        if generator_resets.random() < 0.1:  # some clients vanish with a reset
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return int(found.split(b" ", 2)[1])


generator_resets = random.Random(1)


def malformed(arguments: argparse.Namespace) -> None:
    server = Server(DIGITS, "--body-timeout", "0.5")
    generator = random.Random(0)
    requests = [broken(generator) for _ in range(arguments.requests)]
    wrong: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    lock = threading.Lock()
    pending = iter(requests)
    before = server.resident()

    def work() -> None:
        while True:
            with lock:
                one = next(pending, None)
            if one is None:
                return
            kind, data, half, right = one
            status = send(server.port, data, half)
            with lock:
                seen[f"{kind} {status}"] += 1
                if status not in right:
                    wrong[f"{kind}: {status} for {data[:200]!r}"] += 1

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for key, count in sorted(seen.items()):
        print(f"  {key:14} {count}")
    for key, count in wrong.most_common(10):
        print(f"WRONG {count} x {key}")
    feeds = {"image": np.random.default_rng(0).random((2, 1, 8, 8), np.float32)}
    from onnxtool.runtime.runner import OnnxRunner

    same = np.array_equal(RemoteRunner(server.url).run(feeds)["logits"], OnnxRunner.open(DIGITS).run(feeds)["logits"])
    print(
        f"{sum(seen.values())} requests, {sum(wrong.values())} wrong statuses; alive: {server.process.poll() is None}; "
    )
    print(f"answers afterwards equal: {same}; memory {before:.0f} -> {server.resident():.0f} MB; exit {server.stop()}")


def drain(arguments: argparse.Namespace) -> None:
    answered = lost = refused = 0
    for number in range(arguments.rounds):
        server = Server(DIGITS)
        feeds = {"image": np.random.default_rng(0).random((1, 1, 8, 8), np.float32)}
        exchange = Exchange(f"{server.url}/v2/models/digits_cnn", feeds, {})
        counts: list[tuple[int, int, int]] = []

        def client(exchange: Exchange = exchange, counts: list[tuple[int, int, int]] = counts) -> None:
            good = bad = 0
            with exchange.connect() as once:
                while True:
                    try:
                        bad += once() != 200
                        good += 1
                    except ConnectionRefusedError:
                        counts.append((good, bad, 1))
                        return
                    except Exception:  # connected, sent, and no answer: lost
                        counts.append((good, bad + 1, 0))
                        return

        threads = [threading.Thread(target=client) for _ in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(0.5 + 0.05 * number)
        code = server.stop()
        for thread in threads:
            thread.join()
        answered, lost = answered + sum(c[0] for c in counts), lost + sum(c[1] for c in counts)
        refused += sum(c[2] for c in counts)
        assert code == 0, code
    print(f"{arguments.rounds} rounds, 8 clients: {answered} answered, {lost} lost, {refused} turned away at the door")


def processor_seconds(pid: int) -> float:
    """Of a process and all below it that live."""
    found = 0.0
    for child in Path(f"/proc/{pid}/task").glob("*/children"):
        found += sum(processor_seconds(int(below)) for below in child.read_text().split())
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return found + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def workers(arguments: argparse.Namespace) -> None:
    head = '<ir_version: 10, opset_import: ["" : 20]> m '
    with tempfile.TemporaryDirectory() as scratch:
        relu, products = Path(scratch) / "relu.onnx", Path(scratch) / "products.onnx"
        onnx.save(onnx.parser.parse_model(head + "(float[n] x) => (float[n] y) { y = Relu(x) }"), relu)
        chain = " ".join(f"h{i + 1} = MatMul(h{i}, w)" for i in range(12))
        model = onnx.parser.parse_model(head + f"(float[n, 512] h0) => (float[n, 512] h12) {{ {chain} }}")
        weights = np.random.default_rng(0).standard_normal((512, 512), np.float32) / 23
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
        onnx.save(model, products)
        servers = [Server(relu, "--workers", "1"), Server(relu, "--in-process")]
        print("bytes, ms a request with workers and without: least of medians; median of differences; processor ms")
        for count in (10, 25_000, 200_000):
            feeds = {"x": np.zeros(count, np.float32)}
            medians: list[list[float]] = [[], []]
            used, done = [0.0, 0.0], max(100, 2_000_000 // (count + 2000))
            for _ in range(arguments.rounds):
                for place, server in enumerate(servers):
                    with Exchange(f"{server.url}/v2/models/relu", feeds, {}).connect() as once:
                        before, samples = processor_seconds(server.process.pid), []
                        for _ in range(done):
                            began = time.perf_counter()
                            once()
                            samples.append(time.perf_counter() - began)
                        used[place] += processor_seconds(server.process.pid) - before
                    medians[place].append(1e3 * statistics.median(samples))
            extra = statistics.median(a - b for a, b in zip(*medians, strict=True))
            cpu = [1e3 * u / (done * arguments.rounds) for u in used]
            print(f"{4 * count:7} {min(medians[0]):.2f} {min(medians[1]):.2f} {min(medians[0]) - min(medians[1]):+.2f}"
                  f" {extra:+.2f}  {cpu[0]:.2f} {cpu[1]:.2f} {cpu[0] - cpu[1]:+.2f}", flush=True)  # fmt: skip
        for server in servers:
            server.stop()
        pair = [Server(products, "--workers", n, "--threads", "1") for n in (1, 2)]
        for rows in (128, 256):
            feeds, ratios = {"h0": np.zeros((rows, 512), np.float32)}, []
            for _ in range(3):
                rates = [_rate(Exchange(f"{server.url}/v2/models/products", feeds, {}), 4, 4.0) for server in pair]
                ratios.append(rates[1] / rates[0])
            print(f"{rows} rows: two workers {', '.join(f'{r:.2f}' for r in ratios)} times one")
        for server in pair:
            server.stop()


def _rate(exchange: Exchange, clients: int, seconds: float) -> float:
    """Requests a second."""
    until, counts = time.perf_counter() + seconds, [0] * clients

    def client(place: int) -> None:
        with exchange.connect() as once:
            while time.perf_counter() < until:
                assert once() == 200
                counts[place] += 1

    threads = [threading.Thread(target=client, args=(place,)) for place in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("latency", "memory", "malformed", "drain", "workers"))
    parser.add_argument("--requests", type=int)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--bento", help="a Python with bentoml and onnxruntime")
    parser.add_argument("--mlserver", help="a Python with mlserver and onnxruntime")
    arguments = parser.parse_args()
    if arguments.requests is None:
        arguments.requests = 100_000 if arguments.part == "memory" else 10_000
    parts = {"latency": latency, "memory": memory, "malformed": malformed, "drain": drain, "workers": workers}
    parts[arguments.part](arguments)


if __name__ == "__main__":
    main()
