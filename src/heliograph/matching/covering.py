"""Covering: a set of topic filters, and the smallest part of it that says as much.

In:    filters that come and go, each any number of times.
Out:   CoverSet.roots: the filters that no other filter of the set covers; each add and remove tells how they changed.
State: the filters with their counts, a trie of the roots, and which covered filter hangs under which.
Not here: one filter against another (model/topics.py), who tells whom (broker/routing/interests.py).
Paper: [grid] §1.2; [resources] §3.2, covering of subscriptions.

A covered filter hangs under one filter that covers it. When that one goes, what hung under it finds another to hang
under or becomes a root: this is the re-propagation of what a removed interest had covered.
"""

from __future__ import annotations

from typing import Any

from heliograph.model.topics import HIDDEN_ROOTS

_END = None  # marks, in a trie node, that a filter ends there
Change = tuple[list[bytes], list[bytes]]
"""Filters that became roots, and filters that no longer are."""


def canonical(pattern: bytes) -> bytes:
    """One form for the two filters that match the same: every topic has a first level, so ``+/#`` says ``#``."""
    return b"#" if pattern == b"+/#" else pattern


class CoverSet:
    """Filters reduced by covering. ``roots`` keeps the order in which filters became roots."""

    __slots__ = ("_count", "_parent", "_trie", "_under", "roots")

    def __init__(self) -> None:
        self._count: dict[bytes, int] = {}
        self._parent: dict[bytes, bytes] = {}  # covered filter -> the one it hangs under
        self._under: dict[bytes, dict[bytes, None]] = {}
        self._trie: dict[Any, Any] = {}
        self.roots: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._count)

    def __contains__(self, pattern: bytes) -> bool:
        return canonical(pattern) in self._count

    def add(self, pattern: bytes) -> Change:
        """A filter comes (once more)."""
        pattern = canonical(pattern)
        count = self._count.get(pattern, 0)
        self._count[pattern] = count + 1
        if count:
            return [], []
        return self._settle(pattern)

    def remove(self, pattern: bytes) -> Change:
        """A filter goes (once); it must be there."""
        pattern = canonical(pattern)
        count = self._count[pattern]
        if count > 1:
            self._count[pattern] = count - 1
            return [], []
        del self._count[pattern]
        orphans = list(self._under.pop(pattern, ()))
        parent = self._parent.pop(pattern, None)
        if parent is not None:
            hanging = self._under[parent]
            del hanging[pattern]
            for orphan in orphans:  # what covers the covering covers them too
                self._parent[orphan] = parent
                hanging[orphan] = None
            if not hanging:
                del self._under[parent]
            return [], []
        del self.roots[pattern]
        self._uproot(pattern)
        risen: list[bytes] = []
        for orphan in orphans:
            del self._parent[orphan]
            came, went = self._settle(orphan)
            risen = [root for root in risen if root not in went] + came
        return risen, [pattern]

    def _settle(self, pattern: bytes) -> Change:
        """Hang a filter under a root that covers it, or make it a root and hang what it covers under it."""
        coverer = self._coverer(pattern)
        if coverer is not None:
            self._hang(pattern, coverer)
            return [], []
        covered = self._covered(pattern)
        for root in covered:
            del self.roots[root]
            self._uproot(root)
            self._hang(root, pattern)
        self.roots[pattern] = None
        node = self._trie
        for level in pattern.split(b"/"):
            node = node.setdefault(level, {})
        node[_END] = pattern
        return [pattern], covered

    def _hang(self, pattern: bytes, under: bytes) -> None:
        self._parent[pattern] = under
        self._under.setdefault(under, {})[pattern] = None

    def _uproot(self, pattern: bytes) -> None:
        levels = pattern.split(b"/")
        path = [self._trie]
        for level in levels:
            path.append(path[-1][level])
        del path[-1][_END]
        for depth in range(len(levels), 0, -1):
            if path[depth]:
                return
            del path[depth - 1][levels[depth - 1]]

    def _coverer(self, pattern: bytes) -> bytes | None:
        """A root that covers this filter."""
        levels = pattern.split(b"/")
        nodes = [self._trie]
        for depth, level in enumerate(levels):
            following: list[dict[Any, Any]] = []
            hidden = depth == 0 and level in HIDDEN_ROOTS  # wildcards at the first level do not see system topics
            for node in nodes:
                if not hidden and b"#" in node:
                    found: bytes = node[b"#"][_END]
                    return found
                if level != b"#":
                    if level in node:
                        following.append(node[level])
                    if level != b"+" and not hidden and b"+" in node:
                        following.append(node[b"+"])
            nodes = following
        for node in nodes:
            coverer: bytes | None = node.get(_END) or (node[b"#"][_END] if b"#" in node else None)
            if coverer is not None:
                return coverer
        return None

    def _covered(self, pattern: bytes) -> list[bytes]:
        """The roots that this filter covers."""
        levels = pattern.split(b"/")
        nodes = [self._trie]
        for depth, level in enumerate(levels):
            if level == b"#":
                return [root for node in nodes for root in _ends(node, depth == 0)]
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
