"""Where the search for a recipe starts (whole-model plans) and ends (what differs from the best in one choice)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from onnxtool.quantization.algorithms.dynamic import DYNAMIC, is_recurrent
from onnxtool.quantization.apply_recipe import excluded
from onnxtool.quantization.recipe import NodePlan, QuantRecipe
from onnxtool.quantization.search.node_cost import weight_count
from onnxtool.quantization.targets import COST

MINOR = 0.1  # share of the multiply-accumulates below which a kind of node needs no plan of its own ...
_FEW = 0.5  # ... unless it has this share of the weights, which have to come from memory


def chosen_by(base: QuantRecipe, node: ir.Node) -> bool:
    """True for a node that the options leave to the search: of a wanted type and not excluded."""
    return (not base.op_types or node.op_type in base.op_types) and not excluded(node, base)


def whole_model_plans(
    nodes: Sequence[ir.Node], cost: Mapping[str, float], static_possible: bool, inner: Sequence[ir.Node] = ()
) -> list[tuple[str, dict[str, NodePlan]]]:
    """Whole-model plans worth a trial, each under a name; the likeliest first.

    Args:
        nodes: eligible compute nodes.
        cost: their multiply-accumulates.
        static_possible: there is calibration data.
        inner: nodes inside If, Loop and Scan that can run on integers: dynamic, whatever the others are.
    """
    linear = [n.name or "" for n in nodes if n.op_type in DYNAMIC]
    convs = [n.name or "" for n in nodes if n.op_type == "Conv"]
    share = share_of_linear(nodes, cost)
    plans: list[tuple[str, dict[str, NodePlan]]] = []
    if static_possible:
        everything: dict[str, NodePlan] = dict.fromkeys([*convs, *linear], "static")
        plans.append(("static", everything))
        if convs and linear and share > MINOR:
            plans.append(
                ("static Conv, dynamic MatMul", {**dict.fromkeys(convs, "static"), **dict.fromkeys(linear, "dynamic")})
            )
            plans.append(("static MatMul", dict.fromkeys(linear, "static")))
        if convs and linear and share > MINOR:
            plans.append(("static Conv", dict.fromkeys(convs, "static")))
    if linear and (share > MINOR or not static_possible):
        plans.append(("dynamic MatMul", dict.fromkeys(linear, "dynamic")))
    recurrent: dict[str, NodePlan] = {
        n.name or "": "dynamic" for n in (*nodes, *inner) if is_recurrent(n) or n in inner
    }
    if recurrent:  # its integers have nothing to do with anybody else's
        label = "dynamic inside subgraphs" if inner else "dynamic LSTM"
        plans = [(f"{name}, {label}", {**plan, **recurrent}) for name, plan in plans if plan]
        plans.append((label, recurrent))
    return [(name, plan) for name, plan in plans if plan]


def natural_plan(nodes: Sequence[ir.Node]) -> dict[str, NodePlan]:
    """Every node static, but for LSTM, which are dynamic or float."""
    return {n.name or "": "dynamic" if is_recurrent(n) else "static" for n in nodes}


def share_of_linear(nodes: Sequence[ir.Node], cost: Mapping[str, float]) -> float:
    """What part of the work MatMul, Gemm and LSTM do: by multiply-accumulates, or by weights if most are theirs."""
    linear = [n for n in nodes if n.op_type in (*DYNAMIC, "LSTM")]
    work, stored = (_share(linear, nodes, lambda n: cost.get(n.name or "", 0.0)), _share(linear, nodes, weight_count))
    return max(work, stored if stored >= _FEW else 0.0)


def _share(some: Sequence[ir.Node], every: Sequence[ir.Node], size: Callable[[ir.Node], float]) -> float:
    total = sum(size(n) for n in every)
    return sum(size(n) for n in some) / total if total else 1.0


def rule_of_thumb(cost: Mapping[str, float]) -> Callable[[QuantRecipe], float]:
    """Latency ratio by the share of multiply-accumulates that each kind of kernel takes over."""
    total = sum(cost.values()) or 1.0

    def estimate(recipe: QuantRecipe) -> float:
        plan = recipe.plan or {}
        shares = (own / total * (COST[plan[name]] if name in plan else 1.0) for name, own in cost.items())
        return sum(shares) + (0.01 if recipe.per_channel else 0.0)

    return estimate
