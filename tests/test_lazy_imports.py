"""sympy, which onnx_ir imports, is loaded when somebody uses it and works as ever then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PRINT = "print('sympy.core' in sys.modules)"


def _output(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


def test_a_model_is_prepared_without_loading_sympy(digits_onnx: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from onnxtool.model import io
from onnxtool.quantization.preprocess.prepare import prepare
prepare(io.load(Path({str(digits_onnx)!r})))
{_PRINT}
"""
    assert _output(code) == ["False"]


def test_symbolic_dims_load_it_when_they_calculate() -> None:
    code = f"""
import sys
import onnxtool
import onnx_ir
dim = onnx_ir.SymbolicDim("N") * 2
print(dim.value)
{_PRINT}
"""
    assert _output(code) == ["2*N", "True"]


def test_users_of_sympy_get_all_of_it() -> None:
    code = """
import onnxtool
import sympy.core.symbol
from sympy import symbols, expand
x, y = symbols("x y")
print(expand((x + y) ** 2))
"""
    assert _output(code) == ["x**2 + 2*x*y + y**2"]


def test_sympy_that_was_there_before_is_left_alone() -> None:
    code = """
import sympy
before = sympy
import onnxtool, onnx_ir
import sympy
print(sympy is before, sympy.Symbol("a"))
"""
    assert _output(code) == ["True a"]
