"""The box index: which of many conjunctions an event matches, and how they compare to another conjunction.

In:    conjunctions under ids that the caller chooses, each for a link; the attributes of events.
Out:   ids in ascending order as a memoryview of 32-bit numbers (``.tolist()`` makes a list); links; a report.
State: one table, or two while a small one is moved into a large one.
Not here: tables (table.py, native.py), conjunctions one by one (box.py), residues (matching/condition.py).
Paper: [resources] §3.2.

Ids are small numbers, used as positions: number entries from 0 on and reuse free ones; ``spare`` gives the next. A
small table is made of Python integers. When it grows, new entries go to a large table, and each call that changes
something moves some entries over; until all are moved, both tables are queried. An index that is emptied is small
again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping

from msgspec import Struct

from heliograph.errors import HeliographError, UsageError
from heliograph.matching.boxes import engines
from heliograph.matching.boxes.box import Box, box
from heliograph.matching.boxes.chunk import Stored
from heliograph.matching.boxes.table import Engine, Table
from heliograph.model.predicates import Conjunction

MOVED_AT_ONCE = 32  # entries per call while a table is moved: well under 1 ms
LINK_MAX = (1 << 32) - 1
ENTRIES_MOST, ATTRIBUTES_MOST = 1 << 31, 1 << 14  # the ranges of ids and attribute numbers in the compiled table


class IndexFullError(HeliographError):
    """A limit of the index was reached; ``bound`` is its name. Nothing was added."""

    def __init__(self, bound: str, what: str) -> None:
        super().__init__(f"{bound}: {what}")
        self.bound = bound


class IndexReport(Struct, frozen=True):
    """How large an index is."""

    engine: str  # python, native or numpy; "python+native" while entries move
    entries: int
    never: int  # entries that no event can match
    attributes: int
    links: int
    size_bytes: int  # of the tables, without boxes that are Python objects


class BoxIndex:
    """Conjunctions by id. ``engine`` forces one form of table, for tests and debugging."""

    def __init__(self, *, entries_max: int = 4_000_000, attributes_max: int = 1_024, engine: str | None = None) -> None:
        if not 0 < entries_max <= ENTRIES_MOST or not 0 < attributes_max <= ATTRIBUTES_MOST:
            raise UsageError(f"an index takes up to {ENTRIES_MOST:,} entries and {ATTRIBUTES_MOST:,} attributes")
        self.entries_max = entries_max
        self.attributes_max = attributes_max  # each costs some rows per chunk of entries
        self._large_name = engines.in_use(engine)
        self._small_max = 0 if engine else engines.SMALL_MAX[self._large_name]
        self._small: Table | None = None
        self._large: Engine | None = None
        self._never: dict[int, int] = {}  # id -> link of entries that no event can match
        self._links: dict[int, int] = {}  # link -> how many entries
        self._free: list[int] = []  # ids below the top that no entry has, in no order …
        self._free_place: dict[int, int] = {}  # … and their places in the list
        self._top = 0
        self._count = 0  # entries in tables

    def __len__(self) -> int:
        return self._count + len(self._never)

    def __contains__(self, id: int) -> bool:
        if id in self._never or (self._large is not None and id in self._large):
            return True
        return self._small is not None and id in self._small

    @property
    def spare(self) -> int:
        """A free id."""
        return self._free[-1] if self._free else self._top

    def add(self, id: int, conjunction: Conjunction, link: int = 0) -> None:
        """Add a conjunction. The id must be free; a link is any 32-bit number."""
        wanted = box(conjunction)
        self._check(id, link, wanted)
        if wanted is None:
            self._never[id] = link
        else:
            self._table_to_grow().put(id, wanted, link)
            self._count += 1
        self._links[link] = self._links.get(link, 0) + 1
        self._take_id(id)
        if self._small is not None:
            self.step()

    def remove(self, id: int) -> None:
        """Remove a conjunction, which must be there."""
        link = self._never.pop(id, None)
        if link is None:
            if id not in self:
                raise UsageError(f"there is no entry {id}")
            table = self._small if self._small is not None and id in self._small else self._large
            assert table is not None
            link = table.drop(id)
            self._count -= 1
        if self._links[link] == 1:
            del self._links[link]
        else:
            self._links[link] -= 1
        self._free_place[id] = len(self._free)
        self._free.append(id)
        if not self._links:
            self._small, self._large, self._top = None, None, 0
            self._free.clear()
            self._free_place.clear()
        if self._small is not None:
            self.step()

    def step(self) -> bool:
        """Move some entries to the large table; False if there is nothing left to move."""
        if self._small is None or self._large is None:
            return False
        for _ in range(MOVED_AT_ONCE):
            moved = self._small.pop()
            if moved is None:
                self._small = None
                return False
            self._large.put(*moved)
        return True

    def match(self, attributes: Mapping[str, object]) -> memoryview:
        """The entries that an event matches."""
        if self._small is None and self._large is not None:
            return memoryview(self._large.match(attributes)).cast("I")
        return self._ask(lambda table: table.match(attributes))

    def match_links(self, attributes: Mapping[str, object]) -> list[int]:
        """The links of the entries that an event matches, each once, in arbitrary order."""
        found: dict[int, None] = {}
        for table in self._tables:
            table.match_links(attributes, found, len(self._links))
        return list(found)

    def coverers(self, conjunction: Conjunction) -> memoryview:
        """The entries that cover this conjunction: every event that matches it matches them."""
        wanted = box(conjunction)
        if wanted is None:
            return self._ask(lambda table: table.ids(), self._never)
        return self._ask(lambda table: table.coverers(wanted))

    def covered(self, conjunction: Conjunction) -> memoryview:
        """The entries that this conjunction covers: every event that matches them matches it."""
        wanted = box(conjunction)
        if wanted is None:
            return memoryview(array("I", sorted(self._never)))
        return self._ask(lambda table: table.covered(wanted), self._never)

    def intersecting(self, conjunction: Conjunction, stored: Stored = Stored.BOXES) -> memoryview:
        """The entries that have an event in common with this conjunction, by the rule of ``stored``."""
        wanted = box(conjunction)
        if wanted is None:
            return memoryview(array("I"))
        return self._ask(lambda table: table.intersecting(wanted, stored))

    def report(self) -> IndexReport:
        """How large it is."""
        tables = self._tables
        return IndexReport(
            engine="+".join(table.name for table in tables) or "none",
            entries=len(self),
            never=len(self._never),
            attributes=len(self._attributes()),
            links=len(self._links),
            size_bytes=sum(table.size() for table in tables),
        )

    def _take_id(self, id: int) -> None:
        self._top = max(self._top, id + 1)
        place = self._free_place.pop(id, None)
        if place is not None:
            last = self._free.pop()
            if last != id:
                self._free[place] = last
                self._free_place[last] = place

    @property
    def _tables(self) -> list[Engine]:
        return [table for table in (self._small, self._large) if table is not None]

    def _table_to_grow(self) -> Engine:
        if self._large is None and self._count >= self._small_max:
            self._large = engines.large(self._large_name)
        if self._large is not None:
            return self._large
        if self._small is None:
            self._small = engines.small()
        return self._small

    def _ask(self, ask: Callable[[Engine], bytes], more: Mapping[int, int] | None = None) -> memoryview:
        """Ids from one table as they are; from several, merged in order."""
        answers = [ask(table) for table in self._tables]
        if len(answers) == 1 and not more:
            return memoryview(answers[0]).cast("I")
        found = array("I", more or ())
        for answer in answers:
            found.frombytes(answer)
        return memoryview(array("I", sorted(found)))

    def _attributes(self) -> Mapping[str, int]:
        if self._small is None or self._large is None:
            only = self._large or self._small
            return {} if only is None else only.attributes
        return {**self._small.attributes, **self._large.attributes}

    def _check(self, id: int, link: int, wanted: Box | None) -> None:
        if not 0 <= id < self.entries_max:
            raise IndexFullError("entries_max", f"id {id} is not from 0 to {self.entries_max - 1:,}")
        if not 0 <= link <= LINK_MAX:
            raise UsageError(f"link {link} is not a number of 32 bits")
        if id in self:
            raise UsageError(f"there is an entry {id} already; remove it first, or take a spare id")
        known = self._attributes()
        if wanted and not wanted.keys() <= known.keys() and len(known.keys() | wanted.keys()) > self.attributes_max:
            raise IndexFullError(
                "attributes_max", f"the entries would name more than {self.attributes_max:,} different attributes"
            )
