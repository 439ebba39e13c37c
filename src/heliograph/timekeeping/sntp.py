"""NTP servers: asking them, and checking their answers.

In:    names of servers; received datagrams; time.
Out:   datagrams to send; samples of UTC.
State: per server the request under way and its last sample.
Not here: which time is kept (keeper.py), the socket (machine.py, declared in node.py).

Requests carry a random number where NTP has the requester's time: only a party that saw the request can answer, and our
clock is not disclosed. A server is trusted if its sample agrees with more than half of the servers heard recently; with
three or more servers, none is trusted alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from struct import Struct

from heliograph.machine import Address, Instant, Outbox, SocketName
from heliograph.model.chance import Seed, delays_of, nonces_of
from heliograph.timekeeping.clock import DRIFT_PPM, ERROR_NS_MAX, PPM, Sample

SOCKET: SocketName = "time"
PORT = 123
PACKET = Struct("!BBbbII4sQQQQ")
QUESTION = 0x23  # version 4, mode 3: client
ANSWER_MODE = 4
ALARM = 3  # the server itself reports that its clock is wrong
STRATUM_SERVER_MAX = 15
SINCE_1900_S = 2_208_988_800  # from 1900, where NTP begins, to 1970
SECOND = 1_000_000_000
DELAY_NS_MAX = 5 * SECOND  # later answers are ignored
BURST = 4  # requests in quick succession at first, and after silence
BURST_NS = 2 * SECOND
RATE_CODES = (b"RATE",)  # "ask less often"; every other code of a server that gives no time means "do not ask"
SLOWER_MAX = 8
SERVERS_VOTE = 3  # from this many on, none is trusted alone: the first to be asked could lie


class Server:
    """One server."""

    __slots__ = ("address", "asked_at", "denied", "nonce", "sample", "slower")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.nonce: int | None = None
        self.asked_at: Instant = 0
        self.sample: Sample | None = None
        self.denied = False
        self.slower = 1


class Servers:
    """The configured NTP servers."""

    def __init__(self, addresses: Sequence[Address], poll_ns: int, seed: Seed, outbox: Outbox) -> None:
        self._servers = [Server(address) for address in addresses]
        self._poll_ns = poll_ns
        self._nonces = nonces_of(seed, "time")
        self._drawn = 0
        self._random = delays_of(seed)
        self._outbox = outbox
        self._asked = 0

    def ask(self, now: Instant) -> Instant | None:
        """Ask every server. Returns when to ask again, or None if there is no server left to ask."""
        willing = [server for server in self._servers if not server.denied]
        for server in willing:
            if self._asked < BURST or self._asked % server.slower == 0:
                server.nonce = self._nonce()
                server.asked_at = now
                data = PACKET.pack(QUESTION, 0, 0, 0, 0, 0, b"", 0, 0, 0, server.nonce)
                self._outbox.datagrams.append((SOCKET, server.address, data))
        self._asked += 1
        if not willing:
            return None
        return now + (BURST_NS if self._asked < BURST else int(self._poll_ns * (0.9 + 0.2 * self._random.random())))

    def _nonce(self) -> int:
        self._drawn += 1
        return int.from_bytes(sha256(self._nonces + self._drawn.to_bytes(8, "little")).digest()[:8], "little")

    def receive(self, data: bytes, now: Instant) -> Sample | None:
        """A sample that can be trusted; None for everything else that may arrive at a socket."""
        if len(data) < PACKET.size:
            return None
        flags, stratum, _, _, root_delay, root_dispersion, word, _, nonce, came, left = PACKET.unpack_from(data)
        server = next((one for one in self._servers if one.nonce == nonce and nonce is not None), None)
        if server is None or flags & 7 != ANSWER_MODE:
            return None
        server.nonce = None  # one answer per request
        if stratum == 0:
            self._refused(server, word)
            return None
        delay_ns = (now - server.asked_at) - (unix_ns(left) - unix_ns(came))
        root_ns = (root_delay // 2 + root_dispersion) * SECOND >> 16
        if flags >> 6 == ALARM or stratum > STRATUM_SERVER_MAX or not 0 <= delay_ns <= DELAY_NS_MAX:
            return None
        error_ns = root_ns + (delay_ns + 1) // 2 + delay_ns * DRIFT_PPM // PPM + 1
        if error_ns > ERROR_NS_MAX or not left:
            return None
        sample = server.sample = Sample(now, unix_ns(left) + delay_ns // 2, error_ns, stratum + 1)
        return sample if self._is_agreed(sample, now) else None

    def _refused(self, server: Server, word: bytes) -> None:
        if word in RATE_CODES:
            server.slower = min(2 * server.slower, SLOWER_MAX)
        else:
            server.denied = True

    def _is_agreed(self, sample: Sample, now: Instant) -> bool:
        """True if this sample agrees with those of more than half of the servers heard recently; of three, two."""
        known = [
            server.sample
            for server in self._servers
            if server.sample is not None and now - server.sample.at <= 4 * SLOWER_MAX * self._poll_ns
        ]
        agreed = sum(_overlap(sample, other, now) for other in known)
        return 2 * agreed > len(known) and (agreed > 1 or len(self._servers) < SERVERS_VOTE)


def _overlap(one: Sample, other: Sample, now: Instant) -> bool:
    apart = abs((one.time_ns + now - one.at) - (other.time_ns + now - other.at))
    return apart <= one.error_ns + other.error_ns + (2 * now - one.at - other.at) * DRIFT_PPM // PPM


def unix_ns(stamp: int) -> int:
    """An NTP time stamp as nanoseconds since 1970. One that seems to be before 1970 is after 2036, when NTP's count
    wraps."""
    seconds, part = stamp >> 32, stamp & 0xFFFF_FFFF
    since_1970 = seconds - SINCE_1900_S if seconds >= SINCE_1900_S else seconds + (1 << 32) - SINCE_1900_S
    return since_1970 * SECOND + (part * SECOND >> 32)


def ntp_stamp(time_ns: int) -> int:
    """Nanoseconds since 1970 as an NTP time stamp."""
    seconds, part = divmod(time_ns, SECOND)
    return ((seconds + SINCE_1900_S) % (1 << 32) << 32) + (part << 32) // SECOND
