"""A fitted estimator -> ONNX, by way of skl2onnx."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnxtool.conversion.boosting.category_columns import category_notes
from onnxtool.conversion.boosting.export import register_estimators
from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.patches import LibraryPatch, applied
from onnxtool.conversion.sklearn import patches, precision
from onnxtool.conversion.sklearn.cleanup import clean_up
from onnxtool.conversion.sklearn.converters.register import ConverterPatch
from onnxtool.conversion.sklearn.missing_zeros import with_missing_zeros
from onnxtool.conversion.sklearn.model import SklearnModel
from onnxtool.conversion.sklearn.patches import chosen_columns, exact_columns, inner_estimators
from onnxtool.conversion.sklearn.prepare import CLUSTERS, chosen_options, convertible, plain, refuse_hopeless
from onnxtool.conversion.sklearn.schema import last_step, steps_of, trees_of
from onnxtool.conversion.sklearn.source_columns import FORMULAS, SCALERS, rounds_otherwise
from onnxtool.conversion.tensorflow.environment import quiet
from onnxtool.errors import OnnxToolError, UnsupportedError, first_line, needs_extra
from onnxtool.model import io
from onnxtool.model.spec import TensorSpec
from onnxtool.report.proof import TrialKind

if TYPE_CHECKING:
    import onnx

# What skl2onnx 1.20 is tested with.
NEWEST_OPSET = 22
# Tree ensembles with several attributes in one node; version 5 has another operator, which skl2onnx does not write.
_ML_OPSET = 3
_SINGLE, _DOUBLE = np.dtype("float32"), np.dtype("float64")
_BOOSTED = ("xgboost", "lightgbm", "catboost")


def export(model: SklearnModel, opset: int, *, zipmap: bool = False, verbose: int = 0) -> ir.Model:
    """Convert an estimator.

    Raises:
        MissingExtraError: skl2onnx is not installed.
        UnsupportedError: a step that skl2onnx has no converter for, or that it converts wrongly.
    """
    with needs_extra(type(model.estimator).__name__, "skl2onnx", "sklearn"), quiet(verbose):
        import skl2onnx
    if model.doubles and any(s.dtype == model.types.get(s.name) == _SINGLE for s in model.inputs):
        wide = tuple(replace(s, dtype=_DOUBLE) if model.types.get(s.name) == _SINGLE else s for s in model.inputs)
        return _export_with(model, wide, opset, doubles=True, zipmap=zipmap, verbose=verbose)
    single_matrix = not model.columns and model.inputs[0].dtype == np.dtype("float32")
    refuse_hopeless(plain(model.estimator), single_matrix)
    try:
        with quiet(verbose):
            proto = _convert(skl2onnx, model, _options(model, zipmap), opset)
    except UnsupportedError as failure:
        if not model.doubles:
            raise
        return _export_rounding(model, opset, failure, zipmap=zipmap, verbose=verbose)
    del proto.graph.output[len(model.outputs) :]
    if model.doubles:
        precision.widen(proto)
    model.dropped = tuple(chosen_options(model.estimator))
    told = map(category_notes, steps_of(model.estimator))
    model.notes.extend(dict.fromkeys(note for notes in told for note in notes))
    clean_up(proto, model)
    model.untested = left_out(proto)
    if model.untested or any(map(rounds_otherwise, steps_of(model.estimator))):
        # Next to thresholds, the last digits of formulas may fall where they should rise; sums add in another order.
        model.limits = (*model.limits, TrialKind.THRESHOLDS)
    if model.untested and _SINGLE in model.types.values():
        # The source's own sums in float32 hang on the processor and on how many rows there are: of the sample alone,
        # which way they fall is known.
        model.limits = (*model.limits, TrialKind.VALUES, TrialKind.SEARCH)
    return io.from_proto(proto)


def has_trees(estimator: Estimator) -> bool:
    """Whether trees of any library decide in it."""
    return any(
        _package(s) in _BOOSTED or "HistGradient" in type(s).__name__ or trees_of(s) for s in steps_of(estimator)
    )


def scales_before_trees(estimator: Estimator) -> bool:
    """Whether trees compare what is computed, in float32 on rows of float32: one bit may take another branch."""
    computes = any(type(s).__name__ in (*SCALERS, *FORMULAS) or hasattr(s, "components_") for s in steps_of(estimator))
    return computes and has_trees(estimator)


def _package(estimator: Estimator) -> str:
    return type(estimator).__module__.split(".")[0]


def _export_rounding(model: SklearnModel, opset: int, failure: UnsupportedError, **options: Any) -> ir.Model:
    """As `export`, rounding float64 inputs to float32, where skl2onnx cannot convert a step in float64.

    Raises:
        OnnxToolError: it cannot do that either.
    """
    narrower = tuple(replace(s, dtype=_SINGLE) if s.dtype == _DOUBLE else s for s in model.inputs)
    try:
        graph = _export_with(model, narrower, opset, doubles=False, **options)
    except OnnxToolError as error:
        raise error from failure
    model.notes.append("computes in float32 inside: skl2onnx has no form in float64 for a step of it")
    return graph


def _export_with(
    model: SklearnModel, inputs: tuple[TensorSpec, ...], opset: int, *, doubles: bool, **options: Any
) -> ir.Model:
    """As `export`, with a Cast behind each input, to the type that it has in `inputs`."""
    other = replace(model, inputs=inputs, doubles=doubles, notes=[])
    graph = export(other, opset, **options)
    body = graph.graph
    for value, spec in zip(body.inputs, model.inputs, strict=True):
        inner, outer = value.dtype, ir.DataType.from_numpy(spec.dtype) if isinstance(spec.dtype, np.dtype) else None
        if inner is not None and outer not in (inner, None):
            cast = ir.node("Cast", [value], {"to": inner.value})
            value.replace_all_uses_with(cast.outputs[0], replace_graph_outputs=True)
            cast.replace_input_with(0, value)
            value.dtype, cast.outputs[0].dtype = outer, inner
            body.insert_before(body[0], cast)
    for name in ("outputs", "computes", "untested", "dropped", "limits"):
        setattr(model, name, getattr(other, name))
    model.notes.extend(other.notes)
    return graph


def _convert(skl2onnx: ModuleType, model: SklearnModel, options: Mapping[str, Any], opset: int) -> onnx.ModelProto:
    estimator, notes = convertible(model.estimator)
    estimator = with_missing_zeros(estimator, model)
    if any(_package(s) in _BOOSTED for s in steps_of(estimator)):
        register_estimators()
    patches = patches_for({type(s).__name__ for s in steps_of(estimator)})
    names = zip(_names(model), model.inputs, strict=True)
    singles = [name for name, spec in names if model.types.get(spec.name) == _SINGLE]
    if model.doubles or has_trees(estimator):
        patches += [exact_columns.IN_DOUBLES, precision.exact_thresholds(singles)]
    model.notes.extend(notes)
    try:
        with applied(patches), precision.exact_constants(model.doubles):
            proto: onnx.ModelProto = skl2onnx.convert_sklearn(
                estimator,
                name=type(model.estimator).__name__,
                initial_types=_initial_types(model),
                options={id(last_step(estimator)): dict(options)} if options else None,
                target_opset={"": opset, "ai.onnx.ml": _ML_OPSET},
                model_optim=False,  # two copies of the graph to drop Identity nodes, which our own passes drop
            )
    except Exception as error:
        raise _unsupported(model, error) from error
    return proto


def _options(model: SklearnModel, zipmap: bool) -> dict[str, Any]:
    """Options for the last step; those that its converter does not know are not asked of it."""
    if zipmap:
        return {"zipmap": True}
    if model.raw_scores:
        return {"zipmap": False, "raw_scores": True}
    return {"zipmap": False} if len(model.outputs) > 1 or any(s.name.endswith("label") for s in model.outputs) else {}


def _names(model: SklearnModel) -> tuple[str, ...]:
    """Of the inputs, for skl2onnx, which finds the columns of a ColumnTransformer by their training names."""
    return model.columns or ("X",)


def _initial_types(model: SklearnModel) -> list[tuple[str, Any]]:
    from skl2onnx.common import data_types

    kinds = {
        "string": data_types.StringTensorType,
        np.dtype("float32"): data_types.FloatTensorType,
        np.dtype("float64"): data_types.DoubleTensorType,
        np.dtype("int64"): data_types.Int64TensorType,
        np.dtype("int32"): data_types.Int32TensorType,
        np.dtype("bool"): data_types.BooleanTensorType,
    }
    types = []
    for name, spec in zip(_names(model), model.inputs, strict=True):
        if spec.dtype not in kinds:
            raise UnsupportedError(f"input {spec.name!r}: scikit-learn models take no {spec.dtype}. See --input-dtype.")
        shape = [d if isinstance(d, int) else None for d in spec.shape or ()]
        types.append((name, kinds[spec.dtype](shape)))
    return types


def _unsupported(model: SklearnModel, error: Exception) -> OnnxToolError:
    if isinstance(error, OnnxToolError):
        return error
    kind = type(error).__name__
    text = first_line(error)
    if kind in ("MissingShapeCalculator", "MissingConverter"):
        missing = text.split("'")[1].removeprefix("<class ") if "'" in text else text
        missing = text.split("<class '")[-1].split("'")[0] if "<class '" in text else missing
        return UnsupportedError(
            f"{type(model.estimator).__name__}: skl2onnx has no converter for {missing}. Convert the steps around it, "
            "or register a converter in a package with the entry point onnxtool.adapters."
        )
    text = re.split(r",? you may raise an issue at", text, flags=re.IGNORECASE)[0]  # of a package the user never called
    return UnsupportedError(f"{type(model.estimator).__name__}: skl2onnx cannot convert it: {text}")


_TREES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble")
_MOVES = (
    *("Identity", "Cast", "Concat", "Reshape", "Flatten", "Gather", "Slice", "Squeeze", "Unsqueeze", "Transpose"),
    *("ArrayFeatureExtractor", "FeatureVectorizer", "Split", "Constant", "Shape"),
)
_LEFT_OUT = "not tested at the trees' thresholds; rows may differ"


def left_out(proto: onnx.ModelProto) -> str:
    """What the proof leaves out of a graph with trees, in words; "" where they get the inputs as they are.

    The thresholds of the graph are numbers that its inputs are tried at. Behind a step that computes, they are numbers
    of another space.

    Args:
        proto: as it was exported, with trees of any library.
    """
    makers = {name: node for node in proto.graph.node for name in node.output}
    trees = [node for node in proto.graph.node if node.op_type in _TREES and _decides(node)]
    computed = any(_is_computed(name, makers) for node in trees for name in node.input[:1])
    return _LEFT_OUT if trees and computed else ""


def _decides(trees: onnx.NodeProto) -> bool:
    """Whether some tree has more than one leaf: of too few rows boosters make none that has."""
    modes = [set(a.strings) for a in trees.attribute if a.name == "nodes_modes" and a.strings]
    return modes != [{b"LEAF"}]


def _is_computed(name: str, makers: Mapping[str, onnx.NodeProto]) -> bool:
    """Whether a tensor is anything but inputs of the graph, moved about."""
    pending, seen = [name], {name}
    while pending:
        node = makers.get(pending.pop())
        if node is None:
            continue
        if node.op_type not in _MOVES:
            return True
        pending += [n for n in node.input if n not in seen]
        seen.update(node.input)
    return False


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
