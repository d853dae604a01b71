"""One small model and its bundle for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("onnxruntime_genai")

from onnxtool.generation import builders
from onnxtool.generation.convert import convert_text_model
from onnxtool.report.bundle.convert import BundleReport
from onnxtool.runtime.worker.tasks import start_python
from tests.generation import tiny
from tests.warm_process import translations_read_once


@pytest.fixture(scope="session", autouse=True)
def builders_have_their_libraries(warm_builders: None) -> None:
    """All but that of `bundle`, which is a new process."""


@pytest.fixture(scope="session", autouse=True)
def one_translation_table() -> None:
    """Translations are read once for all exports."""
    translations_read_once()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama in bfloat16, in several shards with an index, with tied embeddings."""
    return tiny.llama(tmp_path_factory.mktemp("llama"), dtype="bfloat16", shard="60KB")


@pytest.fixture(scope="session")
def converted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> BundleReport:
    """The report of converting `folder`; its builder is a new process, as for users."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builders, "start_python", start_python)
        return convert_text_model(folder, tmp_path_factory.mktemp("bundles") / "llama")


@pytest.fixture(scope="session")
def bundle(converted: BundleReport) -> Path:
    """The bundle made of `folder`."""
    return Path(converted.output)
