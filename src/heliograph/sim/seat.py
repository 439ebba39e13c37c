"""A seat: one machine in a simulated host, with its driver's state.

In:    commands and answers for the machine, when its host handles them.
Out:   calls on the machine.
State: whether its effects must be taken, when it wants to be woken, its open tickets.
Not here: when inputs are handled (host.py), carrying out effects (effects.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heliograph.errors import Reason
from heliograph.machine import Effects, Instant, LinkId, Machine, Shortcut, Ticket
from heliograph.sim.loop import NEVER

SPINS_MAX = 100_000  # consecutive wakes that each ask for another at once: the machine makes no progress
SPIN_NS = 1_000_000  # consecutive means less than a millisecond apart


class ContractError(AssertionError):
    """A machine, or the world itself, broke a rule of machine.py: a bug of ours, never a peer's fault."""


class Seat:
    """A machine in its host."""

    # fmt: off
    __slots__ = (
        "after", "alarm", "asked", "departed", "dirty", "gone", "machine", "name", "number", "receive", "shortcut",
        "spins", "spun_at", "take", "tickets", "wake_at",
    )
    # fmt: on

    def __init__(self, name: str, machine: Machine, number: int) -> None:
        self.name = name
        self.machine = machine
        self.receive = machine.receive  # called most often
        self.shortcut: Shortcut | None = getattr(machine, "shortcut", None)
        self.take = machine.take
        self.number = number  # in the digest
        self.dirty = False  # it has had an input since its last take
        self.gone = False  # its host crashed or stopped
        self.asked: Instant | None = None  # the wake that its last take asked for, in its own time
        self.wake_at = NEVER  # the same in virtual time
        self.alarm = NEVER  # the wake that is scheduled
        self.spins = 0
        self.spun_at = 0
        self.departed: dict[LinkId, None] = {}  # detached since its last take: effects for them are too late
        self.tickets: dict[Ticket, None] = {}  # promised, but not yet answered
        self.after: Callable[[], None] | None = None  # the program that owns the machine, called after every take

    def call_after_take(self, program: Callable[[], None]) -> None:
        """Call the program that owns the machine after every take."""
        self.after = program

    def leave(self) -> None:
        """Its host crashed or stopped."""
        self.gone = True

    # Inputs, when they are handled. Hosts queue these functions with the seat and their detail.

    def touch(self) -> Machine:
        """The machine, to give it an input; its effects must be taken afterwards."""
        self.dirty = True
        return self.machine

    def take_touched(self) -> Effects:
        """The effects at the end of a turn in which the machine had an input."""
        self.dirty = False
        return self.take()

    def tell(self, command: Any, now: Instant) -> None:
        """A command."""
        self.touch().tell(command, now)

    def fail(self, detail: tuple[Ticket, Reason], now: Instant) -> None:
        """A promise failed."""
        del self.tickets[detail[0]]
        self.touch().failed(*detail, now)

    def finish(self, detail: tuple[Ticket, Any], now: Instant) -> None:
        """A promise was kept."""
        del self.tickets[detail[0]]
        self.touch().done(*detail, now)

    def wake(self, _: None, now: Instant) -> None:
        """The instant that the machine asked for has come."""
        self.touch().wake(now)

    def depart(self, link: LinkId) -> None:
        """A link was detached; effects for it may still come with the next take."""
        self.departed[link] = None

    # Tickets and wakes.

    def promise(self, ticket: Ticket, host: str) -> None:
        """The machine asked for something under this ticket."""
        if ticket in self.tickets:
            raise ContractError(f"{host}: {self.name} uses ticket {ticket} twice")
        self.tickets[ticket] = None

    def ask_to_wake(self, wake_at: Instant | None, due: int) -> None:
        """The machine asks to be woken, in its own time and in virtual time."""
        self.asked = wake_at
        self.wake_at = due

    def set_alarm(self, instant: int) -> None:
        """A wake is scheduled for this instant."""
        self.alarm = instant

    def ring(self) -> None:
        """The alarm rang."""
        self.alarm = NEVER

    def forget_asked(self) -> None:
        """The machine is about to be woken: the next wake that it asks for is a new one."""
        self.asked = -1

    def check_spin(self, instant: int, host: str) -> None:
        """A machine may work in slices. One that makes no progress would keep virtual time from passing."""
        self.spins = self.spins + 1 if instant - self.spun_at < SPIN_NS else 0
        self.spun_at = instant
        if self.spins > SPINS_MAX:
            raise ContractError(f"{host}: {self.name} asks again and again to be woken at once")
