"""From a file to a torch module (or an exported program), without running what the file holds unless trusted."""

from __future__ import annotations

import copy
import pickle
import pickletools
import sys
import types
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from onnxtool.conversion.factory import call_factory, find_factory
from onnxtool.conversion.pytorch.bare_weights import needs_factory
from onnxtool.conversion.pytorch.exported_program import load_exported_program, refuse_unsafe_script
from onnxtool.conversion.pytorch.in_float32 import narrow_tensors, run_in_float32
from onnxtool.conversion.pytorch.sentence_transformers import load_embedding_model
from onnxtool.conversion.pytorch.state_dict import find_weights, load_weights
from onnxtool.conversion.pytorch.transformers import is_pretrained, load_pretrained, made_ready
from onnxtool.conversion.pytorch.usual_inputs import usual_domains
from onnxtool.conversion.source import Source
from onnxtool.errors import InputError, UnsafeError, UnsupportedError, UsageError, first_line, needs_extra
from onnxtool.model.domains import Domain
from onnxtool.model.spec import Dim, dtype_name
from onnxtool.options.convert import ConvertOptions
from onnxtool.user_code import importable


@dataclass
class Loaded:
    """What a file gave.

    Attributes:
        module: in eval mode; for an exported program, its callable module.
        form: what was recognised, for people.
        notes: things to say aloud.
        program: the exported program, if it was one.
        shapes: input shapes to take where the user gives none for the main input.
        domains: which integers the others of these inputs may hold.
        narrow: tensors of bfloat16, which are float32 now.
    """

    module: torch.nn.Module
    form: str
    notes: list[str] = field(default_factory=list)
    program: torch.export.ExportedProgram | None = None
    shapes: dict[str, tuple[Dim, ...]] = field(default_factory=dict)
    domains: dict[str, Domain] = field(default_factory=dict)
    narrow: list[str] = field(default_factory=list)


def load_module(source: Source, form: str, options: ConvertOptions) -> Loaded:
    """Load any form that `pytorch.form_of` knows, in eval mode.

    Raises:
        InputError: damaged, or the weights do not fit.
        UnsafeError: it holds pickled code, and `options.trust` is not set.
        UsageError: weights without a factory.
    """
    notes: list[str] = []
    with importable(options.python_path):
        if form == "exported program":
            program = load_exported_program(source, options.trust)
            return Loaded(program.module(), "PyTorch exported program (.pt2)", program=program)
        if form == "torchscript":
            if not options.trust:
                refuse_unsafe_script(source)
            loaded = Loaded(_load_torchscript(source), "TorchScript archive")
        elif form == "memory":
            loaded = _in_memory(source)
        elif form == "factory":
            loaded = Loaded(_built(options), "PyTorch factory")
            loaded.notes.append("no weights were loaded: they are what the factory makes")
        elif form == "hugging face":
            module, shapes = load_pretrained(source, options, notes)
            loaded = Loaded(module, f"Hugging Face {type(module).__name__}", notes, shapes=shapes)
        elif form == "sentence-transformers":
            module, shapes = load_embedding_model(source, options, notes)
            loaded = Loaded(module, "sentence-transformers folder", notes, shapes=shapes)
        elif form == "safetensors":
            loaded = _with_weights(source, _load_safetensors(source), "safetensors state_dict", options)
        else:
            loaded = _load_saved(source, options)
    if loaded.program is None and is_pretrained(loaded.module):
        loaded.shapes = loaded.shapes or made_ready(loaded.module, loaded.notes)
        loaded.domains = usual_domains(loaded.module)
    _to_eval(loaded)
    _widen(loaded, options)
    return loaded


def _in_memory(source: Source) -> Loaded:
    """A copy of the user's own object, which keeps its mode, its gradients and its types."""
    if isinstance(source.model, torch.export.ExportedProgram):
        return Loaded(source.model.module(), "PyTorch exported program in memory", program=source.model)
    if not isinstance(source.model, torch.nn.Module):
        raise UsageError(f"{source}: this is not a torch.nn.Module.")
    # Weights that a part computes of others before it runs (weight_norm, pruning) are no leaves: torch refuses a copy.
    attributes = [value for part in source.model.modules() for value in vars(part).values()]
    computed = {id(t): t.detach().clone() for t in attributes if isinstance(t, torch.Tensor) and not t.is_leaf}
    try:
        return Loaded(copy.deepcopy(source.model, computed), "PyTorch module in memory")
    except Exception as error:
        raise UnsupportedError(
            f"{source}: the module cannot be copied ({first_line(error)}); name what builds it with factory=."
        ) from error


def _load_saved(source: Source, options: ConvertOptions) -> Loaded:
    """A file of torch.save: weights if it can be read as such, else a pickle that needs trust."""
    assert source.path is not None
    try:
        content = _torch_load(source.path, weights_only=True)
    except pickle.UnpicklingError as error:
        if not options.trust:
            raise _refusal(source) from error
        content = _load_trusted(source, options)
    except Exception as error:
        raise InputError(f"{source}: this PyTorch file is damaged or cut off ({first_line(error)}).") from error
    module = _module_in(content)
    if module is not None:
        loaded = Loaded(module, "pickled PyTorch module")
        loaded.notes.append("trusted: the file was unpickled, which runs code it names")
        return loaded
    return _with_weights(source, content, "PyTorch state_dict", options)


def _with_weights(source: Source, content: Any, form: str, options: ConvertOptions) -> Loaded:
    notes: list[str] = []
    weights = find_weights(content, str(source), notes)
    if options.factory is None:
        raise UsageError(needs_factory(source))
    module = _built(options)
    load_weights(module, weights, str(source), notes)
    if any("Lightning" in n for n in notes):
        form = "PyTorch Lightning checkpoint"
    return Loaded(module, form, notes)


