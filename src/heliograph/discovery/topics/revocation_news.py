"""Revocations between brokers: statements about grants and lists of certificates pass from neighbour to neighbour.

In:    revocations that a client or a neighbour brought; the lists of the node's files; neighbours that come and go.
Out:   orders to the broker (forbid, expel); messages for the same service at neighbours; answers to directories.
State: revocations that have not expired, orders to the broker that wait, the neighbours.
Not here: what a revocation proves (revocations.py), known lists (discovery/revocation_lists.py), requests of clients
          (rights.py), the directory's side (revocation_learner.py, discovery/list_learner.py).

Everything is signed, so it may come from anywhere. A neighbour that is new, or was away, gets all that is known.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from heliograph.discovery.revocation_lists import ListPart, RevocationLists, digest_of, parts_of
from heliograph.discovery.topics.grants import Revocable
from heliograph.discovery.topics.listing import root_of
from heliograph.discovery.topics.revocations import KnownRevocations, ProvenRevocation, read_notice
from heliograph.discovery.topics.statements import NS_PER_MS, Statements
from heliograph.discovery.wall_time import WallTime
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, LinkId, Timers
from heliograph.services.broker_session import BrokerSession
from heliograph.wire.ways import WaysHere

if TYPE_CHECKING:
    from heliograph.trust.keyring import Keyring
    from heliograph.trust.revocation import RevocationList

OFFER_AGAIN_NS = 10_000 * NS_PER_MS
HOP_BYTES_MAX = 48 << 10  # of notices offered at once
PAGE_BYTES_MAX = 512 << 10  # of notices in one answer to a directory
SERIALS_AT_ONCE = 1_000  # in one order


class RevocationSpread(msgspec.Struct, frozen=True, omit_defaults=True):
    """Revocations of grants and of certificates, sent between the services of neighbouring brokers."""

    notices: list[bytes] = []
    part: ListPart | None = None


_spreads = msgspec.msgpack.Decoder(RevocationSpread)


class RevocationNews:
    """What one broker's service knows of revocations. It attends (services/broker_session.py)."""

    def __init__(
        self,
        statements: Statements,
        clock: WallTime,
        timers: Timers,
        counts: Counter[str],
        gone: Callable[[LinkId], object],
    ) -> None:
        self._statements = statements
        self._keyring: Keyring = statements.keyring
        self._clock = clock
        self._timers = timers
        self._counts = counts  # the service's
        self._gone = gone  # called with the link of a requester that has closed
        self._session: BrokerSession | None = None
        self.known = KnownRevocations()
        self._lists = RevocationLists(self._keyring)
        self._neighbours: dict[LinkId, None] = {}
        self._orders: deque[dict[str, Any]] = deque()  # the first one has been sent

    def join(self, session: BrokerSession) -> None:
        """The broker is attached."""
        self._session = session
        self._send_order()

    def take(self, new: ProvenRevocation) -> bool:
        """A revocation from a client: end the rights that depend on it, and spread it. False if it is known."""
        if not self.known.add(new):
            return False
        self._end_rights([new])
        self._offer(list(self._neighbours), [new.data])
        return True

    def _end_rights(self, new: list[ProvenRevocation]) -> None:
        self._counts["revoked"] += len(new)
        grants = [token_of(one.what) for one in new if not one.withdraws]
        self._order({"do": "forbid", "grants": grants, "roots": [root_of(one.what[0]) for one in new if one.withdraws]})

    def _order(self, order: dict[str, Any]) -> None:
        """Orders go to the broker one after the other, however many others the service has under way: one that was not
        sent would leave rights in force."""
        self._orders.append(order)
        if len(self._orders) == 1:
            self._send_order()

    def _send_order(self) -> None:
        if self._session is not None and self._orders:
            self._session.order(self._orders[0], self._ordered, always=True)

    def _ordered(self, answer: Any, now: Instant) -> None:
        self._orders.popleft()
        self._send_order()

    def _offer(self, links: list[LinkId], notices: list[bytes]) -> None:
        assert self._session is not None
        for batch in _batches(notices) if links else ():
            payload = msgspec.msgpack.encode(RevocationSpread(batch))
            for link in links:
                self._session.send(link, payload)

    def _spread_list(self, new: RevocationList, links: list[LinkId]) -> None:
        """A list of revoked certificates: end their links here, and tell these neighbours."""
        serials = new.shown
        for start in range(0, len(serials), SERIALS_AT_ONCE):
            self._order({"do": "expel", "serials": serials[start : start + SERIALS_AT_ONCE]})
        self._offer_list(new, links)

    def _offer_list(self, known: RevocationList, links: list[LinkId]) -> None:
        assert self._session is not None
        for part in parts_of(known.der) if links else ():
            payload = msgspec.msgpack.encode(RevocationSpread(part=part))
            for link in links:
                self._session.send(link, payload)

    # -- directories (list_learner.py, revocation_learner.py) -------------------------------------------------------

    def page(self, after: int) -> dict[str, Any]:
        """The notices that became known after the one with this number, oldest first, as far as they fit an answer."""
        found: list[str] = []
        size = 0
        for number, data in self.known.after(after):
            size += len(data)
            if found and size > PAGE_BYTES_MAX:
                return {"notices": found, "next": after, "more": True}
            found.append(b64encode(data).decode())
            after = number
        return {"notices": found, "next": after, "more": False}

    def list_digests(self, wall_ns: int) -> list[str]:
        """The lists in force, by their digests."""
        return [digest_of(known.der).hex() for known in self._lists.known(wall_ns)]

    def list_part(self, digest: bytes, at: int, wall_ns: int) -> ListPart:
        """A part of one of them; ProtocolError if there is no such part."""
        return self._lists.part(digest, at, wall_ns)

    # -- neighbours (Attendant) -----------------------------------------------------------------------------------

    def hear_ways(self, ways: WaysHere, now: Instant) -> None:
        """A new neighbour, which may have been away, gets all revocations and lists that have not expired."""
        present = dict.fromkeys(each.link for each in ways.neighbours)
        new = [link for link in present if link not in self._neighbours]
        self._neighbours = present
        self._lists.leave(present)
        if new:
            self._offer_all(new, now)

    def _offer_all(self, links: list[LinkId], now: Instant) -> None:
        self._offer(links, self.known.notices())
        for known in self._lists.known(self._clock.at(now) or 0):
            self._offer_list(known, links)

    def hear_neighbour(self, link: LinkId, payload: bytes, now: Instant) -> None:
        """Revocations and lists that a neighbour knows. One that is invalid is counted, and the others are taken."""

        def heed(take: Callable[[], Any]) -> None:
            try:
                take()
            except ProtocolError as error:
                self._counts[error.reason.word] += 1

        def hear() -> None:
            if (wall_ns := self._clock.at(now)) is None:
                raise ProtocolError(Reason.STALE, "there is no time yet")
            try:
                spread = _spreads.decode(payload)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise ProtocolError(Reason.BODY_MALFORMED, str(error)) from None
            new: list[ProvenRevocation] = []
            for data in spread.notices:
                heed(lambda data=data: self._learn(data, new, wall_ns))  # type: ignore[misc]
            if new:
                self._end_rights(new)
                self._offer([other for other in self._neighbours if other != link], [one.data for one in new])
            if spread.part is not None:
                self._take_part(link, spread.part, wall_ns)

        heed(hear)

    def _learn(self, data: bytes, new: list[ProvenRevocation], wall_ns: int) -> None:
        if not self.known.has_notice(data) and self.known.add(proven := read_notice(self._statements, data, wall_ns)):
            new.append(proven)

    def _take_part(self, link: LinkId, part: ListPart, wall_ns: int) -> None:
        der = self._lists.gather(link, part)
        new = None if der is None else self._lists.take(der, wall_ns)
        if new is not None:
            self._counts["lists"] += 1
            self._spread_list(new, [other for other in self._neighbours if other != link])

    def hear_refusal(self, link: LinkId, number: int, reason: Reason, now: Instant) -> None:
        """A neighbour is slow: everything is offered again later. One without this service is left alone."""
        self._counts["unsent"] += 1
        if reason is Reason.SERVICE_UNKNOWN:
            return
        self._timers.set(("offer", link), now + OFFER_AGAIN_NS, lambda now: self._offer_again(link, now))

    def _offer_again(self, link: LinkId, now: Instant) -> None:
        if link in self._neighbours:
            self._offer_all([link], now)

    def hear_end(self, asker: LinkId, now: Instant) -> None:
        """A requester's link has closed."""
        self._gone(asker)

    def hear_untold(self, asker: LinkId, watch: int, now: Instant) -> None:
        """Ignored: it has no watches."""

    # -- time and files -------------------------------------------------------------------------------------------

    def renewed(self, now: Instant) -> None:
        """The node has read its files again: put its lists in force, and spread them."""
        wall_ns = self._clock.at(now)
        if wall_ns is not None and self._session is not None:
            self._lists.renewed(wall_ns)
            for known in self._lists.known(wall_ns):
                self._spread_list(known, list(self._neighbours))

    def expire(self, wall_ms: int) -> None:
        """Forget what is no longer needed."""
        self.known.expire(wall_ms)

    def report(self) -> dict[str, int]:
        """How much there is."""
        lists = len(self._keyring.authorities.revoked.lists)
        return {"revocations": len(self.known), "revocations_bytes": self.known.bytes_used, "lists": lists}


def token_of(what: Revocable) -> str:
    """What may be revoked, as the broker knows it."""
    topic, grant, entity = what
    return f"{topic.hex()}/{grant.hex()}/{entity}"


def _batches(notices: list[bytes]) -> list[list[bytes]]:
    found: list[list[bytes]] = []
    size = HOP_BYTES_MAX
    for notice in notices:
        size += len(notice)
        if size > HOP_BYTES_MAX:
            found.append([])
            size = len(notice)
        found[-1].append(notice)
    return found
