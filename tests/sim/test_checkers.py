"""Each checker notices what it is there for, and accepts what is right: journals written by hand, no machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from heliograph.broker.config import AccessConfig, RuleConfig
from heliograph.notes import PublicationsDropped, SessionRoamed
from heliograph.sim.checkers import CHECKERS, Checker
from heliograph.sim.checkers.order import Order
from heliograph.sim.checkers.rules import may, people
from heliograph.sim.journal import Journal
from heliograph.sim.loop import SECOND, Loop
from heliograph.sim.scenario import Scenario
from heliograph.sim.scenario_files import parse
from heliograph.topology.scenario_network import BrokerPlan

SCENARIO = parse("""
[scenario]
name = "by hand"
[topology.brokers.a]
[topology.brokers.b]
[topology.clients.p]
broker = "a"
[topology.clients.s]
broker = "a"
[topology.clients.far]
broker = "b"
""")
NO_LOSS = {"links": [{"name": "s", "dropped": 0}], "overview": {"lost": {"inbox": 0}}}


class World:
    """A journal, one checker, and reports as a test wants them."""

    def __init__(self, name: str, scenario: Scenario = SCENARIO, reports: dict[str, Any] | None = None) -> None:
        self.loop = Loop()
        self.journal = Journal(self.loop)
        self.reports = reports or NO_LOSS
        self.checker: Checker = CHECKERS[name](scenario, self.journal, lambda host, question: self.reports[question])
        for client in ("p", "s", "far"):
            self.write("started", client, 1)

    def write(self, kind: str, who: str, *details: Any) -> None:
        self.loop.now += 1
        self.loop.step += 1
        self.journal.write(kind, who, *details)

    def subscribe(
        self, who: str = "s", number: int = 1, pattern: str = "x/#", echo: bool = True, where: str = ""
    ) -> None:
        self.write("subscribing", who, number, pattern, "drop_oldest", echo, where)
        self.write("subscribed", who, number)

    def publish(self, number: int, topic: str = "x/y", who: str = "p", **headers: Any) -> None:
        self.write("published", who, number, topic, b"payload", headers)

    def receive(
        self, number: int, topic: str = "x/y", who: str = "s", sub: int = 1, publisher: str = "p", **headers: Any
    ) -> None:
        self.write("received", who, sub, publisher, 1, number, topic, b"payload", headers)

    def reach(
        self, number: int, who: str = "s", source: str = "a", life: int = 1, link: int = 1, publisher: str = "p"
    ) -> None:
        self.write("reached", who, source, life, link, publisher, 1, number)

    def enter(self, *numbers: int) -> None:
        for number in numbers:
            self.publish(number)
            self.reach(number, "a", source="p")

    def verdict(self) -> list[str]:
        self.checker.end()
        return [violation.text for violation in self.checker.violations]


# Delivery.


def test_delivery_misses_a_confirmed_publication_and_says_when_it_was_published() -> None:
    world = World("delivery")
    world.subscribe()
    world.publish(1)
    world.publish(2)
    step = world.loop.step
    world.receive(1)
    world.write("flushed", "p", 2)

    assert world.verdict() == ["s never got publication 2 of p on x/y"]
    assert world.checker.violations[0].step == step


@pytest.mark.parametrize(
    "excuse",
    [
        ("detached", "s", 1, "a:1", "reset"),
        ("unsubscribing", "s", 1),
        ("leaving", "s"),
        ("crashed", "s", ""),
    ],
)
def test_delivery_excuses_a_subscriber_that_was_gone_before_it_could_read(excuse: tuple[Any, ...]) -> None:
    world = World("delivery")
    world.subscribe()
    world.publish(1)
    world.write("flushed", "p", 1)
    world.write(*excuse)

    assert world.verdict() == []


def test_delivery_expects_nothing_unconfirmed_unmatched_elsewhere_or_before_the_subscription() -> None:
    world = World("delivery")
    world.publish(1)
    world.subscribe()
    world.subscribe("far")
    world.subscribe("p", 1, "x/#", echo=False)
    world.publish(2, "other")
    world.write("flushed", "p", 2)
    world.publish(3)

    assert world.verdict() == []


def test_delivery_expects_again_once_a_client_is_restored() -> None:
    world = World("delivery")
    world.subscribe()
    world.write("detached", "s", 1, "a:1", "reset")
    world.publish(1)
    world.write("restored", "s")
    world.publish(2)
    world.write("flushed", "p", 2)

    assert world.verdict() == ["s never got publication 2 of p on x/y"]


def test_delivery_does_not_count_a_flush_for_an_earlier_session() -> None:
    world = World("delivery")
    world.subscribe()
    world.publish(1)
    world.write("crashed", "p", "")
    world.write("started", "p", 2)
    world.publish(2)
    world.receive(2)
    world.write("flushed", "p", 2)

    assert world.verdict() == []


def test_delivery_accepts_losses_that_were_counted_and_no_more() -> None:
    for dropped, expected in ((2, 0), (1, 2)):
        reports = {"links": [{"name": "s", "dropped": dropped}], "overview": {"lost": {"inbox": 0}}}
        world = World("delivery", reports=reports)
        world.subscribe()
        world.publish(1)
        world.publish(2)
        world.write("flushed", "p", 2)
        assert len(world.verdict()) == expected


# The others.


def test_duplicates_are_noticed_per_subscription() -> None:
    world = World("duplicates")
    for sub in (1, 2):
        world.receive(1, sub=sub)
    assert world.verdict() == []
    world.receive(1)

    assert world.verdict() == ["s got publication 1 of p on x/y twice from one subscription"]


def test_order_is_kept_across_topics() -> None:
    world = World("order")
    for number in (1, 2, 3):
        world.publish(number, f"x/{number}")
    for number in (1, 3, 2):
        world.reach(number)
        world.receive(number, f"x/{number}")

    assert world.verdict() == ["s got publication 2 of p on x/2 after its publication 3"]


@pytest.mark.parametrize("who", ["p", "s"])
@pytest.mark.parametrize("link", [1, 2])
def test_order_excuses_what_was_repeated_to_a_subscriber_with_another_link(who: str, link: int) -> None:
    """The publisher must have lost its link, and the subscriber must have another one."""
    world = World("order")
    world.publish(1)
    world.publish(2)
    world.reach(2)
    world.receive(2)
    world.write("detached", who, 1, "a:1", "reset")
    world.reach(1, link=link)
    world.receive(1)

    assert len(world.verdict()) == (0 if (who, link) == ("p", 2) else 1)


@pytest.mark.parametrize(("after_s", "blamed"), [(-1, 0), (0.05, 0), (0.2, 1)])
def test_order_excuses_what_was_repeated_and_is_older_than_the_subscription(after_s: float, blamed: int) -> None:
    """It was published then, counted from when the subscription was in force; it takes a moment until all know it."""
    world = World("order")
    world.loop.now += 2 * SECOND
    subscribed = world.loop.now
    if after_s > 0:
        world.subscribe()
        world.loop.now = subscribed + int(after_s * SECOND)
    world.publish(1)
    if after_s < 0:
        world.loop.now += SECOND
        world.subscribe()
    world.publish(2)
    world.reach(2)
    world.receive(2)
    world.write("detached", "p", 1, "a:1", "reset")
    world.reach(1)
    world.receive(1)

    assert len(world.verdict()) == blamed


def test_order_does_not_excuse_what_was_published_after_the_publisher_lost_its_link() -> None:
    world = World("order")
    world.write("detached", "p", 1, "a:1", "reset")
    for number in (1, 2):
        world.publish(number)
    for number in (2, 1):
        world.reach(number, link=3 - number)
        world.receive(number)

    assert len(world.verdict()) == 1


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda w: w.publish(1, "other") or w.receive(1, "other"), "it subscribed to x/#"),
        (lambda w: w.publish(1) or w.receive(2), "which no client published so"),
        (lambda w: w.publish(1) or w.receive(1, "x/z"), "which no client published so"),
        (lambda w: w.publish(1, who="far") or w.receive(1, publisher="far"), "their brokers are not linked"),
        (lambda w: w.publish(1, who="s") or w.receive(1, publisher="s"), "it asked not to get its own"),
        (lambda w: w.publish(1, "x/secret") or w.receive(1, "x/secret"), "s may not subscribe there"),
        (lambda w: w.publish(1, "x/quiet") or w.receive(1, "x/quiet"), "p may not publish there"),
    ],
)
def test_isolation_notices_what_is_not_the_subscribers(prepare: Any, said: str) -> None:
    rules = (
        RuleConfig(effect="deny", verbs=("subscribe",), topics=("x/secret",)),
        RuleConfig(effect="deny", verbs=("publish",), topics=("x/quiet",)),
    )
    guarded = BrokerPlan(access=AccessConfig(rules=rules))
    brokers = {**SCENARIO.topology.brokers, "a": guarded}
    world = World("isolation", replace(SCENARIO, topology=replace(SCENARIO.topology, brokers=brokers)))
    world.subscribe(echo=False)
    world.publish(100)
    world.receive(100)
    assert world.verdict() == []
    prepare(world)

    (text,) = world.verdict()
    assert said in text


@pytest.mark.parametrize(
    ("headers", "due"),
    [({"disk": 200, "system": "linux"}, 1), ({"disk": 100, "system": "linux"}, 0), ({"disk": 200}, 0), ({}, 0)],
)
def test_delivery_expects_what_a_condition_fits_and_nothing_else(headers: dict[str, Any], due: int) -> None:
    world = World("delivery")
    world.subscribe(where="disk > 120 and system = 'linux'")
    world.publish(1, **headers)
    world.write("flushed", "p", 1)

    assert world.verdict() == ["s never got publication 1 of p on x/y"] * due


def test_isolation_notices_what_a_condition_does_not_fit_and_changed_headers() -> None:
    world = World("isolation")
    world.subscribe(where="disk > 120")
    world.publish(1, disk=200)
    world.receive(1, disk=200)
    assert world.verdict() == []

    world.publish(2, disk=12)
    world.receive(2, disk=12)
    world.publish(3, disk=200)
    world.receive(3, disk=201)
    assert world.verdict() == [
        "s got publication 2 of p on x/y, but it asked for disk > 120, and that has {'disk': 12}",
        "s got publication 3 of 'p' on x/y, which no client published so",
    ]


def test_covered_notices_a_broker_and_a_cluster_that_tell_too_much() -> None:
    def told(by_broker: int, by_cluster: int, listening: int = 0) -> dict[str, Any]:
        return {
            "broker": "x",
            "members": [{"broker": "x", "interests": by_broker, "listening": listening}],
            "clusters": [{"cluster": "main", "interests": by_cluster, "listening": listening}],
        }

    world = World("covered", reports={"map": told(4, 5)})
    for who in ("s", "far"):
        world.subscribe(who, 1, "x/#", where="a > 1")
        for number in range(2, 9):
            world.subscribe(who, number, "x/y", where=f"a > {number}")
    world.write("unsubscribing", "s", 8)
    assert world.verdict() == []
    _, _, kind, _, (text,) = world.journal.entries[-1]
    assert (kind, text) == ("measured", "15 subscriptions, 86 % covered: brokers told 2 interests, clusters 1")

    world.reports = {"map": told(5, 6)}
    assert world.verdict() == [
        "a has told 2 interests, but 1 cover everything that is wanted there",
        "b has told 2 interests, but 1 cover everything that is wanted there",
        "cluster main has told 2 interests, but 1 cover everything that is wanted there",
    ]


@pytest.mark.req("N19")
def test_covered_compares_interests_that_only_listen_among_themselves() -> None:
    report = {"broker": "x", "members": [{"broker": "x", "interests": 4, "listening": 1}], "clusters": []}
    world = World("covered", reports={"map": report})
    for who in ("s", "far"):
        world.subscribe(who, 1, "x/y")
        for number, pattern in ((2, "#"), (3, "z")):
            world.write("subscribing", who, number, pattern, "drop_oldest", True, "", True)
    assert world.verdict() == []
    report["members"] = [{"broker": "x", "interests": 2, "listening": 2}]
    assert world.verdict() == [
        f"{host} has told 2 interests, but 1 cover everything that is wanted there" for host in ("a", "b")
    ]


def test_bounded_notices_a_queue_and_a_table_above_their_limits() -> None:
    limits = {
        "links_max": 1, "subscriptions_max": 9, "origins_max": 9, "routes_max": 9,
        "queue_frames_max": 5, "queue_bytes_max": 100, "subscriptions_per_link_max": 9,
    }  # fmt: skip
    overview = {"links": 1, "subscriptions": 0, "origins": 0, "routes_cached": 0}
    link = {"link": 7, "name": "s", "backlog_frames": 5, "backlog_bytes": 100, "subscriptions": 1}
    world = World("bounded", reports={"limits": limits, "overview": overview, "links": [link]})
    world.checker.look()
    assert not world.checker.violations

    world.reports = {"limits": limits, "overview": {**overview, "links": 2}, "links": [{**link, "backlog_frames": 6}]}
    world.checker.look()
    assert sorted({violation.text for violation in world.checker.violations}) == [
        "a: link 7 (s): backlog_frames is 6, above queue_frames_max = 5",
        "a: links is 2, above links_max = 1",
        "b: link 7 (s): backlog_frames is 6, above queue_frames_max = 5",
        "b: links is 2, above links_max = 1",
    ]


def test_convergence_wants_everybody_connected_with_every_subscription() -> None:
    one = replace(SCENARIO, topology=replace(SCENARIO.topology, brokers={"a": BrokerPlan()}, clients={}))
    people_of_a = {name: SCENARIO.topology.clients[name] for name in ("p", "s")}
    one = replace(one, topology=replace(one.topology, clients=people_of_a))
    links = [{"link": 1, "name": "s", "ready": True}, {"link": 2, "name": "p", "ready": True}]
    subscriptions = [{"link": 1, "filter": "x/#"}]
    world = World("convergence", one, {"links": links, "subscriptions": subscriptions})
    world.subscribe()
    assert world.verdict() == []

    world.reports = {"links": links[:1], "subscriptions": []}
    assert world.verdict() == [
        "p is not connected to a",
        "s should be subscribed to ['x/#'], but a has []",
    ]


def test_convergence_looks_for_a_client_where_it_moved() -> None:
    links = {"a": [{"link": 1, "name": "p", "ready": True}], "b": [{"link": 1, "name": "s", "ready": True}]}
    plans = {"a": BrokerPlan(), "b": BrokerPlan()}
    people_of_a = {name: SCENARIO.topology.clients[name] for name in ("p", "s")}
    one = replace(SCENARIO, topology=replace(SCENARIO.topology, brokers=plans, clients=people_of_a))
    world = World("convergence", one, {})
    world.checker.ask = lambda host, question: links[host] if question == "links" else []
    world.journal.write("started", "s", 1)
    assert world.verdict() == ["s is not connected to a"]
    world.checker.violations.clear()
    world.journal.write("note", "s", SessionRoamed("heliograph://a:4717", "heliograph://b:4717"))
    assert world.verdict() == []


@pytest.mark.req("N8")
def test_spread_wants_somebody_asked_nobody_overloaded_and_no_client_sent_to_and_fro() -> None:
    load = {"asked_to_move": 0}
    one = replace(SCENARIO, topology=replace(SCENARIO.topology, brokers={"a": BrokerPlan()}))
    world = World("spread", one, {"usage": {"connections": 5}, "overview": {"load": load, "roamed": 1}})
    assert world.verdict() == ["no client was asked to move"]
    world.checker.violations.clear()
    load["asked_to_move"] = 1
    assert world.verdict() == []
    world.reports["usage"] = {"connections": 15_000}
    assert world.verdict() == ["a still has 15000 clients; above 14745 it is overloaded"]
    world.checker.violations.clear()
    world.reports = {"usage": {"connections": 5}, "overview": {"load": load, "roamed": 2}}
    assert "moved 2 times" in world.verdict()[0]


def test_a_checker_stops_repeating_itself() -> None:
    world = World("duplicates")
    for _ in range(1_000):
        world.receive(1)

    assert 1 < len(world.verdict()) < 100


def test_the_plain_reading_of_rules_protects_system_topics() -> None:
    everyone = people(SCENARIO)

    assert may(SCENARIO, everyone["p"], "publish", "x/y")
    assert not may(SCENARIO, everyone["p"], "publish", "System/x")
    assert not may(SCENARIO, everyone["s"], "subscribe", "Services/x")


# Between brokers.

LINKED = replace(SCENARIO, topology=replace(SCENARIO.topology, links=(("a", "b"),)))


def overtake(world: World, calm_s: float = 0, life: int = 1) -> None:
    """The second publication reaches the subscriber's broker before the first, which is read after this time."""
    world.enter(1, 2)
    for number in (2, 1):
        world.reach(number, "b", source="a")
        world.reach(number, "far", source="b", life=life)
        world.receive(number, who="far")
        world.loop.now += int(calm_s * SECOND)


