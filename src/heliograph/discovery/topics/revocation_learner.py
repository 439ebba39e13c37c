"""A topic directory learns from its brokers which grants were revoked and which topics withdrawn.

In:    the directory's sessions with brokers, once a second; answers of their services "rights".
Out:   requests; revocations, proven, for the directory; KnownRevocations.
State: what is known; per link how far its broker has told us.
Not here: what a revocation proves (revocations.py), how they spread between brokers (revocation_news.py), lists of
          certificates (discovery/list_learner.py).

A revocation is proven by its signatures: it does not matter which broker it comes from, and one that lies can only
withhold it.
"""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from heliograph.discovery.list_learner import PATIENCE_NS
from heliograph.discovery.revocation_lists import RIGHTS
from heliograph.discovery.topics.revocations import KnownRevocations, ProvenRevocation, read_notice
from heliograph.discovery.topics.statements import NS_PER_MS, Statements
from heliograph.discovery.wall_time import WallTime
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, LinkId
from heliograph.services.broker_session import BrokerSession


class _Page(msgspec.Struct, frozen=True):
    since: str  # names this run of the broker: numbers count from its start
    next: int  # ask for those after this number
    notices: list[str]  # Base64
    more: bool = False


class RevocationLearner:
    """Asks brokers for revocations."""

    def __init__(self, statements: Statements, clock: WallTime, counts: Counter[str]) -> None:
        self._statements = statements
        self._clock = clock
        self._counts = counts  # the directory's
        self.known = KnownRevocations()
        self._asked: dict[LinkId, Instant] = {}
        self._told: dict[LinkId, tuple[str, int]] = {}
        self._new: list[ProvenRevocation] = []

    def take(self) -> list[ProvenRevocation]:
        """What was learned since the last call."""
        new, self._new = self._new, []
        return new

    def ask(self, sessions: Sequence[BrokerSession], now: Instant) -> None:
        """Ask every broker that we are linked to, unless its last answer is still to come; forget what has expired."""
        links = dict.fromkeys(session.link for session in sessions)
        self._asked = {link: since for link, since in self._asked.items() if link in links}
        self._told = {link: told for link, told in self._told.items() if link in links}
        for session in sessions:
            if now - self._asked.get(session.link, now - PATIENCE_NS) >= PATIENCE_NS:
                self._request(session, now)
        wall_ns = self._clock.at(now)
        if wall_ns is not None:
            self.known.expire(wall_ns // NS_PER_MS)

    def _request(self, session: BrokerSession, now: Instant) -> None:
        self._asked[session.link] = now
        since, after = self._told.get(session.link, ("", 0))

        def answered(answer: Any, now: Instant) -> None:
            self._asked.pop(session.link, None)
            if answer is None:
                return  # the broker has no such service, or does not know us as a directory
            try:
                self._hear(session, msgspec.convert(answer, _Page), now)
            except msgspec.MsgspecError:
                self._counts[Reason.BODY_MALFORMED.word] += 1

        session.ask(RIGHTS.encode(), {"do": "revocations", "since": since, "after": after}, answered)

    def _hear(self, session: BrokerSession, page: _Page, now: Instant) -> None:
        wall_ns = self._clock.at(now)
        if wall_ns is None:
            return
        for text in page.notices:
            try:
                self._learn(b64decode(text), wall_ns)
            except ProtocolError as error:
                self._counts[error.reason.word] += 1
            except ValueError:
                self._counts[Reason.BODY_MALFORMED.word] += 1
        self._told[session.link] = (page.since, page.next)
        if page.more and page.notices:
            self._request(session, now)

    def _learn(self, data: bytes, wall_ns: int) -> None:
        if not self.known.has_notice(data) and self.known.add(new := read_notice(self._statements, data, wall_ns)):
            self._new.append(new)
            self._counts["revocations"] += 1
