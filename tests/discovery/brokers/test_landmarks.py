"""Landmarks: in a network where not everybody can answer, near brokers do; and what happens if landmarks fail."""

from __future__ import annotations

from math import dist
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.discovery.brokers import landmarks as rules
from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.config import SOCKET, DirectoryConfig, MulticastConfig, ResponderConfig, written
from heliograph.discovery.brokers.known import KnownBrokers
from heliograph.discovery.brokers.known_broker import KnownBroker
from heliograph.discovery.brokers.landmarks import BROKERS_MIN, LANDMARKS_MAX
from heliograph.discovery.brokers.measuring import LIMIT_NS, PINGS, apart
from heliograph.discovery.brokers.messages import (
    Acknowledgement,
    Challenge,
    DiscoveryRequest,
    Landmarks,
    MessageKind,
    Ping,
    Pong,
    Spread,
)
from heliograph.discovery.brokers.responder import Responder
from heliograph.discovery.brokers.surveyor import Surveyor
from heliograph.evaluation import scale
from heliograph.evaluation.stage import BY_DIRECTORY, SearchStage
from heliograph.machine import SocketOpened, Timers
from heliograph.node import DIRECTORY
from tests.discovery.brokers.test_directory import Talk, advertisement, injected
from tests.discovery.brokers.test_search import Talk as FinderTalk

MS = 1_000_000
Place = tuple[float, float]


class Plane:
    """A directory's table of brokers that stand at places of a plane, one millisecond of round trip per unit."""

    def __init__(self, count: int, random: Random, size: float = 60.0) -> None:
        self.known = KnownBrokers(DirectoryConfig())
        self.places = {f"b{n}": (random.uniform(0, size), random.uniform(0, size)) for n in range(count)}
        for name in self.places:
            self.renew(name, 1)
        for number in range(2, 2 + LANDMARKS_MAX):
            self.known.tend_landmarks()
            for name in self.places:
                self.renew(name, number)

    def renew(self, name: str, number: int) -> KnownBroker:
        said = advertisement(name, number=number, distances=self.distances(self.places[name]))
        known = self.known.add(said, (name, 4717), b"c" * 16, now=0)
        self.known.ponged(known, 1 + int(dist(self.places[name], (0, 0)) * MS), now=0)
        return known

    def distances(self, place: Place) -> dict[str, int]:
        marks = self.known.landmarks.addresses
        return {mark: int(1_000 * dist(place, self.places[mark.removesuffix(":4717")])) for mark in marks}

    def near(self, place: Place, count: int) -> list[str]:
        return [known.key[0] for known in self.known.landmarks.near(self.distances(place), count)]


@given(st.integers(0, 10_000))
@settings(deadline=None, max_examples=10)
def test_the_brokers_near_a_place_are_found_among_those_that_see_the_landmarks_as_it_does(seed: int) -> None:
    random = Random(seed)
    plane = Plane(random.randrange(BROKERS_MIN + 1, 500), random)
    place = (random.uniform(0, 60), random.uniform(0, 60))
    by_distance = sorted(plane.places, key=lambda name: dist(plane.places[name], place))
    assert by_distance[0] in plane.near(place, 6)

    ours = plane.distances(place)
    slow = sorted(plane.places, key=lambda name: (apart(ours, plane.distances(plane.places[name])), name))
    assert plane.near(place, 20) == slow[:20]


def test_landmarks_are_far_from_each_other_and_a_lost_one_is_replaced() -> None:
    plane = Plane(300, Random(1))
    marks = plane.known.landmarks.brokers
    places = [plane.places[mark.key[0]] for mark in marks]
    assert len(marks) == LANDMARKS_MAX
    assert min(dist(one, other) for one in places for other in places if one is not other) > 25
    for _ in range(4):
        plane.known.missed(marks[0])
    plane.known.tend_landmarks()
    assert plane.known.landmarks.near(plane.distances((1, 1)), 5) == []  # its cells went with it
    for number in range(10, 13):
        for name in plane.places:
            if name != marks[0].key[0]:
                plane.renew(name, number)
        plane.known.tend_landmarks()
    assert len(plane.known.landmarks.brokers) == LANDMARKS_MAX
    assert marks[0] not in plane.known.landmarks.brokers
    assert plane.near((1, 1), 5)


