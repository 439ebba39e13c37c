"""What belongs to the system, to services or to another client is closed to clients, whichever way they try.

In:    clients without credentials, with a certificate, with the roles store and admin, at a broker with default rules.
Out:   claims about refusals, and that a witness, who may hear everything, heard nothing.
State: none.
Not here: access rules one by one (tests/broker/test_access.py), created topics (tests/broker/test_rights.py).
"""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from heliograph.machine import Peer
from heliograph.model.identity import Identity, Role
from heliograph.wire.frames import Kind, ServiceFlag, service
from heliograph.wire.stores import StoredFlag, stored
from tests.broker.talk import Talk

pytestmark = pytest.mark.req("O6", "O8")

ATTACKER, WITNESS, VICTIM, PIPE = 1, 2, 3, 50
IDENTITIES = {"anonymous": None, "certificate": Identity("bob", (Role.CLIENT,), "certificate")}
STORE = Identity("shop", (Role.STORE, Role.CLIENT), "certificate")
ROOT = Identity("root", (Role.ADMIN,), "certificate")
SYSTEM_FILTERS = [
    "System/#", "System/+", "System/links", "System/Brokers/#", "System/+/+/load", "System", "Services/#",
    "Services/+", "Services", "Services/Discovery/#", "Services/Discovery/Topics", "Services/Stores/#",
    "Services/Stores/Request/+", "Services/Discovery/TopicDiscoveryNode/+", "Entity/#", "Entity/+", "Entity/alice",
    "Entity/alice/#", "Entity/+/#", "Entity",
]  # fmt: skip
SYSTEM_TOPICS = [
    "System/links", "System/Brokers/b/load", "System", "System/x/y", "Services/Stores/Advertisement",
    "Services/Stores/Request/00000000000000ff", "Services/Stores/Wanted", "Services/x", "Services", "Entity",
]  # fmt: skip
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "group": {"group": "g"},
    "condition": {"language": "predicates", "condition": "[x > 1]"},
    "hold": {"policy": "hold"},
}


def a_talk(who: str) -> Talk:
    talk = Talk()
    talk.attach(PIPE, Peer("pipe", "weather"))
    talk.attach(ATTACKER, Peer("tls", "127.0.0.1:9", "main", STORE if who == "store" else IDENTITIES[who]))
    talk.say(ATTACKER, talk.hello(ATTACKER))
    talk.attach(WITNESS, Peer("tls", "127.0.0.1:10", "main", ROOT))
    talk.say(WITNESS, talk.hello(WITNESS))
    for number, pattern in enumerate(("System/#", "Services/#", "Entity/#"), 1):
        talk.subscribe(WITNESS, pattern, number)
    talk.join(VICTIM)
    return talk


@pytest.mark.parametrize("who", IDENTITIES)
def test_no_client_subscribes_to_the_systems_topics_by_any_filter(who: str) -> None:
    talk = a_talk(who)
    tries = list(product(SYSTEM_FILTERS, WAYS.values()))
    for number, (pattern, way) in enumerate(tries, 1):
        talk.subscribe(ATTACKER, pattern, number, **way)
    assert talk.heard[ATTACKER].refusals == ["subscribe_denied"] * len(tries)


@pytest.mark.parametrize("who", [*IDENTITIES, "store"])
def test_no_client_publishes_on_the_systems_topics(who: str) -> None:
    talk = a_talk(who)
    for topic in SYSTEM_TOPICS:
        talk.publish(ATTACKER, topic)
    assert talk.heard[ATTACKER].refusals == ["publish_denied"] * len(SYSTEM_TOPICS)
    assert talk.heard[WITNESS].events == []


@pytest.mark.parametrize("who", IDENTITIES)
def test_no_client_listens_at_anothers_inbox(who: str) -> None:
    talk = a_talk(who)
    inbox = next(f.payload for f in talk.heard[VICTIM].answers if f.kind == Kind.WELCOME).decode()
    root = inbox.split('"inbox":"')[1].split('"')[0]
    broker = root.rsplit("/", 1)[0]
    filters = [f"{root}/#", f"{root}/+", root, f"{broker}/#", f"{broker}/+/x", "Inbox/#", "Inbox/+/+/#", "+/+/+/#"]
    for number, (pattern, way) in enumerate(product(filters, ({}, {"group": "g"})), 1):
        talk.subscribe(ATTACKER, pattern, number, **way)
    talk.publish(WITNESS, f"{root}/answer", b"for the victim alone")
    assert talk.heard[ATTACKER].events == []
    assert talk.heard[ATTACKER].refusals.count("subscribe_denied") == 2 * 7, "all but the filter of three wildcards"


@pytest.mark.parametrize("who", IDENTITIES)
def test_no_client_reaches_the_admin_service_or_the_broker_as_a_service_does(who: str) -> None:
    talk = a_talk(who)
    talk.attach(PIPE + 1, Peer("pipe", "admin"))
    for number, name in enumerate((b"admin", b"broker", b"", b"nobody", b"ADMIN", b"admin/"), 1):
        talk.say(ATTACKER, service(name, b'{"do":"drain"}', number))
    said = [frame for frame in talk.heard[ATTACKER].answers if frame.kind == Kind.SERVICE]
    refusals = ServiceFlag.ANSWER | ServiceFlag.REFUSAL
    assert [frame.flags for frame in said] == [refusals] * 6
    assert [b"ask_denied" in frame.payload for frame in said] == [True, False, False, False, False, False]
    assert all(b"service_unknown" in frame.payload for frame in said[1:])
    assert talk.heard[PIPE + 1].answers == []


@pytest.mark.parametrize("topic", ["Services/Stores/Advertisement", "Services/Stores/Request/00000000000000ff"])
def test_not_even_an_administrator_speaks_to_a_store_or_as_one(topic: str) -> None:
    talk = a_talk("anonymous")
    talk.publish(WITNESS, topic)
    assert talk.heard[WITNESS].refusals == ["publish_denied"]


@pytest.mark.parametrize("flags", list(StoredFlag) + [0])
def test_a_party_with_the_role_store_sends_nothing_in_the_name_of_a_store(flags: int) -> None:
    """Its broker cannot know whether a store's id is its own; a store is a service of its broker."""
    talk = a_talk("store")
    welcome = next(f.payload for f in talk.heard[VICTIM].answers if f.kind == Kind.WELCOME)
    inbox = json.loads(welcome)["inbox"].encode()
    talk.say(ATTACKER, stored(inbox, 0xFF, 777, b"{}", flags=flags))
    assert talk.heard[ATTACKER].goodbye == "role_missing"
    assert [frame.kind for frame in talk.heard[VICTIM].answers] == [Kind.WELCOME]


@pytest.mark.parametrize("flags", [1, 2, 3, 4, 8, 128, 255])
def test_a_client_cannot_speak_as_a_service(flags: int) -> None:
    talk = a_talk("anonymous")
    talk.say(ATTACKER, service(b"weather", b"{}", 1, Talk.origin(VICTIM), flags=flags))
    assert talk.heard[ATTACKER].goodbye == "flags_unknown"
    assert [frame.kind for frame in talk.heard[VICTIM].answers] == [Kind.WELCOME]
