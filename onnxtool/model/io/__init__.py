"""Reading and writing model files: the only package that opens them.

Protobuf stays in here; everything above works on `onnx_ir` (or, for the quick look that `check` and `inspect` need, on
the `ModelProto` that `read_proto` gives, because importing onnx_ir takes twice as long as checking a small model).
"""

from onnxtool.model.io.atomic import write_atomic
from onnxtool.model.io.read import (
    external_files,
    from_proto,
    load,
    native_path,
    old_opset,
    read_proto,
    sha256,
    total_bytes,
)
from onnxtool.model.io.serialize import to_bytes, to_proto, weight_bytes
from onnxtool.model.io.write import (
    INLINE_LIMIT,
    check_model_name,
    check_model_output,
    check_output,
    copy_model,
    save,
    save_chunked,
    spilled,
)

__all__ = [
    "INLINE_LIMIT",
    "check_model_name",
    "check_model_output",
    "check_output",
    "copy_model",
    "external_files",
    "from_proto",
    "load",
    "native_path",
    "old_opset",
    "read_proto",
    "save",
    "save_chunked",
    "sha256",
    "spilled",
    "to_bytes",
    "to_proto",
    "total_bytes",
    "weight_bytes",
    "write_atomic",
]