def test_where_everybody_can_answer_there_are_no_landmarks() -> None:
    assert Plane(BROKERS_MIN, Random(1)).known.landmarks.addresses == []


def test_thousands_at_one_place_are_not_all_compared() -> None:
    plane = Plane(2_000, Random(1), size=0.5)
    assert len(plane.near((0.1, 0.1), 20)) == 20
    assert rules.SCAN_MAX < 2_000


# -- who says what ----------------------------------------------------------------------------------------------


@pytest.mark.req("B6")
def test_a_directory_of_many_brokers_names_landmarks_and_hands_the_request_to_near_ones_only() -> None:
    talk = Talk()
    random, places = Random(3), {}
    for number in range(BROKERS_MIN + 10):
        places[f"b{number}"] = (random.uniform(0, 60), random.uniform(0, 60))
        talk.register(f"b{number}", round_trip_ms=int(sum(places[f"b{number}"])), lifetime_s=300)

    def distances(place: Place, marks: list[str]) -> dict[str, int]:
        return {mark: int(1_000 * dist(place, places[mark.removeprefix("host-of-").split(":")[0]])) for mark in marks}

    numbers = dict.fromkeys(places, 1)
    for _ in range(1_000):  # brokers answer pings, and measure their distances when they are told of landmarks
        for to, message in talk.wait(0.05):
            name = to[0].removeprefix("host-of-")
            if message.kind is MessageKind.PING:
                talk.hear(to, messages.write(Pong(messages.decode(Ping, message.body).sent_ns, name), message.cookie))
            elif message.kind is MessageKind.LANDMARKS:
                cookie = name.encode().ljust(16, b"!")
                assert message.cookie == cookie  # it is their directory
                numbers[name] += 1
                found = distances(places[name], messages.decode(Landmarks, message.body).landmarks)
                said = advertisement(name, number=numbers[name], lifetime_s=300, island="main", distances=found)
                talk.hear(to, messages.write(said, cookie))

    marks = talk.directory.report("overview")["landmarks"]
    assert len(marks) == LANDMARKS_MAX
    first = talk.ask(DiscoveryRequest(b"1" * 16, 1, measures=True, budget=20))
    ack = next(
        messages.decode(Acknowledgement, one.body) for _, one in first if one.kind is MessageKind.ACKNOWLEDGEMENT
    )
    assert ack.landmarks == marks
    assert {f"host-of-{name}:4717" for name in injected(first)} == set(marks)

    place = (30.0, 30.0)
    second = talk.ask(DiscoveryRequest(b"1" * 16, 2, budget=5, distances=distances(place, marks)))
    spreads = [messages.decode(Spread, one.body) for _, one in second if one.kind is MessageKind.SPREAD]
    assert len(spreads) == 5
    assert all(spread.last for spread in spreads)
    assert min(places, key=lambda name: dist(places[name], place)) in injected(second)
    assert not any(
        messages.decode(Spread, one.body).last
        for _, one in talk.ask(DiscoveryRequest(b"2" * 16, 1, budget=20))
        if one.kind is MessageKind.SPREAD
    )  # whoever does not measure is served as ever


@pytest.mark.req("B10")
def test_nobody_but_a_directory_makes_a_broker_ping_others() -> None:
    config = ResponderConfig(directories=("192.0.2.1:4719",))
    responder = Responder(config, "b0", seed=1, incarnation=1)
    responder.tell(SocketOpened(SOCKET, ("192.0.2.9", 4717)), MS)
    responder.take()
    order = messages.write(Landmarks(["198.51.100.1:4717"]), b"?" * 16)
    for source in (("192.0.2.1", 4719), ("192.0.2.66", 6)):
        responder.receive_datagram(SOCKET, source, order, 2 * MS)
    assert responder.take().datagrams == ()
    assert responder.report("overview")["counts"] == {"sender_unproven": 2}


