"""A host: one simulated process that runs the machines of a node.

In:    inputs for its machines from the network, the world's timers and the workload; crashes and pauses.
Out:   effects of its machines, to the carrier of effects.
State: the machines (seats), the ends of links, waiting inputs, when the host is free again.
Not here: carrying out effects (effects.py), how bytes travel (network.py), which hosts exist (world.py).

A host does one thing at a time. An input that finds it busy waits. Each turn handles a number of waiting inputs, drawn
from the seed, then takes the effects of the machines involved (rule 12 of the contract), which are carried out when the
turn's service time is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappush
from typing import Any

from heliograph.errors import Reason
from heliograph.machine import Instant, LinkId, Peer, Ticket
from heliograph.model.identity import Identity
from heliograph.node import Node
from heliograph.repository import RepositoryOpened
from heliograph.sim.clock import WallClock
from heliograph.sim.datagrams import SimulatedDatagrams
from heliograph.sim.disk import SimulatedDisks
from heliograph.sim.effects import EffectCarrier
from heliograph.sim.inputs import Handler
from heliograph.sim.journal import Journal
from heliograph.sim.loop import NEVER, Loop
from heliograph.sim.network import End, SimulatedNetwork
from heliograph.sim.seat import ContractError, Seat

LINGER_NS_MAX = 50_000  # how long an idle host may wait for more input before it handles the first

Build = Callable[[int], Node]
"""Makes the machines of a host for an incarnation number."""


class MachineError(Exception):
    """A machine raised, or the contract was broken: a bug of ours. Its cause is the exception."""

    def __init__(self, host: str, step: int, instant: int, error: BaseException) -> None:
        super().__init__(f"{host}: {type(error).__name__}: {error}")
        self.host = host
        self.step = step
        self.instant = instant


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSurroundings:
    """What all hosts of a world share."""

    loop: Loop
    journal: Journal
    network: SimulatedNetwork
    datagrams: SimulatedDatagrams
    disks: SimulatedDisks
    effects: EffectCarrier
    draw: Callable[[], float]
    seat_numbers: Iterator[int]
    linger: float  # probability that an idle host waits for more input before it handles the first
    inputs_per_take_max: int


class Host:
    """A process with a name, its machines and its links."""

    # fmt: off
    __slots__ = (
        "_around", "_build", "_consume", "_count_input", "_draw", "_effects", "_next_link", "_on_start", "ends",
        "expires_ms", "free_at", "identity", "inbox", "incarnation", "loop", "name", "node", "paused", "seats",
        "serial", "service_ns", "service_ns_usual", "settings", "shift", "turning", "up", "wall",
    )
    # fmt: on

    def __init__(
        self,
        around: HostSurroundings,
        name: str,
        build: Build,
        *,
        service_ns: int = 1_000,
        wall: WallClock | None = None,
        shift: int = 0,
        identity: Identity | None = None,
        serial: str = "",
        expires_ms: int | None = None,
    ) -> None:
        self._around = around
        self._draw = around.draw
        self._effects = around.effects
        self._consume = around.network.consume
        self._count_input = around.loop.count_input
        self.loop = around.loop
        self.name = name
        self._build = build
        self.identity = identity  # the identity that its certificate proves on secure links
        self.serial = serial  # the number of that certificate
        self.expires_ms = expires_ms  # its end, Unix time
        self.settings: Any = None  # the result of a LoadSettings job
        self._on_start: Callable[[], None] | None = None
        self.wall = wall or WallClock()
        self.service_ns = self.service_ns_usual = service_ns
        self.incarnation = 0
        self.node: Node | None = None
        self.seats: list[Seat] = []
        self.ends: dict[LinkId, End] = {}
        self._next_link = 1
        self.inbox: list[tuple[Handler, Any, Any]] = []
        self.up = False
        self.turning = False  # a turn is running or in the loop
        self.paused = 0
        self.free_at = 0
        self.shift = shift  # the node's monotonic time minus virtual time

    def seat(self, machine: str) -> Seat:
        """The seat of the machine with this name."""
        return next(seat for seat in self.seats if seat.name == machine)

    def new_end(self, seat: Seat, peer: Peer) -> End:
        """One end of a new link, under the next number of this host."""
        end = End(self, seat, self._next_link, peer)
        self.ends[self._next_link] = end
        self._next_link += 1
        return end

    def own_end(self, seat: Seat, link: LinkId, verb: str) -> End | None:
        """The end that an effect concerns; None if it was detached after the machine asked for the effect."""
        end = self.ends.get(link)
        if end is not None and end.writer is seat:
            return end
        if link in seat.departed:
            return None
        raise ContractError(f"{self.name}: {seat.name} {verb} link {link}, {_state(end)}")

    def configure(self, settings: Any) -> None:
        """Set the result of LoadSettings jobs."""
        self.settings = settings

    # From start to end.

    def call_at_start(self, program: Callable[[], None]) -> None:
        """Call this whenever the host has started; it is the program that uses the machines."""
        self._on_start = program

    def start(self) -> None:
        """Start: new machines, pipes between them, and the time of day."""
        assert not self.up
        around = self._around
        self.incarnation += 1
        self.node = node = self._build(self.incarnation)
        self.up = True
        self.turning = False
        self.free_at = NEVER if self.paused else self.loop.now
        self.seats = [Seat(name, machine, next(around.seat_numbers)) for name, machine in node.machines.items()]
        around.journal.write("started", self.name, self.incarnation)
        self.pause()  # no machine acts before all are joined
        for pipe in node.pipes:
            around.network.pipe(self, self.seat(pipe.broker), self.seat(pipe.service))
        self.look_at_clock()
        for owner, sockets in node.sockets.items():
            for socket in sockets:
                around.datagrams.open(self, self.seat(owner), socket)
        for owner, vault in node.vaults.items():
            around.disks.open(self, self.seat(owner), vault)
        for owner in node.repositories:
            self.tell(self.seat(owner), RepositoryOpened(0, 0))
        if self._on_start is not None:
            self._on_start()
        self.go_on()

    def crash(self, keep: float, silent: bool) -> None:
        """Lose all memory. Of what was written to links, a share ``keep`` may still arrive.

        Peers see a reset; after a power cut (``silent``) they are told nothing until the host is back.
        """
        assert self.up
        self._around.journal.write("crashed", self.name, "power cut" if silent else "")
        self._end()
        self._around.disks.crash(self)
        for end in self.ends.values():
            self._around.network.drop_end(end, keep, silent)
        self.ends.clear()

    def stop(self) -> None:
        """A machine has finished: links end, and nothing runs on the host any more."""
        self._around.journal.write("stopped", self.name)
        self._end()
        self._around.disks.stop(self)
        for end in self.ends.values():
            self._around.network.leave(end)
        self.ends.clear()

    def _end(self) -> None:
        self.up = False
        self.inbox.clear()
        if self.node is not None and self.node.sockets:
            self._around.datagrams.close(self)
        for seat in self.seats:
            seat.leave()

    def pause(self) -> None:
        """Handle nothing: inputs wait. Pauses may overlap."""
        self.paused += 1
        self.free_at = NEVER

    def go_on(self) -> None:
        """A pause has ended."""
        self.paused -= 1
        if not self.paused:
            self.free_at = self.loop.now
            if self.inbox and not self.turning:
                self.turning = True
                self.loop.at(self.loop.now, Host.turn, self)

    def slow_down(self, by_ns: int) -> None:
        """From now on every input takes this much longer; below 0: less."""
        self.service_ns += by_ns

    # Inputs are offered.

    def receive(self, end: End, data: bytes, instant: int) -> None:
        """Bytes arrived. As most inputs are of this kind, an idle host handles it here, without the inbox."""
        if self.turning or self.free_at > instant:
            self.offer(self._receive, end, data)
            return
        if self._draw() < self._around.linger:
            self.inbox.append((self._receive, end, data))
            self._linger()
            return
        try:
            self.loop.step += 1  # as ``count_input`` …
            self.free_at = instant = instant + self.service_ns  # inputs offered meanwhile find the host busy
            far = end.far  # … and ``consume`` do, without two calls for each input
            far.pending -= len(data)
            if far.pressed:
                self._consume(far, 0)
            if far.flow is not None:
                far.flow.hand_over(len(data))
            seat = end.seat
            shortcut, receive, take = seat.shortcut, seat.receive, seat.take  # faster than attribute calls
            if shortcut is not None:
                written = shortcut(end.link, data, instant + self.shift)
                if written is not None:
                    self._effects.write(self, seat, written, instant)
                    return
            receive(end.link, data, instant + self.shift)
            effects = take()
            if effects.writes or effects.rare or effects.wake_at != seat.asked or seat.after:
                self._effects.carry_out(self, seat, effects, instant)
        except MachineError:
            raise
        except Exception as error:
            raise MachineError(self.name, self.loop.step, self.loop.now, error) from error

    def attach(self, end: End) -> None:
        """A link came up."""
        self.offer(self._attach, end, None)

    def detach(self, end: End, reason: Reason) -> None:
        """A link is gone."""
        self.offer(self._detach, end, reason)

    def tell(self, seat: Seat, command: Any) -> None:
        """The program that owns a machine gives it a command."""
        self.offer(Seat.tell, seat, command)

    def fail(self, seat: Seat, ticket: Ticket, reason: Reason) -> None:
        """A promise failed."""
        self.offer(Seat.fail, seat, (ticket, reason))

    def finish_job(self, seat: Seat, ticket: Ticket, result: Any) -> None:
        """A promise was kept."""
        self.offer(Seat.finish, seat, (ticket, result))

    def wake(self, seat: Seat) -> None:
        """The instant that a machine asked for has come."""
        seat.forget_asked()
        self.offer(Seat.wake, seat, None)

    def look_at_clock(self) -> None:
        """Tell every machine the wall time."""
        for seat in self.seats:
            self.offer(self._clock, seat, None)

    def offer(self, handler: Handler, subject: Any, detail: Any) -> None:
        """Handle an input now if the host is idle; otherwise it waits for a turn."""
        if not self.up:
            return
        self.inbox.append((handler, subject, detail))
        if self.turning or self.paused:
            return
        now = self.loop.now
        if self.free_at > now:
            self.turning = True
            self.loop.at(self.free_at, Host.turn, self)
        elif self._draw() < self._around.linger:
            self._linger()
        else:
            self.turn(now)

    def _linger(self) -> None:
        """Wait a little, so that other inputs may join the first in its turn."""
        self.turning = True
        self.loop.at(self.loop.now + int(LINGER_NS_MAX * self._draw()), Host.turn, self)

    def turn(self, instant: int) -> None:
        """Handle some of the waiting inputs, then carry out the machines' effects."""
        if not self.inbox or self.paused:
            self.turning = False
        elif self.free_at > instant:  # a turn of an earlier incarnation
            self.loop.at(self.free_at, Host.turn, self)
        else:
            self.turning = True
            try:
                self._turn(instant)
            except MachineError:
                raise
            except Exception as error:
                raise MachineError(self.name, self.loop.step, self.loop.now, error) from error

    def _turn(self, instant: int) -> None:
        inbox = self.inbox
        count = 1
        if len(inbox) > 1:
            count = min(len(inbox), 1 + int(self._draw() * self._around.inputs_per_take_max))
        inputs = inbox[:count]
        del inbox[:count]
        done_at = instant
        for handler, subject, detail in inputs:
            self._count_input()
            done_at += self.service_ns
            handler(subject, detail, done_at + self.shift)
        self.free_at = done_at
        for seat in self.seats:
            if seat.dirty and not seat.gone:
                self._effects.carry_out(self, seat, seat.take_touched(), done_at)
        if inbox and self.up:
            loop = self.loop
            heappush(loop.heap, (done_at, loop.next_number(), Host.turn, self))
        else:
            self.turning = False

    def settle(self, seat: Seat, now: Instant) -> None:
        """Carry out a machine's effects before it gets an input that must come after them."""
        if seat.dirty and not seat.gone:
            self._effects.carry_out_without_stop(self, seat, seat.take(), now - self.shift)

    # Inputs are handled; the others are in seat.py.

    def _receive(self, end: End, data: bytes, now: Instant) -> None:
        self._consume(end.far, len(data))
        if end.writer is not None:  # it may have hung up while this waited
            if end.far.flow is not None:
                end.far.flow.hand_over(len(data))
            end.seat.touch().receive(end.link, data, now)

    def _attach(self, end: End, _: None, now: Instant) -> None:
        end.open()
        if end.peer.ticket is not None:
            del end.seat.tickets[end.peer.ticket]  # a dial ends once: by this attach, or by failed
        self._around.journal.write("attached", self.name, end.link, end.peer.address)
        end.seat.touch().attach(end.link, end.peer, now)

    def _detach(self, end: End, reason: Reason, now: Instant) -> None:
        if self.ends.pop(end.link, None) is not end:
            raise ContractError(f"{self.name}: link {end.link} detaches twice")
        end.close()
        end.seat.depart(end.link)
        self._around.journal.write("detached", self.name, end.link, end.peer.address, reason.word)
        end.seat.touch().detach(end.link, reason, now)

    def _clock(self, seat: Seat, _: None, now: Instant) -> None:
        seat.touch().clock(self.wall.wall_ns(now - self.shift), now)


def _state(end: End | None) -> str:
    if end is None:
        return "which does not exist"
    if end.hung:
        return "which it hung up"
    return "before it was attached" if end.writer is None else "which is not its own"
