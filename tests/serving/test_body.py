"""Compressed bodies count against the memory that all requests share, while they expand too."""

from __future__ import annotations

import asyncio
import gzip
from dataclasses import replace

import pytest

from onnxtool.options.serve import ServeLimits
from onnxtool.serving import body as module
from onnxtool.serving.body import BodyReader
from onnxtool.serving.faults import HttpError

LIMITS = replace(ServeLimits(), request_bytes=1000, buffered_bytes=2500)


def test_bodies_that_expand_at_once_share_what_may_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three that hold nearly all of a request each: two find room for all, the third is told to come again."""
    bodies, seen = BodyReader(LIMITS), []
    expand = module._expanded

    def observed(body: bytes, most: int) -> bytes:
        seen.append(bodies.held)
        return expand(body, most)

    monkeypatch.setattr(module, "_expanded", observed)
    packed = gzip.compress(bytes(900))

    async def run() -> list[bytes | BaseException]:
        return await asyncio.gather(*(bodies.expand(packed) for _ in range(3)), return_exceptions=True)

    found = asyncio.run(run())
    assert max(seen) <= LIMITS.buffered_bytes
    sizes = [len(f) for f in found if isinstance(f, bytes)]
    refused = [f.status for f in found if isinstance(f, HttpError)]
    assert (sizes, refused) == ([900, 900], [503])
    assert bodies.held == 1800


def test_what_is_refused_or_cancelled_holds_nothing() -> None:
    bodies = BodyReader(LIMITS)

    async def run() -> None:
        for packed, status in ((b"no", 400), (gzip.compress(bytes(1001)), 413), (gzip.compress(b"a")[:-3], 400)):
            with pytest.raises(HttpError) as error:
                await bodies.expand(packed)
            assert error.value.status == status
        task = asyncio.create_task(bodies.expand(gzip.compress(bytes(500))))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert bodies.held == 0
