"""One broker: sessions, subscriptions, publications, services."""

import json
from typing import Any

import pytest

from heliograph.broker.broker import Broker
from heliograph.broker.commands import Drain, LoadSettings, Reload, Stop
from heliograph.broker.config import AccessConfig, BrokerConfig, LimitsConfig, ListenerConfig, RuleConfig
from heliograph.broker.credentials import CheckToken
from heliograph.broker.sessions import CLAIMS_MAX
from heliograph.errors import Reason, UsageError
from heliograph.machine import Machine, Peer
from heliograph.model.identity import Identity, Role
from heliograph.model.topics import is_inbox
from heliograph.notes import ActionDenied, Note, PeerRefused, SettingsReloaded
from heliograph.trust.tokens import hash_token
from heliograph.wire.frames import Flag, Kind, ServiceFlag, control, event, service
from heliograph.wire.limits import FRAME_BYTES_MAX
from tests.broker.talk import Talk, frames

PUBLISHER, READER, OTHER = 1, 2, 3


def a_talk(config: BrokerConfig | None = None) -> Talk:
    talk = Talk(config)
    for link in (PUBLISHER, READER, OTHER):
        talk.join(link)
    return talk


def test_a_broker_keeps_the_contract() -> None:
    broker: Machine = Broker(BrokerConfig(), seed=1, incarnation=1)
    assert broker.take().wake_at is None


@pytest.mark.req("N1")
def test_a_publication_reaches_those_who_want_it_and_nobody_else() -> None:
    talk = a_talk()
    talk.subscribe(READER, "a/+")
    talk.publish(PUBLISHER, "a/b", b"one", b"two")
    talk.publish(PUBLISHER, "a/b/c", b"three")
    assert talk.heard[READER].payloads == [b"one", b"two"]
    assert talk.heard[OTHER].events == []


def test_a_link_with_several_matching_subscriptions_gets_one_copy_with_all_numbers() -> None:
    talk = a_talk()
    for number, pattern in ((9, "a/#"), (4, "a/b"), (5, "x")):
        talk.subscribe(READER, pattern, number)
    talk.publish(PUBLISHER, "a/b", b"one")
    assert [(numbers, frame.payload) for numbers, frame in talk.heard[READER].events] == [((4, 9), b"one")]


def test_order_from_one_publisher_holds_across_topics() -> None:
    talk = a_talk()
    talk.subscribe(READER, "a", 1)
    talk.subscribe(READER, "b", 2)
    talk.say(PUBLISHER, b"".join(talk.an_event(PUBLISHER, "ab"[n % 2], b"%d" % n) for n in range(20)))
    assert talk.heard[READER].payloads == [b"%d" % n for n in range(20)]


def test_without_echo_a_session_does_not_hear_itself() -> None:
    talk = a_talk()
    talk.subscribe(READER, "a", 1, echo=False)
    talk.subscribe(OTHER, "a", 1, echo=False)
    talk.subscribe(OTHER, "#", 2)
    talk.publish(READER, "a", b"from reader")
    talk.publish(OTHER, "a", b"from other")
    assert [(n, f.payload) for n, f in talk.heard[READER].events] == [((1,), b"from other")]
    assert [(n, f.payload) for n, f in talk.heard[OTHER].events] == [((1, 2), b"from reader"), ((2,), b"from other")]


@pytest.mark.req("N6")
def test_a_repeated_publication_is_delivered_once_also_over_a_new_link() -> None:
    talk = a_talk()
    talk.subscribe(READER, "a")
    first = talk.an_event(PUBLISHER, "a", b"one")
    talk.say(PUBLISHER, first + first)
    talk.leave(PUBLISHER)
    talk.attach(9)
    talk.say(9, talk.hello(PUBLISHER) + first)
    assert talk.heard[READER].payloads == [b"one"]
    welcome = json.loads(talk.heard[9].answers[0].payload)
    assert int(welcome["seen"], 16) == 1
    assert talk.broker.report("overview")["duplicates"] == 2


