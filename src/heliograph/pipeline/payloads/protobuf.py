"""Protobuf: payloads that are one message each.

In:    a FileDescriptorSet in base64 (`protoc --include_imports --descriptor_set_out`), the name of a message; payloads.
Out:   its layout, and a function that decodes a payload.
State: none.
Not here: what fits (fitting.py).

Google's library decodes, and bounds how deep messages nest. A field without presence has its default value when it is
not sent, as everywhere in Protobuf; one with presence is then null. A message that contains itself becomes JSON. Fields
that the schema does not know are among the other fields, by their numbers.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.unknown_fields import UnknownFieldSet

from heliograph.errors import UsageError
from heliograph.pipeline.payloads.fitting import Unfit
from heliograph.pipeline.payloads.layouts import FIELDS_MAX, TEXT_BYTES_MAX, Layout, PayloadField, checked, struct

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STAMP = "google.protobuf.Timestamp"
WRAPPERS = "google/protobuf/wrappers.proto"

Convert = Callable[[Any], Any] | None
_F = FieldDescriptor
_PLAIN = {
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), "int"),
    **dict.fromkeys((_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64), "bigint"),
    **dict.fromkeys((_F.TYPE_UINT32, _F.TYPE_FIXED32), "bigint"),
    _F.TYPE_BOOL: "boolean",
    _F.TYPE_FLOAT: "float",
    _F.TYPE_DOUBLE: "double",
    _F.TYPE_STRING: "string",
    _F.TYPE_BYTES: "binary",
    _F.TYPE_ENUM: "string",
}
_UNSIGNED = Layout("decimal", precision=20)


def protobuf_reader(text: str, message: str) -> tuple[Layout, Callable[[bytes], Any]]:
    """What decodes payloads of a message. UsageError if there is no such message, or tables cannot have it."""
    if len(text) > TEXT_BYTES_MAX:
        raise UsageError(f"the schema: more than {TEXT_BYTES_MAX:,} letters")
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(b64decode(text, validate=True))
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        found = pool.FindMessageTypeByName(message or _only(files))
        kind = message_factory.GetMessageClass(found)
        layout, convert = _MessageTypes().of(found)
    except UsageError:
        raise
    except (binascii.Error, UnicodeError):
        raise UsageError("the schema of Protobuf is a FileDescriptorSet in base64") from None
    except RecursionError:
        raise UsageError("the schema: it is nested too deeply") from None
    except Exception as error:
        raise UsageError(f"the schema is not one of Protobuf: {str(error)[:200] or type(error).__name__}") from None
    if layout.kind != "struct":
        raise UsageError(f"the schema: {found.full_name} has no fields, or contains itself")

    def decode(payload: bytes) -> Any:
        read = kind.FromString(payload)
        if not read.IsInitialized():
            raise Unfit("a required field is missing")
        assert convert is not None
        return convert(read)

    return checked(layout), decode


def _only(files: descriptor_pb2.FileDescriptorSet) -> str:
    """The message of the last file, which is the one that was asked for."""
    last = files.file[-1] if files.file else descriptor_pb2.FileDescriptorProto()
    if len(last.message_type) != 1:
        names = ", ".join(each.name for each in last.message_type) or "none"
        raise UsageError(f"the schema has several messages ({names[:200]}): name one, such as protobuf/plant.Reading")
    return f"{last.package}.{last.message_type[0].name}".lstrip(".")


class _MessageTypes:
    """Messages as layouts, each with what makes a dict of one."""

    def __init__(self) -> None:
        self._within: list[str] = []
        self._count = 0

    def of(self, kind: Descriptor) -> tuple[Layout, Convert]:
        if kind.full_name == STAMP:
            return Layout("timestamp"), _time
        if kind.file.name == WRAPPERS:
            layout, _ = self._value(kind.fields_by_name["value"])
            return layout, lambda wrapper: wrapper.value
        if kind.full_name in self._within or not kind.fields:
            return Layout("json"), _as_json
        self._within.append(kind.full_name)
        fields, parts = [], []
        for each in kind.fields:
            layout, convert = self._field(each)
            fields.append(PayloadField(each.name, layout))
            parts.append((each.name, each.has_presence, convert))
        self._within.pop()

        def convert_all(message: Any) -> Any:
            made = {
                name: value if convert is None else convert(value)
                for name, may_lack, convert in parts
                if not may_lack or message.HasField(name)
                for value in (getattr(message, name),)
            }
            for each in UnknownFieldSet(message):
                made.setdefault(str(each.field_number), []).append(_unknown(each.data))  # no name begins with a digit
            return made

        return struct(fields), convert_all

    def _field(self, field: FieldDescriptor) -> tuple[Layout, Convert]:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            layout, convert = self._value(kind.fields_by_name["value"])
            return Layout("map", item=layout), lambda pairs: {
                _key(name): value if convert is None else convert(value) for name, value in pairs.items()
            }
        layout, convert = self._value(field)
        if not field.is_repeated:
            return layout, convert
        return Layout("array", item=layout), (list if convert is None else lambda all: [convert(each) for each in all])

    def _value(self, field: FieldDescriptor) -> tuple[Layout, Convert]:
        self._count += 1
        if self._count > 2 * FIELDS_MAX:
            raise UsageError(f"the schema: it has more than {FIELDS_MAX} fields")
        if field.message_type is not None:
            return self.of(field.message_type)
        if field.type in (_F.TYPE_UINT64, _F.TYPE_FIXED64):
            return _UNSIGNED, None
        if field.type == _F.TYPE_ENUM:
            names = {value.number: value.name for value in field.enum_type.values}
            return Layout("string"), lambda number: names.get(number, str(number))
        return Layout(_PLAIN[field.type]), None


def _key(name: Any) -> str:
    return str(name).lower() if type(name) is bool else str(name)


def _time(stamp: Any) -> datetime:
    try:
        return EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1_000)
    except OverflowError:
        raise Unfit("a time that is not in the years 1 to 9999") from None


def _as_json(message: Any) -> Any:
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def _unknown(data: Any) -> Any:
    """A field that the schema does not know: a number, bytes, or a group."""
    return data if isinstance(data, int | bytes) else "group"
