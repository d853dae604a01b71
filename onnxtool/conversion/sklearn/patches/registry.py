"""Which corrections of skl2onnx the steps of an estimator need."""

from __future__ import annotations

from collections.abc import Collection

from onnxtool.conversion.patches import LibraryPatch
from onnxtool.conversion.sklearn.converters.register import ConverterPatch
from onnxtool.conversion.sklearn.patches import (
    bagged_votes,
    chains,
    character_ngrams,
    chosen_threshold,
    exact_trees,
    first_column,
    hashed_words,
    infrequent_categories,
    inner_estimators,
    isotonic,
    kernel_features,
    missing_indicator,
    modified_huber,
    nearest_imputer,
    neighbours,
    numpy_functions,
    one_against_rest,
    quantiles,
    several_labels,
    splines,
    stacking,
    transformed_target,
    word_counts,
)

_CONVERTERS: tuple[ConverterPatch, ...] = (
    bagged_votes.PATCH,
    chains.PATCH,
    character_ngrams.PATCH,
    chosen_threshold.PATCH,
    first_column.PATCH,
    hashed_words.PATCH,
    infrequent_categories.PATCH,
    isotonic.PATCH,
    kernel_features.PATCH,
    missing_indicator.PATCH,
    modified_huber.PATCH,
    nearest_imputer.PATCH,
    numpy_functions.PATCH,
    one_against_rest.PATCH,
    quantiles.PATCH,
    several_labels.PATCH,
    splines.PATCH,
    stacking.PATCH,
    transformed_target.PATCH,
    neighbours.PATCH,
    word_counts.PATCH,
)
# What skl2onnx takes a step apart into.
_PARTS = {"TfidfVectorizer": ("CountVectorizer", "TfidfTransformer")}


def patches_for(kinds: Collection[str]) -> list[LibraryPatch]:
    """What an estimator needs.

    Args:
        kinds: names of the classes of its steps.
    """
    parts = {part for kind in kinds for part in (kind, *_PARTS.get(kind, ()))}
    return [
        *(patch for patch in _CONVERTERS if not parts.isdisjoint(patch.kinds)),
        exact_trees.MISSING,
        inner_estimators.PATCH,
    ]
