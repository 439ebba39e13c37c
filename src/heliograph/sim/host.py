"""A host: one simulated process that runs the machines of a node.

In:    inputs for its machines, offered by the network, the world's timers and the workload.
Out:   the machines' effects: bytes to the network, dials, jobs, timers; all of them to the digest.
State: the machines (seats), the links' ends, the inputs that wait, when the host is free again.
Not here: how bytes travel (network.py), which hosts exist and when they crash (world.py).

A host does one thing at a time. An input that finds it busy waits; each turn handles a number of waiting inputs that
is drawn from the seed, then asks the touched machines what they want (rule 12 of the contract), and what they want
leaves when the turn's service time is over.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import TYPE_CHECKING, Any

from heliograph.errors import Reason
from heliograph.machine import Address, Effects, Instant, LinkId, Machine, Peer, Shortcut, Ticket
from heliograph.sim.clock import WallClock
from heliograph.sim.digest import TAKE
from heliograph.sim.loop import NEVER
from heliograph.sim.network import End

if TYPE_CHECKING:
    from heliograph.model.identity import Identity
    from heliograph.node import Node
    from heliograph.sim.datagrams import Door
    from heliograph.sim.world import World

LINGER_NS_MAX = 50_000  # how long an idle host may wait for more input before it handles the first
SPINS_MAX = 100_000  # wakes in a row that ask for another one at once: the machine will never end
SPIN_NS = 1_000_000  # in a row: less than a millisecond apart

_pack_take = TAKE.pack

Handler = Callable[[Any, Any, Instant], None]
Build = Callable[[int], "Node"]
"""Makes the machines of a host for an incarnation number."""


class ContractError(AssertionError):
    """A machine, or the world itself, broke a rule of machine.py: our own fault, never a peer's."""


class Seat:
    """A machine in its host."""

    # fmt: off
    __slots__ = (
        "after", "alarm", "asked", "departed", "dirty", "gone", "host", "machine", "name", "number", "receive",
        "shortcut", "spins", "spun_at", "take", "tickets", "wake_at",
    )
    # fmt: on

    def __init__(self, host: Host, name: str, machine: Machine, number: int) -> None:
        self.host = host
        self.name = name
        self.machine = machine
        self.receive = machine.receive  # called most
        self.shortcut: Shortcut | None = getattr(machine, "shortcut", None)
        self.take = machine.take
        self.number = number  # in the digest
        self.dirty = False  # it had an input since its last take
        self.gone = False  # its host crashed or stopped
        self.asked: Instant | None = None  # what its last take stated, in its own time
        self.wake_at = NEVER  # the same in virtual time
        self.alarm = NEVER  # what is in the loop for it
        self.spins = 0
        self.spun_at = 0
        self.departed: dict[LinkId, None] = {}  # detached since its last take: effects for them came too late
        self.tickets: dict[Ticket, None] = {}  # promised, not yet kept
        self.after: Callable[[], None] | None = None  # the program that owns the machine, called after every take