def overtaken(world: World) -> int:
    """How many are blamed where the second publication comes before the first, at another broker."""
    overtake(world)
    return len(world.verdict())


def linked(counted: int = 1, start: float = 10) -> World:
    world = World("order", LINKED, {"overview": {"late": counted}})
    for broker in ("a", "b"):
        world.write("started", broker, 1)
    world.loop.now += int(start * SECOND)
    return world


@pytest.mark.parametrize("calm_s", [0, 100])
@pytest.mark.parametrize(("counted", "blamed"), [(1, 0), (0, 1)])
def test_order_excuses_what_was_overtaken_during_a_fault_if_it_was_counted(
    counted: int, blamed: int, calm_s: float
) -> None:
    """However late it is read."""
    world = linked(counted)
    world.write("fault", "a > b", "stall")
    world.loop.now += 10 * SECOND  # it lasts
    overtake(world, calm_s)
    assert len(world.verdict()) == blamed
    assert isinstance(world.checker, Order)
    assert world.checker.excused == 1 - blamed


@pytest.mark.parametrize(("after_s", "blamed"), [(1.9, 0), (2.1, 1)])
@pytest.mark.parametrize("kind", ["reset", "stall", "unlink"])
def test_order_excuses_nothing_two_seconds_after_the_last_fault(kind: str, after_s: float, blamed: int) -> None:
    world = linked()
    world.write("fault", "a > b", kind)
    world.write("healed", "a > b", kind)
    if kind == "unlink":
        world.write("unlinked", "a", "b")
    world.loop.now += int(after_s * SECOND)
    assert overtaken(world) == blamed


