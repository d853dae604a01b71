"""Scripts of the examples find a command `onnxtool` that is forked from a process with its libraries.

One of them takes the command that is installed.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import command_server

# Sends what it was called with, and shows what comes back.
_SCRIPT = """#!{python} -IS
import json, os, socket, sys
asked = socket.socket(socket.AF_UNIX)
asked.connect({place!r})
with asked.makefile("rw", encoding="utf-8") as line:
    print(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]), file=line, flush=True)
    code, out, err = json.loads(line.readline())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""


@pytest.fixture(scope="session")
def tool_path() -> Iterator[str]:
    """PATH with that command first, and this environment's programs behind it."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/socket")
        server.listen()
        script = Path(folder) / "onnxtool"
        script.write_text(_SCRIPT.format(python=sys.executable, place=f"{folder}/socket"), encoding="utf-8")
        script.chmod(0o755)
        threading.Thread(target=_answer, args=(server,), daemon=True).start()
        yield os.pathsep.join([folder, str(Path(sys.executable).parent), os.environ["PATH"]])
        server.shutdown(socket.SHUT_RDWR)


def _answer(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:  # it was shut down
            return
        with connection, connection.makefile("rw", encoding="utf-8") as line:
            words, folder, environment = json.loads(line.readline())
            kind = command_server.kind_for(words)
            done = command_server.run(words, Path(folder), kind=kind, environment=environment, quick=True)
            print(json.dumps([done.code, done.stdout, done.stderr]), file=line, flush=True)
