"""Reading fitted estimators: skops files checked type by type; pickles of any kind only when trusted."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

from onnxtool.conversion.source import Source
from onnxtool.conversion.tensorflow.environment import quiet
from onnxtool.errors import InputError, UnsafeError, needs_extra, one_line
from onnxtool.model.safety.pickle_scan import pickled_imports, unpacked
from onnxtool.options.convert import ConvertOptions
from onnxtool.user_code import importable

# Packages whose classes are part of what a fitted estimator is made of. Only classes and numpy ufuncs of theirs are
# accepted, no plain functions: numpy alone has some that run any string given to them.
_KNOWN_PACKAGES = ("sklearn", "numpy", "scipy", "xgboost", "lightgbm", "catboost")
_KNOWN_TYPES = ("collections.OrderedDict", "collections.defaultdict")
_PEEK = 1 << 16
_PROTOCOLS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_PICKLE_SUFFIXES = (".pkl", ".pickle", ".joblib", ".cloudpickle", ".sav")


def is_skops(source: Source) -> bool:
    """A zip with skops's schema."""
    return "schema.json" in source.zip_names()


def pickle_form(source: Source) -> str | None:
    """What kind of pickle this is ("pickle", "joblib, zlib-compressed"); None for none. Nothing is unpickled."""
    inside = unpacked(source.head(_PEEK))
    if inside is None:
        return None
    packing, start = inside
    # Protocols 0 and 1 have no magic; only the name gives them away.
    known = source.suffix in _PICKLE_SUFFIXES
    if not (start[:2] in _PROTOCOLS or (known and start[:1] in (b"c", b"(", b"]", b"}"))):
        return None
    if b"joblib" in start[:4096]:
        kind = "joblib"
    else:
        kind = "cloudpickle" if b"cloudpickle" in start else "joblib" if source.suffix == ".joblib" else "pickle"
    return f"{kind}, {packing}-compressed" if packing else kind


def pickled_packages(source: Source) -> list[str]:
    """Top-level packages that the start of a pickle names, read off its opcodes without running them."""
    names = pickled_imports(source.head(_PEEK)) or []
    return [p for p in dict.fromkeys(n.partition(".")[0] for n in names) if p.isidentifier()]


def named_packages(source: Source) -> list[str]:
    """The known packages that a skops file's schema speaks of."""
    try:
        schema = source.zip_read("schema.json").decode(errors="replace")
    except InputError:
        return []
    return [package for package in _KNOWN_PACKAGES if package in schema]


def refuse_untrusted(source: Source, options: ConvertOptions) -> None:
    """A pickle needs trust, whatever is installed.

    Raises:
        UnsafeError: a pickle, and `options.trust` is not set.
    """
    if options.trust or is_skops(source) or source.model is not None:
        return
    packages = _own_packages(source)
    uses = f" (it names {', '.join(packages)})" if packages else ""
    raise UnsafeError(
        f"{source}: this is a pickle ({pickle_form(source)}){uses}, which can run code when loaded. "
        "Pass --trust if you trust it, or save the model with skops.io.dump."
    )


def read_estimator(source: Source, options: ConvertOptions) -> tuple[Any, str, list[str]]:
    """Load a fitted estimator.

    Returns:
        (estimator, what was recognised, things to say aloud).

    Raises:
        InputError: damaged, or a class in it cannot be imported.
        UnsafeError: a pickle, or types beyond the known packages, and `options.trust` is not set.
        MissingExtraError: skops or joblib is not installed.
    """
    if source.model is not None:
        return source.model, "scikit-learn estimator in memory", []
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
    with needs_extra(str(source), "skops", "sklearn"):
        import skops.io
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
    refuse_untrusted(source, options)
    packages = _own_packages(source)
    with needs_extra(str(source), "joblib", "sklearn"):
        import joblib
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


def _own_packages(source: Source) -> list[str]:
    return [p for p in pickled_packages(source) if p not in ("builtins", "_codecs", "copyreg", "copy_reg")]


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
    return one_line(error) or type(error).__name__
