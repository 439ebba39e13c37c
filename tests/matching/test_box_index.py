"""The box index against the oracle, for every engine, under entries that come and go."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.errors import UsageError
from heliograph.matching.boxes import engines
from heliograph.matching.boxes.box import covers, intersects, overlaps
from heliograph.matching.boxes.chunk import Stored
from heliograph.matching.boxes.index import BoxIndex, IndexFullError
from heliograph.model.predicates import Conjunction, Op, Predicate
from tests.matching.box_oracle import boxes, events, fits

ENGINES = [name for name in ("native", "numpy", "python") if engines.is_there(name)]
CHANGES = st.lists(st.tuples(st.booleans(), st.integers(0, 40), boxes), min_size=1, max_size=60)


@pytest.fixture(params=[*ENGINES, "switching"], scope="module")
def new_index(request: pytest.FixtureRequest) -> Iterator[Callable[[], BoxIndex]]:
    """Every engine, and an index that changes from Python integers to the best there is after four entries."""
    if request.param != "switching":
        yield lambda: BoxIndex(engine=request.param)
        return

    def switching() -> BoxIndex:
        index = BoxIndex()
        index._small_max = 4
        return index

    yield switching


def changed(index: BoxIndex, changes: list[tuple[bool, int, Conjunction]]) -> dict[int, Conjunction]:
    """The index after all changes, and what must be in it."""
    kept: dict[int, Conjunction] = {}
    for comes, id, conjunction in changes:
        if comes and id not in kept:
            index.add(id, conjunction, link=id % 5)
            kept[id] = conjunction
        elif not comes and id in kept:
            index.remove(id)
            del kept[id]
    return kept


@pytest.mark.req("N9", "R1")
@settings(deadline=None)
@given(changes=CHANGES, asked=st.lists(events, min_size=1, max_size=8))
def test_an_event_finds_the_entries_that_it_fits(
    new_index: Callable[[], BoxIndex], changes: list[tuple[bool, int, Conjunction]], asked: list[dict[str, object]]
) -> None:
    index = new_index()
    kept = changed(index, changes)
    assert len(index) == len(kept)
    for event in asked:
        expected = sorted(id for id, conjunction in kept.items() if fits(conjunction, event))
        assert index.match(event).tolist() == expected
        assert sorted(index.match_links(event)) == sorted({id % 5 for id in expected})


@pytest.mark.req("N9", "R1", "R3")
@settings(deadline=None)
@given(changes=CHANGES, asked=st.lists(boxes, min_size=1, max_size=5))
def test_relations_to_the_entries_are_those_to_each_alone(
    new_index: Callable[[], BoxIndex], changes: list[tuple[bool, int, Conjunction]], asked: list[Conjunction]
) -> None:
    index = new_index()
    kept = dict(sorted(changed(index, changes).items()))
    for query in asked + list(kept.values())[:3]:
        assert index.coverers(query).tolist() == [id for id, entry in kept.items() if covers(entry, query)]
        assert index.covered(query).tolist() == [id for id, entry in kept.items() if covers(query, entry)]
        assert index.intersecting(query).tolist() == [id for id, entry in kept.items() if intersects(query, entry)]
        offers = index.intersecting(query, Stored.ADVERTISEMENTS).tolist()
        assert offers == [id for id, entry in kept.items() if overlaps(entry, query)]
        wishes = index.intersecting(query, Stored.SUBSCRIPTIONS).tolist()
        assert wishes == [id for id, entry in kept.items() if overlaps(query, entry)]


def a_wide_table(dice: random.Random, entries: int) -> dict[int, Conjunction]:
    """Many different bounds, so that attributes become coarse and are cut anew, under a drift of the constants."""
    found = {}
    for id in range(entries):
        low = dice.random() * id
        middle = dice.choice([low, int(low) + 2**53, f"device-{int(low):06}"])
        wanted = [
            Predicate("n", Op.ABOVE, low),
            Predicate("n", Op.AT_MOST, low + 20),
            Predicate("m", dice.choice([Op.EQUAL, Op.AT_LEAST, Op.BELOW, Op.UNEQUAL]), middle),
            Predicate("s", dice.choice([Op.EQUAL, Op.PREFIX]), f"{int(low):04}"[: dice.randint(2, 4)]),
        ]
        found[id] = tuple(dice.sample(wanted, dice.randint(1, 4)))
    return found


def an_event(dice: random.Random, entries: int) -> dict[str, object]:
    value = dice.random() * entries
    middle = dice.choice([value, int(value) + 2**53, f"device-{int(value):06}", True])
    event = {"n": value, "m": middle, "s": f"{int(value):04}x", "other": 1}
    return {name: event[name] for name in dice.sample(list(event), dice.randint(1, 4))}


def test_coarse_attributes_and_reused_ids_stay_exact(new_index: Callable[[], BoxIndex]) -> None:
    dice = random.Random(7)
    index, entries = new_index(), 3_000
    kept = a_wide_table(dice, entries)
    for id, conjunction in kept.items():
        index.add(id, conjunction)
    for id in dice.sample(range(entries), entries // 2):
        index.remove(id)
        del kept[id]
    for conjunction in a_wide_table(dice, entries // 3).values():
        id = index.spare
        index.add(id, conjunction)
        assert id < entries
        kept[id] = conjunction
    kept = dict(sorted(kept.items()))
    for _ in range(60):
        event = an_event(dice, entries)
        assert index.match(event).tolist() == [id for id, entry in kept.items() if fits(entry, event)]
    for query in dice.sample(list(kept.values()), 5):
        assert index.coverers(query).tolist() == [id for id, entry in kept.items() if covers(entry, query)]
        assert index.covered(query).tolist() == [id for id, entry in kept.items() if covers(query, entry)]
        assert index.intersecting(query).tolist() == [id for id, entry in kept.items() if intersects(query, entry)]


def test_an_index_that_is_moved_answers_the_same_on_the_way() -> None:
    dice = random.Random(8)
    index = BoxIndex()
    entries = index._small_max + 200
    kept = a_wide_table(dice, entries)
    seen = set()
    for id, conjunction in kept.items():
        index.add(id, conjunction)
        if id >= index._small_max - 1:
            seen.add(index.report().engine)
            event = an_event(dice, entries)
            assert index.match(event).tolist() == [one for one in range(id + 1) if fits(kept[one], event)]
    while index.step():
        pass
    assert index.report().engine == engines.in_use()
    assert len(seen) > 1


def test_a_removed_entry_leaves_nothing_behind(new_index: Callable[[], BoxIndex]) -> None:
    index = new_index()
    for id in range(100):
        index.add(id, (Predicate(f"n{id}", Op.ABOVE, id),))
    for id in range(100):
        index.remove(id)
    assert len(index) == 0
    assert index.report().attributes == 0
    assert index.report().size_bytes == 0


@pytest.mark.req("O6")
def test_a_million_attributes_hit_a_named_bound(new_index: Callable[[], BoxIndex]) -> None:
    index = new_index()

    def fill() -> None:
        for id in range(1_000_000):
            index.add(id, (Predicate(f"attribute {id}", Op.EQUAL, id),))

    with pytest.raises(IndexFullError, match="attributes_max") as told:
        fill()
    assert told.value.bound == "attributes_max"
    assert len(index) == index.attributes_max
    assert index.match({"attribute 7": 7, "unknown": 1}).tolist() == [7]
    index.remove(0)
    index.add(0, (Predicate("another", Op.EQUAL, 1),))


@pytest.mark.req("O6")
def test_bad_ids_are_refused_and_change_nothing(new_index: Callable[[], BoxIndex]) -> None:
    index = new_index()
    index.add(3, ())
    with pytest.raises(UsageError, match="entry 3 already"):
        index.add(3, ())
    with pytest.raises(UsageError, match="no entry 4"):
        index.remove(4)
    with pytest.raises(IndexFullError, match="entries_max"):
        index.add(index.entries_max, ())
    with pytest.raises(UsageError, match="32 bits"):
        index.add(1, (), link=-1)
    assert index.match({}).tolist() == [3]
    with pytest.raises(UsageError, match="attributes"):
        BoxIndex(attributes_max=1_000_000)


def test_an_engine_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no engine"):
        BoxIndex(engine="abacus")
    monkeypatch.setenv("HELIOGRAPH_KERNELS", "abacus")
    with pytest.raises(UsageError, match="HELIOGRAPH_KERNELS"):
        BoxIndex()
    monkeypatch.setenv("HELIOGRAPH_KERNELS", "python")
    assert engines.in_use() == "python"
