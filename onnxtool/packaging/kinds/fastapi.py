"""`--for fastapi`: an HTTP endpoint in one readable file, with what Docker and Kubernetes take."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from onnxtool.errors import MissingExtraError
from onnxtool.model.provenance.metadata import versions
from onnxtool.model.spec import shared_dims
from onnxtool.packaging.kind import MODEL, Figures, PackageKind, Subject, constants, filled, write_smoke_test
from onnxtool.packaging.manifest import read_manifest
from onnxtool.packaging.protocol_module import write_protocol
from onnxtool.packaging.server_process import ServerRunner, free_port, interpreter
from onnxtool.report.package import Started
from onnxtool.runtime.input_kinds import picture_layout, table_columns, takes_image, takes_table
from onnxtool.runtime.protocol_v2.tensors import tensor_metadata
from onnxtool.runtime.runner import Runner

PACKAGES = ("fastapi", "numpy", "onnxruntime", "prometheus-client", "uvicorn", "httptools", "uvloop", "orjson")

_PROTOCOL = (
    *("HEADER_LENGTH", "decode_request", "element_type", "encode_response", "runtime_datatype"),
    *("check_shared_dims", "decode_plain", "form_file", "from_lists", "to_lists", "dumps", "loads"),
)


class FastApi(PackageKind):
    """A FastAPI application: V2 protocol with binary tensors, /predict, health, metrics, limits."""

    name = "fastapi"
    title = "an HTTP endpoint (FastAPI, Open Inference Protocol V2)"
    commands = ("pip install -r requirements.txt && uvicorn app:app", "python smoke_test.py http://127.0.0.1:8000")
    carries_extensions = True
    places: ClassVar[tuple[str, ...]] = ("fastapi/compose.yaml", "fastapi/kubernetes.yaml")

    def write(self, folder: Path, subject: Subject) -> None:
        """The application and its surroundings."""
        write_application(folder, subject)
        write_container(folder, subject.name, subject.figures, f"app.py protocol.py {MODEL}*", self.places)
        (folder / ".dockerignore").write_text(
            "*\n!app.py\n!protocol.py\n!requirements.txt\n!model.onnx*\n", encoding="utf-8"
        )

    def start(self, folder: Path, subject: Subject | None) -> tuple[Runner, Started]:
        """Uvicorn on a free port."""
        command, port, words = application_command(folder, fresh=subject is not None and subject.fresh)
        runner = ServerRunner(command, folder, port, read_manifest(folder).model_name)
        return runner, Started(f"uvicorn in {words}")

    def note(self, subject: Subject) -> str:
        """What was measured."""
        f = subject.figures
        return (
            f"Settings measured on a machine with {f.cores} cores: {f.workers} worker{'s' * (f.workers > 1)}, "
            f"{f.threads} thread{'s' * (f.threads > 1)} a run, {f.runs} run{'s' * (f.runs > 1)} at a time "
            f"({1e3 * f.latency:.2f} ms each). They are the environment variables THREADS and RUNS, and --workers.\n\n"
            "With Docker: `docker compose up --build`. With Kubernetes: push the image, name it in `kubernetes.yaml`, "
            "`kubectl apply -f kubernetes.yaml`.\n"
        )


def slug(name: str) -> str:
    """A name that images and Kubernetes take."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:50] or "model"


def write_container(folder: Path, name: str, figures: Figures, files: str, places: Sequence[str]) -> None:
    """What Docker and Kubernetes take.

    Args:
        folder: of the package.
        name: of the model.
        figures: settings of the application.
        files: of the folder that go into the image.
        places: templates of descriptions for where it runs.
    """
    values = {
        "SLUG": slug(name),
        "PYTHON": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "FILES": files,
        "THREADS": figures.threads,
        "RUNS": figures.runs,
        "WORKERS": figures.workers,
        "CORES": figures.cores,
        "MEMORY": figures.memory_mb,
    }
    for template in ("fastapi/Dockerfile", *places):
        (folder / template.rpartition("/")[2]).write_text(filled(template, values), encoding="utf-8")


