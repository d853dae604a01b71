"""How fast bundles generate, beside one another and beside the same model in transformers or llama.cpp.

Run as `python -m onnxtool.generation.bench`, it measures one of them: a JSON request on stdin, an answer on stdout.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool import progress
from onnxtool.errors import InputError
from onnxtool.generation.bundle import Bundle, is_bundle
from onnxtool.generation.decoder import Decoder, cache_bytes_per_token, sparing
from onnxtool.report.bundle.bench import BundleBenchReport, ContextSpeed, GeneratorSpeed
from onnxtool.runtime.cpu import model_name, usable_cores
from onnxtool.runtime.session.memory import release_memory
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.timing.load_cost import peak_bytes
from onnxtool.runtime.worker.tasks import run_python

_ROUNDS = 6
_TIMED_STEPS = 6
_CONTEXT = 32
_TOGETHER = 4 << 30  # bytes of all models


def decode_speeds(bundles: Sequence[Bundle], threads: int | None) -> list[float]:
    """Tokens per second of each bundle, one token after the other.

    They take turns, so that a busy moment of the machine hits all of them; the figure is of the median step. Large ones
    are measured one after the other instead: together they would not fit into memory.
    """
    if sum(b.model_bytes for b in bundles) <= _TOGETHER or len(bundles) < 2:
        return _together(bundles, threads)
    found = []
    for bundle in bundles:
        found += _together([bundle], threads)
        release_memory()
    return found


def _together(bundles: Sequence[Bundle], threads: int | None) -> list[float]:
    options = [replace(sparing(b), threads=threads, spinning="runs") for b in bundles]
    decoders = [Decoder(b, o, generates=o.prepack) for b, o in zip(bundles, options, strict=True)]
    room = _CONTEXT + 1 + _ROUNDS * _TIMED_STEPS
    times: list[list[float]] = [[] for _ in decoders]
    for decoder in decoders:
        length = min(_CONTEXT, decoder.bundle.context - _ROUNDS * _TIMED_STEPS - 1)
        decoder.start(min(room, decoder.bundle.context))
        decoder.run(np.arange(max(1, length)) % decoder.bundle.vocabulary)
        decoder.run(np.asarray([0]))  # the first step of another size is slower
    for _ in range(_ROUNDS):
        for decoder, own in zip(decoders, times, strict=True):
            for step in range(_TIMED_STEPS):
                began = time.perf_counter()
                decoder.run(np.asarray([step]))
                own.append(time.perf_counter() - began)
    return [1 / float(np.median(t)) for t in times]


CONTEXTS = (16, 512, 2048)
_STEPS = 24
_LIMIT = 1800.0

# Takes prompts [batch, tokens], gives the id of each one's next token; then takes one token of each, gives the next.
Step = Callable[[np.ndarray], np.ndarray]
Restart = Callable[[int], None]  # empties the cache for a number of prompts


def bench_bundles(
    folders: Sequence[Path],
    *,
    peers: Sequence[Path] = (),
    threads: Sequence[int] = (),
    contexts: Sequence[int] = CONTEXTS,
    batches: Sequence[int] = (),
) -> BundleBenchReport:
    """Measure bundles and peers, each in a fresh process.

    Args:
        folders: bundles.
        peers: a Hugging Face folder (run by transformers) or a GGUF file (run by llama.cpp).
        threads: numbers of threads of each runtime; () for all cores.
        contexts: lengths of the prompt; those beyond a model's context are left out.
        batches: numbers of prompts that are continued side by side; () for one.

    Raises:
        InputError: not a bundle.
    """
    bundles = [Bundle.open(f) for f in folders]
    lengths = [c for c in contexts if all(c + _STEPS < b.context for b in bundles)] or [1]
    counts: list[int | None] = list(threads) or [None]
    found = []
    with progress.task("measuring", len(counts) * (len(folders) + len(peers))) as task:
        for count in counts:
            for path in (*folders, *peers):
                found.append(_measured(path, count, lengths, list(batches) or [1]))
                task.advance()
    cores = usable_cores()
    return BundleBenchReport(tuple(found), cache_bytes_per_token(bundles[0]), counts[0], model_name(), cores)


def _measured(path: Path, threads: int | None, contexts: Sequence[int], batches: Sequence[int]) -> GeneratorSpeed:
    request = {"path": str(path), "threads": threads, "contexts": list(contexts), "batches": list(batches)}
    try:
        offline = {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
        given = json.dumps(request).encode()
        done = run_python("onnxtool.generation.bench", given=given, seconds=_LIMIT, variables=offline)
        if done.returncode == 0:
            answer = json.loads(done.stdout.splitlines()[-1])
            speeds = tuple(ContextSpeed(**s) for s in answer.pop("speeds"))
            return GeneratorSpeed(name=str(path), speeds=speeds, threads=threads, **answer)
        fault = (done.stderr.strip().splitlines() or [f"ended with code {done.returncode}"])[-1][:300]
    except subprocess.TimeoutExpired:
        fault = f"took longer than {_LIMIT:.0f} s"
    return GeneratorSpeed(str(path), "", 0.0, None, (), fault, threads)


def _measure(request: dict[str, Any]) -> dict[str, Any]:
    path, threads = Path(request["path"]), request["threads"]
    room = max(request["contexts"]) + _STEPS + 1
    sizes = request["batches"]
    began = time.perf_counter()
    if is_bundle(path):
        name, restart, step, size = _bundle(path, threads, room)
    elif path.suffix.lower() == ".gguf":
        name, restart, step, size = _llama(path, threads, room)
        sizes = [1]  # the package's interface takes one sequence
    else:
        name, restart, step, size = _transformers(path, threads)
    loaded = time.perf_counter() - began
    restart(1)
    step(np.ones((1, 4), np.int64))  # what is made on first use is part of no figure
    speeds = [_speed(restart, step, c, b, size) for b in request["batches"] if b in sizes for c in request["contexts"]]
    return {"runtime": name, "load_seconds": loaded, "peak_bytes": peak_bytes(), "speeds": speeds}


def _speed(restart: Restart, step: Step, context: int, batch: int, vocabulary: int) -> dict[str, float]:
    prompt = np.random.default_rng(0).integers(3, vocabulary, (batch, context))
    firsts, times = [], []
    for _ in range(3 if context < 256 else 1):
        restart(batch)
        began = time.perf_counter()
        tokens = step(prompt)
        firsts.append(time.perf_counter() - began)
    for _ in range(_STEPS):
        began = time.perf_counter()
        tokens = step(tokens[:, None])
        times.append(time.perf_counter() - began)
    first = statistics.median(firsts)
    return {
        "context": context,
        "batch": batch,
        "first_token_seconds": first,
        "prefill_per_second": batch * context / first,
        "decode_per_second": batch / statistics.median(times),
    }


def _bundle(path: Path, threads: int | None, room: int) -> tuple[str, Restart, Step, int]:
    bundle = Bundle.open(path)
    decoder = Decoder(bundle, SessionOptions(threads=threads, spinning="always"), generates=True)

    def step(tokens: np.ndarray) -> np.ndarray:
        return np.asarray(decoder.run(tokens)[:, -1].argmax(-1))

    def restart(batch: int) -> None:
        decoder.start(min(room, bundle.context), batch)

    return f"onnxruntime {version('onnxruntime')}", restart, step, bundle.vocabulary


def _transformers(path: Path, threads: int | None) -> tuple[str, Restart, Step, int]:
    import torch

    from onnxtool.generation.reference import SourceGenerator
    from onnxtool.generation.source import open_source

    if threads is not None:
        torch.set_num_threads(threads)
    model = SourceGenerator(open_source(path)).model
    cache: list[Any] = [None]

    def step(tokens: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            found = model(input_ids=torch.from_numpy(tokens), past_key_values=cache[0], use_cache=True)
        cache[0] = found.past_key_values
        return np.asarray(found.logits[:, -1].argmax(-1).numpy())

    return (
        f"transformers {version('transformers')}",
        lambda _: cache.__setitem__(0, None),
        step,
        model.config.vocab_size,
    )


def _llama(path: Path, threads: int | None, room: int) -> tuple[str, Restart, Step, int]:
    try:
        import llama_cpp
    except ImportError as error:
        raise InputError(f"{path}: this peer needs the package llama-cpp-python.") from error
    count = threads or usable_cores()
    model = llama_cpp.Llama(str(path), n_ctx=room, n_threads=count, n_threads_batch=count, verbose=False)

    def step(tokens: np.ndarray) -> np.ndarray:
        model.eval(tokens[0].tolist())
        return np.asarray([model.sample(temp=0.0)])

    return (
        f"llama.cpp of llama-cpp-python {version('llama-cpp-python')}",
        lambda _: model.reset(),
        step,
        model.n_vocab(),
    )


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(json.load(sys.stdin))) + "\n")
