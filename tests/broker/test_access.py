"""Access rules: the first that fits decides."""

import pytest

from heliograph.broker.access import Access
from heliograph.broker.config import AccessConfig, RuleConfig
from heliograph.model.identity import ANONYMOUS, Identity, Role

ADMIN = Identity("root", (Role.ADMIN,))
SENSOR = Identity("sensor-7", (Role.CLIENT,))


def an_access(*rules: RuleConfig, default: str = "allow") -> Access:
    return Access(AccessConfig(rules=rules, default=default))


def test_the_first_rule_that_fits_decides() -> None:
    access = an_access(
        RuleConfig(effect="deny", topics=("a/secret",)),
        RuleConfig(effect="allow", topics=("a/#",)),
        RuleConfig(effect="deny", topics=("#",)),
    )
    profile = access.profile(ANONYMOUS)
    assert not profile.may("publish", b"a/secret")
    assert profile.may("publish", b"a/b")
    assert not profile.may("subscribe", b"b")


ALICE = Identity("alice", (Role.CLIENT,), "certificate")
TDN = Identity("tdn-1", (Role.DIRECTORY,), "certificate")


@pytest.mark.req("T5")
def test_proven_entities_speak_to_directories_and_each_hears_its_own_topic_only() -> None:
    access = an_access(default="deny")
    alice, nobody = access.profile(ALICE), access.profile(SENSOR)
    for topic in (b"Services/Discovery/Topics", b"Services/Discovery/TopicDiscoveryNode/tdn-1", b"Entity/bob"):
        assert alice.may("publish", topic)
        assert not nobody.may("publish", topic)
    assert alice.may_filter(b"Entity/alice")
    assert not alice.is_foreign(b"Entity/alice", ALICE)
    for pattern in (b"Entity/bob", b"Entity/#", b"Entity/+", b"Entity", b"Entity/+/x"):
        assert alice.is_foreign(pattern, ALICE), pattern
    for pattern in (b"Services/Discovery/#", b"Services/Discovery/Topics"):
        assert not alice.may_filter(pattern), pattern
    assert alice.may_filter(b"Services/Discovery/Topics/Owners")
    assert nobody.is_foreign(b"Entity/sensor-7", SENSOR), "its identity is not proven"
    assert not alice.may("publish", b"Services/Other")


@pytest.mark.req("T4")
def test_directories_hear_what_is_said_to_them_and_nothing_else_of_the_system() -> None:
    tdn = an_access(default="deny").profile(TDN)
    assert tdn.may_filter(b"Services/Discovery/Topics")
    assert tdn.may("publish", b"Entity/alice")
    assert tdn.is_foreign(b"Entity/alice", TDN)
    assert not tdn.may_filter(b"System/links")


def test_rules_name_entities_prefixes_and_roles() -> None:
    access = an_access(
        RuleConfig(effect="allow", topics=("one",), who=("sensor-7",)),
        RuleConfig(effect="allow", topics=("prefix",), who=("sensor-*",)),
        RuleConfig(effect="allow", topics=("role",), who=("role:admin",)),
        default="deny",
    )
    assert [access.profile(SENSOR).may("publish", topic) for topic in (b"one", b"prefix", b"role")] == [
        True,
        True,
        False,
    ]
    assert not access.profile(ANONYMOUS).may("publish", b"prefix")


def test_a_rule_can_speak_of_the_peers_own_entity() -> None:
    access = an_access(RuleConfig(effect="allow", topics=("home/{entity}/#",)), default="deny")
    assert access.profile(SENSOR).may("publish", b"home/sensor-7/t")
    assert not access.profile(SENSOR).may("publish", b"home/sensor-8/t")
    assert access.profile(SENSOR) is not access.profile(ANONYMOUS)


@pytest.mark.req("O8")
def test_system_topics_are_for_brokers_and_admins_unless_a_rule_names_them() -> None:
    plain = an_access(RuleConfig(effect="allow", topics=("#",)))
    for topic in (b"System/links", b"Services/x", b"Entity/me"):
        assert not plain.profile(ANONYMOUS).may("publish", topic)
        assert not plain.profile(ANONYMOUS).may("subscribe", topic)
        assert plain.profile(ADMIN).may("subscribe", topic)
    opened = an_access(RuleConfig(effect="allow", verbs=("subscribe",), topics=("System/#",)))
    assert opened.profile(ANONYMOUS).may("subscribe", b"System/links")
    assert not opened.profile(ANONYMOUS).may("publish", b"System/links")


def test_a_filter_is_refused_only_if_nothing_of_it_could_be_delivered() -> None:
    access = an_access(RuleConfig(effect="allow", topics=("a/open",)), RuleConfig(effect="deny", topics=("a/#", "b/#")))
    profile = access.profile(ANONYMOUS)
    assert profile.may_filter(b"a/+")
    assert not profile.may_filter(b"b/+")
    assert profile.may_filter(b"#")
    assert not profile.may_filter(b"System/#")


@pytest.mark.req("N19")
def test_inboxes_are_open_where_nothing_else_is_unless_a_rule_names_them() -> None:
    closed = an_access(default="deny").profile(ANONYMOUS)
    assert closed.may_filter(b"Inbox/0/1/#")  # that it is its own is for the subscriptions to see
    assert closed.may("subscribe", b"Inbox/0/1/7")
    assert closed.may("publish", b"Inbox/0/1/7")
    ruled = an_access(RuleConfig(effect="deny", topics=("Inbox/#",))).profile(ANONYMOUS)
    assert not ruled.may_filter(b"Inbox/0/1/#")


def test_only_admins_ask_the_admin_service() -> None:
    access = an_access()
    assert access.profile(ADMIN).may("ask", b"admin")
    assert not access.profile(ANONYMOUS).may("ask", b"admin")
    assert access.profile(ANONYMOUS).may("ask", b"weather")


def test_peers_with_the_same_rules_share_a_profile() -> None:
    access = an_access(RuleConfig(effect="deny", topics=("x",), who=("nobody",)))
    assert access.profile(SENSOR) is access.profile(ANONYMOUS)
    access.forget(access.profile(SENSOR))
    assert len(access) == 0
