"""Whether a model gives on another execution provider what it gives on the CPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PrecisionLevels:
    """How far a model's outputs move when its weights and inputs are rounded; relative, the worst output.

    Attributes:
        float32: by the runtime's own choice of kernels.
        float16: to 11 bits, as float16 and tf32 have.
        bfloat16: to 8 bits.
    """

    float32: float
    float16: float
    bfloat16: float


@dataclass(frozen=True)
class ProviderProof:
    """One model on one provider, held against the same file on the CPU without the runtime's own optimizations.

    Attributes:
        provider: as it was asked for, with its options.
        ok: every output within tolerance.
        error: root mean square of the difference over that of the CPU's outputs, the worst output; None when it failed.
        precision: "float32", "tf32 or float16", "bfloat16": which rounding the error is as large as; "other" when it is
            larger than any; "" when it failed or nothing is known.
        levels: what these roundings do to this model; None when they were not tried.
        option: what turns reduced precision off on this provider ("INFERENCE_PRECISION_HINT=f32"); "" when there is
            none, or nothing to turn off.
        confirmed: whether the error was gone with that option; None when it was not tried.
        failure: why it did not run; "" when it did.
    """

    provider: str
    ok: bool
    error: float | None
    precision: str
    levels: PrecisionLevels | None = None
    option: str = ""
    confirmed: bool | None = None
    failure: str = ""

    @property
    def reduced(self) -> bool:
        """Whether the provider computes in less precision than the model declares."""
        return self.precision in ("tf32 or float16", "tf32", "float16", "bfloat16")

    @property
    def summary(self) -> str:
        """In a sentence."""
        if self.failure:
            return f"{self.provider}: does not run: {self.failure}"
        verdict = "within tolerance" if self.ok else "outside the tolerance"
        error = "" if self.error is None else f" (relative error {self.error:.1e})"
        if not self.reduced:
            why = "" if self.ok or self.precision != "other" else ": more than rounding in float32 explains"
            return f"{self.provider}: {verdict}{error}{why}"
        line = (
            f"{self.provider}: {verdict}{error}: it computes in {self.precision}, which is less than the model declares"
        )
        if not self.option:
            return line
        name = self.provider + ("," if ":" in self.provider else ":") + self.option
        proof = {
            True: ", and the error is gone with it",
            False: ", but the error stays: the model amplifies any rounding on these inputs",
            None: "",
        }[self.confirmed]
        return f"{line}; {name} turns that off{proof}"
