"""Certificates that end, in simulated worlds: links end with them, and renewed in time nothing is lost or reordered."""

from __future__ import annotations

import pytest

from heliograph.client.session import Session
from heliograph.errors import NotConnectedError, Reason
from heliograph.notes import LinkDetached, NeighbourLost, Note, PeerRefused, SessionWelcomed
from heliograph.sim.clock import EPOCH_NS
from heliograph.sim.host import Host
from heliograph.sim.loop import MILLISECOND, SECOND
from heliograph.sim.scenario_files import parse
from heliograph.sim.scenario_world import ScenarioWorld

ENDS_S = 64
NETWORK = """
[scenario]
name = "expiring"
duration_s = 66
settle_s = 4
[network]
delay_ms = 20
jitter_ms = 30
split = 0.1
join = 0.1
[hosts]
clock_skew_ms = 500
[topology]
links = [["a", "b"], ["c", "b"], ["c", "d"]]
[topology.brokers.a]
auth = "certificate"
[topology.brokers.b]
auth = "certificate"
[topology.brokers.c]
auth = "certificate"
cluster = "far"
[topology.brokers.d]
auth = "certificate"
cluster = "far"
[topology.clients.feed]
broker = "a"
entity = "feed"
[topology.clients.back]
broker = "d"
entity = "back"
[topology.clients.reader]
broker = "?"
count = 4
entity = "reader-{n}"
[[workload]]
client = "feed"
publish = ["x/{k}"]
spread = 4
rate_per_s = 15
size_bytes = [16, 4000]
flush_every = 10
from_s = 3
[[workload]]
client = "back"
publish = ["y/{k}"]
spread = 2
rate_per_s = 10
from_s = 3
[[workload]]
client = "reader"
subscribe = ["x/+", "y/+"]
[checks]
names = ["delivery", "duplicates", "order", "bounded", "convergence"]
"""
BROKERS = ("a", "b", "c", "d")


class Stage:
    """A scenario whose hosts have certificates that end."""

    def __init__(self, seed: int) -> None:
        self.stage = ScenarioWorld(parse(NETWORK), seed)
        self.world = self.stage.world
        self.notes: list[tuple[str, Note]] = []
        self.world.journal.watch("note", lambda who, note: self.notes.append((who, note)))

    def host(self, name: str) -> Host:
        return self.world.hosts[name]

    def certify(self, name: str, ends_s: float) -> None:
        host = self.host(name)
        host.serial = f"{name}-{ends_s}".encode().hex().upper()
        host.expires_ms = EPOCH_NS // MILLISECOND + int(ends_s * 1_000)

    def renew(self, name: str, at_s: float, ends_s: float = 1_000) -> None:
        self.world.loop.at(int(at_s * SECOND), lambda name, _: self.certify(name, ends_s), name)

    def play(self, until_s: float = 70) -> list[str]:
        for step in range(1, int(until_s) + 1):
            self.world.run(step * SECOND)
            for checker in self.stage.checkers:
                checker.look()
        for checker in self.stage.checkers:
            checker.end()
        return [str(violation) for checker in self.stage.checkers for violation in checker.violations]

    def of(self, kind: type[Note]) -> list[tuple[str, Note]]:
        return [(who, note) for who, note in self.notes if isinstance(note, kind)]

    def neighbours(self, broker: str) -> set[str]:
        return {each["broker"] for each in self.stage.ask(broker, "map")["neighbours"]}


@pytest.mark.req("O6", "N4")
@pytest.mark.parametrize("seed", [1, 2])
def test_brokers_renew_their_links_before_their_certificates_end_and_nothing_is_lost(seed: int) -> None:
    stage = Stage(seed)
    for number, name in enumerate(BROKERS):
        stage.certify(name, ENDS_S)
        stage.renew(name, 12 + 10 * number + seed)  # some before the first warning, some after it

    violations = stage.play()

    assert violations == []
    assert stage.of(NeighbourLost) == [], "no path was lost for a moment"
    refused = [note.reason for _, note in stage.notes if isinstance(note, PeerRefused)]
    assert Reason.CERTIFICATE_EXPIRED not in refused
    ended = [note for _, note in stage.notes if isinstance(note, LinkDetached) and note.reason is Reason.TAKEN_OVER]
    assert len(ended) >= 3, "each link was replaced"


@pytest.mark.req("O6")
def test_a_broker_that_does_not_renew_its_certificate_loses_its_links_when_it_ends() -> None:
    stage = Stage(1)
    for name in BROKERS:
        stage.certify(name, ENDS_S if name == "a" else 1_000)

    stage.world.run((ENDS_S - 2) * SECOND)
    before = stage.neighbours("b")
    stage.world.run((ENDS_S + 2) * SECOND)

    assert (before, stage.neighbours("b")) == ({"a", "c"}, {"c"})
    assert stage.neighbours("a") == set()


@pytest.mark.req("O6")
def test_a_client_comes_back_with_its_renewed_certificate_and_without_one_it_gets_nothing_more() -> None:
    stage = Stage(1)
    stage.certify("reader-1", ENDS_S)
    stage.certify("reader-2", ENDS_S)
    stage.renew("reader-1", 2)
    stage.world.run(SECOND)
    renewed, expired = (stage.host(name).seats[0].machine for name in ("reader-1", "reader-2"))
    stage.world.run((ENDS_S + 2) * SECOND)

    welcomed = [note.entity for _, note in stage.of(SessionWelcomed) if isinstance(note, SessionWelcomed)]
    assert welcomed.count("reader-1") == 2, "it was asked to come again, once"
    assert isinstance(renewed, Session)
    assert renewed.is_connected
    assert isinstance(expired, Session)
    assert expired.ended
    assert isinstance(expired.error, NotConnectedError)
    assert expired.error.reason is Reason.CERTIFICATE_EXPIRED
