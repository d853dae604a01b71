"""What differs from a candidate in one choice: the steps by which the search walks from recipe to recipe."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir

from onnxtool.model.ir.queries import float_constant
from onnxtool.quantization.algorithms.bias_correction import correctable
from onnxtool.quantization.algorithms.cross_layer_equalization import has_pairs
from onnxtool.quantization.algorithms.float_fusions import FUSIONS
from onnxtool.quantization.algorithms.qdq_placement import is_product
from onnxtool.quantization.algorithms.smooth_quant import LINEAR
from onnxtool.quantization.apply_recipe import placement_of
from onnxtool.quantization.evaluation.output_statistics import VALUES_DB
from onnxtool.quantization.recipe import NodePlan, QuantRecipe
from onnxtool.quantization.search.candidates import MINOR, chosen_by, share_of_linear
from onnxtool.quantization.search.evaluator import CandidateEvaluator, RecipeTrial
from onnxtool.quantization.search.node_cost import STRETCH, group_nodes

CLEARLY_FASTER = 0.985  # what a change must gain to count: above the noise of a quick timing
_NOISIER_DB = 6.0  # so much more noise is not worth a try on another candidate, unless there is little of it
_GRANULARITIES = ("per-channel", "per-tensor")
_GATES = ("Sigmoid", "HardSigmoid")
_STRENGTHS = (0.5, 0.75)  # of smoothing


@dataclass(frozen=True)
class RecipeMove:
    """A recipe that differs from another one in one choice.

    Attributes:
        label: what is made otherwise.
        recipe: the result, not calibrated.
        key: equal for moves of which one tells what the others would come to.
        quieter: it is made for accuracy, and not for speed.
    """

    label: str
    recipe: QuantRecipe
    key: Hashable
    quieter: bool = False


def renamed(name: str, label: str) -> str:
    """A candidate's name after a move: its parts, one of them replaced where the move is along the same axis."""
    axes = (_GRANULARITIES, tuple(f"{fuse} fused" for fuse in FUSIONS))
    replaced = next((axis for axis in axes if label in axis), ())
    return ", ".join([*(part for part in name.split(", ") if part not in replaced), label])


def scheme_of(recipe: QuantRecipe) -> frozenset[NodePlan]:
    """In which ways its nodes run: a fusion that gains between dynamic integers may cost between static ones."""
    return frozenset((recipe.plan or {}).values())


