"""The help page of a command: examples first, options in groups, nothing cut off at 80 columns.

Typer's own page is one list in a table, which cuts names and values that do not fit.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

Types = Mapping[str, frozenset[Any]]

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

SELDOM = "Seldom used"
# Group -> options, by their first long name; an option that stands in none is listed under "Options". What is seldom
# used is shown by --help-all only.
GROUPS: Mapping[str, Sequence[str]] = {
    "Input": (
        *("--factory", "--factory-arg", "--trust", "--input-shape", "--input-dtype", "--sample", "--data", "--image"),
        *("--samples", "--input", "--batch", "--git", "--source", "--explain", "--select", "--ignore"),
    ),
    "Output": (
        *("--output", "--input-names", "--output-names", "--opset", "--reproducible", "--layout", "--fix", "--sbom"),
        *("--nodes", "--largest", "--placement", "--external-data"),
    ),
    "Accuracy and proof": (
        *("--rtol", "--atol", "--effort", "--strict", "--keep-counterexample", "--keep-failed", "--max-drop"),
        *("--eval", "--labels", "--metric", "--no-verify", "--layers", "--reference", "--golden", "--record"),
        *("--fail-on", "--max-perplexity", "--max-size"),
    ),
    "Speed": (
        *(
            "--threads",
            "--time-limit",
            "--provider",
            "--require-provider",
            "--no-bench",
            "--budget",
            "--profile",
            "--baseline",
        ),
        *("--max-regression", "--jobs", "--level", "--mode", "--target", "--smallest"),
    ),
    "Reports": ("--json", "--junit", "--sarif", "--markdown", "--html", "--report", "--verbose", "--quiet"),
    SELDOM: (
        *(
            "--pythonpath",
            "--custom-op-library",
            "--ep-library",
            "--keep-metadata",
            "--adapter",
            "--inputs",
            "--outputs",
            "--zipmap",
        ),
        *("--float64", "--seed", "--freeze-initializers", "--max-folded-size", "--downgrade-opset", "--per-channel"),
        *("--activations", "--weights", "--method", "--percentile", "--op", "--exclude", "--keep-io", "--block-size"),
        *("--symmetric", "--rtn", "--smooth", "--equalize", "--bias-correction", "--compact", "--attention", "--fuse"),
        *(
            "--tolerance",
            "--top-k",
            "--opt-level",
            "--batch-sizes",
            "--bisect",
            "--trace",
            "--edge",
            "--pass",
            "--skip",
        ),
        *("--recipe", "--exporter", "--signature"),
    ),
}
_ORDER = ("Input", "Output", "Options", "Accuracy and proof", "Speed", "Reports", SELDOM)
_INDENT = 6
_WIDEST = 100


def page(name: str, command: Any, types: Types, width: int, *, everything: bool = False) -> str:
    """The help page of a command.

    Args:
        name: the command.
        command: what Typer built for it.
        types: of its values, see `value_types`.
        width: columns of the terminal; no line is longer, unless a word is.
        everything: show the seldom used options too.
    """
    width = max(40, min(width, _WIDEST))
    lines = [usage(name, command, types), ""]
    for paragraph in paragraphs(command):
        lines += [*textwrap.wrap(paragraph, width), ""]
    if name in EXAMPLES:
        lines += ["Examples:", *(line for e in EXAMPLES[name] for line in _example(e, width)), ""]
    hidden = 0
    for group, members in entries(command, types):
        if group == SELDOM and not everything:
            hidden = len(members)
            continue
        lines += [f"{group}:", *(line for heading, text in members for line in _entry(heading, text, width)), ""]
    if hidden:
        lines.append(f"{hidden} more options: onnxtool {name} --help-all")
    return "\n".join(lines).rstrip() + "\n"


def usage(name: str, command: Any, types: Types) -> str:
    """The line that shows what has to be there."""
    names = " ".join(_argument(p) for p in command.params if p.param_type_name == "argument")
    required = " ".join(f"{_short(o)} {_metavar(o, types)}" for o in _shown(command) if o.required)
    return " ".join(f"Usage: onnxtool {name} {names} {required} [options]".split())


def paragraphs(command: Any) -> list[str]:
    """What the command does, a paragraph each."""
    return [" ".join(p.split()) for p in (command.help or "").replace("\b", "").split("\n\n")]


def entries(command: Any, types: Types) -> list[tuple[str, list[tuple[str, str]]]]:
    """Group -> (heading, text) of its arguments or options, in the order in which they are shown."""
    described = [a for a in command.params if a.param_type_name == "argument" and getattr(a, "help", None)]
    found = [("Arguments", [(_argument(a), a.help) for a in described])]
    groups = _grouped(_shown(command))
    found += [(group, [(_heading(o, types), _help(o, types)) for o in groups.get(group, ())]) for group in _ORDER]
    return [(group, members) for group, members in found if members]


def _shown(command: Any) -> list[Any]:
    return [p for p in command.params if p.param_type_name == "option" and not p.hidden]


def _grouped(options: Iterable[Any]) -> dict[str, list[Any]]:
    home = {option: group for group, members in GROUPS.items() for option in members}
    found: dict[str, list[Any]] = {}
    for option in options:
        found.setdefault(home.get(_long(option), "Options"), []).append(option)
    return found


def _long(option: Any) -> str:
    return next((str(o) for o in option.opts if o.startswith("--")), str(option.opts[0]))


def _short(option: Any) -> str:
    return str(min(option.opts, key=len))


def _argument(argument: Any) -> str:
    name = (argument.metavar or argument.name or "").upper().strip("{}[]")
    many = argument.nargs == -1 and not name.endswith("...")
    text = f"{name}..." if many else name
    return text if argument.required else f"[{text}]"


def _metavar(option: Any, types: Types) -> str:
    """What stands for the value: the option's own word, never the name of a Python type; "" for a flag."""
    if option.is_flag or option.count:
        return ""
    if option.metavar:
        return str(option.metavar)
    if {int, float} & types.get(option.name, frozenset()):
        return "N"
    return "FILE" if Path in types.get(option.name, ()) else "NAME"


def value_types(function: Callable[..., None]) -> Types:
    """What type of value each argument of a command's function takes: `int | None` is int."""
    found = {}
    for name, hint in get_type_hints(function).items():
        pending, kinds = [hint], set()
        while pending:
            one = pending.pop()
            pending += get_args(one)
            kinds.add(one)
        found[name] = frozenset(kinds)
    return found


def _heading(option: Any, types: Types) -> str:
    names = ", ".join(sorted(option.opts, key=len))
    off = ", ".join(option.secondary_opts)
    return f"{names}{' / ' + off if off else ''} {_metavar(option, types)}".rstrip()


def _help(option: Any, types: Types) -> str:
    """The option's own text, its values and its default."""
    parts = [(option.help or "").rstrip()]
    choices = [k for k in types.get(option.name, ()) if isinstance(k, type) and issubclass(k, Enum)]
    if choices:
        parts.append(f"One of {', '.join(str(choice.value) for choice in choices[0])}.")
    default = option.default
    if isinstance(default, Enum):
        default = default.value
    shown = default is not None and not callable(default) and not isinstance(default, (list, tuple)) and default != ""
    if shown and not option.count and getattr(option, "show_default", True) is not False:
        if not option.is_flag:
            parts.append(f"[default: {default}]")
        elif option.secondary_opts:
            parts.append(f"[default: {(option.opts if default else option.secondary_opts)[0]}]")
    if option.required:
        parts.append("[required]")
    return " ".join(p for p in parts if p)


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
