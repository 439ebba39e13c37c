"""Request analytics: which requests cover which, the blocks that they form, and how similar a set of requests is.

In:    a table of requests: ``filter``, ``language``, ``where``, and optionally ``time``.
Out:   RequestStudy: wishes, maximal wishes, blocks with their sizes, similarity; what sharing and caching would save.
State: nothing in the driver that grows with the number of requests: it holds signatures, at most SIGNATURES_MAX, and
       the wide wishes if they are few enough to broadcast.
Not here: reading texts (wish_texts.py), covering in one task (wish_groups.py), live covering (matching/interests.py).
Paper: [resources] §5.1; ledger R11.

1. Texts become wishes with signatures.
2. Wishes of equal signature meet in one task (the only shuffle of all of them), which counts equal ones, keeps those
   that no other one there covers, the *wide* ones, and connects all that are covered by the same one. If there are too
   many signatures, this is done again with coarser ones.
3. Every wish is compared with the wide ones of other signatures that could cover it. Covering is transitive, so these
   links connect the same blocks as all links do. A few wide ones are broadcast; many are joined by signature instead.
4. Tasks report which blocks of step 2 they found connected: a forest. Forests are merged in executors, a few at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from heliograph.model.topics import covers as filter_covers
from heliograph.pipeline.points import Array, connected
from heliograph.pipeline.wish_groups import Codes, WishTable, link, widest
from heliograph.pipeline.wish_links import SCHEMA as LINKS
from heliograph.pipeline.wish_links import Linking, change, merged
from heliograph.pipeline.wish_texts import WishKind, WishReader, signature_number
from heliograph.pipeline.wishes import LEVELS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SIGNATURES_MAX = 4_096  # beyond that, coarser ones are used
BROADCAST_MAX = 500_000  # wide wishes of about 100 bytes; more are joined by signature
FOREST_TASKS = 16  # forests that one task merges
TEXTS_KEPT_MAX = 65_536
LIFETIMES_S = (1, 10, 60, 600, 3_600)

_TEXT = ["filter", "language", "where"]
_SIGNATURES = [f"s{level}" for level in range(LEVELS)]  # texts, told once or a few times for each
_TOLD = "".join(f", {name} string" for name in _SIGNATURES)
_READ = "shape binary, bounds binary, requests long, signature long" + _TOLD
_MET = "id long, shape binary, bounds binary, requests long, signature long, is_wide boolean, block long, size long"
_WISH = "length(shape) > 0"  # the other rows of that table count requests that are no wish
_COMPARED = ["id", "shape", "bounds", "is_wide", "block", "size"]
_CHANGE = "covered long, fewer long, more double"


@dataclass(frozen=True, slots=True)
class RequestStudy:
    """The results. The numbers are computed; tables are made when they are wanted."""

    requests: int
    unreadable: int
    never: int  # requests that no event can match
    wishes: int  # different ones
    maximal_wishes: int
    blocks: int
    similarity: float
    how: str  # "broadcast" or "joined": how wide wishes met those of other signatures
    met: DataFrame  # every wish with its part of a block
    links: DataFrame  # between parts of blocks

    def block_sizes(self) -> DataFrame:
        """Each block of two or more requests: block, requests."""
        return _sizes(self.met, self.links)

    def wide(self) -> DataFrame:
        """The maximal wishes: id, key, requests, block."""
        return _maximal(self.met, self.links)

    def figures(self) -> dict[str, Any]:
        """The numbers."""
        shared = 1 - self.maximal_wishes / self.requests if self.requests else 0.0
        return {
            "requests": self.requests,
            "unreadable": self.unreadable,
            "never": self.never,
            "wishes": self.wishes,
            "maximal": self.maximal_wishes,
            "blocks": self.blocks,
            "similarity": round(self.similarity, 4),
            "saved_by_sharing": round(shared, 4),
        }


class _Met(NamedTuple):
    """Wishes after those of equal signature have met, and counts."""

    table: DataFrame
    requests: int
    unreadable: int
    never: int
    wishes: int
    wide: int
    blocks: int
    squares: float
    signatures: tuple[int, ...]  # at each level; those of coarser levels are estimates


def study(requests: DataFrame, broadcast_max: int = BROADCAST_MAX) -> RequestStudy:
    """Blocks and similarity of a set of requests."""
    met, level = _met(requests, 0), 0
    while met.signatures[level] > SIGNATURES_MAX and level < LEVELS - 1:
        level = next((n for n in range(level + 1, LEVELS - 1) if met.signatures[n] <= SIGNATURES_MAX), LEVELS - 1)
        met.table.unpersist()
        met = _met(requests, level)
    few = met.wide <= broadcast_max
    links = (_linked_by_broadcast if few else _linked_by_join)(met.table, f"s{level}").persist()
    changes = _joined(links, _change, _CHANGE).collect()  # first() would end the Python worker
    covered, fewer, more = changes[0] if changes else (0, 0, 0.0)
    return RequestStudy(
        requests=met.requests,
        unreadable=met.unreadable,
        never=met.never,
        wishes=met.wishes,
        maximal_wishes=met.wide - covered,
        blocks=met.blocks - fewer,
        similarity=(met.squares + more) ** 0.5 / met.requests if met.requests else 0.0,
        how="broadcast" if few else "joined",
        met=met.table,
        links=links,
    )


def savings(requests: DataFrame, lifetimes_s: tuple[int, ...] = LIFETIMES_S) -> DataFrame:
    """For each lifetime of a cached answer: how many of the requests it would have answered.

    ``requests`` has ``time``. An answer to a request serves equal requests until it reaches the lifetime; a request at
    that moment, or the next one, fetches a new one. Brokers count the age of shared answers in the same way.
    """
    from pyspark.sql import functions as f

    at = f.col("time").cast("double").alias("at")
    keyed = requests.select(*_TEXT, at).mapInArrow(_read_times, "key binary, at double")
    schema = "lifetime_s long, requests long, saved long"
    asked = keyed.where("length(key) > 0 and at is not null")
    found = asked.groupBy("key").applyInArrow(_hits(lifetimes_s), schema)
    sums = found.groupBy("lifetime_s").agg(f.sum("requests").alias("requests"), f.sum("saved").alias("saved"))
    return sums.withColumn("share", f.round(f.col("saved") / f.col("requests"), 4)).orderBy("lifetime_s")


# -- steps in the driver ----------------------------------------------------------------------------------------------


def _met(requests: DataFrame, level: int) -> _Met:
    """Read the requests, and let wishes of equal signature meet."""
    from pyspark.sql import functions as f

    read = requests.select(*_TEXT).mapInArrow(_reading(level), _READ)
    signed = read.select(f.xxhash64("shape", "bounds").alias("id"), "*").repartition("signature")
    table = signed.mapInArrow(_meeting(level), _MET + _TOLD).persist()
    block = "id = block and size > 1"
    sums = ["requests", "if(shape is null, requests, 0)", "if(length(shape) = 0, requests, 0)", f"int({_WISH})"]
    sums += ["int(is_wide)", f"int({block})", f"if({block}, double(size) * size, 0)"]
    kinds = [(f.count if n == level else f.approx_count_distinct)(name) for n, name in enumerate(_SIGNATURES)]
    counted = [*(f.sum(f.expr(each)) for each in sums), *kinds]
    found = [each or 0 for each in table.agg(*counted).first() or ()]
    requested, unreadable, never, wishes, wide, blocks, squares, *signatures = found
    return _Met(table, requested, unreadable, never, wishes, wide, blocks, squares, tuple(signatures))


def _coverable(signatures: list[str]) -> dict[int, list[int]]:
    """For each signature, those others whose wishes could cover its wishes; all by number."""
    split = [signature.split("\n") for signature in signatures]
    names = {name: bit for bit, name in enumerate(dict.fromkeys(n for tokens in split for n in tokens[1:]))}
    width = max(1, -(-len(names) // 64))
    masks = np.zeros((len(split), width), np.uint64)
    for row, tokens in enumerate(split):
        for name in tokens[1:]:
            masks[row, names[name] // 64] |= np.uint64(1 << (names[name] % 64))
    filters = list(dict.fromkeys(tokens[0] for tokens in split))  # at most SIGNATURES_MAX, or a single empty one
    wider = {
        narrow: {wide for wide in filters if wide == narrow or filter_covers(wide.encode(), narrow.encode())}
        for narrow in filters
    }
    numbers = [signature_number(signature) for signature in signatures]
    found: dict[int, list[int]] = {}
    for row, tokens in enumerate(split):
        fits = np.flatnonzero(((masks & ~masks[row]) == 0).all(axis=1)).tolist()
        allowed = wider[tokens[0]]
        found[numbers[row]] = [numbers[other] for other in fits if other != row and split[other][0] in allowed]
    return found


def _linked_by_broadcast(met: DataFrame, told: str) -> DataFrame:
    wide = met.where("is_wide").select("shape", "bounds", "signature", "block", "size", told).toArrow()
    under = _coverable(wide.column(told).drop_null().to_pylist())
    wide = wide.drop_columns([told])

    def compare(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        codes = Codes()
        groups = WishTable(wide, codes).groups()
        codes.close()
        linking = Linking()
        for batch in batches:
            for signature, narrow in WishTable(pa.Table.from_batches([batch]), codes).groups().items():
                linking.add([group for other in under[signature] for group in groups.get(other, ())], narrow)
        yield linking.told()

    return met.where(_WISH).select(*_COMPARED, "signature").mapInArrow(compare, LINKS)


def _linked_by_join(met: DataFrame, told: str) -> DataFrame:
    from pyspark.sql import functions as f

    under = _coverable([row[0] for row in met.where(f"{told} is not null").select(told).collect()])
    pairs = [(narrow, other) for narrow, wider in under.items() for other in wider]
    table = f.broadcast(met.sparkSession.createDataFrame(pairs, "signature long, wider long"))
    asking = met.join(table, "signature").select(
        *_COMPARED, f.col("wider").alias("signature"), f.lit(True).alias("asks")
    )
    wide = met.where("is_wide").select(*_COMPARED, "signature", f.lit(False).alias("asks"))
    return asking.union(wide).repartition("signature").mapInArrow(_compare, LINKS)


def _sizes(met: DataFrame, links: DataFrame) -> DataFrame:
    """Each block of two or more requests with its size."""
    from pyspark.sql import functions as f

    label = f.coalesce("label", "block").alias("block")
    parts = met.where("id = block").select("block", "size")
    sizes = parts.join(_labels(links), "block", "left").groupBy(label).agg(f.sum("size").alias("requests"))
    return sizes.where("requests > 1")


def _maximal(met: DataFrame, links: DataFrame) -> DataFrame:
    """The maximal wishes with their blocks."""
    from pyspark.sql import functions as f

    key = f.when(f.isnull("bounds"), f.col("shape")).otherwise(f.concat("shape", f.lit(b"\0"), "bounds")).alias("key")
    covered = links.where("other is null").select("id")
    wide = met.where("is_wide").join(covered, "id", "left_anti").join(_labels(links), "block", "left")
    return wide.select("id", key, "requests", f.coalesce("label", "block").alias("block"))


def _labels(links: DataFrame) -> DataFrame:
    """Each block that is part of a larger one, and what that is called."""
    from pyspark.sql import functions as f

    every = _joined(links, _join, LINKS).where("other is not null")
    return every.select(f.col("id").alias("block"), f.col("other").alias("label"))


def _joined(links: DataFrame, last: Any, schema: str) -> DataFrame:
    """Merge what tasks found, a few tasks at a time; the last one merges all. No link passes through the driver."""
    parts = links.sparkSession.conf.get("spark.sql.shuffle.partitions") or "4"
    tasks = int(parts) // FOREST_TASKS
    while tasks > 1:
        links = links.repartition(tasks).mapInArrow(_join, LINKS)
        tasks //= FOREST_TASKS
    return links.repartition(1).mapInArrow(last, schema)


# -- steps in tasks ---------------------------------------------------------------------------------------------------


def _reading(level: int) -> Any:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert texts to wishes. The text of a signature is told once, as far as memory is there to know."""
        reader = WishReader()
        told: set[WishKind] = set()
        for batch in batches:
            texts = pa.Table.from_batches([batch]).group_by(_TEXT).aggregate([([], "count_all")])
            kinds: dict[WishKind, int] = {}
            numbers, bounds = [], []
            for pattern, language, where in zip(*(texts.column(name).to_pylist() for name in _TEXT), strict=True):
                kind, found = reader.read(pattern or "#", language or "", where or "")
                numbers.append(kinds.setdefault(kind, len(kinds)))
                bounds.append(found)
            columns = [pa.array(bounds, pa.binary()), texts.column("count_all").cast(pa.int64()).combine_chunks()]
            yield _read_columns(list(kinds), np.array(numbers, np.int64), columns, told, level)
            if len(told) > TEXTS_KEPT_MAX:
                told.clear()

    return read


