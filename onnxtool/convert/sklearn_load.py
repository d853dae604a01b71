"""Reading fitted estimators: skops files checked type by type; pickles of any kind only when trusted."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickletools
import warnings
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

from onnxtool.convert.adapter import ConvertOptions
from onnxtool.convert.factory import importable
from onnxtool.convert.source import Source
from onnxtool.convert.tensorflow_quiet import quiet
from onnxtool.errors import InputError, MissingExtraError, UnsafeError

# Packages whose classes are part of what a fitted estimator is made of. Only classes and numpy ufuncs of theirs are
# accepted, no plain functions: numpy alone has some that run any string given to them.
_KNOWN_PACKAGES = ("sklearn", "numpy", "scipy", "xgboost", "lightgbm", "catboost")
_KNOWN_TYPES = ("collections.OrderedDict", "collections.defaultdict")
_PEEK = 1 << 16
_COMPRESSED: tuple[tuple[bytes, str, Callable[[bytes], bytes]], ...] = (
    (b"\x1f\x8b", "gzip", lambda data: gzip.GzipFile(fileobj=io.BytesIO(data)).read1(_PEEK)),
    (b"BZh", "bz2", lambda data: bz2.BZ2Decompressor().decompress(data, _PEEK)),
    (b"\xfd7zXZ\x00", "xz", lambda data: lzma.LZMADecompressor().decompress(data, _PEEK)),
    (b"]\x00\x00", "lzma", lambda data: lzma.LZMADecompressor().decompress(data, _PEEK)),
    (b"x\x01", "zlib", lambda data: zlib.decompressobj().decompress(data, _PEEK)),
    (b"x\x9c", "zlib", lambda data: zlib.decompressobj().decompress(data, _PEEK)),
    (b"x\xda", "zlib", lambda data: zlib.decompressobj().decompress(data, _PEEK)),
    (b"x^", "zlib", lambda data: zlib.decompressobj().decompress(data, _PEEK)),
)
_PICKLE_SUFFIXES = (".pkl", ".pickle", ".joblib", ".cloudpickle", ".sav")


def is_skops(source: Source) -> bool:
    """A zip with skops's schema."""
    return "schema.json" in source.zip_names()


def pickle_form(source: Source) -> str | None:
    """What kind of pickle this is ("pickle", "joblib, zlib-compressed"); None for none. Nothing is unpickled."""
    start = _pickle_start(source)
    if start is None:
        return None
    if start[:1] != b"\x80" and source.suffix not in _PICKLE_SUFFIXES:
        return None
    if b"joblib" in start[:4096]:
        kind = "joblib"
    else:
        kind = "cloudpickle" if b"cloudpickle" in start else "joblib" if source.suffix == ".joblib" else "pickle"
    packing = next((name for magic, name, _ in _COMPRESSED if source.head(6).startswith(magic)), "")
    return f"{kind}, {packing}-compressed" if packing else kind


def _pickle_start(source: Source) -> bytes | None:
    """The first bytes of the pickle stream, unpacked."""
    head = source.head(_PEEK)
    for magic, _, unpack in _COMPRESSED:
        if head.startswith(magic):
            try:
                head = unpack(head)
            except (OSError, EOFError, zlib.error, lzma.LZMAError):
                return None
            break
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return head
    # Protocols 0 and 1 have no magic; only the name gives them away.
    return head if source.suffix in _PICKLE_SUFFIXES and head[:1] in (b"c", b"(", b"]", b"}") else None


def pickled_packages(source: Source) -> list[str]:
    """Top-level packages that the start of a pickle names, read off its opcodes without running them."""
    found: dict[str, None] = {}
    stack: list[str | None] = []
    memo: list[str | None] = []
    try:
        for opcode, argument, _ in pickletools.genops(_pickle_start(source) or b""):
            if opcode.name == "GLOBAL":
                found[str(argument).split(".")[0].split(" ")[0]] = None
            elif opcode.name == "STACK_GLOBAL" and len(stack) >= 2:
                found[(stack[-2] or "").split(".")[0]] = None
            if opcode.name == "MEMOIZE":
                memo.append(stack[-1] if stack else None)
            elif opcode.name in ("BINGET", "LONG_BINGET") and isinstance(argument, int):
                stack.append(memo[argument] if argument < len(memo) else None)
            else:
                stack.append(argument if isinstance(argument, str) else None)
    except Exception:  # cut off at _PEEK, or raw array bytes in between
        pass
    return [name for name in found if name.isidentifier()]


