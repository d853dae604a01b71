"""Running one step: from the options of the build file to the function of the command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxtool.errors import UsageError
from onnxtool.report.base import Report
from onnxtool.workflow.constraints import Constraints, byte_count
from onnxtool.workflow.step_options import EDIT_OPERATIONS

if TYPE_CHECKING:
    from onnxtool.equality.rule.tolerance import Tolerance
    from onnxtool.runtime.session.session import SessionOptions

Options = Mapping[str, Any]


def run_command(
    command: str, options: Options, source: str | None, reference: str | None, output: Path, limits: Constraints
) -> Report:
    """Run a step.

    Args:
        command: one of `step_options.STEPS`.
        options: by the names of the command's options; files by their paths here.
        source: the model before the step; None where a factory makes it.
        reference: for `compare` and `bench`: the model that the build began with, as an .onnx file.
        output: where the result goes, for commands that give a model.
        limits: what the search of `quantize` has to keep.

    Raises:
        OnnxToolError: as the command.
    """
    return _COMMANDS[command](dict(options), source, reference, output, limits)


def _convert(options: dict[str, Any], source: str | None, _r: str | None, output: Path, _l: Constraints) -> Report:
    from onnxtool.conversion.convert import convert
    from onnxtool.model.spec import parse_input_shapes

    renamed = {"factory_arg": "factory_args", "inputs": "frozen_inputs", "outputs": "frozen_outputs"}
    settings: dict[str, Any] = {}
    for name, value in options.items():
        field = name.replace("-", "_")
        settings[renamed.get(field, field)] = value
    for field in ("input_names", "output_names", "frozen_inputs", "frozen_outputs"):
        if field in settings:
            settings[field] = tuple(n.strip() for n in settings[field].split(",") if n.strip())
    shapes = parse_input_shapes(_texts(settings.pop("input_shape", ())))
    settings["input_shapes"] = {name or "": dims for name, dims in shapes.items()}
    dtypes = _texts(settings.pop("input_dtype", ()))
    settings["input_dtypes"] = {name: dtype for name, _, dtype in (t.rpartition(":") for t in dtypes)}
    settings["python_path"] = tuple(Path(p) for p in _texts(settings.pop("pythonpath", ())))
    settings["custom_op_libraries"] = tuple(Path(p) for p in _texts(settings.pop("custom_op_library", ())))
    plain = {k: settings.pop(k) for k in ("rtol", "atol") if k in settings}
    verify = not settings.pop("no_verify", False)
    return convert(source, output, verify_result=verify, reproducible=True, **plain, **settings)


def _optimize(options: dict[str, Any], source: str | None, _r: str | None, output: Path, _l: Constraints) -> Report:
    from onnxtool.model.spec import parse_input_shapes
    from onnxtool.optimization.optimize import optimize

    upgrade, downgrade = options.pop("upgrade-opset", None), options.pop("downgrade-opset", None)
    if upgrade is not None and downgrade is not None:
        raise UsageError("upgrade-opset and downgrade-opset exclude each other.")
    session = _session(options)
    measured = options.get("level") == "all" and not options.get("target")
    # The latency is in the report alone unless it chooses the fusions: a build measures it in `bench`.
    bench = measured and not options.pop("no-bench", False)
    options.pop("no-bench", None)
    return optimize(
        source or "",
        output,
        passes=_texts(options.pop("pass", ())),
        skip=_texts(options.pop("skip", ())),
        input_shapes=parse_input_shapes(_texts(options.pop("input-shape", ()))),
        max_folded_bytes=byte_count("max-folded-size", options.pop("max-folded-size", None)),
        opset=upgrade or downgrade,
        verify=not options.pop("no-verify", False),
        bench=bench,
        options=session,
        **_plain(options),
    )


def _quantize(options: dict[str, Any], source: str | None, _r: str | None, output: Path, limits: Constraints) -> Report:
    from onnxtool.quantization.quantize import quantize
    from onnxtool.quantization.result_limits import ResultLimits

    renamed = {"eval": "eval_data", "image": "images", "percentile": "coverage", "recipe": "recipe_file"}
    settings = {renamed.get(name, name.replace("-", "_")): value for name, value in options.items()}
    settings["op_types"] = _texts(settings.pop("op", ()))
    settings["states"] = _texts(settings.pop("state", ()))
    settings["output_kinds"] = _texts(settings.pop("output_kind", ()))
    settings["exclude"] = _texts(settings.pop("exclude", ()))
    settings["search_scale"] = not settings.pop("rtn", False)
    settings["options"] = _session({n: settings.pop(n.replace("-", "_"), ()) for n in ("provider", "ep-library")})
    wanted = None
    if limits.any_limit or limits.minimise != "latency":
        wanted = ResultLimits(limits.max_seconds, limits.max_ratio, limits.max_bytes, limits.minimise)
    return quantize(source or "", output, limits=wanted, **settings)


def _edit(options: dict[str, Any], source: str | None, _r: str | None, output: Path, _l: Constraints) -> Report:
    from onnxtool.editing.edit import edit

    operations: list[tuple[str, str]] = []
    for name in [n for n in options if n in EDIT_OPERATIONS]:  # in the order of the file
        value = options.pop(name)
        if isinstance(value, bool):
            operations += [(name, "")] if value else []
            continue
        for text in map(str, _texts(value)):
            operations.append((text.partition("=")[0], text.partition("=")[2]) if name == "operation" else (name, text))
    session = replace(_session(options), optimization="off")
    reference, pictures = options.pop("source", None), _texts(options.pop("data", ()))
    verify = not options.pop("no-verify", False)
    return edit(
        source or "",
        output,
        operations,
        verify=verify,
        reference=reference,
        pictures=pictures,
        options=session,
        **_plain(options),
    )


def _check(options: dict[str, Any], source: str | None, _r: str | None, _o: Path, _l: Constraints) -> Report:
    from onnxtool.lint.check import check
    from onnxtool.report.check import Severity

    session = _session(options)
    for name in ("select", "ignore"):
        options[name] = tuple(part for text in _texts(options.get(name, ())) for part in text.split(",") if part)
    if "fail-on" in options:
        try:
            options["fail-on"] = Severity(options["fail-on"])
        except ValueError:
            raise UsageError(f"fail-on {options['fail-on']}: must be error, warning or note.") from None
    return check(source or "", options=session, **_plain(options))


def _compare(options: dict[str, Any], source: str | None, reference: str | None, _o: Path, _l: Constraints) -> Report:
    from onnxtool.equality.compare import compare

    other = _texts(options.pop("provider-b", ()))
    session = _session(options, options.pop("opt-level", "all"))
    options_b = replace(session, provider=other) if other else None
    batches = _numbers("batch-sizes", options.pop("batch-sizes", None))
    tolerances = _tolerances(_texts(options.pop("tolerance", ())))
    quantized, images = options.pop("quantized", False), options.pop("image", "")
    report = compare(
        reference or "",
        source or "",
        images=images,
        options=session,
        batches=batches,
        tolerances=tolerances,
        options_b=options_b,
        **_plain(options),
    )
    if not quantized:
        return report
    from onnxtool.quantization.compare_quantized import judged_by_budget

    return judged_by_budget(report, reference or "", source or "", data=options.get("data"), images=images)


def _bench(options: dict[str, Any], source: str | None, reference: str | None, _o: Path, _l: Constraints) -> Report:
    from onnxtool.benchmark.bench import bench

    threads = _numbers("threads", options.pop("threads", None))
    batches = _numbers("batch", options.pop("batch", None))
    regression = float(str(options.pop("max-regression", "5%")).strip().removesuffix("%")) / 100
    profiled = options.pop("profile", False)
    session = _session(options)
    models = [source or ""] if reference in (None, source) else [reference or "", source or ""]
    return bench(
        models,
        batches=batches,
        threads=threads,
        profiled=profiled,
        max_regression=regression,
        options=session,
        **_plain(options),
    )


_COMMANDS: dict[str, Callable[[dict[str, Any], str | None, str | None, Path, Constraints], Report]] = {
    "convert": _convert,
    "optimize": _optimize,
    "quantize": _quantize,
    "edit": _edit,
    "check": _check,
    "compare": _compare,
    "bench": _bench,
}


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("-", "_"): value for name, value in options.items()}


def _session(options: dict[str, Any], optimization: Any = "all") -> SessionOptions:
    """Take the options of the runtime out, and make them one."""
    from onnxtool.runtime.session.session import SessionOptions

    return SessionOptions(
        _texts(options.pop("provider", ())),
        options.pop("threads", None),
        optimization,
        custom_op_libraries=tuple(Path(p) for p in _texts(options.pop("custom-op-library", ()))),
        ep_libraries=_texts(options.pop("ep-library", ())),
    )


def _texts(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, (str, int)) else tuple(value)


def _numbers(name: str, text: Any) -> tuple[int, ...]:
    parts = [p.strip() for p in str(text).split(",")] if text is not None else []
    if not all(p.isascii() and p.isdigit() and int(p) > 0 for p in parts):
        raise UsageError(f"{name} {text}: write whole numbers from 1 up, with commas between them.")
    return tuple(dict.fromkeys(map(int, parts)))


def _tolerances(texts: tuple[str, ...]) -> dict[str, Tolerance]:
    from onnxtool.equality.rule.tolerance import Tolerance

    found = {}
    for text in texts:
        name, _, numbers = text.rpartition(":")
        try:
            rtol, atol = (float(n) for n in numbers.split(","))
        except ValueError:
            raise UsageError(f"tolerance {text}: write NAME:rtol,atol, such as logits:1e-2,1e-4.") from None
        found[name] = Tolerance(rtol, atol, absolute=True)
    return found
