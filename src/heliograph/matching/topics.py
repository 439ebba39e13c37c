"""Topic tables: which filters match a topic, and which topics a filter matches.

In:    valid topics and filters as bytes (model/topics.py checks them), with any hashable value per filter.
Out:   TopicTable.match(topic) → values in the order they were added per filter; TopicSet.matching(filter) → topics.
State: the tables. Exact filters are one dict; filters with wildcards are a trie of levels.
Not here: caching of answers (broker/routes.py), matching one filter with one topic (model/topics.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Generic, TypeVar

from heliograph.model.topics import HIDDEN_ROOTS, is_wild

V = TypeVar("V", bound=Hashable)


class _Branch(Generic[V]):
    """One level of the trie of wildcard filters."""

    __slots__ = ("children", "ending", "plus", "rest")

    def __init__(self) -> None:
        self.children: dict[bytes, _Branch[V]] = {}
        self.plus: _Branch[V] | None = None
        self.ending: dict[V, None] = {}  # filters that end at this level
        self.rest: dict[V, None] = {}  # filters that continue with "#"

    @property
    def is_bare(self) -> bool:
        return not (self.children or self.plus or self.ending or self.rest)


class TopicTable(Generic[V]):
    """Filters with values. A value may be added under many filters, once under each."""

    __slots__ = ("_exact", "_root", "_wild", "visited")

    def __init__(self) -> None:
        self._exact: dict[bytes, dict[V, None]] = {}
        self._root: _Branch[V] = _Branch()
        self._wild = 0
        self.visited = 0  # how many places of the trie the last match visited

    def add(self, pattern: bytes, value: V) -> None:
        """Put a value under a filter."""
        if not is_wild(pattern):
            self._exact.setdefault(pattern, {})[value] = None
            return
        place = self._place(pattern)
        if value not in place:
            place[value] = None
            self._wild += 1

    def remove(self, pattern: bytes, value: V) -> None:
        """Remove a value from a filter, if it is there."""
        if not is_wild(pattern):
            values = self._exact.get(pattern)
            if values is not None and value in values:
                del values[value]
                if not values:
                    del self._exact[pattern]
            return
        path = self._path(pattern)
        if path is None:
            return
        place = path[-1].rest if pattern.endswith(b"#") else path[-1].ending
        if value in place:
            del place[value]
            self._wild -= 1
            self._prune(path, pattern)

    def match(self, topic: bytes) -> list[V]:
        """The values of every filter that matches. A value under two matching filters occurs twice."""
        found: list[V] = []
        exact = self._exact.get(topic)
        if exact is not None:
            found.extend(exact)
        self.visited = 0
        if not self._wild:
            return found
        levels = topic.split(b"/")
        branches = [self._root]
        if levels[0] in HIDDEN_ROOTS:  # wildcards at the first level do not match system topics
            child = self._root.children.get(levels.pop(0))
            branches = [] if child is None else [child]
        for branch in branches:
            found += branch.rest
        for level in levels:  # one flat loop: its body runs some sixty times for a topic of six levels
            following = []
            for branch in branches:
                child = branch.children.get(level)
                if child is not None:
                    following.append(child)
                    if child.rest:
                        found += child.rest
                plus = branch.plus
                if plus is not None:
                    following.append(plus)
                    if plus.rest:
                        found += plus.rest
            branches = following
            self.visited += len(branches)
        for branch in branches:
            if branch.ending:
                found += branch.ending
        return found

    def __len__(self) -> int:
        return self._wild + sum(map(len, self._exact.values()))

    def _place(self, pattern: bytes) -> dict[V, None]:
        branch = self._root
        for level in pattern.split(b"/"):
            if level == b"#":
                return branch.rest
            if level == b"+":
                if branch.plus is None:
                    branch.plus = _Branch()
                branch = branch.plus
            else:
                child = branch.children.get(level)
                if child is None:
                    child = branch.children[level] = _Branch()
                branch = child
        return branch.ending

    def _path(self, pattern: bytes) -> list[_Branch[V]] | None:
        path = [self._root]
        for level in pattern.split(b"/"):
            if level == b"#":
                break
            child = path[-1].plus if level == b"+" else path[-1].children.get(level)
            if child is None:
                return None
            path.append(child)
        return path

    def _prune(self, path: list[_Branch[V]], pattern: bytes) -> None:
        levels = pattern.split(b"/")
        for depth in range(len(path) - 1, 0, -1):
            if not path[depth].is_bare:
                return
            if levels[depth - 1] == b"+":
                path[depth - 1].plus = None
            else:
                del path[depth - 1].children[levels[depth - 1]]


_Tree = dict[bytes | None, Any]
_LEAF: _Tree = {}


class TopicSet:
    """A set of topics that can tell which of them a filter matches, so that a cache forgets only what changed."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Tree = {}  # level -> subtree; None: a topic ends here

    def add(self, topic: bytes) -> None:
        """Add a topic."""
        node = self._root
        for level in topic.split(b"/"):
            child = node.get(level)
            if child is None:
                child = node[level] = {}
            node = child
        node[None] = _LEAF

    def discard(self, topic: bytes) -> None:
        """Remove a topic, if it is there."""
        path = [self._root]
        levels = topic.split(b"/")
        for level in levels:
            child = path[-1].get(level)
            if child is None:
                return
            path.append(child)
        path[-1].pop(None, None)
        for depth in range(len(levels), 0, -1):
            if path[depth]:
                return
            del path[depth - 1][levels[depth - 1]]

    def clear(self) -> None:
        """Forget all topics."""
        self._root = {}

    def matching(self, pattern: bytes, steps_max: int) -> list[bytes] | None:
        """The topics that a filter matches, or None if finding them takes more than ``steps_max`` steps."""
        budget = [steps_max]
        found: list[bytes] = []
        for topic in self._walk(self._root, pattern.split(b"/"), 0, [], budget):
            found.append(topic)
            if budget[0] <= 0:
                return None
        return None if budget[0] <= 0 else found

    def _walk(
        self, node: _Tree, wanted: list[bytes], depth: int, levels: list[bytes], budget: list[int]
    ) -> Iterator[bytes]:
        budget[0] -= 1
        if budget[0] <= 0:
            return
        rest = depth < len(wanted) and wanted[depth] == b"#"
        if None in node and (rest or depth == len(wanted)):
            yield b"/".join(levels)
        if depth >= len(wanted) and not rest:
            return
        want = b"#" if rest else wanted[depth]
        if want in (b"+", b"#"):
            if len(node) > budget[0]:
                budget[0] = 0
                return
            children = [(level, child) for level, child in node.items() if level is not None]
            if not levels:
                children = [(level, child) for level, child in children if level not in HIDDEN_ROOTS]
        else:
            child = node.get(want)
            children = [] if child is None else [(want, child)]
        for level, child in children:
            yield from self._walk(child, wanted, depth if rest else depth + 1, [*levels, level], budget)
