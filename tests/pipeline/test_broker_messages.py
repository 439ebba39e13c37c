"""Messages about brokers become rows: what they say, and what is wrong with those that say nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.messages import (
    Announcement,
    BrokerAdvertisement,
    DiscoveryRequest,
    Message,
    MessageKind,
    Relay,
    Spread,
    write,
)
from heliograph.discovery.signed_bodies import SEALED
from heliograph.pipeline.broker_messages import as_json

ID = bytes(range(16))


@pytest.mark.req("S2")
def test_an_advertisement_of_a_broker_is_read() -> None:
    told = BrokerAdvertisement("b1", 3, 7, 60, "h", {"tcp": 7417}, "a/1", network="plant", distances={"x:1": 5})
    row = json.loads(as_json(write(told, pad=False)))
    assert (row["what"], row["broker"], row["number"], row["network"]) == ("advertisement", "b1", 7, "plant")
    assert (json.loads(row["ports"]), json.loads(row["distances"])) == ({"tcp": 7417}, {"x:1": 5})


def test_requests_are_read_even_if_they_were_spread() -> None:
    asked = write(DiscoveryRequest(ID, 1, "me", issued_ms=5), pad=False)
    row = json.loads(as_json(asked))
    assert (row["what"], row["request"], row["requester"], row["issued_us"]) == ("request", ID.hex(), "me", 5_000)
    spread = json.loads(as_json(write(Spread(asked, "h", 9, "b1"), pad=False)))
    assert (spread["what"], spread["request"], spread["by"], spread["host"]) == ("spread", ID.hex(), "b1", "h")
    deep = asked
    for _ in range(5):
        deep = write(Spread(deep, "h", 9, "b1"), pad=False)
    assert json.loads(as_json(deep))["what"] == "spread"


def test_announcements_and_relays_are_read_and_seals_stay_closed() -> None:
    assert json.loads(as_json(write(Announcement("d", "h", 1), pad=False)))["directory"] == "d"
    assert json.loads(as_json(write(Relay(ID, b"x", "h"), pad=False)))["request"] == ID.hex()
    sealed = messages.pack(Message(MessageKind.REQUEST, SEALED, messages.NO_COOKIE, b"anything"), pad=False)
    assert json.loads(as_json(sealed)) == {"what": "request", "is_sealed": True}


@given(st.binary(max_size=300), st.sampled_from([b"", b"HGD\x01", b"HGD\x01\x01\x00", b"HGD\x01\x09\x01"]))
def test_any_bytes_become_a_row_or_a_reason(data: bytes, head: bytes) -> None:
    row = json.loads(as_json(head + data))
    assert row.get("what") or row["fault"]
