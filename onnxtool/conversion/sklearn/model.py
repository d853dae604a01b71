"""A fitted scikit-learn estimator as a Runner, with the outputs that its ONNX form has."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.conversion.adapter import SourceModel
from onnxtool.conversion.boosting.category_columns import categories_apart, columns_apart
from onnxtool.conversion.boosting.xgboost_trees import is_linear
from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.graph_interface import described_rows, named
from onnxtool.conversion.sklearn.given_types import first_rows, given_types, in_given_type
from onnxtool.conversion.sklearn.prepare import category_advice, gap_of, plain
from onnxtool.conversion.sklearn.schema import (
    BATCH,
    column_blocks,
    column_names,
    first_step,
    fitted_names,
    last_step,
    object_columns,
    schema_of,
    steps_of,
    text_columns,
)
from onnxtool.conversion.sklearn.tied_neighbours import tied_rows
from onnxtool.conversion.source import Source
from onnxtool.equality.search.difference import largest_difference
from onnxtool.errors import InputError, UnsupportedError, needs_extra, one_line
from onnxtool.model.domains import Domain
from onnxtool.model.spec import Dim, TensorSpec, row_width
from onnxtool.options.convert import ConvertOptions
from onnxtool.runtime.data.table import DataTable

if TYPE_CHECKING:
    import onnx_ir as ir

Compute = Callable[[Any], Any]
_OF_CLASSES = ("probabilities", "scores")
_MADE_UP = re.compile(r"(Column_|f|x)?\d+")
# Of the rows: if more are ties, the verdict has their number.
_FEW_TIES = 0.01
# Closer scores than this are a tie in float32.
_TIE = 1e-5
_ROUNDING = 0.01  # of what `largest_difference` counts as far: one in 100,000, more than float32 rounds
_OF_SINGLES = (
    "scikit-learn computes in float32 on rows of float32, as the file does where it is known how each step rounds; on "
    'rows of float64 (frame.astype("float64")) both compute in that'
)
_MANY_ROWS = 4096  # that are worth several threads


@dataclass
class SklearnModel(SourceModel):
    """An estimator.

    Attributes:
        estimator: fitted.
        columns: names of the training columns when each is an input of its own; () for one matrix.
        categories: of columns that the source is given in pandas' type of categories, by name; others are missing.
        names: the training data's column names, when it had some.
        computes: for each output, how the estimator computes it.
        raw_scores: a classifier without probabilities; its decision function takes their place.
        doubles: whether the ONNX form computes in float64.
        types: in which the sample has its columns, by input, where the estimator may compute otherwise than in float64.
        classes: the labels, where the estimator itself does not hold them (native boosting files).
    """

    estimator: Estimator
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    computes: tuple[Compute, ...]
    columns: tuple[str, ...]
    form: str
    framework: str
    notes: list[str] = field(default_factory=list)
    advice: str = ""
    difference_hint: str = ""
    feeds_hint: Mapping[str, Domain] | None = None
    raw_scores: bool = False
    doubles: bool = False
    types: Mapping[str, np.dtype] = field(default_factory=dict)
    classes: tuple[Any, ...] = ()
    limits: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    in_doubles: bool = True
    untested: str = ""
    categories: Mapping[str, list[Any]] = field(default_factory=dict)
    cheap_rows: bool = True
    _clear_rows: dict[str, np.ndarray] = field(default_factory=dict, init=False, repr=False)
    # What it gave when its ties were looked for, for the run on these very inputs that follows.
    _known: tuple[Mapping[str, np.ndarray], dict[str, Any]] | None = field(default=None, init=False, repr=False)

    @classmethod
    def prepare(
        cls, source: Source, estimator: Estimator, form: str, notes: list[str], options: ConvertOptions
    ) -> SklearnModel:
        """Find out what an estimator takes and gives.

        Raises:
            InputError: no estimator, or not fitted.
            UnsupportedError: it neither predicts nor transforms.
            UsageError: options that do not fit.
        """
        import sklearn
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted

        if not hasattr(estimator, "get_params") or not hasattr(estimator, "fit"):
            raise InputError(f"{source}: this holds a {type(estimator).__name__}, not a scikit-learn estimator.")
        try:
            check_is_fitted(estimator)
        except (NotFittedError, TypeError) as error:
            raise InputError(f"{source}: this {type(estimator).__name__} is not fitted.") from error
        shown, float_dtype = estimator, np.dtype("float64")
        simple = plain(estimator)
        apart, columns = categories_apart(columns_apart(simple), options.sample)
        estimator = estimator if apart is simple else apart
        schema = schema_of(source, estimator, float_dtype)
        features = _feature_names(estimator)
        described = [
            replace(s, columns=(s.name,) if schema.columns else features if len(features) == row_width(s) else ())
            for s in schema.inputs
        ]
        inputs = described_rows(described, options)
        if _label_kind(last_step(estimator)) in ("b", "f"):
            notes = [*notes, "labels are integers in the ONNX file: classifiers there know no booleans and no floats"]
        renamed = dict(zip((s.name for s in schema.inputs), (s.name for s in inputs), strict=True))
        outputs = outputs_of(source, shown, options.zipmap)
        told = set(options.input_dtypes)
        blocks = [names for step, names in column_blocks(estimator) if step != "drop"]
        types = given_types(options.sample, inputs, blocks)
        types = {n: kind for n, kind in types.items() if not told & {n, ""}}
        single, double = np.dtype("float32"), np.dtype("float64")
        # Texts and integers alone are no reason to compute in float32 what comes of them.
        kinds = {double if types.get(s.name) == single else s.dtype for s in inputs}
        inputs = tuple(replace(s, dtype=single) if types.get(s.name) == single else s for s in inputs)
        first = inputs[0].shape[0] if inputs and inputs[0].shape else BATCH
        classes = _class_names(last_step(estimator))
        taken = {s.name for s in inputs}  # a column may be called "label"
        specs = [
            TensorSpec(
                f"predicted_{n}" if n in taken else n,
                d,
                None if s is None else (first, *s[1:]),
                classes if n in _OF_CLASSES else (),
            )
            for n, d, s, _ in outputs
        ]
        model = cls(
            estimator=estimator,
            inputs=inputs,
            outputs=named(specs, options.output_names, "--output-names"),
            computes=tuple(c for *_, c in outputs),
            categories=columns,
            columns=schema.columns,
            form=form,
            framework=f"scikit-learn {sklearn.__version__}",
            notes=notes,
            advice=category_advice(estimator),
            feeds_hint={renamed[n]: d for n, d in schema.domains.items()} or None,
            raw_scores=_kind(last_step(estimator)) == "classifier" and not hasattr(estimator, "predict_proba"),
            doubles=double in kinds or single not in kinds,
            types=types,
            difference_hint=_OF_SINGLES if single in types.values() else "",
        )
        if types and not model._takes_types(options.sample):  # then rows become doubles before it, as the file's
            return cls.prepare(source, shown, form, notes, replace(options, sample=None))
        return model

    def _takes_types(self, sample: Mapping[str, np.ndarray] | DataTable | None) -> bool:
        """Whether it takes the sample in its own types; says so where float64 would give something else for it."""
        rows = first_rows(sample, self.inputs)
        others = ", ".join(f"{name} ({kind})" for name, kind in self.types.items() if kind != np.float32)
        try:
            given = self.run(rows) if rows else {}
        except InputError:
            return False
        if not others or not given:
            return True
        wide = replace(self, types={}).run(rows)
        if largest_difference(wide, given) > _ROUNDING:
            self.notes.append(
                "the estimator gives other answers for the sample than for the same numbers in float64, of which the "
                f"file takes {others}: NumPy computes in fewer digits on small types. If float64 is meant, convert "
                "the sample to it before (frame.astype)."
            )
        return True

    @cached_property
    def _thread_pools(self) -> Any:
        """Of the libraries that are loaded."""
        from threadpoolctl import ThreadpoolController

        return ThreadpoolController()

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """What the estimator computes on these rows.

        Raises:
            InputError: the estimator refuses them.
        """
        known, self._known = self._known, None  # once: who runs it twice asks whether it repeats itself
        if known is not None and all(known[0].get(s.name) is feeds[s.name] for s in self.inputs):
            return known[1]
        data = self.table(feeds)
        # Threads that wait for one another at each tree take longer than few rows do, most of all on a busy machine.
        threads = 1 if len(data) < _MANY_ROWS else None
        try:
            with (
                self._thread_pools.limit(limits=threads, user_api="openmp"),
                warnings.catch_warnings(),
                np.errstate(all="ignore"),
            ):
                warnings.simplefilter("ignore")
                return {s.name: compute(data) for s, compute in zip(self.outputs, self.computes, strict=True)}
        except Exception as error:
            raise InputError(f"the estimator fails to run: {one_line(error)}") from error

    def operator_trace(self, feeds: Mapping[str, np.ndarray]) -> ir.Model:  # noqa: ARG002
        """The estimator's formulas, from its own attributes.

        Raises:
            UnsupportedError: a step has no exact form here.
        """
        from onnxtool.conversion.sklearn.operator_trace import operator_trace

        try:
            return operator_trace(self.estimator, self.inputs, self.outputs, self.columns)
        except (AttributeError, ValueError, TypeError, LookupError) as error:  # what other versions have otherwise
            raise UnsupportedError(f"its attributes have no exact form here: {one_line(error, 120)}") from error

    def drop_tied_rows(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Rows on which two classes or two neighbours tie, replaced by rows on which none do: there, rounding or the
        order of a search picks.

        Where every row is a tie, rows of earlier inputs stand for them; nothing changes where there are none.
        """
        rows = {len(array) if np.ndim(array) else 0 for array in feeds.values()}
        if len(rows) != 1:
            return dict(feeds)
        count = rows.pop()
        run = cache(lambda: self.run(feeds))
        tied = tied_rows(self.estimator, run, count) | self._tied_classes(run, count)
        clear = np.flatnonzero(~tied)
        left_out = count - len(clear)
        where = "not compared where classes or neighbours tie"
        # Of the rows that it is first held to: the user's.
        if not self._clear_rows and left_out > _FEW_TIES * count and where not in self.untested:
            told = f"{where} ({left_out} of {count} rows), which may differ"
            self.untested = "; ".join(filter(None, [self.untested, told]))
        if len(clear):
            self._clear_rows = {name: np.asarray(array)[clear] for name, array in feeds.items()}
        if len(clear) == count:
            self._known = (feeds, run()) if run.cache_info().currsize else None
            return dict(feeds)
        note = "rows on which two classes or neighbours tie were left out of the comparison"
        if not self._clear_rows:
            note = (
                "two classes or neighbours tie on all rows of an input: the order of a search, or rounding, picks there"
            )
        self.notes.extend([note] if note not in self.notes else [])
        chosen = np.arange(count)
        chosen[tied] = np.resize(clear, count - len(clear)) if len(clear) else chosen
        known = {} if len(clear) else self._clear_rows  # a sample's may be wider than the file's inputs
        given = {n: np.resize(a, (count, *a.shape[1:])).astype(feeds[n].dtype) for n, a in known.items()}
        return {name: array[chosen] for name, array in (given or feeds).items()}

    def _tied_classes(self, run: Callable[[], Mapping[str, Any]], count: int) -> np.ndarray:
        """bool[rows]: where the two largest scores are as good as equal; none of estimators that give no scores."""
        none, names = np.zeros(count, bool), [s.name for s in self.outputs]
        if len(names) < 2 or not names[0].endswith("label") or not isinstance(self.outputs[1].dtype, np.dtype):
            return none
        found = run()[names[1]]
        tied = none
        for each in found if isinstance(found, list) or np.ndim(found) == 3 else [found]:  # one for each target
            scores = np.asarray(each, dtype=float)
            if scores.ndim == 2 and scores.shape[1] > 1:
                best = np.sort(scores, axis=1)[:, -2:]
                tied = tied | (best[:, 1] - best[:, 0] < _TIE * np.maximum(1, np.abs(best[:, 1])))
        return tied

    @cached_property
    def _asked_names(self) -> list[Any]:
        """The fit's names of a matrix's columns, where rows without names are refused: XGBoost's trees do not ask."""
        asked = is_linear(self.estimator) or type(first_step(self.estimator)).__name__ == "FunctionTransformer"
        return list(fitted_names(self.estimator)) if asked else []

    def table(self, feeds: Mapping[str, np.ndarray]) -> Any:
        """What the estimator is given for inputs of the ONNX form: a matrix, or a frame of columns by name."""
        # Without a sample, in the dtype that estimators are fitted in: some refuse float32 rows after that, and a
        # Normalizer takes lengths below 1e-6 for zero there.
        given = [in_given_type(np.asarray(feeds[s.name]), self.types.get(s.name)) for s in self.inputs]
        if not self.columns:
            one_text_each = given[0].ndim == 1  # for a vectorizer, to which the empty text is a text
            matrix = given[0] if one_text_each else _with_gaps(given[0], gap_of(self.estimator))
            return self._frame(dict(zip(self._asked_names, matrix.T, strict=True))) if self._asked_names else matrix
        values = [v.reshape(len(v)) for v in given]
        gap, texts = gap_of(self.estimator), text_columns(self.estimator)
        gaps = ("" if name in texts else gap for name in self.columns)
        columns = dict(zip(self.columns, map(_with_gaps, values, gaps), strict=True))
        for name, missing in object_columns(self.estimator).items():
            objects = columns[name].astype(object)
            columns[name] = np.where(objects == objects, objects, missing)
        names = list(fitted_names(self.estimator))
        if not names:  # then it takes columns by their place
            return self._frame({i: columns.get(name, 0) for i, name in enumerate(column_names(self.estimator))})
        # Columns that the model drops must be there all the same.
        return self._frame({name: columns.get(str(name), 0) for name in names})

    def _frame(self, columns: Mapping[Any, Any]) -> Any:
        with needs_extra("columns by name", "pandas", "sklearn"):
            import pandas
        frame = pandas.DataFrame(columns)
        strict = any(hasattr(step, "get_booster") for step in steps_of(self.estimator) if self.categories)  # XGBoost
        for name, known in self.categories.items():
            index = pandas.Index(known, dtype=getattr(known[0], "dtype", None))
            if not strict:  # others are given as they are, to what stands beside boosters
                index = index.append(pandas.Index(frame[name].dropna().unique()).difference(index, sort=False))
            frame[name] = pandas.Categorical.from_codes(index.get_indexer(frame[name]), index)
        return frame


