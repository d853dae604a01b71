"""One small model and its bundle for all tests of this folder."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import pytest

pytest.importorskip("transformers")
pytest.importorskip("onnxruntime_genai")

from onnxtool.generation import builders
from onnxtool.generation.convert import convert_text_model
from onnxtool.report.bundle.convert import BundleReport
from tests.command_server import Lasting
from tests.generation import tiny
from tests.warm_process import translations_read_once


@pytest.fixture(scope="session", autouse=True)
def builders_have_their_libraries() -> Iterator[None]:
    """A builder starts in a process that has imported torch and transformers; that of `bundle` in a new one."""

    def start(command: list[str], *, stdout: BinaryIO, cwd: str, env: Mapping[str, str], **_: object) -> Lasting:
        assert command[1] == "-m", command
        return Lasting(command[1:], "builders", folder=Path(cwd), environment=env, log=Path(stdout.name))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builders, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": start}))
        yield


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
        patch.setattr(builders, "subprocess", subprocess)
        return convert_text_model(folder, tmp_path_factory.mktemp("bundles") / "llama")


@pytest.fixture(scope="session")
def bundle(converted: BundleReport) -> Path:
    """The bundle made of `folder`."""
    return Path(converted.output)
