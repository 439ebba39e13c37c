"""The store: a machine with a vault, joined to a broker by a pipe.

In:    publications of its patterns, requests of clients, answers of its vault.
Out:   acknowledgements, answers and readings as STORED frames; advertisements; commits and reads.
State: held by its parts; the id that the vault was given when it was created.
Not here: the parts: intake (publications in), channels (readings out), names (durable subscriptions), retention,
          serving (requests).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.machine import Address, Effects, Instant, LinkId, Outbox, Peer, SocketName, Ticket, Timers
from heliograph.model.chance import Seed, nonces_of, secret_of
from heliograph.model.publication import Publication
from heliograph.notes import RecordsDamaged, StoreFailed, StoreOpened
from heliograph.services.broker_session import BrokerSession
from heliograph.stores.batches import Batches
from heliograph.stores.channels import Channels
from heliograph.stores.config import STORE, StoreConfig
from heliograph.stores.intake import Intake
from heliograph.stores.known import KnownStores
from heliograph.stores.names import Names
from heliograph.stores.opening import Opening
from heliograph.stores.plain import PlainTopics
from heliograph.stores.retention import Retention
from heliograph.stores.serving import Serving
from heliograph.stores.summaries import Summaries
from heliograph.stores.tail import Tail
from heliograph.stores.vault_calls import VaultCalls
from heliograph.vault import Run, VaultFailed, VaultOpened
from heliograph.wire import bodies
from heliograph.wire import stores as wire
from heliograph.wire.stores import StoreAdvertisement

NS_PER_MS = 1_000_000
LIVES = 3  # advertisements that may be lost before a store is forgotten


@dataclass(frozen=True, slots=True)
class ReloadStore:
    """New settings."""

    config: StoreConfig


@dataclass(frozen=True, slots=True)
class WithdrawStore:
    """The store is stopping: clients should use it no more."""


class Store:
    """A machine (machine.py) that keeps publications."""

    def __init__(self, config: StoreConfig, *, seed: Seed, incarnation: int) -> None:
        self._config = config
        self._secret = secret_of(seed, f"{incarnation}/store session")
        self._outbox = Outbox()
        self._timers = Timers()
        self._session: BrokerSession | None = None
        self._welcome: bodies.Welcome | None = None
        self._ahead_ns = 0  # the wall clock's lead over our own clock
        self._now: Instant = 0
        self.id = 0
        self._address = ""  # of our broker
        self._is_served = False  # we have subscribed to our patterns
        self._is_held = False  # we read nothing from our broker, because the vault is behind
        self._holds = 0
        self._damaged = 0  # records at the ends of the logs, when the vault was opened
        self._known = KnownStores()
        self._plain = PlainTopics(config, self._known, lambda: self.id)
        guard = self._outbox.guard
        self._vault = VaultCalls(self._outbox)
        self._tail = Tail()
        self._names = Names(config)
        self._summaries = Summaries(self._vault, self._timers, self._tail)
        self._channels = Channels(
            self._tail, self._summaries, self._vault, self._timers, self._send, config.channels_max, guard
        )
        self._batches = Batches(config, self._vault, self._timers, self._tail, self._grown, self._wall)
        self._intake = Intake(
            self._vault,
            self._timers,
            keeps_plain=self._plain.keeps,
            log_of=self._batches.log_of,
            staging=self._batches.staging,
            unsafe_ack=config.unsafe_ack,
            bytes_max=config.intake_bytes_max,
            send=self._send,
            grown=self._grown,
            failed=self._commit_failed,
            wall=self._wall,
            guard=guard,
        )
        self._serving = Serving(
            self._vault,
            self._tail,
            self._intake,
            self._channels,
            self._names,
            self._batches,
            self._send,
            self._wall,
            self._counts,
            guard,
        )
        self._retention = Retention(
            config,
            self._vault,
            self._timers,
            self._tail,
            self._names,
            self._channels.is_open,
            self._intake.forget_publisher,
            self._wall,
        )
        self._opening = Opening(
            self._vault,
            self._timers,
            self._names,
            self._batches,
            self._tail,
            lambda now: nonces_of(seed, f"{incarnation}/{self._wall(now)} store id"),
            self._opened,
        )

    # -- the broker -----------------------------------------------------------------------------------------------

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The broker is attached."""
        self._session = BrokerSession(link, self._outbox, self._secret, take=self._intake.take, welcome=self._welcomed)
        self._session.hello(STORE)
        self._session.subscribe(wire.WANTED, self._wanted)
        self._session.subscribe(wire.ADVERTISEMENT, self._heard)
        self._serve(now)

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """The broker is detached; the store will stop soon too."""
        self._session = None
        self._is_served = self._is_held = False

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Bytes from the broker."""
        self._now = now
        if self._session is not None:
            self._session.receive(data, now)
            if self._session.fault is not None:
                self._outbox.hang_up(link, self._session.fault)

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """Our broker does not read: readings wait. Acknowledgements and answers do not, as there are few."""
        self._channels.press(pressed)

    def _hold(self) -> None:
        """Read nothing from our broker while the vault is behind. Only the vault's answers end that, and they do not
        come from the broker."""
        held = self._intake.is_behind(self._is_held)
        if held != self._is_held and self._session is not None:
            self._is_held = held
            self._holds += held
            self._outbox.holds.append((self._session.link, held))

    def _welcomed(self, welcome: bodies.Welcome, now: Instant) -> None:
        self._welcome = welcome
        self._serving.welcomed(welcome.inbox)
        self._serve(now)

    def _send(self, frame: bytes) -> None:
        if self._session is not None:
            self._session.send_frame(frame)

    def _serve(self, now: Instant) -> None:
        """Begin to accept publications and requests, once vault and broker are available."""
        if self._is_served or not self.id or self._session is None or self._welcome is None:
            return
        self._is_served = True
        self._session.subscribe(wire.REQUEST % self.id, self._asked)
        for pattern in self._config.patterns:
            self._session.subscribe_whole(pattern.encode())
        self._advertise(now)

    def _asked(self, publication: Publication, now: Instant) -> None:
        if self.id:
            self._serving.receive(publication.payload, now)

    # -- advertising ----------------------------------------------------------------------------------------------

    def _wanted(self, publication: Publication, now: Instant) -> None:
        if self._is_served:
            self._timers.set("advertise", now, self._advertise)

    def _advertise(self, now: Instant) -> None:
        if self._session is not None:
            self._session.order({"do": "report", "question": "usage"}, self._told_usage)
        self._say_advertisement(self._config.advertise_ms * LIVES)
        self._timers.set("advertise", now + self._config.advertise_ms * NS_PER_MS, self._advertise)

    def _told_usage(self, usage: Any, now: Instant) -> None:
        """The address of our broker, for readers of large amounts; sent with the next advertisement."""
        addresses = usage.get("addresses") if isinstance(usage, dict) else None
        if addresses and addresses[0] != self._address:
            self._address = addresses[0]
            self._say_advertisement(self._config.advertise_ms * LIVES)

    def _say_advertisement(self, ttl_ms: int) -> None:
        if self._session is None or self._welcome is None or not self.id:
            return
        own = StoreAdvertisement(
            f"{self.id:016x}",
            self._config.name,
            list(self._config.patterns),
            self._welcome.inbox,
            ttl_ms,
            self._welcome.broker,
            self._address,
            self._intake.state,
            self._tail.log.first,
            self._tail.log.next,
        )
        self._session.publish(wire.ADVERTISEMENT, wire.encode(own))

    def _heard(self, publication: Publication, now: Instant) -> None:
        """Another store advertised: it may serve some of our topics better."""
        try:
            self._known.hear(wire.decode(StoreAdvertisement, publication.payload), now)
        except ProtocolError:
            return
        self._plain.forget()

    # -- the vault ------------------------------------------------------------------------------------------------

    def _opened(self, id: int, now: Instant) -> None:
        """The vault was read."""
        self.id = id
        self._intake.open(id)
        self._channels.use(id)
        self._serving.use(id)
        self._summaries.start(now)
        self._retention.start(now)
        self._batches.start(now)
        self._outbox.note(StoreOpened(self._config.name, f"{id:016x}", self._tail.log.first, self._tail.log.next))
        self._serve(now)
        if self._is_served:
            self._advertise(now)

    def _note_damage(self, opened: VaultOpened) -> None:
        """Tell the operator of damage at the end of the logs. Readers are told of it as a gap when they get there."""
        self._damaged = sum(each.count for each in opened.damaged)
        for each in opened.damaged:
            self._outbox.note(RecordsDamaged(self._config.name, each.log, each.position, each.count, each.problem))

    def _close(self, failed: VaultFailed, now: Instant) -> None:
        self._opening.stop()
        self._outbox.note(StoreFailed(self._config.name, failed.reason, failed.problem))
        self._intake.close(failed.reason)
        self._channels.close_all(failed.reason, failed.problem)
        self._say_advertisement(self._config.advertise_ms * LIVES)
        self.id = 0

    def _commit_failed(self, reason: Reason, now: Instant) -> None:
        self._outbox.note(StoreFailed(self._config.name, reason, "a commit failed"))
        if self._is_served:
            self._timers.set("advertise", now, self._advertise)

    def _grown(self, runs: list[Run], now: Instant) -> None:
        self._tail.grow(runs)
        self._summaries.grow(runs, now)
        self._channels.grown()

    def _wall(self, now: Instant) -> int:
        return now + self._ahead_ns

    # -- the rest of the contract ---------------------------------------------------------------------------------

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """Ignored: it has no sockets."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """The vault answered."""
        self._now = now
        self._vault.done(ticket, result, now)

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """The vault failed."""
        self._now = now
        self._vault.failed(ticket, reason, now)

    def tell(self, command: Any, now: Instant) -> None:
        """VaultOpened, VaultFailed, ReloadStore, WithdrawStore."""
        self._now = now
        if isinstance(command, VaultOpened):
            self._note_damage(command)
            self._opening.begin(now)
        elif isinstance(command, VaultFailed):
            self._close(command, now)
        elif isinstance(command, ReloadStore):
            self._config = command.config
            self._names.reload(command.config)
            self._batches.reload(command.config)
            self._channels.reload(command.config.channels_max)
            self._retention.reload(command.config)
        elif isinstance(command, WithdrawStore):
            self._say_advertisement(0)
            self._channels.close_all(Reason.STOPPING, "the store ends")
        else:
            raise UsageError(f"a store does not know the command {command!r}")

    def clock(self, wall_ns: int, now: Instant) -> None:
        """A reading of the wall clock."""
        self._ahead_ns = wall_ns - now

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self._now = now
        self._timers.run(now)

    def take(self) -> Effects:
        """The effects since the last take."""
        self._intake.flush(self._now)
        self._channels.flush(self._now)
        self._hold()
        return self._outbox.empty(self._timers.next())

    def report(self, question: str) -> Any:
        """What the store holds and does."""
        if question == "channels":
            return self._channels.report()
        if question != "overview":
            raise UsageError("a store reports its overview and its channels")
        return {
            "store": f"{self.id:016x}",
            "name": self._config.name,
            "state": self._intake.state if self.id else "closed",
            "patterns": list(self._config.patterns),
            **self._counts(),
            "refused": dict(self._serving.refused),
        }

    def _counts(self) -> dict[str, int]:
        """The state of the store, and what it has done since it started."""
        log, counts = self._tail.log, self._intake.counts
        return {
            "first": log.first,
            "next": log.next,
            "bytes": log.bytes,
            "names": len(self._names),
            "lag": 0 if self._names.held is None else max(0, log.next - max(log.first, self._names.held)),
            "channels": len(self._channels),
            "publishers": self._intake.chains,
            "waiting_bytes": self._intake.waiting_bytes,
            "holds": self._holds,
            "taken": counts.taken,
            "plain": counts.plain,
            "staged": counts.staged,
            "staged_bytes": self._batches.staging.total,
            "batches": len(self._batches.staging),
            "batches_gave_way": self._batches.staging.gave_way,
            "repeated": counts.repeated,
            "early": counts.early,
            "broken": counts.broken,
            "dropped": counts.dropped,
            "gave_way": self._intake.gave_way,
            "foreign": counts.foreign,
            "malformed": counts.malformed,
            "acknowledgements": counts.acknowledgements,
            "commits": counts.commits,
            "failures": counts.failures,
            **self._intake.times.report(),
            "delivered": self._channels.delivered,
            "thrown_away": self._channels.repeats.bytes,
            "gaps": self._channels.gaps,
            "damaged": self._damaged,
            "trimmed": self._retention.trimmed,
        }
