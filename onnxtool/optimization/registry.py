"""All passes, in the order in which they run: the built-in ones and those of other packages."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from onnxtool.errors import UsageError
from onnxtool.installed_extensions import installed_extensions
from onnxtool.optimization.pass_base import Level, Pass
from onnxtool.optimization.passes.cleanup.common_subexpressions import (
    EliminateCommonSubexpressions,
    MergeDuplicateInitializers,
)
from onnxtool.optimization.passes.cleanup.constant_folding import FoldConstants, LiftConstants
from onnxtool.optimization.passes.cleanup.dead_code import EliminateDeadCode
from onnxtool.optimization.passes.cleanup.if_branches import InlineConstantIf, InlineFunctions, InlinePossibleBranch
from onnxtool.optimization.passes.cleanup.no_ops import (
    EliminateAddZero,
    EliminateIdentity,
    EliminateNeutral,
    EliminateNoOps,
)
from onnxtool.optimization.passes.cleanup.operator_chains import (
    CollapseCasts,
    CollapseClips,
    CollapseSlices,
    CollapseTransposes,
    FlattenConcats,
)
from onnxtool.optimization.passes.cleanup.shape_computations import (
    DropIndexWrap,
    EliminateExpand,
    FoldShapes,
    ShareSizes,
)
from onnxtool.optimization.passes.fusion.activations import FuseGelu, FuseHardSwish
from onnxtool.optimization.passes.fusion.affine import (
    FuseBatchNormAffine,
    FuseConvAffine,
    FuseMatMulScale,
    FuseScaleShift,
)
from onnxtool.optimization.passes.fusion.batchnorm import FuseConvBatchNorm
from onnxtool.optimization.passes.fusion.gemm import FuseMatMulAdd, FuseTransposeGemm
from onnxtool.optimization.passes.fusion.normalization import FuseLayerNorm, FuseRMSNorm
from onnxtool.optimization.passes.fusion.pad_conv import FusePadConv
from onnxtool.optimization.passes.fusion.scales_into_weights import MoveScalesIntoWeights
from onnxtool.optimization.passes.fusion.softmax_guard import SimplifySoftmaxGuard
from onnxtool.optimization.passes.layout.merged_dims import (
    DropUnitDims,
    MoveBiasBeforeReshape,
    SplitMergedBatches,
    UnflattenProducts,
)
from onnxtool.optimization.passes.layout.projections import CollapseBatchedTransposes, MergeProjections
from onnxtool.optimization.passes.layout.reduce_before_transpose import ReduceBeforeTranspose
from onnxtool.optimization.passes.layout.reshapes import SimplifyReshapes
from onnxtool.optimization.passes.ort_fusion.activations import FuseBiasGelu, FuseConvActivation, FuseQuickGelu
from onnxtool.optimization.passes.ort_fusion.attention import FuseAttention
from onnxtool.optimization.passes.ort_fusion.grouped_query_attention import (
    FuseGroupedAttention,
    FuseMaskedGroupedAttention,
)
from onnxtool.optimization.passes.ort_fusion.matmul_transpose import FuseMatMulTransposes
from onnxtool.optimization.passes.ort_fusion.packed_qkv_attention import FusePackedAttention
from onnxtool.optimization.passes.ort_fusion.rotary_embedding import FuseRotaryEmbedding
from onnxtool.optimization.passes.ort_fusion.skip_normalization import FuseSkipLayerNorm, FuseSkipRMSNorm
from onnxtool.optimization.passes.ort_fusion.stacked_heads import SplitStackedHeads
from onnxtool.report.optimize import PassSummary

ENTRY_POINTS = "onnxtool.passes"

_BUILT_IN: tuple[type[Pass], ...] = (
    InlineFunctions,
    LiftConstants,
    EliminateDeadCode,
    EliminateIdentity,
    EliminateNoOps,
    EliminateNeutral,
    FoldConstants,
    FoldShapes,
    InlineConstantIf,
    InlinePossibleBranch,
    SimplifyReshapes,
    DropUnitDims,
    SplitMergedBatches,
    CollapseBatchedTransposes,
    CollapseTransposes,
    CollapseCasts,
    CollapseSlices,
    CollapseClips,
    FuseTransposeGemm,
    ReduceBeforeTranspose,
    FlattenConcats,
    EliminateExpand,
    ShareSizes,
    MergeDuplicateInitializers,
    EliminateCommonSubexpressions,
    EliminateAddZero,
    DropIndexWrap,
    FuseHardSwish,
    FuseGelu,
    FuseLayerNorm,
    FuseRMSNorm,
    FusePadConv,
    FuseConvBatchNorm,
    FuseConvAffine,
    FuseBatchNormAffine,
    FuseScaleShift,
    UnflattenProducts,
    MoveBiasBeforeReshape,
    FuseMatMulAdd,
    FuseMatMulScale,
    MoveScalesIntoWeights,
    MergeProjections,
    SimplifySoftmaxGuard,
    FuseConvActivation,
    SplitStackedHeads,
    FuseRotaryEmbedding,
    FuseGroupedAttention,
    FuseMaskedGroupedAttention,
    FuseAttention,
    FusePackedAttention,
    FuseQuickGelu,
    FuseBiasGelu,
    FuseMatMulTransposes,
    FuseSkipLayerNorm,
    FuseSkipRMSNorm,
)


@cache
def all_passes() -> tuple[tuple[Pass, str], ...]:
    """Every pass with the package it comes from, built-in ones first.

    Raises:
        UsageError: an entry point cannot be loaded or is not a Pass.
    """
    found: list[tuple[Pass, str]] = [(kind(), "onnxtool") for kind in _BUILT_IN]
    names = {p.name for p, _ in found}
    for extension in installed_extensions(ENTRY_POINTS):
        made = extension.make()
        if not isinstance(made, Pass) or made.name in names:
            raise UsageError(f"{extension} is not a Pass, or its name is taken.")
        names.add(made.name)
        found.append((made, extension.package))
    return tuple(found)


def describe_passes() -> tuple[PassSummary, ...]:
    """Name, level and one line for each pass, in the order in which they run."""
    return tuple(
        PassSummary(p.name, p.level.value, (type(p).__doc__ or p.name).strip().splitlines()[0], origin)
        for p, origin in all_passes()
    )


def select(level: Level, only: Collection[str] | None = None, skip: Collection[str] = ()) -> list[Pass]:
    """The passes of a level, in order.

    Args:
        level: the highest level to include.
        only: just these, whatever their level; None = all of the level.
        skip: leave these out.

    Raises:
        UsageError: an unknown name.
    """
    known = {p.name: p for p, _ in all_passes()}
    for name in (*(only or ()), *skip):
        if name not in known:
            raise UsageError(f"there is no pass {name!r}. To see all of them: onnxtool optimize --list-passes")
    chosen = [p for p in known.values() if (level.includes(p.level) if only is None else p.name in only)]
    return [p for p in chosen if p.name not in skip]
