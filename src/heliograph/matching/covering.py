"""Covering: a set of topic filters, and the smallest part of it that says as much.

In:    filters that come and go, each any number of times.
Out:   CoverSet.roots: the filters that no other filter of the set covers; each add and remove tells how they changed.
State: the filters with their counts, a trie of the roots, and which covered filter hangs under which.
Not here: the trie (filters.py), filters with conditions (interests.py), who tells whom (broker/routing/interests.py).
Paper: [grid] §1.2; [resources] §3.2, covering of subscriptions.

A covered filter hangs under one filter that covers it. When that one goes, what hung under it finds another to hang
under or becomes a root: this is the re-propagation of what a removed interest had covered.
"""

from __future__ import annotations

from heliograph.matching.filters import FilterTrie, canonical

Change = tuple[list[bytes], list[bytes]]
"""Filters that became roots, and filters that no longer are."""


class CoverSet:
    """Filters reduced by covering. ``roots`` keeps the order in which filters became roots."""

    __slots__ = ("_count", "_parent", "_trie", "_under", "roots")

    def __init__(self) -> None:
        self._count: dict[bytes, int] = {}
        self._parent: dict[bytes, bytes] = {}  # covered filter -> the one it hangs under
        self._under: dict[bytes, dict[bytes, None]] = {}
        self._trie = FilterTrie()  # of the roots
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
        self._trie.remove(pattern)
        risen: list[bytes] = []
        for orphan in orphans:
            del self._parent[orphan]
            came, went = self._settle(orphan)
            risen = [root for root in risen if root not in went] + came
        return risen, [pattern]

    def _settle(self, pattern: bytes) -> Change:
        """Hang a filter under a root that covers it, or make it a root and hang what it covers under it."""
        coverer = next(self._trie.covering(pattern), None)
        if coverer is not None:
            self._hang(pattern, coverer)
            return [], []
        covered = self._trie.covered(pattern)
        for root in covered:
            del self.roots[root]
            self._trie.remove(root)
            self._hang(root, pattern)
        self.roots[pattern] = None
        self._trie.add(pattern)
        return [pattern], covered

    def _hang(self, pattern: bytes, under: bytes) -> None:
        self._parent[pattern] = under
        self._under.setdefault(under, {})[pattern] = None
