"""What a fitted scikit-learn estimator takes: names, dtypes and categories of its inputs, read off its fit."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.source import Source
from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.model.domains import Domain, columns_domain, threshold_domain
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.table import counted_columns

BATCH = "batch"
_SCALERS = ("StandardScaler", "RobustScaler", "PowerTransformer", "QuantileTransformer")
_POSITIVE = 0.05, 10.0  # what logarithms and roots take
_TEXT = ("CountVectorizer", "TfidfVectorizer", "HashingVectorizer")


# For a vectorizer that hashes its words and so knows none.
_ANY_WORDS = (
    "alpha",
    "beta",
    "gamma",
    "the",
    "and",
    "of",
    "is",
    "not",
    "größe",
    "café",
    "слово",
    "日本",
    "re",
    "x1",
    "2026",
)
_WHITE = (" ", "  ", "\n", "\t ", " \n\n", "\u00a0", "\u2003 ", "\x0b\x0c")


@dataclass(frozen=True)
class Schema:
    """The inputs of an estimator.

    Attributes:
        inputs: one [batch, features] matrix, one column of text [batch], or one [batch, 1] input for each column.
        columns: names of the columns when there is one input for each that is used, in the order of the training data.
        domains: what values the inputs may take, where that is known.
    """

    inputs: tuple[TensorSpec, ...]
    columns: tuple[str, ...]
    domains: Mapping[str, Domain]


def schema_of(source: Source, model: Estimator, float_dtype: np.dtype) -> Schema:
    """Guess the input schema.

    Raises:
        UnsupportedError: it takes dicts.
        UsageError: the estimator does not remember how many features it was fitted on.
    """
    head = first_step(model)
    if type(head).__name__ in _TEXT:
        return Schema((TensorSpec("text", "string", (BATCH,)),), (), {"text": Domain(0, 1, sentences(head))})
    if heads := column_heads(model):
        return _columns(heads, float_dtype)
    if type(head).__name__ in ("LabelEncoder", "LabelBinarizer"):
        classes = tuple(c.item() if hasattr(c, "item") else c for c in head.classes_)
        kind: np.dtype | str = "string" if isinstance(classes[0], str) else np.dtype("int64")
        return Schema((TensorSpec("y", kind, (BATCH,)),), (), {"y": Domain(0, 1, classes)})
    if type(head).__name__ in ("DictVectorizer", "FeatureHasher"):
        raise UnsupportedError(
            f"{source}: {type(head).__name__} takes dicts, which are no rows of a tensor. Fit a pandas.DataFrame "
            "of them with a ColumnTransformer (OneHotEncoder for texts, passthrough for numbers)."
        )
    width = getattr(model, "n_features_in_", getattr(head, "n_features_in_", None))
    if width is None and hasattr(head, "X_thresholds_"):
        width = 1  # isotonic regression
    if width is None:
        raise UsageError(
            f"{source}: the estimator does not say how many features it takes. Give --input-shape X:batch,N."
        )
    dtype, values = _dtype_of(model, None, float_dtype)
    spec = TensorSpec("X", dtype, (BATCH, int(width)))
    domain = Domain(0, 1, values) if values else _range(model)
    return Schema((spec,), (), {"X": domain} if domain else {})


def first_step(model: Estimator) -> Any:
    """What sees the data first; of vectorizers side by side, one that speaks for all."""
    head = next(_steps(model), model)
    parts = [first_step(part) for part in _parts(head)]
    return parts[0] if parts and all(type(part).__name__ in _TEXT for part in parts) else head


def fitted_names(model: Estimator) -> Iterable[Any]:
    """The names of the columns of the frame that a model was fitted on; none of a matrix."""
    return getattr(model, "feature_names_in_", getattr(first_step(model), "feature_names_in_", ()))


def column_names(model: Estimator) -> list[str]:
    """Those of the frame, or numbers as of pandas' own where it has none."""
    width = getattr(model, "n_features_in_", getattr(first_step(model), "n_features_in_", 0))
    return [str(name) for name in fitted_names(model)] or counted_columns(int(width))


def _steps(model: Estimator) -> Iterator[Any]:
    """What a pipeline (in a search, in another pipeline) does, in its order, without what lets all pass."""
    best = getattr(model, "best_estimator_", None)
    parts = [step for _, step in getattr(model, "steps", None) or ()] or [best]
    if parts == [None]:
        yield model
    for part in parts:
        if part is not None and not isinstance(part, str):
            yield from _steps(part)