def test_the_same_session_on_a_new_link_takes_over() -> None:
    talk = a_talk()
    talk.attach(9)
    talk.say(9, talk.hello(READER))
    assert talk.heard[READER].goodbye == "taken_over"
    assert talk.hangups == {READER: Reason.TAKEN_OVER}


@pytest.mark.req("O6")
def test_a_hello_never_takes_over_the_session_of_a_service() -> None:
    talk = a_talk()
    talk.attach(50, Peer("pipe", "store"))
    talk.say(50, talk.hello(50))
    talk.attach(9)
    talk.say(9, talk.hello(50))  # the peer has learned the service's secret

    assert talk.heard[9].goodbye == "origin_foreign"
    assert talk.hangups == {9: Reason.ORIGIN_FOREIGN}
    talk.subscribe(50, "a")
    talk.publish(PUBLISHER, "a", b"still heard")
    assert talk.heard[50].payloads == [b"still heard"]


def test_a_batch_is_delivered_as_one_delivery() -> None:
    talk = a_talk()
    talk.subscribe(READER, "a")
    talk.say(PUBLISHER, b"".join(talk.an_event(PUBLISHER, "a", b"%d" % n) for n in range(50)), take=False)
    [(link, chunks)] = talk.broker.take().writes
    assert link == READER
    [delivery] = frames(b"".join(chunks))
    assert len(frames(delivery.payload)) == 50


def test_publications_for_one_inbox_travel_together() -> None:
    talk = a_talk()
    [welcome] = [frame for frame in talk.heard[READER].answers if frame.kind == Kind.WELCOME]
    named = b'{"$d":["%b"]}' % json.loads(welcome.payload)["inbox"].encode()
    events = [talk.an_event(PUBLISHER, f"t/{n}", b"", headers=named, flags=int(Flag.DIRECTED)) for n in range(50)]
    talk.say(PUBLISHER, b"".join(events), take=False)
    [delivery] = [frames(b"".join(chunks)) for link, chunks in talk.broker.take().writes if link == READER]
    assert [len(frames(one.payload)) for one in delivery] == [50]


@pytest.mark.req("O6")
def test_an_inbox_that_is_named_many_times_gets_the_publication_once() -> None:
    talk = a_talk()
    [welcome] = [frame for frame in talk.heard[READER].answers if frame.kind == Kind.WELCOME]
    inbox = json.loads(welcome.payload)["inbox"]
    named = json.dumps({"$d": [inbox] * 64}).encode()
    talk.say(PUBLISHER, talk.an_event(PUBLISHER, "t/1", b"once", headers=named, flags=int(Flag.DIRECTED)))
    assert talk.heard[READER].payloads == [b"once"]


def test_a_changed_subscription_is_felt_by_the_next_publication() -> None:
    talk = a_talk()
    talk.publish(PUBLISHER, "a/b", b"before")
    talk.subscribe(READER, "a/#")
    talk.publish(PUBLISHER, "a/b", b"during")
    talk.unsubscribe(READER)
    talk.publish(PUBLISHER, "a/b", b"after")
    assert talk.heard[READER].payloads == [b"during"]
    assert [frame.sequence for frame in talk.heard[READER].answers if frame.kind == Kind.CONFIRMED] == [1001, 2001]


def test_a_departed_link_with_many_subscriptions_is_forgotten_in_slices() -> None:
    talk = a_talk()
    for number in range(1_000):
        talk.subscribe(READER, f"a/{number}", number)
    talk.leave(READER)
    assert talk.broker.report("overview")["subscriptions"] > 0
    talk.pass_time(1)
    assert talk.broker.report("overview")["subscriptions"] == 0


@pytest.mark.parametrize(
    ("pattern", "fields", "reason"),
    [
        ("a/#/b", {}, "filter_invalid"),
        ("", {}, "filter_invalid"),
        ("a", {"language": "klingon"}, "language_unsupported"),
        ("a", {"policy": "shrug"}, "body_malformed"),
        ("a", {"number": 1 << 32}, "body_malformed"),
        ("taken", {"number": 7}, "subscription_taken"),
        ("System/#", {}, "subscribe_denied"),
    ],
)
def test_a_bad_subscription_is_refused_and_the_link_lives(pattern: str, fields: dict, reason: str) -> None:
    talk = a_talk()
    talk.subscribe(READER, "x", 7)
    body = {"number": 1, "filter": pattern, **fields}
    talk.say(READER, control(Kind.SUBSCRIBE, 5, json.dumps(body).encode()))
    assert talk.heard[READER].refusals == [reason]
    assert talk.hangups == {}
    assert talk.broker.report("overview")["refused"][reason] == 1


