"""Options of converters: what a step's converter does not know is not asked of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from onnxtool.conversion.patches import Patch, replaced


def _known(plain: Callable[..., Any]) -> Callable[..., Any]:
    def build(
        model: Any, given: Mapping[Any, Mapping[str, Any]] | None, usual: Any, allowed: Any, fail: bool
    ) -> dict[str, Any] | None:
        if allowed != "passthrough":
            given = {
                key: {n: v for n, v in (o or {}).items() if n in (allowed or ())} for key, o in (given or {}).items()
            }
        found: dict[str, Any] | None = plain(model, given, usual, allowed, fail)
        return found

    return build


@contextmanager
def _applied() -> Iterator[None]:
    with ExitStack() as stack:
        for name in ("_container", "_topology"):
            module = import_module(f"skl2onnx.common.{name}")
            stack.enter_context(replaced(module, "_build_options", _known(module._build_options)))
        yield


PATCH = Patch(
    "skl2onnx",
    "1.21",
    "skl2onnx 1.20 asks classifiers inside others, and selectors that resemble one, for options that they do not know",
    _applied,
)
