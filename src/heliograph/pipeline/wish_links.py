"""Links between blocks of wishes: what tasks find connected, and how that changes the number and size of blocks.

In:    groups of wishes of one task (wish_groups.py), or links that other tasks found.
Out:   Linking: a forest of blocks, and which wide wishes are covered, as a batch; merged(); change().
State: the links of one task, merged whenever there are LINKS_KEPT_MAX.
Not here: steps on Spark (requests.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from heliograph.pipeline.points import Array, connected
from heliograph.pipeline.wish_groups import WishGroup, link

LINKS_KEPT_MAX = 1 << 20
SCHEMA = "id long, other long, size long, other_size long"
"""Two blocks with their sizes; or a wide wish that is covered, and nulls."""
_ARROW = pa.schema([(name, pa.int64()) for name in ("id", "other", "size", "other_size")])


class Linking:
    """One task: takes groups of wishes, and returns which blocks wide wishes of other signatures connect."""

    def __init__(self) -> None:
        self._links: list[Array] = []  # four rows: block, other, size, other size
        self._covered: list[Array] = []
        self._kept = 0

    def add(self, wide: list[WishGroup], narrow: list[WishGroup]) -> None:
        """Compare some wishes with wide ones; each of the two come from one table."""
        if not wide:
            return
        blocks, sizes = (wide[0].table.columns[name] for name in ("block", "size"))
        for group in narrow:
            found = link(wide, group)
            columns = group.table.columns
            met = found.count > 0
            rows, firsts, (ones, others) = group.rows[met], found.first[met], found.links
            self._connect(columns["block"][rows], blocks[firsts], columns["size"][rows], sizes[firsts])
            self._connect(blocks[ones], blocks[others], sizes[ones], sizes[others])
            self._covered.append(columns["id"][rows[columns["is_wide"][rows]]])

    def told(self) -> pa.RecordBatch:
        """The links, and the wide wishes that are covered."""
        return _batch(_forest(_joined(self._links)), _joined(self._covered))

    def _connect(self, *links: Array) -> None:
        kept = np.stack(links)
        kept = kept[:, kept[0] != kept[1]]
        self._links.append(kept)
        self._kept += kept.shape[1]
        if self._kept > LINKS_KEPT_MAX:
            self._links = [_forest(_joined(self._links))]
            self._kept = 0


def merged(table: pa.Table) -> pa.RecordBatch:
    """The links of several tasks as those of one."""
    links, covered = _split(table)
    return _batch(_forest(links), np.unique(covered))


def change(table: pa.Table) -> tuple[int, int, float]:
    """What all links, merged, change: wide wishes that are covered, fewer blocks, a larger sum of squares of sizes."""
    links, covered = _split(table)
    roots, firsts, which = np.unique(links[1], return_index=True, return_inverse=True)
    whole = links[3, firsts].copy()
    np.add.at(whole, which, links[2])
    parts = np.concatenate([links[2], links[3, firsts]])
    parts = parts[parts > 1].astype(np.float64)  # a single request was no block
    return len(covered), len(parts) - len(roots), float((whole.astype(np.float64) ** 2).sum() - (parts**2).sum())


def _forest(links: Array) -> Array:
    """The fewest links that connect the same: each block with the one that represents what it is part of."""
    if not links.size:
        return np.zeros((4, 0), np.int64)
    count = links.shape[1]
    numbers, firsts, which = np.unique(np.concatenate([links[0], links[1]]), return_index=True, return_inverse=True)
    sizes = np.concatenate([links[2], links[3]])[firsts]
    root = connected(len(numbers), (which[:count], which[count:]))
    part = root != np.arange(len(numbers))
    return np.stack([numbers[part], numbers[root[part]], sizes[part], sizes[root[part]]])


def _batch(links: Array, covered: Array) -> pa.RecordBatch:
    count = links.shape[1]
    is_covered = np.arange(count + len(covered)) >= count
    columns = [pa.array(np.concatenate([links[0], covered]))]
    columns += [pa.array(np.concatenate([row, covered]), mask=is_covered) for row in links[1:]]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _split(table: pa.Table) -> tuple[Array, Array]:
    """The links, and the wide wishes that are covered."""
    is_link = table.column("other").is_valid()
    links = table.filter(is_link)
    covered = table.column("id").filter(table.column("other").is_null()).to_numpy()
    return np.stack([links.column(name).to_numpy() for name in _ARROW.names]), covered


def _joined(arrays: Sequence[Array]) -> Array:
    return np.concatenate(arrays, axis=-1) if arrays else np.zeros(0, np.int64)
