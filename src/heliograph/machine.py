"""The contract between machines, which decide, and drivers, which act.

In:    what happened (bytes, links, time), as calls on a Machine.
Out:   what should be done, as Effects.
State: Outbox and Timers, one of each per machine, shared by all its parts.
Not here: any machine (client/session.py, broker/broker.py, services/) or driver (live/, sim/); requests to a vault
          (vault.py); what the guard of rule 11 writes down (guard.py).

The rules, which every machine and both drivers keep:

 1. An input never raises because of what a peer sent: a bad peer leads to a hangup and a note.
 2. ``receive`` may be given any split of the byte stream, at most 256 KiB at once.
 3. Event bytes are forwarded as received; what changes per hop is a separate prefix, one per run.
 4. What depends on durability waits inside the machine until ``done(ticket)``.
 5. ``now`` is this node's monotonic time in nanoseconds; wall time comes only by ``clock``. Seed and incarnation are
    constructor arguments. No machine iterates over a set of strings.
 6. Every table and queue has a limit.
 7. Every attach is followed by exactly one detach, even after our own hangup; after a machine's hangup the driver
    drops what still arrives on that link.
 8. No input runs much longer than a millisecond. Slow pure work is a job; a long run is sliced, and the machine asks
    to be woken at once.
 9. ``take`` empties the outbox; it never replaces it.
10. What is queued is ``bytes``, never a view of a larger buffer.
11. What raises inside a unit of work that one peer caused (a frame, a datagram, an answer, a request, also one that
    waited) costs that peer its request or its link, with a note of level error (guard.py); relayed publications are
    dropped alone, and a pipe never ends for a client's request. An assert that fires anywhere else is our own fault:
    the driver logs it with the last inputs, stops the node and exits non-zero.
12. The driver calls ``take`` after each input, or after all inputs of one loop turn.
13. A dial ends in exactly one of: ``attach`` with its ticket in the peer, or ``failed``.
14. A machine may have a ``shortcut``, which gets a read before ``receive`` does. It may return the single write that
    the read leads to, after doing everything else itself. None means that nothing was done, and ``receive`` follows.
    It returns None while effects wait to be taken. If it raises, the driver tells the machine (``fail_shortcut``),
    and the link ends as after any other read that raised.
15. The owner of a machine declares its datagram sockets. For each, the machine is told once that it is open or why it
    is not (SocketOpened, SocketFailed); from then on it gets what arrives there, and no other machine does.
16. The owner of a machine declares its vault, one at most. The machine is told that it is open or why it is not
    (VaultOpened, VaultFailed), and again whenever that changes. A commit is atomic; commits are carried out, and
    answered, in the order in which they were requested. When one fails, those requested after it fail too, until the
    machine is told of the first failure: nothing becomes durable that relies on a failed commit. A commit that failed
    because the vault is full changed nothing; one that failed otherwise may be there when the vault is opened again. A
    read sees the commits that are answered before it, and no others.
17. A job that runs text from an untrusted party has a time limit, ``limit_ms``. The driver runs it in a process of its
    own, kills that process when the time is over, and reports it with ``failed``.
18. Sockets and pipes are held and pressed alike. While a machine holds a link, what is written at the other end waits
    in the driver, and if that is much, the machine that writes is pressed. Whatever makes a machine let go of a link
    must not come over that link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, Protocol

from msgspec import Struct

from heliograph.errors import Reason
from heliograph.guard import Guard
from heliograph.model.identity import Identity, Role
from heliograph.notes import Note
from heliograph.vault import Change, Query, check_changes, check_query

LinkId = int
"""A link's number in its driver; never reused in one process."""
Instant = int
"""Monotonic nanoseconds of one node."""
Ticket = int
"""A promise that something will be done; numbered by the machine that asks."""
SocketName = str
Address = tuple[str, int]


class Peer(Struct, frozen=True):
    """The party at the other end of a link, as far as the driver knows."""

    transport: str  # "tcp", "tls" or "pipe"
    address: str  # "127.0.0.1:50312"; for a pipe, the name of the machine at the other end
    listener: str | None = None  # the listener that accepted it; None if we dialled, or on a pipe
    identity: Identity | None = None  # proven by the transport (a verified certificate), else None
    ticket: Ticket | None = None  # the dial that made this link; None if the peer dialled
    serial: str = ""  # the number of that certificate, upper-case hexadecimal; empty without one
    expires_ms: int | None = None  # the end of that certificate, Unix time; None without one


class Dial(Struct, frozen=True):
    """Open a link to this address."""

    host: str
    port: int
    secure: bool = False  # TLS with the driver's client settings
    server_name: str | None = None  # the name in the expected certificate, if it is not ``host``
    role: Role = Role.BROKER  # if secure: the role that the certificate there must have; else ``failed``


