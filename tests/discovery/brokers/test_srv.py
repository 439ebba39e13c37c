"""DNS SRV: questions are well-formed, answers are read, and nothing that a resolver sends does harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.discovery.brokers.srv import RECORDS_MAX, SrvRecord, answer, question
from heliograph.errors import ProtocolError

pytestmark = pytest.mark.req("B20")

ASKED = question("example.org", 7)
POINTER = b"\xc0\x0c"  # to the name of the question


def labels(host: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in host.split(".")) + b"\0"


def record(host: bytes, port: int = 4719, priority: int = 0, weight: int = 0, kind: int = 33) -> bytes:
    data = b"".join(number.to_bytes(2, "big") for number in (priority, weight, port)) + host
    head = kind.to_bytes(2, "big") + b"\0\1" + bytes(4) + len(data).to_bytes(2, "big")
    return POINTER + head + data


def an_answer(*records: bytes, flags: int = 0x8180, count: int | None = None, asked: bytes = ASKED) -> bytes:
    counts = (1, len(records) if count is None else count, 0, 0)
    head = asked[:2] + flags.to_bytes(2, "big") + b"".join(number.to_bytes(2, "big") for number in counts)
    return head + asked[12:] + b"".join(records)


def test_a_question_names_the_service_in_the_domain() -> None:
    assert ASKED[12:] == labels("_heliograph-bdn._udp.example.org") + b"\0\x21\0\1"


def test_directories_are_read_in_the_order_of_priority_and_weight() -> None:
    found = answer(
        an_answer(
            record(labels("far.example.org"), 1, priority=2),
            record(labels("light.example.org"), 2, priority=1, weight=1),
            record(labels("heavy.example.org"), 3, priority=1, weight=9),
        ),
        ASKED,
    )
    assert [(service.host, service.port) for service in found] == [
        ("heavy.example.org", 3),
        ("light.example.org", 2),
        ("far.example.org", 1),
    ]


def test_a_compressed_name_is_followed_and_other_records_are_passed_over() -> None:
    compressed = b"\x03bdn\xc0" + bytes([ASKED.index(b"\x07example")])
    found = answer(an_answer(record(labels("x.y"), kind=5), record(compressed)), ASKED)
    assert found == [SrvRecord("bdn.example.org", 4719)]


def test_a_domain_without_directories_has_none() -> None:
    assert answer(an_answer(flags=0x8183), ASKED) == []
    assert answer(an_answer(record(b"\0")), ASKED) == []


def test_more_records_than_anybody_has_are_left_out() -> None:
    many = [record(labels("a.b"), port) for port in range(1, 60)]
    assert len(answer(an_answer(*many), ASKED)) == RECORDS_MAX


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\x08" + an_answer()[2:],  # another number
        an_answer(flags=0x0100),  # a question
        an_answer(asked=question("example.com", 7)),
        an_answer(record(b"\xc0\xff")),  # a name beyond the end
        an_answer(record(b"\x40aaaa\0")),
        an_answer(record(labels("a b.c"))),
        an_answer(record(b"")),
    ],
)
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        answer(data, ASKED)


def test_a_name_that_points_to_itself_ends() -> None:
    at = len(ASKED) + 2 + 10 + 6
    with pytest.raises(ProtocolError, match="never ends"):
        answer(an_answer(record(bytes([0xC0 | at >> 8, at & 0xFF]))), ASKED)


@given(st.binary(max_size=600), st.integers(0, 600), st.integers(0, 70))
def test_nothing_but_a_protocol_error_comes_of_any_bytes(noise: bytes, cut: int, count: int) -> None:
    whole = an_answer(record(labels("bdn.example.org")), noise, count=count)
    for data in (noise, ASKED[:2] + noise, whole, whole[:cut], whole[:40] + noise):
        try:
            found = answer(data, ASKED)
        except ProtocolError:
            continue
        assert all(0 < service.port < 65_536 and service.host for service in found)


@given(st.text(max_size=80))
def test_a_question_is_made_of_a_domain_or_refused(domain: str) -> None:
    try:
        asked = question(domain, 1)
    except ValueError:
        return
    assert len(asked) <= 12 + 255 + 4
