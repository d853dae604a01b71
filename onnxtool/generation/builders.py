"""The two graph builders that are driven, each in a process of its own: onnxruntime-genai's and mobius.

onnxruntime-genai's writes the graphs that its runtime was made for, and refuses many architectures; mobius has nearly
all of them. Neither compares its result with the source, so both are held to the same proof.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from onnxtool.errors import ResourceError

_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "PYTHONWARNINGS": "ignore",
    "TQDM_DISABLE": "1",
}
_SECONDS = 3600.0


@dataclass(frozen=True)
class GraphBuilder:
    """A package that turns a Hugging Face folder into a decoder's graph.

    Attributes:
        name: for people.
        package: what to install.
        module: its import name.
    """

    name: str
    package: str
    module: str

    @property
    def installed(self) -> bool:
        """The package is there."""
        return find_spec(self.module) is not None

    def command(self, source: Path, output: Path, scratch: Path, tied: bool, adapter: Path | None = None) -> list[str]:
        """The command line that builds `output` (a folder) from `source`, with an adapter's products beside its own."""
        if self.module == "mobius":
            options = ["--ep", "cpu", "--runtime", "ort-genai", "--dtype", "f32"]
            return [sys.executable, "-m", "mobius", "build", "--config", str(source), *options, str(output)]
        spec = find_spec(self.module)
        assert spec is not None and spec.submodule_search_locations
        # Run as a script: as a module it would import the package, and look for its own parts beside itself.
        script = Path(spec.submodule_search_locations[0]) / "models" / "builder.py"
        extra = ["hf_token=false", *(["shared_embeddings=true"] if tied else [])]
        extra += [] if adapter is None else [f"adapter_path={adapter}"]
        paths = ["-i", str(source), "-o", str(output), "-c", str(scratch / "cache")]
        run = [sys.executable, "-m", "onnxtool.generation.genai_builder", str(script)]
        return [*run, *paths, "-p", "fp32", "-e", "cpu", "--extra_options", *extra]


GENAI = GraphBuilder("onnxruntime-genai's builder", "onnxruntime-genai", "onnxruntime_genai")
MOBIUS = GraphBuilder("mobius", "mobius-onnx", "mobius")
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
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=scratch,
                env={**os.environ, **_OFFLINE},
            )
        try:
            yield Build(process, log)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