class Socket(Struct, frozen=True, kw_only=True):
    """A datagram socket for a machine. By default it can be reached from this computer only."""

    name: SocketName  # one machine's sockets have different names
    host: str = "127.0.0.1"
    port: int = 0  # 0: any free port
    group: str | None = None  # an IPv4 multicast group: the socket receives only from this group, on ``port``
    ttl: int = 1  # how many networks a multicast may pass; 0: it stays on this computer
    interface: str = "127.0.0.1"  # for multicasts; "0.0.0.0": chosen by the computer's routes


class SocketOpened(Struct, frozen=True):
    """Told to a machine: its socket has this address. A group's address is the group itself."""

    name: SocketName
    address: Address


class SocketFailed(Struct, frozen=True):
    """Told to a machine: this socket could not be opened. Datagrams sent from it are dropped and noted."""

    name: SocketName
    problem: str


class TurnedAway(Struct, frozen=True):
    """Told to a machine with listeners: a peer dialled in, but was refused before it became a link."""

    reason: Reason
    detail: str


class Job(Protocol):
    """Slow pure work, run beside the machine. It must not touch the machine: data in, data out."""

    def run(self) -> Any:
        """Do the work; an exception becomes ``failed(ticket, Reason.JOB_FAILED)``."""
        ...


Shortcut = Callable[[LinkId, bytes, Instant], tuple[LinkId, bytes] | None]
"""Rule 14: takes a link, its next bytes and now; returns the link to write to, and the bytes."""


def no_shortcut(link: LinkId, data: bytes, now: Instant) -> None:
    """The shortcut of a machine that has none."""


class Effects:
    """Everything that a machine has asked for since the last ``take``. Fields without requests are empty."""

    writes: Sequence[tuple[LinkId, list[bytes]]] = ()  # per link, in order: one vectored write each
    holds: Sequence[tuple[LinkId, bool]] = ()  # stop / resume reading a link
    datagrams: Sequence[tuple[SocketName, Address, bytes]] = ()  # from which socket, to which address or group
    dials: Sequence[tuple[Ticket, Dial]] = ()
    hangups: Sequence[tuple[LinkId, Reason]] = ()  # after the writes, which are flushed for at most 1 s
    commits: Sequence[tuple[Ticket, Sequence[Change]]] = ()  # each atomic; they finish in order
    reads: Sequence[tuple[Ticket, Query]] = ()
    jobs: Sequence[tuple[Ticket, Job]] = ()
    notes: Sequence[Note] = ()
    wake_at: Instant | None = None  # absolute; every take() states it
    stop: bool = False  # the machine has finished for good: the driver may end the node
    rare: bool = False  # there is more than writes and wake_at


