"""What is sent to an entity is received by that entity only, whatever the access rules say."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.broker.commands import Reload
from heliograph.broker.config import AccessConfig, BrokerConfig, ListenerConfig, RuleConfig
from heliograph.machine import Peer
from heliograph.model.identity import Identity, Role
from tests.broker.talk import Talk

ALICE, MALLORY, NOBODY, ADMIN = 1, 2, 3, 4
RULES = [("Entity/{entity}/#",), ("Entity/#",), ("#", "Entity/+")]


def a_talk(*topics: str) -> Talk:
    """A broker whose rules allow to subscribe to these topics, with proven clients and one without a certificate."""
    rules = (RuleConfig(effect="allow", verbs=("subscribe", "publish"), topics=topics),) if topics else ()
    listeners = (ListenerConfig(secure=True, auth="none"),)
    talk = Talk(BrokerConfig(listeners=listeners, access=AccessConfig(rules=rules)))
    for link, entity, role in ((ALICE, "alice", Role.CLIENT), (MALLORY, "mallory", Role.CLIENT)):
        talk.attach(link, Peer("tls", f"10.0.0.1:{link}", "main", Identity(entity, (role,), "certificate")))
    talk.attach(NOBODY, Peer("tls", "10.0.0.1:3", "main"))
    talk.attach(ADMIN, Peer("tls", "10.0.0.1:4", "main", Identity("ops", (Role.ADMIN,), "certificate")))
    for link in (ALICE, MALLORY, NOBODY, ADMIN):
        talk.say(link, talk.hello(link))
    return talk


@pytest.mark.req("T5")
@pytest.mark.parametrize("topics", RULES)
@pytest.mark.parametrize(
    "how", [{}, {"group": "g"}, {"language": "sql", "where": "TRUE"}], ids=["plain", "group", "sql"]
)
@pytest.mark.parametrize("reader", [MALLORY, NOBODY])
def test_no_rule_opens_the_topic_of_an_entity_to_another(topics: tuple[str, ...], how: Any, reader: int) -> None:
    talk = a_talk(*topics)
    patterns = ("Entity/alice", "Entity/#", "Entity/+", "Entity/alice/#", "Entity/+/x")
    for number, pattern in enumerate(patterns, 1):
        talk.subscribe(reader, pattern, number=number, **how)
    talk.subscribe(reader, "#", number=9, **how)
    talk.subscribe(ALICE, "Entity/alice/#")
    talk.publish(ADMIN, "Entity/alice", b"secret")
    talk.publish(ADMIN, "Entity/alice/x", b"more")
    assert talk.heard[reader].refusals == ["subscribe_denied"] * len(patterns)
    assert talk.heard[reader].payloads == []
    assert talk.heard[ALICE].payloads == [b"secret", b"more"]


@pytest.mark.req("T5")
def test_each_entity_receives_its_own_and_brokers_and_admins_receive_all() -> None:
    talk = a_talk("Entity/{entity}/#")
    talk.subscribe(MALLORY, "Entity/mallory")
    talk.subscribe(ADMIN, "Entity/#")
    talk.publish(ALICE, "Entity/mallory", b"hello")
    assert talk.heard[MALLORY].payloads == talk.heard[ADMIN].payloads == [b"hello"]


@pytest.mark.req("T5")
def test_two_entities_with_the_same_rules_share_routes_but_not_what_is_sent_to_them() -> None:
    talk = a_talk("Entity/#")
    talk.subscribe(ALICE, "Entity/alice")
    talk.subscribe(MALLORY, "Entity/mallory")
    for _ in range(2):  # the second finds the cached routes
        talk.publish(ADMIN, "Entity/alice", b"a")
        talk.publish(ADMIN, "Entity/mallory", b"m")
    assert (talk.heard[ALICE].payloads, talk.heard[MALLORY].payloads) == ([b"a"] * 2, [b"m"] * 2)


@pytest.mark.req("T5")
def test_rules_can_still_close_ones_own_topic() -> None:
    talk = a_talk()
    talk.subscribe(ALICE, "Entity/alice")
    talk.publish(MALLORY, "Entity/alice", b"one")
    rules = (RuleConfig(effect="deny", verbs=("subscribe",), topics=("Entity/alice",)),)
    talk.broker.tell(Reload(BrokerConfig(access=AccessConfig(rules=rules))), talk.now)
    talk.publish(MALLORY, "Entity/alice", b"two")
    assert talk.heard[ALICE].payloads == [b"one"]


@pytest.mark.req("T5")
def test_a_replay_shows_nobody_what_was_sent_to_another() -> None:
    """What a store sends again is asked for topic by topic."""
    talk = a_talk("Entity/#")
    subscriptions, links = talk.broker._subscriptions, talk.broker._links.by_id
    assert subscriptions.may_hear(links[ALICE], b"Entity/alice")
    for reader in (MALLORY, NOBODY):
        assert not subscriptions.may_hear(links[reader], b"Entity/alice")
