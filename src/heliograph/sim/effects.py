"""Carries out the effects of a host's machines.

In:    effects, and the virtual instant at which the turn that caused them ends.
Out:   bytes to the network, dials, jobs, commits, datagrams, wakes; the digest gets all of them.
State: none beyond the parts of the world.
Not here: when machines are asked for effects (host.py), how bytes travel (network.py).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Protocol

from heliograph.machine import Effects, Instant, LinkId
from heliograph.sim.datagrams import SimulatedDatagrams
from heliograph.sim.dials import SimulatedDials
from heliograph.sim.digest import TAKE, Digest
from heliograph.sim.disk import SimulatedDisks
from heliograph.sim.jobs import SimulatedWorkers
from heliograph.sim.journal import Journal
from heliograph.sim.loop import NEVER, Loop
from heliograph.sim.network import LinkHost, SimulatedNetwork
from heliograph.sim.seat import Seat

_pack_take = TAKE.pack


class EffectHost(LinkHost, Protocol):
    """A host, as the effects of its machines see it."""

    shift: int  # the node's monotonic time minus virtual time

    def wake(self, seat: Seat) -> None:
        """The instant that a machine asked for has come."""

    def stop(self) -> None:
        """A machine has finished: end the host."""


class EffectCarrier:
    """Carries out effects, for all hosts of a world."""

    def __init__(
        self,
        *,
        loop: Loop,
        journal: Journal,
        digest: Digest,
        network: SimulatedNetwork,
        dials: SimulatedDials,
        datagrams: SimulatedDatagrams,
        disks: SimulatedDisks,
        workers: SimulatedWorkers,
    ) -> None:
        self._loop = loop
        self._journal = journal
        self._digest = digest
        self._parts = digest.parts
        self._network = network
        self._send: Callable[..., None] = network.send
        self._dials = dials
        self._datagrams = datagrams
        self._disks = disks
        self._workers = workers

    def write(self, host: EffectHost, seat: Seat, written: tuple[LinkId, bytes], instant: int) -> None:
        """Make the one write of a shortcut. The digest treats it like a write among effects."""
        link, data = written
        self._parts.append(_pack_take(instant, seat.number, -1 if seat.asked is None else seat.asked))
        self._send(host, seat, [(link, [data])], instant)
        if seat.after is not None:
            seat.after()

    def carry_out(self, host: EffectHost, seat: Seat, effects: Effects, instant: int) -> None:
        """Carry out the effects of a machine."""
        wake_at = effects.wake_at
        if effects.writes or wake_at != seat.asked:
            self._parts.append(_pack_take(instant, seat.number, -1 if wake_at is None else wake_at))
            self._send(host, seat, effects.writes, instant)
            if wake_at != seat.asked:
                self._wake_later(host, seat, wake_at, instant)
        if effects.rare:
            self._digest.add_rest(instant, seat.number, effects)
            self._carry_out_rest(host, seat, effects, instant)
        if seat.departed:
            seat.departed.clear()
        if seat.after is not None:
            seat.after()
        if effects.rare and effects.stop:
            host.stop()

    def carry_out_without_stop(self, host: EffectHost, seat: Seat, effects: Effects, instant: int) -> None:
        """The same before the end of a turn: the take at its end will repeat ``stop``."""
        effects.stop = False
        self.carry_out(host, seat, effects, instant)

    def _carry_out_rest(self, host: EffectHost, seat: Seat, effects: Effects, instant: int) -> None:
        for note in effects.notes:
            self._journal.write("note", host.name, note)
        for link, hold in effects.holds:
            end = host.own_end(seat, link, "holds")
            if end is not None:
                self._network.hold(end, hold)
        for link, reason in effects.hangups:
            end = host.own_end(seat, link, "hangs up")
            if end is not None:
                self._journal.write("hung_up", host.name, link, reason.word)
                self._network.hang_up(end, reason, instant)
        for ticket, dial in effects.dials:
            seat.promise(ticket, host.name)
            self._dials.dial(host, seat, ticket, dial, instant)
        for ticket, job in effects.jobs:
            seat.promise(ticket, host.name)
            self._workers.start(host, seat, ticket, job, instant)
        for ticket, _ in (*effects.commits, *effects.reads):
            seat.promise(ticket, host.name)
        if effects.commits:
            self._disks.commit(host, seat, effects.commits, instant)
        if effects.reads:
            self._disks.read(host, seat, effects.reads, instant)
        if effects.datagrams:
            self._datagrams.send(host, seat, effects.datagrams, instant)

    def _wake_later(self, host: EffectHost, seat: Seat, wake_at: Instant | None, instant: int) -> None:
        if wake_at is None:
            seat.ask_to_wake(None, NEVER)
            return
        due = wake_at - host.shift
        seat.ask_to_wake(wake_at, due)
        if due <= instant:
            seat.check_spin(instant, host.name)
            due = instant
        if due < seat.alarm:
            self._set_alarm(host, seat, due)

    def _set_alarm(self, host: EffectHost, seat: Seat, instant: int) -> None:
        seat.set_alarm(instant)
        loop = self._loop
        heappush(loop.heap, (instant, loop.next_number(), self._ring, (host, seat)))

    def _ring(self, alarm: tuple[EffectHost, Seat], instant: int) -> None:
        """An alarm rang: wake the machine if it still wants that, else set the alarm again."""
        host, seat = alarm
        if seat.gone or instant != seat.alarm:
            return  # another alarm has replaced it
        seat.ring()
        if seat.wake_at <= instant:
            host.wake(seat)
        elif seat.wake_at != NEVER:
            self._set_alarm(host, seat, seat.wake_at)
