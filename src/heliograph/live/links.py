"""Live links: this side's end of a TCP or TLS link, and of a pipe between machines of one process.

In:    the loop's calls on each link; holds and hangups of the machine it belongs to.
Out:   inputs of that machine, each attach followed by exactly one detach; an outlet for what it writes.
State: the state of each link.
Not here: listeners and dials (network.py), what bytes mean (machines), the order of work (loop.py).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import Any, cast

from heliograph.errors import Reason
from heliograph.live.clock import now_ns
from heliograph.live.inputs import MachineInputs
from heliograph.live.link_table import LinkTable, Outlet
from heliograph.live.tls import PeerCertificate, reason_of
from heliograph.machine import LinkId, Peer, Ticket, TurnedAway

VECTORED_BYTES = 8_192  # a chunk larger than this is worth a vectored write
PRESS_BYTES = 1 << 20  # with more in a transport's buffer the machine is pressed …
RELIEF_BYTES = 1 << 18  # … until there is less than this
FLUSH_S = 1.0  # time for what was written before a hangup to be sent
LINGER_S = 0.25  # afterwards; by then a peer that has read the reason hangs up itself
DISCARD_BYTES_MAX = 4 << 20  # what a peer may still send after our hangup


class SocketLink(asyncio.BaseProtocol):
    """One TCP link. The loop makes the ``bytes`` of a read itself, so each read is a single call."""

    def __init__(
        self, runner: MachineInputs, links: LinkTable, *, listener: str | None = None, ticket: Ticket | None = None
    ) -> None:
        self._runner = runner
        self._links = links
        self._shortcut = runner.shortcut
        self._writes = links.writes
        self._listener = listener
        self._ticket = ticket
        self._transport: asyncio.Transport | None = None
        self.number: LinkId = 0  # 0 until it is attached
        self._deaf = True  # not attached yet, or hung up: the machine does not get what arrives
        self._held = False
        self._reason: Reason | None = None  # of our own hangup
        self._detached = False
        self._discarded = 0

    @property
    def is_attached(self) -> bool:
        """True once the machine has been told of it."""
        return self.number != 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The link is up (with TLS: after its handshake)."""
        self._transport = link = cast(asyncio.Transport, transport)
        if self.finds_no_room(link):
            return
        link.set_write_buffer_limits(high=PRESS_BYTES, low=RELIEF_BYTES)
        link.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = self._links.add_socket(self, outlet_of(link), link.write)
        self._deaf = False
        machine = self._runner.machine
        self._runner.hand("attach", self.number, machine.attach, self.number, self._peer(link))

    def finds_no_room(self, transport: asyncio.Transport) -> bool:
        """True if the peer dialled in and no descriptor is left for peers: then its link ends at once.

        Before that, a link that we have ended and that only waits for its peer to notice gives up its descriptor.
        """
        if self._listener is None or transport.get_extra_info("socket").fileno() < self._links.peers_max:
            return False
        if self._links.end_lingering():
            return False
        self.turn_away(transport, Reason.LINKS_OVER_LIMIT, "no more files may be opened for peers; raise ulimit -n")
        transport.abort()
        return True

    def turn_away(self, transport: asyncio.Transport, reason: Reason, why: str) -> None:
        """Tell the machine of a peer that was refused before it became a link."""
        where = f"{format_address(transport.get_extra_info('peername'))} on listener {self._listener}"
        self._runner.tell(TurnedAway(reason, f"{where}: {why}"))

    def data_received(self, data: bytes) -> None:
        """A read is complete. Mostly it is one publication for one link: that is the shortest path through a node."""
        if self._deaf:
            self._overhear(len(data))
            return
        try:
            written = self._shortcut(self.number, data, now_ns())
        except Exception as error:
            self._runner.fail_shortcut(self.number, error)
            return
        if written is None:
            self._runner.receive(self.number, data)
        else:
            to, frames = written
            if to in self._writes:  # else it ended before the machine was told
                self._writes[to](frames)

    def eof_received(self) -> bool:
        """The peer will send no more. The loop flushes what was written and ends the link."""
        self._detach(Reason.CLOSED)
        self._links.later(FLUSH_S, self.abort)  # the peer may not be reading either
        return False  # the loop ends the link and calls connection_lost

    def connection_lost(self, exc: Exception | None) -> None:
        """The link is gone."""
        self._transport = None
        if self.is_attached:
            self._detach(Reason.CLOSED if exc is None else reason_of(exc))
            self._links.remove(self)

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self._press(True)

    def resume_writing(self) -> None:
        """The transport's buffer has room again."""
        self._press(False)

    def hold(self, held: bool) -> None:
        """Stop or resume reading."""
        if held == self._held or self._transport is None or self._transport.is_closing():
            return
        self._held = held
        if held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def lose(self, reason: Reason) -> None:
        """The layer below reports why the link is gone."""
        self._detach(reason)

    def hang_up(self, reason: Reason) -> None:
        """End the link after what was written. Unread bytes would reset it, and the peer would lose that."""
        if self._reason is not None or self._transport is None or self._transport.is_closing():
            return
        self.hold(False)
        self._reason = reason
        self._deaf = True
        self._links.linger(self)
        try:
            if self._transport.can_write_eof():
                self._transport.write_eof()  # the peer reads to the end and hangs up, and we are told
                self._links.later(LINGER_S, self.linger_over)
            else:
                self._transport.close()  # TLS: flushes and sends close_notify
            self._links.later(FLUSH_S, self.abort)
        except OSError:
            self.abort()  # the peer was faster

    def linger_over(self) -> None:
        """The peer has had time to hang up."""
        if self._transport is not None and self._transport.get_write_buffer_size() == 0:
            self.abort()

    def abort(self) -> None:
        """End the link now."""
        self._deaf = True
        if self._transport is not None:
            self._transport.abort()

    def _press(self, pressed: bool) -> None:
        if not self._deaf:
            self._runner.hand("press", self.number, self._runner.machine.press, self.number, pressed)

    def _detach(self, reason: Reason) -> None:
        """Tell the machine exactly once; after our own hangup, with the reason of that."""
        if self._detached:
            return
        self._detached = True
        self._deaf = True
        self._links.silence(self.number)
        self._runner.hand("detach", self.number, self._runner.machine.detach, self.number, self._reason or reason)

    def _overhear(self, nbytes: int) -> None:
        """Discard bytes after our hangup. The peer may need a moment to notice it, but not for ever."""
        self._discarded += nbytes
        if self._discarded > DISCARD_BYTES_MAX:
            self.abort()

    def _peer(self, transport: asyncio.Transport) -> Peer:
        shown: PeerCertificate | None = transport.get_extra_info("peer_certificate")  # only the TLS layer has it
        return Peer(
            transport="tcp" if shown is None else "tls",
            address=format_address(transport.get_extra_info("peername")),
            listener=self._listener,
            identity=None if shown is None else shown.identity,
            ticket=self._ticket,
            serial="" if shown is None else shown.serial,
            expires_ms=None if shown is None else shown.expires_ms,
        )


