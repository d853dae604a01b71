"""Boosted trees -> ONNX: native models, and their estimators as steps of scikit-learn pipelines."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.conversion.boosting.catboost_trees import export_trees, is_taken
from onnxtool.conversion.boosting.dropped_options import category_notes, dropped_options, missing_number
from onnxtool.conversion.boosting.lightgbm_trees import export_lightgbm, is_written
from onnxtool.conversion.boosting.linear_booster import add_as_step, booster_of, export_linear, is_linear, learner_of
from onnxtool.conversion.boosting.patches.equivalent_booster import RAW_SUMS, equivalent, sums_of
from onnxtool.conversion.boosting.patches.exported_trees import fix_exported_trees
from onnxtool.conversion.frameworks import Estimator, copy_with
from onnxtool.conversion.patches import applied
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, FLOAT, INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import number_type
from onnxtool.conversion.sklearn.model import SklearnModel
from onnxtool.conversion.sklearn.patches import exact_trees
from onnxtool.conversion.sklearn.precision import adding_floats, comparing_doubles
from onnxtool.conversion.sklearn.raw_thresholds import compared_in_float32
from onnxtool.conversion.tensorflow.environment import quiet
from onnxtool.errors import MissingExtraError, OnnxToolError, UnsupportedError, first_line
from onnxtool.model import io
from onnxtool.model.domains import Domain

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter


# What onnxmltools 1.16 writes for trees.
NEWEST_OPSET = 15


def export(model: SklearnModel, opset: int, *, zipmap: bool = False, verbose: int = 0) -> ir.Model:
    """Convert a native model.

    Raises:
        MissingExtraError: onnxmltools is not installed.
        UnsupportedError: an objective without an ONNX form.
    """
    package = type(model.estimator).__module__.split(".")[0]
    with quiet(verbose):
        try:
            if package == "xgboost" and is_linear(model.estimator):
                proto = export_linear(model.estimator, opset)
            elif package == "lightgbm" and is_written(model.estimator):
                proto = export_lightgbm(model.estimator, FLOAT)
            else:
                proto = _catboost(model.estimator) if package == "catboost" else _onnxmltools(model, package, opset)
        except OnnxToolError:
            raise
        except Exception as error:
            reason = first_line(error)
            options = dropped_options(model.estimator)
            what = f" ({', '.join(options)})" if options else ""
            raise UnsupportedError(f"{model.form}{what}: cannot be converted: {reason[:300]}") from error
    model.dropped = tuple(dropped_options(model.estimator))
    fix_exported_trees(proto, model.estimator)
    model.notes.extend(category_notes(model.estimator))
    without_zipmap(proto)
    if zipmap and len(model.outputs) == 2:
        _with_zipmap(proto, model)
    model.feeds_hint = model.feeds_hint or _range(proto, model)
    return io.from_proto(proto)


def _onnxmltools(model: SklearnModel, package: str, opset: int) -> onnx.ModelProto:
    try:
        from onnxmltools import convert
        from onnxmltools.convert.common.data_types import FloatTensorType
    except ModuleNotFoundError as error:
        raise MissingExtraError(model.form, "onnxmltools", "boosting") from error
    shape = [d if isinstance(d, int) else None for d in model.inputs[0].shape or ()]
    estimator = equivalent(model.estimator)
    arguments: dict[str, Any] = {"initial_types": [("X", FloatTensorType(shape))], "target_opset": opset}
    with applied((exact_trees.LIGHTGBM,)):
        if package == "lightgbm":
            proto: onnx.ModelProto = convert.convert_lightgbm(estimator, zipmap=False, **arguments)
        else:
            proto = convert.convert_xgboost(estimator, **arguments)
    return proto


def _catboost(estimator: Estimator) -> onnx.ModelProto:
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        if is_taken(estimator):
            return export_trees(estimator, Path(folder))
        path = Path(folder) / "model.onnx"
        _with_integers(estimator, Path(folder) / "model.json").save_model(str(path), format="onnx")
        return onnx.load(path)


def _with_integers(estimator: Estimator, path: Path) -> Any:
    """The same model with integers for the classes False and True or 0.0 and 1.0, which CatBoost 1.2 does not write."""
    classes = np.asarray(getattr(estimator, "classes_", ()))
    if not classes.size or classes.dtype.kind not in "bf" or not np.all(classes == np.round(classes)):
        return estimator
    import catboost

    estimator.save_model(str(path), format="json")
    model = json.loads(path.read_text())
    model["model_info"]["class_params"] |= {"class_names": [int(c) for c in classes], "class_label_type": "Integer"}
    path.write_text(json.dumps(model))
    return catboost.CatBoostClassifier().load_model(str(path), format="json")


def without_zipmap(proto: onnx.ModelProto) -> None:
    """Drop the ZipMap that makes a list of maps of the probabilities."""
    from onnx import TensorProto, helper

    for node in list(proto.graph.node):
        if node.op_type != "ZipMap":
            continue
        for output in proto.graph.output:
            if output.name == node.output[0]:
                tensor = helper.make_tensor_value_info(node.input[0], TensorProto.FLOAT, [None, None])
                output.CopyFrom(tensor)
        proto.graph.node.remove(node)


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

    found = []
    for node in proto.graph.node:
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        values = given.get("nodes_values", given.get("nodes_values_as_tensor"))
        if values is None or "nodes_modes" not in given:
            continue
        numbers = numpy_helper.to_array(values) if hasattr(values, "dims") else np.asarray(values)
        found.append(numbers[[mode != b"LEAF" for mode in given["nodes_modes"]]])
    thresholds = np.concatenate(found) if found else np.array([])
    thresholds = thresholds[np.isfinite(thresholds)]
    if not thresholds.size:
        return None
    low, high = np.percentile(thresholds, [1, 99])
    margin = 0.2 * float(high - low) or 1.0
    return {model.inputs[0].name: Domain(float(low) - margin, float(high) + margin)}


def register_estimators() -> None:
    """Let skl2onnx convert estimators of XGBoost, LightGBM and CatBoost that are steps of a pipeline.

    Only packages that the unpickled model has already imported are registered; others when they are.
    """
    for package, alias in (("xgboost", "XGBoostXGB"), ("lightgbm", "LightGbmLGBM"), ("catboost", "CatBoost")):
        if package in sys.modules:
            _register(package, alias)


@cache
def _register(package: str, alias: str) -> None:
    from skl2onnx import update_registered_converter
    from skl2onnx.common.shape_calculator import (
        calculate_linear_classifier_output_shapes as classifier_shapes,
    )
    from skl2onnx.common.shape_calculator import (
        calculate_linear_regressor_output_shapes as regressor_shapes,
    )

    options = {"nocl": [True, False], "zipmap": [True, False, "columns"], "raw_scores": [True, False]}
    module, converter = sys.modules[package], _converter(package)
    prefixes = {"xgboost": ("XGB", "XGBRF"), "lightgbm": ("LGBM",), "catboost": ("CatBoost",)}[package]
    kinds = (("Classifier", classifier_shapes), ("Regressor", regressor_shapes))
    for prefix, (kind, shapes) in (*product(prefixes, kinds), (prefixes[0], ("Ranker", regressor_shapes))):
        update_registered_converter(
            getattr(module, prefix + kind),
            alias + prefix.removeprefix("XGB") + kind if package == "xgboost" else alias + kind,
            shapes,
            converter,
            parser=_parse_classifier if (package, kind) == ("catboost", "Classifier") else None,
            options=options if kind == "Classifier" else None,
        )


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


def _converter(package: str) -> Any:
    if package == "xgboost":
        return _convert_xgboost_step
    if package == "lightgbm":
        return _convert_lightgbm_step
    return _convert_catboost_step


def _convert_lightgbm_step(scope: Any, operator: Any, container: Any) -> None:
    from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm

    estimator = operator.raw_operator
    if is_written(estimator):
        if hasattr(estimator, "classes_") and NodeWriter(scope, operator, container).asks_scores:
            raise UnsupportedError("LGBMClassifier: with linear_tree or zero_as_missing it gives chances alone here.")
        add_as_step(scope, operator, container, export_lightgbm(estimator, DOUBLE))
        return
    operator.raw_operator = equivalent(estimator)
    try:
        with comparing_doubles(type(container)):
            convert_lightgbm(scope, operator, container)
    finally:
        operator.raw_operator = estimator


def _convert_xgboost_step(scope: Any, operator: Any, container: Any) -> None:
    """Trees by onnxmltools, with NaN for the number that stands for a missing value; a linear model by ourselves."""
    from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost

    estimator, inputs = operator.raw_operator, operator.inputs
    gap = missing_number(estimator)
    if gap is not None:
        operator.inputs = [_with_nan(NodeWriter(scope, operator, container), gap)]
    outputs, from_sums = operator.outputs, _what_gives_answers(estimator)
    operator.raw_operator = equivalent(estimator if from_sums is None else sums_of(estimator))
    if from_sums is not None:
        from skl2onnx.common import data_types

        operator.outputs = [scope.declare_local_variable("sums", data_types.FloatTensorType())]
    if gap is not None:
        operator.raw_operator = copy_with(operator.raw_operator, missing=np.nan)
    try:
        if is_linear(estimator):
            add_as_step(scope, operator, container, export_linear(estimator, NEWEST_OPSET))
            return
        with adding_floats(type(container)):
            convert_xgboost(scope, operator, container)
        if from_sums is not None:
            from_sums(NodeWriter(scope, operator, container), *(o.full_name for o in (operator.outputs[0], *outputs)))
    finally:
        operator.raw_operator, operator.inputs, operator.outputs = estimator, inputs, outputs


def _what_gives_answers(estimator: Estimator) -> Callable[..., None] | None:
    """What makes labels and probabilities of XGBoost's sums; None where onnxmltools does."""
    if has_several_labels(estimator):
        return give_labels
    return give_raw_sums if gives_raw_sums(estimator) else None


