"""A model file: opened once, handed down."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from onnxtool.model.header import ModelHeader, read_header
from onnxtool.model.io.in_memory import as_path
from onnxtool.model.io.read import lift, native_path, old_opset, read_proto, sha256
from onnxtool.model.safety.limits import DEFAULT
from onnxtool.model.safety.tensors import all_tensors, external_ref
from onnxtool.model.spec import TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxtool.model.model_view import ModelView


class ModelFile(os.PathLike[str]):
    """What is known of a model file; each thing is read when it is first asked for, verified, and kept.

    It stands where a path to the file may stand, so that native code can open it.

    Args:
        path: the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @classmethod
    def of(cls, model: object) -> ModelFile:
        """The file that was given for a model: nothing is read yet.

        Raises:
            UsageError: something that is neither a path nor a model.
        """
        return model if isinstance(model, cls) else cls(as_path(model))

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def verify(self) -> None:
        """Refuse what is unsafe or damaged, before the runtime sees it.

        Raises:
            InputError: missing, empty, no ONNX model, or damaged.
            UnsafeError: external data outside the model's folder.
            ResourceError: larger than the limits.
        """
        native_path(self.path)
        _ = self.outline

    @cached_property
    def outline(self) -> onnx.ModelProto:
        """The message without the large weights of a large file, which stay there; not to be changed."""
        return read_proto(self.path, in_place=True)

    @cached_property
    def proto(self) -> onnx.ModelProto:
        """The whole message, external data left where it is; not to be changed."""
        return read_proto(self.path) if self.path.name in self._places else self.outline

    @cached_property
    def header(self) -> ModelHeader:
        """Opsets, producer, inputs, outputs, metadata and operators."""
        return read_header(self.outline)

    @cached_property
    def old_opset(self) -> int:
        """The operator set of a file that is read as a later one, which runtimes take; 0 of other files."""
        return old_opset(self.path)

    @property
    def age(self) -> str:
        """What is to be said of such a file; "" of others."""
        if not self.old_opset:
            return ""
        return f"{self} is of opset {self.old_opset}, which ONNX Runtime does not run: it is read as opset 7."

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What a caller must feed."""
        return self.header.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What it gives."""
        return self.header.outputs

    @cached_property
    def view(self) -> ModelView:
        """Who makes and who reads each tensor."""
        from onnxtool.model.model_view import ModelView

        return ModelView(self.path, self.proto)

    @cached_property
    def bytes(self) -> int:
        """Size on disk, external data included."""
        return sum(f.stat().st_size for f in (self.path, *self.external_files))

    @property
    def external_files(self) -> list[Path]:
        """Its external data files."""
        return [self.path.parent / place for place in sorted(self._places - {self.path.name})]

    @cached_property
    def _places(self) -> set[str]:
        """Where weights lie that are not in `outline`."""
        return {r.location for t in all_tensors(self.outline, DEFAULT) if (r := external_ref(t)) is not None}

    @cached_property
    def sha256(self) -> str:
        """Digest of the file itself, in hex."""
        return sha256(self.path)

    def graph(self, *, in_place: bool = True) -> ir.Model:
        """A fresh model that may be changed.

        With `in_place` large weights stay in the file, which has to stay as it is for as long as the model is used.
        """
        copy = onnx.ModelProto()
        copy.CopyFrom(self.outline if in_place else self.proto)
        return lift(copy, self.path, in_place=in_place)
