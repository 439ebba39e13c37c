"""Messages about topics become rows: what they say, and what is wrong with those that say nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.discovery.signed_bodies import SEALED, SIGNED
from heliograph.discovery.topics import messages
from heliograph.discovery.topics.messages import Search, TopicKind, TopicMessage, TopicQuery, WithdrawTopic
from heliograph.evaluation.topics import WALL_NS, _Parties, _record
from heliograph.pipeline.topic_messages import as_json

ID = bytes(range(16))


@pytest.fixture(scope="module")
def parties() -> _Parties:
    return _Parties()


@pytest.mark.req("S2")
def test_an_advertisement_is_read_with_owner_and_descriptors(parties: _Parties) -> None:
    row = json.loads(as_json(_record(parties, 1)))
    assert (row["what"], row["owner"], row["directory"], row["is_sealed"]) == ("advertise", "entity", "tdn-1", False)
    assert row["created_topic"].startswith(f"Topics/{row['uuid']}")
    assert json.loads(row["attributes"])["path"] == "plant/hall-3/temperature"
    assert row["created_us"] // 1_000_000 == WALL_NS // 10**9
    assert row["expires_us"] - row["created_us"] == 3_600 * 1_000_000


def test_withdrawals_and_searches_are_read_and_seals_stay_closed(parties: _Parties) -> None:
    withdrawn = json.loads(as_json(parties.entity.write(WithdrawTopic(ID, 5, ID))))
    assert (withdrawn["what"], withdrawn["uuid"], withdrawn["time_us"]) == (
        "withdraw", "00010203-0405-0607-0809-0a0b0c0d0e0f", 5_000,
    )  # fmt: skip
    sought = json.loads(as_json(parties.entity.write(Search(ID, 5, TopicQuery("keywords", "hot")))))
    assert json.loads(sought["query"]) == {"language": "keywords", "text": "hot"}
    sealed = TopicMessage(TopicKind.CREATE, SIGNED | SEALED, (), b"anything")
    assert json.loads(as_json(messages.pack(sealed))) == {"what": "create", "is_sealed": True}


@given(st.binary(max_size=300), st.sampled_from([b"", b"HGT\x01", b"HGT\x01\x05\x01\x00", b"HGT\x01\x07\x00\x00"]))
def test_any_bytes_become_a_row_or_a_reason(data: bytes, head: bytes) -> None:
    row = json.loads(as_json(head + data))
    assert row.get("what") or row["fault"]
