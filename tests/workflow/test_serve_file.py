"""serve.toml: options of a server and of each of its models."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from onnxtool.errors import UsageError
from onnxtool.options.serve import ServeCommand
from onnxtool.workflow.serve_file import read_serve_file, serve_schema

SCHEMA = Path(__file__).parents[2] / "docs" / "serve.schema.json"
FILE = """
port = 9000
max-request = "1MB"
token-file = "tokens"
workers = 2
[models.digits]
path = "digits.onnx"
workers = "auto"
batching = "auto"
max-delay = 0.005
timeout = 5
[models."digits:2"]
path = "/elsewhere/digits"
provider = "cpu"
"""


def written(folder: Path, text: str) -> Path:
    (folder / "serve.toml").write_text(text)
    return folder / "serve.toml"


def test_each_model_has_options_of_its_own(tmp_path: Path) -> None:
    path = written(tmp_path, FILE)
    server, models = read_serve_file(path, ServeCommand(models=(str(path),), port=0, threads=3))
    first, second = f"digits={tmp_path / 'digits.onnx'}", "digits:2=/elsewhere/digits"
    assert server.models == (first, second) and list(models) == [first, second]
    assert server.request_bytes == 1_000_000 and server.token_file == tmp_path / "tokens" and server.threads == 3
    assert (server.workers, models[first].workers, models[second].workers) == (2, None, 2)
    assert (models[first].max_delay, models[first].run_seconds, models[first].batching) == (0.005, 5, "auto")
    assert (models[second].max_delay, models[second].run_seconds, models[second].batching) == (0, 60, "off")
    assert models[second].provider == ("cpu",)
    assert read_serve_file(path, ServeCommand(models=(str(path),), port=7))[0].port == 7  # what is typed comes first


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("port = 1", "no model in it"),
        ("prot = 1", "did you mean 'port'"),
        ("port = 70000\n[models.a]\npath = 'x'", "must be from 0 to 65535"),
        ("[models.a]\nworkers = 2", "models.a: has no path"),
        ("[models.a]\npath = 'x'\nport = 1", "models.a: unknown key 'port'"),
        ("[models.a]\npath = 'x'\nworkers = 'many'", "must be auto, or a whole number"),
        ("[models.a]\npath = 'x'\nworkers = true", "must be a text or a number"),
        ("[models.a]\npath = 'x'\nbatching = 'on'", "one of auto, off"),
        ("[models.a]\npath = 'x'\nmax-queue = 0", "must be from 1 up"),
        ("[models.a]\npath = 3", "must be a text"),
        ("models = 3", "must be a table"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        read_serve_file(written(tmp_path, text), ServeCommand(models=("serve.toml",)))


def test_the_schema_is_up_to_date_and_takes_the_example() -> None:
    import tomllib

    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == serve_schema(), (
        "run: python -m onnxtool.workflow.serve_file docs/serve.schema.json"
    )
    jsonschema.validate(tomllib.loads(FILE), serve_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"models": {"a": {"path": "x", "port": 1}}}, serve_schema())
