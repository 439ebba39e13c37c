"""Synopses: a topic read as an integer or as tags instead of levels.

In:    the topic of an event, as bytes; its own headers.
Out:   attributes with reserved names: ``$integer``, and ``$tag:name`` for every tag.
State: none.
Not here: conditions on them (matching/languages/integer.py and tags.py).
Paper: [topics] §3, topics as integers and as comma-separated <tag, value> pairs.

The last level is read: ``42``, or ``meters/42``; ``class=stock,price=9``, or ``market/class=stock,price=9``. Values of
tags are texts. An event's own headers are tags too; if a name occurs in both, the tag in the topic is used.
"""

from __future__ import annotations

import re
from typing import Any

from heliograph.model.predicates import INTEGER_MAX, INTEGER_MIN, Value

INTEGER = "$integer"
TAG = "$tag:"
SYNOPSES = ("integer", "tags")
"""All synopses, named like the languages that use them."""

_INTEGER = re.compile(rb"-?[0-9]{1,19}\Z")


def read_integer(topic: bytes) -> dict[str, Value]:
    """The topic's last level as a decimal integer of 64 bits, if it is one."""
    level = topic[topic.rfind(b"/") + 1 :]
    if _INTEGER.match(level) is None:
        return {}
    number = int(level)
    return {INTEGER: number} if INTEGER_MIN <= number <= INTEGER_MAX else {}


def read_tags(topic: bytes, headers: dict[str, Any]) -> dict[str, Value]:
    """The tags of an event: its text, integer and boolean headers, and those of the topic's last level."""
    tags: dict[str, Value] = {}
    for name, value in headers.items():
        if not name.startswith("$") and (text := tag_text(value)) is not None:
            tags[TAG + name] = text
    level = topic[topic.rfind(b"/") + 1 :].decode("utf-8", "replace")
    if "=" in level:
        for pair in level.split(","):
            name, sign, text = pair.partition("=")
            if sign and name:
                tags[TAG + name] = text
    return tags


def tag_text(value: Any) -> str | None:
    """The value of a header as the value of a tag; None for floats, which have no single text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) else None
