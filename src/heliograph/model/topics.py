"""Topics and topic filters: which names are valid, and what a wildcard matches.

In:    bytes as in a frame.
Out:   whether a name is valid, whether a filter matches a topic, whether a filter covers another.
State: none.
Not here: looking up a topic among many filters (matching/topics.py).

Levels are separated by "/". "+" matches one level. "#" as the last level matches any number of levels, even none:
``a/#`` matches ``a``. At the first level neither matches a system topic (Services, Entity, System), an inbox or a
created topic (Topics).
"""

from __future__ import annotations

import re

TOPIC_BYTES_MAX = 1_024
TOPIC_LEVELS_MAX = 32  # deeper names are mistakes, and each level costs a step of the trie
SHOWN_MAX = 100  # characters of a name in a message
SYSTEM_ROOTS = (b"Services", b"Entity", b"System")
INBOX_ROOT = b"Inbox"  # Inbox/<broker>/<session>/…: where a session receives answers and directed publications
ENTITY_ROOT = b"Entity"  # Entity/<entity>: publications for an entity; only that entity receives them
CREATED_ROOT = b"Topics"  # Topics/<uuid>/…: topics that an entity created; its grants allow others to use them
HIDDEN_ROOTS = (*SYSTEM_ROOTS, INBOX_ROOT, CREATED_ROOT)

_INBOX = re.compile(r"Inbox/[0-9a-f]{16}/[0-9a-f]{16}\Z")


def topic_fault(topic: bytes) -> str | None:
    """What is wrong with this topic, or None."""
    fault = _name_fault(topic)
    if fault is None and (b"+" in topic or b"#" in topic):
        return "a topic to publish on has no wildcards"
    return fault


def filter_fault(pattern: bytes) -> str | None:
    """What is wrong with this topic filter, or None."""
    fault = _name_fault(pattern)
    if fault is not None:
        return fault
    levels = pattern.split(b"/")
    for position, level in enumerate(levels):
        if b"#" in level and (level != b"#" or position != len(levels) - 1):
            return "'#' stands alone and last"
        if b"+" in level and level != b"+":
            return "'+' stands alone in its level"
    return None


def quoted(name: str) -> str:
    """A name for messages, shortened if it is far too long."""
    return repr(name if len(name) <= SHOWN_MAX else f"{name[:SHOWN_MAX]}…")


def is_wild(pattern: bytes) -> bool:
    """True if a valid filter has a wildcard."""
    return b"+" in pattern or b"#" in pattern


def is_system(topic: bytes) -> bool:
    """True if a topic or filter lies under a protected root."""
    return topic.split(b"/", 1)[0] in SYSTEM_ROOTS


def created_root(name: bytes) -> bytes | None:
    """``Topics/<uuid>`` of a created topic, or of a filter that stays below one; None for all others."""
    levels = name.split(b"/", 2)
    if levels[0] != CREATED_ROOT or levels[1:2] in ([b"+"], [b"#"]):
        return None
    return b"/".join(levels[:2])


def is_inbox(name: str) -> bool:
    """True if this is the inbox of a session; topics below it are not."""
    return _INBOX.match(name) is not None


def matches(pattern: bytes, topic: bytes) -> bool:
    """True if a valid filter matches a valid topic. The simple form; matching/topics.py is the fast one."""
    wanted, given = pattern.split(b"/"), topic.split(b"/")
    if wanted[0] in (b"+", b"#") and given[0] in HIDDEN_ROOTS:
        return False
    for position, level in enumerate(wanted):
        if level == b"#":
            return True
        if position >= len(given) or level not in (b"+", given[position]):
            return False
    return len(wanted) == len(given)


def covers(wide: bytes, narrow: bytes) -> bool:
    """True if every topic that ``narrow`` matches is matched by ``wide``. Both are valid filters."""
    outer, inner = wide.split(b"/"), narrow.split(b"/")
    if inner == [b"#"]:
        inner = [b"+", b"#"]  # every topic has a level, so both match the same
    if outer[0] in (b"+", b"#") and inner[0] in HIDDEN_ROOTS:
        return False
    for position, level in enumerate(outer):
        if level == b"#":
            return True
        if position >= len(inner) or inner[position] == b"#":
            return False
        if level not in (b"+", inner[position]):
            return False
    return len(outer) == len(inner)


def overlaps(one: bytes, other: bytes) -> bool:
    """True if some topic is matched by both valid filters."""
    left, right = one.split(b"/"), other.split(b"/")
    for wild, plain in ((left, right), (right, left)):
        if wild[0] in (b"+", b"#") and plain[0] in HIDDEN_ROOTS:
            return False
    for position in range(max(len(left), len(right))):
        a = left[position] if position < len(left) else None
        b = right[position] if position < len(right) else None
        if a == b"#" or b == b"#":
            return True
        if a is None or b is None:
            return False
        if a != b and b"+" not in (a, b):
            return False
    return True


def _name_fault(name: bytes) -> str | None:
    if not name:
        return "it is empty"
    if len(name) > TOPIC_BYTES_MAX:
        return f"it has {len(name)} bytes, at most {TOPIC_BYTES_MAX} are allowed"
    if name.count(b"/") >= TOPIC_LEVELS_MAX:
        return f"it has more than {TOPIC_LEVELS_MAX} levels"
    if name.startswith(b"/") or name.endswith(b"/") or b"//" in name:
        return "it has an empty level"
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8"
    if not text.isprintable():
        return "it has a control or unprintable character"
    return None
