"""Broker discovery among ten to ten thousand brokers: its time, its messages and the quality of the choice.

In:    how many brokers, how many searches, a seed.
Out:   a row of figures.
State: none; each size has its own stage.
Not here: the stand-ins for brokers (standin.py), the paper's five sites (topologies.py).

Brokers and clients are spread at random over a region as large as the United States. Each broker links to two earlier
ones, so the network is connected and about a dozen links across. All of them advertise to one directory.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from statistics import fmean, median
from typing import Any

from heliograph.discovery.brokers.landmarks import BROKERS_MIN, LANDMARKS_MAX
from heliograph.discovery.brokers.responder import Responder
from heliograph.discovery.brokers.result import SearchResult
from heliograph.discovery.brokers.services import RESPONDER_SERVICE
from heliograph.evaluation.places import Place
from heliograph.evaluation.stage import AT_DIRECTORY, BY_DIRECTORY, SearchStage
from heliograph.evaluation.standin import StandIn
from heliograph.machine import Machine
from heliograph.node import BROKER, DIRECTORY, DISCOVERY, Node, Pipe

SIZES = (10, 100, 1_000, 10_000)
SIZES_QUICK = (10, 100)
SEARCHES = 40
GOOD = 1.1  # a round trip up to this many times the shortest is as good
LATITUDES, LONGITUDES = (30.0, 48.0), (-122.0, -75.0)
SETTLE_S = 3.0
PLACED_S = 200  # at most, until the directory's landmarks have placed …
PLACED_SHARE = 0.99  # … this share of the brokers
BROKERS_PER_S = 1_000  # brokers started per second, so that the directory receives all advertisements
QUIET_MS = 60_000  # between a responder's queries to its stand-in, which never changes
LIFETIME_S = 300  # of a broker advertisement, so that renewals do not fill the time between searches
CLOCK_ERROR_NS = 2_000_000  # about the error of real brokers at such distances
CLUSTER_MAX = 50  # real brokers in one cluster
Links = dict[str, tuple[str, ...]]


def somewhere(random: Random) -> Place:
    """A place in the region."""
    return Place(random.uniform(*LATITUDES), random.uniform(*LONGITUDES))


def network(names: list[str], random: Random) -> Links:
    """The brokers that each broker dials: two earlier ones, which may be the same."""
    links: Links = {names[0]: ()}
    for number, name in enumerate(names[1:], 1):
        links[name] = tuple(dict.fromkeys(names[random.randrange(number)] for _ in range(2)))
    return links


def neighbours(links: Links) -> Links:
    """The brokers that each broker is linked to, in both directions."""
    found: dict[str, dict[str, None]] = {name: {} for name in links}
    for name, others in links.items():
        for other in others:
            found[name][other] = found[other][name] = None
    return {name: tuple(others) for name, others in found.items()}


def build(brokers: int, seed: int, whole: bool) -> SearchStage:
    """A settled stage; with real brokers, or with stand-ins."""
    random = Random(f"{seed}/scale/{brokers}")
    stage = SearchStage(seed)
    names = [f"b{number}" for number in range(brokers)]
    places = {name: somewhere(random) for name in names}
    links = network(names, random)
    stage.add_directory(somewhere(random))
    for number, (name, others) in enumerate(neighbours(links).items()):
        if whole:
            stage.add_broker(name, places[name], links[name], AT_DIRECTORY, f"c{number // CLUSTER_MAX}")
        else:
            _add_stand_in(stage, name, places[name], others, brokers)
        stage.run(1 / BROKERS_PER_S)
    stage.run(SETTLE_S)
    for _ in range(PLACED_S):
        known = stage.world.hosts["bdn"].seat(DIRECTORY).machine.report("overview")
        if brokers <= BROKERS_MIN or (
            len(known["landmarks"]) == LANDMARKS_MAX and known["placed"] >= PLACED_SHARE * brokers
        ):
            break
        stage.run(1.0)
    return stage


def _add_stand_in(stage: SearchStage, name: str, place: Place, others: tuple[str, ...], brokers: int) -> None:
    random = stage.world.random(f"broker/{name}")
    seed, error_ns = random.getrandbits(60), random.randrange(-CLOCK_ERROR_NS, CLOCK_ERROR_NS)
    config = replace(AT_DIRECTORY, host=name, public=False, sample_ms=QUIET_MS, lifetime_s=LIFETIME_S)

    def make(incarnation: int) -> Node:
        ahead_ns = host.wall.offset_ns + error_ns
        machines: dict[str, Machine] = {
            BROKER: StandIn(name, others, brokers, ahead_ns),
            DISCOVERY: Responder(config, name, seed=seed, incarnation=incarnation),
        }
        sockets = {BROKER: StandIn.sockets(name), DISCOVERY: RESPONDER_SERVICE.sockets(config, None)}
        return Node(name=name, machines=machines, pipes=(Pipe(BROKER, DISCOVERY),), listeners={}, sockets=sockets)

    host = stage.add(name, place, make)
    stage.start_broker(host)


def evaluate(brokers: int, searches: int = SEARCHES, seed: int = 1, *, whole: bool = False) -> dict[str, Any]:
    """Search among this many brokers."""
    stage = build(brokers, seed, whole)
    random = Random(f"{seed}/clients")
    directory = stage.world.hosts["bdn"].seat(DIRECTORY).machine
    registered = directory.report("overview")["brokers"]
    results, passed = [], []
    oracle: list[float] = []  # round trip of the choice / shortest of all brokers
    heard: list[float] = []  # … / shortest of those that answered
    for _ in range(searches):
        client = somewhere(random)
        before = _passed_on(stage, whole)
        result = stage.search(client, BY_DIRECTORY)
        stage.run(1.0)
        passed.append(_passed_on(stage, whole) - before)
        results.append(result)
        if result.broker:
            chosen = _round_trip(stage, client, result.broker)
            oracle.append(chosen / _least(stage, client))
            heard.append(chosen / min(_round_trip(stage, client, finding.broker) for finding in result.findings))
    found = [result for result in results if result.found]
    return {
        "brokers": brokers,
        "kind": "whole" if whole else "stand-in",
        "registered": registered,
        "searches": searches,
        "found": len(found),
        "time_ms": round(median(result.times_ms["total"] for result in results), 1),
        "requester_messages": round(fmean(_requester_messages(result) for result in results), 1),
        "network_messages": None if whole else round(fmean(passed), 1),
        "answers": round(fmean(len(result.findings) for result in results), 1),
        "pinged": max(sum(one.round_trip_ms is not None for one in result.findings) for result in results),
        "of_oracle": round(median(oracle), 2) if oracle else None,
        "of_oracle_good": round(sum(one <= GOOD for one in oracle) / len(oracle), 3) if oracle else None,
        "of_oracle_worst": round(max(oracle), 2) if oracle else None,
        "of_answers": round(median(heard), 2) if heard else None,
        "of_answers_worst": round(max(heard), 2) if heard else None,
    }


def _requester_messages(result: SearchResult) -> int:
    """The messages that the requester sent and received."""
    return result.counts["sent"] + result.counts["received"]


def _passed_on(stage: SearchStage, whole: bool) -> int:
    """How many messages stand-ins and the directory have passed on so far."""
    if whole:
        return 0
    brokers = (host for name, host in stage.world.hosts.items() if name in stage.places and name != "bdn")
    spread: int = sum(host.seat(BROKER).machine.report("overview")["forwarded"] for host in brokers)
    injected: int = stage.world.hosts["bdn"].seat(DIRECTORY).machine.report("overview")["counts"].get("injected", 0)
    return spread + injected


def _round_trip(stage: SearchStage, client: Place, broker: str) -> float:
    return client.round_trip_ms(stage.places[broker])


def _least(stage: SearchStage, client: Place) -> float:
    """What an oracle would choose: all brokers accept clients and are equally busy."""
    return min(client.round_trip_ms(place) for name, place in stage.places.items() if name != "bdn")