def steps_of(estimator: Estimator) -> Iterator[Any]:
    """An estimator and all estimators inside it."""
    pending: list[Any] = [estimator]
    while pending:
        item = pending.pop()
        if not hasattr(item, "get_params"):
            continue
        yield item
        for name in ("steps", "transformers_", "transformer_list"):
            pending += [part for entry in getattr(item, name, None) or () for part in entry if hasattr(part, "fit")]
        for name in ("best_estimator_", "final_estimator_", "estimator_", "regressor_", "transformer_"):
            pending.append(getattr(item, name, None))
        for name in ("calibrated_classifiers_", "imputation_sequence_"):
            pending += [part.estimator for part in getattr(item, name, ())]
        members = getattr(item, "estimators_", None)
        if isinstance(members, (list, tuple, np.ndarray)):
            pending += list(np.asarray(members, dtype=object).ravel())


def last_step(model: Estimator) -> Any:
    """What gives the result."""
    while True:
        steps = getattr(model, "steps", None)
        if steps:
            if steps[-1][1] in (None, "passthrough"):
                return model
            model = steps[-1][1]
            continue
        inner = getattr(model, "best_estimator_", None)
        if inner is None:
            return model
        model = inner


def column_heads(model: Estimator) -> list[Any]:
    """The ColumnTransformers that see the data as they are given: the first step, or those inside it by name."""
    head = first_step(model)
    if type(head).__name__ == "ColumnTransformer":
        return [head]
    names = list(fitted_names(model))
    if not names:
        return [s for s in _first_inside(head) if type(s).__name__ == "ColumnTransformer"]
    inner = [s for s in steps_of(head) if type(s).__name__ == "ColumnTransformer" and hasattr(s, "transformers_")]
    return [s for s in inner if list(getattr(s, "feature_names_in_", ())) == names]


def _parts(union: Any) -> list[Any]:
    """The estimators of a FeatureUnion; none of others."""
    return [part for _, part in getattr(union, "transformer_list", None) or () if hasattr(part, "fit")]


def _first_inside(model: Estimator) -> Iterator[Any]:
    """What sees all columns first, of estimators that give theirs to others as they are."""
    head = first_step(model)
    found = _parts(head)
    found += [c.estimator for c in getattr(head, "calibrated_classifiers_", ())]
    found += [getattr(head, name) for name in ("regressor_", "estimator_") if hasattr(head, name)]
    found += [m for m in np.ravel(np.asarray(getattr(head, "estimators_", ()), object)) if hasattr(m, "fit")]
    for part in found:
        if getattr(part, "n_features_in_", None) == getattr(model, "n_features_in_", 0):
            yield from _first_inside(part)
    if not found:
        yield head


def _columns(heads: Sequence[Estimator], float_dtype: np.dtype) -> Schema:
    """One input for each column when they have names or several types; a matrix when all are numbers by position."""
    names, width = [str(n) for n in fitted_names(heads[0])], int(heads[0].n_features_in_)
    kinds: dict[int, tuple[np.dtype | str, tuple[Any, ...]]] = {}
    ranges: dict[int, Domain | None] = {}
    for _, step, columns in (part for each in heads for part in each.transformers_):
        if isinstance(step, str) and step == "drop":
            continue
        for order, index in enumerate(_indices(columns, names, width)):
            kinds.setdefault(index, _dtype_of(step, order, float_dtype))
            ranges.setdefault(index, None if isinstance(step, str) else _range(step, order))
    if not names and all(dtype == float_dtype for dtype, _ in kinds.values()):
        return Schema((TensorSpec("X", float_dtype, (BATCH, width)),), (), {})
    inputs, domains = [], {}
    for index, name in enumerate(names or counted_columns(width)):
        if index not in kinds:
            continue  # dropped by the transformer
        dtype, values = kinds[index]
        inputs.append(TensorSpec(name, dtype, (BATCH, 1)))
        domain = Domain(0, 1, values) if values else ranges.get(index)
        if domain is not None:
            domains[name] = domain
    return Schema(tuple(inputs), tuple(s.name for s in inputs), domains)