@pytest.mark.parametrize("kind", ["lag", "link", "clock_step"])
def test_order_excuses_nothing_while_costs_change_and_links_are_added(kind: str) -> None:
    world = linked()
    world.write("fault", "a > b", kind)
    assert overtaken(world) == 1


def test_order_does_not_excuse_what_is_only_read_in_trouble() -> None:
    world = linked()
    world.enter(1, 2)
    for number in (1, 2):
        world.reach(number, "b", source="a")
    world.write("fault", "a > b", "stall")
    for number in (2, 1):
        world.reach(number, "far", source="b")
        world.receive(number, who="far")
    assert world.verdict() == ["far got publication 1 of p on x/y after its publication 2"]


def test_order_does_not_excuse_what_is_overtaken_after_the_trouble_in_which_it_was_published() -> None:
    world = linked()
    world.write("fault", "a > b", "reset")
    world.enter(1)
    world.loop.now += 3 * SECOND
    world.enter(2)
    for number in (2, 1):
        world.reach(number, "b", source="a")
        world.reach(number, "far", source="b")
        world.receive(number, who="far")
    assert len(world.verdict()) == 1


def test_order_does_not_excuse_what_waited_in_trouble_to_be_sent() -> None:
    """A publisher that is held has it still."""
    world = linked()
    for number in (1, 2):
        world.publish(number)
    world.write("fault", "a > b", "reset")
    world.loop.now += 3 * SECOND
    for number in (1, 2):
        world.reach(number, "a", source="p")
    for number in (2, 1):
        world.reach(number, "b", source="a")
        world.reach(number, "far", source="b")
        world.receive(number, who="far")
    assert len(world.verdict()) == 1


