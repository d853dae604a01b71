"""The two graph builders that are driven, each in a process of its own, and what of their graphs is mended.

onnxruntime-genai's writes the graphs that its runtime was made for, and refuses many architectures; mobius has nearly
all of them. Neither compares its result with the source, so both are held to the same proof.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnx

from onnxtool import __version__
from onnxtool.errors import InputError, ResourceError
from onnxtool.generation.bundle import CONFIG
from onnxtool.generation.reference import SourceGenerator
from onnxtool.model.io import external_files, read_proto, write_atomic
from onnxtool.model.provenance.metadata import DIGEST_KEY, HISTORY_KEY, file_digest, seal
from onnxtool.runtime.worker.tasks import start_python

# Decoders that the onnxruntime-genai runtime knows by name and runs alike; any other goes under the first one's name.
_RUNTIME_TYPES = (
    *("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "phi3small", "olmo"),
    *("granite", "smollm3", "nemotron", "internlm2", "chatglm", "ernie4_5", "gptoss", "hunyuan_v1_dense", "lfm2"),
)


def repair_config(config: dict[str, Any], reference: SourceGenerator) -> None:
    """Builders guess the context and leave out ends of text; the source says both.

    Raises:
        InputError: not what a builder writes.
    """
    try:
        model, search = config["model"], config["search"]
        model["context_length"] = reference.context
        if model.get("type") not in _RUNTIME_TYPES:
            model["type"] = _RUNTIME_TYPES[0]
        search["max_length"] = reference.context
        ends = list(reference.eos)
        model["eos_token_id"] = ends[0] if len(ends) == 1 else ends
        for name in ("bos_token_id", "pad_token_id"):
            found = getattr(reference.tokenizer, name, None)
            if model.get(name) is None and found is not None:
                model[name] = int(found)
        if model.get("pad_token_id") is None and ends:
            model["pad_token_id"] = ends[0]
    except (KeyError, TypeError) as error:
        raise InputError(f"the builder's {CONFIG} has no {error}.") from error


def repair_shapes(path: Path) -> None:
    """Forget the shapes that are noted for constants: onnxruntime-genai 0.18 notes some of rank 1 as of rank 0."""
    proto = read_proto(path)
    constants = {name for node in proto.graph.node if node.op_type == "Constant" for name in node.output}
    kept = [v for v in proto.graph.value_info if v.name not in constants]
    if len(kept) != len(proto.graph.value_info):
        del proto.graph.value_info[:]
        proto.graph.value_info.extend(kept)
        write_atomic(path, proto.SerializeToString())


def seal_model(path: Path, step: dict[str, Any]) -> None:
    """Write the step that made a model into its metadata, and the digest of it and its external data at its end."""
    proto = read_proto(path)
    for key in (HISTORY_KEY, DIGEST_KEY):
        for entry in [e for e in proto.metadata_props if e.key == key]:
            proto.metadata_props.remove(entry)
    steps = [{**step, "onnxtool": __version__}]
    proto.metadata_props.append(
        onnx.StringStringEntryProto(key=HISTORY_KEY, value=json.dumps(steps, sort_keys=True, ensure_ascii=False))
    )
    body = proto.SerializeToString()
    write_atomic(path, body + seal(body, [file_digest(f) for f in external_files(path)]))


_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TQDM_DISABLE": "1",
}
_SECONDS = 3600.0


@dataclass(frozen=True)
class GraphBuilder:
    """A package that turns a Hugging Face folder into a decoder's graph.

    Attributes:
        name: for people.
        module: its import name.
    """

    name: str
    module: str

    @property
    def installed(self) -> bool:
        """The package is there."""
        return find_spec(self.module) is not None

    def command(self, source: Path, output: Path, scratch: Path, tied: bool, adapter: Path | None = None) -> list[str]:
        """The module, and its arguments, that builds `output` (a folder) from `source`, with an adapter's products
        beside its own.
        """
        if self.module == "mobius":
            options = ["--ep", "cpu", "--runtime", "ort-genai", "--dtype", "f32"]
            return ["mobius", "build", "--config", str(source), *options, str(output)]
        spec = find_spec(self.module)
        assert spec is not None and spec.submodule_search_locations
        # Run as a script: as a module it would import the package, and look for its own parts beside itself.
        script = Path(spec.submodule_search_locations[0]) / "models" / "builder.py"
        extra = ["hf_token=false", *(["shared_embeddings=true"] if tied else [])]
        extra += [] if adapter is None else [f"adapter_path={adapter}"]
        paths = ["-i", str(source), "-o", str(output), "-c", str(scratch / "cache")]
        run = ["onnxtool.generation.genai_builder", str(script), *paths]
        return [*run, "-p", "fp32", "-e", "cpu", "--extra_options", *extra]


GENAI = GraphBuilder("onnxruntime-genai's builder", "onnxruntime_genai")
MOBIUS = GraphBuilder("mobius", "mobius")
BUILDERS = (GENAI, MOBIUS)


class Build:
    """A builder at work."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self._log = process, log

    def wait(self) -> str | None:
        """Wait for its end; None when it went well, else what it said last.

        Raises:
            ResourceError: it took longer than an hour.
        """
        try:
            code = self._process.wait(_SECONDS)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            raise ResourceError("the graph builder took longer than an hour.") from error
        if code == 0:
            return None
        lines = [s.strip() for s in self._log.read_text(encoding="utf-8", errors="replace").splitlines() if s.strip()]
        return " ".join((lines or [f"ended with code {code}"])[-1].split())[:300]


@contextmanager
def start(
    builder: GraphBuilder, source: Path, output: Path, tied: bool, adapter: Path | None = None
) -> Iterator[Build]:
    """Run a builder beside what the block does; it is ended with the block."""
    with tempfile.TemporaryDirectory(prefix="onnxtool-") as scratch:
        log = Path(scratch) / "log.txt"
        apart = None if adapter is None else adapter.resolve()
        command = builder.command(source.resolve(), output.resolve(), Path(scratch), tied, apart)
        with open(log, "wb") as file:
            where: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file, "cwd": scratch}
            process = start_python(*command, variables=_OFFLINE, **where)
        try:
            yield Build(process, log)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
