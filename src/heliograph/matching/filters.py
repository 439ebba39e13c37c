"""A trie of topic filters: which of them cover a given filter, and which it covers.

In:    valid filters in canonical form.
Out:   FilterTrie.covering(filter), .covered(filter).
State: the trie: one dict per level.
Not here: comparing two filters (model/topics.py), matching filters with topics (topics.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from heliograph.model.topics import HIDDEN_ROOTS

_END = None  # marks, in a node, that a filter ends there


def canonical(pattern: bytes) -> bytes:
    """One form for filters that match the same: every topic has a first level, so ``+/#`` means ``#``."""
    return b"#" if pattern == b"+/#" else pattern


class FilterTrie:
    """Filters, each once. A filter covers itself."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: dict[Any, Any] = {}

    def add(self, pattern: bytes) -> None:
        """Add a filter."""
        node = self._root
        for level in pattern.split(b"/"):
            node = node.setdefault(level, {})
        node[_END] = pattern

    def remove(self, pattern: bytes) -> None:
        """Remove a filter, which must be there."""
        levels = pattern.split(b"/")
        path = [self._root]
        for level in levels:
            path.append(path[-1][level])
        del path[-1][_END]
        for depth in range(len(levels), 0, -1):
            if path[depth]:
                return
            del path[depth - 1][levels[depth - 1]]

    def covering(self, pattern: bytes) -> Iterator[bytes]:
        """The filters that cover this one, the widest first."""
        nodes = [self._root]
        for depth, level in enumerate(pattern.split(b"/")):
            following: list[dict[Any, Any]] = []
            hidden = depth == 0 and level in HIDDEN_ROOTS  # wildcards at the first level do not match system topics
            for node in nodes:
                if not hidden and b"#" in node:
                    yield node[b"#"][_END]
                if level != b"#":
                    if level in node:
                        following.append(node[level])
                    if level != b"+" and not hidden and b"+" in node:
                        following.append(node[b"+"])
            nodes = following
        for node in nodes:
            if b"#" in node:
                yield node[b"#"][_END]
            if _END in node:
                yield node[_END]

    def covered(self, pattern: bytes) -> list[bytes]:
        """The filters that this one covers."""
        nodes = [self._root]
        for depth, level in enumerate(pattern.split(b"/")):
            if level == b"#":
                return [end for node in nodes for end in _ends(node, depth == 0)]
            following: list[dict[Any, Any]] = []
            for node in nodes:
                if level == b"+":
                    following += [
                        child
                        for key, child in node.items()
                        if key is not _END and key != b"#" and not (depth == 0 and key in HIDDEN_ROOTS)
                    ]
                elif level in node:
                    following.append(node[level])
            nodes = following
        return [node[_END] for node in nodes if _END in node]


def _ends(node: dict[Any, Any], first: bool) -> list[bytes]:
    """Every filter that ends at or below a node."""
    found: list[bytes] = []
    for key, child in node.items():
        if key is _END:
            found.append(child)
        elif not (first and key in HIDDEN_ROOTS):
            found += _ends(child, False)
    return found
