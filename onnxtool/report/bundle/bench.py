"""What measuring a bundle gives."""

from __future__ import annotations

from dataclasses import dataclass

from onnxtool.report.base import Report


@dataclass(frozen=True)
class ContextSpeed:
    """Speed at one length of the prompt.

    Attributes:
        context: tokens of each prompt.
        first_token_seconds: from the prompt to the first new token.
        prefill_per_second: tokens of the prompts per second.
        decode_per_second: new tokens per second after the first, of the median step, of all prompts together.
        batch: prompts that are continued side by side.
    """

    context: int
    first_token_seconds: float
    prefill_per_second: float
    decode_per_second: float
    batch: int = 1


@dataclass(frozen=True)
class GeneratorSpeed:
    """One bundle, or the same model elsewhere, in a process of its own.

    Attributes:
        name: the folder or file.
        runtime: what ran it, with its version.
        load_seconds: until it can be given a prompt.
        peak_bytes: peak memory of the process; None where the system does not tell.
        speeds: at each length.
        fault: why it could not be measured; "" when it was.
        threads: of the runtime; None is all cores.
    """

    name: str
    runtime: str
    load_seconds: float
    peak_bytes: int | None
    speeds: tuple[ContextSpeed, ...]
    fault: str = ""
    threads: int | None = None


@dataclass(frozen=True, repr=False)
class BundleBenchReport(Report, kind="bundle_bench"):
    """Bundles and peers, measured one after the other; ratios are to the first.

    Attributes:
        generators: each of them.
        cache_bytes_per_token: of the first bundle.
        threads: of the first runtime; None is all cores.
        cpu: what the processor calls itself.
        cores: that this process may use.
    """

    generators: tuple[GeneratorSpeed, ...]
    cache_bytes_per_token: int
    threads: int | None
    cpu: str
    cores: int

    @property
    def ok(self) -> bool:
        """All of them could be measured."""
        return not any(g.fault for g in self.generators)
