"""A driver without clock, sockets or chance: it runs the nodes of a small network by hand, as fast as they can.

In:    nodes as the product builds them; peers that dial in (wires) and what they send; datagrams; time, as a number.
Out:   what each wire heard; FaultError if a machine raises, breaks the contract or writes a note of level error.
State: machines (seats), the ends of links, what is on its way; vaults and repositories in memory.
Not here: what is sent and what counts as harm beyond that (network_target.py), delays, losses and crashes (sim/).

Nothing takes time: after each input everything that follows from it is carried out, until all machines wait. That is
ten times as fast as the simulator, and it leaves one moment at which a check can ask for the whole truth.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from heliograph.broker.commands import LoadSettings, Reload
from heliograph.broker.config import BrokerConfig
from heliograph.broker.credentials import CheckToken
from heliograph.errors import Reason
from heliograph.machine import Address, Dial, Effects, Job, Machine, Peer, Shortcut, SocketOpened, Ticket
from heliograph.model.identity import Identity
from heliograph.node import BROKER, Node
from heliograph.repository import AskTopics, KeepTopics, RepositoryOpened, SiftDocuments
from heliograph.sim.clock import EPOCH_NS
from heliograph.sim.disk import Contents
from heliograph.sim.repositories import MemoryRepository, outcome_of
from heliograph.vault import VaultOpened
from tests.fuzz.valid import TOKEN

MS = 1_000_000
CLOCK_NS = 10_000 * MS  # how often machines are told the wall time, as the live driver does
READ_BYTES_MAX = 1 << 18  # rule 2 of the contract
BUFFER_BYTES = 1 << 16  # unread bytes from which on their writer is pressed
TURNS_MAX = 200_000  # inputs that one input may lead to


class FaultError(Exception):
    """The product did what it must not do."""


class Seat:
    """A machine, and what its driver knows of it."""

    def __init__(self, node: str, name: str, machine: Machine) -> None:
        self.node = node
        self.name = name
        self.machine = machine
        self.shortcut: Shortcut | None = getattr(machine, "shortcut", None)
        self.wake_at: int | None = None
        self.vault: Contents | None = None
        self.repository: MemoryRepository | None = None

    def __str__(self) -> str:
        return f"{self.name} at {self.node}"


class Wire:
    """A link of a peer that is no machine: what it heard, and why the link ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.heard = bytearray()
        self.ended: Reason | None = None
        self.is_open = True
        self.end: End


class End:
    """One end of a link. What the far end wrote waits in ``incoming`` until the machine reads it."""

    def __init__(self, seat: Seat, link: int) -> None:
        self.seat = seat
        self.link = link
        self.far: End | Wire
        self.incoming: deque[bytes] = deque()
        self.waiting = 0  # bytes in it
        self.is_held = self.is_pressed = self.has_ended = False

    def __str__(self) -> str:
        return f"link {self.link} of {self.seat}"


