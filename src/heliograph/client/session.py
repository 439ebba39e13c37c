"""The session: the client's machine. It outlives links, keeps order, and repeats what no broker has confirmed.

In:    commands of the program (client/commands.py); a broker's bytes; time.
Out:   dials and frames; outcomes, inboxes and refusals for the program to collect.
State: its parts, which the constructor lists; whether and why it has ended.
Not here: sockets and tasks (live/client.py), frames (client/conversation.py), what each command does (the parts).

The life of a session: dial → HELLO → WELCOME → in use → link lost → pause → dial …, until the program closes it, or a
broker refuses it for a reason that trying again would not change. On each WELCOME everything is subscribed again, and
what lies above the broker's ``seen`` is published again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from heliograph.client import commands
from heliograph.client.commands import Outcome
from heliograph.client.config import ClientConfig, Target
from heliograph.client.conversation import Conversation
from heliograph.client.deliveries import Deliveries
from heliograph.client.dialler import Dialler
from heliograph.client.flushes import Flushes
from heliograph.client.graceful_leave import GracefulLeave
from heliograph.client.handshake import Handshake
from heliograph.client.inbox import Inbox
from heliograph.client.inquiries import Inquiries
from heliograph.client.line import Line
from heliograph.client.lines import Lines
from heliograph.client.outgoing import Outgoing
from heliograph.client.publisher import Publisher
from heliograph.client.refusals import Losses, Refusals, RefusedPublication
from heliograph.client.relocation_policy import SessionHealth
from heliograph.client.reports import Reports
from heliograph.client.requests import OpenRequests
from heliograph.client.responses import Responses
from heliograph.client.resumption import Resumption
from heliograph.client.roaming import Roaming
from heliograph.client.service_requests import ServiceRequests
from heliograph.client.stored.calls import StoreCalls
from heliograph.client.stored.parts import StoreParts
from heliograph.client.stored.readings import Readers
from heliograph.client.stored.reliable import ReliablePublishing
from heliograph.client.subscription_requests import SubscriptionRequests
from heliograph.client.subscriptions import LocalSubscriptions
from heliograph.client.timing import SessionTime
from heliograph.client.watches import News, ServiceWatches
from heliograph.errors import ClosedError, HeliographError, Reason, UsageError
from heliograph.machine import Address, Effects, Instant, LinkId, Outbox, Peer, SocketName, Ticket, Timers
from heliograph.model.origin import SECRET_BYTES_MAX, SECRET_BYTES_MIN, origin_of
from heliograph.trust.expiries import Expiries
from heliograph.wire import bodies
from heliograph.wire.frames import VERSION, Kind, control
from heliograph.wire.times import FEATURE as TIME

BEGINNINGS = (commands.Subscribe, commands.ReadStores, commands.PublishReliably, commands.Inquire, commands.Drain)
"""Commands that a draining session does not accept."""


class Session:
    """One client. It has 33 methods because it implements the contract of machines and what programs read and ask for.

    ``secret`` (16 to 64 random bytes) is its identity as a publisher; ``seed`` draws its jitter.

    ``used``: earlier incarnations may have published under numbers up to this one.
    """

    def __init__(self, config: ClientConfig, *, secret: bytes, seed: int, used: int = 0) -> None:
        config.check()
        if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
            raise UsageError(f"a session secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes")
        self.config = config
        self.origin = origin = origin_of(secret)
        self.error: HeliographError | None = None  # why the session ended, unless the program ended it
        self.ended = False
        self._outbox = outbox = Outbox()
        self._timers = timers = Timers()
        # Of the program: requests, subscriptions, publications.
        self._requests = requests = OpenRequests(timers, config.request_ms_max, config.requests_max)
        self._subscriptions = subscriptions = LocalSubscriptions()
        self._refusals = refusals = Refusals()
        self._time = time = SessionTime(timers)
        self._expiries = Expiries(timers, self._certificate_ends, self._certificate_ended)
        self._losses = losses = Losses(outbox, timers)
        outgoing = Outgoing(config.outgoing_bytes_max, used)
        self.publisher = publisher = Publisher(origin, outgoing, time, losses, requests)
        # Links to brokers, and requests to brokers.
        self._lines = lines = Lines(partial(_hello, config, secret), config.dial_ms_max, outbox, timers, outgoing)
        self._dialler = dialler = Dialler(config, seed, outbox, timers, requests, lines, self._end)
        self._subscription_requests = asks = SubscriptionRequests(subscriptions, requests, lines, outbox, timers)
        self._watches = watches = ServiceWatches()
        services = ServiceRequests(requests, lines, watches)
        calls = StoreCalls(requests, lines)
        self.reliable = reliable = ReliablePublishing(
            config.reliable_window, publisher, outgoing, lines, requests, refusals, calls, timers
        )
        self._readers = readers = Readers(lines, requests, subscriptions, calls, outbox, timers)
        self._store_parts = store_parts = StoreParts(calls, reliable, readers, requests)
        inquiries = Inquiries(secret, requests, publisher, lines, subscriptions, asks)
        self._flushes = flushes = Flushes(requests, outgoing, refusals, subscriptions, lines, store_parts, self._end)
        self._deliveries = deliveries = Deliveries(origin, subscriptions, requests, lines, losses)
        # Joining a broker, leaving it, moving to another.
        resumption = Resumption(
            lines, dialler, publisher, asks, services, inquiries, flushes, deliveries, store_parts, watches
        )
        self._leave = leave = GracefulLeave(lines, requests, inquiries, outgoing, timers)
        self._roaming = roaming = Roaming(config, outbox, timers, lines, dialler, asks, resumption, leave)
        # Frames from brokers.
        handshake = Handshake(
            origin, config.network, subscriptions, outgoing, time, lines, resumption, roaming, self._end
        )
        self._responses = Responses(
            requests, asks, services, inquiries, refusals, flushes, time, roaming, store_parts, watches
        )
        self._conversation = Conversation(lines, deliveries, handshake, self._responses, leave)
        self._reports = Reports(
            lines, roaming, outgoing, deliveries, subscriptions, requests, inquiries, refusals, losses, watches
        )
        self._tells: dict[type, Callable[[Any, Instant], None]] = {
            commands.Publish: publisher.tell_publish,
            commands.PublishBatch: publisher.tell_batch,
            commands.PublishReliably: reliable.publish,
            commands.ReadStores: readers.read,
            commands.Acknowledge: readers.acknowledge,
            commands.EndReading: readers.end,
            commands.AskStores: store_parts.ask,
            commands.Taken: subscriptions.taken,
            commands.TakenStored: readers.taken,
            commands.Connect: dialler.connect,
            commands.Subscribe: asks.subscribe,
            commands.Unsubscribe: asks.unsubscribe,
            commands.Flush: flushes.flush,
            commands.Ask: services.ask,
            commands.EndWatch: services.end_watch,
            commands.Inquire: inquiries.inquire,
            commands.Move: self._move,
            commands.Drain: self._drain,
            commands.Close: self._close,
        }

    # -- for the program to read --------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """True while a broker has welcomed the session and the link is there."""
        return self._lines.is_ready

    @property
    def welcome(self) -> bodies.Welcome | None:
        """The WELCOME of the broker that last accepted the session."""
        return self._lines.welcome

    @property
    def target(self) -> Target:
        """The broker that the session is linked to, or that it dials."""
        line = self._lines.current
        return self._dialler.target if line is None else line.target

    @property
    def health(self) -> SessionHealth:
        """How good the present link is; this decides whether to look for another broker."""
        broker = "" if self.welcome is None else self.welcome.broker
        time = self._time
        return SessionHealth(broker, self.is_connected, self._lines.used, time.round_trip_ns, time.measured)

    @property
    def inbox_topic(self) -> str:
        """The topic of this session's inbox at the present broker; empty without one."""
        return self._lines.inbox

    @property
    def directed(self) -> Inbox:
        """Publications that name this session as a destination."""
        return self._subscriptions.directed

    def inbox(self, number: int) -> Inbox:
        """The publications of this subscription."""
        stored = self._readers.inbox(number)
        if stored is not None:
            return stored
        subscription = self._subscriptions.get(number)
        if subscription is None:
            raise UsageError(f"there is no subscription {number}")
        return subscription.inbox

    def collect(self) -> list[Outcome]:
        """Outcomes since the last call."""
        return self._requests.collect()

    def collect_news(self) -> list[Inbox]:
        """Inboxes that got something, or ended, since the last call."""
        return self._subscriptions.collect_news()

    def collect_watched(self) -> list[News]:
        """News of services, by the number of the watch, since the last call; None if the watch ended with its link."""
        return self._watches.collect()

    def collect_refusals(self) -> list[RefusedPublication]:
        """Publications that the broker refused since the last call."""
        return self._refusals.collect()

    def report(self, question: str) -> Any:
        """A read-only answer about state: "overview", "subscriptions", "stores" or "time"."""
        if question == "overview":
            return {
                "state": "ended" if self.ended else "connected" if self.is_connected else "connecting",
                "error": None if self.error is None else str(self.error),
                "origin": f"{self.origin:016x}",
                **self._reports.overview(),
            }
        if question == "subscriptions":
            return self._reports.subscriptions()
        if question == "time":
            return self._time.report()
        if question == "stores":
            return self._store_parts.report()
        raise UsageError(f"a session has no report on {question!r}: ask for overview, subscriptions, stores or time")

    # -- inputs of the driver -----------------------------------------------------------------------------------

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The dial succeeded: say hello."""
        expected = peer.ticket is not None and not self.ended
        if expected and peer.ticket == self._roaming.ticket:
            self._roaming.attached(link, peer, now)
        elif expected and peer.ticket == self._dialler.ticket and self._lines.current is None:
            self._dialler.attached(link, peer, now)
        else:
            self._outbox.hang_up(link, Reason.TIME_OUT)  # a dial that succeeded after we gave up on it
        if link in self._lines.by_link:
            self._expiries.add(link, peer, now)

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Read bytes of a broker, split anywhere."""
        self._conversation.receive(link, data, now)

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """A session has no datagram socket."""

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """The link is gone: find a broker again."""
        line = self._lines.by_link.get(link)
        if line is None:
            return
        self._expiries.remove(link)
        in_use = line is self._lines.current
        self._lines.remove(line)
        for part in (self._leave, self._subscription_requests, self._time):
            part.forget(line)
        self._responses.lost(line, now)
        if self.ended:
            return
        if not in_use:
            self._roaming.lost(line, reason, now)
        elif self._must_ask_why(line):
            self._roaming.stop()
            self._dialler.lost(line, reason, now, again=True)
        elif not self._roaming.take_over(now):
            self._dialler.lost(line, reason, now)
        self._flushes.review_drain(now)

    def _must_ask_why(self, line: Line) -> bool:
        """True if a subscription that must not lose anything was in force on a lost line: did the broker end it?"""
        if line.explained or line.welcome is None:
            return False
        return self._subscriptions.cut(line.in_force, line.welcome.broker)

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """The driver's buffer is full, or has room again: publications wait here while it is full."""
        line = self._lines.by_link.get(link)
        if line is not None:
            line.press(pressed)

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """A session asks for no commit, read or job."""

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """A dial did not succeed."""
        if self.ended:
            return
        if ticket == self._dialler.ticket:
            self._dialler.failed(reason, "", now)
        elif ticket == self._roaming.ticket:
            self._roaming.failed(reason, now)

    def tell(self, command: Any, now: Instant) -> None:
        """Handle a command of the program; UsageError if it makes no sense."""
        tell = self._tells.get(type(command))
        if tell is None:
            raise UsageError(f"a session does not know the command {type(command).__name__}")
        if self.ended:
            self._answer_after_the_end(command, now)
            return
        if self._flushes.is_draining and isinstance(command, BEGINNINGS):
            raise UsageError("the session is draining: it takes nothing new")
        tell(command, now)
        self._deliveries.review_hold(now)

    def clock(self, wall_ns: int, now: Instant) -> None:
        """The wall clock's time, for the stamps of publications and for the ends of brokers' certificates."""
        self._time.wall(wall_ns, now)
        self._expiries.clock(wall_ns, now)

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        if not self.ended:
            self._timers.run(now)
            self._flushes.review(now)
            self._deliveries.review_hold(now)

    def take(self) -> Effects:
        """All effects since the last take: one write per line, however many publications it holds."""
        self._lines.gather()
        return self._outbox.empty(None if self.ended else self._timers.next())

    # -- moving and ending --------------------------------------------------------------------------------------

    def _move(self, command: commands.Move, now: Instant) -> None:
        self._dialler.retarget(command.targets, now)
        line = self._lines.current
        if line is not None and line.is_ready and not line.leaving:
            self._dialler.found(line.target)
            self._roaming.move([target for target in command.nearest if target != line.target], now)

    def _certificate_ends(self, link: LinkId, left_ms: int, late: bool, now: Instant) -> None:
        """The broker's certificate ends soon: come again in time, as if the broker had asked for it."""
        line = self._lines.by_link[link]
        if not late and line is self._lines.current and line.is_ready and not line.leaving:
            text = "the broker's certificate ends soon"
            reason = Reason.CERTIFICATE_EXPIRED
            self._roaming.begin(line, bodies.Goodbye(reason.word, reason, text, left_ms, []), now)

    def _certificate_ended(self, link: LinkId, now: Instant) -> None:
        self._lines.hang_up(self._lines.by_link[link], Reason.CERTIFICATE_EXPIRED, "your certificate has ended")

    def _drain(self, command: commands.Drain, now: Instant) -> None:
        self._flushes.drain(command, now)
        self.publisher.close()
        self._roaming.forbid()
        self._subscription_requests.unsubscribe_all()
        self._readers.end_all(now)
        self._lines.confirm_soon()
        self._flushes.review_drain(now)

    def _close(self, command: commands.Close, now: Instant) -> None:
        self._requests.accept(command.request)
        self._end(None, now)

    def _answer_after_the_end(self, command: Any, now: Instant) -> None:
        if isinstance(command, commands.Close | commands.Drain | commands.Unsubscribe | commands.EndReading):
            self._requests.accept(command.request)
        elif isinstance(command, commands.Publish | commands.PublishBatch):
            self._tells[type(command)](command, now)  # the publisher gives the reason
        elif not isinstance(command, commands.Taken | commands.TakenStored | commands.Acknowledge | commands.EndWatch):
            self._requests.refuse(command.request, self.error or ClosedError("the client was closed"))

    def _end(self, error: HeliographError | None, now: Instant) -> None:
        """Say goodbye and end; what was published this turn still goes out."""
        if self.ended:
            return
        self._lines.hang_up_all()
        self.ended = True
        self.error = error
        why = error if error is not None else ClosedError("the client was closed")
        self.publisher.close(error)
        self._dialler.end(why)
        self._requests.settle_all(why)
        self.reliable.end()
        self._readers.close(error)
        self._subscriptions.end(error)
        self._watches.use(None)
        self._losses.end(now)
        self._outbox.finish()

    def abandon(self) -> None:
        """The driver has failed: handle nothing more."""
        self.ended = True
        self.publisher.close(self.error)


def _hello(config: ClientConfig, secret: bytes, moved: bool) -> bytes:
    body = bodies.Hello(
        versions=[VERSION],
        secret=secret.hex(),
        features=[TIME, bodies.MOVE],
        name=config.name,
        entity=config.entity,
        token=config.token,
        keep_alive_ms=config.keep_alive_ms,
        hold=config.hold,
        moved=moved,
    )
    return control(Kind.HELLO, 0, bodies.encode(body))
