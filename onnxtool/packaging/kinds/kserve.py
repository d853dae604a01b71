"""`--for kserve`: an InferenceService with a container that speaks the V2 protocol."""

from __future__ import annotations

from onnxtool.packaging.kind import Subject
from onnxtool.packaging.kinds.fastapi import FastApi


class KServe(FastApi):
    """The application of `fastapi` as KServe's predictor."""

    name = "kserve"
    title = "a KServe InferenceService (Open Inference Protocol V2)"
    commands = (
        "docker build -t IMAGE . && docker push IMAGE    # IMAGE goes into inference-service.yaml",
        "kubectl apply -f inference-service.yaml && python smoke_test.py http://ADDRESS",
    )
    places = ("kserve/inference-service.yaml",)

    def note(self, subject: Subject) -> str:
        """Why a container of its own."""
        return (
            f"The container speaks the protocol itself, on port 8000, with {subject.figures.threads} threads a run as "
            "measured:\nKServe's own runtimes for ONNX are Triton's (see `package --for triton`).\n"
        )