def test_limits_on_subscriptions_are_told() -> None:
    limits = LimitsConfig(subscriptions_per_link_max=2, subscriptions_max=3)
    talk = a_talk(BrokerConfig(limits=limits))
    for number in range(3):
        talk.subscribe(READER, "a", number)
    for number in range(2):
        talk.subscribe(OTHER, "a", number)
    assert talk.heard[READER].refusals == ["subscriptions_over_limit"]
    assert talk.heard[OTHER].refusals == ["subscriptions_over_limit"]


def test_a_denied_publication_is_told_once_and_spreads_nowhere() -> None:
    rules = AccessConfig(rules=(RuleConfig(effect="deny", verbs=("publish",), topics=("secret/#",)),))
    talk = a_talk(BrokerConfig(access=rules))
    talk.subscribe(READER, "#")
    talk.publish(PUBLISHER, "secret/a", b"1", b"2")
    talk.publish(PUBLISHER, "open", b"3")
    assert talk.heard[PUBLISHER].refusals == ["publish_denied"]
    assert talk.heard[READER].payloads == [b"3"]
    assert talk.broker.report("overview")["denied"] == 2
    assert [note.subject for note in talk.notes if isinstance(note, ActionDenied)] == ["secret/a"]


def test_a_subscriber_is_not_delivered_what_it_may_not_have() -> None:
    rules = AccessConfig(rules=(RuleConfig(effect="deny", verbs=("subscribe",), topics=("a/secret",)),))
    talk = a_talk(BrokerConfig(access=rules))
    talk.subscribe(READER, "a/#")
    talk.publish(PUBLISHER, "a/secret", b"no")
    talk.publish(PUBLISHER, "a/open", b"yes")
    assert talk.heard[READER].payloads == [b"yes"]


@pytest.mark.req("O9")
def test_new_rules_are_in_force_at_once() -> None:
    talk = a_talk()
    talk.subscribe(READER, "a")
    talk.publish(PUBLISHER, "a", b"before")
    rules = AccessConfig(rules=(RuleConfig(effect="deny", verbs=("subscribe",), topics=("a",)),))
    talk.broker.tell(Reload(BrokerConfig(access=rules)), talk.now)
    talk.publish(PUBLISHER, "a", b"after")
    assert talk.heard[READER].payloads == [b"before"]
    assert SettingsReloaded(1, 0) in talk.notes


@pytest.mark.req("N1")
def test_an_expired_publication_is_dropped_and_counted() -> None:
    talk = a_talk()
    talk.broker.clock(10_000_000_000, talk.now)
    talk.subscribe(READER, "a")
    for expiry_us in (9_999_999, 10_000_001):
        talk.publish(PUBLISHER, "a", b"%d" % expiry_us, headers=b'{"$x":%d}' % expiry_us, flags=Flag.EXPIRES)
    assert talk.heard[READER].payloads == [b"10000001"]
    assert talk.broker.report("overview")["expired"] == 1


