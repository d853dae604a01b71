"""The options that several commands share: one name, one help text, one declaration."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal, get_args

from onnxtool.options.option import INPUT, OUTPUT, PROOF, REPORTS, SELDOM, SPEED, shared

# One size of a dim: a number, a name that says that it is dynamic, or nothing known.
Dim = int | str | None
# How long inputs are sought on which two models differ.
Effort = Literal["quick", "normal", "thorough"]
# The least verdict with which two models count as equal.
Required = Literal["tested", "certified"]
Decimal = Literal[".", ","]
# Kinds of processors that --target names, in every command that has it.
TARGETS = ("avx2", "avx512", "vnni", "amx", "arm64", "generic")
DEFAULT_THREADS = 1  # one thread is the least noisy measure, and what services with many workers run

MODEL = shared(MISSING, "The .onnx file.", argument=True, metavar="MODEL")
WRITTEN = shared(
    MISSING, "The file to write; replaced as a whole.", "--output", "-o", metavar="OUT.onnx", group=OUTPUT, step=False
)
INPUT_SHAPE = shared(
    (),
    "Shape of an input, such as image:1,3,224,224; a word (image:batch,3,224,224) makes a dim dynamic. "
    "Repeatable; the name may be left out when there is one input.",
    "--input-shape",
    metavar="NAME:DIMS",
    complete="input_names",
    group=INPUT,
)
INPUT_DTYPE = shared(
    {},
    "Dtype of an input, such as ids:int64.",
    "--input-dtype",
    kind="dtypes",
    metavar="NAME:DTYPE",
    complete="input_names",
    group=INPUT,
)
FACTORY = shared(
    None,
    "What builds the model: file.py:function or package.module:Class. Its code is run.",
    metavar="PLACE:NAME",
    role="code",
    group=INPUT,
)
FACTORY_ARG = shared(
    {},
    "An argument for the factory: a number, true, a list, or else text. Repeatable.",
    "--factory-arg",
    kind="arguments",
    metavar="NAME=VALUE",
    group=INPUT,
)
PYTHON_PATH = shared(
    (), "Folder with the model's code. Repeatable.", "--pythonpath", metavar="DIR", role="folders", group=SELDOM
)
TRUST = shared(False, "Load formats that can run code (pickle). Only for files you trust.", group=INPUT)
DATA = shared(
    None,
    "Inputs: .npz, .npy, a table (.csv, .tsv, .jsonl, .parquet, .feather), a picture, a folder of .npy files or "
    "pictures, or file.py:GENERATOR.",
    kind="path",
    metavar="PATH",
    role="data",
    group=INPUT,
)
IMAGES = shared(
    "",
    "How pictures become tensors: resize=256,crop=224,mean=0.485/0.456/0.406,std=0.229/0.224/0.225,"
    "scale=255,layout=nchw,order=rgb. Pixels are divided by scale; the rest as the model has it.",
    "--image",
    metavar="OPTIONS",
    group=INPUT,
)
DECIMAL = shared(
    ".",
    "What stands before the decimals in a .csv or .tsv table.",
    choices=get_args(Decimal),
    metavar=".|,",
    group=INPUT,
)
PROVIDER = shared(
    (),
    "Execution provider with its options (or :@FILE.json). Repeatable, in order of priority.",
    metavar="NAME[:KEY=VALUE,...]",
    complete="providers",
    group=SPEED,
    place=80,
)
EP_LIBRARY = shared(
    (),
    "Plugin execution provider to load; this runs its code. Repeatable.",
    metavar="FILE|PACKAGE",
    group=SELDOM,
    place=81,
)
REQUIRE_PROVIDER = shared(False, "Exit 1 when a node does not run on the provider asked for.", group=SPEED, place=82)
THREADS = shared(None, "Threads of the runtime; all cores unless given.", low=1, group=SPEED, place=83)
CUSTOM_OPS = shared(
    (),
    "Shared library with custom operators (or onnxruntime-extensions); loading it runs its code. Repeatable.",
    "--custom-op-library",
    metavar="FILE",
    role="files",
    group=SELDOM,
    place=84,
)
RTOL = shared(1e-3, "Tolerance for floats, relative to each element.", low=0.0, group=PROOF)
ATOL = shared(1e-5, "Tolerance for floats, relative to their column.", low=0.0, group=PROOF)
EFFORT = shared(
    "normal",
    "How long inputs are sought on which the two models differ.",
    kind="choice",
    choices=get_args(Effort),
    group=PROOF,
)
REQUIRE = shared(
    "tested",
    "certified: exit 1 unless exact arithmetic shows the same real function.",
    kind="choice",
    choices=get_args(Required),
    group=PROOF,
)
STRICT = shared(False, "Exit 1 where no input reached some branch.", group=PROOF)
KEEP_COUNTEREXAMPLE = shared(
    None, "Keep an input that shows a difference here.", kind="path", metavar="FILE.npz", step=False, group=PROOF
)
SEED = shared(0, "Seed of random inputs.", low=0, group=SELDOM)
REPORT_FILES = shared(
    (),
    "Write the report in a form that another package brings (or html, junit, markdown, sarif). Repeatable.",
    "--report",
    metavar="FORMAT=FILE",
    group=REPORTS,
    place=90,
)
JUNIT = shared(None, "Write a JUnit report for CI systems.", metavar="FILE.xml", group=REPORTS, place=92)
SARIF = shared(None, "Write the findings as SARIF 2.1.0.", metavar="FILE.sarif", group=REPORTS, place=93)
MARKDOWN = shared(None, "Write a summary in Markdown.", metavar="FILE.md", group=REPORTS, place=94)
HTML = shared(None, "Write the report as one HTML page.", metavar="FILE.html", group=REPORTS, place=95)
_JSON = shared(
    None, "Write the report as JSON to a file, or to stdout (-).", metavar="[FILE.json|-]", group=REPORTS, place=91
)
VERBOSE = shared(0, "More detail, and tracebacks on errors.", "--verbose", "-v", kind="count", group=REPORTS, place=96)
_QUIET = shared(False, "No output for people, only errors.", "--quiet", "-q", group=REPORTS, place=97)


@dataclass(frozen=True)
class Shown:
    """What every command takes: how its report is shown."""

    json: str | None = _JSON()
    verbose: int = VERBOSE()
    quiet: bool = _QUIET()


@dataclass(frozen=True)
class Providers:
    """Which execution providers run a model."""

    provider: tuple[str, ...] = PROVIDER()
    ep_library: tuple[str, ...] = EP_LIBRARY()


@dataclass(frozen=True)
class Runtime(Providers):
    """How a model is run."""

    threads: int | None = THREADS()
    custom_op_library: tuple[Path, ...] = CUSTOM_OPS()


@dataclass(frozen=True)
class Tolerances:
    """How far floats may be apart."""

    rtol: float = RTOL()
    atol: float = ATOL()
