"""The scan of a single frame against the scan of many: it must mean the same, or leave it alone."""

from hypothesis import given
from hypothesis import strategies as st

from heliograph.broker.routing.seen import Seen
from heliograph.wire.frames import event
from heliograph.wire.scan import MORE, scan, scan_one
from tests.examples import examples

ORIGIN = 7


class Known(dict):
    def __missing__(self, topic):
        return None


ROUTES = Known({b"a": "one", b"plant/b": "two"})

plain = st.builds(
    event,
    topic=st.sampled_from([b"a", b"plant/b", b"?"]),
    payload=st.sampled_from([b"", b"x", b"x" * 64, b"x" * 300]),
    origin=st.sampled_from([ORIGIN, ORIGIN, ORIGIN, 8]),
    sequence=st.integers(4, 7),
    headers=st.sampled_from([b"", b"{}"]),
    flags=st.sampled_from([0, 0, 0, 4]),
)
damage = st.lists(st.tuples(st.integers(0, 27), st.integers(0, 255)), max_size=2)


def seen_to(number: int) -> Seen:
    seen = Seen(ORIGIN, 100)
    seen.next = number
    return seen


@examples(200)
@given(st.lists(plain, max_size=2).map(b"".join), damage, st.integers(0, 40), st.sampled_from([100, 1 << 20]))
def test_what_it_finds_is_what_the_scan_finds(data: bytes, damage: list, cut: int, payload_bytes_max: int) -> None:
    for at, value in damage:
        data = data[:at] + bytes([value]) + data[at + 1 :]
    data = data[: len(data) - cut] if cut < 20 else data
    one, many, spans = seen_to(5), seen_to(5), []

    route = scan_one(data, ROUTES, one, payload_bytes_max)
    end, why = scan(data, 0, ROUTES, many, payload_bytes_max, spans)

    if route is None:
        assert (one.next, one.accepted) == (5, 0)
    else:
        assert (spans, end, why) == ([(route, 0, len(data))], len(data), MORE)
        assert (one.next, one.accepted, one.gaps) == (many.next, many.accepted, many.gaps)


def test_a_read_of_one_expected_frame_is_found() -> None:
    seen = seen_to(5)
    assert scan_one(event(b"plant/b", b"x" * 64, ORIGIN, 5, b"{}"), ROUTES, seen, 1 << 20) == "two"
    assert (seen.next, seen.accepted) == (6, 1)
