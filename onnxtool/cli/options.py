"""The options that several commands share: one name, one help text, one definition."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from onnxtool.cli import completion as complete


class Effort(StrEnum):
    """How long inputs are sought on which two models differ."""

    quick = "quick"
    normal = "normal"
    thorough = "thorough"


ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="The .onnx file.", show_default=False)]
OutputOption = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="OUT.onnx",
        help="The file to write; replaced as a whole.",
        show_default=False,
    ),
]
InputShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input-shape",
        autocompletion=complete.input_names,
        metavar="NAME:DIMS",
        help="Shape of an input, such as image:1,3,224,224; a word (image:batch,3,224,224) makes a dim dynamic. "
        "Repeatable; the name may be left out when there is one input.",
        show_default=False,
    ),
]
FactoryOption = Annotated[
    str | None,
    typer.Option(
        "--factory",
        metavar="PLACE:NAME",
        help="What builds the model: file.py:function or package.module:Class. Its code is run.",
        show_default=False,
    ),
]
FactoryArgOption = Annotated[
    list[str] | None,
    typer.Option(
        "--factory-arg",
        metavar="NAME=VALUE",
        help="An argument for the factory: a number, true, a list, or else text. Repeatable.",
        show_default=False,
    ),
]
PythonPathOption = Annotated[
    list[Path] | None,
    typer.Option("--pythonpath", metavar="DIR", help="Folder with the model's code. Repeatable.", show_default=False),
]
InputDtypeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input-dtype",
        autocompletion=complete.input_names,
        metavar="NAME:DTYPE",
        help="Dtype of an input, such as ids:int64.",
        show_default=False,
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="Inputs: .npz, .npy, .csv, a picture, a folder of .npy files or pictures, or file.py:GENERATOR.",
        show_default=False,
    ),
]
ImageOption = Annotated[
    str,
    typer.Option(
        "--image",
        metavar="OPTIONS",
        show_default=False,
        help="How pictures become tensors: resize=256,crop=224,mean=0.485/0.456/0.406,std=0.229/0.224/0.225,"
        "scale=255,layout=nchw,order=rgb. Pixels are divided by scale; the rest as the model has it.",
    ),
]
ProviderOption = Annotated[
    list[str] | None,
    typer.Option(
        "--provider",
        autocompletion=complete.providers,
        metavar="NAME[:KEY=VALUE,...]",
        help="Execution provider with its options (or :@FILE.json). Repeatable, in order of priority.",
        show_default=False,
    ),
]
EpLibraryOption = Annotated[
    list[str] | None,
    typer.Option(
        "--ep-library",
        metavar="FILE|PACKAGE",
        help="Plugin execution provider to load; this runs its code. Repeatable.",
        show_default=False,
    ),
]
RequireProviderOption = Annotated[
    bool, typer.Option("--require-provider", help="Exit 1 when a node does not run on the provider asked for.")
]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Threads of the runtime; all cores unless given.", show_default=False),
]
RtolOption = Annotated[float, typer.Option("--rtol", min=0.0, help="Tolerance for floats, relative to each element.")]
AtolOption = Annotated[float, typer.Option("--atol", min=0.0, help="Tolerance for floats, relative to their column.")]
EffortOption = Annotated[
    Effort, typer.Option("--effort", help="How long inputs are sought on which the two models differ.")
]
StrictOption = Annotated[bool, typer.Option("--strict", help="Exit 1 where no input reached some branch.")]
KeepCounterexampleOption = Annotated[
    Path | None,
    typer.Option(
        "--keep-counterexample",
        metavar="FILE.npz",
        help="Keep an input that shows a difference here.",
        show_default=False,
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of random inputs.")]
CustomOpOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--custom-op-library",
        metavar="FILE",
        show_default=False,
        help="Shared library with custom operators (or onnxruntime-extensions); loading it runs its code. Repeatable.",
    ),
]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Load formats that can run code (pickle). Only for files you trust.")
]
JsonOption = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="[FILE.json|-]",
        help="Write the report as JSON to a file, or to stdout (-).",
        show_default=False,
    ),
]
JunitOption = Annotated[
    Path | None,
    typer.Option("--junit", metavar="FILE.xml", help="Write a JUnit report for CI systems.", show_default=False),
]
SarifOption = Annotated[
    Path | None,
    typer.Option("--sarif", metavar="FILE.sarif", help="Write the findings as SARIF 2.1.0.", show_default=False),
]
MarkdownOption = Annotated[
    Path | None,
    typer.Option("--markdown", metavar="FILE.md", help="Write a summary in Markdown.", show_default=False),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE.html", help="Write the report as one HTML page.", show_default=False),
]
ReportOption = Annotated[
    list[str] | None,
    typer.Option(
        "--report",
        metavar="FORMAT=FILE",
        help="Write the report in a form that another package brings (or html, junit, markdown, sarif). Repeatable.",
        show_default=False,
    ),
]
VerboseOption = Annotated[
    int,
    typer.Option("--verbose", "-v", count=True, help="More detail, and tracebacks on errors.", show_default=False),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No output for people, only errors.")]
