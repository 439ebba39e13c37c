"""A client written from the protocol page alone, against a real broker process over TCP and TLS.

In:    a running broker (live_broker.py) and stdlib_client.py.
Out:   claims that the page is enough to write a client.
State: one broker for all tests of this file; each test has topics of its own.
Not here: exact bytes (test_golden.py), random sessions (tests/conformance).
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wire import stdlib_client
from tests.wire.live_broker import LiveBroker, live_broker
from tests.wire.stdlib_client import EXPIRES, NEWS, SERVICE, EndedError, RefusedError, StdlibClient, pack

pytestmark = [pytest.mark.live, pytest.mark.req("N14", "N1")]

RULES = """
[[access.rules]]
effect = "deny"
topics = ["forbidden/#"]
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with live_broker(tmp_path_factory.mktemp("broker"), RULES) as running:
        yield running


@pytest.fixture(params=["tcp", "tls"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def dial(broker: LiveBroker, transport: str = "tcp", secret: bytes | None = None) -> StdlibClient:
    if transport == "tcp":
        return StdlibClient("127.0.0.1", broker.ports["plain"], secret=secret)
    return StdlibClient("127.0.0.1", broker.ports["secure"], tls=broker.tls(), secret=secret)


def join(broker: LiveBroker, transport: str = "tcp", secret: bytes | None = None) -> StdlibClient:
    client = dial(broker, transport, secret)
    client.hello(name="stdlib")
    return client


def test_the_client_imports_nothing_of_ours() -> None:
    source = Path(stdlib_client.__file__).read_text()
    imported = {line.split()[1] for line in source.splitlines() if line.startswith(("import ", "from "))}
    assert imported <= {"__future__", "hashlib", "json", "os", "socket", "ssl", "struct", "typing"}


def test_a_broker_welcomes_a_client(broker: LiveBroker, transport: str) -> None:
    client = dial(broker, transport)
    welcome = client.hello(keep_alive_ms=5_000, features=["time-travel"])
    assert (welcome["version"], welcome["broker"], welcome["entity"]) == (1, "under-test", "anonymous")
    assert (welcome["roles"], welcome["features"], welcome.get("seen", "")) == (["client"], [], "")
    assert welcome["origin"] == f"{client.origin:016x}"
    assert welcome["limits"]["payload_bytes_max"] == 1_048_576
    assert welcome["keep_alive_ms"] == 5_000
    client.goodbye()


def test_a_publication_arrives_as_it_was_sent(broker: LiveBroker, transport: str) -> None:
    subscriber, publisher = join(broker, transport), join(broker)
    subscriber.subscribe(7, "plain/+/temperature")
    subscriber.subscribe(3, "plain/#")
    sent = publisher.publish("plain/7/temperature", b"21.5", {"unit": "C"})
    numbers, lost, event = subscriber.event()
    assert (numbers, lost) == ((3, 7), 0)
    assert event == stdlib_client.unpack(sent)
    for client in (subscriber, publisher):
        client.goodbye()


def test_many_large_publications_keep_their_order(broker: LiveBroker, transport: str) -> None:
    subscriber, publisher = join(broker, transport), join(broker, transport)
    subscriber.subscribe(1, "many/#")
    payloads = [b"%d" % number * 20_000 for number in range(100)]
    for number, payload in enumerate(payloads):
        publisher.publish(f"many/{number % 7}", payload)
    publisher.flush()
    assert [subscriber.event().frame.payload for _ in payloads] == payloads


def test_flush_returns_after_everything_was_routed(broker: LiveBroker, transport: str) -> None:
    client = join(broker, transport)
    client.subscribe(1, "own/#")
    client.subscribe(2, "own/quiet", echo=False)
    for number in range(50):
        client.publish("own/loud", b"%d" % number)
    client.publish("own/quiet", b"last")
    client.flush()
    assert [event.frame.payload for event in client.waiting()] == [*(b"%d" % n for n in range(50)), b"last"]


def test_a_session_goes_on_over_a_new_link_and_nothing_comes_twice(broker: LiveBroker, transport: str) -> None:
    subscriber, publisher = join(broker), join(broker, transport)
    subscriber.subscribe(1, "roaming")
    publisher.publish("roaming", b"one")
    publisher.flush()
    again = dial(broker, transport, publisher.secret)
    assert again.hello()["seen"] == f"{1:016x}"
    assert publisher.ended() == "taken_over"
    again.sequence = 1
    for payload in (b"one, repeated", b"two"):
        again.publish("roaming", payload)
    assert [subscriber.event().frame.payload for _ in range(2)] == [b"one", b"two"]


def test_an_expired_publication_reaches_nobody(broker: LiveBroker) -> None:
    client = join(broker)
    client.subscribe(1, "news")
    now_us = time.time_ns() // 1_000
    client.publish("news", b"old", {"$x": now_us - 60_000_000}, EXPIRES)
    client.publish("news", b"new", {"$x": now_us + 60_000_000}, EXPIRES)
    assert client.event().frame.payload == b"new"


def test_after_unsubscribing_nothing_comes(broker: LiveBroker, transport: str) -> None:
    client = join(broker, transport)
    client.subscribe(1, "off")
    client.unsubscribe(1)
    client.publish("off", b"")
    client.flush()
    assert client.waiting() == []
    with pytest.raises(RefusedError, match="subscription_unknown"):
        client.unsubscribe(1)


@pytest.mark.parametrize(
    ("pattern", "fields", "reason"),
    [
        ("a/#/b", {}, "filter_invalid"),
        ("System/clock", {}, "subscribe_denied"),
        ("forbidden/+", {}, "subscribe_denied"),
        ("a", {"language": "prolog"}, "language_unsupported"),
        ("a", {"language": "predicates", "where": "disk >"}, "condition_invalid"),
        ("a", {"where": "disk > 1"}, "body_malformed"),
        ("a", {"policy": "hope"}, "body_malformed"),
    ],
)
def test_a_refused_subscription_does_not_end_the_link(
    broker: LiveBroker, pattern: str, fields: dict[str, str], reason: str
) -> None:
    client = join(broker)
    with pytest.raises(RefusedError) as refused:
        client.subscribe(1, pattern, **fields)
    assert refused.value.reason == reason
    client.subscribe(1, "a")
    with pytest.raises(RefusedError, match="subscription_taken"):
        client.subscribe(1, "b")


@pytest.mark.req("O8")
def test_a_refused_publication_is_told_and_the_link_lives(broker: LiveBroker, transport: str) -> None:
    client = join(broker, transport)
    client.subscribe(1, "#")
    for topic in ("System/clock", "forbidden/fruit", "bad//topic", "good"):
        client.publish(topic, b"")
    client.flush()
    assert [(body["reason"], body["code"], body["subject"]) for body in client.refused] == [
        ("publish_denied", 205, "System/clock"),
        ("publish_denied", 205, "forbidden/fruit"),
        ("topic_invalid", 111, "bad//topic"),
    ]
    assert [event.frame.topic for event in client.waiting()] == ["good"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (pack(1, origin=1, sequence=1, topic=b"a"), "origin_foreign"),
        (pack(77), "kind_unknown"),
        (pack(17), "kind_unexpected"),
        (pack(21, payload=b"{"), "body_malformed"),
        (b"\x01" + bytes(27), "frame_too_short"),
        (b"\xff\xff\xff\xff\x01" + bytes(23), "frame_over_limit"),
    ],
)
@pytest.mark.req("O6")
def test_a_broken_rule_ends_the_link_with_its_reason(
    broker: LiveBroker, transport: str, bad: bytes, reason: str
) -> None:
    client = join(broker, transport)
    client.send(bad)
    assert client.ended() == reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"versions": [2]}, "version_unsupported"),
        ({"needs": ["time-travel"]}, "feature_unsupported"),
        ({"secret": "0102"}, "body_malformed"),
        ({"entity": "nobody", "token": "guessed"}, "credential_wrong"),
    ],
)
def test_a_hello_that_cannot_be_welcomed_is_told_why(
    broker: LiveBroker, fields: dict[str, object], reason: str
) -> None:
    client = dial(broker)
    with pytest.raises(EndedError) as ended:
        client.hello(**fields)
    assert ended.value.reason == reason