def _with_nan(write: NodeWriter, gap: float) -> Any:
    """What a step is given, with NaN in the place of a number."""
    kind = number_type(write.inputs[0].type)
    filled = write.variable("with_nan", kind(write.inputs[0].type.shape))
    x = write.joined()
    # XGBoost rounds to float32 before it compares.
    lowest, highest = (compared_in_float32(float(np.float32(gap)), mode) for mode in ("BRANCH_GTE", "BRANCH_LEQ"))
    met = write.add("And", write.add("GreaterOrEqual", x, lowest), write.add("LessOrEqual", x, highest))
    write.give(write.add("Where", met, np.nan, x), filled)
    return filled


def _convert_catboost_step(scope: Any, operator: Any, container: Any) -> None:
    """Copy the tree node of CatBoost's own ONNX form into the pipeline's graph."""
    from onnx import helper

    if is_taken(operator.raw_operator):
        add_as_step(scope, operator, container, _catboost(operator.raw_operator))
        return
    proto = _catboost(operator.raw_operator)
    version = next((o.version for o in proto.opset_import if o.domain == "ai.onnx.ml"), 1)
    (tree,) = [n for n in proto.graph.node if n.op_type.startswith("TreeEnsemble")]
    container.add_node(
        tree.op_type,
        [operator.inputs[0].full_name],
        [o.full_name for o in operator.outputs],
        op_domain="ai.onnx.ml",
        op_version=version,
        name=scope.get_unique_operator_name(tree.op_type),
        **{a.name: helper.get_attribute_value(a) for a in tree.attribute},
    )


