"""Answers: the responses that a search accepts as candidates, and whether there are enough of them.

In:    RESPONSE messages as they came, from brokers or through directories; chains of certificates.
Out:   candidates; which chains are missing; how long to go on waiting.
State: at most ``answers_max`` candidates, and as many each of late answers, answers from other networks, and answers
       whose signer is not known yet.
Not here: asking (search.py, asked.py), judging candidates (selection.py).
Paper: [brokers] §6. The requester's cost does not grow with the number of brokers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import sha256

from heliograph.discovery.brokers import messages, selection
from heliograph.discovery.brokers.asked import AskedParties
from heliograph.discovery.brokers.candidate import Candidate
from heliograph.discovery.brokers.config import DiscoveryConfig
from heliograph.discovery.brokers.messages import Certificate, DiscoveryResponse, Message
from heliograph.discovery.brokers.signing import Signing
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Address, Instant
from heliograph.model.identity import Role

NS_PER_MS = 1_000_000
AWAITED = 0.5  # of the limit: the longest wait for directories that have not yet said which brokers they know
BUSY_PATIENCE = 4  # while all candidates are too busy, wait this many times as long for one farther away

Unread = tuple[Message, Address, Address | None, int | None, Instant]
"""An answer: the response, its sender, the directory it came through, the wall time, the instant."""


class Answers:
    """The answers to one search."""

    def __init__(
        self,
        id: bytes,
        config: DiscoveryConfig,
        signing: Signing,
        parties: AskedParties,
        counts: Counter[str],
        ask_for_chain: Callable[[bytes, Address], None],
    ) -> None:
        self._id = id
        self._config = config
        self._signing = signing
        self._parties = parties
        self._counts = counts
        self._ask_for_chain = ask_for_chain
        self._sent_at: dict[int, Instant] = {}  # attempt -> when it was first sent
        self.candidates: dict[str, Candidate] = {}
        self._marks: set[bytes] = set()  # of the candidates, as directories list them
        self._unread: dict[bytes, Unread] = {}  # by the chain that is needed to verify them
        self.late: dict[str, Candidate] = {}  # arrived after pinging began; used only to tell which networks exist
        self.others: dict[str, Candidate] = {}  # of networks that were not asked for
        self._closed = False  # the candidates are being pinged, so further answers are too late

    def asked(self, attempt: int, now: Instant) -> None:
        """A request of this attempt is sent."""
        self._sent_at.setdefault(attempt, now)

    def take(
        self, message: Message, source: Address, via: Address | None, wall_ns: int | None, arrived: Instant
    ) -> bool:
        """Returns True if this adds a candidate. With a keyring an answer counts only if that broker signed it."""
        try:
            response = self._read(message, wall_ns)
        except ProtocolError as error:
            hash = self._signing.hash_of(message) if error.reason is Reason.CERTIFICATE_UNKNOWN else b""
            if not hash or len(self._unread) >= self._config.answers_max:
                raise
            self._unread.setdefault(hash, (message, source, via, wall_ns, arrived))
            self._ask_for_chain(hash, via or source)
            return False
        sent_at = self._sent_at.get(response.attempt)
        if response.id != self._id or sent_at is None:
            raise ProtocolError(Reason.STALE, "an answer to another request")
        raw_ns = None if wall_ns is None else wall_ns - response.timestamp_ns
        return self._add(Candidate(response, source, via is not None, raw_ns, arrived - sent_at), via or source)

    def _read(self, message: Message, wall_ns: int | None) -> DiscoveryResponse:
        response, holder = self._signing.read(message, DiscoveryResponse, wall_ns, Role.BROKER)
        if holder is not None and holder.identity.entity != response.broker:
            raise ProtocolError(Reason.CREDENTIAL_WRONG, "a broker may answer only for itself")
        return response

    def _add(self, candidate: Candidate, heard_from: Address) -> bool:
        wanted = self._config.network
        key = self._key(candidate)
        known = self.candidates.get(key)
        if wanted is not None and candidate.response.network != wanted:
            self._counts["other_network"] += 1
            self._parties.answered(heard_from)
            self._keep(self.others, key, candidate)
        elif known is not None and (candidate.relayed or not known.relayed):
            self._counts["repeated"] += 1
        elif self._closed or self.enough:
            self._counts["late"] += 1
            self._keep(self.late, key, candidate)
        elif not candidate.urls(self._config.transports):
            self._counts["unreachable"] += 1  # it offers no transport that we have, or its address is unknown
        else:
            if known is None:
                before = sum(one.name == candidate.name for one in self.candidates.values())
                self._marks.add(messages.mark_of(candidate.name, before))
            self.candidates[key] = candidate
            self._parties.answered(heard_from)
            return True
        return False

    def _key(self, candidate: Candidate) -> str:
        """Its name. Two brokers with the same name belong to two networks, and both count."""
        known = self.candidates.get(candidate.name)
        if known is None or known.place == candidate.place:
            return candidate.name
        return f"{candidate.name} {candidate.place}"

    def _keep(self, table: dict[str, Candidate], key: str, candidate: Candidate) -> None:
        if len(table) < self._config.answers_max and candidate.urls(self._config.transports):
            table.setdefault(key, candidate)

    def learn(self, message: Message, wall_ns: int | None) -> bool:
        """A chain arrived that we asked for. Returns True if this adds a candidate."""
        chain = messages.decode(Certificate, message.body).chain
        unread = self._unread.pop(sha256(chain).digest(), None)
        if unread is None:
            return False
        self._signing.learn(chain, wall_ns)
        return self.take(*unread)

    def clear(self) -> None:
        """None of the candidates responds any more: start again."""
        self.candidates.clear()
        self._marks.clear()
        self._closed = False

    def close(self) -> None:
        """The candidates are being pinged: later answers only tell which networks exist."""
        self._closed = True

    # -- are there enough? ------------------------------------------------------------------------------------------

    @property
    def enough(self) -> bool:
        """True if no more answers are wanted."""
        return len(self.candidates) >= self._config.answers_max

    @property
    def _is_good(self) -> bool:
        usages = (candidate.response.usage for candidate in self.candidates.values())
        return sum(not selection.overload_of(usage, self._config) for usage in usages) >= self._config.answers_min

    @property
    def lacking(self) -> bool:
        """True if too few good candidates answered, and other brokers are known."""
        return not self._is_good and self._expected() > len(self.candidates)

    def wait_ns(self, now: Instant) -> int:
        """How long to wait for more answers.

        0 when all have answered; once a good one is there, as long again as the last one took; longer if all are busy.
        In addition, wait for directories that have not yet said which brokers they know.
        """
        config, candidates = self._config, self.candidates.values()
        if self.enough:
            return 0
        least_ns = config.patience_ms_min * NS_PER_MS
        limit_ns = int(config.timeout_ms * NS_PER_MS * AWAITED)
        awaited_ns = max(0, self._parties.awaited_until(min(self._sent_at.values()), least_ns, limit_ns) - now)
        if 0 < self._expected() <= len(candidates) and not self._parties.silent:
            return awaited_ns
        last_ns = max(*(candidate.elapsed_ns for candidate in candidates), self._parties.slowest_ns(self._marks))
        wait_ns = max(least_ns, int(config.patience * last_ns))
        usual_ns = wait_ns if self._is_good else max(config.fallback_ms * NS_PER_MS, BUSY_PATIENCE * wait_ns)
        return max(usual_ns, awaited_ns)

    def _expected(self) -> int:
        """How many should answer, as far as directories and the brokers themselves know; 0: unknown."""
        islands: dict[str, int] = {}
        for candidate in self.candidates.values():
            island = candidate.response.island
            islands[island] = max(islands.get(island, 0), candidate.response.brokers)
        if not self._parties.informed and max(islands.values()) == 1:
            return 0  # unlinked brokers know only themselves
        return max(len(self.candidates) + self._parties.missing(self._marks), sum(islands.values()))
