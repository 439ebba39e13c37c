"""Golden bytes: every kind of frame in docs/reference/protocol.md, written out by hand from that page.

In:    the layout on the page.
Out:   claims that wire/ writes exactly these bytes and reads them back.
State: none.
Not here: random fields (test_roundtrip.py), whole conversations (test_stdlib_client.py).

Each head is 28 bytes, little endian: length, kind, flags, topic length, origin, sequence, header length.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from heliograph.errors import ProtocolError, Reason
from heliograph.model.origin import origin_of
from heliograph.timekeeping.clock import Reference, Told
from heliograph.wire import bodies, frames, stores, times
from heliograph.wire.frames import Frame, Kind
from heliograph.wire.name_proofs import proof_of

pytestmark = pytest.mark.req("N1")

ORIGIN = 0x1122334455667788

# length      kind flags topic  origin                   sequence                 header length
GOLDEN = {
    "EVENT": (
        "2a000000 01   00    0900   8877665544332211         0807060504030201         00000000"
        "612f622f74656d7073"  # a/b/temps
        "32312e3520c2b0430a"  # "21.5 °C" and a line feed
    ),
    "EVENT, nearly empty": (
        "19000000 01   00    0100   0000000000000000         0000000000000000         0000000078"  # x
    ),
    "EVENT, expires": (
        "2a000000 01   04    0300   8877665544332211         ffffffffffffffff         0e000000"
        "612f62"  # a/b
        "7b222478223a313233343536377d"  # {"$x":1234567}
        "6f"
    ),
    "EVENT, reliable, repeated": (
        "39000000 01   20    0300   8877665544332211         0a00000000000000         1d000000"
        + b"a/b".hex()
        + b'{"$q":["0123456789abcdef",9]}'.hex()
        + b"o".hex()
    ),
    "STORED, publications": (
        "9b000000 05   00    2700   efcdab8967452301         0000000000000000         20000000"
        + b"Inbox/00000000000000aa/1122334455667788".hex()
        + "03000000 00000000 0500000000000000 0a00000000000000"  # channel 3, log 0, read from position 5 to 10
        "01000000 04000000"  # the positions 6 and 9
        "1a000000 01   00    0100   8877665544332211         0900000000000000         00000000 7831"
        "1a000000 01   00    0100   8877665544332211         0a00000000000000         00000000 7832"
    ),
    "STORED, acknowledgement": (
        "3f000000 05   04    2700   efcdab8967452301         0900000000000000         00000000"
        + b"Inbox/00000000000000aa/1122334455667788".hex()
    ),
    "STORED, acknowledgement of less than came": (
        "4d000000 05   04    2700   efcdab8967452301         0900000000000000         00000000"
        + b"Inbox/00000000000000aa/1122334455667788".hex()
        + b'{"missing":12}'.hex()
    ),
    "STORED, answer": (
        "49000000 05   01    2700   efcdab8967452301         0700000000000000         00000000"
        + b"Inbox/00000000000000aa/1122334455667788".hex()
        + b'{"have":9}'.hex()
    ),
    "STORED, notice": (
        "6f000000 05   08    2700   efcdab8967452301         0000000000000000         00000000"
        + b"Inbox/00000000000000aa/1122334455667788".hex()
        + b'{"channel":3,"next":12,"gap":[10,12],"code":552}'.hex()
    ),
    "PARCEL": (
        "5e000000 02   07    3412   0500000000000080         0a00000000000000         18000000"
        "0100 0100 00000000"  # one cluster, one broker in the trace
        "efcdab8967452301 1100000000000000"
        "2a000000 01   00    0900   8877665544332211         0807060504030201         00000000"
        "612f622f74656d7073"
        "32312e3520c2b0430a"
    ),
    "DELIVERY": (
        "4e000000 03   00    0000   0500000000000000         0000000000000000         08000000"
        "01000000 04030201"  # subscriptions 1 and 0x01020304
        "2a000000 01   00    0900   8877665544332211         0807060504030201         00000000"
        "612f622f74656d7073"
        "32312e3520c2b0430a"
    ),
    "SERVICE": (
        "2c000000 04   00    0500   0000000000000000         0900000000000000         00000000"
        "61646d696e"  # admin
        "7b22646f223a2272656c6f6164227d"  # {"do":"reload"}
    ),
    "SERVICE, answer": (
        "1f000000 04   01    0500   0000000000000000         0900000000000000         0000000061646d696e7b7d"
    ),
    "SERVICE, refusal": (
        "3f000000 04   03    0500   0000000000000000         0900000000000000         00000000"
        "61646d696e"
        "7b22726561736f6e223a2261736b5f64656e696564222c22636f6465223a3230377d"  # {"reason":"ask_denied","code":207}
    ),
    "SERVICE, between brokers": (
        "24000000 04   04    0900   0000000000000000         0900000000000000         00000000"
        "7265736f75726365737b207d"  # resources{ }
    ),
    "SERVICE, news of a watch": (
        "2d000000 04   08    0900   0000000000000000         0700000000000000         00000000"
        "7265736f7572636573"  # resources
        "7b226e756d626572223a317d"  # {"number":1}
    ),
    "HELLO": (
        "54000000 10   00    0000   0000000000000000         0000000000000000         00000000"
        "7b2276657273696f6e73223a5b315d2c22736563726574223a22"  # {"versions":[1],"secret":"
        "3030303130323033303430353036303730383039306130623063306430653066"  # 000102030405060708090a0b0c0d0e0f
        "227d"
    ),
    "WELCOME": (
        "aa000000 11   00    0000   0000000000000000         0000000000000000         00000000"
        "7b2276657273696f6e223a312c2262726f6b6572223a2262222c"  # {"version":1,"broker":"b",
        "22696e6361726e6174696f6e223a322c"  # "incarnation":2,
        "226f726967696e223a2262653336626630353236636234356265222c"  # "origin":"be36bf0526cb45be",
        "22656e74697479223a2261222c22726f6c6573223a5b22636c69656e74225d2c"  # "entity":"a","roles":["client"],
        "226665617475726573223a5b5d2c226c696d697473223a7b7d2c"  # "features":[],"limits":{},
        "226b6565705f616c6976655f6d73223a397d"  # "keep_alive_ms":9}
    ),
    "WELCOME, of a named network": (
        "bc000000 11   00    0000   0000000000000000         0000000000000000         00000000"
        + b'{"version":1,"broker":"b","incarnation":2,"origin":"be36bf0526cb45be","entity":"a",'.hex()
        + b'"roles":["client"],"features":[],"limits":{},"keep_alive_ms":9,"network":"plant"}'.hex()
    ),
    "GOODBYE": (
        "49000000 12   00    0000   0000000000000000         0000000000000000         00000000"
        "7b22726561736f6e223a22647261696e696e67222c22636f6465223a3430332c"  # {"reason":"draining","code":403,
        "2267726163655f6d73223a31303030307d"  # "grace_ms":10000}
    ),
    "PING": "18000000 13   00    0000   0000000000000000         2a00000000000000         00000000",
    "PONG": "18000000 14   00    0000   0000000000000000         2a00000000000000         00000000",
    "PONG, with the time": (
        "63000000 14   00    0000   0000000000000000         2a00000000000000         00000000"
        + b'{"time":1767225600000000000,"error":850,"stratum":12,"reference":7,"era":3}'.hex()
    ),
    "SUBSCRIBE": (
        "35000000 15   00    0000   0000000000000000         0300000000000000         00000000"
        "7b226e756d626572223a312c2266696c746572223a22612f2b2f23227d"  # {"number":1,"filter":"a/+/#"}
    ),
    "SUBSCRIBE, all said": (
        "5d000000 15   00    0000   0000000000000000         0400000000000000         00000000"
        "7b226e756d626572223a343239343936373239352c2266696c746572223a2261222c"  # {"number":4294967295,"filter":"a",
        "22706f6c696379223a22646973636f6e6e656374222c226563686f223a66616c73657d"  # "policy":"disconnect","echo":false}
    ),
    "UNSUBSCRIBE": (
        "24000000 16   00    0000   0000000000000000         0500000000000000         00000000"
        "7b226e756d626572223a317d"  # {"number":1}
    ),
    "CONFIRMED": "18000000 17   00    0000   0000000000000000         0300000000000000         00000000",
    "REFUSED": (
        "4c000000 18   00    0000   0000000000000000         0000000000000000         00000000"
        "7b22726561736f6e223a22746f7069635f696e76616c6964222c"  # {"reason":"topic_invalid",
        "22636f6465223a3131312c227375626a656374223a22612b227d"  # "code":111,"subject":"a+"}
    ),
}

SECRET = "000102030405060708090a0b0c0d0e0f"
HELLO = bodies.Hello([1], SECRET)
WELCOME = bodies.Welcome(1, "b", 2, "be36bf0526cb45be", "a", ["client"], [], {}, 9)
WELCOME_NAMED = bodies.Welcome(1, "b", 2, "be36bf0526cb45be", "a", ["client"], [], {}, 9, network="plant")
GOODBYE = bodies.Goodbye("draining", 403, grace_ms=10_000)
SUBSCRIBE = bodies.Subscribe(1, "a/+/#")
SUBSCRIBE_ALL = bodies.Subscribe(0xFFFFFFFF, "a", policy="disconnect", echo=False)
EVENT = frames.event(b"a/b/temps", "21.5 °C\n".encode(), ORIGIN, 0x0102030405060708)

STORE = 0x0123456789ABCDEF
INBOX = b"Inbox/00000000000000aa/1122334455667788"
QUALITY = b'{"$q":["0123456789abcdef",9]}'
RUN = frames.event(b"x", b"1", ORIGIN, 9) + frames.event(b"x", b"2", ORIGIN, 10)
NOTICE = stores.Notice(3, 12, (10, 12), 552)

WRITTEN = {
    "EVENT": EVENT,
    "EVENT, reliable, repeated": frames.event(b"a/b", b"o", ORIGIN, 10, QUALITY, frames.Flag.REPEAT),
    "STORED, publications": stores.stored(INBOX, STORE, 0, RUN, stores.span(3, 5, 10, [1, 4])),
    "STORED, acknowledgement": stores.stored(INBOX, STORE, 9, flags=stores.StoredFlag.ACK),
    "STORED, acknowledgement of less than came": stores.stored(
        INBOX, STORE, 9, stores.encode(stores.Acknowledged(12)), flags=stores.StoredFlag.ACK
    ),
    "STORED, answer": stores.stored(INBOX, STORE, 7, stores.encode(stores.Attached(9)), flags=stores.StoredFlag.ANSWER),
    "STORED, notice": stores.stored(INBOX, STORE, 0, stores.encode(NOTICE), flags=stores.StoredFlag.NOTICE),
    "EVENT, nearly empty": frames.event(b"x", b"", 0, 0),
    "EVENT, expires": frames.event(b"a/b", b"o", ORIGIN, 2**64 - 1, b'{"$x":1234567}', frames.Flag.EXPIRES),
    "PARCEL": frames.parcel(len(EVENT), 7, 0x1234, 1 << 63 | 5, 10, (0x0123456789ABCDEF,), (17,)) + EVENT,
    "DELIVERY": frames.delivery(bytes.fromhex("0100000004030201"), len(EVENT), 5) + EVENT,
    "SERVICE": frames.service(b"admin", b'{"do":"reload"}', 9),
    "SERVICE, answer": frames.service(b"admin", b"{}", 9, flags=frames.ServiceFlag.ANSWER),
    "SERVICE, refusal": frames.service(b"admin", bodies.refusal(Reason.ASK_DENIED), 9, flags=1 | 2),
    "SERVICE, between brokers": frames.service(b"resources", b"{ }", 9, flags=frames.ServiceFlag.NEIGHBOUR),
    "SERVICE, news of a watch": frames.service(b"resources", b'{"number":1}', 7, flags=frames.ServiceFlag.NEWS),
    "HELLO": frames.control(Kind.HELLO, 0, bodies.encode(HELLO)),
    "WELCOME": frames.control(Kind.WELCOME, 0, bodies.encode(WELCOME)),
    "WELCOME, of a named network": frames.control(Kind.WELCOME, 0, bodies.encode(WELCOME_NAMED)),
    "GOODBYE": frames.control(Kind.GOODBYE, 0, bodies.goodbye(Reason.DRAINING, grace_ms=10_000)),
    "PING": frames.control(Kind.PING, 42),
    "PONG": frames.control(Kind.PONG, 42),
    "PONG, with the time": times.pong(42, Told(Reference(7, 3), 1767225600000000000, 850, 0, 12)),
    "SUBSCRIBE": frames.control(Kind.SUBSCRIBE, 3, bodies.encode(SUBSCRIBE)),
    "SUBSCRIBE, all said": frames.control(Kind.SUBSCRIBE, 4, bodies.encode(SUBSCRIBE_ALL)),
    "UNSUBSCRIBE": frames.control(Kind.UNSUBSCRIBE, 5, bodies.encode(bodies.Unsubscribe(1))),
    "CONFIRMED": frames.control(Kind.CONFIRMED, 3),
    "REFUSED": frames.control(Kind.REFUSED, 0, bodies.refusal(Reason.TOPIC_INVALID, subject="a+")),
}

# kind, flags, topic, origin, sequence, headers, number of payload bytes
READ = {
    "EVENT, reliable, repeated": (Kind.EVENT, 32, b"a/b", ORIGIN, 10, QUALITY, 1),
    "STORED, publications": (Kind.STORED, 0, INBOX, STORE, 0, stores.span(3, 5, 10, [1, 4]), 60),
    "STORED, acknowledgement": (Kind.STORED, 4, INBOX, STORE, 9, b"", 0),
    "STORED, acknowledgement of less than came": (Kind.STORED, 4, INBOX, STORE, 9, b"", 14),
    "STORED, answer": (Kind.STORED, 1, INBOX, STORE, 7, b"", 10),
    "STORED, notice": (Kind.STORED, 8, INBOX, STORE, 0, b"", 48),
    "EVENT": (Kind.EVENT, 0, b"a/b/temps", ORIGIN, 0x0102030405060708, b"", 9),
    "EVENT, nearly empty": (Kind.EVENT, 0, b"x", 0, 0, b"", 0),
    "EVENT, expires": (Kind.EVENT, 4, b"a/b", ORIGIN, 2**64 - 1, b'{"$x":1234567}', 1),
    "PARCEL": (Kind.PARCEL, 7, b"", 1 << 63 | 5, 10, bytes.fromhex(GOLDEN["PARCEL"])[28:52], 46),
    "DELIVERY": (Kind.DELIVERY, 0, b"", 5, 0, bytes.fromhex("0100000004030201"), 46),
    "SERVICE": (Kind.SERVICE, 0, b"admin", 0, 9, b"", 15),
    "SERVICE, answer": (Kind.SERVICE, 1, b"admin", 0, 9, b"", 2),
    "SERVICE, refusal": (Kind.SERVICE, 3, b"admin", 0, 9, b"", 34),
    "SERVICE, between brokers": (Kind.SERVICE, 4, b"resources", 0, 9, b"", 3),
    "SERVICE, news of a watch": (Kind.SERVICE, 8, b"resources", 0, 7, b"", 12),
    "HELLO": (Kind.HELLO, 0, b"", 0, 0, b"", 60),
    "WELCOME": (Kind.WELCOME, 0, b"", 0, 0, b"", 146),
    "WELCOME, of a named network": (Kind.WELCOME, 0, b"", 0, 0, b"", 164),
    "GOODBYE": (Kind.GOODBYE, 0, b"", 0, 0, b"", 49),
    "PING": (Kind.PING, 0, b"", 0, 42, b"", 0),
    "PONG": (Kind.PONG, 0, b"", 0, 42, b"", 0),
    "PONG, with the time": (Kind.PONG, 0, b"", 0, 42, b"", 75),
    "SUBSCRIBE": (Kind.SUBSCRIBE, 0, b"", 0, 3, b"", 29),
    "SUBSCRIBE, all said": (Kind.SUBSCRIBE, 0, b"", 0, 4, b"", 69),
    "UNSUBSCRIBE": (Kind.UNSUBSCRIBE, 0, b"", 0, 5, b"", 12),
    "CONFIRMED": (Kind.CONFIRMED, 0, b"", 0, 3, b"", 0),
    "REFUSED": (Kind.REFUSED, 0, b"", 0, 0, b"", 52),
}

BODIES: dict[str, bodies.Body] = {
    "HELLO": HELLO,
    "WELCOME": WELCOME,
    "WELCOME, of a named network": WELCOME_NAMED,
    "GOODBYE": GOODBYE,
    "SUBSCRIBE": SUBSCRIBE,
    "SUBSCRIBE, all said": SUBSCRIBE_ALL,
    "UNSUBSCRIBE": bodies.Unsubscribe(1),
    "REFUSED": bodies.Refusal("topic_invalid", 111, subject="a+"),
    "SERVICE, refusal": bodies.Refusal("ask_denied", 207),
}


def test_every_kind_of_frame_on_the_page_has_golden_bytes() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/protocol.md").read_text()
    listed = {int(kind) for kind in re.findall(r"^\| (\d+) \| [A-Z]+ \|", page, re.MULTILINE)}
    between_clients_and_brokers = {kind for kind in listed if kind < 32}
    assert {bytes.fromhex(text)[4] for text in GOLDEN.values()} == between_clients_and_brokers


@pytest.mark.parametrize("name", GOLDEN)
def test_a_frame_is_written_as_the_page_says(name: str) -> None:
    assert WRITTEN[name].hex() == bytes.fromhex(GOLDEN[name]).hex()


@pytest.mark.parametrize("name", GOLDEN)
def test_the_length_counts_everything_after_itself(name: str) -> None:
    raw = bytes.fromhex(GOLDEN[name])
    assert int.from_bytes(raw[:4], "little") == len(raw) - 4


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes_are_read_back(name: str) -> None:
    frame = Frame(bytes.fromhex(GOLDEN[name]))
    fields = (frame.kind, frame.flags, frame.topic, frame.origin, frame.sequence, frame.headers, len(frame.payload))
    assert fields == READ[name]


@pytest.mark.parametrize("name", BODIES)
def test_a_golden_body_is_read_back(name: str) -> None:
    body = BODIES[name]
    assert bodies.decode(type(body), Frame(bytes.fromhex(GOLDEN[name])).payload) == body


@pytest.mark.req("N10")
def test_the_positions_of_stored_publications_are_read_back() -> None:
    assert stores.span_of(Frame(WRITTEN["STORED, publications"])) == (3, 5, 10, (1, 4))


@pytest.mark.req("O6")
@pytest.mark.parametrize(
    "headers", [b"", b"x" * 25, stores.span(1, 5, 4, []), stores.span(1, 5, 9, [2, 2]), stores.span(1, 5, 9, [4])]
)
def test_positions_that_make_no_sense_are_the_peers_fault(headers: bytes) -> None:
    with pytest.raises(ProtocolError) as raised:
        stores.span_of(Frame(stores.stored(INBOX, STORE, 0, b"", headers)))
    assert raised.value.reason is Reason.BODY_MALFORMED


PROOF = "842f3d601d8ea1f938a81380441e099372d638a13c7d145065db91c5d8897468"
OWNER = "fe8f3f5b45edfc6850f4002fcb56466b1ad6a7cf67e50d89b47f86fcb144028d"


@pytest.mark.req("N10")
def test_a_proof_is_made_as_the_page_says() -> None:
    secret = b"correct horse battery staple"
    assert proof_of(secret, "0123456789abcdef", "billing") == PROOF
    assert proof_of(secret, "0123456789abcdef") == OWNER
    page = (Path(__file__).parents[2] / "docs/reference/protocol.md").read_text()
    assert PROOF in page
    assert OWNER in page


# What a client asks the service `stores`, as it stands on the page; and what it means.
ASKED: dict[str, stores.StoreRequest] = {
    '{"do":"find","topic":"orders/7"}': stores.FindStores(topic="orders/7"),
    '{"do":"forget","store":"0123456789abcdef"}': stores.ForgetStore("0123456789abcdef"),
    '{"do":"attach","store":"0123456789abcdef"}': stores.AttachPublisher("0123456789abcdef"),
    '{"do":"open","store":"0123456789abcdef","channel":3,"name":"billing","filter":"orders/#"}': stores.OpenChannel(
        "0123456789abcdef", 3, "billing", "orders/#"
    ),
    '{"do":"open","store":"0123456789abcdef","channel":4,"position":5,"end":10,"pace":2.0}': stores.OpenChannel(
        "0123456789abcdef", 4, position=5, end=10, pace=2.0
    ),
    f'{{"do":"open","store":"0123456789abcdef","channel":5,"name":"billing","proof":"{PROOF}","owner":"{OWNER}"}}': (
        stores.OpenChannel("0123456789abcdef", 5, "billing", proof=PROOF, owner=OWNER)
    ),
    '{"do":"release","store":"0123456789abcdef","name":"billing"}': stores.ReleaseName("0123456789abcdef", "billing"),
    '{"do":"batches","store":"0123456789abcdef"}': stores.ListBatches("0123456789abcdef"),
    '{"do":"drop_batch","store":"0123456789abcdef","publisher":"job","batch":4}': stores.DropBatch(
        "0123456789abcdef", "job", 4
    ),
    '{"do":"credit","store":"0123456789abcdef","channel":3,"at":10}': stores.GiveCredit("0123456789abcdef", 3, 10),
    '{"do":"ack","store":"0123456789abcdef","name":"billing","before":7,"also":[[8,10]]}': stores.AckPositions(
        "0123456789abcdef", "billing", 7, [(8, 10)]
    ),
    '{"do":"close","store":"0123456789abcdef","channel":3}': stores.CloseChannel("0123456789abcdef", 3),
    '{"do":"drop","store":"0123456789abcdef","name":"billing"}': stores.DropName("0123456789abcdef", "billing"),
    '{"do":"logs","store":"0123456789abcdef"}': stores.ListLogs("0123456789abcdef"),
    '{"do":"measure","store":"0123456789abcdef","start":5,"end":900,"bytes":1000000}': stores.MeasureLog(
        "0123456789abcdef", 5, 900, 1_000_000
    ),
    '{"do":"names","store":"0123456789abcdef"}': stores.ListNames("0123456789abcdef"),
    '{"do":"commit","store":"0123456789abcdef","publisher":"job","batch":4,"parts":[["0.0",12]]}': stores.CommitBatch(
        "0123456789abcdef", "job", 4, [("0.0", 12)]
    ),
}


@pytest.mark.req("N10")
@pytest.mark.parametrize("text", ASKED)
def test_a_request_to_a_store_is_written_and_read_as_the_page_says(text: str) -> None:
    assert stores.REQUESTS.decode(text.encode()) == ASKED[text]
    assert stores.encode(ASKED[text]).decode() == text
    page = (Path(__file__).parents[2] / "docs/reference/protocol.md").read_text()
    assert text in page


@pytest.mark.req("O6")
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b'{"do":"dance"}',
        b'{"do":"attach","store":"x"}',
        b'{"do":"open","store":"0123456789abcdef","channel":-1}',
        b'{"do":"credit","store":"0123456789abcdef","channel":1,"at":1,"window":0}',
        b'{"do":"ack","store":"0123456789abcdef","name":"","before":1}',
    ],
)
def test_a_request_that_does_not_fit_is_the_askers_fault(text: bytes) -> None:
    with pytest.raises(ProtocolError) as raised:
        stores.REQUESTS.decode(text)
    assert raised.value.reason is Reason.BODY_MALFORMED


def test_fields_that_are_left_out_read_as_the_page_says() -> None:
    hello = bodies.decode(bodies.Hello, b'{"versions":[1],"secret":""}')
    assert (hello.features, hello.needs, hello.entity, hello.token) == ([], [], "", "")
    assert (hello.keep_alive_ms, hello.hold) == (20_000, False)
    subscribe = bodies.decode(bodies.Subscribe, b'{"number":1,"filter":"a"}')
    assert (subscribe.policy, subscribe.echo, subscribe.language) == ("drop_oldest", True, "topic")


def test_fields_that_nobody_knows_are_ignored() -> None:
    assert bodies.decode(bodies.Unsubscribe, b'{"number":1,"colour":"red"}') == bodies.Unsubscribe(1)


@pytest.mark.parametrize("name", ["a b", "-a", "a/b", "ä", "a" * 65, "a\\n", 7])
def test_a_network_name_that_nobody_could_set_is_refused(name: object) -> None:
    raw = bodies.encode(WELCOME_NAMED).replace(b'"plant"', json.dumps(name).encode())
    with pytest.raises(ProtocolError) as raised:
        bodies.decode(bodies.Welcome, raw)
    assert raised.value.reason is Reason.BODY_MALFORMED


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"number":"1"}', b"{}", b'{"number":1}x', b"\xff", b"[" * 60_000])
def test_json_that_does_not_fit_is_the_peers_fault(text: bytes) -> None:
    with pytest.raises(ProtocolError) as raised:
        bodies.decode(bodies.Unsubscribe, text)
    assert raised.value.reason is Reason.BODY_MALFORMED


def test_an_origin_is_the_little_endian_start_of_the_secrets_hash() -> None:
    # SHA-256 of the bytes 0 to 15 begins be45cb26 05bf36be.
    assert origin_of(bytes.fromhex(SECRET)) == int.from_bytes(bytes.fromhex("be45cb2605bf36be"), "little")
    assert f"{origin_of(bytes.fromhex(SECRET)):016x}" == "be36bf0526cb45be"
