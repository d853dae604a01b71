"""ONNX's own folders of test data: `test_data_set_0/input_0.pb`, a tensor for each input."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from onnxtool.errors import InputError
from onnxtool.model.safety.tensors import declared_bytes
from onnxtool.model.spec import TensorSpec

_INPUT = re.compile(r"input_(\d+)\.pb$")
_LARGEST = 1 << 31


def sample_folders(folder: Path, specs: Sequence[TensorSpec]) -> list[Path]:
    """The folders of single samples: with input_N.pb files, or with an .npy file for each input; itself, or in it."""
    if _holds_sample(folder, specs):
        return [folder]
    inner = sorted((p for p in folder.iterdir() if p.is_dir()), key=_by_number)
    return [p for p in inner if _holds_sample(p, specs)]


def read_sample(folder: Path, specs: Sequence[TensorSpec]) -> dict[str, np.ndarray]:
    """One sample: input_N.pb is the N-th input unless it bears the name of one.

    Raises:
        InputError: damaged, of a type that is no tensor, or with data in other files.
    """
    files = sorted((p for p in folder.iterdir() if _INPUT.search(p.name)), key=_by_number)
    if not files:
        return {s.name: np.load(folder / f"{s.name}.npy", allow_pickle=False) for s in specs}
    found = {}
    names = {s.name for s in specs}
    for position, file in enumerate(files):
        if file.stat().st_size > _LARGEST:
            raise InputError(f"{file}: too large for a tensor in one file.")
        tensor = onnx.TensorProto()
        try:
            tensor.ParseFromString(file.read_bytes())
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                raise InputError(f"{file}: its data is in another file, which is not followed.")
            declared = declared_bytes(tensor)
            if declared is not None and declared > _LARGEST:
                raise InputError(f"{file}: it declares {declared} bytes.")
            array = numpy_helper.to_array(tensor)
        except InputError:
            raise
        except Exception as error:  # protobuf's and onnx's own, of damaged files
            raise InputError(f"{file}: is no tensor, or damaged ({' '.join(str(error).split())[:200]}).") from error
        name = tensor.name if tensor.name in names else specs[min(position, len(specs) - 1)].name
        found[name] = array
    return found


def _holds_sample(folder: Path, specs: Sequence[TensorSpec]) -> bool:
    if any(_INPUT.search(p.name) for p in folder.iterdir() if p.is_file()):
        return True
    return len(specs) > 0 and folder.parent != folder and all((folder / f"{s.name}.npy").is_file() for s in specs)


def _by_number(path: Path) -> tuple[int, str]:
    digits = re.findall(r"\d+", path.name)
    return (int(digits[-1]) if digits else -1, path.name)
