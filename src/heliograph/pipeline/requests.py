"""Request analytics: which requests cover which, the blocks that they form, and how similar a set of requests is.

In:    a table of requests: ``filter``, ``language``, ``where``, and optionally ``time``.
Out:   RequestStudy: wishes, maximal wishes, blocks with their sizes, similarity; what sharing and caching would save.
State: nothing in the driver that grows with the number of requests: it holds signatures, at most SIGNATURES_MAX, and
       the wide wishes if they are few enough to broadcast.
Not here: what a wish is (wishes.py), live covering (matching/interests.py).
Paper: [resources] §5.1; ledger R11.

1. Equal requests become one wish with a count (one shuffle by the text, one by the wish).
2. Wishes of equal signature meet in one task, which keeps those that no other one there covers: the *wide* ones.
3. Every wish is compared with the wide ones of the signatures that could cover it. Covering is transitive, so these
   links connect the same blocks as all links do. A few wide ones are broadcast; many are joined by signature instead.
4. Each task reports the wide wish that covers each wish, and which wide wishes it found connected: a forest. Forests
   are merged in executors, a few at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from heliograph.matching.similarity import Forest
from heliograph.model.topics import covers as filter_covers
from heliograph.pipeline.wishes import LEVELS, Coverers, Wish, from_key, key_of, maximal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIGNATURES_MAX = 4_096  # beyond that, coarser ones are used
BROADCAST_MAX = 50_000  # wide wishes; more are joined by signature
FOREST_TASKS = 4  # forests that one task merges
BATCH_ROWS = 65_536
TEXTS_KEPT_MAX = 65_536
LIFETIMES_S = (1, 10, 60, 600, 3_600)

_WISHES = "key binary, requests long"
_SIGNED = "id long, key binary, requests long, signature string"
_SIGNED_AT_EACH_LEVEL = "id long, key binary, requests long, " + ", ".join(f"s{n} string" for n in range(LEVELS))
_LINKS = "kind string, id long, other long, requests long"


@dataclass(frozen=True, slots=True)
class RequestStudy:
    """The results. The tables are lazy DataFrames; the numbers are computed."""

    requests: int
    unreadable: int
    never: int  # requests that no event can match
    wishes: int  # different ones
    maximal_wishes: int
    blocks: int
    similarity: float
    block_sizes: DataFrame  # block, requests
    wide: DataFrame  # id, key, requests, block: the maximal wishes
    how: str  # "broadcast" or "joined"

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
            "how": self.how,
        }


class _Counts(NamedTuple):
    """Counts of a set of requests; wishes are the different ones that can be read."""

    requests: int
    wishes: int
    unreadable: int
    never: int


def study(requests: DataFrame, broadcast_max: int = BROADCAST_MAX) -> RequestStudy:
    """Blocks and similarity of a set of requests."""
    from pyspark.sql import functions as f

    spark = requests.sparkSession
    texts = requests.groupBy("filter", "language", "where").agg(f.count(f.lit(1)).alias("requests"))
    found = texts.mapInArrow(_read, _WISHES)
    wishes = found.groupBy("key").agg(f.sum("requests").alias("requests")).persist()
    sums = ("requests", "int(length(key) > 0)", "if(key is null, requests, 0)", "if(length(key) = 0, requests, 0)")
    counted = wishes.agg(*(f.sum(f.expr(each)) for each in sums)).first() or ()
    counts = _Counts(*(int(each or 0) for each in counted))
    every = wishes.where("length(key) > 0").mapInArrow(_sign, _SIGNED_AT_EACH_LEVEL).persist()
    signed = every.select("id", "key", "requests", f.col(f"s{_level(every)}").alias("signature"))
    under = _coverable([row["signature"] for row in signed.select("signature").distinct().collect()])
    wide = signed.groupBy("signature").applyInArrow(_keep_wide, _SIGNED).persist()
    kept = wide.count()
    few = kept <= broadcast_max
    links = (_linked_by_broadcast if few else _linked_by_join)(spark, signed, wide, under).persist()
    return _blocks(wide, kept, links, counts, "broadcast" if few else "joined")


def savings(requests: DataFrame, lifetimes_s: tuple[int, ...] = LIFETIMES_S) -> DataFrame:
    """For each lifetime of a cached answer: how many of the requests it would have answered.

    ``requests`` has ``time``. An answer to a request serves equal requests until it reaches the lifetime; the next
    request fetches a new one.
    """
    from pyspark.sql import functions as f

    at = f.col("time").cast("double").alias("at")
    keyed = requests.select("filter", "language", "where", at).mapInArrow(_read_times, "key binary, at double")
    schema = "lifetime_s long, requests long, saved long"
    asked = keyed.where("length(key) > 0 and at is not null")
    found = asked.groupBy("key").applyInArrow(_hits(lifetimes_s), schema)
    sums = found.groupBy("lifetime_s").agg(f.sum("requests").alias("requests"), f.sum("saved").alias("saved"))
    return sums.withColumn("share", f.round(f.col("saved") / f.col("requests"), 4)).orderBy("lifetime_s")


# -- steps in the driver ----------------------------------------------------------------------------------------------


def _level(signed: DataFrame) -> int:
    """The level of the finest signatures that are few enough."""
    from pyspark.sql import functions as f

    counts = signed.agg(*(f.approx_count_distinct(f"s{n}").alias(f"s{n}") for n in range(LEVELS))).first()
    assert counts is not None
    for level in range(LEVELS - 1):
        if counts[level] <= SIGNATURES_MAX * 0.9:
            return level
    return LEVELS - 1


def _coverable(signatures: list[str]) -> dict[str, list[str]]:
    """For each signature, those whose wishes could cover its wishes."""
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
    found: dict[str, list[str]] = {}
    for row, tokens in enumerate(split):
        fits = np.flatnonzero(((masks & ~masks[row]) == 0).all(axis=1)).tolist()
        allowed = wider[tokens[0]]
        found[signatures[row]] = [signatures[other] for other in fits if split[other][0] in allowed]
    return found


def _linked_by_broadcast(
    spark: SparkSession, signed: DataFrame, wide: DataFrame, under: dict[str, list[str]]
) -> DataFrame:
    rows = [(row["id"], bytes(row["key"]), row["signature"]) for row in wide.select("id", "key", "signature").collect()]

    def link(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        groups = _groups(rows)
        coverable = {narrow: [groups[s] for s in wider if s in groups] for narrow, wider in under.items()}
        yield from _Linking(alone=True).run(batches, coverable.__getitem__)

    return signed.mapInArrow(link, _LINKS)


def _linked_by_join(spark: SparkSession, signed: DataFrame, wide: DataFrame, under: dict[str, list[str]]) -> DataFrame:
    from pyspark.sql import functions as f

    pairs = [(narrow, wider) for narrow, all_wider in under.items() for wider in all_wider]
    table = f.broadcast(spark.createDataFrame(pairs, "signature string, wider string"))
    asking = signed.join(table, "signature").select("id", "key", "requests", f.col("wider").alias("signature"))

    def link(left: pa.Table, right: pa.Table) -> pa.Table:
        columns = [right.column(name).to_pylist() for name in ("id", "key", "signature")]
        every = list(_groups(list(zip(*columns, strict=True))).values())
        told = _Linking(alone=False).run(iter(left.to_batches()), lambda _: every)
        return pa.Table.from_batches(told, schema=_LINKS_ARROW)

    return asking.groupBy("signature").cogroup(wide.groupBy("signature")).applyInArrow(link, _LINKS)


def _blocks(wide: DataFrame, kept: int, links: DataFrame, counts: _Counts, how: str) -> RequestStudy:
    """Combine what the tasks found."""
    from pyspark.sql import functions as f

    forest = links.where("kind = 'edge'").select("id", "other")
    members = links.where("kind = 'member'").select("id", "other", "requests")
    hanging = members
    if how == "joined":  # a wish was compared with each signature separately, so it connects all wishes that cover it
        hanging = members.groupBy("id").agg(f.min("other").alias("other"), f.max("requests").alias("requests"))
        first = hanging.select("id", f.col("other").alias("first"))
        forest = forest.union(members.join(first, "id").where("other != first").select("other", "first"))
    labels = _joined(forest).select(f.col("id"), f.col("other").alias("block"))
    under = hanging.groupBy(f.col("other").alias("id")).agg(f.sum("requests").alias("requests"))
    covered = links.where("kind = 'covered'").select("id").distinct().join(wide.select("id"), "id", "left_semi")
    labelled = (
        under.join(labels, "id", "left")
        .select(f.coalesce("block", "id").alias("block"), "requests")
        .groupBy("block")
        .agg(f.sum("requests").alias("requests"))
        .where("requests > 1")
        .persist()
    )
    squares, blocks = labelled.agg(f.sum(f.col("requests").cast("double") ** 2), f.count(f.lit(1))).first() or (0, 0)
    top = wide.join(covered, "id", "left_anti").join(labels, "id", "left")
    return RequestStudy(
        requests=counts.requests,
        unreadable=counts.unreadable,
        never=counts.never,
        wishes=counts.wishes,
        maximal_wishes=kept - covered.count(),
        blocks=blocks,
        similarity=float(squares or 0) ** 0.5 / counts.requests if counts.requests else 0.0,
        block_sizes=labelled,
        wide=top.select("id", "key", "requests", f.coalesce("block", "id").alias("block")),
        how=how,
    )


def _joined(forest: DataFrame) -> DataFrame:
    """Merge many forests: tasks merge a few at a time, the last one merges all. No edge passes through the driver."""
    parts = forest.sparkSession.conf.get("spark.sql.shuffle.partitions") or "4"
    tasks = int(parts)
    while tasks > 1:
        tasks = max(1, tasks // FOREST_TASKS)
        forest = forest.repartition(tasks).mapInArrow(_join_forest, "id long, other long")
    return forest.persist()


# -- steps in tasks ---------------------------------------------------------------------------------------------------

_LINKS_ARROW = pa.schema([("kind", pa.string()), ("id", pa.int64()), ("other", pa.int64()), ("requests", pa.int64())])


def _read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Convert texts to keys."""
    for batch in batches:
        texts = zip(*(batch.column(name).to_pylist() for name in ("filter", "language", "where")), strict=True)
        keys = [key_of(pattern or "#", language or "", where or "") for pattern, language, where in texts]
        yield pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), batch.column("requests")], ["key", "requests"])


