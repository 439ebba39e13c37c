"""The monitor publishes what happens at a broker, as ordinary events; nothing is kept where there is none."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from heliograph import node
from heliograph.broker.config import DEFAULT_PORT, BrokerConfig, LinkConfig, NetworkConfig
from heliograph.broker.observations import PARCELS_EACH, ROWS_MAX, Observations
from heliograph.errors import Reason
from heliograph.model.publication import Publication
from heliograph.notes import ActionDenied, NeighbourLost, SettingsReloaded
from heliograph.services.monitor import MonitorConfig, topic_of
from heliograph.sim.world import World
from heliograph.wire.frames import event
from heliograph.wire.limits import FRAME_BYTES_MAX
from tests.services.greeter import GREETER_SERVICE, Greeter, GreeterConfig, ReloadGreeter
from tests.sim.machines import run


class Watcher(Greeter):
    """A greeter that hears what monitors say instead."""

    def _hear(self, publication: Publication, now: int) -> None:
        self.rows: list[tuple[str, dict[str, Any]]] = getattr(self, "rows", [])
        if publication.topic.startswith("System/"):
            self.rows.append((publication.topic, json.loads(publication.payload)))

    def attach(self, link: int, peer: Any, now: int) -> None:
        super().attach(link, peer, now)
        assert self._session is not None
        self._session.subscribe(b"System/Brokers/#", self._hear)


@pytest.mark.req("O8")
def test_load_counters_joins_and_ways_are_published_every_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "SERVICES", (*node.SERVICES, GREETER_SERVICE))
    monkeypatch.setattr(GREETER_SERVICE, "build", lambda config, around: Watcher(config, around.seed), raising=False)
    world = World(1)

    def add(name: str, *links: str) -> Any:
        network = NetworkConfig(key=b"k" * 32, links=tuple(LinkConfig(host=other) for other in links))
        config = BrokerConfig(name=name, network=network)
        services = [GreeterConfig(), MonitorConfig(enabled=True, interval_s=1)]
        host = world.add(name, lambda _: node.build(config, seed=1, incarnation=1, services=services))
        world.listen(host, (name, DEFAULT_PORT), "main", node.BROKER)
        world.start(host)
        return host

    one, other = add("one"), add("other", "one")
    for _ in range(6):
        run(world, 1)
        other.tell(other.seat("greeter"), ReloadGreeter(GreeterConfig()))

    heard = one.seat("greeter").machine.rows
    of_one = {topic.rpartition("/")[2] for topic, _ in heard if topic.startswith("System/Brokers/one/")}
    assert {"load", "counters", "joins", "hops"} <= of_one
    ways = [row for topic, row in heard if topic == "System/Brokers/one/hops"]
    assert any(len(row["way"]) == 2 and row["topic"] == "greetings/all" for row in ways)
    linked = [row for topic, row in heard if topic == "System/Brokers/one/joins"]
    assert linked[0]["note"] == "neighbour_linked"
    assert linked[0]["broker"] == "other"
    assert any(topic.startswith("System/Brokers/other/") for topic, _ in heard), "they travel like any publication"
    assert one.seat("monitor").machine.report("overview")["published"] >= 8


def test_nothing_is_kept_before_somebody_has_asked() -> None:
    kept = Observations()
    denied = ActionDenied(1, "ada", Reason.PUBLISH_DENIED, "x")
    kept.keep([denied], 5)
    assert kept.after(0) == {"rows": [], "last": 0, "missed": 0}

    kept.keep([denied, SettingsReloaded(1, 2)], 6)
    told = kept.after(0)

    assert [(row["about"], row["time_us"], row["reason"]) for row in told["rows"]] == [("denials", 6, "publish_denied")]
    assert kept.after(told["last"]) == {"rows": [], "last": 1, "missed": 0}


def test_who_asks_too_seldom_is_told_how_much_it_missed() -> None:
    kept = Observations()
    kept.after(0)
    kept.keep([NeighbourLost("b", number) for number in range(ROWS_MAX + 7)], 1)
    told = kept.after(0)
    assert told["missed"] == 7
    assert [row["replanned"] for row in told["rows"]] == list(range(7, ROWS_MAX + 7))


@pytest.mark.req("O6")
def test_observations_come_in_portions_that_fit_a_frame() -> None:
    kept = Observations()
    kept.after(0)
    kept.keep([ActionDenied(1, "ada", Reason.PUBLISH_DENIED, '"' * 2_000) for _ in range(ROWS_MAX)], 5)
    last, seen = 0, 0
    while (told := kept.after(last))["rows"]:
        assert len(msgspec.json.encode(told)) < FRAME_BYTES_MAX
        seen += len(told["rows"])
        last = told["last"]
        assert told["missed"] == 0
    assert (seen, last) == (ROWS_MAX, ROWS_MAX)


def test_one_parcel_in_a_thousand_is_kept_with_its_way_and_times() -> None:
    kept = Observations()
    kept.after(0)
    frame = event(b"a/b", b"payload", 7, 9, b'{"$t":123}')
    for _ in range(2 * PARCELS_EACH):
        if kept.is_due():
            kept.parcel(frame, (1, 2), 456)
    rows = kept.after(0)["rows"]
    assert len(rows) == 2
    assert rows[0]["way"] == ["0000000000000001", "0000000000000002"]
    assert (rows[0]["topic"], rows[0]["published_us"], rows[0]["time_us"]) == ("a/b", 123, 456)
    kept.parcel(frame[:20], (1,), 1)
    kept.parcel(event(b"a", b"", 1, 1, b"{"), (1,), 1)
    assert len(kept.after(0)["rows"]) == 2, "what cannot be read is left out"
    for stamp in (10**18, True, "x"):
        kept.parcel(event(b"a", b"", 1, 1, msgspec.json.encode({"$t": stamp})), (1,), 1)
        assert kept.after(0)["rows"][-1]["published_us"] is None, "no time that a table can show"


def test_topics_lie_below_the_brokers_name() -> None:
    assert topic_of("one", "load") == b"System/Brokers/one/load"
