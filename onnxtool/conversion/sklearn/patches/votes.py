"""Votes of classifiers: Bagging, AdaBoost and VotingClassifier, by their members' chances or labels; isolation
forests, by the lengths of their trees' paths; and the leaves that trees find, as features.

Source: scikit-learn, `sklearn.ensemble.BaggingClassifier`, `AdaBoostClassifier`, `VotingClassifier`,
`IsolationForest` and `RandomTreesEmbedding`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onnxtool.conversion.boosting.ensembles import TreeEnsemble
from onnxtool.conversion.sklearn.converters.members import classified, predicted
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension, number_type, transformer
from onnxtool.errors import UnsupportedError

_ROUNDING = 1e-12


def _convert_bagging(write: NodeWriter, _original: Callable[[], None]) -> None:
    soft = hasattr(write.step.estimators_[0], "predict_proba")
    votes, scores = [], []
    for member, seen in _members_with_columns(write):
        votes.append(_vote(write, member, [seen], soft=soft))
        if write.asks_scores:
            scores.append(classified(write, member, [seen], raw=True)[1])
    _give_mean(write, votes, scores or votes, np.ones(len(votes)))


def _convert_bagged_numbers(write: NodeWriter, original: Callable[[], None]) -> None:
    if not any(hasattr(member, "steps") for member in write.step.estimators_):
        original()
        return
    found = [predicted(write, member, [seen]) for member, seen in _members_with_columns(write)]
    write.give(_mean(write, found, np.ones(len(found))))


def _members_with_columns(write: NodeWriter) -> Iterator[tuple[Any, Any]]:
    """The members of a bag, and the columns that each is given."""
    model, given = write.step, write.inputs[0]
    for member, columns in zip(model.estimators_, model.estimators_features_, strict=True):
        seen: Any = given
        if not np.array_equal(columns, np.arange(model.n_features_in_)):
            seen = write.variable("member_columns", number_type(given.type)([None, len(columns)]))
            write.add("Gather", given.full_name, np.asarray(columns, np.int64), axis=1, name=seen.full_name)
            seen.init_status(is_fed=True)
        yield member, seen


def _convert_adaboost(write: NodeWriter, original: Callable[[], None]) -> None:
    model, classes = write.step, np.asarray(write.step.classes_)
    if any(type(member).__name__ != "DecisionTreeClassifier" for member in model.estimators_):
        original()
        return
    sums = write.add("Div", _sum_of_leaves(write, _leaf_votes(write, classes)), float(model.estimator_weights_.sum()))
    if len(classes) > 2:
        place = write.add("ArgMax", sums, axis=1, keepdims=0)
        scores, logits = sums, write.add("Div", sums, len(classes) - 1.0)
    else:  # the second's
        place = write.cast(write.add("Reshape", write.add("Greater", sums, 0.0), np.array([-1])), INT64)
        logits = write.columns([write.add("Neg", sums), sums])
        scores = write.add("Add", logits, logits)
    write.give_labels(place, classes)
    write.give(scores if write.asks_scores else write.add("Softmax", logits, axis=1), write.outputs[1])


def _leaf_votes(write: NodeWriter, classes: np.ndarray) -> list[np.ndarray]:
    """What each tree's nodes add to [classes], or to the second of two alone: the tree's weight for the class that it
    finds, a share of it against each other.
    """
    model, found = write.step, []
    for member, weight in zip(model.estimators_, model.estimator_weights_, strict=False):
        named = member.classes_[member.tree_.value[:, 0].argmax(axis=1)]
        votes = np.where(named[:, None] == classes, float(weight), -float(weight) / (len(classes) - 1))
        found.append(votes[:, 0 if len(classes) > 2 else 1 :])
    return found


def _sum_of_leaves(write: NodeWriter, added: Sequence[np.ndarray], columns: Sequence[np.ndarray] | None = None) -> str:
    """[rows, numbers], doubles: the sums of what the leaves hold that an ensemble's trees find. One operator.

    Args:
        write: adds nodes; its step has the trees.
        added: by each node of each tree, [nodes, numbers].
        columns: of the rows, that each tree reads; all of them unless given.
    """
    # Sums are given in float32, so there are two: of multiples of the last place that such a sum has, and of the rest.
    place = 2.0 ** (np.ceil(np.log2(sum(np.abs(own).max() for own in added))) - 24)
    coarse = [np.round(own / place) * place for own in added]
    pairs = zip(coarse, added, strict=True)
    sums = _sums(write, [[dict(enumerate(n)) for n in np.hstack([near, own - near])] for near, own in pairs], columns)
    return write.add("Add", *write.split(write.cast(sums, DOUBLE), [added[0].shape[1]] * 2))


def _sums(
    write: NodeWriter, leaves: Sequence[Sequence[Mapping[int, float]]], columns: Sequence[np.ndarray] | None = None
) -> str:
    """[rows, targets], float32: the sums of what the leaves, by each node of each tree, add to the targets."""
    trees = TreeEnsemble()
    for number, (member, own) in enumerate(zip(write.step.estimators_, leaves, strict=True)):
        tree = member.tree_
        features = np.arange(tree.n_features) if columns is None else columns[number]
        for node, (left, right) in enumerate(zip(tree.children_left, tree.children_right, strict=True)):
            if left < 0:
                trees.add_leaf(number, node, own[node])
                continue
            trees.add_node(
                number, node, featureids=int(features[tree.feature[node]]), values=float(tree.threshold[node]),
                modes="BRANCH_LEQ", truenodeids=int(left), falsenodeids=int(right),
                missing_value_tracks_true=int(tree.missing_go_to_left[node]),
            )  # fmt: skip
    return write.add_of("ai.onnx.ml", 3, "TreeEnsembleRegressor", write.joined(), **trees.attributes)


def _convert_embedding(write: NodeWriter) -> None:
    """A column for each leaf of each tree."""
    trees = [member.tree_.node_count for member in write.step.estimators_]
    known = write.step.one_hot_encoder_.categories_
    starts = np.cumsum([0, *map(len, known)])[:-1].tolist()
    places = [{int(leaf): start + i for i, leaf in enumerate(own)} for own, start in zip(known, starts, strict=True)]
    write.give(_sums(write, [[{own.get(n, 0): 1.0} for n in range(c)] for own, c in zip(places, trees, strict=True)]))


def _convert_isolation(write: NodeWriter, _original: Callable[[], None]) -> None:
    """By the mean length of the paths to the leaves, which hold how much longer they would have been."""
    from sklearn.ensemble._iforest import _average_path_length

    model = write.step
    paths, further = model._decision_path_lengths, model._average_path_length_per_tree
    added = [(np.asarray(p) + f - 1.0).reshape(-1, 1) for p, f in zip(paths, further, strict=True)]
    most = float(_average_path_length([model._max_samples])[0]) * len(added)
    if not most:
        raise UnsupportedError("IsolationForest: trees of one row have no ONNX form here.")
    depths = write.add("Div", _sum_of_leaves(write, added, model.estimators_features_), -most)
    scores = write.add("Sub", -float(model.offset_), write.add("Pow", 2.0, depths))
    # Of a row of the fit that the offset was read off, the score is the offset but for rounding.
    write.give_inliers(scores, -_ROUNDING)


def _convert_voting(write: NodeWriter, _original: Callable[[], None]) -> None:
    model = write.step
    votes = [_vote(write, member, write.inputs, soft=model.voting == "soft") for member in model.estimators_]
    weights = model._weights_not_none
    _give_mean(write, votes, votes, np.ones(len(votes)) if weights is None else np.asarray(weights, np.float64))


def _vote(write: NodeWriter, member: Any, inputs: Sequence[Any], *, soft: bool) -> str:
    """[rows, classes], doubles. Members know the classes by their places, and may not have seen all of them."""
    count = len(write.step.classes_)
    label, chances = classified(write, member, inputs)
    if not soft:
        places = write.add("Reshape", label, np.array([-1, 1]))
        return write.cast(write.add("Equal", places, np.arange(count)[None]), DOUBLE)
    seen = np.asarray(member.classes_, np.int64)
    return chances if len(seen) == count else write.add("MatMul", chances, np.eye(count)[seen])


def _give_mean(write: NodeWriter, votes: Sequence[str], scores: Sequence[str], weights: np.ndarray) -> None:
    """The label of the largest mean of votes, and the mean of scores."""
    mean = _mean(write, votes, weights)
    write.give_labels(write.add("ArgMax", mean, axis=1, keepdims=0), write.step.classes_)
    write.give(mean if scores is votes else _mean(write, scores, weights), write.outputs[1])


def _mean(write: NodeWriter, values: Sequence[str], weights: np.ndarray) -> str:
    parts = [v if w == 1 else write.add("Mul", v, float(w)) for v, w in zip(values, weights, strict=True)]
    total = parts[0]
    for part in parts[1:]:
        total = write.add("Add", total, part)
    return write.add("Div", total, float(weights.sum()))


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 takes the most frequent vote of all rows together, and linear discriminants for logistic ones; of "
    "AdaBoost it writes seven nodes for each tree, of isolation forests twenty; leaves as "
    "features it refuses or makes outputs of",
    extension("sklearn.ensemble:BaggingClassifier", _convert_bagging),
    extension("sklearn.ensemble:BaggingRegressor", _convert_bagged_numbers),
    extension("sklearn.ensemble:AdaBoostClassifier", _convert_adaboost),
    extension("sklearn.ensemble:VotingClassifier", _convert_voting),
    extension("sklearn.ensemble:IsolationForest", _convert_isolation),
    transformer(
        "sklearn.ensemble:RandomTreesEmbedding",
        _convert_embedding,
        lambda step: sum(map(len, step.one_hot_encoder_.categories_)),
    ),
)
