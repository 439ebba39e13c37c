"""Golden bytes of the frames between brokers, written out from docs/reference/protocol.md, section 8.

In:    the layout and the bodies on the page.
Out:   claims that wire/ writes exactly these bytes and reads them back.
State: none.
Not here: PARCEL (test_golden.py), what brokers make of them (tests/broker/routing).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from heliograph.errors import ProtocolError
from heliograph.wire import broker_bodies as network
from heliograph.wire.frames import Frame, Kind, control

pytestmark = pytest.mark.req("N18")

LINK_UP = network.LinkUp([1], 5, "b5", "main", 9, "0a0b")
LINKED = network.LinkUp([1], 6, "b6", "main", 8, "0c0d")
LINK_NAMED = network.LinkUp([1], 5, "b5", "main", 9, "0a0b", network="plant")
MEMBER = network.Member(5, "b5", "main", 3, 0, 9, 2, {6: 100}, "heliograph://127.0.0.1:4717", {6: 8})
GATEWAY = network.Gateway(5, "b5", "main", 6, 9, 4, {7: 1100}, {6: 96})
CHANGE = network.Interest(5, False, 9, 3, add=["a/+"], remove=["b"], add_groups=[("jobs", "workers")])
LISTENING = network.Interest(5, False, 9, 4, add_listening=["#"], remove_listening=["b/+"])
SNAPSHOT = network.Interest(6, True, 8, 1, full=True, add=["#"])
OFFER = network.Sync(has=[("member", 5, 9, 2), ("wide", 6, 8, 1)])
WISH = network.Sync(wants=[("narrow", 5), ("gateway", 6)])
WAVE = network.BarrierBody(5, 1, True, False, (6, 8, 1))
MARK = network.Mark(5, 6)
MARKED = network.Marked(5, 6, 9, 63, [5, 7])
HOLD = network.HoldOrigin(5, 6, 7, 63, [5, 8])

# kind, the JSON body to the letter, the struct, how it is read
GOLDEN: dict[str, tuple[Kind, str, Any, Any]] = {
    "LINK": (
        Kind.LINK,
        '{"versions":[1],"broker":5,"name":"b5","cluster":"main","incarnation":9,"nonce":"0a0b"}',
        LINK_UP,
        network.decode_link_up,
    ),
    "LINK, of a named network": (
        Kind.LINK,
        '{"versions":[1],"broker":5,"name":"b5","cluster":"main","incarnation":9,"nonce":"0a0b","network":"plant"}',
        LINK_NAMED,
        network.decode_link_up,
    ),
    "LINKED": (
        Kind.LINKED,
        '{"versions":[1],"broker":6,"name":"b6","cluster":"main","incarnation":8,"nonce":"0c0d"}',
        LINKED,
        network.decode_link_up,
    ),
    "PROOF": (Kind.PROOF, '{"proof":"ff"}', network.Proof("ff"), network.decode_proof),
    "MAP, a member": (
        Kind.MAP,
        '{"record":"member","broker":5,"name":"b5","cluster":"main","slot":3,"epoch":0,"incarnation":9,"number":2,'
        '"links":{"6":100},"address":"heliograph://127.0.0.1:4717","lives":{"6":8}}',
        MEMBER,
        network.decode_record,
    ),
    "MAP, a gateway": (
        Kind.MAP,
        '{"record":"gateway","broker":5,"name":"b5","cluster":"main","speaker":6,"incarnation":9,"number":4,'
        '"outside":{"7":1100},"inside":{"6":96}}',
        GATEWAY,
        network.decode_record,
    ),
    "INTEREST, a change": (
        Kind.INTEREST,
        '{"owner":5,"wide":false,"incarnation":9,"number":3,"add":["a/+"],"remove":["b"],'
        '"add_groups":[["jobs","workers"]]}',
        CHANGE,
        network.decode_interest,
    ),
    "INTEREST, of those that only listen": (
        Kind.INTEREST,
        '{"owner":5,"wide":false,"incarnation":9,"number":4,"add_listening":["#"],"remove_listening":["b/+"]}',
        LISTENING,
        network.decode_interest,
    ),
    "INTEREST, a snapshot": (
        Kind.INTEREST,
        '{"owner":6,"wide":true,"incarnation":8,"number":1,"full":true,"add":["#"]}',
        SNAPSHOT,
        network.decode_interest,
    ),
    "SYNC, an offer": (Kind.SYNC, '{"has":[["member",5,9,2],["wide",6,8,1]]}', OFFER, network.decode_sync),
    "SYNC, a wish": (Kind.SYNC, '{"wants":[["narrow",5],["gateway",6]]}', WISH, network.decode_sync),
    "WAVE": (Kind.WAVE, '{"broker":5,"number":1,"wide":true,"told":[6,8,1]}', WAVE, network.decode_barrier),
    "MARK": (Kind.MARK, '{"broker":5,"speaker":6}', MARK, network.decode_mark),
    "MARKED": (Kind.MARKED, '{"broker":5,"speaker":6,"by":9,"ttl":63,"way":[5,7]}', MARKED, network.decode_marked),
    "HOLD": (Kind.HOLD, '{"broker":5,"by":6,"origin":7,"ttl":63,"way":[5,8]}', HOLD, network.decode_hold),
    "RELEASE": (Kind.RELEASE, '{"broker":5,"by":6,"origin":7,"ttl":63,"way":[5,8]}', HOLD, network.decode_hold),
}
OTHERS = {Kind.COUNT, Kind.TRACE, Kind.TRACED}  # no body of their own, or one that only the asker reads


def test_every_kind_between_brokers_is_on_the_page_and_has_golden_bytes() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/protocol.md").read_text()
    listed = {int(kind) for kind in re.findall(r"^\| (\d+) \| [A-Z]+ \|", page, re.MULTILINE)}
    assert {int(kind) for kind in Kind if kind >= 32} == {kind for kind in listed if kind >= 32}
    assert {golden[0] for golden in GOLDEN.values()} | OTHERS == {kind for kind in Kind if kind >= 32}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_body_is_written_and_read_as_the_page_says(name: str) -> None:
    kind, text, body, decode = GOLDEN[name]
    raw = control(kind, 0, network.encode(body))
    head = (24 + len(text)).to_bytes(4, "little") + bytes([kind]) + bytes(23)
    assert raw == head + text.encode()
    assert decode(Frame(raw).payload) == body


def test_a_count_is_a_head_with_the_number_of_the_last_parcel() -> None:
    assert control(Kind.COUNT, 0x0102).hex() == "18000000260000000000000000000000" + "0201000000000000" + "00000000"


@pytest.mark.parametrize(
    "bad", [b"", b"[]", b"{}", b'{"record":"stranger"}', b'{"record":"member","broker":-1}', b"\xff", b"[" * 5_000]
)
def test_a_bad_body_is_the_peers_fault(bad: bytes) -> None:
    for decode in (
        network.decode_record,
        network.decode_interest,
        network.decode_link_up,
        network.decode_proof,
        network.decode_barrier,
        network.decode_mark,
        network.decode_marked,
        network.decode_hold,
    ):
        with pytest.raises(ProtocolError):
            decode(bad)
