"""Text at the input, held against the tokenizers library."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxtool.errors import InputError, UnsupportedError, UsageError
from onnxtool.runtime.session.extensions import extensions_library
from tests.editing.conftest import Editor

tokenizers = pytest.importorskip("tokenizers")
if find_spec("onnxruntime_extensions") is None:  # importing it changes the environment
    pytest.skip("onnxruntime-extensions is not installed", allow_module_level=True)

MODEL = """
g (int64[batch, length] input_ids, int64[batch, length] attention_mask) => (int64[batch, length] y) {
    y = Mul(input_ids, attention_mask)
}
"""
CORPUS = [
    "Hello world the quick brown fox jumps over lazy dog leading and double spaces naive cafe unicode new line",
    "don't I'm you're we'll 1 2 3 4 5 6 7 8 9 0 . ! , + / = - ? & : https example org a b c d",
]


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small byte-level BPE tokenizer."""
    from tokenizers import models, pre_tokenizers, trainers

    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator(CORPUS, trainer)
    folder = tmp_path_factory.mktemp("bpe")
    made.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def word_piece(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small WordPiece tokenizer, as BERT's."""
    from tokenizers import models, normalizers, pre_tokenizers, processors

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(c) for c in range(33, 127) if not chr(c).isupper())]
    words += [f"##{w}" for w in words[5:] if w.isalnum()] + ["hello", "world", "日", "本", "語"]
    vocabulary = {w: i for i, w in enumerate(words)}
    made = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    folder = tmp_path_factory.mktemp("word-piece")
    made.save(str(folder / "tokenizer.json"))
    return folder


def _ids(made: Any, text: str) -> list[int]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(extensions_library("a test")))
    session = onnxruntime.InferenceSession(made.output, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {"text": np.array([text], dtype=object)})[0].ravel())


@pytest.mark.parametrize("kind", ["byte_level", "word_piece"])
def test_text_goes_in_and_ids_are_those_of_the_library(
    edited: Editor, kind: str, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(kind)
    made = edited(MODEL, f"tokenizer={folder}")
    assert [str(i).partition("[")[0] for i in made.report.inputs] == ["text: string"]
    proof = made.report.steps[0].proof
    assert proof is not None and "tokenized as by the tokenizers library" in proof.claim
    assert any("--custom-op-library onnxruntime-extensions" in w for w in made.report.warnings)
    reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in ("Hello, wörld!", "some other text 12"):
        assert _ids(made, text) == reference.encode(text).ids


def test_a_tokenizer_that_its_operator_reads_otherwise_is_refused(
    edited: Editor, byte_level: Path, tmp_path: Path
) -> None:
    table = json.loads((byte_level / "tokenizer.json").read_text())
    table["normalizer"] = {"type": "Lowercase"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(table))
    with pytest.raises(UnsupportedError, match="onnxruntime-extensions tokenizes 'Hello world'"):
        edited(MODEL, f"tokenizer={tmp_path}")


def test_what_cannot_be_done_is_said(edited: Editor, byte_level: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no tokenizer\.json"):
        edited(MODEL, f"tokenizer={tmp_path / 'nothing'}")
    (tmp_path / "broken.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"this is not a tokenizer\.json"):
        edited(MODEL, f"tokenizer={tmp_path / 'broken.json'}")
    (tmp_path / "unigram.json").write_text('{"model": {"type": "Unigram", "vocab": [["a", 0.5]]}}')
    with pytest.raises(UnsupportedError, match="Unigram has no operator"):
        edited(MODEL, f"tokenizer={tmp_path / 'unigram.json'}")
    with pytest.raises(UsageError, match="has no input input_ids; it has x"):
        edited("g (float[n] x) => (float[n] y) { y = Identity(x) }", f"tokenizer={byte_level}")
    third = MODEL.replace("attention_mask)", "attention_mask, int64[batch, length] token_type_ids)", 1)
    with pytest.raises(UnsupportedError, match="gives no token_type_ids"):
        edited(third, f"tokenizer={byte_level}")
