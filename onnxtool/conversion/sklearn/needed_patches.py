"""Which corrections of skl2onnx the steps of an estimator need."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from onnxtool.conversion.patches import LibraryPatch
from onnxtool.conversion.sklearn import patches
from onnxtool.conversion.sklearn.converters.register import ConverterPatch
from onnxtool.conversion.sklearn.patches import chosen_columns, inner_estimators
from onnxtool.conversion.sklearn.prepare import CLUSTERS

# What a step is taken apart into, or stands for.
_PARTS = {
    "TfidfVectorizer": ("CountVectorizer", "TfidfTransformer"),
    **dict.fromkeys(CLUSTERS, ("ClusterDistances",)),
}


@cache
def _converters() -> tuple[ConverterPatch, ...]:
    """Those of the modules in `patches`."""
    modules = iter_modules(patches.__path__, f"{patches.__name__}.")
    found = [getattr(import_module(module.name), "PATCH", None) for module in modules]
    return tuple(patch for patch in found if isinstance(patch, ConverterPatch))


def patches_for(kinds: Collection[str]) -> list[LibraryPatch]:
    """What an estimator needs.

    Args:
        kinds: names of the classes of its steps.
    """
    parts = {part for kind in kinds for part in (kind, *_PARTS.get(kind, ()))}
    return [
        *(patch for patch in _converters() if not parts.isdisjoint(patch.kinds)),
        chosen_columns.ORDER,
        inner_estimators.PATCH,
    ]