class Host:
    """A process with a name, its machines and its links."""

    # fmt: off
    __slots__ = (
        "build", "ends", "free_at", "identity", "inbox", "incarnation", "loop", "name", "next_link", "node",
        "on_start", "paused", "seats", "service_ns", "service_ns_usual", "settings", "shift", "turning", "up", "wall",
        "world",
    )
    # fmt: on

    def __init__(self, world: World, name: str, build: Build) -> None:
        self.world = world
        self.loop = world.loop
        self.name = name
        self.build = build
        self.identity: Identity | None = None  # what its certificate proves on secure links
        self.settings: Any = None  # the answer to a LoadSettings job
        self.on_start: Callable[[], None] | None = None  # the workload, told when machines are there
        self.wall = WallClock()
        self.service_ns = self.service_ns_usual = 1_000
        self.incarnation = 0
        self.node: Node | None = None
        self.seats: list[Seat] = []
        self.ends: dict[LinkId, End] = {}
        self.next_link = 1
        self.inbox: list[tuple[Handler, Any, Any]] = []
        self.up = False
        self.turning = False  # a turn is running or in the loop
        self.paused = 0
        self.free_at = 0
        self.shift = 0  # the node's monotonic time minus virtual time

    def seat(self, machine: str) -> Seat:
        """The seat of the machine with this name."""
        return next(seat for seat in self.seats if seat.name == machine)

    def new_end(self, seat: Seat, peer: Peer) -> End:
        """One end of a new link, under the next number of this host."""
        end = End(self, seat, self.next_link, peer)
        self.ends[self.next_link] = end
        self.next_link += 1
        return end

    # Inputs are offered.

    def receive(self, end: End, data: bytes, instant: int) -> None:
        """Bytes arrived. Most inputs are this one, so an idle host handles it here, without the inbox."""
        world = self.world
        if self.turning or self.free_at > instant:
            self.offer(self._receive, end, data)
            return
        draw = world.draw
        if draw() < world.linger:
            self.inbox.append((self._receive, end, data))
            self._linger()
            return
        world.acting = self
        self.loop.step += 1
        self.free_at = instant = instant + self.service_ns  # what is offered meanwhile finds the host busy
        far = end.far
        far.pending = pending = far.pending - len(data)
        if far.pressed and pending <= far.low:
            world.network.relieve(far)
        seat = end.seat
        shortcut, receive, take = seat.shortcut, seat.receive, seat.take  # faster than a call of an attribute
        if shortcut is not None:
            written = shortcut(end.link, data, instant + self.shift)
            if written is not None:
                self._write(seat, written, instant)
                return
        receive(end.link, data, instant + self.shift)
        effects = take()
        if effects.writes or effects.rare or effects.wake_at != seat.asked or seat.after:
            self._carry_out(seat, effects, instant)

    def receive_datagram(self, door: Door, source: Address, data: bytes) -> None:
        """A datagram arrived at a socket."""
        self.offer(self._receive_datagram, door, (source, data))

    def attach(self, end: End) -> None:
        """A link came up."""
        self.offer(self._attach, end, None)

    def detach(self, end: End, reason: Reason) -> None:
        """A link is gone."""
        self.offer(self._detach, end, reason)

    def press(self, end: End) -> None:
        """A link's buffer is above its mark, or below it again."""
        self.offer(self._press, end, end.pressed)

    def tell(self, seat: Seat, command: Any) -> None:
        """The program that owns a machine tells it something."""
        self.offer(self._tell, seat, command)

    def fail(self, seat: Seat, ticket: Ticket, reason: Reason) -> None:
        """A promise cannot be kept."""
        self.offer(self._failed, seat, (ticket, reason))

    def finish_job(self, seat: Seat, ticket: Ticket, result: Any) -> None:
        """A promise was kept."""
        self.offer(self._done, seat, (ticket, result))

    def look_at_clock(self) -> None:
        """Tell every machine the wall time."""
        for seat in self.seats:
            self.offer(self._clock, seat, None)

    def offer(self, handler: Handler, subject: Any, detail: Any) -> None:
        """Handle an input now if the host is idle; else it waits for a turn."""
        if not self.up:
            return
        self.inbox.append((handler, subject, detail))
        if self.turning or self.paused:
            return
        now = self.loop.now
        if self.free_at > now:
            self.turning = True
            self.loop.at(self.free_at, Host.turn, self)
        elif self.world.draw() < self.world.linger:
            self._linger()
        else:
            self.turn(now)

    def _linger(self) -> None:
        """Wait a little, so that other inputs may join the first in its turn."""
        self.turning = True
        self.loop.at(self.loop.now + int(LINGER_NS_MAX * self.world.draw()), Host.turn, self)

    def turn(self, instant: int) -> None:
        """Handle some of the waiting inputs, then carry out what the machines want."""
        inbox = self.inbox
        world = self.world
        if not inbox or self.paused:
            self.turning = False
            return
        if self.free_at > instant:  # a turn of an earlier incarnation
            world.loop.at(self.free_at, Host.turn, self)
            return
        self.turning = True
        world.acting = self
        count = 1
        if len(inbox) > 1:
            count = min(len(inbox), 1 + int(world.draw() * world.inputs_per_take_max))
        inputs = inbox[:count]
        del inbox[:count]
        done_at = instant
        for handler, subject, detail in inputs:
            self.loop.step += 1
            done_at += self.service_ns
            handler(subject, detail, done_at + self.shift)
        self.free_at = done_at
        for seat in self.seats:
            if seat.dirty and not seat.gone:
                seat.dirty = False
                self._carry_out(seat, seat.take(), done_at)
        if inbox and self.up:
            loop = world.loop
            loop.count += 1
            heappush(loop.heap, (done_at, loop.count, Host.turn, self))
        else:
            self.turning = False

    # Inputs are handled.

    def _receive(self, end: End, data: bytes, now: Instant) -> None:
        far = end.far
        far.pending -= len(data)
        if far.pressed and far.pending <= far.low:
            self.world.network.relieve(far)
        if end.writer is not None:  # it may have hung up while this waited
            end.seat.dirty = True
            end.seat.receive(end.link, data, now)

    def _receive_datagram(self, door: Door, detail: tuple[Address, bytes], now: Instant) -> None:
        door.waiting -= 1
        door.seat.dirty = True
        door.seat.machine.receive_datagram(door.name, *detail, now)

    def _attach(self, end: End, _: None, now: Instant) -> None:
        end.writer = end.seat
        end.seat.dirty = True
        if end.peer.ticket is not None:
            del end.seat.tickets[end.peer.ticket]  # a dial ends once: by this attach, or by failed
        self.world.journal.write("attached", self.name, end.link, end.peer.address)
        end.seat.machine.attach(end.link, end.peer, now)

    def _detach(self, end: End, reason: Reason, now: Instant) -> None:
        if self.ends.pop(end.link, None) is not end:
            raise ContractError(f"{self.name}: link {end.link} detaches twice")
        end.writer = None
        end.seat.departed[end.link] = None
        end.seat.dirty = True
        self.world.journal.write("detached", self.name, end.link, end.peer.address, reason.word)
        end.seat.machine.detach(end.link, reason, now)

    def _press(self, end: End, pressed: bool, now: Instant) -> None:
        if end.writer is not None:
            end.seat.dirty = True
            end.seat.machine.press(end.link, pressed, now)

    def _tell(self, seat: Seat, command: Any, now: Instant) -> None:
        seat.dirty = True
        seat.machine.tell(command, now)

    def _failed(self, seat: Seat, detail: tuple[Ticket, Reason], now: Instant) -> None:
        seat.dirty = True
        del seat.tickets[detail[0]]
        seat.machine.failed(*detail, now)

    def _done(self, seat: Seat, detail: tuple[Ticket, Any], now: Instant) -> None:
        seat.dirty = True
        del seat.tickets[detail[0]]
        seat.machine.done(*detail, now)

    def _clock(self, seat: Seat, _: None, now: Instant) -> None:
        seat.dirty = True
        seat.machine.clock(self.wall.wall_ns(now - self.shift), now)

    def _wake(self, seat: Seat, _: None, now: Instant) -> None:
        seat.dirty = True
        seat.machine.wake(now)

    # Effects are carried out.

    def settle(self, seat: Seat, now: Instant) -> None:
        """Carry out what a machine wants before it hears something that must come after."""
        if seat.dirty and not seat.gone:
            effects = seat.take()
            effects.stop = False  # the take at the end of this turn says it again
            self._carry_out(seat, effects, now - self.shift)

    def _write(self, seat: Seat, written: tuple[LinkId, bytes], instant: int) -> None:
        """The one write of a shortcut; in the digest it is what it would be among effects."""
        link, data = written
        world = self.world
        world.digest.parts.append(_pack_take(instant, seat.number, -1 if seat.asked is None else seat.asked))
        world.network.send(self, seat, [(link, [data])], instant)
        if seat.after is not None:
            seat.after()

    def _carry_out(self, seat: Seat, effects: Effects, instant: int) -> None:
        """Do what a machine wants."""
        world = self.world
        wake_at = effects.wake_at
        if effects.writes or wake_at != seat.asked:
            world.digest.parts.append(_pack_take(instant, seat.number, -1 if wake_at is None else wake_at))
            world.network.send(self, seat, effects.writes, instant)
            if wake_at != seat.asked:
                self._ask_to_be_woken(seat, wake_at, instant)
        if effects.rare:
            world.digest.add_rest(instant, seat.number, effects)
            self._carry_out_rest(seat, effects, instant)
        if seat.departed:
            seat.departed.clear()
        if seat.after is not None:
            seat.after()
        if effects.rare and effects.stop:
            world.stop(self)

    def _carry_out_rest(self, seat: Seat, effects: Effects, instant: int) -> None:
        world = self.world
        for note in effects.notes:
            world.journal.write("note", self.name, note)
        for link, hold in effects.holds:
            end = self.own_end(seat, link, "holds")
            if end is not None:
                world.network.hold(end, hold)
        for link, reason in effects.hangups:
            end = self.own_end(seat, link, "hangs up")
            if end is not None:
                world.journal.write("hung_up", self.name, link, reason.word)
                world.network.hang_up(end, reason, instant)
        for ticket, dial in effects.dials:
            self._promise(seat, ticket)
            world.network.dial(seat, ticket, dial, instant)
        for ticket, job in effects.jobs:
            self._promise(seat, ticket)
            world.start_job(seat, ticket, job, instant)
        for ticket, _ in (*effects.commits, *effects.reads):
            self._promise(seat, ticket)
        if effects.commits:
            world.disks.commit(seat, effects.commits, instant)
        if effects.reads:
            world.disks.read(seat, effects.reads, instant)
        if effects.datagrams:
            world.datagrams.send(seat, effects.datagrams, instant)

    def own_end(self, seat: Seat, link: LinkId, verb: str) -> End | None:
        """The end that an effect is about; None if it was detached after the machine asked for the effect."""
        end = self.ends.get(link)
        if end is not None and end.writer is seat:
            return end
        if link in seat.departed:
            return None
        raise ContractError(f"{self.name}: {seat.name} {verb} link {link}, {_state(end)}")

    def _promise(self, seat: Seat, ticket: Ticket) -> None:
        if ticket in seat.tickets:
            raise ContractError(f"{self.name}: {seat.name} uses ticket {ticket} twice")
        seat.tickets[ticket] = None

    def _ask_to_be_woken(self, seat: Seat, wake_at: Instant | None, instant: int) -> None:
        seat.asked = wake_at
        if wake_at is None:
            seat.wake_at = NEVER
            return
        seat.wake_at = due = wake_at - self.shift
        if due <= instant:
            self._look_for_spin(seat, instant)
            due = instant
        if due < seat.alarm:
            self.set_alarm(seat, due)

    def _look_for_spin(self, seat: Seat, instant: int) -> None:
        """A machine may slice its work. One that gets nowhere would never let the world go on."""
        seat.spins = seat.spins + 1 if instant - seat.spun_at < SPIN_NS else 0
        seat.spun_at = instant
        if seat.spins > SPINS_MAX:
            raise ContractError(f"{self.name}: {seat.name} asks to be woken at once, for ever")

    def set_alarm(self, seat: Seat, instant: int) -> None:
        """Have the machine woken at this virtual instant."""
        seat.alarm = instant
        loop = self.world.loop
        loop.count += 1
        heappush(loop.heap, (instant, loop.count, _ring, seat))

    def wake(self, seat: Seat) -> None:
        """The instant that a machine named has come."""
        seat.asked = -1  # whatever it asks for next is new
        self.offer(self._wake, seat, None)


def _ring(seat: Seat, instant: int) -> None:
    """An alarm went off: wake the machine if it still wants that, else set the alarm anew."""
    if seat.gone or instant != seat.alarm:
        return  # another alarm took its place
    seat.alarm = NEVER
    if seat.wake_at <= instant:
        seat.host.wake(seat)
    elif seat.wake_at != NEVER:
        seat.host.set_alarm(seat, seat.wake_at)


def _state(end: End | None) -> str:
    if end is None:
        return "which does not exist"
    if end.hung:
        return "which it hung up"
    return "before it was attached" if end.writer is None else "which is not its own"
