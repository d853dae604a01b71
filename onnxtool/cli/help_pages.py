"""The help page of a command: examples first, options in groups, nothing cut off at 80 columns.

Typer's own page is one list in a table, which cuts names and values that do not fit.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping, Sequence
from importlib import import_module

from onnxtool.cli.typer_options import options_class
from onnxtool.options.option import GROUPS, SELDOM, Option, options_of

EXAMPLES: Mapping[str, Sequence[str]] = {
    "convert": (
        "onnxtool convert net.pt --factory net.py:make --input-shape x:batch,3,224,224 -o net.onnx",
        "onnxtool convert model.keras -o model.onnx",
        "onnxtool convert forest.skops -o forest.onnx",
    ),
    "check": (
        "onnxtool check model.onnx",
        "onnxtool check models/ --fail-on warning --junit check.xml",
        "onnxtool check --explain OT301",
    ),
    "inspect": ("onnxtool inspect model.onnx", "onnxtool inspect model.onnx --input-shape x:1,3,224,224 --nodes"),
    "optimize": (
        "onnxtool optimize model.onnx -o fast.onnx",
        "onnxtool optimize model.onnx -o fast.onnx --level all",
        "onnxtool optimize model.onnx -o fixed.onnx --input-shape x:1,3,224,224",
    ),
    "edit": (
        "onnxtool edit model.onnx -o out.onnx --set-shape x:batch,3,224,224",
        "onnxtool edit model.onnx -o out.onnx --rename-input x=image --post softmax",
        "onnxtool edit model.onnx -o head.onnx --extract features:logits",
    ),
    "quantize": (
        "onnxtool quantize model.onnx -o small.onnx --data calib.npz",
        "onnxtool quantize model.onnx -o small.onnx --data calib.npz --eval eval.npz --labels label --max-drop 0.01",
        "onnxtool quantize model.onnx -o half.onnx --mode float16",
    ),
    "compare": (
        "onnxtool compare a.onnx b.onnx",
        "onnxtool compare a.onnx b.onnx --data eval.npz --layers",
        "onnxtool compare net.pt net.onnx --factory net.py:make",
    ),
    "certificate": ("onnxtool certificate a.onnx b.onnx", "onnxtool certificate a.onnx b.onnx -o certificate.json"),
    "diff": ("onnxtool diff before.onnx after.onnx",),
    "run": ("onnxtool run model.onnx", "onnxtool run model.onnx --data inputs.npz -o outputs.npz"),
    "bench": (
        "onnxtool bench model.onnx",
        "onnxtool bench before.onnx after.onnx --batch 1,8 --threads 1,2",
        "onnxtool bench model.onnx --profile --html bench.html",
        "onnxtool bench model.onnx --provider cpu --provider openvino --threads 1,2 --best",
    ),
    "package": (
        "onnxtool package model.onnx -o endpoint --for fastapi",
        "onnxtool package model.onnx -o out --for fastapi --for triton --for web --runtime-folder node_modules",
    ),
    "serve": (
        "onnxtool serve model.onnx",
        "onnxtool serve digits=cnn.onnx digits:2=cnn_int8.onnx --port 9000 --token-file tokens.txt",
        "onnxtool serve chat_bundle --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem",
    ),
    "view": ("onnxtool view model.onnx", "onnxtool view model.onnx --port 8080 --no-browser"),
    "verify": (
        "onnxtool verify model.onnx --source net.pt",
        "onnxtool verify model.onnx --source net.pt --replay",
        "onnxtool verify model.onnx --sign key.pem",
    ),
    "build": (
        "onnxtool build",
        "onnxtool build --check",
        "onnxtool build release.toml 'resnet*' tag:nightly --jobs 2 --html index.html",
    ),
    "init": ("onnxtool init model.pt other.onnx",),
    "cache": ("onnxtool cache size", "onnxtool cache prune --max-size 10GB --older-than 30d"),
    "doctor": ("onnxtool doctor",),
    "quickstart": ("onnxtool quickstart demo",),
}

_INDENT = 6
_WIDEST = 100


def page(name: str, width: int, *, everything: bool = False) -> str:
    """The help page of a command.

    Args:
        name: the command.
        width: columns of the terminal; no line is longer, unless a word is.
        everything: show the seldom used options too.
    """
    width = max(40, min(width, _WIDEST))
    lines = [usage(name), ""]
    for paragraph in paragraphs(name):
        lines += [*textwrap.wrap(paragraph, width), ""]
    if name in EXAMPLES:
        lines += ["Examples:", *(line for e in EXAMPLES[name] for line in _example(e, width)), ""]
    hidden = 0
    for group, members in entries(name):
        if group == SELDOM and not everything:
            hidden = len(members)
            continue
        lines += [f"{group}:", *(line for heading, text in members for line in _entry(heading, text, width)), ""]
    if hidden:
        lines.append(f"{hidden} more options: onnxtool {name} --help-all")
    return "\n".join(lines).rstrip() + "\n"


def usage(name: str) -> str:
    """The line that shows what has to be there."""
    declared = options_of(options_class(name))
    names = " ".join(_argument(field, o) for field, o in declared.items() if o.argument)
    required = " ".join(
        f"{min(o.flags, key=len)} {_metavar(o)}" for o in declared.values() if o.required and not o.argument
    )
    return " ".join(f"Usage: onnxtool {name} {names} {required} [options]".split())


def paragraphs(name: str) -> list[str]:
    """What the command does, a paragraph each."""
    text = inspect.getdoc(import_module(f"onnxtool.cli.commands.{name}").command) or ""
    return [" ".join(p.split()) for p in text.split("\n\n")]


def entries(name: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Group -> (heading, text) of its arguments or options, in the order in which they are shown."""
    declared = options_of(options_class(name))
    found = [("Arguments", [(_argument(field, o), o.help) for field, o in declared.items() if o.argument])]
    options = [o for o in declared.values() if not o.argument]
    found += [(group, [(_heading(o), _help(o)) for o in options if o.group == group]) for group in GROUPS]
    return [(group, members) for group, members in found if members]


