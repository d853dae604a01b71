"""Text to tokens and back, and chats to text, with a bundle's own files; nothing in them is run outside a sandbox."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.errors import InputError, needs_extra, one_line
from onnxtool.generation.bundle import TOKENIZER
from onnxtool.model.json_file import read_json
from onnxtool.runtime.worker.isolation import guarded

_MAX_TOKENIZER = 512 << 20
_MAX_TEMPLATE = 1 << 20
_MAX_RENDERED = 1 << 24

Message = Mapping[str, str]


@contextmanager
def _panics_told(what: str) -> Iterator[None]:
    """Errors of the library are faults of its file; its Rust code panics with an exception beside Exception."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as error:
        raise InputError(f"{what} ({one_line(error, 200)}).") from error


class BundleTokenizer:
    """The tokenizer of a folder: tokenizer.json and, for chats, its template."""

    def __init__(self, folder: Path) -> None:
        """Read the files.

        Raises:
            InputError: missing, or not a tokenizer.
            MissingExtraError: the package tokenizers is not installed.
        """
        with needs_extra(str(folder), "tokenizers", "generation"):
            import tokenizers
        path = folder / TOKENIZER
        if not path.is_file():
            raise InputError(f"{path}: no such file; a bundle needs its tokenizer.")
        if path.stat().st_size > _MAX_TOKENIZER:
            raise InputError(f"{path}: larger than 512 MB, which no tokenizer is.")
        with _panics_told(f"{path}: not a tokenizer"), guarded("reading the tokenizer", path.stat().st_size):
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        self.folder = folder
        settings = folder / "tokenizer_config.json"
        self._settings = read_json(settings) if settings.is_file() else {}

    def encode(self, text: str, *, special: bool = True) -> np.ndarray:
        """Token ids, int64 [tokens]; with the tokens that the tokenizer puts around a text when `special`.

        Raises:
            InputError: the tokenizer fails on this text.
        """
        with _panics_told(f"{self.folder / TOKENIZER}: fails on this text"):
            return np.asarray(self._tokenizer.encode(text, add_special_tokens=special).ids, np.int64)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of token ids, without special ones.

        Raises:
            InputError: the tokenizer fails on these tokens.
        """
        with _panics_told(f"{self.folder / TOKENIZER}: fails on these tokens"):
            return str(self._tokenizer.decode([int(t) for t in tokens], skip_special_tokens=True))

    def token(self, index: int) -> str | None:
        """The text that the vocabulary has for a token."""
        found = self._tokenizer.id_to_token(int(index))
        return None if found is None else str(found)

    @property
    def chat_template(self) -> str | None:
        """The template that turns a chat into a text; None where the folder has none."""
        path = self.folder / "chat_template.jinja"
        if path.is_file():
            if path.stat().st_size > _MAX_TEMPLATE:
                raise InputError(f"{path}: larger than 1 MB, which no chat template is.")
            return path.read_text(encoding="utf-8", errors="replace")
        found = self._settings.get("chat_template")
        if isinstance(found, list):
            named = {e.get("name"): e.get("template") for e in found if isinstance(e, dict)}
            found = named.get("default")
        return found if isinstance(found, str) else None

    def chat(self, messages: Sequence[Message], *, answer: bool = True) -> str:
        """The text of a chat.

        Args:
            messages: {"role": "user", "content": "..."} and so on.
            answer: end where the model's answer begins.

        Raises:
            InputError: no template, or one that fails, does what the sandbox forbids, or gives more than 16 MB.
        """
        template = self.chat_template
        if template is None:
            raise InputError(f"{self.folder}: has no chat template; give --prompt TEXT.")
        return render_chat(template, messages, answer, self._special_tokens(), str(self.folder))

    def _special_tokens(self) -> dict[str, str]:
        names = ("bos_token", "eos_token", "pad_token", "unk_token")
        found = {}
        for name in names:
            value = self._settings.get(name)
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str):
                found[name] = value
        return found


def render_chat(
    template: str, messages: Sequence[Message], answer: bool, variables: Mapping[str, str], where: str
) -> str:
    """Render a chat template in jinja's sandbox, which has neither attributes of Python's nor files.

    Raises:
        InputError: it fails, does what the sandbox forbids, or gives more than 16 MB.
        MissingExtraError: jinja2 is not installed.
    """
    with needs_extra(where, "jinja2", "generation"):
        import jinja2
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(str(message))

    environment: Any = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = _now
    parts: list[str] = []
    length = 0
    try:
        with guarded("rendering the chat template"):
            compiled = environment.from_string(template)
            chat = [dict(m) for m in messages]
            for part in compiled.generate(messages=chat, add_generation_prompt=answer, tools=None, **variables):
                parts.append(part)
                length += len(part)
                if length > _MAX_RENDERED:
                    raise InputError(f"{where}: its chat template gives more than 16 MB of text.")
    except InputError:
        raise
    except MemoryError:
        raise
    except Exception as error:
        line = one_line(error, 200)
        raise InputError(f"{where}: its chat template fails ({type(error).__name__}: {line}).") from error
    return "".join(parts)


def _json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _now(form: str) -> str:
    from datetime import datetime

    return datetime.now().strftime(form)
