"""The resource service of a broker: a machine at the end of a pipe.

In:    requests of clients; messages of neighbours' services; ways; requesters that disconnect; time.
Out:   answers; messages to neighbours; news for watching clients; publications under System/Resources.
State: its session with the broker, and network time; the core holds the rest.
Not here: resource discovery itself (core.py), requests of clients (desk.py), watchers (watchers.py).
Paper: [resources] §4 and §5.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec

from heliograph.discovery.resources.calls import REQUESTS
from heliograph.discovery.resources.config import RESOURCES, ResourcesConfig
from heliograph.discovery.resources.core import ResourceCore
from heliograph.discovery.resources.desk import ResourceAnnouncer, ResourceDesk, overview
from heliograph.discovery.resources.direct import DirectLinks
from heliograph.discovery.resources.messages import (
    NAME_LENGTH_MAX,
    RequestId,
    ResourceRequest,
    ResourcesFound,
    ResourceState,
    encode,
)
from heliograph.discovery.resources.request_tables import tables_of
from heliograph.discovery.resources.table import HostingBroker, TableDifference
from heliograph.discovery.resources.watchers import Watchers
from heliograph.errors import Reason, UsageError
from heliograph.machine import Address, Effects, Instant, LinkId, Outbox, Peer, SocketName, Ticket, Timers
from heliograph.model.chance import Seed, secret_of
from heliograph.model.publication import Publication
from heliograph.services.broker_session import BrokerSession
from heliograph.timekeeping.told_time import ToldTime
from heliograph.wire.bodies import Welcome
from heliograph.wire.frames import Frame
from heliograph.wire.ways import WaysHere

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
ADDRESS_EVERY_NS = NS_PER_S // 2  # how often the broker is asked for its address, until it listens
TIME_EVERY_NS = NS_PER_S  # how often the broker is asked for network time

_encode = msgspec.json.Encoder().encode


class ResourceService:
    """A machine: resource discovery for one broker.

    It has 35 methods because the contract of machines and of attending services takes twenty-one of them.
    """

    def __init__(self, config: ResourcesConfig, *, seed: Seed, incarnation: int) -> None:
        self._config = config
        self._outbox = Outbox()
        self._timers = Timers()
        self._secret = secret_of(seed, f"{incarnation}/resources")
        self._session: BrokerSession | None = None
        self._now: Instant = 0
        self._time = ToldTime()
        self._announcer = ResourceAnnouncer(
            self._publish,
            self._time.time_ns,
            lambda: "" if self._core.places.ways is None else self._core.places.ways.name,
        )
        self._core = ResourceCore(
            config,
            self._timers,
            network_time=self._time.time_ns,
            time_error=self._time.error_ns,
            send=self._send,
            state=self._own_state,
            told=lambda id, state: self._watchers.state(self._core, id, state, self._now),
            stirred=lambda id: self._watchers.stirred(self._core, id, self._now),
            emptied=lambda id, host: self._watchers.emptied(self._core, id, host),
            learned=self._learned,
            direct=self._send_directly,
            reply=self._reply,
        )
        self._direct = DirectLinks(config.direct_links_max, self._secret, self._outbox, self._timers)
        self._address = ""  # where other brokers dial our broker
        self._inbox = ""  # of our session on the pipe: direct answers arrive there
        self._watchers = Watchers(
            self._timers,
            config.watches_per_client_max,
            tell=self._tell,
            age_ms=self._age_ms,
            deadline_ns=config.deadline_ms * NS_PER_MS,
        )
        self._desk = ResourceDesk(
            *(config, self._core, self._watchers, self._direct, self._announcer, self._timers),
            answer=self._answer,
            refuse=self._refuse,
            fail=self._fail,
            age_ms=self._age_ms,
            address=lambda: self._address,
        )

    # -- the pipe ---------------------------------------------------------------------------------------------------

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The broker is attached, or a requester's broker that was dialled."""
        self._now = now
        if self._direct.attach(link, peer, now):
            return
        session = self._session = BrokerSession(
            *(link, self._outbox, self._secret),
            requests=REQUESTS,
            serve=self._desk.serve,
            refused=self._core.count,
            attendant=self,
            welcome=self._welcomed,
        )
        session.hello(RESOURCES)
        session.attend(RESOURCES)
        self._ask_time(now)
        self._ask_address(now)

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """The link to the broker, or to a requester's broker, has closed."""
        if self._session is not None and self._session.link == link:
            self._session = None
        else:
            self._direct.detach(link, now)

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Bytes from the broker."""
        self._now = now
        if self._session is None or self._session.link != link:
            self._direct.receive(link, data, now)
            return
        self._session.receive(data, now)
        if self._session.fault is not None:
            self._outbox.hang_up(link, self._session.fault)

    def _welcomed(self, welcome: Welcome, now: Instant) -> None:
        """Our inbox is known now: direct answers arrive there."""
        if self._session is not None and not self._inbox:
            self._inbox = welcome.inbox
            self._session.subscribe(f"{self._inbox}/direct/+".encode(), self._hear_direct)

    def _send(self, link: LinkId, payload: bytes) -> None:
        if self._session is not None:
            self._session.send(link, payload)

    def _publish(self, topic: bytes, payload: bytes) -> None:
        if self._session is not None:
            self._session.publish(topic, payload)

    def _tell(self, asker: LinkId, watch: int, payload: bytes) -> None:
        if self._session is not None:
            self._session.tell(asker, watch, payload)

    def _ask_time(self, now: Instant) -> None:
        if self._session is not None:
            self._session.order({"do": "report", "question": "time"}, lambda report, now: self._time.hear(report))
            self._timers.set("time", now + TIME_EVERY_NS, self._ask_time)

    # -- direct answers ---------------------------------------------------------------------------------------------

    def _ask_address(self, now: Instant) -> None:
        """A broker knows its address once it listens."""
        if not self._address and self._session is not None:
            self._session.order({"do": "report", "question": "usage"}, self._hear_usage)
            self._timers.set("address", now + ADDRESS_EVERY_NS, self._ask_address)

    def _hear_usage(self, report: Any, now: Instant) -> None:
        if isinstance(report, dict) and report.get("addresses"):
            self._address = str(report["addresses"][0])[:NAME_LENGTH_MAX]

    def _reply(self, id: RequestId) -> tuple[str, str] | None:
        """Where direct answers to this request go. The last level is secret, so only brokers that were asked can
        answer."""
        if not self._address or not self._inbox:
            return None
        return self._address, f"{self._inbox}/direct/{self._seal(id)}"

    def _seal(self, id: RequestId) -> str:
        return sha256(self._secret + b"%d/%d/%d" % id).hexdigest()[:32]

    def _send_directly(
        self, request: ResourceRequest, found: ResourcesFound, undelivered: Callable[[], None], now: Instant
    ) -> bool:
        if request.reply is None or not request.reply[1].startswith("Inbox/"):
            return False
        address, topic = request.reply
        return self._direct.send(address, topic.encode(), encode(found), undelivered, now)

    def _hear_direct(self, publication: Publication, now: Instant) -> None:
        self._now = now
        self._core.hear_direct(publication.payload, publication.topic.rsplit("/", 1)[1], self._seal)

    def _age_ms(self, at: int, now: Instant) -> float:
        return max(0, round((self._time.time_ns(now) - at) / NS_PER_MS, 3))

    # -- from the broker to the core --------------------------------------------------------------------------------

    def hear_ways(self, ways: WaysHere, now: Instant) -> None:
        """Neighbours and ways."""
        self._core.hear_ways(ways, now)

    def hear_neighbour(self, link: LinkId, payload: bytes, now: Instant) -> None:
        """A message of a neighbour's service."""
        self._core.hear_neighbour(link, payload, now)

    def hear_refusal(self, link: LinkId, number: int, reason: Reason, now: Instant) -> None:
        """Our message did not arrive."""
        self._core.hear_refusal(link, reason, now)

    def hear_end(self, asker: LinkId, now: Instant) -> None:
        """A client disconnected: end its watches, and forget its answers."""
        self._watchers.leave(self._core, asker)
        self._desk.leave(asker)

    def hear_untold(self, asker: LinkId, watch: int, now: Instant) -> None:
        """A watching client does not read."""
        self._watchers.untold(self._core, asker, watch, now)

    def _answer(self, frame: Frame, body: bytes) -> None:
        if self._session is not None:
            self._session.answer(frame, body)

    def _refuse(self, frame: Frame, reason: Reason, text: str) -> None:
        if self._session is not None:
            self._session.refuse(frame, reason, text)

    def _fail(self, frame: Frame, where: str, error: Exception, now: Instant) -> None:
        if self._session is not None:
            self._session.refuse_failed(frame, where, error, now)

    def _learned(self, host: HostingBroker, difference: TableDifference) -> None:
        self._watchers.learned(host, difference)

    def _own_state(self, state: ResourceState) -> None:
        hosted = self._core.hosting.resources.get(state.id)
        if self._config.publish_updates and state.values is not None and hosted is not None:
            self._announcer.announce(hosted, "updated", state.values, self._now)

    # -- the rest of the contract -----------------------------------------------------------------------------------

    def clock(self, wall_ns: int, now: Instant) -> None:
        """The wall clock, used until the broker reports network time, for the ends of certificates, and to judge
        incarnations."""
        self._direct.clock(wall_ns, now)
        self._time.clock(wall_ns, now)
        self._core.incarnations.clock(wall_ns, now)

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self._now = now
        self._timers.run(now)
        for hosted in self._core.take_expired():
            self._announcer.announce(hosted, "expired", None, now)

    def take(self) -> Effects:
        """The effects since the last take."""
        return self._outbox.empty(self._timers.next())

    def report(self, question: str) -> Any:
        """What it knows and its counters: overview or tables."""
        core = self._core
        if question == "tables":
            return tables_of(core.forwarding)
        if question != "overview":
            raise UsageError("the resource service reports its overview and its tables")
        return overview(core, self._watchers, self._direct)

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """Ignored: it has no sockets."""

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """Ignored: the broker bounds what waits for a neighbour."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """Ignored: it requests nothing that has a ticket."""

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """A requester's broker could not be dialled."""
        self._now = now
        self._direct.failed(ticket, now)

    def tell(self, command: Any, now: Instant) -> None:
        """Ignored: it takes no commands."""
        raise UsageError(f"the resource service does not know the command {command!r}")