def _argument(field: str, option: Option) -> str:
    name = (option.metavar or field).upper().strip("{}[]")
    text = f"{name}..." if option.several and not name.endswith("...") else name
    return text if option.required else f"[{text}]"


def _metavar(option: Option) -> str:
    """What stands for the value: the option's own word, never the name of a Python type; "" for a flag."""
    if option.kind in ("flag", "count"):
        return ""
    if option.metavar:
        return option.metavar
    if option.kind in ("integer", "number", "numbers"):
        return "N"
    return "FILE" if option.kind in ("path", "paths", "sample") else "NAME"


def _heading(option: Option) -> str:
    first, _, off = option.flags[0].partition("/")
    names = ", ".join(sorted((first, *option.flags[1:]), key=len))
    return f"{names}{' / ' + off if off else ''} {_metavar(option)}".rstrip()


def _help(option: Option) -> str:
    """The option's own text, its values and its default."""
    parts = [option.help]
    if option.kind == "choice":
        parts.append(f"One of {', '.join(option.choices)}.")
    default = option.written_default
    if option.kind == "flag":
        first, _, off = option.flags[0].partition("/")
        if off:
            parts.append(f"[default: {first if default else off}]")
    elif default is not None and option.kind != "count":
        parts.append(f"[default: {default}]")
    if option.required:
        parts.append("[required]")
    return " ".join(parts)


def _entry(heading: str, text: str, width: int) -> list[str]:
    return [*_wrapped(heading, width, "  "), *_wrapped(" ".join(text.split()), width, " " * _INDENT)]


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    longest = width - _INDENT
    words = (word if len(word) <= longest else word.replace(",", ", ") for word in text.split())
    return textwrap.wrap(
        " ".join(words),
        width,
        initial_indent=indent,
        subsequent_indent=" " * _INDENT,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _example(text: str, width: int) -> list[str]:
    """One command; a long one goes on in the next line after a backslash, so that it can still be pasted."""
    lines = textwrap.wrap(
        text, width - 2, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False, break_long_words=False
    )
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]