def test_a_malformed_publication_is_discarded_and_the_link_lives() -> None:
    talk = a_talk()
    talk.subscribe(READER, "a")
    talk.publish(PUBLISHER, "a//b")
    talk.publish(PUBLISHER, "a", headers=b"not json", flags=Flag.EXPIRES)
    talk.publish(PUBLISHER, "a", b"good")
    assert talk.heard[PUBLISHER].refusals == ["topic_invalid", "headers_malformed"]
    assert talk.heard[READER].payloads == [b"good"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (event(b"a", b"x", 1, 1), "origin_foreign"),
        (event(b"a", b"x", 1, 1, flags=Flag.PACKED), "flags_unknown"),
        (control(Kind.WELCOME), "kind_unexpected"),
        (b"\x18\0\0\0\x63" + bytes(23), "kind_unknown"),
        (b"\x17\0\0\0\x01" + bytes(23), "frame_too_short"),
        (b"\xff\xff\xff\xff\x01" + bytes(23), "frame_over_limit"),
        (b"\xff\xff\xff\x00\x15" + bytes(23), "frame_over_limit"),
        (b"\x18\0\0\0\x01\0\x05\0" + bytes(20), "topic_over_frame"),
        (b"\x18\0\0\0\x01\0\0\0" + bytes(16) + b"\x01\0\0\0", "headers_over_frame"),
        (control(Kind.SUBSCRIBE, 1, b"{"), "body_malformed"),
        (control(Kind.HELLO, 0, b"{}"), "kind_unexpected"),
    ],
)
@pytest.mark.req("O6")
def test_a_peer_that_breaks_the_rules_loses_its_link_and_nobody_elses(bad: bytes, reason: str) -> None:
    talk = a_talk()
    talk.subscribe(READER, "a")
    talk.say(OTHER, bad)
    talk.publish(PUBLISHER, "a", b"still here")
    assert talk.heard[OTHER].goodbye == reason
    assert list(talk.hangups) == [OTHER]
    assert [note.reason.word for note in talk.notes if isinstance(note, PeerRefused)] == [reason]
    assert talk.broker.report("overview")["refused"] == {reason: 1}
    assert talk.heard[READER].payloads == [b"still here"]


def test_a_large_frame_in_many_pieces_is_put_together() -> None:
    talk = a_talk()
    talk.subscribe(READER, "a")
    whole = talk.an_event(PUBLISHER, "a", b"y" * 300_000)
    for start in range(0, len(whole), 1_000):
        talk.say(PUBLISHER, whole[start : start + 1_000])
    assert talk.heard[READER].payloads == [b"y" * 300_000]


# -- handshake ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"versions": [2]}, "version_unsupported"),
        ({"needs": ["teleport"]}, "feature_unsupported"),
        ({"secret": "xyz"}, "body_malformed"),
        ({"secret": "00"}, "body_malformed"),
        ({"name": "a\nb"}, "body_malformed"),
        ({"token": "wrong", "entity": "nobody"}, "credential_wrong"),
    ],
)
def test_a_bad_hello_is_told_why(fields: dict, reason: str) -> None:
    talk = Talk()
    talk.join(1, **fields)
    assert talk.heard[1].goodbye == reason
    assert talk.hangups[1].word == reason


def test_an_unproven_link_has_a_time_budget() -> None:
    talk = Talk()
    talk.attach(1)
    talk.say(1, talk.hello(1)[:10])
    talk.pass_time(1_999)
    assert talk.hangups == {}
    talk.pass_time(2)
    assert talk.heard[1].goodbye == "handshake_too_slow"


def test_an_unproven_link_has_a_byte_budget() -> None:
    talk = Talk()
    talk.attach(1)
    talk.say(1, control(Kind.HELLO, 0, b" " * 20_000)[:28])
    assert talk.heard[1].goodbye == "handshake_over_budget"


def test_a_broker_has_a_limit_on_links() -> None:
    talk = Talk(BrokerConfig(limits=LimitsConfig(links_max=1)))
    talk.join(1)
    talk.attach(2)
    assert talk.heard[2].goodbye == "links_over_limit"


TOKEN = "correct horse"
RECORD = hash_token("sensor-7", (Role.CLIENT,), TOKEN, b"s" * 16)
TOKEN_CONFIG = BrokerConfig(listeners=(ListenerConfig(auth="token"),), tokens=(RECORD,))


def test_a_token_is_checked_by_a_job_and_what_follows_waits_for_it() -> None:
    talk = Talk(TOKEN_CONFIG)
    talk.attach(1)
    talk.say(1, talk.hello(1, entity="sensor-7", token=TOKEN) + control(Kind.PING, 5))
    assert talk.heard[1].answers == []
    assert talk.held == {1: True}
    [(ticket, job)] = talk.jobs
    talk.broker.done(ticket, job.run(), talk.now)
    talk.take()
    assert talk.heard[1].order == ["WELCOME", "PONG"]
    assert talk.held == {1: False}
    assert json.loads(talk.heard[1].answers[0].payload)["entity"] == "sensor-7"
    talk.join(2, entity="sensor-7", token=TOKEN)
    assert talk.heard[2].order == ["WELCOME"], "a token found right is not hashed again"