def outputs_of(
    source: Source, model: Estimator, zipmap: bool
) -> list[tuple[str, np.dtype | str, tuple[Dim, ...] | None, Compute]]:
    """(name, dtype, shape, how to compute it) of each output of the ONNX form.

    Raises:
        UnsupportedError: the estimator neither predicts nor transforms.
    """
    last = last_step(model)
    float_dtype = np.dtype("float32")
    kind = _kind(last)
    if kind == "classifier":
        dtype = "string" if _label_kind(last) in "OUS" else np.dtype("int64")
        labels = ("label", dtype, (BATCH,), _labels_of(model))
        count = _class_count(last)
        if zipmap and hasattr(model, "predict_proba"):
            classes = [c.item() if hasattr(c, "item") else c for c in last.classes_]
            return [labels, ("probabilities", "seq(map)", None, zipped(model.predict_proba, classes))]
        if hasattr(model, "predict_proba"):
            return [labels, ("probabilities", float_dtype, (BATCH, count), model.predict_proba)]
        if hasattr(model, "decision_function"):
            return [labels, ("scores", float_dtype, (BATCH, count), lambda data: _scores(model, data))]
        return [labels]
    label = ("label", np.dtype("int64"), (BATCH,), lambda data: model.predict(data))  # noqa: PLW0108  (transformers have none)
    if kind == "outlier_detector":
        return [label, ("scores", float_dtype, (BATCH, 1), lambda data: as_column(model.decision_function(data)))]
    if kind == "clusterer" and hasattr(model, "predict"):
        scores = [("scores", float_dtype, (BATCH, None), model.transform)] if hasattr(model, "transform") else []
        return [label, *scores]
    if kind == "density_estimator" and hasattr(model, "predict_proba"):
        return [label, ("probabilities", float_dtype, (BATCH, None), model.predict_proba)]
    if kind == "regressor" or (hasattr(model, "predict") and not hasattr(model, "transform")):
        return [("prediction", float_dtype, (BATCH, None), lambda data: as_column(_floats(model.predict(data))))]
    if hasattr(model, "transform"):
        return [("transformed", float_dtype, (BATCH, None), lambda data: _dense(model.transform(data)))]
    raise UnsupportedError(f"{source}: {type(last).__name__} neither predicts nor transforms new data.")


