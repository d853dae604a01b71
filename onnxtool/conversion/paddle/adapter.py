"""The PaddlePaddle adapter: inference programs of Paddle 2 and 3."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from onnxtool.conversion.adapter import Adapter, SourceModel
from onnxtool.conversion.paddle.files import WEIGHTS, find_files, programs
from onnxtool.conversion.source import Source
from onnxtool.errors import MissingExtraError, UnsafeError
from onnxtool.options.convert import ConvertOptions

if TYPE_CHECKING:
    import onnx_ir as ir

_PICKLES = (".pdparams", ".pdopt")


class PaddleAdapter(Adapter):
    """What `paddle.jit.save` and `paddle.static.save_inference_model` write; paddle2onnx exports it."""

    name = "paddle"
    extra = "paddle"
    exporting = ("onnxtool.conversion.paddle.model",)

    def recognises(self, source: Source, options: ConvertOptions) -> bool:  # noqa: ARG002
        """A program, the weights of one, a folder with one, or a pickle of weights, which is refused."""
        return source.suffix in (WEIGHTS, *_PICKLES) or bool(programs(source))

    def load(self, source: Source, options: ConvertOptions) -> SourceModel:
        """Start a process with PaddlePaddle, and load the program there.

        Raises:
            UnsafeError: a pickle.
            MissingExtraError: PaddlePaddle or paddle2onnx is not installed.
            InputError, UsageError: as `find_files` and `PaddleModel`.
        """
        if source.suffix in _PICKLES:
            raise UnsafeError(
                f"{source}: this is a pickle of weights, which can run code when loaded, and it has no program. Load "
                "it where the model's class is, and write both with paddle.jit.save."
            )
        files = find_files(source)
        for package in ("paddle", "paddle2onnx"):
            if find_spec(package) is None:
                raise MissingExtraError(str(source), package, self.extra)
        from onnxtool.conversion.paddle.model import PaddleModel

        return PaddleModel(files, str(source), options)

    def export(self, model: SourceModel, options: ConvertOptions) -> ir.Model:
        """Convert the program.

        Raises:
            UnsupportedError: operators that paddle2onnx does not have.
        """
        from onnxtool.conversion.paddle.model import PaddleModel

        assert isinstance(model, PaddleModel)
        return model.export(options)
