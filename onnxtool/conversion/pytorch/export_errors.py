"""What went wrong in an exporter, as one sentence: which operator or line, and what to do."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from onnxtool.errors import OnnxToolError, UnsupportedError

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\w+)(?:\n\s+(\S.*))?')
_UNKNOWN = (
    re.compile(r"No ONNX function found for <OpOverload\(op='([\w.:]+)'"),
    re.compile(r"Exporting the operator '([\w:]+)' to ONNX"),
    re.compile(r"unrecognized namespace ([\w:]+)"),
)
# Files through which any export goes; and those of Python itself.
_EXPORTERS = re.compile(r"/(torch|onnxscript|onnx_ir|onnxtool)/|/lib/python3[.\d]*/(?!site-packages)|^<")
_OVERLOAD = re.compile(r"OpOverload\(op='([\w.]+)', overload='(\w+)'\)")
# Namespaces of operators that torch itself brings.
BUILT_IN = {"aten", "prims", "prim", "quantized", "quantized_decomposed", "higher_order", "torchvision", "torchaudio"}
_RELATION = re.compile(r"^\s*(\w+) = (?!Dim\()(.+)$", re.MULTILINE)


class FixedDimError(UnsupportedError):
    """A dim that should be dynamic is a number to the model."""

    def __init__(self, name: str, dim: str, size: int, line: str) -> None:
        self.dim, self.place = dim, f" ({line})" if line else ""
        super().__init__(
            f"the model fixes the dim {dim!r} of input {name!r} to {size}{self.place}. Give that number in "
            "--input-shape."
        )


def chain(error: BaseException) -> list[BaseException]:
    """An error and what caused it, outermost first."""
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in found:
        found.append(current)
        current = current.__cause__ or current.__context__
    return found


def is_constraint(error: BaseException) -> bool:
    """A dim that should be dynamic depends on another one, is a multiple, or is fixed by the model."""
    return any("Constraints violated" in str(e) or "Suggested fixes" in str(e) for e in chain(error))


def is_data_dependent(error: BaseException) -> bool:
    """The model branches on values that are known only when it runs."""
    return any("data-dependent" in str(e) or _is_python_boolean(e) for e in chain(error))


def _is_python_boolean(error: BaseException) -> bool:
    """A comparison of whole tensors, which gives no tensor: torch.equal."""
    return type(error).__name__ == "DataDependentOutputException" and "equal" in str(error)


def is_memory(error: BaseException) -> bool:
    """Out of memory."""
    return any(isinstance(e, MemoryError) or "not enough memory" in str(e) for e in chain(error))


def relations(error: BaseException) -> str:
    """How torch says the dims relate: "h = 32*_h"."""
    for link in chain(error):
        _, found, text = str(link).partition("Suggested fixes:")
        if found:
            pairs = dict.fromkeys(f"{name} = {rest.strip()}" for name, rest in _RELATION.findall(text))
            if pairs:
                return ", ".join(pairs)
    return "a dim is fixed by the model"


def unknown_operator(error: BaseException) -> str | None:
    """The operator that an exporter does not know: "mylib::myop"."""
    for link in chain(error):
        for pattern in _UNKNOWN:
            match = pattern.search(str(link))
            if match:
                return match[1].replace("::", ".").replace(".", "::", 1)
    return None


def unknown_overload(error: BaseException) -> tuple[str, str] | None:
    """The operator and overload that torch.export's exporter does not know: ("mylib::myop", "default")."""
    for link in chain(error):
        match = _OVERLOAD.search(str(link))
        if match:
            return match[1].replace(".", "::", 1), match[2]
    return None


def is_custom(error: BaseException) -> bool:
    """It is an operator of the user's own that is unknown: no exporter can know it."""
    operator = unknown_operator(error)
    return operator is not None and operator.partition("::")[0] not in BUILT_IN


def reason(error: BaseException) -> str:
    """One sentence on why an exporter failed."""
    if is_data_dependent(error):
        package = re.search(r"(?:site|dist)-packages/(\w+)", _place(error)[0])
        advice = (
            f"It is code of {package[1]}: convert the parts of the model before and after it, each by --factory."
            if package
            else "Rewrite that branch with torch.where or torch.cond, or save the module as TorchScript "
            "(torch.jit.script), which keeps branches."
        )
        return f"the model's control flow depends on the data{where(error)}. {advice}"
    if isinstance(error, OnnxToolError):
        return str(error)
    operator = unknown_operator(error)
    if operator is not None:
        own = " or, if a runtime library has it, keep it under its own name with --custom-op-library"
        hint = own if operator.partition("::")[0] not in BUILT_IN else ""
        return f"operator {operator} has no ONNX counterpart{where(error)}. Replace it{hint}."
    if is_constraint(error):
        return f"the dims are restricted: {relations(error)}."
    told = [e for e in chain(error) if str(e).strip()]
    root = told[-1] if told else error
    lines = [" ".join(line.split()) for line in str(root).splitlines() if line.strip()]
    return f"{type(root).__name__}: {(lines[0] if lines else '')[:300].rstrip('.')}{where(error)}."


def where(error: BaseException) -> str:
    """The last line of the user's own code that an exporter's message names, or that it came through:
    " (net.py line 12: if x.sum() > 0:)".
    """
    return _place(error)[1]


def _place(error: BaseException) -> tuple[str, str]:
    """The file of that line, and the line; "" for none."""
    for link in reversed(chain(error)):
        text = str(link)
        start = max(text.find("The following call raised this error"), text.find("User code traceback"), 0)
        for file, line, function, code in reversed(_FRAME.findall(text[start:])):
            if "/torch/" not in file and "/onnxtool/" not in file and not file.startswith("<"):
                shown = f": {code.strip()}" if code else f", in {function}"
                return file, f" ({Path(file).name} line {line}{shown})"
    for link in reversed(chain(error)):
        for frame in reversed(traceback.extract_tb(link.__traceback__)):
            if not _EXPORTERS.search(frame.filename):
                return frame.filename, f" ({Path(frame.filename).name} line {frame.lineno}: {frame.line})"
    return "", ""