def test_services_answer_those_who_may_ask(broker: LiveBroker, transport: str) -> None:
    client = join(broker, transport)
    with pytest.raises(RefusedError, match="ask_denied"):
        client.ask("admin", {"do": "report"})
    with pytest.raises(RefusedError, match="service_unknown"):
        client.ask("oracle", {})
    admin = dial(broker)
    assert admin.hello(token=broker.admin_token)["roles"] == ["client", "admin"]
    report = admin.ask("admin", {"do": "report", "question": "overview"})
    assert report["broker"] == "under-test"
    assert report["refused"]["ask_denied"] >= 1


@pytest.mark.req("O6", "R8")
def test_news_of_a_watch_come_in_frames_that_no_client_can_send(broker: LiveBroker, transport: str) -> None:
    client, other = join(broker, transport), join(broker)
    assert client.ask("resources", {"do": "watch", "watch": 7, "where": "x >= 0", "model": "static"}) == {"watch": 7}
    assert client.news("resources", 7)["number"] == 1
    other.send(pack(SERVICE, flags=NEWS, topic=b"resources", sequence=7, payload=b'{"number":2,"emptied":["a",1]}'))
    assert other.ended() == "flags_unknown"
    secret = "ab" * 16
    client.ask("resources", {"do": "register", "secret": secret, "where": "x = 1", "epoch": 1, "model": "static"})
    told = client.news("resources", 7)
    assert (told["number"], [(each["fits"], each["values"]) for each in told["states"]]) == (2, [(True, {"x": 1})])
    client.ask("resources", {"do": "withdraw", "secret": secret})
    assert client.news("resources", 7)["states"][0]["gone"]
    assert client.ask("resources", {"do": "unwatch", "watch": 7})["known"]
    assert not client.ask("resources", {"do": "keep", "watch": 7})["known"]