def _read_times(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Convert texts to keys, each with its time. Most texts repeat."""
    known: dict[tuple[Any, ...], bytes | None] = {}
    for batch in batches:
        texts = zip(*(batch.column(name).to_pylist() for name in ("filter", "language", "where")), strict=True)
        keys = []
        for text in texts:
            if text not in known:
                if len(known) >= TEXTS_KEPT_MAX:
                    known.clear()
                pattern, language, where = text
                known[text] = key_of(pattern or "#", language or "", where or "")
            keys.append(known[text])
        yield pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), batch.column("at")], ["key", "at"])


def _sign(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give each wish an id and its signature at each level."""
    for batch in batches:
        keys = batch.column("key").to_pylist()
        ids = [int.from_bytes(blake2b(key, digest_size=8).digest(), "big", signed=True) for key in keys]
        wishes = [from_key(key) for key in keys]
        signatures = [["\n".join(wish.tokens(level)) for wish in wishes] for level in range(LEVELS)]
        columns = [pa.array(ids, pa.int64()), batch.column("key"), batch.column("requests")]
        columns += [pa.array(some, pa.string()) for some in signatures]
        names = ["id", "key", "requests", *(f"s{level}" for level in range(LEVELS))]
        yield pa.RecordBatch.from_arrays(columns, names)


def _keep_wide(table: pa.Table) -> pa.Table:
    """The wishes of one signature that no other of them covers."""
    wishes = [from_key(key) for key in table.column("key").to_pylist()]
    order = sorted(range(len(wishes)), key=lambda place: (len(wishes[place].box), len(wishes[place].terms)))
    kept = maximal(wishes[place] for place in order)
    return table.take(pa.array(sorted(order[place] for place in kept), pa.int64()))


class _WideGroup:
    """Wide wishes of one signature in one task, by filter: only one, unless signatures omit the filter."""

    __slots__ = ("by_filter", "ids", "wild")

    def __init__(self) -> None:
        self.by_filter: dict[bytes, Coverers] = {}
        self.wild: list[bytes] = []  # filters that cover others
        self.ids: list[int] = []

    def add(self, id: int, wish: Wish) -> None:
        coverers = self.by_filter.get(wish.filter)
        if coverers is None:
            coverers = self.by_filter[wish.filter] = Coverers()
            if b"+" in wish.filter or b"#" in wish.filter:
                self.wild.append(wish.filter)
        coverers.add(len(self.ids), wish)
        self.ids.append(id)

    def covering(self, wish: Wish) -> list[int]:
        own = [wish.filter] if wish.filter in self.by_filter and wish.filter not in self.wild else []
        wider = [pattern for pattern in self.wild if filter_covers(pattern, wish.filter)]
        return [self.ids[number] for each in own + wider for number in self.by_filter[each].covering(wish)]


def _groups(rows: list[tuple[int, bytes, str]]) -> dict[str, _WideGroup]:
    groups: dict[str, _WideGroup] = {}
    for id, key, signature in rows:
        groups.setdefault(signature, _WideGroup()).add(id, from_key(key))
    return groups


class _Linking:
    """One task: takes wishes, and returns their links to wide ones."""

    def __init__(self, alone: bool) -> None:
        self.alone = alone  # no other task compares the same wishes with others
        self.forest = Forest()
        self.rows: list[tuple[str, int, int, int]] = []

    def run(self, batches: Iterator[pa.RecordBatch], groups_of: Any) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in ("id", "key", "requests", "signature")]
            for id, key, requests, signature in zip(*columns, strict=True):
                self._link(id, from_key(key), requests, groups_of(signature))
            if len(self.rows) >= BATCH_ROWS:
                yield self._told()
        self.rows += [("edge", number, root, 0) for number, root in self.forest.edges()]
        yield self._told()

    def _link(self, id: int, wish: Wish, requests: int, groups: list[_WideGroup]) -> None:
        found = [wide for group in groups for wide in group.covering(wish)]
        if not found:
            return  # its own signature has one that covers it, perhaps itself
        is_wide = id in found
        if len(found) > is_wide and (is_wide or not self.alone):
            self.rows.append(("covered", id, 0, 0))  # even if it was wide within its signature, it is not maximal
        first = min(found)
        for other in found:
            self.forest.join(first, other)
        self.rows.append(("member", id, first, requests))

    def _told(self) -> pa.RecordBatch:
        rows, self.rows = self.rows, []
        columns = list(zip(*rows, strict=True)) or [()] * 4
        return pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, _LINKS_ARROW, strict=True)],
            schema=_LINKS_ARROW,
        )


def _join_forest(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    forest = Forest()
    for batch in batches:
        for one, other in zip(batch.column("id").to_pylist(), batch.column("other").to_pylist(), strict=True):
            forest.join(one, other)
    edges = list(zip(*forest.edges(), strict=True)) or [()] * 2
    yield pa.RecordBatch.from_arrays([pa.array(column, pa.int64()) for column in edges], ["id", "other"])


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
        place = int(np.searchsorted(times, times[place] + lifetime, side="right"))
    return count
