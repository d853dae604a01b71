"""Text at the input: a tokenizer inside the model, by the operators of onnxruntime-extensions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.editing.graph_builder import Builder, free_name
from onnxtool.editing.operation import Operation
from onnxtool.editing.proofs import compare
from onnxtool.errors import InputError, UnsupportedError, UsageError, VerdictError, needs_extra
from onnxtool.model.ir.queries import value_spec
from onnxtool.report.edit import Proof
from onnxtool.runtime.feeds import flatten
from onnxtool.runtime.session.extensions import TEXTS

_ROLES = ("input_ids", "attention_mask", "token_type_ids")
_LARGEST = 1 << 28  # bytes of a tokenizer.json
# What tokenizers most often differ in: accents, other scripts, emoji, contractions, white space, numbers, nothing.
_PROBES = (
    "Hello world",
    "The quick brown fox, jumps over the lazy dog!",
    "",
    " leading and  double  spaces ",
    "naïve café – Ünïcödé",
    "日本語 テスト",
    "emoji \U0001f642\U0001f680",
    "don't I'm you're WE'LL",
    "1234567.89 + 3/4 = 2021-12-31",
    "\n\nnew\tline",
    "a" * 300,
    "https://example.org/a?b=c&d",
)


class Tokenize(Operation):
    """Take text: the model tokenizes it to input_ids, attention_mask, token_type_ids; needs a custom-op library."""

    name: ClassVar[str] = "tokenizer"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._file = Path(text) / "tokenizer.json" if Path(text).is_dir() else Path(text)
        self._text = ""
        self._made: dict[str, str] = {}

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        described = _read(self._file)
        context.use_extensions(f"--{self.name}")
        replaced = {
            role: value
            for value in model.graph.inputs
            for role in _ROLES
            if (value.name or "").rpartition(".")[2] == role and value.name not in model.graph.initializers
        }
        if "input_ids" not in replaced:
            names = ", ".join(v.name or "" for v in model.graph.inputs)
            raise UsageError(f"--{self.name}: the model has no input input_ids; it has {names}.")
        build = Builder(model, "tokenizer")
        self._text = free_name(model, "text")
        single = described["model"]["type"] == "WordPiece"
        batch = replaced["input_ids"].shape[0] if replaced["input_ids"].shape else None
        if single and isinstance(batch, int) and batch != 1:
            raise UnsupportedError(f"the tokenizer takes one text at a time, and input_ids has a batch of {batch}.")
        text = ir.Value(
            name=self._text,
            type=ir.TensorType(ir.DataType.STRING),
            shape=ir.Shape([1 if single or isinstance(batch, int) else "batch"]),
        )
        made = _word_piece(build, text, described) if single else _byte_level(build, text, described)
        unmade = [r for r in replaced if r not in made]
        if unmade:
            raise UnsupportedError(
                f"this tokenizer gives no {', '.join(unmade)}; remove it: --remove-input NAME=VALUE."
            )
        kept = [v for v in model.graph.inputs if v not in replaced.values()]
        model.graph.inputs[:] = [text, *kept]
        for role, old in replaced.items():
            new = made[role]
            wanted = old.dtype or ir.DataType.INT64
            if wanted != ir.DataType.INT64:
                new = build.add("Cast", [new], f"{role}_cast", {"to": int(wanted)}, wanted)
            new.type, new.shape = old.type, old.shape
            self._made[role] = new.name or ""
            ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        build.at_start()
        model.opset_imports[TEXTS] = 1
        self.done = (
            f"{self._text} is tokenized in the model, in place of {', '.join(v.name or '' for v in replaced.values())}"
        )
        return model

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        with needs_extra(f"--{self.name}", "tokenizers", "extensions"):
            from tokenizers import Tokenizer
        reference = Tokenizer.from_file(str(self._file))
        reference.no_padding()
        reference.no_truncation()
        watched = after.clone()
        inner = {v.name: v for n in watched.graph for v in n.outputs}
        watched.graph.outputs.extend(inner[name] for name in self._made.values())
        eye, old = context.runner(watched), context.runner(before)
        specs = {v.name or "": value_spec(v) for v in before.graph.inputs}
        others = [n for n in specs if n.rpartition(".")[2] not in self._made]
        if others:
            raise UnsupportedError(f"the proof cannot make values for the other inputs ({', '.join(others)}).")
        cases, tried = [], 0
        for text in _PROBES:
            feeds = {self._text: np.array([text], dtype=object)}
            encoded = reference.encode(text)
            wanted = {
                "input_ids": encoded.ids,
                "attention_mask": encoded.attention_mask,
                "token_type_ids": encoded.type_ids,
            }
            if not encoded.ids:
                continue
            try:
                seen = eye.run(feeds)
            except InputError:
                if len(encoded.ids) > 64:  # longer than the model's positions
                    continue
                raise
            for role, name in self._made.items():
                got = np.asarray(seen[name]).ravel().tolist()
                if got != wanted[role]:
                    raise UnsupportedError(
                        f"onnxruntime-extensions tokenizes {text[:30]!r} to {got[:8]}, and {self._file.name} to "
                        f"{wanted[role][:8]} ({role})."
                    )
            tried += 1
            own = {n: np.asarray([wanted[n.rpartition(".")[2]]], s.dtype) for n, s in specs.items()}
            cases.append((feeds, flatten(old.run(own))))
        if not cases:
            raise VerdictError("the proof has no text that the model takes.")
        claim = f"{tried} texts are tokenized as by the tokenizers library, and the model gives for them what it gave"
        return compare(after, cases, context, claim, exact=False)


def _read(file: Path) -> dict[str, Any]:
    """A tokenizer.json of the tokenizers library, of a kind that the operators know."""
    if not file.is_file():
        raise InputError(f"{file}: there is no tokenizer.json.")
    try:
        if file.stat().st_size > _LARGEST:
            raise InputError(f"{file}: is too large for a tokenizer.")
        described: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        kind, vocabulary = described["model"]["type"], described["model"]["vocab"]
        if not isinstance(vocabulary, dict) or not all(isinstance(i, int) for i in vocabulary.values()):
            raise UnsupportedError(f"{file.name}: a tokenizer of the kind {kind} has no operator here.")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{file}: this is not a tokenizer.json ({type(error).__name__}).") from error
    if kind != "WordPiece" and not (kind == "BPE" and '"ByteLevel"' in json.dumps(described.get("pre_tokenizer"))):
        raise UnsupportedError(
            f"{file.name}: a tokenizer of the kind {kind} has no operator here; WordPiece and byte-level BPE do."
        )
    return described


def _word_piece(build: Builder, text: ir.Value, described: Mapping[str, Any]) -> dict[str, ir.Value]:
    """BertTokenizer of onnxruntime-extensions: one text; the ids come without a batch."""
    vocabulary = sorted(described["model"]["vocab"].items(), key=lambda item: item[1])
    if [number for _, number in vocabulary] != list(range(len(vocabulary))):
        raise UnsupportedError("the ids of the vocabulary have gaps, which its operator cannot have.")
    normal = described.get("normalizer") or {}
    lower = bool(normal.get("lowercase"))
    strip = normal.get("strip_accents")
    attributes = {
        "vocab_file": "\n".join(word for word, _ in vocabulary),
        "do_lower_case": int(lower),
        "strip_accents": int(lower if strip is None else bool(strip)),
    }
    bases = ("flat_ids", "flat_types", "flat_mask")
    flat = build.add_many("BertTokenizer", [text], bases, attributes, ir.DataType.INT64, domain=TEXTS)
    first = build.constant([0], "first", np.int64)
    roles = ("input_ids", "token_type_ids", "attention_mask")
    return {
        role: build.add("Unsqueeze", [value, first], role, None, ir.DataType.INT64)
        for role, value in zip(roles, flat, strict=True)
    }


def _byte_level(build: Builder, text: ir.Value, described: Mapping[str, Any]) -> dict[str, ir.Value]:
    """GPT2Tokenizer of onnxruntime-extensions: a batch of texts, filled up with zeros that the mask leaves out."""
    merges = (m if isinstance(m, str) else " ".join(m) for m in described["model"]["merges"])
    attributes = {
        "vocab": json.dumps(described["model"]["vocab"], ensure_ascii=False),
        "merges": "\n".join(merges),
        "padding_length": -1,
    }
    bases = ("input_ids", "attention_mask")
    made = build.add_many("GPT2Tokenizer", [text], bases, attributes, ir.DataType.INT64, domain=TEXTS)
    return dict(zip(bases, made, strict=True))