def _kind(estimator: Estimator) -> str | None:
    from sklearn.utils import get_tags

    try:
        kind = get_tags(estimator).estimator_type
    except Exception:  # estimators of other packages without tags
        kind = None
    kind = kind or getattr(estimator, "_estimator_type", None)
    return None if kind is None else str(kind)


def _label_kind(estimator: Estimator) -> str:
    """The kind of its labels in NumPy's letters: "i" of an estimator without any."""
    classes = getattr(estimator, "classes_", None)
    if isinstance(classes, list):
        classes = classes[0]
    return "i" if classes is None else str(np.asarray(classes).dtype.kind)


def _labels_of(model: Estimator) -> Compute:
    """The labels; False and True and whole floats, which classifiers in ONNX do not have, as integers."""

    def compute(data: Any) -> np.ndarray:
        labels = np.asarray(model.predict(data))
        whole = labels.dtype.kind == "f" and bool(np.all(labels == np.round(labels)))
        return labels.astype(np.int64) if whole or labels.dtype == bool else labels

    return compute


def _feature_names(estimator: Estimator) -> tuple[str, ...]:
    """The training data's column names; () where a library made them up for data without names."""
    names = tuple(str(n) for n in fitted_names(estimator))
    return () if all(_MADE_UP.fullmatch(name) for name in names) else names


