"""How large a model may be before it is refused; sizes are checked before memory is taken."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30
PROTOBUF_LIMIT = (1 << 31) - 1  # protobuf cannot hold a larger message


@dataclass(frozen=True)
class Limits:
    """Limits on what is read from a model file.

    Attributes:
        max_model_bytes: size of the .onnx file itself, without external data.
        max_external_bytes: size of all external data together.
        max_nodes: nodes of all graphs and functions together.
        max_depth: nesting of subgraphs.
    """

    max_model_bytes: int = PROTOBUF_LIMIT
    max_external_bytes: int = 1 << 40
    max_nodes: int = 5_000_000
    max_depth: int = 64


DEFAULT = Limits()
