"""Valid models made wrong: bytes changed, and fields of the protobuf changed. Everything from a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

INTEGERS = (0, 1, -1, 2, 3, 7, 16, 255, 1 << 20, 1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 3e38, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    *("", "x", "y", " ", "ai.onnx", "com.microsoft", "local", "../secret.bin", "/etc/passwd", "\x1b[2J\x07", "%s%n"),
    *(
        "[red]x[/red]",
        "a\nb",
        "\u202e",
        "n" * 5000,
        "模型",
        "Relu",
        "If",
        "Loop",
        "Scan",
        "Constant",
        "Cast",
        "Reshape",
    ),
    *("Gemm", "Conv", "QLinearConv", "Attention", "SequenceAt", "location", "offset", "length", "-1", "9" * 30),
)
_SCALARS: dict[int, tuple[Any, ...]] = {
    FieldDescriptor.CPPTYPE_INT32: tuple(i for i in INTEGERS if -(1 << 31) <= i < 1 << 31),
    FieldDescriptor.CPPTYPE_INT64: INTEGERS,
    FieldDescriptor.CPPTYPE_UINT32: tuple(i for i in INTEGERS if 0 <= i < 1 << 32),
    FieldDescriptor.CPPTYPE_UINT64: tuple(i for i in INTEGERS if i >= 0),
    FieldDescriptor.CPPTYPE_FLOAT: FLOATS,
    FieldDescriptor.CPPTYPE_DOUBLE: FLOATS,
    FieldDescriptor.CPPTYPE_BOOL: (False, True),
}
_MOST_BYTES = 4_000_000


def mutated(content: bytes, generator: np.random.Generator) -> bytes:
    """An ONNX file with one to eight changes of its bytes, or one to five of its fields."""
    if generator.random() < 0.3:
        return change_bytes(content, generator)
    model = onnx.ModelProto.FromString(content)
    for _ in range(int(generator.integers(1, 6))):
        change_field(model, generator)
        if model.ByteSize() > _MOST_BYTES:
            break
    return model.SerializeToString()


def change_bytes(content: bytes, generator: np.random.Generator) -> bytes:
    """One to eight times: bytes replaced, cut out, put in, copied to another place, or a bit flipped."""
    data = bytearray(content)
    for _ in range(int(generator.integers(1, 9))):
        place, length = int(generator.integers(0, max(1, len(data)))), int(generator.integers(1, 9))
        kind = int(generator.integers(0, 6))
        if not data or kind == 0:
            data[place:place] = generator.bytes(length)
        elif kind == 1:
            del data[place : place + length]
        elif kind == 2:
            data[place] ^= 1 << int(generator.integers(0, 8))
        elif kind == 3:
            data[place : place + length] = generator.bytes(length)
        elif kind == 4:
            source = int(generator.integers(0, len(data)))
            data[place:place] = data[source : source + length * 8]
        else:
            data[place] = int(generator.choice([0, 1, 127, 128, 255]))
    return bytes(data)


def change_field(model: Message, generator: np.random.Generator) -> None:
    """Change one field of one message, anywhere in the model."""
    messages = list(_walk(model))
    message = messages[int(generator.integers(0, len(messages)))]
    fields = message.DESCRIPTOR.fields
    # Fields that are set are more telling than those that are not.
    present = [field for field, _ in message.ListFields()]
    choice = present if present and generator.random() < 0.75 else fields
    if not choice:
        return  # a message without fields, such as TensorFlow's NoneValue
    field = choice[int(generator.integers(0, len(choice)))]
    if field.is_repeated and _is_map(field):
        _change_map(getattr(message, field.name), messages, generator)
    elif field.is_repeated:
        _change_repeated(message, field, messages, generator)
    elif generator.random() < 0.15:
        message.ClearField(field.name)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        _replace_message(getattr(message, field.name), messages, generator)
    else:
        setattr(message, field.name, _scalar(field, message, messages, generator))


def _walk(message: Message, depth: int = 0) -> Any:
    yield message
    if depth > 40:
        return
    for field, value in message.ListFields():
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            inside = list(value.values() if _is_map(field) else value)[:300] if field.is_repeated else [value]
            for inner in inside:
                if isinstance(inner, Message):
                    yield from _walk(inner, depth + 1)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _change_map(values: Any, messages: list[Message], generator: np.random.Generator) -> None:
    keys = sorted(values)
    if not keys:
        return
    key = keys[int(generator.integers(0, len(keys)))]
    if generator.random() < 0.5 or not isinstance(values[key], Message):
        del values[key]
    else:
        _replace_message(values[key], messages, generator)


def _change_repeated(
    message: Message, field: FieldDescriptor, messages: list[Message], generator: np.random.Generator
) -> None:
    values = getattr(message, field.name)
    is_message = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
    place = int(generator.integers(0, len(values))) if len(values) else 0
    kind = int(generator.integers(0, 5))
    if kind == 0 and len(values):
        del values[place]
    elif kind == 1 and len(values) > 1:
        other = int(generator.integers(0, len(values)))
        if is_message:
            one, two = type(values[place])(), type(values[place])()
            one.CopyFrom(values[place])
            two.CopyFrom(values[other])
            values[place].CopyFrom(two)
            values[other].CopyFrom(one)
        else:
            values[place], values[other] = values[other], values[place]
    elif kind == 2 and len(values):
        values.append(values[place])
    elif is_message:
        _replace_message(values.add() if kind == 3 or not len(values) else values[place], messages, generator)
    elif kind == 3 or not len(values):
        values.append(_scalar(field, message, messages, generator))
    else:
        values[place] = _scalar(field, message, messages, generator)


def _replace_message(target: Message, messages: list[Message], generator: np.random.Generator) -> None:
    """By a copy of another one of its type: a graph into its own subgraph, a function's node into the main graph."""
    alike = [m for m in messages if m.DESCRIPTOR is target.DESCRIPTOR and m is not target]
    if alike:
        copy = type(target)()
        copy.CopyFrom(alike[int(generator.integers(0, len(alike)))])
        target.CopyFrom(copy)


def _scalar(field: FieldDescriptor, message: Message, messages: list[Message], generator: np.random.Generator) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            old = getattr(message, field.name)
            return change_bytes(old if isinstance(old, bytes) else b"", generator)
        names = [n for m in messages if isinstance(m, onnx.NodeProto) for n in (*m.input, *m.output, m.op_type)]
        names += [n for m in messages if m.DESCRIPTOR.name == "NodeDef" for n in (*m.input, m.name, m.op)]
        if names and generator.random() < 0.6:
            return names[int(generator.integers(0, len(names)))]
        return TEXTS[int(generator.integers(0, len(TEXTS)))]
    if field.cpp_type in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_INT32) and generator.random() < 0.4:
        return int(generator.integers(-4, 20))
    closed = field.cpp_type == FieldDescriptor.CPPTYPE_ENUM
    values = tuple(field.enum_type.values_by_number) if closed else _SCALARS[field.cpp_type]
    return values[int(generator.integers(0, len(values)))]
