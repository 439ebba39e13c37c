"""Publications as lines: for people, and as JSON that can be read back.

In:    a publication; or a line of JSON.
Out:   a line without line breaks or control characters; or topic, payload and headers, checked.
State: none.
Not here: reading and writing the lines (publish.py, subscribe.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from heliograph.cli.shape import say
from heliograph.errors import UsageError
from heliograph.maps.cells import readable
from heliograph.model.topics import filter_fault, quoted, topic_fault

if TYPE_CHECKING:
    from heliograph.model.publication import Publication

_KEYS = ("topic", "payload", "payload_base64", "headers")
_TOLD = ("origin", "sequence", "timestamp_us", "store", "position")  # added by `subscribe --json`; not republished


def as_text(publication: Publication) -> str:
    """``topic payload``."""
    return f"{readable(publication.topic.encode())} {readable(publication.payload)}"


def as_json(publication: Publication) -> str:
    """One JSON object; a payload that is not UTF-8 is given as base64."""
    import json

    fields: dict[str, Any] = {"topic": publication.topic}
    try:
        fields["payload"] = publication.payload.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        fields["payload_base64"] = b64encode(publication.payload).decode()
    fields["headers"] = publication.headers
    fields |= {"origin": f"{publication.origin:016x}", "sequence": publication.sequence}
    if publication.timestamp_us is not None:
        fields["timestamp_us"] = publication.timestamp_us
    if publication.store is not None:
        fields |= {"store": publication.store, "position": publication.position}
    return json.dumps(fields)


def from_json(line: bytes, topic: str, headers: dict[str, Any]) -> tuple[str, bytes, dict[str, Any]]:
    """What a line of JSON publishes; ``topic`` and ``headers`` are defaults for lines without them."""
    import json

    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise UsageError('not a JSON object such as {"topic": "a/b", "payload": "text"}')
    unknown = [key for key in fields if key not in (*_KEYS, *_TOLD)]
    if unknown:
        raise UsageError(f"unknown field {unknown[0]!r}; the fields are {', '.join(_KEYS)}")
    chosen, own = fields.get("topic", topic), fields.get("headers", {})
    if not isinstance(chosen, str) or not isinstance(own, dict):
        raise UsageError("topic must be a text and headers an object")
    return chosen, _payload(fields), {**headers, **own}


def check_topic(topic: str) -> None:
    """UsageError if this is not a valid topic, before a broker is searched for."""
    fault = topic_fault(topic.encode("utf-8", "surrogatepass"))
    if fault is not None:
        raise UsageError(f"{quoted(topic)} is not a topic: {fault}")


def check_filter(pattern: str) -> None:
    """UsageError if this is not a valid topic filter."""
    fault = filter_fault(pattern.encode("utf-8", "surrogatepass"))
    if fault is not None:
        raise UsageError(f"{quoted(pattern)} is not a topic filter: {fault}")
    if "*" in pattern.split("/"):
        say(f"heliograph: * is a character like others in {quoted(pattern)}: + is any one level, # is the rest")


def header(text: str) -> tuple[str, str | int | float | bool]:
    """A header as written in an option: ``key=value``. A JSON number, true or false is read as such."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--header {text!r}: write key=value")
    if key.startswith("$"):
        raise UsageError(f"--header {text!r}: keys that begin with $ are reserved")
    try:
        read = json.loads(value)
    except ValueError:
        return key, value
    return key, read if isinstance(read, str | int | float | bool) else value


def _payload(fields: dict[str, Any]) -> bytes:
    if ("payload" in fields) == ("payload_base64" in fields):
        raise UsageError("exactly one of payload and payload_base64 must be there")
    text = fields.get("payload", fields.get("payload_base64"))
    if not isinstance(text, str):
        raise UsageError("the payload must be a text")
    try:
        if "payload" in fields:
            return text.encode()
        from base64 import b64decode

        return b64decode(text, validate=True)
    except ValueError:  # not base64, or half of a surrogate pair
        raise UsageError("the payload cannot be decoded") from None
