"""The monitor: a service at each broker that publishes what happens there, as ordinary events on system topics.

In:    reports of its broker: usage, counters, and observations since the last question.
Out:   publications under ``System/Brokers/NAME/``: ``load``, ``counters``, ``links``, ``joins``, ``denials``, ``hops``.
              The responder itself publishes ``discovery`` there, if a node has a monitor.
State: the number of the last row that it published.
Not here: what is observed (broker/observations.py), keeping it (stores), making tables from it (pipeline/).

Every payload is one JSON object with ``time_us``, the network time of the observation, and ``incarnation``, which is
another one after each restart of the broker: then counters and the numbers of links begin again. Within an incarnation
counters only grow, and readers compute rates from their differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from heliograph.errors import Reason, UsageError
from heliograph.machine import Address, Effects, Instant, LinkId, Machine, Outbox, Peer, SocketName, Ticket, Timers
from heliograph.model.chance import Seed, secret_of
from heliograph.model.settings import Problem, check, setting
from heliograph.services.broker_session import BrokerSession
from heliograph.services.declared import Service, Surroundings

NAME = "monitor"
ROOT = "System/Brokers"
ABOUT = ("load", "counters", "links", "joins", "denials", "hops", "discovery")  # the last level of its topics
NS_PER_S = 1_000_000_000
LOAD = ("connections", "links", "full", "draining")  # of the report "usage"
COUNTERS_LEFT_OUT = ("time", "changeover", "eddies", "load")  # of the overview: not counters, or published as load

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorConfig:
    """What is published, and how often."""

    enabled: bool = setting(
        True, "whether the broker publishes its load and what happens at it under System/Brokers", reloads=False
    )
    interval_s: int = setting(10, "how often that is published", least=1, most=3_600)
    events_max: int = setting(
        200, "links, joins, denials and sampled parcels that are published each time; 0: none", least=0, most=500
    )

    def problems(self, path: str = NAME) -> list[Problem]:
        """Everything wrong with it."""
        return check(self, path)


class ReloadMonitor(Struct, frozen=True):
    """New settings."""

    config: MonitorConfig


def topic_of(broker: str, about: str) -> bytes:
    """The topic on which a broker publishes one kind of observation."""
    return f"{ROOT}/{broker}/{about}".encode()


class Monitor:
    """A machine at the end of a pipe that asks its broker, and publishes the answers."""

    def __init__(self, config: MonitorConfig, broker: str, *, seed: Seed, incarnation: int) -> None:
        self._config = config
        self._broker = broker
        self._incarnation = incarnation
        self._secret = secret_of(seed, f"{incarnation}/{broker}/monitor")
        self._outbox = Outbox()
        self._timers = Timers()
        self._session: BrokerSession | None = None
        self._last = 0
        self._published = 0
        self._missed = 0

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The broker is attached. It starts to keep its observations with the first question."""
        self._session = BrokerSession(link, self._outbox, self._secret)
        self._session.hello(NAME)
        self._session.order({"do": "observe", "after": self._last}, self._tell_rows)
        self._timers.set("ask", now + self._config.interval_s * NS_PER_S, self._ask)

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """The broker is detached."""
        self._session = None
        self._timers.cancel("ask")

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """The broker's answers."""
        if self._session is not None:
            self._session.receive(data, now)
            if self._session.fault is not None:
                self._outbox.hang_up(link, self._session.fault)

    def _ask(self, now: Instant) -> None:
        session = self._session
        if session is None:
            return
        session.order({"do": "report", "question": "usage"}, self._tell_load)
        session.order({"do": "report", "question": "overview"}, self._tell_counters)
        session.order({"do": "observe", "after": self._last}, self._tell_rows)
        self._timers.set("ask", now + self._config.interval_s * NS_PER_S, self._ask)

    def _tell_load(self, usage: Any, now: Instant) -> None:
        if isinstance(usage, dict):
            row = {name: usage.get(name) for name in (*LOAD, "brokers", "network")}
            self._publish("load", _time_us(usage), row | {"interval_s": self._config.interval_s})

    def _tell_counters(self, overview: Any, now: Instant) -> None:
        if isinstance(overview, dict):
            counters = {name: value for name, value in overview.items() if name not in COUNTERS_LEFT_OUT}
            load = overview.get("load") or {}
            row = counters | {"cpu_permille": load.get("cpu_permille"), "observations_missed": self._missed}
            self._publish("counters", overview.get("time_us"), row)

    def _tell_rows(self, answer: Any, now: Instant) -> None:
        if not isinstance(answer, dict):
            return
        rows = answer["rows"]
        told = rows[len(rows) - self._config.events_max :] if len(rows) > self._config.events_max else rows
        self._last = answer["last"]
        self._missed += answer["missed"] + len(rows) - len(told)
        for row in told:
            about = row.pop("about")
            self._publish(about, row.pop("time_us"), row)

    def _publish(self, about: str, time_us: int | None, row: dict[str, Any]) -> None:
        if self._session is not None:
            self._published += 1
            told = {"time_us": time_us, **row, "incarnation": self._incarnation}
            self._session.publish(topic_of(self._broker, about), _encode(told))

    # -- the rest of the contract -----------------------------------------------------------------------------------

    def tell(self, command: Any, now: Instant) -> None:
        """ReloadMonitor."""
        if not isinstance(command, ReloadMonitor):
            raise UsageError(f"the monitor does not know the command {command!r}")
        self._config = command.config
        self._ask(now)

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self._timers.run(now)

    def take(self) -> Effects:
        """The effects since the last take."""
        return self._outbox.empty(self._timers.next())

    def report(self, question: str) -> Any:
        """How much it has published."""
        if question != "overview":
            raise UsageError("the monitor reports its overview only")
        return {"published": self._published, "missed": self._missed}

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """Ignored: it has no sockets."""

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """Ignored: it sends little."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """Ignored: it requests nothing that has a ticket."""

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """Ignored: it requests nothing that has a ticket."""

    def clock(self, wall_ns: int, now: Instant) -> None:
        """Ignored: times come from the broker."""


def _time_us(usage: dict[str, Any]) -> int | None:
    time = usage.get("time_us")
    return time if isinstance(time, int) else None


class MonitorService(Service[MonitorConfig]):
    """The declaration of the monitor."""

    name = NAME
    config = MonitorConfig

    def is_wanted(self, config: MonitorConfig) -> bool:
        """True if it is enabled."""
        return config.enabled

    def build(self, config: MonitorConfig, around: Surroundings) -> Machine:
        """A monitor for the broker of this node."""
        assert around.broker is not None
        return Monitor(config, around.broker.name, seed=around.seed, incarnation=around.incarnation)

    def reload(self, config: MonitorConfig) -> object:
        """Rates can change."""
        return ReloadMonitor(config)


MONITOR_SERVICE = MonitorService()
