"""Points: which of many points lie below which, in every coordinate, and which of them that connects.

In:    matrices with a point per row.
Out:   minimal(): the points that no other one is below; below(): for each point of one set, what of another set is
       below it; connected(): the parts that links connect.
State: none. Needs numpy.
Not here: what the points mean (wish_groups.py: a plain wish is below those that it covers).

``below`` divides the upper points in two until few are left that are much alike. Lower points that exceed all of a part
in some coordinate are left out there, and so are coordinates in which all lower points are below all of the part. So
two sets of which few points are below each other take little more time than sorting them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

CELLS = 1 << 16  # pairs that are compared in one step: they stay in the cache
FEW = 8  # upper points, which are not divided any further
FIRST_PART = 128

Array = Any  # of numpy, whose types say little


class Below(NamedTuple):
    """For each upper point: a lower point that is below it, -1 if there is none, and how many there are.

    The links connect, for each upper point, all lower points that are below it.
    """

    first: Array
    count: Array
    links: tuple[Array, Array]


def minimal(points: Array) -> Array:
    """The places of those points that no other point is below. All points must be different."""
    rest = np.argsort(_ranks(points).sum(axis=1), kind="stable")  # a point comes after all that are below it
    kept, size = [rest[:0]], FIRST_PART
    while len(rest):
        part, rest = rest[:size], rest[size:]
        part = part[below(points[part], points[part]).count == 1]
        rest = rest[below(points[part], points[rest]).count == 0]
        kept.append(part)
        size *= 2
    return np.sort(np.concatenate(kept))


def below(lower: Array, upper: Array) -> Below:
    """Which lower points are below each upper one; equal points are below each other."""
    first = np.full(len(upper), -1, np.int64)
    count = np.zeros(len(upper), np.int64)
    links = [first[:0]]
    parts = [(np.arange(len(lower)), np.arange(len(upper)), lower, upper)] if len(lower) and len(upper) else []
    while parts:
        low, up, a, b = parts.pop()
        fits = (a <= b.max(axis=0)).all(axis=1)
        low, a = low[fits], a[fits]
        if not len(low):
            continue
        above = (a > b.min(axis=0)).sum(axis=0)
        a, b, above = a[:, above > 0], b[:, above > 0], above[above > 0]
        if not len(above):  # every one of these is below every one of those
            first[up], count[up] = low[0], len(low)
            links.append(low[:-1] * len(lower) + low[1:])
        elif len(low) * len(up) <= CELLS or len(up) <= FEW:
            found = b[:, 0, None] >= a[:, 0]
            for column in range(1, len(above)):
                found &= b[:, column, None] >= a[:, column]
            uppers, lowers = found.nonzero()
            count[up] = found.sum(axis=1)
            first[up[uppers[::-1]]] = low[lowers[::-1]]  # the last one that is written is the first
            linked = low[lowers]
            links.append((linked[:-1] * len(lower) + linked[1:])[uppers[1:] == uppers[:-1]])
        else:
            half = len(up) // 2
            order = np.argpartition(b[:, above.argmax()], half)
            parts += [(low, up[some], a, b[some]) for some in (order[:half], order[half:])]
    pairs = np.unique(np.concatenate(links))
    return Below(first, count, np.divmod(pairs, max(1, len(lower))))


def connected(size: int, links: tuple[Array, Array]) -> Array:
    """For each number below ``size``, the smallest number of its part."""
    part = np.arange(size)
    ones, others = links
    while len(ones):
        a, b = part[ones], part[others]
        apart = a != b
        ones, others, a, b = ones[apart], others[apart], a[apart], b[apart]
        np.minimum.at(part, np.maximum(a, b), np.minimum(a, b))
        while not np.array_equal(part, part[part]):
            part = part[part]
    return part


def _ranks(points: Array) -> Array:
    ranks = [np.unique(points[:, column], return_inverse=True)[1] for column in range(points.shape[1])]
    return np.stack(ranks, axis=1) if ranks else np.zeros((len(points), 1), np.int64)
