"""`--for kserve`: an InferenceService with a container that speaks the V2 protocol."""

from __future__ import annotations

from pathlib import Path

from onnxtool.packaging.kind import Subject, filled
from onnxtool.packaging.kinds.fastapi import FastApi, slug


class KServe(FastApi):
    """The application of `fastapi` as KServe's predictor."""

    name = "kserve"
    title = "a KServe InferenceService (Open Inference Protocol V2)"
    commands = (
        "docker build -t IMAGE . && docker push IMAGE    # IMAGE goes into inference-service.yaml",
        "kubectl apply -f inference-service.yaml && python smoke_test.py http://ADDRESS",
    )

    def write(self, folder: Path, subject: Subject) -> None:
        """The application, its image, and the InferenceService in place of a Deployment."""
        super().write(folder, subject)
        for name in ("kubernetes.yaml", "compose.yaml"):
            (folder / name).unlink()
        figures = subject.figures
        values = {
            "SLUG": slug(subject.name),
            "THREADS": figures.threads,
            "RUNS": figures.runs,
            "CORES": figures.cores,
            "MEMORY": figures.memory_mb,
        }
        text = filled("kserve/inference-service.yaml", values)
        (folder / "inference-service.yaml").write_text(text, encoding="utf-8")

    def note(self, subject: Subject) -> str:
        """Why a container of its own."""
        return (
            f"The container speaks the protocol itself, on port 8000, with {subject.figures.threads} threads a run as "
            "measured:\nKServe's own runtimes for ONNX are Triton's (see `package --for triton`).\n"
        )