@pytest.mark.req("O9")
@pytest.mark.parametrize("in_check", [False, True])
@pytest.mark.parametrize(
    ("left", "ends"),
    [
        ((), True),
        ((hash_token("sensor-7", (Role.CLIENT, Role.ADMIN), "sensor-7 token", b"s" * 16),), True),
        ((hash_token("sensor-7", (Role.CLIENT,), "another token", b"t" * 16),), True),
        ("the same", False),
    ],
)
def test_a_link_ends_when_its_token_is_removed_or_changed(left: Any, ends: bool, in_check: bool) -> None:
    talk = Talk(TOKEN_CONFIG)
    talk.join(1, entity="sensor-7", token=TOKEN)
    [(ticket, job)] = talk.jobs
    if not in_check:
        talk.broker.done(ticket, job.run(), talk.now)
    other = hash_token("other", (Role.CLIENT,), "other", b"o" * 16)
    tokens = (other, RECORD) if left == "the same" else (other, *left)
    talk.broker.tell(Reload(BrokerConfig(listeners=(ListenerConfig(auth="token"),), tokens=tokens)), talk.now)
    if in_check:
        talk.broker.done(ticket, job.run(), talk.now)
    talk.take()
    assert talk.heard[1].goodbye == ("credential_wrong" if ends else None)
    assert ("WELCOME" in talk.heard[1].order) is not (ends and in_check)


@pytest.mark.req("O6")
def test_a_proven_token_does_not_take_over_the_session_of_a_service_either() -> None:
    """The service came while the token was checked."""
    talk = Talk(TOKEN_CONFIG)
    talk.attach(9)
    talk.say(9, talk.hello(50, entity="sensor-7", token=TOKEN) + control(Kind.PING, 5))
    talk.attach(50, Peer("pipe", "store"))
    talk.say(50, talk.hello(50))
    [(ticket, job)] = talk.jobs
    talk.broker.done(ticket, job.run(), talk.now)
    talk.take()

    assert talk.heard[9].order == ["GOODBYE"]
    assert talk.hangups == {9: Reason.ORIGIN_FOREIGN}


def test_of_a_session_that_has_gone_few_gaps_are_remembered() -> None:
    """A thousand gaps are 150 KB, and a hundred thousand sessions may be remembered."""
    talk = Talk()
    talk.join(1)
    talk.join(2)
    talk.subscribe(2, "a")
    for number in range(100):
        talk.say(1, talk.an_event(1, "a", b"%d" % number, sequence=2 * number))
    talk.leave(1)
    talk.attach(3)
    talk.say(3, talk.hello(1))
    talk.say(3, talk.an_event(1, "a", b"of an old gap", sequence=3))
    talk.say(3, talk.an_event(1, "a", b"of a young gap", sequence=195))

    assert talk.heard[2].payloads[100:] == [b"of a young gap"]
    assert talk.broker.report("overview")["duplicates"] == 1


def test_a_token_that_nobody_could_check_is_not_called_wrong() -> None:
    """Else a flood of wrong tokens would make good clients give up for good."""
    talk = Talk(TOKEN_CONFIG)
    talk.join(1, entity="sensor-7", token=TOKEN)
    [(ticket, _)] = talk.jobs
    talk.broker.failed(ticket, Reason.REQUESTS_OVER_LIMIT, talk.now)
    talk.take()
    assert talk.hangups[1] is Reason.LINKS_OVER_LIMIT
    assert talk.heard[1].goodbye == "links_over_limit"


