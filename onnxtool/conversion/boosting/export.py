"""Boosted trees -> ONNX: native models, and their estimators as steps of scikit-learn pipelines."""

from __future__ import annotations

import sys
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.conversion.boosting.boosters import missing_number
from onnxtool.conversion.boosting.catboost_trees import export_catboost
from onnxtool.conversion.boosting.category_columns import category_notes
from onnxtool.conversion.boosting.ensembles import OPSET, add_as_step
from onnxtool.conversion.boosting.lightgbm_trees import export_lightgbm
from onnxtool.conversion.boosting.xgboost_trees import export_xgboost
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, FLOAT, NodeWriter
from onnxtool.conversion.sklearn.converters.register import Converter, classifier, transformer
from onnxtool.conversion.sklearn.model import SklearnModel
from onnxtool.conversion.sklearn.raw_thresholds import compared_in_float32
from onnxtool.conversion.tensorflow.environment import quiet
from onnxtool.errors import OnnxToolError, UnsupportedError, first_line
from onnxtool.model import io
from onnxtool.model.domains import Domain, threshold_domain

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir


# What is written for trees.
NEWEST_OPSET = OPSET


def export(model: SklearnModel, opset: int, *, zipmap: bool = False, verbose: int = 0) -> ir.Model:
    """Convert a native model.

    Raises:
        UnsupportedError: an objective without an ONNX form.
    """
    package = type(model.estimator).__module__.split(".")[0]
    with quiet(verbose):
        try:
            if package == "xgboost":
                proto = export_xgboost(model.estimator, opset)
            elif package == "lightgbm":
                proto = export_lightgbm(model.estimator, FLOAT, model.classes)
            else:
                proto = export_catboost(model.estimator)
        except OnnxToolError:
            raise
        except Exception as error:
            raise UnsupportedError(f"{model.form}: cannot be converted: {first_line(error)[:300]}") from error
    model.notes.extend(category_notes(model.estimator))
    if zipmap and len(model.outputs) == 2:
        _with_zipmap(proto, model)
    model.feeds_hint = model.feeds_hint or _range(proto, model)
    return io.from_proto(proto)


def _with_zipmap(proto: onnx.ModelProto, model: SklearnModel) -> None:
    from onnx import TensorProto, helper

    chances = proto.graph.output[1].name
    classes = model.classes
    texts = any(isinstance(c, str) for c in classes)
    labels = {"classlabels_strings": list(classes)} if texts else {"classlabels_int64s": [int(c) for c in classes]}
    proto.graph.node.append(helper.make_node("ZipMap", [chances], ["zipped"], domain="ai.onnx.ml", **labels))
    number = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    entry = helper.make_map_type_proto(TensorProto.STRING if texts else TensorProto.INT64, number)
    proto.graph.output[1].CopyFrom(helper.make_value_info("zipped", helper.make_sequence_type_proto(entry)))


def _range(proto: onnx.ModelProto, model: SklearnModel) -> dict[str, Domain] | None:
    """Where the thresholds lie, so that random inputs fall on both sides of them."""
    from onnx import helper, numpy_helper

    features, thresholds = [], []
    for node in proto.graph.node:
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        values = given.get("nodes_values", given.get("nodes_values_as_tensor"))
        if values is None or "nodes_modes" not in given:
            continue
        inner = [mode != b"LEAF" for mode in given["nodes_modes"]]
        thresholds.append((numpy_helper.to_array(values) if hasattr(values, "dims") else np.asarray(values))[inner])
        features.append(np.asarray(given["nodes_featureids"])[inner])
    width = (model.inputs[0].shape or (None,))[-1]
    if not thresholds or not isinstance(width, int):
        return None
    domain = threshold_domain(np.concatenate(features), np.concatenate(thresholds), width)
    return {model.inputs[0].name: domain} if domain is not None else None


def register_estimators() -> None:
    """Let skl2onnx convert estimators of XGBoost, LightGBM and CatBoost that are steps of a pipeline.

    Only packages that the unpickled model has already imported are registered; others when they are.
    """
    for package in _STEPS:
        if package in sys.modules:
            _register(package)


@cache
def _register(package: str) -> None:
    from skl2onnx._parse import update_registered_parser

    prefixes, convert = _STEPS[package]
    for prefix, kind in product(prefixes, ("Classifier", "Regressor", "Ranker")):
        name = f"{package}:{prefix}{kind}"
        found = getattr(sys.modules[package], prefix + kind, None)
        if found is not None:
            (classifier(name, convert) if kind == "Classifier" else transformer(name, convert, lambda _: 1)).register(
                found
            )
    if package == "catboost":
        update_registered_parser(sys.modules[package].CatBoostClassifier, _parse_classifier)


def _parse_classifier(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:  # noqa: ARG001
    """CatBoost 1.2 does not tell scikit-learn that it is a classifier: declare its two outputs by hand."""
    from skl2onnx._parse import _apply_zipmap, _get_sklearn_operator_name
    from skl2onnx.common import data_types

    texts = any(isinstance(c, str) for c in model.classes_)
    operator = scope.declare_local_operator(_get_sklearn_operator_name(type(model)), model)
    operator.inputs = inputs
    labels = (data_types.StringTensorType if texts else data_types.Int64TensorType)()
    operator.outputs.append(scope.declare_local_variable("label", labels))
    operator.outputs.append(scope.declare_local_variable("probabilities", data_types.FloatTensorType()))
    wanted = scope.get_options(model, {"zipmap": True})["zipmap"]
    return _apply_zipmap(wanted, scope, model, type(inputs[0].type), operator.outputs) if wanted else operator.outputs


def _add_lightgbm(write: NodeWriter) -> None:
    raw = hasattr(write.step, "classes_") and write.asks_scores
    add_as_step(write, export_lightgbm(write.step, DOUBLE, raw=raw))


def _add_xgboost(write: NodeWriter) -> None:
    """With NaN for the number that stands for a missing value."""
    gap, given = missing_number(write.step), ""
    if gap is not None:
        x = write.joined()
        # XGBoost rounds to float32 before it compares.
        lowest, highest = (compared_in_float32(float(np.float32(gap)), mode) for mode in ("BRANCH_GTE", "BRANCH_LEQ"))
        met = write.add("And", write.add("GreaterOrEqual", x, lowest), write.add("LessOrEqual", x, highest))
        given = write.add("Where", met, np.nan, x)
    add_as_step(write, export_xgboost(write.step), given)


# How the classes of each package begin, and what converts them.
_STEPS: dict[str, tuple[tuple[str, ...], Converter]] = {
    "xgboost": (("XGB", "XGBRF"), _add_xgboost),
    "lightgbm": (("LGBM",), _add_lightgbm),
    "catboost": (("CatBoost",), lambda write: add_as_step(write, export_catboost(write.step))),
}