class RecipeMoves:
    """The choices that a model has, and what was learned of them on the way."""

    def __init__(
        self,
        evaluator: CandidateEvaluator,
        base: QuantRecipe,
        nodes: Sequence[ir.Node],
        cost: Mapping[str, float],
        *,
        calibrated: bool,
    ) -> None:
        """Take the compute nodes and their multiply-accumulates; `calibrated` where there are calibration data."""
        self.evaluator, self.nodes, self.cost, self.calibrated = evaluator, nodes, cost, calibrated
        graph = evaluator.job.prepared.graph
        self._by_name = {n.name or "": n for n in graph}
        self._products = sorted(n.name or "" for n in graph if is_product(n) and chosen_by(base, n))
        self._linear = share_of_linear(nodes, cost) > MINOR
        self._useless: set[Hashable] = set()

    def of(self, trial: RecipeTrial, *, accurate: bool, within: bool) -> Iterator[RecipeMove]:
        """The moves from a candidate; those for speed first where it keeps the budget, else those for accuracy.

        Args:
            trial: where to start.
            accurate: more accuracy is worth nothing.
            within: it keeps the accuracy budget.
        """
        faster = (*self._fusions(trial.recipe), *self._granularity(trial.recipe), *self._other_nodes(trial, within))
        quieter = () if accurate else tuple(self._quieter(trial.recipe))
        yield from (*faster, *quieter) if within else (*quieter, *faster)

    def is_useless(self, move: RecipeMove, trial: RecipeTrial) -> bool:
        """Whether the same move has surely gained nothing from another candidate whose nodes run in the same ways."""
        return (scheme_of(trial.recipe), move.key) in self._useless

    def learn(self, move: RecipeMove, before: RecipeTrial, after: RecipeTrial) -> None:
        """Remember a move that surely gained nothing, or cost much accuracy: it is not made from other candidates."""
        lowest = after.latency.low if after.latency is not None else after.speed
        idle = not move.quieter and lowest > CLEARLY_FASTER * before.speed
        noisier = False
        if after.fidelity is not None and before.fidelity is not None:
            allowed = 0.0 if move.quieter else _NOISIER_DB
            noisier = after.fidelity.channel_db < min(before.fidelity.channel_db, VALUES_DB) - allowed
        if idle or noisier:
            self._useless.add((scheme_of(before.recipe), move.key))

    def _fusions(self, recipe: QuantRecipe) -> Iterator[RecipeMove]:
        for fuse in self.evaluator.fusable if self.evaluator.times else ():
            if fuse != recipe.fuse:
                yield RecipeMove(f"{fuse} fused", replace(recipe, fuse=fuse), fuse)

    def _granularity(self, recipe: QuantRecipe) -> Iterator[RecipeMove]:
        if recipe.plan and self.evaluator.times:
            label = _GRANULARITIES[recipe.per_channel]
            other: dict[str, Any] = {"per_channel": not recipe.per_channel, "per_tensor_nodes": (), "shifts": None}
            yield RecipeMove(label, replace(recipe, **other), label)

    def _other_nodes(self, trial: RecipeTrial, within: bool) -> Iterator[RecipeMove]:
        """Other nodes on integers: activations and groups of layers in float, products of activations on integers."""
        recipe = trial.recipe
        plan = dict(recipe.plan or {})
        if not plan:
            return
        placement = placement_of(self.evaluator.conditions.model(recipe).graph, recipe)
        gates = tuple(n.name or "" for n in placement.carried if n.op_type in _GATES)
        if gates:
            # A table look-up and a product on integers can take longer than SiLU as one float operator.
            yield RecipeMove("activations float", replace(recipe, exclude=(*recipe.exclude, *gates)), gates)
        if self.calibrated and self._products and self._products[0] not in plan:
            products: dict[str, NodePlan] = dict.fromkeys(self._products, "static")
            yield RecipeMove("with attention", replace(recipe, plan={**plan, **products}), "attention")
        # What breaks the budget is to be repaired, and stretches would take the time for that.
        for label, group in group_nodes(self.nodes, self.cost, stretches=within):
            left = {name: how for name, how in plan.items() if name not in group}
            shapes = frozenset(self._shape(name) for name in plan.keys() - left.keys() if name in self._by_name)
            outside = {self._shape(name) for name in left if name in self._by_name}
            # Layers of the same shapes gain or lose alike.
            if left and len(left) < len(plan) and not (label.startswith(STRETCH) and shapes <= outside):
                yield RecipeMove(f"{label} float", replace(recipe, plan=left), shapes)

    def _shape(self, name: str) -> tuple[str, tuple[int, ...], float]:
        """What a node's time goes by, next to: its operator, the shape of its weights, and how often these are used."""
        node = self._by_name[name]
        weight = float_constant(node.inputs[1]) if len(node.inputs) > 1 else None
        return node.op_type, () if weight is None else weight.shape, self.cost.get(name, 0.0)

    def _quieter(self, recipe: QuantRecipe) -> Iterator[RecipeMove]:
        """What lessens the error of rounding at no cost in time."""
        nodes = [self._by_name[name] for name in recipe.plan or {} if name in self._by_name]
        plain = replace(recipe, shifts=None)
        if not self.calibrated:
            return
        if self._linear and not recipe.smooth and any(n.op_type in LINEAR for n in nodes):
            for alpha in _STRENGTHS:
                yield RecipeMove(f"smooth {alpha:g}", replace(plain, smooth=alpha), "smooth", quieter=True)
        if not recipe.equalize and has_pairs(self.evaluator.job.prepared.graph):
            yield RecipeMove("equalized", replace(plain, equalize=True), "equalized", quieter=True)
        if not recipe.bias_correction and any(correctable(n) for n in nodes):
            yield RecipeMove("bias-corrected", replace(plain, bias_correction=True), "bias-corrected", quieter=True)
