"""The inputs of a machine that runs on the loop, as links, sockets, workers and vaults see it.

In:    nothing: an interface.
Out:   MachineInputs, which loop.Runner implements.
State: none.
Not here: the order of inputs and carrying out effects (loop.py).

Links, sockets, workers and vaults give inputs to a machine, and its effects go to them. With this interface they do not
depend on the loop that runs the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from heliograph.errors import Reason
from heliograph.machine import LinkId, Machine, Shortcut, Ticket
from heliograph.notes import Note


class MachineInputs(Protocol):
    """A machine on the loop."""

    name: str
    machine: Machine
    shortcut: Shortcut

    def receive(self, link: LinkId, data: bytes) -> None:
        """Bytes arrived on a link."""

    def fail_shortcut(self, link: LinkId, error: Exception) -> None:
        """The shortcut raised for a read of this link."""

    def hand(self, kind: str, number: int, call: Callable[..., None], *arguments: Any) -> None:
        """Any other input: ``call(*arguments, now)``; ``number`` is its link or ticket."""

    def tell(self, command: Any) -> None:
        """A command."""

    def queue(self, call: Callable[..., None], *arguments: Any) -> None:
        """An input that must wait until the effects of the present one have been carried out."""

    def go_on(self) -> None:
        """Process queued inputs now, unless that is happening already."""

    def record(self, kind: str, number: int, length: int) -> None:
        """Remember an input for crash reports."""

    def done(self, ticket: Ticket, result: Any) -> None:
        """A job succeeded."""

    def failed(self, ticket: Ticket, reason: Reason) -> None:
        """A dial or a job failed."""

    def fail_soon(self, ticket: Ticket, reason: Reason) -> None:
        """The same in the next turn of the loop, for use while effects are carried out."""

    def answer(self, answers: Sequence[tuple[Ticket, Any]]) -> None:
        """The results of commits or reads, oldest first: a value, or a Reason."""

    def note(self, note: Note) -> None:
        """An observation of the driver about this machine."""

    def crash(self, error: BaseException) -> None:
        """The machine raised an exception."""
