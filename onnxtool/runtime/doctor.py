"""`doctor`: what is installed, what the machine can do, what follows from that."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires, version

from onnxtool.errors import one_line
from onnxtool.report.doctor import CpuFeature, DoctorReport, Extra, ProviderInfo
from onnxtool.runtime import cpu

_BASE = ("onnx", "onnx-ir", "onnxscript", "numpy", "onnxruntime", "typer", "rich")
DISTRIBUTION = "onnxtool-cli"
EXTRAS = (
    *("pytorch", "transformers", "generation", "keras", "jax", "sklearn", "boosting", "images", "openvino", "serve"),
    *("grpc", "tracing", "paddle", "tables", "view", "dask", "ray", "remote", "signing", "extensions"),
)
# Other distributions that bring the same module: any of them satisfies the requirement.
_SAME = {
    "onnxruntime": ("onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml"),
    "tensorflow": ("tensorflow-cpu", "tensorflow-intel"),
    "tensorflow-cpu": ("tensorflow", "tensorflow-intel"),
    "xgboost": ("xgboost-cpu",),
    "xgboost-cpu": ("xgboost",),
}


def doctor() -> DoctorReport:
    """Look at the installation and the machine. Reads only; imports no framework."""
    packages = {name: installed(name) for name in _BASE}
    problems = [f"{name} is missing: pip install {name}" for name, found in packages.items() if found is None]
    providers: tuple[str, ...] = ()
    try:
        import onnxruntime

        providers = tuple(onnxruntime.get_available_providers())
    except Exception as error:
        problems.append(f"onnxruntime cannot be imported: {one_line(error)}")
    features = cpu.features()
    return DoctorReport(
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.release()} {platform.machine()}",
        packages=packages,
        providers=providers,
        max_opset=_max_opset(),
        extras=tuple(_extra(name) for name in EXTRAS),
        cpu=cpu.model_name(),
        cores=cpu.usable_cores(),
        memory_bytes=cpu.physical_memory(),
        features=features,
        advice=tuple(advice(features)),
        problems=tuple(problems),
        available=_providers() if providers else (),
    )


def _providers() -> tuple[ProviderInfo, ...]:
    from onnxtool.runtime.providers.trial import survey

    return survey()


def installed(distribution: str) -> str | None:
    """Version of a distribution, or of one that stands in for it; None when there is none."""
    for name in (distribution, *_SAME.get(distribution, ())):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def advice(features: Iterable[CpuFeature]) -> list[str]:
    """What the instruction sets mean for quantization, in sentences."""
    present = {f.name for f in features if f.present}
    known = [f for f in features if f.present is not None]
    if not known:
        return ["This system does not tell the processor's features; measure int8 with: onnxtool bench"]
    if present & {"AVX512-VNNI", "AVX-VNNI", "AMX-INT8"}:
        return ["int8 pays here: use uint8 activations and int8 weights (the default of quantize)."]
    if present & {"DOTPROD", "I8MM"}:
        return ["int8 pays here: int8 activations and int8 weights."]
    return ["This processor has no int8 dot product: int8 makes files smaller, but may not make them faster. Measure."]


def _max_opset() -> int | None:
    """The newest opset of the standard domain that the installed onnx package knows."""
    try:
        from onnx.defs import onnx_opset_version

        return int(onnx_opset_version())
    except Exception:
        return None


def _extra(name: str) -> Extra:
    needed = _requirements(name)
    versions = {package: found for package in needed if (found := installed(package)) is not None}
    missing = tuple(p for p in needed if p not in versions)
    return Extra(
        name, not missing, versions, missing, f'pip install ".[{name}]"  # in a clone of onnxtool' if missing else ""
    )


def _requirements(extra: str) -> list[str]:
    """Distributions that an extra brings on this platform, extras of ours resolved."""
    from packaging.requirements import Requirement  # ONNX Runtime and onnx_ir need the package too

    names: list[str] = []
    for text in _declared():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}) or not marker.evaluate({"extra": extra}):
            continue
        if requirement.name == DISTRIBUTION:
            names += [n for nested in requirement.extras for n in _requirements(nested) if n not in names]
        elif requirement.name not in names:
            names.append(requirement.name)
    return names


def _declared() -> list[str]:
    try:
        return requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []
