"""The session: the client's machine. It outlives links, keeps order, and repeats what no broker has confirmed.

In:    commands of the program (client/commands.py); a broker's bytes; time.
Out:   dials and frames; outcomes, inboxes and refusals for the program to collect.
State: its rooms (client/rooms.py), the way to a broker (reach), the present link (conversation).
Not here: sockets and tasks (live/client.py), frames (client/conversation.py), moving from a broker that drains to
          another one (client/roaming.py).

The life of a session: dial → HELLO → WELCOME → in use → link lost → pause → dial …, until the program closes it, or a
broker refuses it for a reason that trying again would not change. On each WELCOME everything is subscribed again, and
published again what lies above the broker's ``seen``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from heliograph.client import commands
from heliograph.client.commands import Outcome
from heliograph.client.config import ClientConfig, Target, stays_here
from heliograph.client.conversation import FATAL, Conversation
from heliograph.client.inbox import Inbox
from heliograph.client.line import Line
from heliograph.client.outgoing import too_much
from heliograph.client.reach import Reach
from heliograph.client.refusals import RefusedPublication
from heliograph.client.reports import describe_link, describe_rooms, describe_wish
from heliograph.client.requests import NS_PER_MS
from heliograph.client.rooms import Rooms
from heliograph.client.staying import Standing
from heliograph.client.subscriptions import Wish
from heliograph.client.writer import Stamp, header_block, plain_block
from heliograph.errors import ClosedError, HeliographError, NotConnectedError, Reason, RefusedError, UsageError
from heliograph.machine import Address, Effects, Instant, LinkId, Peer, SocketName, Ticket
from heliograph.model.origin import SECRET_BYTES_MAX, SECRET_BYTES_MIN, origin_of
from heliograph.model.topics import topic_fault
from heliograph.wire import bodies
from heliograph.wire.frames import VERSION, Kind, control
from heliograph.wire.limits import CONTROL_BYTES_MAX
from heliograph.wire.times import FEATURE as TIME

_encode = msgspec.json.Encoder().encode


class Session:
    """One client. ``secret`` (16 to 64 random bytes) is its identity as a publisher; ``seed`` draws its jitter."""

    def __init__(self, config: ClientConfig, *, secret: bytes, seed: int) -> None:
        config.check()
        if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
            raise UsageError(f"a session secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes")
        self.config = config
        self.origin = origin_of(secret)
        self.welcome: bodies.Welcome | None = None  # what the broker said last
        self.error: HeliographError | None = None  # why the session ended, if not by the program's wish
        self.ended = False
        self._rooms = rooms = Rooms(config, secret, self.origin)
        self._outgoing = rooms.outgoing
        self._writer = rooms.writer
        self._requests = rooms.requests
        self._conversation = Conversation(rooms, self.origin, partial(_hello, config, secret), self)
        self._asking = self._conversation.asking
        self._roaming = self._conversation.roaming
        self._reach = Reach(config, seed, rooms.outbox, rooms.timers, self.refused)
        self._timing = rooms.timing
        self._connects: dict[int, Instant] = {}  # request -> until when each target should have been tried
        self._flushes: dict[int, int] = {}  # request -> the sequence that has to be confirmed
        self._draining = False
        self._drain_request = 0
        self._tells: dict[type, Callable[[Any, Instant], None]] = {
            commands.Publish: self._tell_publish,
            commands.PublishBatch: self._tell_batch,
            commands.Send: self._tell_send,
            commands.Taken: self._tell_taken,
            commands.Connect: self._tell_connect,
            commands.Subscribe: self._tell_subscribe,
            commands.Unsubscribe: self._tell_unsubscribe,
            commands.Flush: self._tell_flush,
            commands.Ask: self._tell_ask,
            commands.Inquire: self._tell_inquire,
            commands.Move: self._tell_move,
            commands.Drain: self._tell_drain,
            commands.Close: self._tell_close,
        }

    # -- what the program may look at ---------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """False: publish no more until the broker has confirmed some of it."""
        return self._outgoing.bytes < self._outgoing.bytes_max

    @property
    def is_connected(self) -> bool:
        """True while a broker has welcomed the session and the link is there."""
        line = self._conversation.line
        return line is not None and line.is_ready

    @property
    def target(self) -> Target:
        """The broker that it is linked to, or that is dialled."""
        line = self._conversation.line
        return self._reach.target if line is None else line.target

    @property
    def standing(self) -> Standing:
        """How the session fares, for whoever decides whether to look for another broker."""
        broker = "" if self.welcome is None else self.welcome.broker
        timing = self._timing
        return Standing(broker, self.is_connected, self._conversation.links, timing.round_trip_ns, timing.measured)

    @property
    def inbox_topic(self) -> str:
        """The topic under which this session is found, as long as it stays with its broker; empty without one."""
        line = self._conversation.line
        if self._roaming.inbox or line is None or not line.is_ready:
            return self._roaming.inbox
        return "" if line.leaving else line.inbox

    @property
    def directed(self) -> Inbox:
        """Where publications are that name this session as a destination."""
        return self._rooms.subscriptions.directed

    def collect(self) -> list[Outcome]:
        """Outcomes since the last call."""
        return self._requests.collect()

    def collect_news(self) -> list[Inbox]:
        """Inboxes that got something, or ended, since the last call."""
        return self._rooms.subscriptions.collect_news()

    def collect_refusals(self) -> list[RefusedPublication]:
        """Publications that the broker refused since the last call."""
        return self._rooms.refusals.collect()

    def inbox(self, number: int) -> Inbox:
        """Where the publications of this subscription are."""
        wish = self._rooms.subscriptions.get(number)
        if wish is None:
            raise UsageError(f"there is no subscription {number}")
        return wish.inbox

    def report(self, question: str) -> Any:
        """A read-only answer about state: "overview", "subscriptions" or "time"."""
        if question == "overview":
            return {
                "state": "ended" if self.ended else "connected" if self.is_connected else "connecting",
                "error": None if self.error is None else str(self.error),
                "origin": f"{self.origin:016x}",
                "inbox": self.inbox_topic,
                **describe_link(self._conversation, self.welcome if self.is_connected else None),
                **describe_rooms(self._rooms, self._conversation.lost_at_broker),
            }
        if question == "subscriptions":
            line = self._conversation.line
            return [describe_wish(wish, line) for wish in self._rooms.subscriptions]
        if question == "time":
            return self._timing.report()
        raise UsageError(f"a session has no report on {question!r}: ask for overview, subscriptions or time")

    # -- inputs of the driver -----------------------------------------------------------------------------------

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The dial succeeded: say hello."""
        reach = self._reach
        if peer.ticket is not None and peer.ticket == self._roaming.ticket and not self.ended:
            self._roaming.attached(link, peer, now)
            return
        if self.ended or self._conversation.line is not None or peer.ticket is None or peer.ticket != reach.ticket:
            self._rooms.outbox.hang_up(link, Reason.TIME_OUT)  # a dial that came through after we gave up on it
            return
        reach.attached()
        if self.config.token and not reach.target.secure and not stays_here(peer.address):
            # "localhost" did not mean this machine. The token is not for those who listen on the way.
            self._rooms.outbox.hang_up(link, Reason.CREDENTIAL_MISSING)
            text = f"the token would cross the network to {peer.address} in clear text"
            if reach.is_hinted:
                self._not_reached(Reason.CREDENTIAL_MISSING, text, now)
            else:
                self.refused(NotConnectedError(Reason.CREDENTIAL_MISSING, text), now)
            return
        self._conversation.begin(link, reach.target, now, hinted=reach.is_hinted)

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """The broker's bytes, split anywhere."""
        self._conversation.receive(link, data, now)

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """A session opens no datagram socket; what comes is not for it."""

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """The link is gone: find a broker again."""
        conversation = self._conversation
        line = conversation.lines.get(link)
        if line is None:
            return
        in_use = line is conversation.line
        conversation.end(line)
        if self.ended:
            return
        if not in_use:
            self._roaming.lost(line, reason, now)
        elif not self._roaming.take_over(now):
            self._lost(line, reason, now)
        self._review_drain(now)

    def _lost(self, line: Line, reason: Reason, now: Instant) -> None:
        if line.welcomed_at is None:
            said, text = line.said if line.said is not None else (reason, "")
            self._not_reached(said, text, now)
        else:
            self._reach.left(now - line.welcomed_at, now)

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """Publications wait here while the driver's buffer is full."""
        line = self._conversation.lines.get(link)
        if line is not None:
            line.pressed = pressed

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """A session asks for no commit, read or job."""

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """A dial did not succeed."""
        if self.ended:
            return
        if ticket == self._reach.ticket:
            self._not_reached(reason, "", now)
        elif ticket == self._roaming.ticket:
            self._roaming.failed(reason, now)

    def tell(self, command: Any, now: Instant) -> None:
        """A command of the program; UsageError if it makes no sense."""
        tell = self._tells.get(type(command))
        if tell is None:
            raise UsageError(f"a session does not know the command {type(command).__name__}")
        if self.ended:
            self._answer_after_the_end(command)
            return
        tell(command, now)
        self._conversation.review_hold(now)

    def clock(self, wall_ns: int, now: Instant) -> None:
        """What the wall clock says, for the stamps of publications."""
        self._timing.wall(wall_ns, now)

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        if not self.ended:
            self._rooms.timers.run(now)
            self._conversation.review_hold(now)

    def take(self) -> Effects:
        """Everything wanted since the last take: one write, whatever number of publications it holds."""
        self._conversation.gather()
        return self._rooms.outbox.empty(None if self.ended else self._rooms.timers.next())

    # -- publishing ---------------------------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        payload: bytes,
        now: Instant,
        headers: dict[str, Any] | None = None,
        expires_in_ms: int | None = None,
        content_type: str | None = None,
        to: Sequence[str] | None = None,
    ) -> bool:
        """Gather one publication for the next take; False, and counted, if there is no room."""
        outgoing = self._outgoing
        if outgoing.bytes >= outgoing.bytes_max or self.ended or self._draining:
            return self._no_room(1, now)
        name = self._writer.topic(topic)
        flags = 0
        plain = headers is None and expires_in_ms is None and content_type is None and to is None
        timing = self._timing
        if plain and timing.ahead_ns is not None:
            block = plain_block((now + timing.ahead_ns) // 1_000, timing.is_synchronised)
        else:
            block, flags = header_block(self._stamp(now), headers, expires_in_ms, content_type, to)
        outgoing.add(self._writer.frame(name, block, payload, outgoing.assigned + 1, flags))
        return True

    def publish_batch(
        self,
        topic: str,
        payloads: list[bytes],
        now: Instant,
        headers: dict[str, Any] | None = None,
        expires_in_ms: int | None = None,
        content_type: str | None = None,
    ) -> bool:
        """Gather many publications on one topic, all or none of them."""
        outgoing = self._outgoing
        if outgoing.bytes >= outgoing.bytes_max or self.ended or self._draining:
            return self._no_room(len(payloads), now)
        if not payloads:
            return True
        name = self._writer.topic(topic)
        block, flags = header_block(self._stamp(now), headers, expires_in_ms, content_type)
        outgoing.add(self._writer.frames(name, block, payloads, outgoing.assigned + 1, flags), len(payloads))
        return True

    def _stamp(self, now: Instant) -> Stamp | None:
        stamp_us = self._timing.stamp_us(now)
        return None if stamp_us is None else Stamp(stamp_us, self._timing.is_synchronised)

    def _no_room(self, publications: int, now: Instant) -> bool:
        if self.ended or self._draining:
            raise UsageError(f"the session publishes no more: {self.error or 'it was closed'}")
        self._rooms.losses.add("outgoing", publications, now)
        return False

    # -- commands -----------------------------------------------------------------------------------------------

    def _tell_publish(self, command: commands.Publish, now: Instant) -> None:
        given = (command.headers, command.expires_in_ms, command.content_type, command.to)
        if not self.publish(command.topic, command.payload, now, *given):
            self._requests.refuse(command.request, too_much())

    def _tell_batch(self, command: commands.PublishBatch, now: Instant) -> None:
        given = (command.headers, command.expires_in_ms, command.content_type)
        if not self.publish_batch(command.topic, command.payloads, now, *given):
            self._requests.refuse(command.request, too_much())

    def _tell_send(self, command: commands.Send, now: Instant) -> None:
        """The take that follows does it."""

    def _tell_taken(self, command: commands.Taken, now: Instant) -> None:
        pressing = self._rooms.subscriptions.pressing
        wish = pressing.get(command.number)
        if wish is not None and wish.inbox.is_half_empty():
            wish.inbox.pressing = False
            del pressing[command.number]

    def _tell_connect(self, command: commands.Connect, now: Instant) -> None:
        if self.is_connected:
            self._requests.accept(command.request, self.welcome)
            return
        self._connects[command.request] = at = now + command.ms_max * NS_PER_MS
        self._rooms.timers.set(("connect", command.request), at, self._review_connects)

    def _tell_subscribe(self, command: commands.Subscribe, now: Instant) -> None:
        self._refuse_while_draining()
        wish = self._rooms.subscriptions.add(command)
        try:
            self._requests.open(command.request, now, lambda now: self._unsubscribe(wish, 0))
        except UsageError:
            self._rooms.subscriptions.remove(wish)
            raise
        self._conversation.subscribe(wish, now)

    def _tell_unsubscribe(self, command: commands.Unsubscribe, now: Instant) -> None:
        wish = self._rooms.subscriptions.get(command.number)
        if wish is None:
            error = RefusedError(Reason.SUBSCRIPTION_UNKNOWN, f"there is no subscription {command.number}")
            self._requests.refuse(command.request, error)
            return
        if command.request:
            self._requests.open(command.request, now)
        self._unsubscribe(wish, command.request)

    def _unsubscribe(self, wish: Wish, request: int) -> None:
        self._asking.unsubscribe(self._conversation.line, wish, request)

    def _tell_flush(self, command: commands.Flush, now: Instant) -> None:
        request = command.request
        self._requests.open(request, now, lambda now: self._forget_flush(request))
        self._flushes[request] = self._outgoing.assigned
        self._review_flushes(now)
        if request in self._flushes:
            self._conversation.confirm_soon()

    def _tell_ask(self, command: commands.Ask, now: Instant) -> None:
        fault = topic_fault(command.service.encode("utf-8", "surrogatepass"))
        if fault is not None:
            raise UsageError(f"{command.service!r} is not the name of a service: {fault}")
        try:
            size = len(_encode(command.body))
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise UsageError(f"a request must be JSON values: {error}") from None
        if size > CONTROL_BYTES_MAX or not isinstance(command.body, dict):
            raise UsageError(f"a request is a JSON object of at most {CONTROL_BYTES_MAX} bytes")
        self._requests.open(command.request, now, lambda now: self._asking.forget_ask(command.request))
        self._asking.ask(self._conversation.line, command)

    def _tell_inquire(self, command: commands.Inquire, now: Instant) -> None:
        self._refuse_while_draining()
        self._rooms.inquiries.add(command, self._stamp(now), now)
        self._inquire(now)

    def _inquire(self, now: Instant) -> None:
        """Publish the requests that wait, if there is a broker where their answers can find us."""
        inbox = self.inbox_topic
        if inbox and self._rooms.inquiries.waiting:
            self._conversation.listen(now)
            self._rooms.inquiries.publish(inbox, self._stamp(now))

    def _tell_move(self, command: commands.Move, now: Instant) -> None:
        self._reach.retarget(command.targets, now)
        line = self._conversation.line
        if line is not None and line.is_ready and not line.leaving:
            self._reach.welcomed(line.target)
            self._roaming.move(line, [target for target in command.nearest if target != line.target], now)

    def _tell_drain(self, command: commands.Drain, now: Instant) -> None:
        self._refuse_while_draining()
        self._requests.open(command.request, now, self.close)
        self._draining = True
        self._drain_request = command.request
        self._roaming.allowed = False
        for wish in self._rooms.subscriptions:
            self._unsubscribe(wish, 0)
        self._conversation.confirm_soon()
        self._review_drain(now)

    def _tell_close(self, command: commands.Close, now: Instant) -> None:
        self._requests.accept(command.request)
        self.close(now)

    def _refuse_while_draining(self) -> None:
        if self._draining:
            raise UsageError("the session is draining: it takes nothing new")

    def _answer_after_the_end(self, command: Any) -> None:
        if isinstance(command, commands.Close | commands.Drain | commands.Unsubscribe):
            self._requests.accept(command.request)
        elif isinstance(command, commands.Publish | commands.PublishBatch):
            self._no_room(1, 0)
        elif not isinstance(command, commands.Send | commands.Taken):
            self._requests.refuse(command.request, self.error or ClosedError("the client was closed"))

    # -- what the conversation tells ----------------------------------------------------------------------------

    def welcomed(self, line: Line, now: Instant) -> None:
        """A broker is there, and has been told what we want."""
        self.welcome = line.welcome
        self._reach.welcomed(line.target)
        for request in self._connects:
            self._rooms.timers.cancel(("connect", request))
            self._requests.accept(request, self.welcome)
        self._connects.clear()
        if not line.inbox:
            error = RefusedError(Reason.FEATURE_UNSUPPORTED, "this broker has no inboxes for answers")
            self._rooms.inquiries.refuse_all(error)
        self._inquire(now)
        if self._flushes or self._draining:
            self._conversation.confirm_soon()
        self.progressed(now)

    def hinted(self, targets: list[Target]) -> None:
        """The broker named others where we may go."""
        self._reach.hint(targets)

    def progressed(self, now: Instant) -> None:
        """The broker confirmed or answered something."""
        if self._flushes:
            self._review_flushes(now)
        if self._draining:
            self._requests.extend(self._drain_request, now)
            self._review_drain(now)

    def refused(self, error: HeliographError, now: Instant) -> None:
        """Trying again would not help: the session ends with this error."""
        self._end(error)

    def close(self, now: Instant) -> None:
        """Say goodbye and end; what was published this turn still goes out."""
        self._end(None)

    def _end(self, error: HeliographError | None) -> None:
        if self.ended:
            return
        self._conversation.hang_up_all()
        self.ended = True
        self.error = error
        why = error if error is not None else ClosedError("the client was closed")
        self._reach.stop()
        for request in self._connects:
            self._requests.refuse(request, why)
        self._connects.clear()
        self._requests.settle_all(why)
        self._rooms.subscriptions.end(error)
        self._rooms.outbox.stop = True

    def _not_reached(self, reason: Reason, text: str, now: Instant) -> None:
        """A dial or handshake failed. A bad certificate stays bad; anything else may get better."""
        hinted = self._reach.is_hinted
        self._reach.failed(reason, text, now)
        fatal = reason in FATAL or (reason is Reason.TLS_FAILED and self.welcome is None)
        if fatal and not hinted and self._reach.tried_all:
            self.refused(self._reach.error(), now)
        self._review_connects(now)

    # -- what waits ---------------------------------------------------------------------------------------------

    def _review_connects(self, now: Instant) -> None:
        """Those who have waited long enough hear why there is no broker, once each target has been tried."""
        if not self._reach.tried_all:
            return
        for request, until in list(self._connects.items()):
            if until <= now:
                del self._connects[request]
                self._rooms.timers.cancel(("connect", request))
                self._requests.refuse(request, self._reach.error())

    def _review_flushes(self, now: Instant) -> None:
        confirmed = self._outgoing.confirmed
        finished = [request for request, sequence in self._flushes.items() if sequence <= confirmed]
        error = self._rooms.refusals.flushed() if finished else None
        for request in finished:
            del self._flushes[request]
            self._requests.settle(request, error=error)
        for request in self._flushes:
            self._requests.extend(request, now)

    def _forget_flush(self, request: int) -> None:
        self._flushes.pop(request, None)

    def _review_drain(self, now: Instant) -> None:
        """Everything is confirmed and nothing more can arrive: that is the end."""
        if self._draining and not self.ended and not len(self._rooms.subscriptions) and not self._outgoing.bytes:
            error = self._rooms.refusals.flushed()
            self._requests.settle(self._drain_request, error=error)
            self.close(now)


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
