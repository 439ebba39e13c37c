"""Asked parties: the directories, brokers and group that a search asks, and in what order.

In:    the settings, remembered brokers; what each party sent back.
Out:   AskedParty per party; the parties that are asked now.
State: per party its cookie and what it sent back.
Not here: the request itself and what is done with answers (search.py).
Paper: [brokers] §3 and §7: directories and multicast first, then the last target set, then a fixed list.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from heliograph.discovery.brokers.config import DiscoveryConfig, address_of, written
from heliograph.discovery.brokers.messages import MARK_BYTES, NO_COOKIE, Acknowledgement
from heliograph.discovery.brokers.remembered import Remembered, Vouched
from heliograph.machine import Address, Instant, LinkId
from heliograph.wire.bodies import reason_of

DIRECTORY, LINK, MULTICAST, NEIGHBOUR, REMEMBERED, STATIC = (
    *("directory", "directory by TCP", "multicast", "broker in the group", "remembered broker", "listed broker"),
)
NS_PER_MS = 1_000_000
SILENT_NS = 100 * NS_PER_MS  # wait for a silent directory once another has answered; covers most of a continent


@dataclass(slots=True, eq=False)
class AskedParty:
    """One party that is asked."""

    how: str
    address: Address
    nonce: bytes = NO_COOKIE  # we send it first, and its challenge returns it
    cookie: bytes = b""  # what it requires in requests; empty: not known yet
    link: LinkId | None = None  # LINK: once it is up
    sent: int = 0
    sent_at: Instant = 0
    round_trip_ns: int | None = None  # its fastest answer
    acknowledged_at: Instant | None = None
    brokers: int = 0  # how many brokers a directory knows …
    listed: frozenset[bytes] = frozenset()  # … and, if they are few, which
    refusal: str = ""
    answers: int = 0
    has_chain: bool = False  # it asked for our certificates
    takes_links: bool = False  # STATIC: it may be a broker that answers no searches
    waits: bool = False  # NEIGHBOUR: waiting for its cookie; other brokers may pass it our request first

    def introduced(self, nonce: bytes) -> None:
        """The nonce that its first request carries."""
        self.nonce = nonce

    def asked(self, now: Instant) -> None:
        """A request is sent to it."""
        self.sent += 1
        self.sent_at = now

    def challenged(self, cookie: bytes, *, waits: bool) -> None:
        """It requires this cookie. With ``waits`` the cookie is presented later."""
        self.cookie, self.waits = cookie, waits

    def stop_waiting(self) -> None:
        """It is being asked now, or has answered."""
        self.waits = False

    def refused(self, text: str) -> None:
        """It cannot be asked, or refuses."""
        self.refusal = text

    def takes_chain(self) -> bool:
        """It asked for our certificates. Returns True the first time."""
        first, self.has_chain = not self.has_chain, True
        return first

    def accepted_link(self) -> None:
        """STATIC: it accepted a link."""
        self.takes_links = True

    def linked(self, link: LinkId | None) -> None:
        """LINK: its link is up, or has closed."""
        self.link = link

    def answered(self) -> None:
        """A broker that was found through this party answered."""
        self.answers += 1

    def heard(self, now: Instant) -> None:
        """The party sent something."""
        took = now - self.sent_at
        self.round_trip_ns = took if self.round_trip_ns is None else min(took, self.round_trip_ns)

    def acknowledged(self, said: Acknowledgement, now: Instant) -> None:
        """A directory has accepted or refused the request."""
        self.acknowledged_at = self.acknowledged_at or now
        self.brokers = max(self.brokers, said.brokers)
        marks = (said.listed[at : at + MARK_BYTES] for at in range(0, len(said.listed), MARK_BYTES))
        self.listed = self.listed.union(marks)
        if said.reason:
            self.refusal = f"{reason_of(said.reason).word}: {said.text}"

    def describe(self, start: Instant) -> str:
        """The outcome for this party, for people."""
        name = f"{self.how} {written(self.address)}"
        if self.refusal:
            return f"{name}: refused, {self.refusal}"
        if self.answers:
            some = "an answer" if self.answers == 1 else f"{self.answers} answers"
            return f"{name}: {some}"
        if self.acknowledged_at is not None:
            knows = {0: "no broker", 1: "1 broker"}.get(self.brokers, f"{self.brokers} brokers")
            return f"{name}: acknowledged after {(self.acknowledged_at - start) / 1e6:.1f} ms, knows {knows}"
        if self.takes_links:
            return f"{name}: takes links, but answers no searches"
        if self.round_trip_ns is not None:
            return f"{name}: heard, but it answered nothing more"
        if not self.sent:
            return f"{name}: could not be asked"
        links = ", and it takes no links" if self.how == STATIC else ""
        return f"{name}: asked {'once' if self.sent == 1 else f'{self.sent} times'}, no answer{links}"


class AskedParties:
    """All parties that a search may ask."""

    def __init__(self, config: DiscoveryConfig, remembered: Sequence[Remembered]) -> None:
        self._neighbours_max = config.answers_max
        first = _asks(DIRECTORY, config.directories) + _asks(LINK, config.directory_links)
        group = [AskedParty(MULTICAST, config.multicast.address)] if config.multicast.enabled else []
        if not config.group_later:
            first, group = first + group, []
        named = [] if config.is_implied else [written(ask.address) for ask in first if ask.how in (DIRECTORY, LINK)]
        self.vouched: Vouched = {
            (one.broker, one.address): one.listed for one in remembered if any(known in named for known in one.listed)
        }
        self._named = frozenset(named)
        levels = (first, group, _asks(REMEMBERED, [one.address for one in remembered]), _asks(STATIC, config.brokers))
        self._later = [level for level in levels if level]
        self.asked: list[AskedParty] = []
        self._by_address: dict[Address, AskedParty] = {}
        self._by_link: dict[LinkId, AskedParty] = {}

    @property
    def more(self) -> bool:
        """True if there are further parties to fall back on."""
        return bool(self._later)

    def widen(self) -> list[AskedParty]:
        """Ask the next level as well, and return the parties that were not asked before."""
        new = [ask for ask in (self._later.pop(0) if self._later else []) if ask.address not in self._by_address]
        for ask in new:
            self.asked.append(ask)
            if ask.how != LINK:
                self._by_address[ask.address] = ask
        return new

    def due(self) -> list[AskedParty]:
        """The parties to ask again: all that have not refused."""
        for ask in self.asked:
            ask.stop_waiting()
        return [ask for ask in self.asked if not ask.refusal]

    def of(self, source: Address) -> AskedParty | None:
        """The party that was asked at this address."""
        return self._by_address.get(source)

    def challenged(self, source: Address) -> AskedParty | None:
        """The party that sent a challenge: one that was asked, or a broker that received the multicast."""
        ask = self._by_address.get(source)
        if ask is not None:
            return ask
        if not any(ask.how == MULTICAST for ask in self.asked):
            return None
        if sum(ask.how == NEIGHBOUR for ask in self.asked) >= self._neighbours_max:
            return None
        ask = self._by_address[source] = AskedParty(NEIGHBOUR, source)
        self.asked.append(ask)
        return ask

    def answered(self, source: Address) -> None:
        """A broker answered: count it for this party, and for the group if the broker was found there."""
        ask = self._by_address.get(source)
        if ask is not None:
            ask.answered()
            ask.stop_waiting()
        if ask is not None and ask.how == NEIGHBOUR:
            next(ask for ask in self.asked if ask.how == MULTICAST).answered()

    def linked(self, ask: AskedParty, link: LinkId | None) -> None:
        """A directory's link is up, or has closed."""
        if ask.link is not None:
            self._by_link.pop(ask.link, None)
        ask.linked(link)
        if link is not None:
            self._by_link[link] = ask

    def on(self, link: LinkId) -> AskedParty | None:
        """The party at the other end of this link."""
        return self._by_link.get(link)

    def link_to(self, address: Address) -> LinkId | None:
        """The link to the directory at this address, if there is one."""
        return next((link for link, ask in self._by_link.items() if ask.address == address), None)

    @property
    def shown(self) -> int:
        """The number of brokers of the group that we have sent their cookie."""
        return sum(ask.how == NEIGHBOUR and not ask.waits for ask in self.asked)

    def waiting(self) -> list[AskedParty]:
        """Brokers of the group that wait for their cookie, and have not answered through the network."""
        return [ask for ask in self.asked if ask.waits]

    @property
    def silent(self) -> bool:
        """True if a broker of the group has contacted us and not answered yet."""
        return any(ask.how == NEIGHBOUR and not ask.answers for ask in self.asked)

    @property
    def reachable(self) -> list[Address]:
        """The brokers of the static list that take links."""
        return [ask.address for ask in self.asked if ask.takes_links]

    @property
    def quiet(self) -> bool:
        """True if no party has answered, but a listed broker takes links."""
        return bool(self.reachable) and all(ask.round_trip_ns is None for ask in self.asked)

    # -- what all directories together know ---------------------------------------------------------------------

    @property
    def has_list(self) -> bool:
        """True if a directory has said that it knows brokers."""
        return any(ask.how in (DIRECTORY, LINK) and ask.brokers for ask in self.asked)

    @property
    def lists(self) -> tuple[str, ...]:
        """The directories, named by the user, that have said that they know brokers."""
        found = [written(ask.address) for ask in self.asked if ask.how in (DIRECTORY, LINK) and ask.brokers]
        return tuple(sorted(self._named.intersection(found)))

    @property
    def informed(self) -> bool:
        """True if a directory knows of brokers."""
        return any(ask.brokers or ask.listed for ask in self.asked)

    def missing(self, answered: AbstractSet[bytes]) -> int:
        """How many brokers that directories know of have not answered.

        The lists of directories are merged. Directories that list no brokers may know others than the rest do: their
        counts are added up, and a broker that answered without being listed may be one of theirs.
        """
        listed = frozenset[bytes]().union(*(ask.listed for ask in self.asked))
        counted = sum(ask.brokers for ask in self.asked if not ask.listed)
        return len(listed - answered) + max(0, counted - len(answered - listed))

    def slowest_ns(self, answered: AbstractSet[bytes]) -> int:
        """The round trip to the farthest directory with a listed broker that has not answered."""
        trips = (ask.round_trip_ns for ask in self.asked if not ask.listed <= answered)
        return max((trip for trip in trips if trip is not None), default=0)

    def awaited_until(self, start: Instant, spare_ns: int, limit_ns: int) -> Instant:
        """Until when to wait for directories that have not yet named their brokers; ``start`` if there are none.

        One that sent its challenge answers within a round trip, so it gets two and a margin. One that sent nothing is
        waited for only if another directory has answered, so a single directory that is down costs no time.
        """
        directories = [ask for ask in self.asked if ask.how in (DIRECTORY, LINK) and not ask.refusal]
        spoken = any(ask.round_trip_ns is not None for ask in directories)
        until = start
        for ask in directories:
            if ask.acknowledged_at is None and ask.round_trip_ns is not None:
                until = max(until, ask.sent_at + 2 * ask.round_trip_ns + spare_ns)
            elif ask.acknowledged_at is None and spoken:
                until = max(until, start + SILENT_NS)
        return min(until, start + limit_ns)

    def describe(self, start: Instant) -> tuple[str, ...]:
        """What was tried, for people."""
        return tuple(ask.describe(start) for ask in self.asked if ask.how != NEIGHBOUR)


def _asks(how: str, texts: Sequence[str]) -> list[AskedParty]:
    addresses = dict.fromkeys(address for text in texts if (address := address_of(text)) is not None)
    return [AskedParty(how, address) for address in addresses]
