"""Revocations between brokers: statements about grants and lists of certificates pass from neighbour to neighbour.

In:    revocations that a client or a neighbour brought; the lists of the node's files; neighbours that come and go.
Out:   orders to the broker (forbid, expel); messages for the same service at neighbours.
State: revocations that have not expired, grants in force with the entities that may revoke them, the neighbours.
Not here: what grants mean (grants.py), known lists (discovery/revocation_lists.py), requests of clients (rights.py).

Everything is signed, so it may come from anywhere. A neighbour that is new, or was away, gets all that is known.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from heliograph.discovery.revocation_lists import ListPart, RevocationLists, WantedPart, digest_of, parts_of
from heliograph.discovery.topics.grants import read_revocation
from heliograph.discovery.topics.revocations import KnownRevocations
from heliograph.discovery.topics.statements import NS_PER_MS
from heliograph.discovery.wall_time import WallTime
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, LinkId, Timers
from heliograph.services.broker_session import BrokerSession
from heliograph.trust import envelope
from heliograph.wire.ways import WaysHere

if TYPE_CHECKING:
    from heliograph.trust.keyring import Keyring
    from heliograph.trust.revocation import RevocationList

ISSUERS_MAX = 200_000  # as many as a broker can have rights
OFFER_AGAIN_NS = 10_000 * NS_PER_MS
HOP_BYTES_MAX = 48 << 10  # of statements offered at once
SERIALS_AT_ONCE = 1_000  # in one order


class RevocationSpread(msgspec.Struct, frozen=True, omit_defaults=True):
    """Revocations of grants and of certificates, sent between the services of neighbouring brokers."""

    statements: list[bytes] = []
    chains: list[bytes] = []
    part: ListPart | None = None


_spreads = msgspec.msgpack.Decoder(RevocationSpread)


class RevocationNews:
    """What one broker's service knows of revocations. It attends (services/broker_session.py)."""

    def __init__(
        self,
        keyring: Keyring,
        clock: WallTime,
        timers: Timers,
        counts: Counter[str],
        gone: Callable[[LinkId], object],
    ) -> None:
        self._keyring = keyring
        self._clock = clock
        self._timers = timers
        self._counts = counts  # the service's
        self._gone = gone  # called with the link of a requester that has closed
        self._session: BrokerSession | None = None
        self._known = KnownRevocations()
        self._lists = RevocationLists(keyring)
        self._issuers: dict[bytes, dict[str, None]] = {}  # grants in force -> entities that may revoke them
        self._neighbours: dict[LinkId, None] = {}
        self._chains: dict[bytes, bytes] = {}  # of the signers of what is known

    def join(self, session: BrokerSession) -> None:
        """The broker is attached."""
        self._session = session

    def remember(self, grant: bytes, entities: Iterable[str]) -> None:
        """A grant is in force, which these entities may revoke."""
        self._issuers.pop(grant, None)
        self._issuers[grant] = dict.fromkeys(entities)
        if len(self._issuers) > ISSUERS_MAX:  # forgotten rights end when they expire or are presented again
            del self._issuers[next(iter(self._issuers))]

    def is_revoked(self, grant: bytes, entities: tuple[str, ...]) -> bool:
        """True if one of these entities revoked this grant."""
        return self._known.is_revoked(grant, entities)

    def take(self, statement: bytes, wall_ns: int, source: LinkId | None) -> None:
        """A revocation: end the rights that depend on it, and pass it on to all neighbours but the one it came from."""
        revocation, signer = read_revocation(self._keyring, statement, wall_ns)
        if revocation.until_ms * NS_PER_MS <= wall_ns or not self._known.add(statement, revocation, signer):
            return
        self._counts["revoked"] += 1
        self._keep_chain(statement)
        ended = [grant.hex() for grant in revocation.grants if signer in self._issuers.get(grant, {})]
        assert self._session is not None
        if ended:
            self._session.order({"do": "forbid", "grants": ended}, lambda answer, now: None)
        self._offer([link for link in self._neighbours if link != source], [statement])

    def _keep_chain(self, statement: bytes) -> None:
        """A neighbour that was away needs the chain too, whatever the keyring has forgotten by then."""
        name = envelope.decode(statement).chain_hash
        chain = self._keyring.chain(name)
        if chain is not None:
            self._chains[name] = chain

    def _offer(self, links: list[LinkId], statements: list[bytes]) -> None:
        assert self._session is not None
        for batch in _batches(statements):
            hashes = dict.fromkeys(envelope.decode(statement).chain_hash for statement in batch)
            chains = [self._chains[name] for name in hashes if name in self._chains]
            payload = msgspec.msgpack.encode(RevocationSpread(batch, chains))
            for link in links:
                self._session.send(link, payload)

    def _spread_list(self, new: RevocationList, links: list[LinkId]) -> None:
        """A list of revoked certificates: end their links here, and tell these neighbours."""
        assert self._session is not None
        serials = new.shown
        for start in range(0, len(serials), SERIALS_AT_ONCE):
            order = {"do": "expel", "serials": serials[start : start + SERIALS_AT_ONCE]}
            self._session.order(order, lambda answer, now: None)
        self._offer_list(new, links)

    def _offer_list(self, known: RevocationList, links: list[LinkId]) -> None:
        assert self._session is not None
        for part in parts_of(known.der) if links else ():
            payload = msgspec.msgpack.encode(RevocationSpread(part=part))
            for link in links:
                self._session.send(link, payload)

    # -- directories in their own processes (list_learner.py) --------------------------------------------------------

    def list_digests(self, wall_ns: int) -> list[str]:
        """The lists in force, by their digests."""
        return [digest_of(known.der).hex() for known in self._lists.known(wall_ns)]

    def list_part(self, request: dict[str, Any], wall_ns: int) -> dict[str, Any]:
        """A part of one of them; ProtocolError, or ValueError for a malformed request."""
        wanted = msgspec.convert(request, WantedPart)
        part = self._lists.part(bytes.fromhex(wanted.digest), wanted.at, wall_ns)
        return {"size": part.size, "data": b64encode(part.data).decode()}

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
        self._offer(links, self._known.statements())
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
            for chain in spread.chains:
                heed(lambda chain=chain: self._keyring.learn(chain, wall_ns))  # type: ignore[misc]
            for statement in spread.statements:
                heed(lambda statement=statement: self.take(statement, wall_ns, link))  # type: ignore[misc]
            if spread.part is not None:
                self._take_part(link, spread.part, wall_ns)

        heed(hear)

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
        """Ignored: no client watches it."""

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
        self._known.expire(wall_ms)
        needed = {envelope.decode(statement).chain_hash for statement in self._known.statements()}
        self._chains = {name: chain for name, chain in self._chains.items() if name in needed}

    def report(self) -> dict[str, int]:
        """How much there is."""
        return {"revocations": len(self._known), "lists": len(self._keyring.authorities.revoked.lists)}


def _batches(statements: list[bytes]) -> list[list[bytes]]:
    found: list[list[bytes]] = []
    size = HOP_BYTES_MAX
    for statement in statements:
        size += len(statement)
        if size > HOP_BYTES_MAX:
            found.append([])
            size = len(statement)
        found[-1].append(statement)
    return found
