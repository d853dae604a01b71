"""Operators of PyTorch programs that reach outside of the graph. TorchScript is a program: it can write files."""

from __future__ import annotations

import re

from onnxtool.conversion.source import Source
from onnxtool.errors import InputError, UnsafeError

# aten::save writes a file, aten::from_file reads or makes one; torchvision and others add operators like them.
_OPERATORS = ("save", "from_file", "read_file", "write_file", "load_library")
_NAMESPACES = ("debugprims", "c10d", "_c10d_functional", "symm_mem")
_WORD = re.compile(rb"\b(%s)\b" % "|".join((*_OPERATORS, *_NAMESPACES)).encode())
_TARGET = re.compile(rf"torch\.ops\.(({'|'.join(_NAMESPACES)})\.\w+|\w+\.({'|'.join(_OPERATORS)}))(\.\w+)?")


def refuse_unsafe_script(source: Source) -> None:
    """Look through the code of a TorchScript archive before it is loaded, since loading runs `__setstate__`.

    Raises:
        UnsafeError: it names an operator that reaches files or other processes.
        InputError: damaged, or two entries bear one name, of which torch may take another one than this look.
    """
    names = [n.lower() for n in source.zip_names()]  # torch does not tell upper from lower case
    if len(set(names)) != len(names):
        raise InputError(f"{source}: two entries of the archive have the same name.")
    for name in source.zip_names():
        lower = name.lower()
        if lower.endswith(".py") or ("code/" in lower and not lower.endswith(".debug_pkl")):
            found = _WORD.search(source.zip_read(name))
            if found:
                raise UnsafeError(
                    f"{source}: this TorchScript program reaches outside of it ({found[0].decode()}), which converting "
                    "it would run. Pass --trust if you trust where it comes from."
                )


def is_outside(target: str) -> bool:
    """Whether the target of a node of an exported program ("torch.ops.aten.from_file.default") reaches outside."""
    return _TARGET.fullmatch(target) is not None
