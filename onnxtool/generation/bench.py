"""How fast bundles generate, beside the same model in transformers or llama.cpp.

Run as `python -m onnxtool.generation.bench`, it measures one of them: a JSON request on stdin, an answer on stdout.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool import progress
from onnxtool.errors import InputError
from onnxtool.generation.bundle import Bundle, is_bundle
from onnxtool.generation.decoder import Decoder, cache_bytes_per_token
from onnxtool.report.bundle_bench import BundleBenchReport, ContextSpeed, GeneratorSpeed
from onnxtool.runtime.cpu import model_name, usable_cores
from onnxtool.runtime.load_cost import peak_bytes
from onnxtool.runtime.session import SessionOptions

CONTEXTS = (16, 512, 2048)
_STEPS = 24
_LIMIT = 1800.0

# Takes a prompt, gives the next token's id; then takes one token, gives the next.
Step = Callable[[Sequence[int]], int]


def bench_bundles(
    folders: Sequence[Path],
    *,
    peers: Sequence[Path] = (),
    threads: int | None = None,
    contexts: Sequence[int] = CONTEXTS,
) -> BundleBenchReport:
    """Measure bundles and peers, each in a fresh process.

    Args:
        folders: bundles.
        peers: a Hugging Face folder (run by transformers) or a GGUF file (run by llama.cpp).
        threads: of each runtime; None for all cores.
        contexts: lengths of the prompt; those beyond a model's context are left out.

    Raises:
        InputError: not a bundle.
    """
    bundles = [Bundle.open(f) for f in folders]
    lengths = [c for c in contexts if all(c + _STEPS < b.context for b in bundles)] or [1]
    found = []
    with progress.task("measuring", len(folders) + len(peers)) as task:
        for path in (*folders, *peers):
            found.append(_measured(path, threads, lengths))
            task.advance()
    cores = usable_cores()
    return BundleBenchReport(tuple(found), cache_bytes_per_token(bundles[0]), threads, model_name(), cores)


def _measured(path: Path, threads: int | None, contexts: Sequence[int]) -> GeneratorSpeed:
    request = {"path": str(path), "threads": threads, "contexts": list(contexts)}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "onnxtool.generation.bench"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            check=False,
            env={**os.environ, "PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"},
        )
        if done.returncode == 0:
            answer = json.loads(done.stdout.splitlines()[-1])
            speeds = tuple(ContextSpeed(**s) for s in answer.pop("speeds"))
            return GeneratorSpeed(name=str(path), speeds=speeds, **answer)
        fault = (done.stderr.strip().splitlines() or [f"ended with code {done.returncode}"])[-1][:300]
    except subprocess.TimeoutExpired:
        fault = f"took longer than {_LIMIT:.0f} s"
    return GeneratorSpeed(str(path), "", 0.0, None, (), fault)


def _measure(request: dict[str, Any]) -> dict[str, Any]:
    path, threads = Path(request["path"]), request["threads"]
    room = max(request["contexts"]) + _STEPS + 1
    began = time.perf_counter()
    if is_bundle(path):
        name, restart, step, size = _bundle(path, threads, room)
    elif path.suffix.lower() == ".gguf":
        name, restart, step, size = _llama(path, threads, room)
    else:
        name, restart, step, size = _transformers(path, threads)
    loaded = time.perf_counter() - began
    restart()
    step([1] * 4)  # what is made on first use is part of no figure
    speeds = [_speed(restart, step, context, size) for context in request["contexts"]]
    return {"runtime": name, "load_seconds": loaded, "peak_bytes": peak_bytes(), "speeds": speeds}


def _speed(restart: Callable[[], None], step: Step, context: int, vocabulary: int) -> dict[str, float]:
    prompt = np.random.default_rng(0).integers(3, vocabulary, context).tolist()
    firsts, times = [], []
    for _ in range(3 if context < 256 else 1):
        restart()
        began = time.perf_counter()
        token = step(prompt)
        firsts.append(time.perf_counter() - began)
    for _ in range(_STEPS):
        began = time.perf_counter()
        token = step([token])
        times.append(time.perf_counter() - began)
    first = statistics.median(firsts)
    return {
        "context": context,
        "first_token_seconds": first,
        "prefill_per_second": context / first,
        "decode_per_second": 1 / statistics.median(times),
    }


def _bundle(path: Path, threads: int | None, room: int) -> tuple[str, Callable[[], None], Step, int]:
    bundle = Bundle.open(path)
    decoder = Decoder(bundle, SessionOptions(threads=threads), generates=True)

    def step(tokens: Sequence[int]) -> int:
        return int(decoder.run(np.asarray(tokens))[-1].argmax())

    def restart() -> None:
        decoder.start(min(room, bundle.context))

    return f"onnxruntime {version('onnxruntime')}", restart, step, bundle.vocabulary


def _transformers(path: Path, threads: int | None) -> tuple[str, Callable[[], None], Step, int]:
    import torch

    from onnxtool.generation.reference import Reference
    from onnxtool.generation.source import open_source

    if threads is not None:
        torch.set_num_threads(threads)
    model = Reference(open_source(path)).model
    cache: list[Any] = [None]

    def step(tokens: Sequence[int]) -> int:
        with torch.inference_mode():
            found = model(input_ids=torch.tensor([list(tokens)]), past_key_values=cache[0], use_cache=True)
        cache[0] = found.past_key_values
        return int(found.logits[0, -1].argmax())

    return f"transformers {version('transformers')}", lambda: cache.__setitem__(0, None), step, model.config.vocab_size


def _llama(path: Path, threads: int | None, room: int) -> tuple[str, Callable[[], None], Step, int]:
    try:
        import llama_cpp
    except ImportError as error:
        raise InputError(f"{path}: this peer needs the package llama-cpp-python.") from error
    count = threads or usable_cores()
    model = llama_cpp.Llama(str(path), n_ctx=room, n_threads=count, n_threads_batch=count, verbose=False)

    def step(tokens: Sequence[int]) -> int:
        model.eval(list(tokens))
        return int(model.sample(temp=0.0))

    return f"llama.cpp of llama-cpp-python {version('llama-cpp-python')}", model.reset, step, model.n_vocab()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(json.load(sys.stdin))) + "\n")