class Machine(Protocol):
    """An object that decides: no socket, clock, thread, file or random source. See the rules above."""

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """A link exists from now on."""

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """The next bytes of a link's stream, split anywhere."""

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """One datagram; it may come twice, late or never."""

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """The link is gone."""

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """The driver's buffer for this link is above (True) or below (False) its mark."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """A commit, read or job succeeded."""

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """A dial, commit, read or job did not succeed."""

    def tell(self, command: Any, now: Instant) -> None:
        """A typed command from the program that owns this machine."""

    def clock(self, wall_ns: int, now: Instant) -> None:
        """The wall clock (Unix time) now; it may step."""

    def wake(self, now: Instant) -> None:
        """The instant of the last ``wake_at`` has come; being woken early does no harm."""

    def take(self) -> Effects:
        """All effects since the last take, and when to be woken."""
        ...

    def report(self, question: str) -> Any:
        """A read-only answer about state, made of plain JSON values; an unknown question raises UsageError."""
        ...


class Outbox:
    """Where the parts of one machine collect its effects. Emptied by ``take``, never replaced (rule 9)."""

    __slots__ = (
        "_next_ticket",
        "_rare",
        "commits",
        "datagrams",
        "dials",
        "guard",
        "hangups",
        "holds",
        "jobs",
        "notes",
        "reads",
        "stop",
        "writes",
    )

    def __init__(self) -> None:
        self.writes: list[tuple[LinkId, list[bytes]]] = []
        self.holds: list[tuple[LinkId, bool]] = []
        self.datagrams: list[tuple[SocketName, Address, bytes]] = []
        self.dials: list[tuple[Ticket, Dial]] = []
        self.hangups: list[tuple[LinkId, Reason]] = []
        self.commits: list[tuple[Ticket, Sequence[Change]]] = []
        self.reads: list[tuple[Ticket, Query]] = []
        self.jobs: list[tuple[Ticket, Job]] = []
        self.notes: list[Note] = []
        self.stop = False
        self.guard = Guard(self.note)
        self._next_ticket: Ticket = 1
        self._watch()

    def ticket(self) -> Ticket:
        """A number that this machine has not used before."""
        ticket = self._next_ticket
        self._next_ticket = ticket + 1
        return ticket

    def dial(self, dial: Dial) -> Ticket:
        """Ask for a link; its ticket comes back in the peer of ``attach`` or in ``failed``."""
        ticket = self.ticket()
        self.dials.append((ticket, dial))
        return ticket

    def job(self, job: Job) -> Ticket:
        """Ask for slow work; its ticket comes back in ``done`` or ``failed``."""
        ticket = self.ticket()
        self.jobs.append((ticket, job))
        return ticket

    def commit(self, changes: Sequence[Change]) -> Ticket:
        """Ask for an atomic durable write of these changes; ``done`` comes with Committed, or ``failed``."""
        check_changes(changes)
        ticket = self.ticket()
        self.commits.append((ticket, changes))
        return ticket

    def read(self, query: Query) -> Ticket:
        """Ask the vault; its ticket comes back in ``done`` with what was found, or in ``failed``."""
        check_query(query)
        ticket = self.ticket()
        self.reads.append((ticket, query))
        return ticket

    def hang_up(self, link: LinkId, reason: Reason) -> None:
        """End a link after what was written to it."""
        self.hangups.append((link, reason))

    def note(self, note: Note) -> None:
        """Write down an observation."""
        self.notes.append(note)

    def finish(self) -> None:
        """The machine has finished for good."""
        self.stop = True

    def empty(self, wake_at: Instant | None) -> Effects:
        """Hand over everything. This runs once per read, so fields that are usually empty are checked together."""
        effects = Effects()
        effects.wake_at = wake_at
        effects.writes, self.writes = self.writes, []
        effects.rare = rare = self.stop or any(self._rare)
        if rare:
            effects.notes, self.notes = self.notes, []
            effects.holds, self.holds = self.holds, []
            effects.hangups, self.hangups = self.hangups, []
            effects.dials, self.dials = self.dials, []
            effects.jobs, self.jobs = self.jobs, []
            effects.datagrams, self.datagrams = self.datagrams, []
            effects.commits, self.commits = self.commits, []
            effects.reads, self.reads = self.reads, []
            effects.stop = self.stop
            self._watch()
        return effects

    def _watch(self) -> None:
        """Collect the fields that are usually empty, so that one call checks all of them."""
        self._rare: tuple[list[Any], ...] = (
            self.notes,
            self.holds,
            self.hangups,
            self.dials,
            self.jobs,
            self.datagrams,
            self.commits,
            self.reads,
        )


class Timers:
    """The one timer heap of a machine. Setting a key again moves it; equal instants fire in the order they were set."""

    __slots__ = ("_at", "_count", "_heap", "_is_changed", "_next")

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, int, Any, Callable[[Instant], None]]] = []
        self._at: dict[Any, int] = {}  # key -> the count of its live entry; older entries are stale
        self._count = 0
        self._next: Instant | None = None
        self._is_changed = False  # since ``_next`` was computed

    def set(self, key: Any, at: Instant, call: Callable[[Instant], None]) -> None:
        """Call ``call(now)`` once ``at`` has come; this replaces an earlier timer with the same key."""
        self._is_changed = True
        self._count += 1
        self._at[key] = self._count
        heappush(self._heap, (at, self._count, key, call))
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._at):
            self._sweep()

    def cancel(self, key: Any) -> None:
        """Forget ``key``; it need not be set."""
        self._is_changed = True
        self._at.pop(key, None)

    def next(self) -> Instant | None:
        """When the machine wants to be woken. Called after every input, so it is recomputed only if it may differ."""
        if not self._is_changed:
            return self._next
        self._is_changed = False
        heap = self._heap
        while heap and self._at.get(heap[0][2]) != heap[0][1]:
            heappop(heap)
        self._next = heap[0][0] if heap else None
        return self._next

    def run(self, now: Instant) -> None:
        """Fire due timers. Those that a call sets for ``now`` or earlier fire at the next wake, so this always ends."""
        self._is_changed = True
        heap = self._heap
        last = self._count
        while heap and heap[0][0] <= now and heap[0][1] <= last:
            _, count, key, call = heappop(heap)
            if self._at.get(key) == count:
                del self._at[key]
                call(now)

    def _sweep(self) -> None:
        """Drop stale entries, so that keys moved often cannot grow the heap."""
        self._heap = [entry for entry in self._heap if self._at.get(entry[2]) == entry[1]]
        self._heap.sort(key=lambda entry: entry[:2])
