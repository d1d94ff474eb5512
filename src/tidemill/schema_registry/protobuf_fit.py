"""Whether records of a writer's Protobuf message can be read as another message: its name, and each field that both have.

Decides by Confluent's rules of compatibility: packages and names of fields may differ, kinds of numbers may where their bytes are
the same. Protobuf itself reads any bytes: a field of another kind would be not set, and another message's fields would be this
one's. A reader's message does not contain itself, since that has no Spark type.
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor, FieldDescriptor

_TYPES = {name.removeprefix("TYPE_").lower(): getattr(FieldDescriptor, name) for name in dir(FieldDescriptor)
          if name.startswith("TYPE_")}  # fmt: skip
_ALIKE = (
    ("int32", "int64", "uint32", "uint64", "bool", "enum"), ("sint32", "sint64"), ("fixed32", "sfixed32"),
    ("fixed64", "sfixed64"), ("string", "bytes"), ("message", "bytes"),
)  # fmt: skip
"""Types that are written alike."""
_PAIRS = {(_TYPES[one], _TYPES[other]) for group in _ALIKE for one in group for other in group}
_NUMBERS = {_TYPES[name] for group in _ALIKE[:4] for name in group} | {_TYPES["float"], _TYPES["double"]}
_NAMES = {number: name for name, number in _TYPES.items()}


def why_unfit(writer: Descriptor, reader: Descriptor) -> str:
    """Why records of ``writer`` are not read as ``reader``; empty if they are."""
    if writer.name != reader.name:
        return f"the record is a {writer.full_name}, expected {reader.full_name}"
    return _of_fields(writer, reader)


def _of_fields(writer: Descriptor, reader: Descriptor) -> str:
    for field in reader.fields:
        written = writer.fields_by_number.get(field.number)
        why = "" if written is None else _of_field(written, field)
        if why:
            return why
    for group in reader.oneofs:
        both = [writer.fields_by_number[field.number] for field in group.fields if field.number in writer.fields_by_number]
        if len({field.containing_oneof or field for field in both}) > 1:
            names = " and ".join(field.full_name for field in both)
            return f"its fields {names} may have values at once, expected one of them in {group.full_name}"
    return ""


def _of_field(written: FieldDescriptor, field: FieldDescriptor) -> str:
    if written.type != field.type and (written.type, field.type) not in _PAIRS:
        return f"its field {written.full_name} is of type {_said(written)}, expected {_said(field)}"
    if written.is_repeated and not field.is_repeated and written.type in _NUMBERS:
        return f"its field {written.full_name} is a list, expected one {_said(field)}"
    if written.message_type is None or field.message_type is None:
        return ""
    return _of_fields(written.message_type, field.message_type)


def _said(field: FieldDescriptor) -> str:
    return _NAMES[field.type]
