"""The bytes of discovery: golden ones, the way there and back, and what strangers may send."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.messages import (
    BODIES,
    DATAGRAM_BYTES_MAX,
    GROUP_BYTES,
    HEAD,
    KINDS,
    NO_COOKIE,
    SHORTEST,
    Acknowledgement,
    Announcement,
    BrokerAdvertisement,
    Certificate,
    CertificateRequest,
    Challenge,
    DiscoveryRequest,
    DiscoveryResponse,
    Landmarks,
    Message,
    MessageBody,
    MessageKind,
    Ping,
    Pong,
    Relay,
    Spread,
    Usage,
)
from heliograph.errors import ProtocolError, Reason

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "discovery.md"
ID = bytes(range(16))
COOKIE = bytes(range(16, 32))
LONG, WORD = "n" * 128, "w" * 64
EXAMPLES: list[MessageBody] = [
    BrokerAdvertisement(
        *("b1", 7, 3, 30, "b1.example", {"tcp": 4717, "udp": 4717}, "main/1", "00f1", 5, "EU", "ACME"), network="plant"
    ),
    DiscoveryRequest(ID, 1, "sensor-7", port=40_000, transports=["tcp"], budget=50, relay=True, network="plant"),
    Challenge(ID, COOKIE),
    Acknowledgement(ID, 1, "bdn", 5, 2),
    DiscoveryResponse(
        *(ID, 1, "b1", 7),
        ports={"tcp": 4717},
        timestamp_ns=10**18,
        error_ns=10**6,
        usage=Usage(3, 2),
        network="plant",
        settling=True,
        before=["00f1"],
    ),
    Ping(12_345),
    Pong(12_345, "b1"),
    Announcement("bdn", "192.0.2.1", 4719),
    Spread(b"whole", "192.0.2.7", 40_000, "bdn", "192.0.2.1:4719"),
    Relay(ID, b"whole"),
    CertificateRequest(bytes(32)),
    Certificate(b"chain"),
    Landmarks(["192.0.2.1:4717"]),
]


def test_there_is_an_example_of_every_kind() -> None:
    assert [KINDS[type(body)] for body in EXAMPLES] == list(MessageKind)
    assert set(BODIES) == set(MessageKind)


@pytest.mark.parametrize("body", EXAMPLES, ids=lambda body: type(body).__name__)
def test_a_message_comes_back_as_it_was(body: MessageBody) -> None:
    message = messages.unpack(messages.write(body, COOKIE))
    assert message.cookie == COOKIE
    assert messages.decode(type(body), message.body) == body


@pytest.mark.parametrize("body", EXAMPLES, ids=lambda body: type(body).__name__)
def test_the_page_shows_the_bytes_of_every_kind(body: MessageBody) -> None:
    listed = dict(re.findall(r"^\| \d+ \| ([A-Z_]+) \|.*\| `([0-9a-f]+)` \|$", PAGE.read_text("utf-8"), re.MULTILINE))
    assert listed[KINDS[type(body)].name] == messages.write(body, COOKIE, pad=False).hex()


@pytest.mark.req("B10")
def test_whatever_asks_for_an_answer_is_at_least_as_long_as_the_longest_answer() -> None:
    response = DiscoveryResponse(
        ID,
        64,
        LONG,
        1 << 62,
        LONG,
        {"tcp": 65_535, "tls": 65_535, "udp": 65_535, "ws": 65_535},
        WORD,
        WORD,
        WORD,
        1 << 62,
        1 << 62,
        Usage(1 << 62, 1 << 62, 1_000, 1 << 62, 1 << 62),
        "i" * 32,
        1 << 62,
        network=WORD,
        settling=True,
        before=["i" * 32] * 2,
    )
    envelope_and_seal = 97 + 82
    assert len(messages.write(response)) + envelope_and_seal <= DATAGRAM_BYTES_MAX
    assert len(messages.write(Acknowledgement(ID, 64, LONG, 1 << 62, 1 << 62, 1 << 62, "t" * 200))) <= 1_232
    assert SHORTEST[MessageKind.CERTIFICATE_REQUEST] == GROUP_BYTES == DATAGRAM_BYTES_MAX
    assert len(messages.write(Challenge(ID, COOKIE))) <= len(messages.write(DiscoveryRequest(ID, 1)))
    assert len(messages.write(Pong(1 << 62, LONG))) <= len(messages.write(Ping(1 << 62)))
    advertisement = messages.write(BrokerAdvertisement("b", 1, 1, 30))
    assert len(messages.write(Ping(1))) <= len(advertisement)


def test_a_request_without_padding_is_refused_as_a_datagram_and_taken_from_a_link() -> None:
    bare = messages.write(DiscoveryRequest(ID, 1), pad=False)
    with pytest.raises(ProtocolError) as caught:
        messages.unpack(bare)
    assert caught.value.reason is Reason.FRAME_TOO_SHORT
    assert messages.unpack(bare, padded=False).kind is MessageKind.REQUEST


def test_what_travels_on_has_neither_cookie_nor_padding() -> None:
    message = messages.unpack(messages.write(DiscoveryRequest(ID, 1), COOKIE))
    onward = messages.bare(message)
    assert len(onward) < SHORTEST[MessageKind.REQUEST]
    assert messages.unpack(onward, padded=False) == Message(message.kind, 0, NO_COOKIE, message.body)


def test_a_chain_travels_in_the_room_that_padding_leaves_and_is_left_out_where_there_is_none() -> None:
    body = messages.encode(DiscoveryRequest(ID, 1))
    fits = messages.pack(Message(MessageKind.REQUEST, 1, NO_COOKIE, body, bytes(900)))
    assert messages.unpack(fits).chain == bytes(900)
    assert messages.unpack(messages.pack(Message(MessageKind.REQUEST, 1, NO_COOKIE, body, bytes(1_200)))).chain == b""


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ((b"HGD", b"HTT"), Reason.BODY_MALFORMED),
        ((b"HGD\x01", b"HGD\x02"), Reason.VERSION_UNSUPPORTED),
        ((b"HGD\x01\x06", b"HGD\x01\x63"), Reason.KIND_UNKNOWN),
        ((b"HGD\x01\x06\x00", b"HGD\x01\x06\x80"), Reason.FLAGS_UNKNOWN),
        ((b"HGD\x01\x06\x00\x0c", b"HGD\x01\x06\x00\xff\xff"), Reason.FRAME_TOO_SHORT),
    ],
)
def test_a_damaged_head_is_refused_for_what_is_wrong(damage: tuple[bytes, bytes], reason: Reason) -> None:
    whole = messages.write(Ping(12_345))
    assert whole.startswith(damage[0])
    broken = damage[1] + whole[len(damage[1]) :]
    with pytest.raises(ProtocolError) as caught:
        messages.unpack(broken)
    assert caught.value.reason is reason


def read(data: bytes, *, padded: bool) -> None:
    message = messages.unpack(data, padded=padded)
    messages.decode(BODIES[message.kind], message.body)


@given(st.binary(max_size=1_400), st.booleans())
def test_noise_is_refused_and_nothing_else_happens(data: bytes, padded: bool) -> None:
    with pytest.raises(ProtocolError):
        read(data, padded=padded)


@given(st.sampled_from(EXAMPLES), st.data())
def test_a_message_with_any_bytes_changed_is_read_or_refused(body: MessageBody, data: st.DataObject) -> None:
    whole = bytearray(messages.write(body, COOKIE, pad=False))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    with suppress(ProtocolError):
        read(cut, padded=False)


@given(st.sampled_from(EXAMPLES), st.recursive(st.integers() | st.text() | st.binary(), st.lists, max_leaves=5))
def test_a_body_with_a_wrong_field_is_refused(body: MessageBody, wrong: object) -> None:
    fields = msgspec.to_builtins(body, builtin_types=(bytes,))
    for name in fields:
        try:
            data = msgspec.msgpack.encode(fields | {name: wrong})
        except OverflowError:
            continue
        with suppress(ProtocolError):
            assert isinstance(messages.decode(type(body), data), MessageBody)


def test_a_head_has_26_bytes() -> None:
    assert HEAD.size == 26