def test_a_certificate_is_an_identity(broker: LiveBroker) -> None:
    client = StdlibClient("127.0.0.1", broker.ports["mutual"], tls=broker.tls("sensor-7"))
    assert client.hello()["entity"] == "sensor-7"
    client.goodbye()


@pytest.mark.parametrize(
    ("shown", "reason"),
    [("expired", "certificate_expired"), ("untrusted", "certificate_untrusted"), (None, "credential_missing")],
)
@pytest.mark.req("O6")
def test_a_bad_certificate_is_refused_with_a_reason_in_the_log(
    broker: LiveBroker, shown: str | None, reason: str
) -> None:
    with pytest.raises((ssl.SSLError, EndedError, ConnectionError)):
        StdlibClient("127.0.0.1", broker.ports["mutual"], tls=broker.tls(shown)).hello()
    broker.until(lambda: any(line.get("reason") == reason for line in broker.lines))


def test_goodbye_ends_a_link_in_order(broker: LiveBroker, transport: str) -> None:
    client = join(broker, transport)
    client.subscribe(1, "leaving")
    client.goodbye()
    broker.until(lambda: any(line["reason"] == "goodbye" for line in broker.notes("link_detached")))


def test_a_client_that_stops_writing_half_way_ends_as_closed(broker: LiveBroker) -> None:
    client = join(broker)
    client.send(pack(19, sequence=1)[:13])
    client.socket.shutdown(socket.SHUT_WR)
    assert client.ended() in ("", "closed")
    broker.until(lambda: any(line["reason"] == "closed" for line in broker.notes("link_detached")))


def test_a_stopping_broker_says_so(tmp_path: Path) -> None:
    with live_broker(tmp_path) as running:
        client = join(running, "tls")
        assert running.process is not None
        running.process.terminate()
        assert client.ended() == "stopping"
        assert running.process.wait(60) == 0
