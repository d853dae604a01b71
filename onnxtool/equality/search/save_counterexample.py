"""A counterexample on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from onnxtool.equality.trials.trial import Trial
from onnxtool.errors import ResourceError
from onnxtool.model.io import check_output
from onnxtool.runtime.feeds import flatten


def keep(trial: Trial, path: str | os.PathLike[str]) -> str:
    """Write the inputs as an .npz file that --data and --sample take, with the reference's outputs as `expected.NAME`.

    Raises:
        ResourceError: the file cannot be written.
    """
    target = Path(path)
    check_output(target)
    expected = {f"expected.{name}": np.asarray(value) for name, value in flatten(trial.outputs).items()}
    arrays = {**trial.feeds, **expected}
    plain = {n: a.astype(str) if a.dtype.kind == "O" else a for n, a in arrays.items()}
    try:
        with target.open("wb") as file:
            np.savez(file, **plain)  # type: ignore[arg-type]
    except OSError as error:
        raise ResourceError(f"{target}: cannot be written ({error.strerror or error}).") from error
    return str(target)
