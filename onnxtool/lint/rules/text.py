"""Rules on names, metadata and declared sizes: security (OT6xx) and metadata (OT7xx)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import onnx

from onnxtool.lint.rule import LintRule
from onnxtool.model.model_view import ModelView
from onnxtool.model.provenance.metadata import DIGEST_KEY, HISTORY_KEY, read_history
from onnxtool.report.check import Finding, Severity

_W, _N = Severity.WARNING, Severity.NOTE
_ABSURD = 1 << 40
# Home folders and drives: what tells a stranger who built the model and where.
_LOCAL_PATH = re.compile(
    r"(?:/(?:home|Users|root|mnt|workspace)/[\w.\-]+|[A-Za-z]:\\(?:Users\\)?[\w.\- ]+)[\w./\\\- ]*"
)
_TRACE = re.compile(r'File "[^"\n]+", line \d+')
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
_LICENCE = re.compile(r"licen[cs]e", re.IGNORECASE)

LOCAL_PATH = LintRule(
    "OT601",
    _N,
    "a path of the machine that built the model",
    "Published models tell user names and folder structures this way.",
    "Strip doc strings and metadata before publishing.",
)
TRACE = LintRule(
    "OT602",
    _N,
    "stack traces in the model",
    "PyTorch's exporter stores the Python stack of every node: file names and lines of your source code.",
    "Strip the nodes' metadata before publishing.",
)
CONTROL = LintRule(
    "OT603",
    _W,
    "control characters in a name",
    "Escape sequences and invisible characters can mislead whoever reads a log or a terminal.",
    "Do not trust the file's origin; rename the tensors.",
)
ABSURD = LintRule(
    "OT604",
    _W,
    "an absurd dim",
    "A declared size that no machine holds is a way to exhaust memory.",
    "Do not trust the file's origin.",
)
EXTERNAL = LintRule(
    "OT605",
    _N,
    "weights in other files",
    "The model is whole only together with its external data files; checksums of the .onnx file do not cover them.",
    "Ship them together.",
)
NO_PRODUCER = LintRule(
    "OT701",
    _N,
    "no producer",
    "Without it nobody can tell which tool and version wrote the file.",
    "Set producer_name when exporting.",
)
NO_LICENCE = LintRule(
    "OT702",
    _N,
    "no licence in the metadata",
    "Whoever gets the file does not know whether it may be used.",
    "Add a `license` entry to the model's metadata_props.",
)
NO_HISTORY = LintRule(
    "OT703",
    _N,
    "no provenance",
    "Nothing in the file says which source it was made of, and how.",
    "Files written by onnxtool carry their history.",
)
RULES = (LOCAL_PATH, TRACE, CONTROL, ABSURD, EXTERNAL, NO_PRODUCER, NO_LICENCE, NO_HISTORY)


def security(view: ModelView) -> Iterator[Finding]:
    """Local paths, stack traces, control characters, absurd dims, external data."""
    paths: dict[str, str] = {}
    traces: list[str] = []
    for where, text in _texts(view):
        if _TRACE.search(text):
            traces.append(where)
        elif found := _LOCAL_PATH.search(text):
            paths.setdefault(found[0][:120], where)
    if traces:
        yield TRACE.finding(f"{len(traces)} places hold a Python stack", traces[0])
    for path, where in list(paths.items())[:5]:
        yield LOCAL_PATH.finding(f"holds {path}", where)
    for name in _names(view):
        if _CONTROL.search(name):
            yield CONTROL.finding("the name has control or invisible characters", name[:80])
    for spec in (*view.header.inputs, *view.header.outputs):
        fixed = [d for d in spec.shape or () if isinstance(d, int)]
        if any(d < 0 for d in fixed) or math.prod(max(d, 1) for d in fixed) > _ABSURD:
            yield ABSURD.finding(f"the declared shape is {list(spec.shape or ())}", spec.name)
    external = sum(t.data_location == onnx.TensorProto.EXTERNAL for t in view.proto.graph.initializer)
    if external:
        yield EXTERNAL.finding(f"{external} weights are external data")


def metadata(view: ModelView) -> Iterator[Finding]:
    """Producer, licence, provenance."""
    if not view.header.producer.strip():
        yield NO_PRODUCER.finding("the file does not say what wrote it")
    if not any(_LICENCE.search(key) for key in view.header.metadata):
        yield NO_LICENCE.finding("the metadata names no licence")
    if not read_history(view.header.metadata):
        yield NO_HISTORY.finding("the metadata has no history of how the file was made")


def _texts(view: ModelView) -> Iterator[tuple[str, str]]:
    """(where, text) of everything that is written for people."""
    model = view.proto
    yield "doc_string of the model", model.doc_string
    yield "doc_string of the graph", model.graph.doc_string
    for entry in model.metadata_props:
        if entry.key not in (HISTORY_KEY, DIGEST_KEY):
            yield f"metadata {entry.key}", entry.value
    for node in view.nodes:
        if node.doc_string:
            yield f"doc_string of {node.name or node.op_type}", node.doc_string
        for entry in getattr(node, "metadata_props", ()):
            yield f"metadata {entry.key} of {node.name or node.op_type}", entry.value


def _names(view: ModelView) -> Iterator[str]:
    yield from (v.name for v in (*view.proto.graph.input, *view.proto.graph.output))
    yield from (t.name for t in view.proto.graph.initializer)
    for node in view.nodes:
        yield node.name
        yield node.op_type
        yield from node.output
    for entry in view.proto.metadata_props:
        yield entry.key
