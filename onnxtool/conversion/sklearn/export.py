"""A fitted estimator -> ONNX, by way of skl2onnx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnxtool.conversion.boosting.dropped_options import category_notes, dropped_options
from onnxtool.conversion.boosting.export import register_estimators, without_zipmap
from onnxtool.conversion.boosting.patches.exported_trees import fix_exported_trees
from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.patches import applied
from onnxtool.conversion.sklearn.cleanup import clean_up
from onnxtool.conversion.sklearn.model import SklearnModel
from onnxtool.conversion.sklearn import precision
from onnxtool.conversion.sklearn.patches import exact_columns
from onnxtool.conversion.sklearn.patches.registry import patches_for
from onnxtool.conversion.sklearn.prepare import chosen_options, convertible, refuse_hopeless, steps_of
from onnxtool.conversion.sklearn.schema import last_step, trees_of
from onnxtool.conversion.sklearn.tree_thresholds import left_out, note_flips
from onnxtool.conversion.tensorflow.environment import quiet
from onnxtool.errors import MissingExtraError, OnnxToolError, UnsupportedError
from onnxtool.model import io
from onnxtool.runtime.runner import OnnxRunner

if TYPE_CHECKING:
    import onnx

# What skl2onnx 1.20 is tested with.
NEWEST_OPSET = 22
# Tree ensembles with several attributes in one node; version 5 has another operator, which skl2onnx does not write.
_ML_OPSET = 3
_BOOSTED = ("xgboost", "lightgbm", "catboost")


def export(model: SklearnModel, opset: int, *, zipmap: bool = False, verbose: int = 0) -> ir.Model:
    """Convert an estimator.

    Raises:
        MissingExtraError: skl2onnx is not installed.
        UnsupportedError: a step that skl2onnx has no converter for, or that it converts wrongly.
    """
    try:
        with quiet(verbose):
            import skl2onnx
    except ModuleNotFoundError as error:
        raise MissingExtraError(type(model.estimator).__name__, "skl2onnx", "sklearn") from error
    refuse_hopeless(model.estimator, not model.columns and model.inputs[0].dtype == np.dtype("float32"))
    with quiet(verbose):
        proto = _convert(skl2onnx, model, _options(model, zipmap), opset)
    del proto.graph.output[len(model.outputs) :]
    if model.doubles:
        precision.widen(proto)
    if not zipmap:
        without_zipmap(proto)
    last = last_step(model.estimator)
    model.dropped = (*dropped_options(last), *chosen_options(model.estimator))
    fix_exported_trees(proto, last)
    model.notes.extend(category_notes(last))
    runner = clean_up(proto, model)
    model.untested = left_out(proto, doubles=model.doubles)
    if runner is not None:
        note_flips(model, runner)
    del runner
    return io.from_proto(proto)


def has_trees(estimator: Estimator) -> bool:
    """Whether trees of any library decide in it."""
    return any(
        _package(s) in _BOOSTED or "HistGradient" in type(s).__name__ or trees_of(s) for s in steps_of(estimator)
    )


def _package(estimator: Estimator) -> str:
    return type(estimator).__module__.split(".")[0]


def export_in_doubles(model: SklearnModel, opset: int, *, zipmap: bool = False, verbose: int = 0) -> ir.Model | None:
    """As `export`, computing in float64 between inputs and outputs of float32, as scikit-learn itself does.

    Sums of hundreds of logarithms, or distances of points that are close together, lose in float32 what decides.

    Returns:
        None where no input is float32, or the runtime has no kernel for doubles in this graph.
    """
    single, double = np.dtype("float32"), np.dtype("float64")
    if model.doubles or all(s.dtype != single for s in model.inputs):
        return None
    wider = tuple(replace(s, dtype=double) if s.dtype == single else s for s in model.inputs)
    wide = replace(model, inputs=wider, doubles=True, notes=[])
    try:
        graph = export(wide, opset, zipmap=zipmap, verbose=verbose)
        _narrow(graph)
        OnnxRunner.open(graph)
    except OnnxToolError:  # the failure in float32 is what will be told
        return None
    model.untested = wide.untested
    model.notes.append("computes in float64 inside, as scikit-learn does: in float32 it gives other answers")
    return graph


def _narrow(graph: ir.Model) -> None:
    """Make inputs and outputs of float64 ones of float32, in place."""
    body = graph.graph
    for value in body.inputs:
        if value.dtype == ir.DataType.DOUBLE:
            cast = ir.node("Cast", [value], {"to": ir.DataType.DOUBLE.value})
            value.replace_all_uses_with(cast.outputs[0], replace_graph_outputs=True)
            cast.replace_input_with(0, value)
            value.dtype = ir.DataType.FLOAT
            cast.outputs[0].dtype = ir.DataType.DOUBLE
            body.insert_before(body[0], cast)
    for i, value in enumerate(body.outputs):
        if value.dtype == ir.DataType.DOUBLE:
            cast = ir.node("Cast", [value], {"to": ir.DataType.FLOAT.value})
            cast.outputs[0].name, value.name = value.name, f"{value.name}_float64"
            cast.outputs[0].dtype, cast.outputs[0].shape = ir.DataType.FLOAT, value.shape
            body.append(cast)
            body.outputs[i] = cast.outputs[0]


def _convert(
    skl2onnx: ModuleType, model: SklearnModel, choices: Sequence[Mapping[str, Any] | None], opset: int
) -> onnx.ModelProto:
    estimator, notes = convertible(model.estimator)
    if any(_package(s) in _BOOSTED for s in steps_of(estimator)):
        register_estimators()
    patches = patches_for({type(s).__name__ for s in steps_of(estimator)}, doubles=model.doubles)
    if model.doubles:
        patches += [exact_columns.PATCH, precision.PATCH]
    elif has_trees(estimator):
        patches.append(exact_columns.PATCH)
    model.notes.extend(notes)
    failure: Exception | None = None
    for options in choices:
        try:
            with applied(patches):
                proto: onnx.ModelProto = skl2onnx.convert_sklearn(
                    estimator,
                    name=type(model.estimator).__name__,
                    initial_types=_initial_types(model),
                    options=None if options is None else {id(last_step(estimator)): dict(options)},
                    target_opset={"": opset, "ai.onnx.ml": _ML_OPSET},
                    model_optim=False,  # two copies of the graph to drop Identity nodes, which our own passes drop
                )
            return proto
        except NameError as error:  # "Option 'zipmap' not in [...]"
            failure = error
        except Exception as error:
            raise _unsupported(model, error) from error
    assert failure is not None
    raise _unsupported(model, failure) from failure


def _options(model: SklearnModel, zipmap: bool) -> list[dict[str, Any] | None]:
    """Options for the last step, the most wanted first; estimators differ in which they know."""
    if zipmap:
        return [{"zipmap": True}, None]
    if model.raw_scores:
        return [{"zipmap": False, "raw_scores": True}, {"raw_scores": True}, {"zipmap": False}, None]
    if any(s.name == "label" for s in model.outputs) or len(model.outputs) > 1:
        return [{"zipmap": False}, None]
    return [None]


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
    # The converter finds the columns of a ColumnTransformer by their training names.
    names = model.columns or ("X",)
    types = []
    for name, spec in zip(names, model.inputs, strict=True):
        if spec.dtype not in kinds:
            raise UnsupportedError(f"input {spec.name!r}: scikit-learn models take no {spec.dtype}. See --input-dtype.")
        shape = [d if isinstance(d, int) else None for d in spec.shape or ()]
        types.append((name, kinds[spec.dtype](shape)))
    return types


def _unsupported(model: SklearnModel, error: Exception) -> OnnxToolError:
    if isinstance(error, OnnxToolError):
        return error
    kind = type(error).__name__
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), kind)[:300]
    if kind in ("MissingShapeCalculator", "MissingConverter"):
        missing = text.split("'")[1].removeprefix("<class ") if "'" in text else text
        missing = text.split("<class '")[-1].split("'")[0] if "<class '" in text else missing
        return UnsupportedError(
            f"{type(model.estimator).__name__}: skl2onnx has no converter for {missing}. Convert the steps around it, "
            "or register a converter in a package with the entry point onnxtool.adapters."
        )
    text = text.partition(" You may raise an issue at")[0]  # of a package that the user never called
    options = dropped_options(last_step(model.estimator))
    what = f" ({', '.join(options)})" if options else ""
    return UnsupportedError(f"{type(model.estimator).__name__}{what}: skl2onnx cannot convert it: {text}")
