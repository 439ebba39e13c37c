"""The compiled scan against the one in Python: every frame goes to the same route, in the same order per link."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.broker import hot
from heliograph.broker.routes import PlainRoutes, Routes
from heliograph.broker.routing.seen import Seen
from heliograph.wire.columns import Mixed
from heliograph.wire.frames import event
from heliograph.wire.scan import frames_of, scan
from tests.examples import examples

pytestmark = pytest.mark.skipif(not hot.is_native, reason="the compiled parts are not installed or not wanted")

ORIGIN = 7


class Sink:
    def __init__(self, link: str) -> None:
        self.link = link


class Route:
    def __init__(self, name: str, link: str | None) -> None:
        self.name = name
        self.one = None if link is None else Sink(link)


def fill(kind: Any, known: dict[bytes, Route]) -> Any:
    """Routes as a broker has them: one topic is worked out when it is looked up, others are known or not valid."""
    routes = kind()

    def resolve(topic: bytes) -> Route | None:
        if topic != b"new":
            return None
        routes[topic] = Route("new", "late")
        return routes[topic]

    routes.resolve = resolve
    for topic, route in known.items():
        routes[topic] = route
    return routes


def both(shared_link: bool, many: bool) -> tuple[Any, Any]:
    known = {b"a": Route("a", "one"), b"b": Route("b", "two"), b"dd": Route("dd", "one" if shared_link else "four")}
    known[b"c"] = known[b"a"]
    if many:
        known[b"m"] = Route("m", None)
    return fill(PlainRoutes, known), fill(Routes, known)


def found(scanner: Any, data: bytes, pos: int, routes: Any, first: int, payload_bytes_max: int) -> tuple[Any, ...]:
    """What a scan finds: the frames of each link in order, and all its other results."""
    seen = Seen(ORIGIN, 3)
    seen.next = first
    spans: list[tuple[Any, int, int]] = []
    end, why = scanner(data, pos, routes, seen, payload_bytes_max, spans)
    by_link: dict[str, list[tuple[str, bytes]]] = {}
    for route, start, stop in spans:
        pieces = (
            zip(route.routes, route.frames, strict=True) if isinstance(route, Mixed) else [(route, data[start:stop])]
        )
        for each, chunk in pieces:
            link = each.name if each.one is None else each.one.link
            while chunk:
                size = 4 + int.from_bytes(chunk[:4], "little")
                by_link.setdefault(link, []).append((each.name, chunk[:size]))
                chunk = chunk[size:]
    return by_link, end, int(why), seen.next, seen.accepted, seen.duplicates, seen.late, seen.gaps, seen.gaps_closed


plan = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"a", b"b", b"c", b"dd", b"m", b"new", b"?", b""]),
        st.sampled_from([0] * 12 + [-1, -3, 1, 3]),  # how the sequence jumps
        st.sampled_from([4, 4, 4, 5, 300]),  # payload length
        st.sampled_from([ORIGIN] * 40 + [8]),
        st.sampled_from([0] * 40 + [4]),  # flags
        st.sampled_from([b"", b"", b"{}"]),
        st.integers(1, 12),  # repeated so often
    ),
    max_size=12,
)
damage = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=2)
firsts = st.sampled_from([0, 5, (1 << 62) - 3, (1 << 63) - 4, (1 << 63) - 1, (1 << 64) - 4])


@examples(600)
@given(plan, damage, firsts, st.integers(0, 60), st.sampled_from([100, 1 << 20]), st.booleans(), st.booleans())
def test_it_finds_what_the_scan_in_python_finds(
    plan: list, damage: list, first: int, cut: int, payload_bytes_max: int, shared_link: bool, interleaved: bool
) -> None:
    events: list[bytes] = []
    sequence = first
    for topic, jump, size, origin, flags, headers, times in plan:
        for n in range(times):
            sequence = min(max(0, sequence + (jump if n == 0 else 0)), (1 << 64) - 1)
            name = (b"a", b"b", b"dd")[n % 3] if interleaved else topic
            events.append(event(name, bytes(size), origin, sequence, headers, flags))
            sequence += 1
    data = b"".join(events)
    for at, value in damage:
        data = data[:at] + bytes([value]) + data[at + 1 :] if at < len(data) else data
    data = data[: len(data) - cut] if cut < len(data) else data
    plain, compiled = both(shared_link, many=not interleaved)
    expected = found(scan, data, 0, plain, first, payload_bytes_max)
    assert found(hot.scan, data, 0, compiled, first, payload_bytes_max) == expected


def test_frames_that_alternate_between_links_are_joined() -> None:
    data = b"".join(event((b"a", b"b")[n % 2], b"x" * 9, ORIGIN, n) for n in range(200))
    seen, spans = Seen(ORIGIN, 10), []
    seen.next = 0
    assert hot.scan(data, 0, both(False, False)[1], seen, 1 << 20, spans) == (len(data), 0)
    ((mixed, start, end),) = spans
    assert (start, end, [route.name for route in mixed.routes]) == (0, len(data), ["a", "b"])
    assert [len(chunk) for chunk in mixed.frames] == [len(data) // 2] * 2


def test_more_routes_than_it_remembers_are_all_found() -> None:
    known = {b"t%d" % n: Route(str(n), f"link {n}") for n in range(300)}
    data = b"".join(event(b"t%d" % (n % 300), b"x", ORIGIN, n) for n in range(900))
    expected = found(scan, data, 0, fill(PlainRoutes, known), 0, 1 << 20)
    assert found(hot.scan, data, 0, fill(Routes, known), 0, 1 << 20) == expected
    assert len(expected[0]) == 300


def test_an_error_of_ours_is_raised_and_not_swallowed() -> None:
    def broken(topic: bytes) -> None:
        raise AssertionError(topic)

    routes = Routes()
    routes.resolve = broken
    with pytest.raises(AssertionError):
        hot.scan(event(b"a", b"", ORIGIN, 0), 0, routes, Seen(ORIGIN, 1), 1 << 20, [])


@examples(200)
@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "drop", "find", "clear"] * 5 + ["put"] * 30), st.integers(0, 400)),
        max_size=900,
    )
)
def test_routes_hold_what_a_dict_holds(steps: list[tuple[str, int]]) -> None:
    routes, model = Routes(), {}
    routes.resolve = lambda topic: None
    for what, number in steps:
        topic = b"%d/" % number * (number % 7)
        if what == "put":
            routes[topic] = model[topic] = Route(str(number), None)
        elif what == "drop" and topic in model:
            del routes[topic], model[topic]
        elif what == "drop":
            with pytest.raises(KeyError):
                del routes[topic]
        elif what == "clear" and number < 20:
            routes.clear()
            model.clear()
        assert routes.get(topic) is routes[topic] is model.get(topic)
        assert (len(routes), topic in routes) == (len(model), topic in model)
    assert sorted(routes.some(1_000)) == sorted(model)
    assert all(routes[topic] is route for topic, route in model.items())


def test_some_topics_are_others_each_time_so_that_eviction_is_fair() -> None:
    routes = Routes()
    for number in range(100):
        routes[b"%d" % number] = Route("", None)
    for topic in routes.some(40):
        del routes[topic]
    for number in range(100, 140):
        routes[b"%d" % number] = Route("", None)
    assert routes.some(60) == [b"%d" % number for number in range(40, 100)]


def test_routes_can_be_collected_with_what_refers_to_them() -> None:
    routes, route = Routes(), Route("", None)
    routes[b"a"] = route
    route.routes = routes
    watched = weakref.ref(route)
    del routes, route
    gc.collect()
    assert watched() is None


@given(
    st.lists(st.sampled_from([event(b"a", b"xyz", 1, 1), b"\xff\xff\xff\xff", b"\0", b""]), max_size=9),
    st.integers(0, 40),
)
def test_it_finds_the_ends_that_python_finds(parts: list[bytes], start: int) -> None:
    chunk = b"".join(parts)
    assert hot.frames_of(chunk, start) == frames_of(chunk, start)
