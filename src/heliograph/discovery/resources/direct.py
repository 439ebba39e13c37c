"""Direct links: sessions at the brokers of requesters, for answers that do not travel along the path.

In:    packages for a requester's broker; links that come up, end or cannot be made.
Out:   dials; publications to the requester's inbox; packages that could not be sent are returned.
State: per address a session, or a dial with the packages that wait for it; addresses that failed recently.
Not here: when answers go directly (forwarding.py), how the requester detects that all have arrived (gathering.py).
Paper: [resources] §4.2 and §6.3.2, the Direct method.

A link is kept for later requests. The least recently used one makes room for another. No token is sent, because the
address comes with a request. If the other broker requires more than our certificate, answers go along the path.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256

import msgspec

from heliograph.errors import Reason
from heliograph.machine import Dial, Instant, LinkId, Outbox, Peer, Ticket, Timers
from heliograph.services.broker_session import BrokerSession
from heliograph.trust.expiries import Expiries

NS_PER_S = 1_000_000_000
WAITING_MAX = 1_024  # packages that wait for one link
AGAIN_NS = 5 * NS_PER_S  # an unreachable address is not dialled again before
BEAT_NS = 10 * NS_PER_S
SILENT_NS = 3 * BEAT_NS
SCHEMES = {"heliograph": False, "heliographs": True}  # whether it is TLS

Undelivered = Callable[[], None]
Package = tuple[bytes, bytes, Undelivered]  # the topic, the payload, what to do if it cannot be sent


class DirectCounts(msgspec.Struct):
    """Counters of direct answers."""

    opened: int = 0
    closed: int = 0
    packages: int = 0  # packages sent
    returned: int = 0  # packages that had to go along the path


class DirectLink(msgspec.Struct):
    """A link, or the dial for one."""

    session: BrokerSession | None = None
    waiting: list[Package] = []
    heard_at: Instant = 0


class DirectLinks:
    """The links of one resource service to brokers of requesters."""

    def __init__(self, links_max: int, secret: bytes, outbox: Outbox, timers: Timers) -> None:
        self.counts = DirectCounts()
        self._links_max = links_max
        self._secret = secret
        self._outbox = outbox
        self._timers = timers
        self._links: OrderedDict[str, DirectLink] = OrderedDict()  # by address; the most recently used is at the end
        self._dials: dict[Ticket, str] = {}
        self._by_link: dict[LinkId, str] = {}
        self._paused: dict[str, Instant] = {}  # addresses that failed -> not to be used until
        self._expiries = Expiries(timers, self._certificate_ends, self._close)

    def __len__(self) -> int:
        return len(self._links)

    def send(self, address: str, topic: bytes, payload: bytes, undelivered: Undelivered, now: Instant) -> bool:
        """Publish this at the broker there. Returns False if that is not possible; ``undelivered`` if it fails."""
        link = self._links.get(address) or self._open(address, now)
        if link is None or len(link.waiting) >= WAITING_MAX:
            self.counts.returned += 1
            return False
        self._links.move_to_end(address)
        if link.session is not None and link.session.welcomed:
            self._publish(link.session, topic, payload)
        else:
            link.waiting.append((topic, payload, undelivered))
        return True

    def _publish(self, session: BrokerSession, topic: bytes, payload: bytes) -> None:
        self.counts.packages += 1
        session.publish(topic, payload)

    def _open(self, address: str, now: Instant) -> DirectLink | None:
        dial = dial_of(address)
        if dial is None or self._paused.get(address, 0) > now or not self._make_room():
            return None
        link = self._links[address] = DirectLink()
        self._dials[self._outbox.dial(dial)] = address
        self._timers.set("direct", now + BEAT_NS, self._tend)
        return link

    def _make_room(self) -> bool:
        """End the least recently used link if there are too many. Links being dialled are left alone."""
        if len(self._links) < self._links_max:
            return True
        for link in self._links.values():
            if link.session is not None and link.session.welcomed:
                self._close(link.session.link, 0)
                return True
        return False

    def clock(self, wall_ns: int, now: Instant) -> None:
        """A reading of the wall clock."""
        self._expiries.clock(wall_ns, now)

    def _certificate_ends(self, number: LinkId, left_ms: int, late: bool, now: Instant) -> None:
        """The broker's certificate ends soon: what was published arrives, and the next package dials anew."""
        self._close(number, now)

    def _close(self, number: LinkId, _now: Instant) -> None:
        link = self._forget(number)
        if link is not None and link.session is not None:
            link.session.give_up(Reason.GOODBYE)
            self._return(link)

    def _forget(self, number: LinkId) -> DirectLink | None:
        address = self._by_link.pop(number, None)
        if address is None:
            return None
        self._expiries.remove(number)
        self.counts.closed += 1
        return self._links.pop(address, None)

    def _tend(self, now: Instant) -> None:
        """Keep links alive, and end those that are silent."""
        for link in list(self._links.values()):
            if link.session is None:
                continue
            if now - link.heard_at > SILENT_NS:
                link.session.give_up(Reason.SILENT)
            else:
                link.session.beat()
        self._paused = {address: until for address, until in self._paused.items() if until > now}
        if self._links:
            self._timers.set("direct", now + BEAT_NS, self._tend)

    # -- links ----------------------------------------------------------------------------------------------------

    def attach(self, number: LinkId, peer: Peer, now: Instant) -> bool:
        """A link is up. Returns False if it is not one of ours."""
        address = self._dials.pop(peer.ticket, None) if peer.ticket is not None else None
        if address is None:
            return False
        secret = sha256(self._secret + b"direct%d" % number).digest()
        link = self._links[address]
        link.session = BrokerSession(number, self._outbox, secret, welcome=lambda _, now: self._welcomed(address))
        link.heard_at = now
        self._by_link[number] = address
        self.counts.opened += 1
        link.session.hello("resources")
        self._expiries.add(number, peer, now)
        return True

    def _welcomed(self, address: str) -> None:
        link = self._links[address]
        assert link.session is not None
        waiting, link.waiting = link.waiting, []
        for topic, payload, _ in waiting:
            self._publish(link.session, topic, payload)

    def receive(self, number: LinkId, data: bytes, now: Instant) -> bool:
        """Bytes from the other broker. Returns False if the link is not one of ours."""
        address = self._by_link.get(number)
        if address is None:
            return False
        link = self._links[address]
        assert link.session is not None
        link.heard_at = now
        link.session.receive(data, now)
        if link.session.fault is not None or link.session.refused:
            self._outbox.hang_up(number, link.session.fault or Reason.GOODBYE)
            self._end(number, now)
        return True

    def detach(self, number: LinkId, now: Instant) -> None:
        """A link has closed: packages that it did not take go along the path."""
        self._end(number, now)

    def _end(self, number: LinkId, now: Instant) -> None:
        address = self._by_link.get(number, "")
        link = self._forget(number)
        if link is not None:
            if link.session is None or not link.session.welcomed or link.session.refused:
                self._paused[address] = now + AGAIN_NS
            self._return(link)

    def failed(self, ticket: Ticket, now: Instant) -> None:
        """A broker could not be dialled."""
        address = self._dials.pop(ticket, None)
        if address is not None:
            self._paused[address] = now + AGAIN_NS
            self._return(self._links.pop(address))

    def _return(self, link: DirectLink) -> None:
        waiting, link.waiting = link.waiting, []
        for _, _, undelivered in waiting:
            self.counts.returned += 1
            undelivered()


def dial_of(address: str) -> Dial | None:
    """``heliograph://host:port``, or without the scheme, as a dial; None if it is not an address."""
    scheme, _, rest = (address if "://" in address else f"heliograph://{address}").partition("://")
    host, colon, port = rest.rpartition(":")
    if scheme not in SCHEMES or not colon or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        return None
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or (":" in bare) != (bare != host):
        return None
    return Dial(bare, int(port), secure=SCHEMES[scheme])