def refused(entity: str, right: bool | None = None) -> tuple[list[bytes], list[Note], dict[str, int], CheckToken]:
    """What a wrong token leads to: words on the wire, notes, counters, and the work that was done for it."""
    talk = Talk(TOKEN_CONFIG)
    talk.join(1, entity=entity, token="wrong")
    [(ticket, job)] = talk.jobs
    talk.broker.done(ticket, job.run() if right is None else right, talk.now)
    talk.take()
    assert talk.heard[1].goodbye == "credential_wrong"
    return (
        [frame.payload for frame in talk.heard[1].answers],
        talk.notes,
        talk.broker.report("overview")["refused"],
        job,
    )


def test_nothing_tells_an_unknown_entity_from_a_wrong_token() -> None:
    """Neither words, notes and counters nor the work, which is what takes the time."""
    *known, known_job = refused("sensor-7")
    *unknown, unknown_job = refused("sensor-8")
    assert unknown == known
    assert PeerRefused(1, Reason.CREDENTIAL_WRONG, "unknown entity or wrong token") in known[1]
    assert known[2] == {"credential_wrong": 1}
    for part in ("salt", "digest"):
        assert len(getattr(unknown_job, part)) == len(getattr(known_job, part))


def test_an_unknown_entity_is_nobody_whatever_its_check_says() -> None:
    refused("sensor-8", right=True)


def test_a_broker_without_tokens_hashes_nothing() -> None:
    talk = Talk(BrokerConfig(listeners=(ListenerConfig(auth="token"),)))
    talk.join(1, entity="sensor-7", token=TOKEN)
    assert talk.heard[1].goodbye == "credential_wrong"
    assert talk.jobs == []


def test_tokens_beyond_what_can_be_checked_in_time_are_sent_away_to_try_again() -> None:
    """Known and unknown names share one bound, so neither is a cheaper way to keep the workers busy."""
    talk = Talk(TOKEN_CONFIG)
    for link in range(1, CLAIMS_MAX + 1):
        talk.attach(link, Peer("tcp", f"192.0.2.{link}:50000", "main"))
        talk.say(link, talk.hello(link, entity=("sensor-7", "sensor-8")[link % 2], token="wrong"))
        talk.leave(link)  # the work was asked for and cannot be taken back
    talk.join(100, entity="sensor-7", token=TOKEN)
    talk.join(101, entity="sensor-8", token=TOKEN)
    assert talk.heard[100].goodbye == talk.heard[101].goodbye == "links_over_limit"
    assert len(talk.jobs) == CLAIMS_MAX
    talk.broker.done(talk.jobs[0][0], False, talk.now)
    talk.join(102, entity="sensor-7", token=TOKEN)
    ticket, job = talk.jobs[-1]
    talk.broker.done(ticket, job.run(), talk.now)
    talk.take()
    assert talk.heard[102].order == ["WELCOME"]


def test_a_listener_that_asks_for_credentials_refuses_those_without() -> None:
    talk = Talk(TOKEN_CONFIG)
    talk.join(1)
    assert talk.heard[1].goodbye == "credential_missing"


def test_a_certificate_is_an_identity() -> None:
    config = BrokerConfig(listeners=(ListenerConfig(secure=True, auth="certificate"),))
    talk = Talk(config)
    talk.attach(1, Peer("tls", "10.0.0.1:5", "main", Identity("ops", (Role.ADMIN,), "certificate")))
    talk.say(1, talk.hello(1))
    assert json.loads(talk.heard[1].answers[0].payload)["roles"] == ["admin"]
    talk.attach(2, Peer("tls", "10.0.0.1:6", "main", Identity("odd", (), "certificate")))
    talk.say(2, talk.hello(2))
    assert talk.heard[2].goodbye == "role_missing"


# -- keep-alive, drain, stop ----------------------------------------------------------------------------------------


def test_a_quiet_link_is_asked_for_a_sign_of_life_and_a_silent_one_ends() -> None:
    talk = Talk()
    talk.join(1, keep_alive_ms=1_000)
    talk.pass_time(1_500)
    assert talk.heard[1].order == ["WELCOME", "PING"]
    talk.say(1, control(Kind.PONG))
    talk.pass_time(2_500)
    assert talk.hangups == {}
    talk.pass_time(1_000)
    assert talk.heard[1].goodbye == "silent"