def _built(options: ConvertOptions) -> torch.nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(options.seed)  # a factory alone has random weights: the same ones in every run
        module = call_factory(options)
    if isinstance(module, torch.nn.Module):
        return module
    raise UsageError(
        f"--factory {options.factory}: gave a {type(module).__name__}; it must give a torch.nn.Module, a "
        "keras.Model, a JAX function, a fitted estimator or a booster. Point it at the function or class that builds "
        "the model."
    )


def _load_torchscript(source: Source) -> torch.nn.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module: torch.nn.Module = torch.jit.load(str(source.path), map_location="cpu")
            return module
    except Exception as error:
        raise InputError(f"{source}: this TorchScript archive cannot be loaded ({first_line(error)}).") from error


def _load_safetensors(source: Source) -> dict[str, torch.Tensor]:
    with needs_extra(str(source), "safetensors", "pytorch"):
        from safetensors.torch import load_file
    assert source.path is not None
    try:
        weights: dict[str, torch.Tensor] = load_file(source.path)
        return weights
    except Exception as error:
        raise InputError(f"{source}: this safetensors file is damaged or cut off ({first_line(error)}).") from error


def _torch_load(path: Path, **arguments: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.load(path, map_location="cpu", mmap=True, **arguments)
        except RuntimeError as error:
            if "mmap" not in str(error):
                raise
            return torch.load(path, map_location="cpu", **arguments)  # the older form cannot be mapped


def _refusal(source: Source) -> UnsafeError:
    classes = _pickled_classes(source)
    if any(c.startswith("torch.nn.modules.") for c in classes):
        root = _root_class(source)
        what = f"a pickled module ({root})" if root else "a pickled module"
    else:
        listed = f" ({', '.join(classes[:3])})" if classes else ""
        what = f"a checkpoint with pickled Python objects{listed}"
    return UnsafeError(
        f"{source}: this is {what}, which can run code when loaded. Pass --trust if you trust it, or export a "
        "state_dict and name its class with --factory package.module:Class."
    )


def _pickled_classes(source: Source) -> list[str]:
    try:
        return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(str(source.path)))
    except Exception:  # only for the message: the older form cannot be listed
        return []


def _root_class(source: Source) -> str:
    """The first class that the pickle names: that of the object itself. Reads the pickle, does not run it."""
    for name in source.zip_names():
        if name.endswith("/data.pkl"):
            with suppress(ValueError, InputError):
                for opcode, argument, _ in pickletools.genops(source.zip_read(name)):
                    if opcode.name == "GLOBAL":
                        return str(argument).replace(" ", ".")
    return ""


def _load_trusted(source: Source, options: ConvertOptions) -> Any:
    """Unpickle; classes are looked for along --pythonpath and in the module of --factory."""
    assert source.path is not None
    fallback = None
    if options.factory is not None:
        fallback = sys.modules.get(getattr(find_factory(options), "__module__", "") or "")
    try:
        return _torch_load(source.path, weights_only=False, pickle_module=_pickle_with(fallback))
    except (ModuleNotFoundError, AttributeError) as error:
        raise InputError(
            f"{source}: its code is not to be found ({first_line(error)}). Name the folder with --pythonpath, or the "
            "file with --factory file.py:function."
        ) from error
    except Exception as error:
        raise InputError(f"{source}: cannot be unpickled ({type(error).__name__}: {first_line(error)}).") from error


def _pickle_with(fallback: types.ModuleType | None) -> Any:
    """The pickle module, with classes of scripts (`__main__`) or missing modules taken from `fallback`."""

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            try:
                return super().find_class(module, name)
            except (ModuleNotFoundError, AttributeError):
                top = name.split(".")[0]
                if fallback is None or not hasattr(fallback, top):
                    raise
                return getattr(fallback, top)

    made = types.ModuleType("onnxtool_pickle")
    made.__dict__.update({**vars(pickle), "Unpickler": Unpickler})
    return made


def _module_in(content: Any) -> torch.nn.Module | None:
    """A module: the object itself, or the entry of a checkpoint that keeps whole modules (YOLO style)."""
    if isinstance(content, torch.nn.Module):
        return content
    if isinstance(content, dict):
        for key in ("ema", "model", "module", "net"):
            if isinstance(content.get(key), torch.nn.Module):
                module: torch.nn.Module = content[key]
                return module
    return None


def _to_eval(loaded: Loaded) -> None:
    if loaded.form.startswith(("pickled", "TorchScript")) and loaded.module.training:
        loaded.notes.append("the module was saved in training mode; converted in evaluation mode")
    if loaded.program is None:  # what torch.export gives has no modes, and refuses to be asked
        loaded.module.eval()
    for parameter in loaded.module.parameters():
        parameter.requires_grad_(False)


def _widen(loaded: Loaded, options: ConvertOptions) -> None:
    """Compute a bfloat16 model in float32, which holds its weights exactly: the runtime's CPU side has no bfloat16."""
    wanted = {dtype_name(d) for d in options.input_dtypes.values()}
    narrow = narrow_tensors(loaded.module)
    if narrow and "bfloat16" not in wanted and not isinstance(loaded.module, torch.jit.ScriptModule):
        loaded.narrow = narrow
        loaded.module.float()
        if loaded.program is None:
            run_in_float32(loaded.module)
        loaded.notes.append("bfloat16 weights converted as float32; --input-dtype NAME:bfloat16 keeps them")
