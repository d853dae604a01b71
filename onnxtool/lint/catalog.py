"""Every finding that `check` can make, by its stable id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from onnxtool.errors import UsageError
from onnxtool.lint.rule import FAMILIES, LintRule
from onnxtool.lint.rules import deployment, graph, quantized_forms, stages, weights
from onnxtool.lint.rules import text as rules_text
from onnxtool.model.model_view import ModelView
from onnxtool.report.check import Finding

_MODULES = (stages, graph, deployment, quantized_forms, weights, rules_text)
RULES: dict[str, LintRule] = {r.id: r for r in sorted((r for m in _MODULES for r in m.RULES), key=lambda r: r.id)}
# What looks at the model itself, in the order of the families; the stages have findings of their own.
_EXAMINERS: Sequence[Callable[[ModelView], Iterator[Finding]]] = (
    graph.specification,
    graph.portability,
    deployment.edge,
    quantized_forms.quantized_forms,
    graph.performance,
    weights.numerics,
    weights.size,
    rules_text.security,
    rules_text.metadata,
)


def rule(identifier: str) -> LintRule:
    """Look a rule up by its id.

    Raises:
        UsageError: there is no such id.
    """
    found = RULES.get(identifier.strip().upper())
    if found is None:
        raise UsageError(f"{identifier}: there is no such finding. Known: {', '.join(RULES)}.")
    return found


def static_findings(view: ModelView, sound: bool) -> Iterator[Finding]:
    """What the file itself shows, without running it.

    Args:
        view: the model.
        sound: it meets the specification. When not, rules that stumble over it are left out.
    """
    for examine in _EXAMINERS:
        try:
            yield from list(examine(view))
        except (ValueError, TypeError, LookupError, AttributeError):
            if sound:
                raise


def selected(select: Iterable[str], ignore: Iterable[str]) -> frozenset[str]:
    """The ids that are wanted.

    Args:
        select: ids ("OT301"), beginnings of ids ("OT3") or families ("performance"); none means all.
        ignore: likewise; goes before `select`.

    Raises:
        UsageError: something that fits no id.
    """
    wanted = _match(select) if list(select) else set(RULES)
    return frozenset(wanted - _match(ignore))


def _match(patterns: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for pattern in patterns:
        text = pattern.strip()
        if text.lower() in FAMILIES:
            hits = {i for i, r in RULES.items() if r.family == text.lower()}
        else:
            hits = {i for i in RULES if text and i.startswith(text.upper())}
        if not hits:
            raise UsageError(f"{pattern}: no finding has such an id or family. Families: {', '.join(FAMILIES)}.")
        found |= hits
    return found