def _read_columns(
    kinds: list[WishKind], numbers: Array, columns: list[pa.Array], told: set[WishKind], level: int
) -> pa.RecordBatch:
    which, firsts = pa.array(numbers), np.unique(numbers, return_index=True)[1]
    is_old = np.ones(len(numbers), bool)
    is_old[firsts] = [kind in told for kind in kinds]
    told.update(kinds)
    news = pa.array(numbers, mask=is_old)
    shapes = pa.array([kind.shape for kind in kinds], pa.binary()).take(which)
    signatures = pa.array([kind.numbers[level] for kind in kinds], pa.int64()).take(which)
    texts = [pa.array([kind.signatures[n] for kind in kinds], pa.string()).take(news) for n in range(LEVELS)]
    names = ["shape", "bounds", "requests", "signature", *_SIGNATURES]
    return pa.RecordBatch.from_arrays([shapes, *columns, signatures, *texts], names)


def _read_times(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Convert texts to keys, each with its time. Most texts repeat."""
    reader = WishReader()
    known: dict[tuple[Any, ...], bytes | None] = {}
    for batch in batches:
        texts = zip(*(batch.column(name).to_pylist() for name in _TEXT), strict=True)
        keys = []
        for text in texts:
            if text not in known:
                if len(known) >= TEXTS_KEPT_MAX:
                    known.clear()
                pattern, language, where = text
                kind, bounds = reader.read(pattern or "#", language or "", where or "")
                known[text] = kind.shape if kind.shape is None or bounds is None else kind.shape + b"\0" + bounds
            keys.append(known[text])
        yield pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), batch.column("at")], ["key", "at"])


def _meeting(level: int) -> Any:
    def meet(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Whole signatures: count equal wishes, find the wide ones, and connect what they cover."""
        table = _table(batches)
        if table is None:
            return
        texts = table.filter(table.column(f"s{level}").is_valid()).select(["signature", *_SIGNATURES]).to_pydict()
        told = dict(zip(texts.pop("signature"), zip(*texts.values(), strict=True), strict=True))
        ids, firsts, which = np.unique(table.column("id").to_numpy(), return_index=True, return_inverse=True)
        requests = np.zeros(len(ids), np.int64)
        np.add.at(requests, which, table.column("requests").to_numpy())
        table = table.select(["id", "shape", "bounds", "requests", "signature"]).take(pa.array(firsts))
        table = table.set_column(3, "requests", pa.array(requests))
        is_wish = pc.fill_null(pc.greater(pc.binary_length(table.column("shape")), 0), False)
        both = [_blocks(table.filter(is_wish), told), table.filter(pc.invert(is_wish))]
        yield from pa.concat_tables(both, promote_options="default").to_batches()

    return meet


def _blocks(table: pa.Table, told: dict[int, tuple[str, ...]]) -> pa.Table:
    """Wishes of whole signatures with their blocks; the first wide one of each signature tells its text."""
    ids, requests = (table.column(name).to_numpy() for name in ("id", "requests"))
    first, is_wide = np.zeros(len(ids), np.int64), np.zeros(len(ids), bool)
    ones, others = [first[:0]], [first[:0]]
    teller: dict[int, tuple[str, ...]] = {}
    for signature, groups in WishTable(table, Codes()).groups().items():
        wide = widest(groups)
        for group in groups:
            found = link(wide, group)
            first[group.rows] = found.first
            is_wide[group.rows] = (found.count == 1) & (found.first == group.rows)  # only itself covers it
            ones.append(found.links[0])
            others.append(found.links[1])
        teller[next(int(row) for group in groups for row in group.rows[is_wide[group.rows]])] = told[signature]
    root = connected(len(ids), (np.concatenate(ones), np.concatenate(others)))[first]
    size = np.zeros(len(ids), np.int64)
    np.add.at(size, root, requests)
    columns = {"is_wide": is_wide, "block": ids[root], "size": size[root]}
    for name, column in columns.items():
        table = table.append_column(name, pa.array(column))
    for level, name in enumerate(_SIGNATURES):
        texts: list[str | None] = [None] * len(ids)
        for row, signatures in teller.items():
            texts[row] = signatures[level]
        table = table.append_column(name, pa.array(texts, pa.string()))
    return table


def _compare(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Whole signatures: compare the wishes that ask with the wide ones."""
    table = _table(batches)
    if table is None:
        return
    asks = table.column("asks")
    codes = Codes()
    wide = WishTable(table.filter(pc.invert(asks)), codes).groups()
    codes.close()
    linking = Linking()
    for signature, narrow in WishTable(table.filter(asks), codes).groups().items():
        linking.add(wide.get(signature, []), narrow)
    yield linking.told()


def _join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    table = _table(batches)
    if table is not None:
        yield merged(table)


def _change(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    table = _table(batches)
    if table is not None:
        columns = zip(("covered", "fewer", "more"), change(pa.Table.from_batches([merged(table)])), strict=True)
        yield pa.RecordBatch.from_pydict({name: [value] for name, value in columns})


def _table(batches: Iterable[pa.RecordBatch]) -> pa.Table | None:
    """All of them; None if there are no rows."""
    every = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(every).combine_chunks() if every else None


def _hits(lifetimes_s: tuple[int, ...]) -> Any:
    def count(table: pa.Table) -> pa.Table:
        times = np.sort(np.array(table.column("at").to_pylist(), np.float64))
        rows = [(lifetime, len(times), len(times) - _fetches(times, lifetime)) for lifetime in lifetimes_s]
        columns = zip(("lifetime_s", "requests", "saved"), zip(*rows, strict=True), strict=True)
        return pa.table({name: pa.array(column, pa.int64()) for name, column in columns})

    return count


def _fetches(times: Any, lifetime: float) -> int:
    """How many of these instants, in order, find no answer that is recent enough."""
    count, place = 0, 0
    while place < len(times):
        count += 1
        place = max(place + 1, int(np.searchsorted(times, times[place] + lifetime, side="left")))
    return count