def test_order_asks_whether_each_that_was_read_before_may_have_been() -> None:
    """Overtaken by one while the network was settled, and by another in trouble."""
    world = linked()
    world.enter(1, 2)
    world.reach(2, "b", source="a")
    world.write("fault", "a > b", "stall")
    world.enter(3)
    for number in (3, 1):
        world.reach(number, "b", source="a")
    for number in (2, 3, 1):
        world.reach(number, "far", source="b")
        world.receive(number, who="far")
    assert world.verdict() == ["far got publication 1 of p on x/y after its publication 2"]


@pytest.mark.parametrize(("counted", "blamed"), [(1, 0), (0, 1)])
def test_order_asks_a_crashing_broker_what_it_counted(counted: int, blamed: int) -> None:
    """A slow subscriber may read what a broker sent long after that is gone."""
    world = linked(counted)
    world.write("fault", "a > b", "stall")
    world.enter(1, 2)
    for number in (2, 1):
        world.reach(number, "b", source="a")
        world.reach(number, "far", source="b")
    world.write("crashed", "b", "")
    world.write("started", "b", 2)
    world.reports["overview"] = {"late": 1 - counted}
    for number in (2, 1):
        world.receive(number, who="far")
    assert len(world.verdict()) == blamed


def test_order_excuses_nobody_at_the_publishers_own_broker() -> None:
    world = linked(5, start=0)
    world.enter(1, 2)
    for number in (2, 1):
        world.reach(number)
        world.receive(number)
    assert world.verdict() == ["s got publication 1 of p on x/y after its publication 2"]