def read_estimator(source: Source, options: ConvertOptions) -> tuple[Any, str, list[str]]:
    """Load a fitted estimator.

    Returns:
        (estimator, what was recognised, things to say aloud).

    Raises:
        InputError: damaged, or a class in it cannot be imported.
        UnsafeError: a pickle, or types beyond the known packages, and `options.trust` is not set.
        MissingExtraError: skops or joblib is not installed.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if is_skops(source):
            model, notes = _read_skops(source, options)
            form = "scikit-learn estimator (skops)"
        else:
            model, notes = _read_pickle(source, options)
            form = f"scikit-learn estimator ({pickle_form(source)})"
    return model, form, notes + _version_notes(caught)


def _read_skops(source: Source, options: ConvertOptions) -> tuple[Any, list[str]]:
    try:
        import skops.io
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(source), "skops", "sklearn") from error
    try:
        listed = list(skops.io.get_untrusted_types(file=source.path))
    except Exception as error:
        raise InputError(f"{source}: this skops file is damaged: {_reason(error)}") from error
    strange = [name for name in listed if not _is_known(name)]
    if strange and not options.trust:
        raise UnsafeError(
            f"{source}: it holds types beyond scikit-learn, numpy and scipy: {', '.join(sorted(strange))}. "
            "Loading them can run code; pass --trust if you trust where the file comes from."
        )
    with importable(options.python_path):
        try:
            model = skops.io.load(source.path, trusted=listed)
        except Exception as error:
            raise InputError(f"{source}: skops cannot load it: {_reason(error)}") from error
    return model, [f"types trusted: {', '.join(sorted(strange))}"] if strange else []


def _is_known(name: str) -> bool:
    """A class (or ufunc) of a known package."""
    package, _, _ = name.partition(".")
    module, _, attribute = name.rpartition(".")
    if name in _KNOWN_TYPES:
        return True
    if package not in _KNOWN_PACKAGES:
        return False
    import numpy as np

    try:
        target = getattr(import_module(module), attribute)
    except Exception:
        return False
    return isinstance(target, (type, np.ufunc))


def _read_pickle(source: Source, options: ConvertOptions) -> tuple[Any, list[str]]:
    packages = [p for p in pickled_packages(source) if p not in ("builtins", "_codecs", "copyreg", "copy_reg")]
    if not options.trust:
        uses = f" (it names {', '.join(packages)})" if packages else ""
        raise UnsafeError(
            f"{source}: this is a pickle ({pickle_form(source)}){uses}, which can run code when loaded. "
            "Pass --trust if you trust it, or save the model with skops.io.dump."
        )
    try:
        import joblib
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(source), "joblib", "sklearn") from error
    with importable(options.python_path), quiet(2):
        try:
            model = joblib.load(source.path)
        except ModuleNotFoundError as error:
            raise InputError(
                f"{source}: it needs the module {error.name!r}. Install it, or add its folder with --pythonpath."
            ) from error
        except Exception as error:
            raise InputError(f"{source}: cannot be unpickled: {_reason(error)}") from error
    return model, [f"pickle trusted; it names {', '.join(packages)}" if packages else "pickle trusted"]


def _version_notes(caught: list[warnings.WarningMessage]) -> list[str]:
    """Estimators unpickled by another scikit-learn than the one that wrote them can behave differently."""
    notes: dict[str, None] = {}
    for warning in caught:
        message = warning.message
        if type(message).__name__ == "InconsistentVersionWarning":
            saved = getattr(message, "original_sklearn_version", "?")
            now = getattr(message, "current_sklearn_version", "?")
            notes[f"saved by scikit-learn {saved}, loaded by {now}: results may differ from the original"] = None
    return list(notes)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
