"""Publications that wait for an earlier one: whoever has most gives way, so that others find room."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.stores import intake
from heliograph.stores.chain import Chain
from heliograph.stores.intake import EARLY_BYTES_MAX
from heliograph.stores.places import LOOKS_MAX, PublisherPlaces
from heliograph.stores.waiting import GIVE_WAY_MAX, EarlyShares
from heliograph.wire import stores
from heliograph.wire.frames import Flag, event
from tests.stores.ledge import ORIGIN, Ledge

pytestmark = pytest.mark.req("N11", "O6")
STORE_INBOX = f"Inbox/{'c' * 16}/{'d' * 16}"
PIECE = (1 << 20) - 256


def attach(ledge: Ledge, origin: int, entity: str = "anonymous", source: str = "192.0.2.1") -> None:
    inbox = f"Inbox/00000000000000aa/{origin:016x}"
    ledge.ask(stores.AttachPublisher(f"{ledge.id:016x}"), entity, inbox, source=source)
    ledge.settle()


def early(ledge: Ledge, origin: int, number: int, size: int = PIECE) -> bytes:
    """A publication whose predecessor does not exist."""
    return event(b"t", bytes(size), origin, number + 1, b'{"$q":["%016x",%d]}' % (ledge.id, number))


def flooded(ledge: Ledge) -> None:
    for origin in range(1, 10):
        attach(ledge, origin)
        ledge.deliver(*(early(ledge, origin, 10 * number) for number in range(1, 9)))


def waits(ledge: Ledge, origin: int) -> int:
    return ledge.store._intake._chains[origin].early_bytes


@pytest.mark.parametrize("victim", [("anonymous", "192.0.2.1"), ("anonymous", "192.0.2.9"), ("bob", "192.0.2.1")])
def test_sessions_that_fill_the_room_for_what_waits_keep_nothing_of_others_out(victim: tuple[str, str]) -> None:
    ledge = Ledge()
    flooded(ledge)
    assert ledge.store._intake._waiting.bytes > EARLY_BYTES_MAX - 2 * PIECE
    attach(ledge, ORIGIN, *victim)
    staged = b'{"$q":["%016x",1,"job",1,"0"],"$d":["%b"]}' % (ledge.id, STORE_INBOX.encode())
    ledge.deliver(ledge.reliable(1, 0, Flag.REPEAT), event(b"t", b"", ORIGIN, 2, staged, Flag.DIRECTED))
    ledge.deliver(ledge.reliable(4, 3))  # this one waits
    assert waits(ledge, ORIGIN) == len(ledge.reliable(4, 3))
    ledge.deliver(ledge.reliable(3, 2, Flag.REPEAT))
    ledge.settle()
    assert ledge.acknowledgements()[-1] == (4, b"")
    assert ledge.store.report("overview")["staged"] == 1


def test_a_publisher_that_attaches_finds_room_for_what_it_sends_before_the_store_has_read_about_it() -> None:
    ledge = Ledge()
    flooded(ledge)
    ledge.deliver(early(ledge, ORIGIN, 10), ledge.reliable(1, 0))
    assert waits(ledge, ORIGIN) > PIECE
    ledge.settle()
    assert ledge.store.report("overview")["taken"] == 1


def test_the_chain_that_gives_way_is_asked_for_again_and_is_whole_in_the_end() -> None:
    ledge = Ledge()
    flooded(ledge)
    [first] = [origin for origin in range(1, 10) if not waits(ledge, origin)]  # it gave way to the ninth
    ledge.frames.clear()
    attach(ledge, ORIGIN, "bob")
    ledge.deliver(*(early(ledge, ORIGIN, 10 * number) for number in range(1, 3)))
    assert ledge.store.report("overview")["gave_way"] == 2
    [gave_way] = [origin for origin in range(1, 10) if not waits(ledge, origin) and origin != first]
    asked = [json.loads(frame.payload) for frame in ledge.frames if frame.topic.endswith(b"%016x" % gave_way)]
    assert asked == [{"missing": 81}], "all that it had sent"
    ledge.deliver(ledge.reliable(10, 0, origin=gave_way), early(ledge, gave_way, 10, 10))
    ledge.settle()
    assert ledge.acknowledgements()[-1] == (11, b'{"missing":81}')


def test_nobody_gives_way_to_one_that_would_have_as_much() -> None:
    ledge = Ledge()
    for origin in range(1, 14):
        attach(ledge, origin)
        ledge.deliver(*(early(ledge, origin, 10 * number) for number in range(1, 6)))
    report = ledge.store.report("overview")
    assert (report["gave_way"], report["dropped"]) == (0, 1)
    assert ledge.store._intake._waiting.bytes <= EARLY_BYTES_MAX


def test_a_publication_that_waits_already_lets_nobody_give_way() -> None:
    ledge = Ledge()
    flooded(ledge)
    attach(ledge, ORIGIN, "bob")
    before = ledge.store.report("overview")["gave_way"]
    for _ in range(20):
        ledge.deliver(early(ledge, ORIGIN, 10))
    assert ledge.store.report("overview")["gave_way"] == before + 1


def test_what_a_holder_has_is_known_after_the_store_was_killed() -> None:
    ledge = Ledge()
    attach(ledge, ORIGIN, source="192.0.2.7")
    ledge.deliver(ledge.reliable(1, 0))
    ledge.settle()
    again = Ledge(ledge.vault)
    again.deliver(early(again, ORIGIN, 10))
    again.settle()
    assert again.store._intake._chains[ORIGIN].holder == ("anonymous", "192.0.2.7")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 300)), max_size=60))
def test_whatever_comes_the_sums_are_true_and_who_gives_way_has_more(steps: list[tuple[int, int, int]]) -> None:
    waiting, sizes, holders = (
        EarlyShares(1_000, {}, lambda origin: None),
        dict[int, int](),
        dict[int, tuple[str, str]](),
    )
    for origin, entity, size in steps:
        holder = (f"e{entity}", "")
        more = max(0, size - sizes.get(origin, 0))
        for _ in range(GIVE_WAY_MAX):
            other = waiting.who_gives_way(origin, holder, more) if waiting.is_full(more) else None
            if other is None:
                break
            theirs = sum(sizes[each] for each in sizes if holders[each] == holders[other])
            mine = sum(sizes[each] for each in sizes if holders[each] == holder)
            assert theirs > mine + more or (holders[other] == holder and sizes[other] > sizes.get(origin, 0) + more)
            waiting.set(other, holders[other], 0)
            del sizes[other], holders[other]
        if not waiting.is_full(more):
            waiting.set(origin, holder, size)
            sizes[origin], holders[origin] = size, holder
        sizes = {each: held for each, held in sizes.items() if held}
        assert waiting.bytes == sum(sizes.values()) <= 1_000


def crowd(ledge: Ledge, count: int, first: int = 1_000, *, waits: bool = True) -> None:
    """Publications of so many sessions that have not attached; each waits for one that does not exist."""
    frames = [ledge.reliable(10, 9 if waits else 0, origin=first + number) for number in range(count)]
    for start in range(0, count, 500):
        ledge.deliver(*frames[start : start + 500])
        ledge.settle()


def granted(ledge: Ledge, origin: int, entity: str = "anonymous", source: str = "192.0.2.1") -> bool:
    ledge.frames.clear()
    attach(ledge, origin, entity, source)
    return not any(frame.flags & stores.StoredFlag.REFUSAL for frame in ledge.frames)


@pytest.fixture
def few_places(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(intake, "CHAINS_MAX", 1_000)
    return 1_000


def test_sessions_that_take_all_places_of_a_store_keep_no_publisher_out(few_places: int) -> None:
    ledge = Ledge()
    crowd(ledge, few_places + 200)
    assert ledge.store.report("overview")["publishers"] == few_places
    for number in range(20):
        assert granted(ledge, number + 1, source=f"192.0.2.{number}")
        ledge.deliver(ledge.reliable(1, 0, origin=number + 1))
        ledge.settle()
        assert ledge.acknowledgements()[-1] == (1, b"")
        crowd(ledge, 50, 100_000 + 50 * number)
    ledge.deliver(*(ledge.reliable(2, 1, origin=number + 1) for number in range(20)))
    ledge.settle()
    assert ledge.store.report("overview")["taken"] == 40, "none of them lost its place to the crowd"


def test_attached_sessions_of_one_source_keep_no_publisher_of_another_out(few_places: int) -> None:
    ledge = Ledge()
    for number in range(few_places):
        assert granted(ledge, 1_000 + number)
        ledge.deliver(ledge.reliable(10, 9, origin=1_000 + number))
    assert granted(ledge, 1, source="192.0.2.2")
    assert granted(ledge, 2, "alice", "")
    assert granted(ledge, 9_999), "its own oldest one leaves"
    assert ledge.store.report("overview")["publishers"] == few_places


def test_a_newcomer_costs_a_look_at_few_publishers(few_places: int) -> None:
    ledge = Ledge()
    crowd(ledge, few_places)
    places = ledge.store._intake._places
    places.looked_at = 0
    crowd(ledge, 100, 50_000)
    assert 0 < places.looked_at <= 100 * LOOKS_MAX


def test_a_publisher_of_which_something_is_being_committed_keeps_its_place(few_places: int) -> None:
    ledge = Ledge()
    crowd(ledge, few_places, waits=False)
    ledge.deliver(*(ledge.reliable(11, 10, origin=1_000 + number) for number in range(few_places)))
    ledge.deliver(ledge.reliable(1, 0, origin=7))
    assert 7 not in ledge.store._intake._chains
    ledge.settle()
    assert ledge.store.report("overview")["taken"] == 2 * few_places


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(0, 4), st.sampled_from(["put", "put", "remove", "new"])), max_size=60
    )
)
def test_whoever_comes_places_are_counted_and_the_largest_holder_leaves_first(
    steps: list[tuple[int, int, str]],
) -> None:
    chains: dict[int, Chain] = {}
    places, whose = PublisherPlaces(chains), dict[int, tuple[str, str]]()
    for origin, number, what in steps:
        holder = (f"e{number}", "")
        if what == "put":
            chains.setdefault(origin, Chain()).read(None)
            places.put(origin, holder)
            whose[origin] = holder
        elif what == "remove":
            places.remove(origin)
            whose.pop(origin, None)
        else:
            counts = {each: [*whose.values()].count(each) for each in whose.values()}
            leaves = places.who_leaves(holder)
            assert (leaves is None) == (not whose)
            if leaves is not None and max(counts.values()) > 2 * counts.get(holder, 0) + 1:
                assert counts[whose[leaves]] > counts.get(holder, 0)
        assert len(places) == len(whose)