@pytest.mark.parametrize("when", ["never settled", "settled", "disturbed at once", "disturbed later"])
def test_delivery_between_brokers_is_due_only_while_the_network_is_settled(when: str) -> None:
    world = World("delivery", LINKED)
    world.subscribe("far")
    world.loop.now += SECOND
    if when != "never settled":
        world.write("settled", "the network")
    world.publish(1)
    world.write("flushed", "p", 1)
    if when.startswith("disturbed"):
        world.loop.now += 2 * SECOND if when == "disturbed later" else 0
        world.write("disturbed", "the network")
    missing = ["far never got publication 1 of p on x/y"]
    assert world.verdict() == (missing if when in ("settled", "disturbed later") else [])


def test_delivery_gives_a_new_subscription_a_second_to_spread() -> None:
    world = World("delivery", LINKED)
    world.write("settled", "the network")
    world.subscribe("far")
    world.publish(1)
    world.write("flushed", "p", 1)
    assert world.verdict() == []


# Responders.


def a_request(*, answers: bool, why: str, calm_s: float = 2, disturbed: bool = False) -> list[str]:
    """Somebody listens to everything, somebody perhaps answers; one request ends like this."""
    world = World("responders")
    world.write("settled", "the network")
    world.write("subscribing", "far", 1, "#", "drop_oldest", True, "", True)
    world.write("subscribed", "far", 1)
    if answers:
        world.subscribe(pattern="service/+")
    world.loop.now += int(calm_s * SECOND)
    world.write("inquired", "p", 1, "service/1")
    if disturbed:
        world.write("disturbed", "the network")
    world.write("unanswered", "p", 1, why)
    return world.verdict()