def write_application(folder: Path, subject: Subject) -> None:
    """app.py, protocol.py, smoke_test.py and requirements.txt.

    Raises:
        UnsupportedError: the model has inputs or outputs that are no tensors of the protocol.
    """
    tensor_metadata((*subject.inputs, *subject.outputs))
    shown = repr(subject.name).replace("'", '"')
    threads = f'int(os.environ.get("THREADS", "{subject.figures.threads}"))  # of one run, measured'
    pictures = takes_image(subject.inputs)
    layout = f"{picture_layout(subject.inputs[0])!r}  # axis of the channels, and what Pillow calls them  # [image]"
    labels = {s.name: s.columns for s in subject.outputs if s.columns}
    files = f'"{"image/*" if pictures else "text/csv"}"  # what a file in a form is, where its own type does not tell'
    values = {"NAME": shown, "THREADS": threads, "FILES": files, "PICTURE": layout, "LABELS": repr(labels)}
    values |= checks(subject)
    kept = {"image": pictures, "table": takes_table(subject.inputs), "extensions": subject.takes_extensions}
    app = kept_blocks(constants("fastapi/app.py", values), kept)
    write_protocol(folder, (*_PROTOCOL, *["decode_picture"] * pictures))
    app = app.replace('os.environ.get("RUNS", "2")', f'os.environ.get("RUNS", "{subject.figures.runs}")')
    (folder / "app.py").write_text(app, encoding="utf-8")
    write_smoke_test(folder, "fastapi/smoke_test.py", {"NAME": shown})
    write_requirements(folder, subject, (*PACKAGES, *["pillow"] * pictures))


def checks(subject: Subject) -> dict[str, str]:
    """Constants of a program that says which inputs a model takes."""
    shared = shared_dims(subject.inputs)
    return {
        "SHARED": f"{shared!r}  # dims that several inputs must agree in: inputs and axes",
        "COLUMNS": f"{table_columns(subject.inputs)!r}  # of a table: the columns of each input",
        "TAKES_EMPTY": f"{subject.takes_empty()}  # whether inputs without elements were tried and did no harm",
    }


def kept_blocks(text: str, wanted: Mapping[str, bool]) -> str:
    """A program without the blocks and lines that are marked for what is not wanted, and without the marks.

    Args:
        text: blocks stand between "# [name]" and "# [/name]"; a line ends in "# [name]" or "# [name or name]".
        wanted: by name.
    """
    lines, dropped = [], False
    for line in text.splitlines():
        mark = re.search(r"\s*# \[(/?)([a-z ]+)\]$", line)
        if mark is None:
            if not dropped:
                lines.append(line)
            continue
        keep = any(wanted[name] for name in mark[2].split(" or "))
        if line.strip().startswith("#"):
            dropped = not keep and not mark[1]
        elif keep and not dropped:
            lines.append(line[: mark.start()])
    return "\n".join(lines) + "\n"


def write_conda(folder: Path, name: str, python: str, pinned: Sequence[str]) -> None:
    """conda.yaml, as MLflow and Azure read it; JSON is YAML too, so that names need no other quoting."""
    dependencies = [f"python={python}", "pip", {"pip": list(pinned)}]
    conda = {"name": name, "channels": ["conda-forge"], "dependencies": dependencies}
    (folder / "conda.yaml").write_text(json.dumps(conda, indent=2) + "\n", encoding="utf-8")


def write_requirements(folder: Path, subject: Subject, packages: tuple[str, ...]) -> None:
    """Pinned to the versions that the proof ran with."""
    packages += ("onnxruntime-extensions",) * subject.takes_extensions
    lines = [f"{p}=={subject.versions[p]}" for p in packages if p in subject.versions]
    (folder / "requirements.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def application_command(folder: Path, fresh: bool) -> tuple[list[str], int, str]:
    """What starts the app.py of a folder, the port it will listen on, and in words which interpreter that is.

    Raises:
        MissingExtraError: fastapi is not installed here, and no fresh environment was asked for.
    """
    if not fresh:
        for needed in ("fastapi", "uvicorn", "prometheus-client", "orjson"):
            if not versions(needed):
                raise MissingExtraError("package", needed, "serve")
    python, words = interpreter(folder, fresh)
    port = free_port()
    # -I: neither the caller's variables nor the present folder bring modules in; only the application's own folder.
    command = [python, "-I", "-B", "-m", "uvicorn", "app:app", "--app-dir", ".", "--port", str(port)]
    return command, port, words