def test_a_ping_is_answered_behind_what_came_before_it() -> None:
    talk = a_talk()
    talk.subscribe(PUBLISHER, "a")
    talk.say(PUBLISHER, talk.an_event(PUBLISHER, "a") + control(Kind.PING, 77))
    assert talk.heard[PUBLISHER].order[-2:] == ["EVENT", "PONG"]
    assert talk.heard[PUBLISHER].answers[-1].sequence == 77


def test_a_draining_broker_warns_waits_and_stops() -> None:
    talk = a_talk()
    talk.broker.tell(Drain(5_000), talk.now)
    talk.take()
    said = json.loads(talk.heard[READER].answers[-1].payload)
    assert (said["reason"], said["grace_ms"]) == ("draining", 5_000)
    talk.attach(9)
    assert talk.heard[9].goodbye == "draining"
    talk.leave(9)
    talk.subscribe(READER, "a")
    talk.publish(PUBLISHER, "a", b"still served")
    assert talk.heard[READER].payloads == [b"still served"]
    for link in (PUBLISHER, READER):
        talk.leave(link)
    assert not talk.stopped
    talk.leave(OTHER)
    assert talk.stopped


def test_a_drain_ends_when_its_grace_is_over() -> None:
    talk = a_talk()
    talk.broker.tell(Drain(100), talk.now)
    talk.take()
    talk.pass_time(101)
    assert talk.stopped
    assert talk.hangups == dict.fromkeys((PUBLISHER, READER, OTHER), Reason.DRAINING)


def test_stop_says_goodbye_to_everybody() -> None:
    talk = a_talk()
    talk.broker.tell(Stop(), talk.now)
    talk.take()
    assert talk.stopped
    assert talk.heard[READER].goodbye == "stopping"


def test_an_unknown_command_is_the_callers_fault() -> None:
    with pytest.raises(UsageError):
        Talk().broker.tell("dance", 0)


# -- services -------------------------------------------------------------------------------------------------------


def an_admin_talk() -> Talk:
    talk = Talk(BrokerConfig(listeners=(ListenerConfig(auth="certificate", secure=True),)))
    talk.attach(50, Peer("pipe", "admin"))
    for link, role in ((1, Role.ADMIN), (2, Role.CLIENT)):
        talk.attach(link, Peer("tls", f"10.0.0.1:{link}", "main", Identity(f"e{link}", (role,), "certificate")))
        talk.say(link, talk.hello(link))
    return talk


def test_a_request_goes_to_the_service_with_its_asker_and_the_answer_comes_back() -> None:
    talk = an_admin_talk()
    talk.say(1, service(b"admin", b'{"do":"report"}', 9))
    [request] = talk.heard[50].answers
    assert (request.topic, request.origin, request.sequence) == (b"admin", 1, 9)
    asker = json.loads(request.headers)
    assert (asker["entity"], asker["roles"], asker["session"]) == ("e1", ["admin"], f"{talk.origin(1):016x}")
    assert is_inbox(asker["inbox"])
    talk.say(50, service(b"admin", b'{"ok":1}', 9, asker=1, flags=ServiceFlag.ANSWER))
    answer = talk.heard[1].answers[-1]
    assert (answer.payload, answer.sequence, answer.flags) == (b'{"ok":1}', 9, ServiceFlag.ANSWER)


@pytest.mark.parametrize(
    ("link", "name", "reason"),
    [(2, b"admin", "ask_denied"), (1, b"oracle", "service_unknown"), (1, b"broker", "service_unknown")],
)
def test_a_request_that_cannot_be_served_is_refused(link: int, name: bytes, reason: str) -> None:
    talk = an_admin_talk()
    talk.say(link, service(name, b"{}", 3))
    answer = talk.heard[link].answers[-1]
    assert answer.flags == ServiceFlag.ANSWER | ServiceFlag.REFUSAL
    assert json.loads(answer.payload)["reason"] == reason
    assert talk.hangups == {}


