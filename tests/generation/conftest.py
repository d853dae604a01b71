"""One small model and its bundle for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("onnxruntime_genai")

from onnxtool.generation.convert import convert_text_model
from onnxtool.report.bundle.convert import BundleReport
from tests.generation import tiny


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama in bfloat16, in several shards with an index, with tied embeddings."""
    return tiny.llama(tmp_path_factory.mktemp("llama"), dtype="bfloat16", shard="60KB")


@pytest.fixture(scope="session")
def converted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> BundleReport:
    """The report of converting `folder`."""
    return convert_text_model(folder, tmp_path_factory.mktemp("bundles") / "llama")


@pytest.fixture(scope="session")
def bundle(converted: BundleReport) -> Path:
    """The bundle made of `folder`."""
    return Path(converted.output)