def has_several_labels(estimator: Estimator) -> bool:
    """Whether an estimator of XGBoost gives several independent labels."""
    booster = booster_of(estimator)
    learner = learner_of(booster)
    several = int(learner["learner_model_param"].get("num_target", "1")) > 1
    return booster is not estimator and several and learner["objective"]["name"] == "binary:logistic"


def give_labels(write: NodeWriter, sums: str, label: str, probabilities: str) -> None:
    """Add what makes probabilities and labels of sums.

    Args:
        write: adds nodes to the graph.
        sums, label, probabilities: names of tensors, the first of which is there.
    """
    write.add("Sigmoid", sums, name=probabilities)
    above = write.add("Greater", sums, np.zeros(1, np.float32))
    write.cast(above, INT64, name=label)


def gives_raw_sums(estimator: Estimator) -> bool:
    """Whether a classifier of XGBoost gives sums in the place of probabilities."""
    return hasattr(estimator, "classes_") and learner_of(booster_of(estimator))["objective"]["name"] == RAW_SUMS


def give_raw_sums(write: NodeWriter, sums: str, label: str, probabilities: str) -> None:
    """As XGBoost takes sums [rows, 1] for the probability of the second class: 1 - s and s, and the label by 1/2.

    Args:
        write, sums, label, probabilities: as of `give_labels`.
    """
    one, half = np.ones(1, np.float32), np.full(1, 0.5, np.float32)
    write.add("Concat", write.add("Sub", one, sums), sums, axis=1, name=probabilities)
    above = write.add("Reshape", write.add("Greater", sums, half), np.array([-1]))
    write.cast(above, INT64, name=label)
