"""A directory in its own process learns from its brokers which certificates the authority revoked.

In:    the directory's sessions with brokers, once a second; answers of their services "rights".
Out:   requests; revocation lists, in force in the directory's keyring.
State: per link a request under way and a list that is arriving; lists that were of no use, for a minute.
Not here: how lists spread between brokers (topics/revocation_news.py), a directory in a broker's process, which has the
          broker's keyring, reading and verifying lists (trust/).

A directory is no neighbour of its brokers, so nothing is sent to it unasked. A list is signed by the authority: it does
not matter which broker it comes from, and a broker that lies can only withhold it.
"""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from heliograph.discovery.revocation_lists import RIGHTS, ListPart, RevocationLists, digest_of
from heliograph.discovery.wall_time import WallTime
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, LinkId
from heliograph.services.broker_session import BrokerSession

if TYPE_CHECKING:
    from heliograph.trust.keyring import Keyring

NS_PER_S = 1_000_000_000
PATIENCE_NS = 10 * NS_PER_S  # for an answer; then the broker is asked again
USELESS_NS = 60 * NS_PER_S  # how long a list that we could not use is not asked for
DIGESTS_MAX = 64  # that are looked at: there is one list per authority


class _Digests(msgspec.Struct, frozen=True):
    lists: list[str] = []


class _Part(msgspec.Struct, frozen=True):
    size: int
    data: str


class ListLearner:
    """Asks brokers for revocation lists."""

    def __init__(self, keyring: Keyring, clock: WallTime, counts: Counter[str]) -> None:
        self._keyring = keyring
        self._clock = clock
        self._counts = counts  # the directory's
        self._lists = RevocationLists(keyring)
        self._asked: dict[LinkId, Instant] = {}
        self._useless: dict[str, Instant] = {}

    def ask(self, sessions: Sequence[BrokerSession], now: Instant) -> None:
        """Ask every broker that we are linked to, unless its last answer is still to come."""
        links = [session.link for session in sessions]
        self._lists.leave(links)
        self._asked = {link: since for link, since in self._asked.items() if link in links}
        self._useless = {digest: since for digest, since in self._useless.items() if now - since < USELESS_NS}
        for session in sessions:
            if now - self._asked.get(session.link, now - PATIENCE_NS) >= PATIENCE_NS:
                self._request(session, {"do": "lists"}, self._hear_digests, now)

    def _request(self, session: BrokerSession, request: dict[str, Any], hear: Any, now: Instant) -> None:
        self._asked[session.link] = now

        def answered(answer: Any, now: Instant) -> None:
            self._asked.pop(session.link, None)
            if answer is None:
                return  # the broker has no such service, or the list has ended
            try:
                hear(session, answer, now)
            except ProtocolError as error:
                self._counts[error.reason.word] += 1
            except (msgspec.MsgspecError, ValueError, TypeError):
                self._counts[Reason.BODY_MALFORMED.word] += 1

        session.ask(RIGHTS.encode(), request, answered)

    def _hear_digests(self, session: BrokerSession, answer: Any, now: Instant) -> None:
        known = {digest_of(one.der).hex() for one in self._keyring.authorities.revoked.lists}
        for digest in msgspec.convert(answer, _Digests).lists[:DIGESTS_MAX]:
            if digest not in known and digest not in self._useless:
                self._fetch(session, digest, 0, now)
                return  # the others in a second

    def _fetch(self, session: BrokerSession, digest: str, at: int, now: Instant) -> None:
        def hear(session: BrokerSession, answer: Any, now: Instant) -> None:
            try:
                self._take_part(session, digest, at, msgspec.convert(answer, _Part), now)
            except (ProtocolError, ValueError):  # also msgspec's
                self._useless[digest] = now
                raise

        self._request(session, {"do": "list", "digest": digest, "at": at}, hear, now)

    def _take_part(self, session: BrokerSession, digest: str, at: int, said: _Part, now: Instant) -> None:
        part = msgspec.convert([bytes.fromhex(digest), said.size, at, b64decode(said.data)], ListPart)
        if not part.data:
            raise ProtocolError(Reason.BODY_MALFORMED, "an empty part of a revocation list")
        der, wall_ns = self._lists.gather(session.link, part), self._clock.at(now)
        if der is None:
            self._fetch(session, digest, at + len(part.data), now)
        elif wall_ns is not None and self._lists.take(der, wall_ns) is not None:
            self._counts["lists"] += 1
        else:
            self._useless[digest] = now  # a newer one is known
