"""Files of weights alone, told from their bytes: without torch, whose import takes longer than all the rest."""

from __future__ import annotations

import zipfile

from onnxtool.conversion.source import Source
from onnxtool.errors import UsageError
from onnxtool.model.safety.pickle_scan import pickled_imports

_MOST = 64 << 20  # bytes of a pickle without its tensors
_OF_TENSORS = ("torch._utils._rebuild_", "torch._tensor._rebuild_", "torch.serialization.", "torch.storage.")
_PLAIN = ("collections.OrderedDict", "torch.Size", "torch.device", "_codecs.encode")


def refuse_bare_weights(source: Source) -> None:
    """Say what is missing, where a file holds tensors in plain dictionaries and nothing that could run.

    Raises:
        UsageError: it does.
    """
    if _is_bare(source):
        raise UsageError(needs_factory(source))


def needs_factory(source: Source) -> str:
    """What to say of weights that come without what builds their model."""
    folder = source.path.parent if source.path else None
    whole = folder is not None and (folder / "config.json").is_file()
    return (
        f"{source}: this is a state_dict: weights without the model's code. "
        + (f"Convert the folder {folder} as a whole, since it has a config.json, or name" if whole else "Name")
        + " what builds the model with --factory file.py:function or --factory package.module:Class."
    )


def _is_bare(source: Source) -> bool:
    if source.path is None:
        return False
    try:
        with zipfile.ZipFile(source.path) as archive:
            member = next((m for m in archive.infolist() if m.filename.endswith("/data.pkl")), None)
            if member is None or member.file_size > _MOST:
                return False
            with archive.open(member) as file:
                imports = pickled_imports(file.read(_MOST))
    except Exception:  # damaged in one of a hundred ways: torch says how
        return False
    return bool(imports) and all(map(_is_of_tensors, imports or ()))


def _is_of_tensors(name: str) -> bool:
    return name in _PLAIN or name.startswith(_OF_TENSORS) or (name.startswith("torch.") and name.endswith("Storage"))
