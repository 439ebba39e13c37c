"""TLS on a live link: a layer between a TCP transport and the link, which is the transport for the link above it.

In:    a TCP transport's calls; what the link writes.
Out:   a link that is attached once the handshake succeeded; for refused peers the reason: to the peer as a TLS alert,
       to the machine (TurnedAway) or to the dial (``ready``).
State: per link the TLS session, and how much came without data; per listener the handshakes under way, limited in
       number and time, fair among sources.
Not here: contexts and reasons for failures (tls.py), the link itself (links.py), access rights (broker/access.py).

asyncio and uvloop have such layers, but theirs drop the link when a handshake fails: the alert that gives the peer a
reason is never sent, and a received one is never reported. A peer must be told why it is refused.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, cast

from heliograph.broker.shares import Shares, source_of
from heliograph.errors import ProtocolError, Reason
from heliograph.live.link_table import LinkTable
from heliograph.live.links import DISCARD_BYTES_MAX, LINGER_S, SocketLink, format_address
from heliograph.live.tls import PeerCertificate, check_dialled, explain, peer_certificate, reason_of
from heliograph.live.tls_records import RecordCounter
from heliograph.model.identity import Role

HANDSHAKE_S = 2.0
HANDSHAKES_MAX = 1_024  # under way at once; beyond it, links of the address with the most are cut
PATIENCE_PARTS = 4  # of the time for a handshake
RECORD_BYTES = 1 << 14
SEALED_BYTES = 22  # by which a record of TLS 1.3 is larger than its data
RECORDS_MAX = 64  # decrypted at a time as they came; of more, which may be key updates, …
PORTION_BYTES = 1 << 14  # … so much at a time: a portion of key updates takes 12 ms, a read of them would take 0.2 s
IDLE_BYTES_MAX = 1 << 15  # received without data (key updates, padding, the first part of a record): beyond it …
IDLE_PART = 16  # … and this part of the data, the link ends

_RECEIVED = memoryview(bytearray(1 << 18))  # shared by all links: a read is copied out before the next begins
_DECRYPTED = memoryview(bytearray(1 << 18))  # so is this


class Handshakes:
    """The TLS handshakes under way at one secure listener."""

    def __init__(self) -> None:
        self.under_way: Shares[SecureLayer] = Shares()

    def enter(self, layer: SecureLayer, source: str) -> bool:
        """Begin a handshake, replacing another if need be; False if there is no room."""
        if len(self.under_way) >= HANDSHAKES_MAX:
            other = self.under_way.victim(source) or next(iter(self.under_way))
            if self.under_way.victim(source) is None and not other.is_slow:
                return False
            other.cut("others need the place")
        self.under_way.add(source, layer)
        return True


class SecureLayer(asyncio.BufferedProtocol):
    """The protocol of a TCP transport, and the transport of a link.

    It has 33 methods because it implements two interfaces of asyncio: eight methods of a protocol, twelve of a
    transport. The rest is the handshake and the TLS records between them.
    """

    def __init__(
        self,
        link: SocketLink,
        links: LinkTable,
        context: ssl.SSLContext,
        *,
        handshakes: Handshakes | None = None,
        server_name: str | None = None,
        role: Role = Role.BROKER,
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        self._link = link
        self._links = links
        self._handshakes = handshakes  # None if we dialled
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._in, self._out, server_side=handshakes is not None, server_hostname=server_name
        )
        self._role = role  # the role that a party must have which we dialled
        self._shown = PeerCertificate()
        self._transport: asyncio.Transport | None = None
        self._shaking = True
        self._ended = False  # the handshake failed, or the peer has ended the session
        self._discarded = 0
        self._records = RecordCounter()
        self._idle_bytes = -IDLE_BYTES_MAX  # received without data, less what may be
        self._handshake_s = handshake_s
        self._began = links.loop.time()
        self._patience: asyncio.TimerHandle | None = None
        self.ready: asyncio.Future[None] = links.loop.create_future()

    # -- the TCP transport's calls --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The TCP link is up: begin the handshake."""
        self._transport = cast(asyncio.Transport, transport)
        self._links.add_raw(self)
        if self._handshakes is not None:
            if self._link.finds_no_room(self._transport):
                self._over()
                return
            source = source_of(format_address(self._transport.get_extra_info("peername")))
            if not self._handshakes.enter(self, source):
                self.cut("try again")
                return
        self._patience = self._links.loop.call_later(self._handshake_s, self._too_slow)
        self._shake()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next read."""
        return _RECEIVED

    def buffer_updated(self, nbytes: int) -> None:
        """A read is complete."""
        size = 0  # decrypted, and not handed up yet
        portion = nbytes if self._records.count(_RECEIVED[:nbytes]) <= RECORDS_MAX else PORTION_BYTES
        for start in range(0, nbytes, portion):
            if self._ended:
                self._discard(nbytes - start)
                break
            self._in.write(_RECEIVED[start : min(start + portion, nbytes)])
            if self._shaking:
                self._shake()
            if not self._shaking and not self._ended:
                size = self._read(size)
        self._hand_up(size)

    def eof_received(self) -> bool:
        """The TCP stream has ended."""
        if self._shaking:
            self._fail(EOFError("the peer closed the connection"))
        elif not self._ended:
            self._ended = True
            self._link.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The TCP link is gone."""
        if self._shaking:
            self._fail(exc or EOFError("the peer closed the connection"))
        self._links.remove_raw(self)
        self._transport = None
        self._link.connection_lost(exc)

    def pause_writing(self) -> None:
        """The TCP transport's buffer is full."""
        self._link.pause_writing()

    def resume_writing(self) -> None:
        """The TCP transport's buffer has room again."""
        self._link.resume_writing()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
            self._shown = peer_certificate(self._tls, dialled=self._handshakes is None)
            if self._handshakes is None:
                check_dialled(self._shown, self._role)
        except ssl.SSLWantReadError:
            self._flush()
        except (ssl.SSLError, ValueError, ProtocolError) as error:  # ValueError: an invalid server name
            self._fail(error)
        else:
            self._flush()
            self._over()
            self._link.connection_made(self)  # type: ignore[arg-type]  # all of a transport that a link uses
            if not self.ready.done():
                self.ready.set_result(None)

    def _over(self) -> None:
        """The handshake has succeeded or failed."""
        self._shaking = False
        if self._patience is not None:
            self._patience.cancel()
        if self._handshakes is not None:
            self._handshakes.under_way.remove(self)

    @property
    def is_slow(self) -> bool:
        """True if the handshake takes so long that it may be replaced when there is no room."""
        return self._links.loop.time() - self._began > self._handshake_s / PATIENCE_PARTS

    def cut(self, advice: str) -> None:
        """End this handshake, for which there is no room."""
        self._over()
        self._ended = True
        if self._transport is not None:
            why = f"too many TLS handshakes are under way; {advice}"
            self._link.turn_away(self._transport, Reason.SOURCE_OVER_SHARE, why)
        self.abort()

    def _fail(self, error: BaseException) -> None:
        """The handshake failed: tell the peer and our side."""
        self._over()
        self._ended = True
        self._flush()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()  # unread bytes of the peer would reset the link, and it would lose the alert
            self._links.later(LINGER_S, self.abort)
        if self._handshakes is None:
            if not self.ready.done():
                self.ready.set_exception(error)
        elif self._transport is not None:
            self._link.turn_away(self._transport, reason_of(error), explain(error))

    def _too_slow(self) -> None:
        if self._shaking:
            self._fail(ConnectionAbortedError("the handshake took too long"))
            self.abort()

    def _read(self, size: int) -> int:
        """Decrypt what has come behind ``size`` bytes of the same TCP read; how many are to be handed up then."""
        read, pending, full = self._tls.read, self._in, len(_DECRYPTED) - RECORD_BYTES
        idle = pending.pending
        try:
            while pending.pending or self._tls.pending():
                count = cast(int, read(RECORD_BYTES, _DECRYPTED[size:]))
                if not count:
                    raise ssl.SSLZeroReturnError
                size += count
                idle -= count + count // IDLE_PART + SEALED_BYTES
                if size > full:
                    self._hand_up(size)
                    size = 0
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:  # the peer ends the session
            self._hand_up(size)
            self._end(None)
            return 0
        except ssl.SSLError as error:  # an alert, or bytes that were not encrypted with our keys
            self._hand_up(size)
            self._end(error)
            return 0
        if self._out.pending:  # the answer to a key update
            self._flush()
        self._idle_bytes = max(self._idle_bytes + idle, -IDLE_BYTES_MAX)
        if self._idle_bytes > 0:
            self._ended = True
            self._link.lose(Reason.TLS_FAILED)
            self.abort()
        return size

    def _hand_up(self, size: int) -> None:
        if size:
            self._link.data_received(bytes(_DECRYPTED[:size]))

    def _end(self, error: ssl.SSLError | None) -> None:
        self._ended = True
        if error is not None:
            self._link.lose(reason_of(error))
        self._link.eof_received()
        if self._transport is not None:
            self._say_end()
            self._transport.close()

    def _say_end(self) -> None:
        """Tell the peer that nothing more will come."""
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            pass  # usually "not yet answered"; a broken session cannot send anything
        self._flush()

    def _flush(self) -> None:
        if self._out.pending and self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._out.read())

    def _discard(self, nbytes: int) -> None:
        self._discarded += nbytes
        if self._discarded > DISCARD_BYTES_MAX:
            self.abort()

    # -- the methods of a transport that a link uses --------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send this."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        write, size = self._tls.write, len(data)
        try:
            done = write(data)
            if done < size:  # one record at a time
                view = memoryview(data)
                while done < size:
                    done += write(view[done:])
        except ssl.SSLError:
            return  # the session has ended; the link will be told
        transport.write(self._out.read())

    def can_write_eof(self) -> bool:
        """TLS can end one direction."""
        return True

    def write_eof(self) -> None:
        """End our direction; what the peer sends is still read."""
        self._say_end()
        if self._transport is not None:
            self._transport.write_eof()

    def close(self) -> None:
        """Close after what was written has been sent."""
        self._say_end()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_proven(self) -> bool:
        """True if the peer has shown a certificate, or may be about to."""
        return self._shaking or bool(self._shown.serial)

    def give_up(self) -> None:
        """The node stops: do not wait for a handshake under way."""
        if self._shaking or not self._link.is_attached:
            self.abort()

    def is_closing(self) -> bool:
        """True if it is closing."""
        return self._transport is None or self._transport.is_closing()

    def pause_reading(self) -> None:
        """Stop reading until resumed."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._transport is not None:
            self._transport.resume_reading()

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """The buffer sizes at which to press and relieve."""
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        """Bytes that wait."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str) -> Any:
        """Properties of the TLS session, or of the TCP transport."""
        if name == "ssl_object":
            return self._tls
        if name == "peer_certificate":
            return self._shown
        return None if self._transport is None else self._transport.get_extra_info(name)
