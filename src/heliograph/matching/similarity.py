"""Similarity of a set of requests: how much of it could share answers.

In:    conjunctions, or the sizes of blocks that were found elsewhere.
Out:   the blocks that covering connects; the similarity.
State: none; Forest keeps which numbers are connected.
Not here: millions of requests (pipeline/requests.py), sharing itself (discovery/resources/forwarding.py).
Paper: [resources] §5.1, Definition 1. The formula is printed with n under the root; the example needs it outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from heliograph.matching.boxes.index import BoxIndex
from heliograph.model.predicates import Conjunction


class Forest:
    """Blocks as they grow: which numbers are connected."""

    __slots__ = ("_parent",)

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def find(self, number: int) -> int:
        """The number that represents the block: its smallest."""
        parent = self._parent
        root = number
        while (above := parent.get(root, root)) != root:
            root = above
        while (above := parent.get(number, number)) != root:
            parent[number] = root
            number = above
        return root

    def join(self, one: int, other: int) -> None:
        """Join the blocks of two numbers."""
        a, b = self.find(one), self.find(other)
        if a != b:
            self._parent[max(a, b)] = min(a, b)

    def edges(self) -> list[tuple[int, int]]:
        """Every number that is not the smallest of its block, paired with the smallest."""
        return [(number, self.find(number)) for number in self._parent]


def similarity(sizes: Iterable[int], count: int) -> float:
    """The similarity of ``count`` requests with blocks of these sizes; blocks of one do not count."""
    return sum(size * size for size in sizes if size > 1) ** 0.5 / count if count else 0.0


def blocks(requests: Sequence[Conjunction]) -> list[list[int]]:
    """The requests that covering connects, as places in the sequence; a single request is not a block."""
    index = BoxIndex()
    for place, request in enumerate(requests):
        index.add(place, request)
    forest = Forest()
    for place, request in enumerate(requests):
        for wider in index.coverers(request):
            forest.join(place, wider)
    members: dict[int, list[int]] = {}
    for place in range(len(requests)):
        members.setdefault(forest.find(place), []).append(place)
    return [block for block in members.values() if len(block) > 1]


def similarity_of(requests: Sequence[Conjunction]) -> float:
    """How similar these requests are, from 0 to 1."""
    return similarity((len(block) for block in blocks(requests)), len(requests))
