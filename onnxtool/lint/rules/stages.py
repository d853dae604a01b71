"""Rules of the four stages: specification (OT0xx) and runtime (OT1xx)."""

from __future__ import annotations

from onnxtool.lint.rule import LintRule
from onnxtool.report.check import Severity

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE

RULES = (
    LintRule(
        "OT001",
        _E,
        "breaks the ONNX specification",
        "The ONNX project's own checker refuses the model: a missing field, an unknown operator, a wrong attribute, "
        "nodes that are not in topological order.",
        "Export the model again, with a newer exporter or another opset.",
    ),
    LintRule(
        "OT002",
        _E,
        "shapes or types contradict each other",
        "Strict shape inference finds a tensor whose declared type or shape cannot come out of the node that makes it.",
        "Export the model again; a tool that rewrote the graph may have left stale shapes behind.",
    ),
    LintRule(
        "OT003",
        _N,
        "shapes could not be followed through a standard operator",
        "Some standard operators are defined by a small graph of others, and strict inference fails inside that graph. "
        "The model is not to blame.",
        "Nothing to do.",
    ),
    LintRule(
        "OT101",
        _E,
        "the runtime cannot load the model",
        "ONNX Runtime finds the model invalid.",
        "Export the model again, or report the message to the tool that wrote the file.",
    ),
    LintRule(
        "OT102",
        _W,
        "the runtime lacks an operator",
        "The model is valid ONNX, but the embedded ONNX Runtime has no kernel for an operator, its opset or its type.",
        "Convert with an older --opset, or use a newer onnxruntime.",
    ),
    LintRule(
        "OT103",
        _E,
        "custom operators without their library",
        "Operators outside the standard domains only run with the library that brings them.",
        "Name the library with --custom-op-library FILE.",
    ),
    LintRule(
        "OT104",
        _E,
        "an operator set that the runtime does not know",
        "The model is written for a newer operator set than this ONNX Runtime was built with, which refuses to load it "
        "whatever operators are in it.",
        "Convert with an older --opset (edit --opset N rewrites a model), or use a newer onnxruntime.",
    ),
    LintRule(
        "OT111",
        _E,
        "fails on the given data",
        "The model loads, but a node fails on the data given with --data.",
        "Look at the node that the message names, and at the shapes of the data.",
    ),
    LintRule(
        "OT112",
        _W,
        "fails on random inputs",
        "The model loads, but a node fails on random inputs of every size that was tried. Models that need special "
        "values (lengths that fit, sorted indices) do so without being wrong.",
        "Check it with real inputs: --data FILE.npz.",
    ),
    LintRule(
        "OT113",
        _W,
        "an output holds only NaN or infinities",
        "Random inputs drive the output out of range altogether; damaged weights or a float16 overflow do that.",
        "Look for the first such tensor with real inputs; check the weights (OT401).",
    ),
    LintRule(
        "OT114",
        _E,
        "fails on every input",
        "The model takes float tensors of fixed size only, and still a node fails: no data can make it run.",
        "Look at the node that the message names: its shapes do not fit together.",
    ),
    LintRule(
        "OT115",
        _E,
        "a declared output shape is not true",
        "The model runs, but an output has another rank, or another size where the file gives a number. Who allocates "
        "by the declared shape fails, and the runtime may let tensors share memory that are of other sizes.",
        "Declare the shape that the output has: onnxtool edit --set-shape, or export the model again.",
    ),
    LintRule(
        "OT116",
        _W,
        "nodes do not run on the provider asked for",
        "The model runs, but the provider given with --provider does not take these nodes, and the runtime runs them "
        "elsewhere without a word; data may be copied to and fro. --require-provider makes this an error.",
        "See onnxtool inspect --placement for the whole picture; the reason names what would be taken.",
    ),
)
