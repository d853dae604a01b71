"""Imports what commands import, before a process is forked for each of them."""

from __future__ import annotations

import gc
import io
import os
import pkgutil
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache
from importlib import import_module
from typing import Any

import onnxtool

_BUILDING = (
    "mobius._builder",
    "mobius._config_resolver",
    "onnxruntime.quantization.matmul_nbits_quantizer",
    "onnxruntime_genai.models.builders",
    "peft",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama",
)


def warm(kind: str = "") -> int:
    """Import what the commands import; no session is made, so no threads run when forking.

    Args:
        kind: "pytorch", "tensorflow" or "trees" imports what `convert` imports for these before it looks at a file;
            "builders" what builders of text models do.

    Returns:
        Bytes that this process has without the frameworks of a kind.
    """
    gc.disable()  # what is imported stays
    libraries = (
        "numpy.ma",
        "numpy.random",
        "onnx.checker",
        "onnx.reference",
        "onnx.reference.ops",
        "onnx.shape_inference",
        "onnx.version_converter",
        "onnx_ir",
        "onnxruntime",
        "rich.table",
    )
    for name in (*libraries, *_own_modules(), "tests.efforts"):
        import_module(name)
    from onnxtool.cli.app import main
    from onnxtool.conversion.registry import adapters
    from onnxtool.editing.registry import all_operations
    from onnxtool.optimization.registry import all_passes
    from onnxtool.quantization.calibration.range_estimators import estimators

    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), suppress(SystemExit):
        main(["verify", "no-such-file.onnx"])  # what Typer imports when it is used
    for registry in (all_passes, all_operations, estimators, adapters):
        list(registry())  # they look for packages that add to them
    own = resident()
    if kind:
        from onnxtool.conversion import quiet

        frameworks = {
            "pytorch": ("pytorch",),
            "tensorflow": ("keras", "tensorflow"),
            "trees": ("sklearn", "boosting"),
        }.get(kind, ())
        for adapter in (a for a in adapters() if a.name in frameworks):
            quiet.import_all([*adapter.loading, *adapter.exporting])
        more = {
            "pytorch": ["transformers", "safetensors.torch", "torch.export._trace", "torch._dynamo"],
            "trees": ["xgboost", "lightgbm"],
            "builders": ["torch", *_BUILDING],
        }
        quiet.import_all(more.get(kind, ()))
        if kind == "pytorch":
            _export_once()
    gc.freeze()
    gc.enable()
    return own


def _export_once() -> None:
    """What torch imports and reads when it exports for the first time: half of what converting a small model takes."""
    import torch

    from onnxtool.conversion.opset import newest_runtime_opset
    from onnxtool.conversion.pytorch.export import DYNAMO_OPSETS
    from onnxtool.conversion.quiet import quiet

    translations_read_once()
    opset = min(newest_runtime_opset(), DYNAMO_OPSETS[1])
    with quiet(0):
        torch.onnx.export(torch.nn.Linear(2, 2).eval(), (torch.zeros(1, 2),), dynamo=True, opset_version=opset)


def translations_read_once() -> None:
    """What torch.onnx.export does for each export, here once for all of them: most of what a small model takes.

    It parses the source of its 500 translations, asks some 50 times which operators are composed of others, and gives
    these 10,000 kernels by a function whose types are built anew each time.
    """
    import torch
    from torch._export import utils
    from torch.export import decomp_utils, exported_program
    from torch.onnx._internal.exporter import _registration

    made = cache(_registration.ONNXRegistry.from_torchlib)

    def copied(cls: type[Any], opset_version: int = _registration._constants.TORCHLIB_OPSET) -> Any:
        table, known = cls(), made(opset_version)
        table._opset_version = known._opset_version
        table.functions = {target: list(found) for target, found in known.functions.items()}
        return table

    composed = cache(lambda registered: utils._collect_all_valid_cia_ops())

    def collected() -> Any:
        return composed(frozenset(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")))

    checked = torch._ops.OperatorBase.py_impl

    def implemented(self: Any, key: Any) -> Any:
        if type(key) is not torch._C.DispatchKey or key == torch._C.DispatchKey.Python or key in self.py_kernels:
            return checked(self, key)

        def add(kernel: Any) -> Any:
            self.py_kernels[key] = kernel
            self._dispatch_cache.clear()
            return kernel

        return add

    _registration.ONNXRegistry.from_torchlib = classmethod(copied)  # type: ignore[assignment]
    decomp_utils._collect_all_valid_cia_ops = exported_program._collect_all_valid_cia_ops = collected
    torch._ops.OperatorBase.py_impl = implemented  # type: ignore[method-assign]


def _own_modules() -> Iterator[str]:
    """What onnxtool consists of, without programs for elsewhere and what converts one framework's models.

    Of those only the adapter, which `convert` asks whose a file is.
    """
    for module in pkgutil.walk_packages(onnxtool.__path__, "onnxtool."):
        package, _, name = module.name.rpartition(".")
        of_a_framework = package.startswith("onnxtool.conversion.") and name != "adapter"
        if not (of_a_framework or name == "__main__" or "onnxtool.packaging.templates" in module.name):
            yield module.name


def resident() -> int:
    """Bytes of this process."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
