"""Comparisons of sizes that torch.export decided for good, held against the sizes that the proof tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnxtool.conversion.pytorch.guards import Guard
from onnxtool.conversion.pytorch.traced_branches import other_side_raises, place_text
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds


class DecidedSizes:
    """The comparisons of one export.

    Attributes:
        sizes: on both sides of each.
    """

    def __init__(
        self, guards: Sequence[Guard], labels: Mapping[str, str], specs: Sequence[TensorSpec], sample: Feeds
    ) -> None:
        """Make ready.

        Args:
            guards: the comparisons.
            labels: torch's symbol -> name of the dim.
            specs: the inputs.
            sample: what was exported with.
        """
        self._guards, self._labels, self._specs = list(guards), dict(labels), specs
        self._usual = [g.outcome(self._symbols(sample)) for g in self._guards]
        self.sizes = tuple(dict.fromkeys(size for guard in guards for size in guard.sizes))

    def blamed(self, feeds: Feeds) -> list[str]:
        """The lines of comparisons that these inputs need the other side of, of the user's code before packages'."""
        sizes = self._symbols(feeds)
        found = [
            guard
            for guard, usual in zip(self._guards, self._usual, strict=True)
            if guard.where and usual is not None and guard.outcome(sizes) == (not usual)
        ]
        return [_describe(guard) for guard in sorted(found, key=lambda g: not g.of_user)]

    def one_sided(self, tried: Sequence[Feeds]) -> tuple[list[str], list[str]]:
        """Lines of comparisons that every input tried took the same side of, though there are sizes for the other.

        Returns:
            Those in the user's own code, and those of installed packages.
        """
        seen = [self._symbols(feeds) for feeds in tried]
        own: dict[str, None] = {}
        others: dict[str, None] = {}
        for guard, usual in zip(self._guards, self._usual, strict=True):
            if not guard.where or not guard.sizes or usual is None or not guard.direct:
                continue
            if any(guard.outcome(sizes) == (not usual) for sizes in seen):
                continue
            if other_side_raises(guard.file, guard.line):
                continue
            place = f"{_describe(guard)} (it comes out the other way at a size of {guard.sizes[0]})"
            (own if guard.of_user else others)[place] = None
        return list(own), list(others)

    def _symbols(self, feeds: Feeds) -> dict[str, int]:
        """Sizes by torch's symbols."""
        sizes: dict[str, int] = {}
        for spec in self._specs:
            for dim, size in zip(spec.shape or (), np.shape(feeds[spec.name]), strict=False):
                if isinstance(dim, str):
                    sizes[dim] = size
        return {symbol: sizes[dim] for symbol, dim in self._labels.items() if dim in sizes}


def _describe(guard: Guard) -> str:
    return place_text((guard.file, guard.line))
