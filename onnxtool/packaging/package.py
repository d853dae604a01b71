"""`package`: a model into folders that run it, each started and compared with the file before it appears."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from onnxtool import progress
from onnxtool.equality.compare_runners import compare_runners, make_feeds
from onnxtool.equality.golden import record
from onnxtool.equality.reference import reference_of_file
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import InputError, ResourceError, UnsupportedError, UsageError, VerdictError
from onnxtool.generation.bundle import is_bundle, staged_folder
from onnxtool.generation.bundle import record as record_provenance
from onnxtool.model import io
from onnxtool.model.file import ModelFile
from onnxtool.model.io.in_memory import ModelLike, as_path, takes_models
from onnxtool.model.provenance.metadata import versions
from onnxtool.options.package import WebOptions
from onnxtool.packaging.kind import PackageKind, Subject, filled, measure_figures
from onnxtool.packaging.manifest import (
    Manifest,
    describe_package,
    package_name,
    verify_output,
    write_manifest,
    write_sbom,
)
from onnxtool.packaging.registry import BUILT_IN, find_kind
from onnxtool.report.package import PackageProof, PackageReport, WrittenPackage
from onnxtool.runtime.protocol_v2.tensors import tensor_metadata
from onnxtool.runtime.runner import OnnxRunner, closing
from onnxtool.runtime.session.extensions import is_extensions
from onnxtool.runtime.session.session import DEFAULT, SessionOptions

_PINNED = (
    *("fastapi", "numpy", "onnxruntime", "prometheus-client", "uvicorn", "httptools", "uvloop", "orjson"),
    *("onnx", "mlflow", "mlflow-skinny", "pandas", "pillow", "onnxruntime-extensions"),
)


@takes_models("model")
def package(
    model: ModelLike,
    output: str | os.PathLike[str],
    *,
    kinds: Sequence[str],
    name: str | None = None,
    data: str | os.PathLike[str] | Mapping[str, np.ndarray] | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    seed: int = 0,
    web: WebOptions = WebOptions(),  # noqa: B008  (frozen)
    fresh: bool = False,
    options: SessionOptions = DEFAULT,
) -> PackageReport:
    """Write a folder for each kind; with several kinds each is a folder in `output`.

    Args:
        model: an .onnx file, a model in memory, or a bundle ("fastapi" alone).
        output: the folder to write; packages that are there are replaced.
        kinds: "fastapi" and so on, see `registry`.
        name: of the model in the packages; the file's own unless given.
        data: inputs for the proof and the golden files; seeded random ones unless given.
        rtol, atol: of the proof, see docs/equality.md.
        seed: of the random inputs.
        web: what "web" takes.
        fresh: start servers in a fresh virtual environment, which installs their requirements.
        options: how the file is run.

    Raises:
        VerdictError: a package gives other answers than the file; nothing of it is written.
        InputError, UnsupportedError, UsageError: the model, the data or the options cannot be used.
    """
    path, place = as_path(model), Path(output)
    if is_bundle(path):
        from onnxtool.packaging.bundle_package import package_bundle

        return package_bundle(path, place, kinds=kinds, name=name, fresh=fresh)
    chosen = [find_kind(k) for k in dict.fromkeys(kinds)]
    if not chosen:
        raise UsageError("package takes --for KIND.")
    for kind in chosen:
        _verify_libraries(kind, options)
    folders = [place if len(chosen) == 1 else place / k.name for k in chosen]
    for folder in folders:
        verify_output(folder)
    file = ModelFile(path)
    file.verify()
    if file.old_opset:
        raise UnsupportedError(f"{file.age} A package takes it once it is written so: onnxtool edit --opset 17.")
    with progress.task("packaging", len(chosen) + 1) as task:
        subject = _subject(path, name, data, seed, web, fresh, options)
        task.advance()
        place.mkdir(parents=True, exist_ok=True)
        written: list[WrittenPackage] = []
        for kind, folder in zip(chosen, folders, strict=True):
            written.append(_write(kind, folder, subject, Tolerance(rtol, atol), data, seed))
            task.advance()
    return PackageReport(
        model=str(path),
        packages=tuple(written),
        workers=subject.figures.workers,
        threads=subject.figures.threads,
        warnings=tuple(
            f"{w.kind}: not tested; {w.proof.started.how}. This tests it where it runs: {w.commands[-1]}"
            for w in written
            if not w.proof.started.complete
        ),
    )


def _verify_libraries(kind: PackageKind, options: SessionOptions) -> None:
    for library in options.custom_op_libraries:
        if not is_extensions(library):
            raise UsageError(
                f"--custom-op-library {library}: a package takes onnxruntime-extensions and no other library."
            )
        if not kind.carries_extensions:
            takers = ", ".join(n for n in BUILT_IN if find_kind(n).carries_extensions)
            raise UnsupportedError(f"--for {kind.name} cannot carry onnxruntime-extensions; {takers} can.")


def _subject(
    path: Path,
    name: str | None,
    data: str | os.PathLike[str] | Mapping[str, np.ndarray] | None,
    seed: int,
    web: WebOptions,
    fresh: bool,
    options: SessionOptions,
) -> Subject:
    runner = OnnxRunner.open(path, options)
    tensor_metadata((*runner.inputs, *runner.outputs))
    given = make_feeds(runner, (path,), data=data, seed=seed)
    called = package_name(path, name)
    return Subject(
        path=path,
        name=called,
        inputs=runner.inputs,
        outputs=runner.outputs,
        feeds=given.feeds,
        figures=measure_figures(path, given.feeds[0], options),
        versions=versions(*_PINNED),
        web=web,
        fresh=fresh,
        options=options,
    )


def _write(
    kind: PackageKind,
    folder: Path,
    subject: Subject,
    tolerance: Tolerance,
    data: str | os.PathLike[str] | Mapping[str, np.ndarray] | None,
    seed: int,
) -> WrittenPackage:
    with staged_folder(folder) as staged:
        place = kind.model_path(subject.name)
        (staged / place).parent.mkdir(parents=True, exist_ok=True)
        io.copy_model(subject.path, staged / place)
        described = (tensor_metadata(subject.inputs), tensor_metadata(subject.outputs))
        write_manifest(staged, Manifest(kind.name, subject.name, place, *described))
        kind.write(staged, subject)
        record(subject.path, staged / "golden", data=data, seed=seed, options=subject.options)
        (staged / "README.md").write_text(_readme(kind, subject), encoding="utf-8")
        write_sbom(staged, place)
        proof = _prove(kind, staged, subject, tolerance)
        if not proof.equal:
            worst = next((d for d in proof.outputs if not d.ok), None)
            if worst is None:
                raise VerdictError(f"--for {kind.name}: no output could be compared; nothing was written. Give --data.")
            raise VerdictError(
                f"--for {kind.name}: gives other answers than {subject.path}: {worst.name!r} "
                f"{worst.note or f'is off by up to {worst.max_abs:.3g}'}; nothing was written."
            )
        made = describe_package(staged, folder, kind.name, proof, kind.commands)
        report = PackageReport(str(subject.path), (made,), subject.figures.workers, subject.figures.threads)
        record_provenance(staged, f"package --for {kind.name}", subject.path, report)
    return made


def _prove(kind: PackageKind, staged: Path, subject: Subject, tolerance: Tolerance) -> PackageProof:
    options = subject.options
    try:
        runner, started = kind.start(staged, subject)
        with closing(runner):
            report = compare_runners(
                reference_of_file(subject.path, OnnxRunner.open(subject.path, options), options),
                runner,
                subject.feeds,
                tolerance,
                names=(str(subject.path), kind.name),
            )
    except (InputError, ResourceError) as error:
        raise type(error)(f"--for {kind.name}: {error}") from error
    return PackageProof(started, len(subject.feeds), report.outputs, report.ok, report.verdict)


def _readme(kind: PackageKind, subject: Subject) -> str:
    rows = [
        f"| {what} | `{s.info()}` |"
        for what, specs in (("input", subject.inputs), ("output", subject.outputs))
        for s in specs
    ]
    note = kind.note(subject)
    values = {
        "NAME": subject.name,
        "TITLE": kind.title,
        "COMMANDS": "\n".join(f"    {c}" for c in kind.commands),
        "TENSORS": "\n".join(rows),
        "NOTE": f"{note}\n" if note else "",
    }
    return filled("every/README.md", values)
