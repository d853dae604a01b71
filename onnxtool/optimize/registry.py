"""All passes, in the order in which they run: the built-in ones and those of other packages."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from importlib.metadata import entry_points

from onnxtool.errors import UsageError
from onnxtool.optimize.levels import Level, Pass
from onnxtool.optimize.passes.activations import CollapseClips, FuseGelu, FuseHardSwish
from onnxtool.optimize.passes.affine import FuseBatchNormAffine, FuseConvAffine, FuseMatMulScale
from onnxtool.optimize.passes.attention import FuseAttention
from onnxtool.optimize.passes.attention_layout import CollapseBatchedTransposes, MergeProjections
from onnxtool.optimize.passes.batchnorm import FuseConvBatchNorm
from onnxtool.optimize.passes.branches import InlinePossibleBranch
from onnxtool.optimize.passes.chains import CollapseCasts, CollapseSlices, CollapseTransposes, FlattenConcats
from onnxtool.optimize.passes.constants import LiftConstants
from onnxtool.optimize.passes.dead_code import EliminateDeadCode
from onnxtool.optimize.passes.duplicates import EliminateCommonSubexpressions, MergeDuplicateInitializers
from onnxtool.optimize.passes.folding import FoldConstants
from onnxtool.optimize.passes.fused_activations import FuseBiasGelu, FuseQuickGelu
from onnxtool.optimize.passes.fused_conv import FuseConvActivation
from onnxtool.optimize.passes.fused_matmul import FuseMatMulTransposes
from onnxtool.optimize.passes.fused_norm import FuseSkipLayerNorm, FuseSkipRMSNorm
from onnxtool.optimize.passes.gemm import FuseMatMulAdd, FuseTransposeGemm
from onnxtool.optimize.passes.grouped_attention import FuseGroupedAttention, FuseMaskedGroupedAttention
from onnxtool.optimize.passes.identities import EliminateIdentity, EliminateNoOps
from onnxtool.optimize.passes.indices import DropIndexWrap
from onnxtool.optimize.passes.inlining import InlineConstantIf, InlineFunctions
from onnxtool.optimize.passes.neutral import EliminateAddZero, EliminateNeutral
from onnxtool.optimize.passes.normalization import FuseLayerNorm, FuseRMSNorm
from onnxtool.optimize.passes.packed_attention import FusePackedAttention
from onnxtool.optimize.passes.padding import FusePadConv
from onnxtool.optimize.passes.reductions import ReduceBeforeTranspose
from onnxtool.optimize.passes.regrouping import (
    DropUnitDims,
    MoveBiasBeforeReshape,
    SplitMergedBatches,
    UnflattenProducts,
)
from onnxtool.optimize.passes.reshapes import SimplifyReshapes
from onnxtool.optimize.passes.rotary import FuseRotaryEmbedding
from onnxtool.optimize.passes.scale_shift import FuseScaleShift
from onnxtool.optimize.passes.scales import MoveScalesIntoWeights
from onnxtool.optimize.passes.shapes import EliminateExpand, FoldShapes, ShareSizes
from onnxtool.optimize.passes.softmax_guard import SimplifySoftmaxGuard
from onnxtool.optimize.passes.stacked_heads import SplitStackedHeads
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
        UsageError: an entry point cannot be loaded or is no Pass.
    """
    found: list[tuple[Pass, str]] = [(kind(), "onnxtool") for kind in _BUILT_IN]
    names = {p.name for p, _ in found}
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda e: e.name):
        origin = entry.dist.name if entry.dist is not None else entry.value
        try:
            made = entry.load()()
        except Exception as error:
            raise UsageError(f"the pass {entry.name!r} of {origin} cannot be loaded: {error}") from error
        if not isinstance(made, Pass) or made.name in names:
            raise UsageError(f"the pass {entry.name!r} of {origin} is no Pass, or its name is taken.")
        names.add(made.name)
        found.append((made, origin))
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