@pytest.mark.req("N19")
def test_responders_blames_a_request_that_waits_for_a_store_and_one_refused_beside_a_responder() -> None:
    assert a_request(answers=False, why="responders_missing") == []
    assert a_request(answers=True, why="time_out") == []
    assert "no subscriber could answer" in a_request(answers=False, why="time_out")[0]
    assert "a subscriber could answer" in a_request(answers=True, why="responders_missing")[0]


@pytest.mark.req("N19")
def test_responders_does_not_judge_while_the_network_changes() -> None:
    assert a_request(answers=False, why="time_out", calm_s=0) == []
    assert a_request(answers=False, why="time_out", disturbed=True) == []


# Patience.


@pytest.mark.req("N15")
def test_patience_notices_a_drop_and_a_publisher_that_waits_for_ever() -> None:
    world = World("patience")
    world.publish(1)
    assert world.verdict() == ["p has published up to 1, and is confirmed up to 0"]
    world = World("patience")
    world.publish(1)
    world.write("flushed", "p", 1)
    assert world.verdict() == []
    world.write("note", "a", PublicationsDropped(4, "anonymous", 2, 100, "reset"))  # a client that is gone
    assert world.verdict() == []
    world.write("note", "a", PublicationsDropped(5, "anonymous", 2, 100, "queue_full"))
    assert "a dropped publications" in world.verdict()[0]
