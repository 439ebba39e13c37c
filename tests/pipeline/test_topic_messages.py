"""Messages about topics become rows: what they say, and what is wrong with those that say nothing."""

from __future__ import annotations

import json
from base64 import b64decode
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.discovery.signed_bodies import SEALED, SIGNED
from heliograph.discovery.topics import messages
from heliograph.discovery.topics.listing import decode_advertisement
from heliograph.discovery.topics.messages import (
    Advertise,
    Search,
    TopicKind,
    TopicMessage,
    TopicQuery,
    WithdrawTopic,
    decode_body,
)
from heliograph.errors import ProtocolError, Reason
from heliograph.evaluation.topics import WALL_NS, _Parties, _record
from heliograph.pipeline.topic_messages import as_json
from heliograph.trust import envelope

ID = bytes(range(16))
ARCHIVED = (  # an advertisement of before UUIDs were bound to their creators; the chains are left out
    "SEdUAQUBAAHSe7FkQcdH50nhOntIZHEn9pXhThKG8QSIY2xPqlliSEJ2L1U5qsRdiMPHFxAUcVfwz2uUIwiSmJa62F3VN1DR5bYl"
    "b524l71B3NamAaxTskyfZy1rrGPmmFmUTVicAEGDomlkxBCObjejMK4LkRWpqHqClJEFqWlzc3VlZF9tc88AAAGUJE/YAK1hZHZl"
    "cnRpc2VtZW50xQIOAaPTDU1dwR/SxXQADfzOBksCE+skLB2g8mOPaYsRdWNobmuKbF+XSwY7/XTgPbbeEzUsKM9TZi5WPSIhsEk2"
    "rOLWmSzwqIf2641R+mGzD1P8J+nhXWfZUcLziI50hDTeQ4iiaWTEEHWl9dIovU+osSE/4Sb66kCpZGlyZWN0b3J5pXRkbi0xqmNy"
    "ZWF0ZWRfbXPPAAABlCRP2ACpaXNzdWVkX21zzwAAAZQkT9gAqmV4cGlyZXNfbXPPAAABlCSGxoCoc3lub3BzaXOCq3BsYWNlaG9s"
    "ZGVyq3RlbXBlcmF0dXJlpXRvcGlj2TdUb3BpY3MvNzVhNWY1ZDItMjhiZC00ZmE4LWIxMjEtM2ZlMTI2ZmFlYTQwL3RlbXBlcmF0"
    "dXJlqGNyZWF0aW9uhadjcmVhdG9ypmVudGl0eapsaWZldGltZV9zzQ4Qq2Rlc2NyaXB0b3JzhKRwYXRouHBsYW50L2hhbGwtMy90"
    "ZW1wZXJhdHVyZaR0ZXh0uXRlbXBlcmF0dXJlIG9mIGhhbGwgdGhyZWWoa2V5d29yZHORpnNlbnNvcqpwcm9wZXJ0aWVzgaVmbG9v"
    "cgOoc3lub3BzaXOBq3BsYWNlaG9sZGVyq3RlbXBlcmF0dXJlp3JlYWRlcnORoSqmZGlnZXN0xCBoqQUKiSMynMlfrAv+kIrWxTUP"
    "FSBrTjroV6E/rbQNSQ=="
)


@pytest.fixture(scope="module")
def parties() -> _Parties:
    return _Parties(perf_counter)


@pytest.mark.req("S2")
def test_an_advertisement_is_read_with_owner_and_descriptors(parties: _Parties) -> None:
    row = json.loads(as_json(_record(parties, 1)))
    assert (row["what"], row["owner"], row["directory"], row["is_sealed"]) == ("advertise", "entity", "tdn-1", False)
    assert row["created_topic"].startswith(f"Topics/{row['uuid']}")
    assert json.loads(row["attributes"])["path"] == "plant/hall-3/temperature"
    assert row["created_us"] // 1_000_000 == WALL_NS // 10**9
    assert row["expires_us"] - row["created_us"] == 3_600 * 1_000_000


@pytest.mark.req("S2")
def test_an_archived_advertisement_with_a_random_uuid_is_still_read() -> None:
    row = json.loads(as_json(b64decode(ARCHIVED)))
    assert (row["what"], row["owner"], row["uuid"]) == ("advertise", "entity", "75a5f5d2-28bd-4fa8-b121-3fe126faea40")
    assert "fault" not in row
    signed = decode_body(Advertise, envelope.decode(messages.unpack(b64decode(ARCHIVED)).body).payload).advertisement
    with pytest.raises(ProtocolError) as caught:
        decode_advertisement(envelope.decode(signed).payload)
    assert caught.value.reason is Reason.TOPIC_ID_UNBOUND, "it gives nobody a right"


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
