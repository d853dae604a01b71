"""Where the search for a recipe starts: whole-model plans, and what they should take where nothing can be timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from onnxtool.quantize.dynamic import DYNAMIC
from onnxtool.quantize.recipe import NodePlan, QuantRecipe
from onnxtool.quantize.targets import COST


def whole_model_plans(nodes: Sequence[ir.Node], static_possible: bool) -> list[tuple[str, dict[str, NodePlan]]]:
    """Whole-model plans worth a trial, each under a name; the likeliest first."""
    linear = [n.name or "" for n in nodes if n.op_type in DYNAMIC]
    convs = [n.name or "" for n in nodes if n.op_type == "Conv"]
    plans: list[tuple[str, dict[str, NodePlan]]] = []
    if static_possible:
        everything: dict[str, NodePlan] = dict.fromkeys([*convs, *linear], "static")
        plans.append(("static", everything))
        if convs and linear:
            plans.append(
                ("static Conv, dynamic MatMul", {**dict.fromkeys(convs, "static"), **dict.fromkeys(linear, "dynamic")})
            )
            plans.append(("static MatMul", dict.fromkeys(linear, "static")))
            plans.append(("static Conv", dict.fromkeys(convs, "static")))
    if linear:
        plans.append(("dynamic MatMul", dict.fromkeys(linear, "dynamic")))
    return [(name, plan) for name, plan in plans if plan]


def rule_of_thumb(cost: Mapping[str, float]) -> Callable[[QuantRecipe], float]:
    """Latency ratio by the share of multiply-accumulates that each kind of kernel takes over."""
    total = sum(cost.values()) or 1.0

    def estimate(recipe: QuantRecipe) -> float:
        plan = recipe.plan or {}
        shares = (own / total * (COST[plan[name]] if name in plan else 1.0) for name, own in cost.items())
        return sum(shares) + (0.01 if recipe.per_channel else 0.0)

    return estimate