@pytest.mark.req("O6")
def test_a_page_of_a_report_fits_a_frame_however_long_its_rows_are() -> None:
    talk = an_admin_talk()
    where = "x = '" + "\U0001f989" * 7_900 + "'"
    for number in range(1, 61):
        body = {"number": number, "filter": f"a/{number}", "language": "predicates", "where": where}
        talk.say(2, control(Kind.SUBSCRIBE, number, json.dumps(body, ensure_ascii=False).encode()))
    rows: list[dict[str, object]] = []
    total = 60
    while len(rows) < total:
        asked = {"do": "report", "question": "subscriptions", "start": len(rows)}
        talk.say(50, service(b"broker", json.dumps(asked).encode(), 9))
        answer = talk.heard[50].answers[-1]
        assert len(answer.raw) < FRAME_BYTES_MAX
        page = json.loads(answer.payload)
        assert page["rows"], "a page has at least one row"
        rows += page["rows"]
        total = page["total"]
    assert len(rows) == 60
    assert talk.hangups == {}


@pytest.mark.req("O6")
def test_an_answer_that_is_too_large_for_a_frame_costs_the_request_and_no_link() -> None:
    with pytest.raises(OverflowError, match="at most"):
        service(b"admin", bytes(FRAME_BYTES_MAX), 9)


@pytest.mark.req("O6")
def test_a_request_with_the_number_of_one_that_is_under_way_is_refused_and_asks_nothing() -> None:
    talk = an_admin_talk()
    for _ in range(3):
        talk.say(1, service(b"admin", b"{}", 7))
    answers = [json.loads(answer.payload)["reason"] for answer in talk.heard[1].answers[-2:]]
    assert answers == ["duplicate", "duplicate"]
    assert [frame.sequence for frame in talk.heard[50].answers if frame.kind == Kind.SERVICE] == [7]


def test_requests_under_way_are_bounded_and_refused_when_the_service_ends() -> None:
    talk = an_admin_talk()
    for number in range(65):
        talk.say(1, service(b"admin", b"{}", number))
    assert json.loads(talk.heard[1].answers[-1].payload)["reason"] == "requests_over_limit"
    talk.leave(50)
    assert json.loads(talk.heard[1].answers[-1].payload)["reason"] == "service_gone"
    assert len(talk.heard[1].answers) == 1 + 1 + 64


def test_the_broker_takes_orders_from_its_own_services_only() -> None:
    talk = an_admin_talk()
    talk.say(50, service(b"broker", b'{"do":"report","question":"links","count":2}', 1))
    page = json.loads(talk.heard[50].answers[-1].payload)
    assert (page["total"], len(page["rows"])) == (3, 2)
    talk.say(50, service(b"broker", b'{"do":"report","question":"weather"}', 2))
    assert json.loads(talk.heard[50].answers[-1].payload)["reason"] == "question_unknown"
    talk.say(50, service(b"broker", b'{"do":"link","host":"b","port":1,"secure":true}', 4))
    assert json.loads(talk.heard[50].answers[-1].payload)["reason"] == "config_invalid"
    talk.say(50, service(b"broker", b'{"do":"reload"}', 3))
    [(ticket, job)] = talk.jobs
    assert isinstance(job, LoadSettings)
    talk.broker.failed(ticket, Reason.CONFIG_INVALID, talk.now)
    talk.take()
    assert json.loads(talk.heard[50].answers[-1].payload) == {"ok": False, "reason": "config_invalid"}


@pytest.mark.parametrize("whole", [True, False])
def test_the_limit_for_payloads_of_clients_does_not_end_a_service(whole: bool) -> None:
    talk = a_talk(BrokerConfig(limits=LimitsConfig(payload_bytes_max=1_024)))
    talk.subscribe(READER, "a")
    talk.attach(9, Peer("pipe", "stores"))
    talk.say(9, talk.hello(9))
    data = talk.an_event(9, "a", bytes(40_000))
    for part in (data,) if whole else (data[:100], data[100:]):
        talk.say(9, part)
    talk.publish(PUBLISHER, "a", bytes(1_025))
    assert talk.hangups == {PUBLISHER: Reason.FRAME_OVER_LIMIT}
    assert talk.heard[READER].payloads == [bytes(40_000)]
