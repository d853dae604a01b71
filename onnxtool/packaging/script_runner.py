"""A package whose smoke_test.py has a `run(inputs)`, as a Runner: each run is a process of its own."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.errors import InputError
from onnxtool.model.spec import TensorSpec
from onnxtool.packaging.server_process import clean_environment
from onnxtool.runtime.data.archive import read_npz
from onnxtool.runtime.output_files import write_npz

_SECONDS = 600
_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import smoke_test
feeds = {n: a.astype(object) if a.dtype.kind == "U" else a for n, a in np.load(sys.argv[2]).items()}
found = {n: np.asarray(a) for n, a in smoke_test.run(feeds).items()}
np.savez(sys.argv[3], **{n: a.astype("U") if a.dtype.kind == "O" else a for n, a in found.items()})
"""


class ScriptRunner:
    """Runs the code of a package folder, without the caller's modules."""

    def __init__(
        self,
        python: str,
        folder: Path,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
    ) -> None:
        """Take what to run.

        Args:
            python: the interpreter.
            folder: with smoke_test.py.
            inputs, outputs: of the model.
        """
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._python, self._folder = python, folder.absolute()

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One run.

        Raises:
            InputError: the package's code fails.
        """
        with tempfile.TemporaryDirectory(prefix="onnxtool-") as scratch:
            given, found = Path(scratch) / "inputs.npz", Path(scratch) / "outputs.npz"
            write_npz(given, dict(feeds))
            files = [str(self._folder), str(given), str(found)]
            done = subprocess.run(
                [self._python, "-I", "-B", "-c", _PROGRAM, *files],
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
                env=clean_environment(),
                cwd=scratch,
            )
            if done.returncode:
                said = done.stderr.strip().splitlines()
                raise InputError(f"the package's code fails: {said[-1][:300] if said else done.returncode}")
            return {n: a.astype(object) if a.dtype.kind == "U" else a for n, a in read_npz(found).items()}
