"""Tokenizers and chat templates of strangers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from onnxtool.errors import InputError
from onnxtool.generation.tokenizer import BundleTokenizer, render_chat

CHAT = [{"role": "user", "content": "Hello"}]


def test_a_tokenizer_that_is_none_is_one_line(bundle: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(bundle, tmp_path / "copy")
    (copy / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {"a": 99999999999}, "merges": []}}')
    with pytest.raises(InputError, match="not a tokenizer"):
        BundleTokenizer(copy)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{% include '/etc/passwd' %}",
        "{{ messages.append(1) }}",
        "{% for a in range(99999999) %}x{% endfor %}",
        "{{ 'x' * 999 ",
        "{{ raise_exception('no') }}",
    ],
)
def test_a_hostile_chat_template_is_one_line(template: str) -> None:
    with pytest.raises(InputError, match="chat template"):
        render_chat(template, CHAT, True, {}, "bundle")


def test_a_chat_template_that_never_stops_writing_is_ended() -> None:
    template = "{% for a in range(99999) %}{% for b in range(99999) %}{{ 'x' * 99999 }}{% endfor %}{% endfor %}"
    with pytest.raises(InputError, match="more than 16 MB"):
        render_chat(template, CHAT, True, {}, "bundle")


def test_a_chat_is_rendered_as_transformers_does(bundle: Path) -> None:
    assert BundleTokenizer(bundle).chat(CHAT) == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
