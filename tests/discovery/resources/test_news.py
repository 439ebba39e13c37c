"""News of watches: gaps, news that cannot be read, programs and clients that do not read; each watch goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.discovery.resources.news import CHANGES_BYTES_MAX, WatchReader
from heliograph.discovery.resources.watchers import PAUSE_NS, PAUSE_NS_MAX
from heliograph.discovery.resources.watching import ResourceChange, WatchState
from heliograph.wire.frames import ServiceFlag, service
from tests.discovery.resources.pipe import NAME, OnPipe

pytestmark = pytest.mark.req("O6", "R8")
CLIENT, WATCH = 9, 3
MS_PER_PAUSE = PAUSE_NS // 1_000_000


def a_resource(id: int, number: int, **values: Any) -> dict[str, Any]:
    said = {"id": f"{id:x}", "name": f"r{id}", "host": "a", "epoch": 1, "incarnation": 1, "number": number}
    return {**said, "values": values or None}


def a_state(id: int, number: int, **values: Any) -> dict[str, Any]:
    return {**a_resource(id, number, **values), "fits": bool(values), "gone": not values}


def said(number: int, **more: Any) -> bytes:
    return json.dumps({"number": number, **more}).encode()


def a_snapshot(number: int, as_of: int, *resources: dict[str, Any], **more: Any) -> bytes:
    return said(number, snapshot=resources, hosts={"a": (1, as_of)}, missing=[], **more)


def taken(reader: WatchReader) -> list[tuple[str, str]]:
    return [(change.kind, change.name) for change in all_of(reader)]


def all_of(reader: WatchReader) -> list[ResourceChange]:
    found = []
    while (change := reader.take()) is not None:
        found.append(change)
    return found


@pytest.fixture
def reader() -> WatchReader:
    """A watch that knows one resource."""
    reader = WatchReader(WatchState())
    reader.hear(a_snapshot(1, 1, a_resource(1, 1, x=1)))
    assert taken(reader) == [("appeared", "r1")]
    return reader


# -- the client -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [b"", b"no JSON", b"\xff", b"[" * 10_000, b"{}", b'{"number": -1}', b'{"number": 1e999}', b'{"number": "2"}']
    + [said(2, states=[{"id": "1"}]), said(2, states=5), said(2, snapshot=[], hosts={"a": 1}), said(2, emptied=["a"])],
)
def test_news_that_cannot_be_read_are_dropped_and_counted_and_the_watch_goes_on(
    reader: WatchReader, payload: bytes
) -> None:
    reader.hear(payload)
    assert (reader.unreadable, taken(reader)) == (1, [])
    reader.hear(said(2, states=[a_state(2, 2, x=2)]))
    assert taken(reader) == [("appeared", "r2")]


@given(st.lists(st.one_of(st.binary(max_size=50), st.recursive(st.none() | st.integers() | st.text(), st.lists))))
def test_no_payload_makes_a_reader_raise(payloads: list[Any]) -> None:
    reader = WatchReader(WatchState())
    for payload in payloads:
        reader.hear(payload if isinstance(payload, bytes) else json.dumps({"number": 1, "states": payload}).encode())
        all_of(reader)


def test_after_a_gap_nothing_is_told_until_a_snapshot_and_then_everything_anew(reader: WatchReader) -> None:
    reader.hear(said(3, states=[a_state(2, 3, x=2)]))  # the second is missing
    assert reader.is_stale
    assert taken(reader) == []
    reader.hear(a_snapshot(4, 4, a_resource(2, 3, x=2), a_resource(3, 4, x=3)))
    assert not reader.is_stale
    assert taken(reader) == [("anew", ""), ("appeared", "r2"), ("appeared", "r3")]
    reader.hear(said(5, states=[a_state(2, 5)]))
    assert taken(reader) == [("vanished", "r2")]


def test_a_snapshot_whose_beginning_is_missing_makes_nothing_vanish(reader: WatchReader) -> None:
    reader.hear(said(3, snapshot=[a_resource(2, 2, x=2)], part=1, hosts={"a": (1, 2)}, missing=[]))
    assert reader.is_stale
    assert taken(reader) == []
    reader.hear(said(4, snapshot=[a_resource(1, 1, x=1)], part=0, more=True))
    reader.hear(a_snapshot(5, 2, a_resource(2, 2, x=2), part=1))
    assert taken(reader) == [("anew", ""), ("appeared", "r1"), ("appeared", "r2")]


def test_news_that_the_broker_counts_and_that_never_came_are_asked_for(reader: WatchReader) -> None:
    reader.check(1)
    assert not reader.is_stale
    reader.check(2)
    assert reader.is_stale


def test_a_watch_that_moves_to_another_broker_goes_on_where_it_was(reader: WatchReader) -> None:
    reader.begin()
    reader.hear(a_snapshot(1, 2, a_resource(1, 1, x=1), a_resource(2, 2, x=2)))
    assert taken(reader) == [("appeared", "r2")]


def test_a_program_that_does_not_read_loses_changes_and_is_told_what_matches_now(reader: WatchReader) -> None:
    text = "x" * (1 << 16)
    count = 2 * CHANGES_BYTES_MAX // len(text)
    for number in range(2, count):
        reader.hear(said(number, states=[a_state(number % 5, number, x=f"{number}{text}")]))
        assert reader._bytes <= CHANGES_BYTES_MAX
    assert reader.lost > 0
    found = all_of(reader)
    assert [change.kind for change in found] == ["anew"] + ["appeared"] * 5
    assert {change.name: change.values for change in found[1:]} == {
        f"r{number % 5}": {"x": f"{number}{text}"} for number in range(count - 5, count)
    }
    reader.hear(said(count, states=[a_state(1, count)]))
    assert taken(reader) == [("vanished", "r1")]


def test_a_first_snapshot_is_told_in_full_however_long_it_is() -> None:
    reader = WatchReader(WatchState())
    rows = [a_resource(id, 1, x="y" * 3_000) for id in range(6_000)]
    reader.hear(a_snapshot(1, 1, *rows))
    assert [kind for kind, _ in taken(reader)] == ["appeared"] * 6_000


# -- the service ----------------------------------------------------------------------------------------------------


def refuse(pipe: OnPipe) -> None:
    """The broker refuses news, because the client does not read."""
    pipe.told.clear()
    pipe.receive(service(NAME, b"{}", WATCH, CLIENT, flags=ServiceFlag.NEWS | ServiceFlag.REFUSAL))


def numbered(pipe: OnPipe) -> list[dict[str, Any]]:
    return [json.loads(payload) for _, _, payload in pipe.told]


@pytest.fixture
def pipe() -> OnPipe:
    """A service with one resource, which a client watches."""
    pipe = OnPipe()
    pipe.ask(pipe.register(1, where="x >= 0", values={"x": 1}, version=1))
    pipe.ask({"do": "watch", "watch": WATCH, "where": "x >= 0"}, client=CLIENT)
    pipe.pass_time(10)
    assert [len(each["snapshot"]) for each in numbered(pipe)] == [1]
    return pipe


def update(pipe: OnPipe, x: int) -> None:
    pipe.ask({"do": "update", "secret": f"{1:032x}", "values": {"x": x}, "version": x})


def test_a_client_that_does_not_read_is_told_nothing_and_its_watch_begins_anew_later(pipe: OnPipe) -> None:
    refuse(pipe)
    for x in range(2, 50):
        update(pipe, x)
    pipe.ask({"do": "keep", "watch": WATCH, "again": True}, client=CLIENT)
    pipe.pass_time(MS_PER_PAUSE - 1)
    assert pipe.told == []
    pipe.pass_time(1)
    pipe.pass_time(100)
    (first, *others) = numbered(pipe)
    assert first["anew"]
    assert [[row["values"] for row in each["snapshot"]] for each in others] == [[{"x": 49}]]
    assert pipe.service.report("overview")["watches_begun_anew"] == 1
    reader = WatchReader(WatchState())
    for _, _, payload in pipe.told:
        reader.hear(payload)
    assert [(change.kind, change.values) for change in all_of(reader)] == [("anew", None), ("appeared", {"x": 49})]


def test_the_pauses_grow_while_the_client_does_not_read_and_are_short_again_later(pipe: OnPipe) -> None:
    pauses = []
    for _ in range(7):
        refuse(pipe)
        began = pipe.now
        while not pipe.told:
            pipe.pass_time(100)
        pauses.append(pipe.now - began)
    assert pauses == [min(PAUSE_NS << n, PAUSE_NS_MAX) for n in range(7)]
    pipe.pass_time(100_000)
    refuse(pipe)
    pipe.pass_time(MS_PER_PAUSE)
    assert numbered(pipe)[0]["anew"]


def test_a_blocked_watch_can_be_closed_and_a_refusal_of_a_closed_one_does_nothing(pipe: OnPipe) -> None:
    refuse(pipe)
    assert pipe.ask({"do": "unwatch", "watch": WATCH}, client=CLIENT)["known"]
    refuse(pipe)
    pipe.pass_time(60_000)
    assert pipe.told == []
    assert pipe.ask({"do": "keep", "watch": WATCH}, client=CLIENT) == {"known": False}
    report = pipe.service.report("overview")
    assert (report["watches"], report["standing"]) == (0, 0)


@pytest.mark.parametrize("model", ["static", "dynamic"])
def test_a_watch_of_another_client_is_neither_kept_nor_ended(pipe: OnPipe, model: str) -> None:
    pipe.ask({"do": "watch", "watch": 4, "model": model}, client=CLIENT)
    for do in ("keep", "unwatch"):
        assert pipe.ask({"do": do, "watch": 4}, client=10) == {"known": False}
    assert pipe.ask({"do": "keep", "watch": 4}, client=CLIENT)["known"]


def test_a_long_snapshot_for_a_slow_client_comes_with_pauses_between_its_slices(pipe: OnPipe) -> None:
    for number in range(2, 1_300):
        pipe.ask(pipe.register(number, where="x >= 0", values={"x": 1}, version=1))
    refuse(pipe)
    pipe.pass_time(MS_PER_PAUSE)
    pipe.pass_time(20)
    first = sum(len(each.get("snapshot", ())) for each in numbered(pipe))
    assert 0 < first < 1_299
    pipe.pass_time(MS_PER_PAUSE)
    reader = WatchReader(WatchState())
    for _, _, payload in pipe.told:
        reader.hear(payload)
    assert len(reader.state.resources) == 1_299