class Driver:
    """Nodes that are joined to each other."""

    def __init__(self) -> None:
        self.now = 0
        self.inputs = 0  # that machines have had
        self.notes: Counter[str] = Counter()
        self.settings: dict[str, BrokerConfig] = {}  # by node
        self.seats: dict[tuple[str, str], Seat] = {}
        self.unsent: Counter[str] = Counter()  # datagrams to parties that are no machines, by kind of address
        self._ends: dict[tuple[str, int], End] = {}
        self._links = 0
        self._listeners: dict[Address, tuple[Seat, str, bool]] = {}
        self._sockets: dict[Address, tuple[Seat, str]] = {}
        self._identities: dict[str, Identity] = {}
        self._queue: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._told_at = 0

    # -- nodes ------------------------------------------------------------------------------------------------------

    def add(self, node: Node, identity: Identity | None = None) -> None:
        """A node starts; the identity is what its certificate proves to those it dials."""
        if identity is not None:
            self._identities[node.name] = identity
        for name, machine in node.machines.items():
            self.seats[node.name, name] = Seat(node.name, name, machine)
        for pipe in node.pipes:
            self.join(self.seats[node.name, pipe.broker], self.seats[node.name, pipe.service])
        for owner, sockets in node.sockets.items():
            for number, socket in enumerate(sockets):
                address = (node.name, socket.port or 40_000 + number)
                self._sockets[address] = (self.seats[node.name, owner], socket.name)
                self.tell(self.seats[node.name, owner], SocketOpened(socket.name, address))
        for seat in [self.seats[node.name, name] for name in node.machines]:
            self._do(seat, seat.machine.clock, EPOCH_NS + self.now)
        for owner, vault in node.vaults.items():
            self.seats[node.name, owner].vault = Contents()
            self.tell(self.seats[node.name, owner], VaultOpened(vault.name, 0, ()))
        for owner in node.repositories:
            self.seats[node.name, owner].repository = MemoryRepository()
            self.tell(self.seats[node.name, owner], RepositoryOpened(0, 0))

    def join(self, broker: Seat, service: Seat) -> None:
        """A pipe between two machines of a node."""
        self._connect(broker, Peer("pipe", service.name), service, Peer("pipe", broker.name))

    def listen(self, address: Address, seat: Seat, listener: str, secure: bool) -> None:
        """Dials to this address come to this machine."""
        self._listeners[address] = (seat, listener, secure)

    def machine(self, node: str, name: str = BROKER) -> Any:
        """A machine, to be asked for reports."""
        return self.seats[node, name].machine

    # -- what happens to them -----------------------------------------------------------------------------------------

    def dial(self, name: str, address: Address, identity: Identity | None) -> Wire:
        """A peer dials in."""
        seat, listener, secure = self._listeners[address]
        wire = Wire(name)
        wire.end = end = self._end(seat)
        end.far = wire
        peer = Peer("tls" if secure else "tcp", f"{name}:{end.link}", listener, identity if secure else None)
        self._put(self._attach, end, peer)
        return wire

    def send(self, wire: Wire, data: bytes) -> None:
        """A peer sends bytes."""
        if wire.is_open:
            self._arrive(wire.end, data)

    def press(self, wire: Wire) -> None:
        """A peer no longer reads."""
        if wire.is_open:
            self._do(wire.end.seat, wire.end.seat.machine.press, wire.end.link, True)

    def leave(self, wire: Wire) -> None:
        """A peer is gone."""
        if wire.is_open:
            wire.is_open = False
            self._put(self._detach, wire.end, Reason.CLOSED)

    def send_datagram(self, source: Address, target: Address, data: bytes) -> None:
        """A datagram from anywhere."""
        if target in self._sockets:
            seat, socket = self._sockets[target]
            self._do(seat, seat.machine.receive_datagram, socket, source, data)
        else:
            self.unsent[target[0]] += 1

    def tell(self, seat: Seat, command: Any) -> None:
        """The program around a machine tells it something."""
        self._do(seat, seat.machine.tell, command)

    def pass_time(self, until: int) -> None:
        """Time passes; machines are woken when they asked for it."""
        while True:
            self.settle()
            asked = [seat.wake_at for seat in self.seats.values() if seat.wake_at is not None]
            soonest = min([*asked, self._told_at + CLOCK_NS])
            if soonest > until:
                break
            self.now = max(self.now, soonest)
            if self.now >= self._told_at + CLOCK_NS:
                self._told_at = self.now
                for seat in self.seats.values():
                    self._do(seat, seat.machine.clock, EPOCH_NS + self.now)
        self.now = max(self.now, until)

    def settle(self) -> None:
        """Carry everything out, until all machines wait."""
        last = self.inputs + TURNS_MAX
        while True:
            while self._queue:
                call, details = self._queue.popleft()
                call(*details)
                if self.inputs > last:
                    raise FaultError("the machines keep each other busy without end")
            now = self.now
            due = [seat for seat in self.seats.values() if seat.wake_at is not None and seat.wake_at <= now]
            if not due:
                return
            for seat in due:
                self._do(seat, seat.machine.wake)

    # -- inputs -------------------------------------------------------------------------------------------------------

    def _put(self, call: Callable[..., None], *details: Any) -> None:
        self._queue.append((call, details))

    def _do(self, seat: Seat, call: Callable[..., None], *details: Any) -> None:
        self._put(self._input, seat, call, *details)

    def _input(self, seat: Seat, call: Callable[..., None], *details: Any) -> None:
        """One input of a machine, and what it wants done after it."""
        self.inputs += 1
        try:
            call(*details, self.now)
            effects = seat.machine.take()
        except Exception as error:
            raise FaultError(f"{seat} raised {error!r}") from error
        seat.wake_at = effects.wake_at
        self._carry_out(seat, effects)

    def _attach(self, end: End, peer: Peer) -> None:
        self._input(end.seat, end.seat.machine.attach, end.link, peer)

    def _arrive(self, end: End, data: bytes) -> None:
        if end.has_ended:
            return
        end.incoming.append(data)
        end.waiting += len(data)
        if not end.is_held:
            self._put(self._read, end)
        elif end.waiting > BUFFER_BYTES and not end.is_pressed and isinstance(end.far, End):
            end.is_pressed = True
            self._do(end.far.seat, end.far.seat.machine.press, end.far.link, True)

    def _read(self, end: End) -> None:
        """The machine reads what has arrived, unless it holds the link."""
        while end.incoming and not (end.is_held or end.has_ended):
            data = end.incoming.popleft()
            if len(data) > READ_BYTES_MAX:
                end.incoming.appendleft(data[READ_BYTES_MAX:])
                data = data[:READ_BYTES_MAX]
            end.waiting -= len(data)
            self._receive(end, data)
        if end.is_pressed and not end.incoming and isinstance(end.far, End) and not end.far.has_ended:
            end.is_pressed = False
            self._do(end.far.seat, end.far.seat.machine.press, end.far.link, False)

    def _receive(self, end: End, data: bytes) -> None:
        seat = end.seat
        if seat.shortcut is not None:
            self.inputs += 1
            try:
                written = seat.shortcut(end.link, data, self.now)
            except Exception as error:
                raise FaultError(f"{seat} raised {error!r} in its shortcut") from error
            if written is not None:
                self._write(seat, written[0], [written[1]])
                return
        self._input(seat, seat.machine.receive, end.link, data)

    def _detach(self, end: End, reason: Reason) -> None:
        """The link is gone at this end. What had arrived before is read first, unless the machine hung up itself."""
        if self._ends.pop((end.seat.node, end.link), None) is None:
            return
        if not end.has_ended:
            self._read(end)
        end.has_ended = True
        self._input(end.seat, end.seat.machine.detach, end.link, reason)
        if isinstance(end.far, End) and not end.far.has_ended:
            self._put(self._detach, end.far, Reason.CLOSED)

    # -- effects ------------------------------------------------------------------------------------------------------

    def _carry_out(self, seat: Seat, effects: Effects) -> None:
        for link, parts in effects.writes:
            self._write(seat, link, parts)
        if not effects.rare:
            return
        for note in effects.notes:
            self.notes[type(note).__name__] += 1
            if note.level == "error":
                raise FaultError(f"{seat} notes an error: {note}")
        for link, held in effects.holds:
            self._hold(self._own(seat, link, "holds"), held)
        for link, reason in effects.hangups:
            end = self._own(seat, link, "hangs up")
            end.has_ended = True
            if isinstance(end.far, Wire):
                end.far.is_open, end.far.ended = False, reason
            self._put(self._detach, end, reason)
        for ticket, dial in effects.dials:
            self._dial(seat, ticket, dial)
        for ticket, job in effects.jobs:
            self._run(seat, ticket, job)
        if effects.commits or effects.reads:
            assert seat.vault is not None, f"{seat} has no vault"
            for ticket, changes in effects.commits:
                self._do(seat, seat.machine.done, ticket, seat.vault.commit(changes))
            for ticket, query in effects.reads:
                self._do(seat, seat.machine.done, ticket, seat.vault.find(query))
        for name, target, data in effects.datagrams:
            source = next(at for at, owner in self._sockets.items() if owner == (seat, name))
            self.send_datagram(source, target, data)
        if effects.stop:
            raise FaultError(f"{seat} wants its node to stop")

    def _write(self, seat: Seat, link: int, parts: list[bytes]) -> None:
        far = self._own(seat, link, "writes to").far
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if isinstance(far, Wire):
            far.heard += data
        else:
            self._arrive(far, data)

    def _own(self, seat: Seat, link: int, verb: str) -> End:
        end = self._ends.get((seat.node, link))
        if end is None or end.seat is not seat or end.has_ended:
            raise FaultError(f"{seat} {verb} link {link}, which is gone or another's")
        return end

    def _hold(self, end: End, held: bool) -> None:
        end.is_held = held
        if not held:
            self._put(self._read, end)

    def _dial(self, seat: Seat, ticket: Ticket, dial: Dial) -> None:
        listener = self._listeners.get((dial.host, dial.port))
        if listener is None or listener[2] != dial.secure:
            self._do(seat, seat.machine.failed, ticket, Reason.DIAL_FAILED)
            return
        transport = "tls" if dial.secure else "tcp"
        identity = self._identities.get(seat.node) if dial.secure else None
        caller = Peer(transport, f"{seat.node}:{50_000 + self._links % 10_000}", listener[1], identity)
        self._connect(seat, Peer(transport, f"{dial.host}:{dial.port}", ticket=ticket), listener[0], caller)

    def _connect(self, one: Seat, peer_of_one: Peer, other: Seat, peer_of_other: Peer) -> None:
        here, there = self._end(one), self._end(other)
        here.far, there.far = there, here
        self._put(self._attach, here, peer_of_one)
        self._put(self._attach, there, peer_of_other)

    def _end(self, seat: Seat) -> End:
        self._links += 1
        end = self._ends[seat.node, self._links] = End(seat, self._links)
        return end

    def _run(self, seat: Seat, ticket: Ticket, job: Job) -> None:
        """A job is carried out at once. A token's hash is slow on purpose, so only the token is compared."""
        if isinstance(job, KeepTopics | AskTopics):
            assert seat.repository is not None, f"{seat} has no repository"
            outcome: Any = outcome_of(seat.repository, job)
        elif isinstance(job, SiftDocuments):
            outcome = Reason.QUERY_LANGUAGE_MISSING  # it needs a process of its own
        elif isinstance(job, LoadSettings):
            outcome = Reload(self.settings[seat.node])
        elif isinstance(job, CheckToken):
            outcome = job.token == TOKEN
        else:
            try:
                outcome = job.run()
            except Exception:  # by the contract, any exception of a job becomes this answer
                outcome = Reason.JOB_FAILED
        if isinstance(outcome, Reason):
            self._do(seat, seat.machine.failed, ticket, outcome)
        else:
            self._do(seat, seat.machine.done, ticket, outcome)