def _class_names(classifier: Estimator) -> tuple[str, ...]:
    classes = getattr(classifier, "classes_", None)
    return () if classes is None or isinstance(classes, list) else tuple(str(c) for c in classes)


def _class_count(classifier: Estimator) -> int | None:
    classes = getattr(classifier, "classes_", None)
    return None if classes is None or isinstance(classes, list) else len(classes)


def _scores(model: Estimator, data: Any) -> np.ndarray:
    """The decision function with a column for each class; scikit-learn gives only the second's for two classes."""
    scores = np.asarray(model.decision_function(data))
    if scores.ndim > 1:
        return scores
    # Pairs of classes are decided by votes, of which there is one for two classes: it is the one's or the other's.
    first = 1 - scores if type(last_step(model)).__name__ == "OneVsOneClassifier" else -scores
    return np.column_stack([first, scores])


def zipped(compute: Compute, classes: Sequence[Any]) -> Compute:
    """Probabilities [rows, classes] as a dict for each row."""
    return lambda rows: [dict(zip(classes, row.tolist(), strict=True)) for row in compute(rows)]


def _floats(values: Any) -> np.ndarray:
    """Some regressors give integers of some rows, where their targets were."""
    array = np.asarray(values)
    return array.astype(np.float64) if array.dtype.kind in "iu" else array


def as_column(values: Any) -> np.ndarray:
    """[rows, columns], of a single one as [rows] too."""
    array = np.asarray(values)
    return array.reshape(-1, 1) if array.ndim == 1 else array


def _with_gaps(values: np.ndarray, gap: Any) -> np.ndarray:
    """Missing text: the empty string in ONNX, and `gap` in the table that scikit-learn is given."""
    if values.dtype != object:
        return values
    filled = values.copy()
    filled[values == ""] = gap
    return filled


def _dense(values: Any) -> np.ndarray:
    dense = np.asarray(values.toarray() if hasattr(values, "toarray") else values)
    return dense.astype(np.float32) if dense.dtype == bool else dense  # a MissingIndicator's, among numbers in ONNX
