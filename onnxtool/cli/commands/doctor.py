"""`onnxtool doctor`."""

from __future__ import annotations

from onnxtool.cli.output import Output
from onnxtool.options.doctor import DoctorCommand


def command(asked: DoctorCommand, out: Output) -> None:
    """Show versions, execution providers, extras and the CPU's int8 features.

    Exit 0 when everything that the base install needs is there, 1 when not. Missing extras are no failure.
    """
    from onnxtool.runtime.doctor import doctor

    if asked.measure is not None:
        from onnxtool.quantization.kernel_table import measure_kernels

        measure_kernels(asked.measure)
    out.emit(doctor())