def column_blocks(model: Estimator) -> list[tuple[Any, list[str]]]:
    """The steps of ColumnTransformers, and the columns that each is given."""
    found = []
    for head in column_heads(model):
        own, names = [str(n) for n in fitted_names(head)], column_names(head)
        found += [(s, [names[i] for i in _indices(c, own, len(names))]) for _, s, c in head.transformers_]
    return found


def text_columns(model: Estimator) -> set[str]:
    """The columns that vectorizers of text read, of a ColumnTransformer."""
    blocks = column_blocks(model)
    return {name for step, names in blocks if type(first_step(step)).__name__ in _TEXT for name in names}


def object_columns(model: Estimator) -> dict[str, Any]:
    """The columns of numbers or truth values that encoders of a ColumnTransformer were given as objects, with what
    stands for missing values there: None or NaN.
    """
    known = [(n, getattr(first_step(step), "categories_", None) or ()) for step, n in column_blocks(model)]
    pairs = [pair for names, own in known for pair in zip(names, own, strict=False)]
    return {name: None if None in list(c) else np.nan for name, c in pairs if numbers_of(c) is not c}


def _indices(columns: Any, names: list[str], width: int) -> list[int]:
    if isinstance(columns, slice):
        start = names.index(columns.start) if isinstance(columns.start, str) else columns.start
        stop = names.index(columns.stop) + 1 if isinstance(columns.stop, str) else columns.stop
        return list(range(width))[start : stop : columns.step]
    listed: Iterable[Any] = [columns] if isinstance(columns, (str, int)) else list(columns)
    listed = list(listed)
    if listed and all(isinstance(c, (bool, np.bool_)) for c in listed):
        return [i for i, chosen in enumerate(listed) if chosen]
    return [names.index(str(c)) if isinstance(c, str) else int(c) % width for c in listed]


def _dtype_of(step: Estimator, column: int | None, float_dtype: np.dtype) -> tuple[np.dtype | str, tuple[Any, ...]]:
    """The dtype that a fitted step wants, and the values that it knows.

    Args:
        step: a fitted estimator or transformer.
        column: which of its columns; None = all of them together (values then come as one tuple for each column).
        float_dtype: for what takes any number.
    """
    if isinstance(step, str):
        return float_dtype, ()
    head = first_step(step)
    if type(head).__name__ in _TEXT:
        return "string", sentences(head)
    parts = _parts(head)
    if parts:  # side by side: what one of them knows, all are given
        found = [_dtype_of(part, column, float_dtype) for part in parts]
        return next((each for each in found if each[1]), found[0])
    categories = getattr(head, "categories_", None)
    if categories is not None and hasattr(head, "n_features_in_"):
        chosen = categories if column is None else [categories[column]]
        kinds = {numbers_of(c).dtype.kind for c in chosen}
        values = tuple(tuple(v.item() if hasattr(v, "item") else v for v in c) for c in chosen)
        values = tuple(tuple(v for v in c if v is not None and v == v) for c in values)
        flat = values if column is None else values[0]
        if kinds & set("OUS"):
            return "string", flat
        return (np.dtype("int64") if kinds <= set("iub") else float_dtype), flat
    if hasattr(head, "statistics_"):
        return _dtype_of_imputed(step, column, np.asarray(head.statistics_, dtype=object), float_dtype)
    return float_dtype, ()


def numbers_of(categories: Any) -> np.ndarray:
    """Categories of a column; numbers and truth values of a column of objects in a type of theirs."""
    known = np.asarray(categories)
    values = [v for v in known if v is not None and v == v]
    numbers = known.dtype.kind == "O" and all(isinstance(v, (bool, int, float)) for v in values)
    if not numbers or len(known) > len(values) + 1:  # both kinds of missing values
        return known
    return np.array([*values, *[np.nan] * (len(known) - len(values))])