class PipeEnd:
    """One end of an in-process link. It receives what the other end writes, by reference.

    Nothing waits in a pipe unless the machine at this end holds it. Then what the other end writes waits here, and
    beyond PRESS_BYTES the machine at the other end is pressed, as it would be for a socket.
    """

    def __init__(self, links: LinkTable, runner: MachineInputs, other: PipeEnd | None = None) -> None:
        self._links = links
        self._runner = runner
        self.number = links.add(self, self._write, self._write_alone)
        self._other = self if other is None else other
        self._detached = False
        self._held = False
        self._waiting: deque[list[bytes]] = deque()  # writes of the other end, oldest first
        self._waiting_bytes = 0
        self._pressing = False  # because of them, the machine at the other end is pressed
        self._is_going_on = False  # the oldest of them is about to be received
        if other is not None:
            other._other = self

    def hold(self, held: bool) -> None:
        """Stop or resume reading."""
        self._held = held
        if not held:
            self._go_on()

    def hang_up(self, reason: Reason) -> None:
        """End both ends after what was written has been received."""
        self._waiting.clear()  # our machine gets nothing more
        self._detach(reason)
        self._other._detach(Reason.CLOSED)

    def abort(self) -> None:
        """A pipe ends with its process."""

    def _write(self, frames: list[bytes]) -> None:
        self._other._runner.queue(self._other._receive, frames)

    def _write_alone(self, data: bytes) -> None:
        """The write of a shortcut. No input follows that would process the queue, so that is done here."""
        self._write([data])
        self._runner.go_on()

    def _receive(self, frames: list[bytes], now: int) -> None:
        if self._held or self._waiting:
            self._keep(frames)
        else:
            self._pass(frames, now)

    def _pass(self, frames: list[bytes], now: int) -> None:
        receive = self._runner.machine.receive
        for frame in frames:
            self._runner.record("receive", self.number, len(frame))
            receive(self.number, frame, now)

    def _keep(self, frames: list[bytes]) -> None:
        self._waiting.append(frames)
        self._waiting_bytes += sum(map(len, frames))
        if self._waiting_bytes > PRESS_BYTES:
            self._press_other(True)

    def _go_on(self) -> None:
        """Receive what waits, one write after the other, because the machine may hold again after each."""
        if self._waiting and not self._is_going_on:
            self._is_going_on = True
            self._runner.queue(self._receive_oldest)

    def _receive_oldest(self, now: int) -> None:
        self._is_going_on = False
        if self._held or not self._waiting:
            return
        frames = self._waiting.popleft()
        self._waiting_bytes -= sum(map(len, frames))
        self._pass(frames, now)
        self._go_on()
        if self._waiting_bytes <= RELIEF_BYTES:
            self._press_other(False)

    def _press_other(self, pressed: bool) -> None:
        other = self._other
        if pressed != self._pressing and not other._detached:
            self._pressing = pressed
            other._runner.queue(other._runner.machine.press, other.number, pressed)

    def _detach(self, reason: Reason) -> None:
        if not self._detached:
            self._detached = True
            self._links.forget(self.number)
            for frames in self._waiting:
                self._runner.queue(self._pass, frames)
            self._waiting.clear()
            self._runner.queue(self._runner.machine.detach, self.number, reason)


def outlet_of(transport: asyncio.Transport) -> Outlet:
    """The fastest way to write a list of frames, as measured with 1 and 10 receivers.

    TCP: a large chunk with its prefix is written vectored, which saves a copy (63 µs of CPU instead of 80 per 64 KiB
    relayed); many small pieces are joined, which costs less than a vector.
    TLS: joined, because each piece would become a separate record.
    """
    write = transport.write
    if transport.get_extra_info("ssl_object") is not None:
        return lambda frames: write(b"".join(frames))
    write_vectored = transport.writelines

    def outlet(frames: list[bytes]) -> None:
        if len(frames) == 2 and len(frames[1]) > VECTORED_BYTES:
            write_vectored(frames)
        else:
            write(b"".join(frames))

    return outlet


def format_address(name: Any) -> str:
    """A socket's address in the usual notation."""
    if not isinstance(name, tuple) or len(name) < 2:
        return "unknown"
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
