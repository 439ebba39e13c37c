"""DNS SRV: the question where a domain's directories are, and the answer, as bytes.

In:    a domain; a datagram from a resolver, which may hold anything.
Out:   a question; SRV records, best first; ProtocolError for anything that is not an answer to it.
State: none.
Not here: the socket and the resolver's address (live/resolver.py).
Paper: none; RFC 1035 §4 (messages, compressed names) and RFC 2782 (SRV).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from heliograph.errors import ProtocolError, Reason

SERVICE = "_heliograph-bdn._udp"
RECORDS_MAX = 16  # a domain has a handful of directories
ANSWERS_MAX = 64  # records of all kinds that are read
NAME_BYTES_MAX = 255
JUMPS_MAX = 32  # compressed names point to earlier ones
SRV, IN = 33, 1

_HEAD = Struct(">HHHHHH")
_RECORD = Struct(">HHIH")
_SERVICE = Struct(">HHH")
_RECURSE = 0x0100
_ANSWER = 0x8000
_RCODE = 0x000F


@dataclass(frozen=True, slots=True)
class SrvRecord:
    """Where something is offered."""

    host: str
    port: int
    priority: int = 0
    weight: int = 0


def question(domain: str, number: int) -> bytes:
    """Ask for the directories of a domain; the number comes back in the answer."""
    labels = f"{SERVICE}.{domain.rstrip('.')}".encode("ascii").split(b".")
    name = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    if len(name) > NAME_BYTES_MAX or any(not 0 < len(label) < 64 for label in labels):
        raise ValueError(f"{domain!r} is not a domain")
    return _HEAD.pack(number, _RECURSE, 1, 0, 0, 0) + name + SRV.to_bytes(2, "big") + IN.to_bytes(2, "big")


def answer(data: bytes, asked: bytes) -> list[SrvRecord]:
    """The records of an answer to this question; none if the domain has none. Preferred ones come first."""
    if len(data) < len(asked) or data[:2] != asked[:2]:
        raise _wrong("not an answer to this question")
    _, flags, questions, answers, _, _ = _HEAD.unpack_from(data)
    if not flags & _ANSWER or questions != 1 or data[_HEAD.size : len(asked)].lower() != asked[_HEAD.size :].lower():
        raise _wrong("not an answer to this question")
    if flags & _RCODE:
        return []
    found: list[SrvRecord] = []
    at = len(asked)
    for _ in range(min(answers, ANSWERS_MAX)):
        _, at = _name(data, at)
        if at + _RECORD.size > len(data):
            break  # truncated: use what has arrived
        kind, family, _, length = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        if kind == SRV and family == IN and len(found) < RECORDS_MAX and at + length <= len(data):
            found.append(_service(data, at, length))
        at += length
    usable = [one for one in found if one.host and one.port]  # "." means: not offered here
    return sorted(usable, key=lambda one: (one.priority, -one.weight, one.host, one.port))


def _service(data: bytes, at: int, length: int) -> SrvRecord:
    if length <= _SERVICE.size:
        raise _wrong("an SRV record that is too short")
    priority, weight, port = _SERVICE.unpack_from(data, at)
    host, _ = _name(data, at + _SERVICE.size)
    return SrvRecord(host, port, priority, weight)


def _name(data: bytes, at: int) -> tuple[str, int]:
    """The name at this position, and the position after it."""
    labels: list[str] = []
    end, size = 0, 0
    for _ in range(NAME_BYTES_MAX + JUMPS_MAX):
        if at >= len(data):
            raise _wrong("a name beyond the end")
        length = data[at]
        if length >= 0xC0:
            if at + 1 >= len(data):
                raise _wrong("a name beyond the end")
            end = end or at + 2
            at = (length & 0x3F) << 8 | data[at + 1]
            continue
        if length >= 0x40:
            raise _wrong("a label of an unknown kind")
        at += 1 + length
        if not length:
            return ".".join(labels), end or at
        size += 1 + length
        if size > NAME_BYTES_MAX or at > len(data):
            raise _wrong("a name that is too long")
        labels.append(_label(data[at - length : at]))
    raise _wrong("a name that never ends")


def _label(raw: bytes) -> str:
    text = raw.decode("latin-1")
    if not (text.isascii() and text.replace("-", "").replace("_", "").isalnum()):
        raise _wrong("a label with strange characters")
    return text


def _wrong(text: str) -> ProtocolError:
    return ProtocolError(Reason.BODY_MALFORMED, text)