def sentences(vectorizer: Estimator) -> tuple[str, ...]:
    """Texts of the words that a vectorizer knows, with some that it does not know, capitals and punctuation."""
    known = sorted(str(w) for w in getattr(vectorizer, "vocabulary_", {}))[:5000] or list(_ANY_WORDS)
    words = [*known[:: max(1, len(known) // 200)], "zzyzx", "I", "42"]
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(words, size=int(generator.integers(1, 9)))) for _ in range(60)]
    # Words that are known as neighbours, with something between them: which of it counts as a word decides.
    neighbours = [w.split(" ") for w in known if " " in w]
    stopped = sorted(getattr(vectorizer, "get_stop_words", frozenset)() or ())[:1]
    between = (" I ", " 7 ", " zzyzx ", ", ", "-", "  ", "\n", *(f" {word} " for word in stopped))
    if getattr(vectorizer, "analyzer", "") in ("char", "char_wb"):
        texts += [f"{gap}{words[0].strip()}{gap}{words[-4].strip()}{gap}" for gap in _WHITE]
    chosen = neighbours[:: max(1, len(neighbours) // len(between))][: len(between)]
    texts += [gap.join(parts) for parts in chosen for gap in between]
    texts += [" ".join(words).upper(), " ".join(words).title()]
    return (*texts, texts[0].capitalize() + ".", f"{texts[1]}, {texts[2].upper()}!", "zzyzx")


def _dtype_of_imputed(
    step: Estimator, column: int | None, statistics: np.ndarray, float_dtype: np.dtype
) -> tuple[np.dtype | str, tuple[Any, ...]]:
    """What is imputed first: the values are what an encoder after it knows, else of texts the imputed one."""
    texts = any(isinstance(s, str) for s in statistics.ravel())
    for _, later in getattr(step, "steps", ())[1:]:
        if hasattr(later, "categories_") and len(later.categories_) == len(statistics):
            kind, values = _dtype_of(later, column, float_dtype)
            return kind if texts else float_dtype, values
    own = tuple((s,) for s in statistics.ravel())
    return ("string", own if column is None else own[column]) if texts else (float_dtype, ())


def _range(model: Estimator, column: int | None = None) -> Domain | None:
    """Where the training data lay, as far as scalers and trees at the front of the model tell.

    Args:
        model: fitted.
        column: one of its columns; None = all of them together.
    """
    head = next((s for s in _steps(model) if type(s).__name__ != "SimpleImputer"), model)
    kind = type(head).__name__
    if column is not None and column >= getattr(head, "n_features_in_", 0):
        return None  # an imputer has dropped a column
    categories = getattr(head, "n_categories_", None)
    if categories is not None:
        return Domain(0, 1, tuple(range(int(np.min(categories)))))
    if kind == "FunctionTransformer":
        return Domain(*_POSITIVE) if head.func in (np.log, np.log2, np.log10, np.log1p, np.sqrt) else None
    chosen = slice(column, None if column is None else column + 1)
    if kind in _SCALERS:
        lows, highs = _ends(head)[:, chosen]
        return columns_domain(lows, highs)
    low, high = getattr(head, "data_min_", None), getattr(head, "data_max_", None)
    if low is not None and high is not None and np.size(low):
        return columns_domain(low[chosen], high[chosen])
    fitted = _fitted_rows(head)
    if fitted is not None:
        return columns_domain(*(ends.reduce(fitted[:, chosen], axis=0) for ends in (np.fmin, np.fmax)))
    found = [(tree.feature[own], tree.threshold[own]) for tree in trees_of(head) for own in (tree.children_left >= 0,)]
    if column is None and sum(features.size for features, _ in found):
        features, thresholds = (np.concatenate(part) for part in zip(*found, strict=True))
        return threshold_domain(features, thresholds, head.n_features_in_)
    return None


def _fitted_rows(model: Estimator) -> np.ndarray | None:
    """[rows, columns] that neighbours or kernels were fitted on: far from all of them, rows are alike."""
    for name in ("_fit_X", "support_vectors_", "X_train_", "X_fit_"):
        rows = getattr(model, name, None)
        if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.size and rows.dtype.kind in "fiu":
            return rows
    return None


def _ends(scaler: Any) -> np.ndarray:
    """[2, columns]: what a scaler takes to -2 and 2."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        ends = np.array([[-2.0], [2.0]]) * np.ones(scaler.n_features_in_)
        return np.asarray(scaler.inverse_transform(ends), dtype=float)


def trees_of(model: Estimator) -> list[Any]:
    """The sklearn.tree._tree.Tree objects inside an estimator."""
    own = getattr(model, "tree_", None)
    if own is not None and hasattr(own, "threshold"):
        return [own]
    members = getattr(model, "estimators_", None)
    if members is None:
        return []
    return [tree for member in np.asarray(members, dtype=object).ravel() for tree in trees_of(member)]