def test_a_broker_measures_each_landmark_once_a_minute_and_keeps_few() -> None:
    sent: list[tuple[tuple[str, int], bytes]] = []
    timers, over = Timers(), []
    surveyor = Surveyor(b"s", timers, lambda to, data: sent.append((to, data)), over.append)
    now = 0
    for number in range(30):
        surveyor.told([f"10.0.0.{number}:1", f"10.0.0.{number}:1", "nonsense"], now)
        for _ in range(PINGS):
            now += 2 * MS
            timers.run(now)
        for _, data in sent:
            surveyor.receive(messages.unpack(data).cookie, now + MS)
        assert len(sent) == PINGS
        sent.clear()
        surveyor.told([f"10.0.0.{number}:1"], now)
        timers.run(now + LIMIT_NS)
        assert sent == []
    assert len(over) == 30
    assert list(surveyor.distances) == [f"10.0.0.{number}:1" for number in range(22, 30)]


# -- whole searches ---------------------------------------------------------------------------------------------


@pytest.mark.req("B11")
@pytest.mark.req("B12")
def test_among_more_brokers_than_may_answer_the_choice_is_as_near_as_the_nearest() -> None:
    found = scale.evaluate(80, searches=20)
    assert found["found"] == 20
    assert found["of_oracle_good"] >= 0.95
    assert found["pinged"] <= BY_DIRECTORY.targets_max
    assert found["network_messages"] <= LANDMARKS_MAX + 20


@pytest.fixture(scope="module")
def stage() -> SearchStage:
    return scale.build(BROKERS_MIN + 10, 1, False)


def test_with_a_third_of_all_datagrams_lost_a_broker_is_still_found_in_time(stage: SearchStage) -> None:
    stage.world.datagrams.worsen("*", "*", 0.3)
    random = Random(1)
    for _ in range(5):
        result = stage.search(scale.somewhere(random), BY_DIRECTORY)
        assert result.broker, result.tried
        assert result.times_ms["total"] <= 2 * BY_DIRECTORY.timeout_ms
    stage.world.datagrams.better("*", "*", 0.3)


def test_when_the_landmarks_cannot_be_reached_the_network_spreads_the_request(stage: SearchStage) -> None:
    directory = stage.world.hosts["bdn"].seat(DIRECTORY).machine.report("overview")
    marks = [mark.split(":")[0] for mark in directory["landmarks"]]
    for mark in marks:
        stage.world.datagrams.worsen(mark, "client*", 1.0)
    result = stage.search(scale.somewhere(Random(2)), BY_DIRECTORY)
    assert result.proven
    assert len(result.findings) > LANDMARKS_MAX
    assert result.broker not in marks
    for mark in marks:
        stage.world.datagrams.better(mark, "client*", 1.0)


def test_a_broker_that_answers_at_once_is_not_kept_waiting_for_landmarks() -> None:
    talk = FinderTalk()
    talk.answer(0)
    talk.acknowledge(brokers=10_000, landmarks=["198.51.100.1:4717"])
    talk.said()
    talk.wait(10)
    assert [to for to, _ in talk.pings()] == [("198.51.0.0", 4717)]


def test_landmarks_that_a_directory_invents_cost_a_search_little() -> None:
    talk = FinderTalk()
    talk.wait(20)
    talk.answer(0)
    talk.acknowledge(brokers=10_000, landmarks=[written(("203.0.113.1", port)) for port in range(1, 9)])
    pings = 0
    for _ in range(600):
        talk.wait(1)
        said = talk.said()
        pings += sum(message.kind is MessageKind.PING and to[0] == "203.0.113.1" for to, message in said)
        for to, message in said:
            if message.kind is MessageKind.PING and to[0] != "203.0.113.1":
                talk.hear(to, messages.write(Pong(messages.decode(Ping, message.body).sent_ns), message.cookie))
    assert pings == 8 * PINGS
    assert talk.search.result is not None
    assert talk.search.result.broker == "b0"


def test_a_stranger_in_the_group_cannot_make_a_search_ping_others() -> None:
    talk = FinderTalk(directories=(), multicast=MulticastConfig())
    stranger = ("192.0.2.66", 4717)
    talk.hear(stranger, messages.write(Challenge(talk.id), b"c" * 16))
    talk.hear(stranger, messages.write(Acknowledgement(talk.id, 1, landmarks=["203.0.113.1:53"])))
    talk.wait(10)
    assert [to for to, message in talk.said() if message.kind is MessageKind.PING] == []
