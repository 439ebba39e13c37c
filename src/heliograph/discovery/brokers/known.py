"""Known brokers: the broker advertisements that a directory keeps, and how far each broker is.

In:    broker advertisements, measured round trips, time.
Out:   brokers to hand a request to: of each island the nearest and the farthest.
State: at most ``brokers_max`` of them until they expire; per island those that are measured, sorted by distance.
Not here: which brokers are near a requester (landmarks.py), hearing and pinging them (directory.py).
Paper: [brokers] §2.3 (filters), §4 (closest and farthest).

An advertisement may be false. So a broker is identified by name, host and port together, and none can take another's
place; a request goes only to brokers that have answered a ping from there (*proven*), and an old advertisement renews
nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from heliograph.discovery.brokers.config import DirectoryConfig
from heliograph.discovery.brokers.known_broker import Key, KnownBroker, key_of
from heliograph.discovery.brokers.landmarks import BROKERS_MIN, LandmarkTable
from heliograph.discovery.brokers.messages import LIFETIME_S_MAX, BrokerAdvertisement
from heliograph.discovery.soft_state import SoftState
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Address, Instant, LinkId

NS_PER_S = 1_000_000_000
SMOOTH = 4  # the weight of a new round trip is a quarter
NAMED_MAX = 2  # networks named in a refusal, which has 200 characters


class KnownBrokers:
    """The table of one directory."""

    def __init__(self, config: DirectoryConfig) -> None:
        self._config = config
        self._brokers: SoftState[Key, KnownBroker] = SoftState(config.brokers_max)
        self._by_address: dict[Address, dict[Key, KnownBroker]] = {}
        self._islands: dict[str, list[tuple[int, Key]]] = {}  # measured brokers, nearest first
        self._turn = 0
        self.landmarks = LandmarkTable()
        self.measured = 0  # how many answer pings

    def __len__(self) -> int:
        return len(self._brokers)

    @property
    def islands(self) -> int:
        """How many groups of linked brokers there are."""
        return len(self._islands)

    def at(self, address: Address) -> list[KnownBroker]:
        """The brokers that receive datagrams there according to their advertisements; at most one can be right."""
        return list(self._by_address.get(address, {}).values())

    def all(self) -> list[KnownBroker]:
        """All known brokers."""
        return self._brokers.values()

    def get(self, key: Key) -> KnownBroker | None:
        """The broker with that name, host and port."""
        return self._brokers.get(key)

    def add(
        self, advertisement: BrokerAdvertisement, source: Address | None, cookie: bytes, now: Instant
    ) -> KnownBroker:
        """Keep an advertisement. ProtocolError if it is unwanted, not newer than the known one, or over the limit."""
        self._check_wanted(advertisement)
        key = _, host, port = key_of(advertisement, source)
        address = source if source and source[1] else (host, port) if host and port else None
        known = self._brokers.get(key)
        if known is None:
            if self._brokers.is_full:
                raise ProtocolError(Reason.BROKERS_OVER_LIMIT, f"{self._config.brokers_max} brokers are known already")
            known = KnownBroker(key, advertisement, cookie)
            self._move(known, address)
        else:
            renewed = self._renew(known, advertisement, cookie)
            if not known.proven and address is not None:  # a broker that answers pings keeps its address
                self._move(known, address)
            if not renewed:
                return known
        self._brokers.keep(key, known, now + min(advertisement.lifetime_s, LIFETIME_S_MAX) * NS_PER_S)
        self.landmarks.place(known)
        return known

    def _renew(self, known: KnownBroker, advertisement: BrokerAdvertisement, cookie: bytes) -> bool:
        """Accept a newer advertisement of a broker. Returns False for the same one by another path, which renews
        nothing."""
        age = (advertisement.incarnation, advertisement.number)
        if age < known.age:
            raise ProtocolError(Reason.ADVERTISEMENT_STALE, "a newer one is known")
        if age == known.age:
            known.showed(cookie)
            return False
        round_trip_ns = known.round_trip_ns
        self._unmeasure(known)
        known.renewed(advertisement, cookie)
        if round_trip_ns is not None:
            self._measure(known, round_trip_ns)
        return True

    def _move(self, known: KnownBroker, address: Address | None) -> None:
        """It receives datagrams there from now on."""
        if known.address is not None:
            there = self._by_address[known.address]
            del there[known.key]
            if not there:
                del self._by_address[known.address]
        known.moved(address)
        if address is not None:
            self._by_address.setdefault(address, {})[known.key] = known

    def withdraw(
        self,
        advertisement: BrokerAdvertisement,
        source: Address | None,
        cookie: bytes,
        link: LinkId | None,
        *,
        proven: bool,
    ) -> None:
        """A broker stops. Unless proven, it must say so on its link, or with the cookie that only it and we know."""
        known = self._brokers.get(key_of(advertisement, source))
        if known is None or advertisement.incarnation < known.advertisement.incarnation:
            raise ProtocolError(Reason.ADVERTISEMENT_STALE, "it is not known, or has been restarted since")
        same = (link is not None and link == known.link) or (any(cookie) and cookie == known.cookie)
        if not proven and not same:
            raise ProtocolError(Reason.SENDER_UNPROVEN, "only the broker itself may withdraw it")
        self._forget(known)

    def reload(self, config: DirectoryConfig) -> None:
        """Apply new settings, and forget the brokers that they exclude."""
        self._config = config
        self._brokers.limit(config.brokers_max)
        for known in self.all():
            try:
                self._check_wanted(known.advertisement)
            except ProtocolError:
                self._forget(known)

    def _check_wanted(self, advertisement: BrokerAdvertisement) -> None:
        config = self._config
        for name, wanted in (("geography", config.geographies), ("institution", config.institutions)):
            text = getattr(advertisement, name)
            if wanted and not text.startswith(wanted):
                raise ProtocolError(Reason.ADVERTISEMENT_UNWANTED, f"this directory does not keep {name} {text!r}")

    # -- distances --------------------------------------------------------------------------------------------------

    def ponged(self, known: KnownBroker, round_trip_ns: int, now: Instant) -> None:
        """It answered a ping."""
        before = known.round_trip_ns
        self._unmeasure(known)
        known.ponged(now)
        self._measure(known, round_trip_ns if before is None else before + (round_trip_ns - before) // SMOOTH)

    def missed(self, known: KnownBroker) -> None:
        """It did not answer a ping; after several in a row it counts as unreachable until it answers."""
        if known.missed():
            self._unmeasure(known)

    def doubt(self, known: KnownBroker) -> None:
        """It has not answered for long, or is no longer at its address: it has to be proven again."""
        self._unmeasure(known)
        known.doubted()

    def _measure(self, known: KnownBroker, round_trip_ns: int) -> None:
        self.measured += 1
        known.measured(round_trip_ns)
        insort(self._islands.setdefault(known.advertisement.island, []), (round_trip_ns, known.key))

    def _unmeasure(self, known: KnownBroker) -> None:
        if known.round_trip_ns is None:
            return
        self.measured -= 1
        island = self._islands[known.advertisement.island]
        del island[bisect_left(island, (known.round_trip_ns, known.key))]
        if not island:
            del self._islands[known.advertisement.island]
        known.measured(None)

    def tend_landmarks(self) -> None:
        """In a large network, choose some brokers as landmarks for the others."""
        if self.landmarks.tend() and self.measured > BROKERS_MIN:
            self.landmarks.choose(self.all())

    def expire(self, now: Instant) -> None:
        """Forget brokers that were not renewed."""
        for known in self._brokers.expire(now):
            self._clean_up(known)

    def _forget(self, known: KnownBroker) -> None:
        self._brokers.forget(known.key)
        self._clean_up(known)

    def _clean_up(self, known: KnownBroker) -> None:
        """Remove a forgotten broker from every index."""
        self._unmeasure(known)
        self.landmarks.forget(known)
        self._move(known, None)

    # -- choosing ---------------------------------------------------------------------------------------------------

    def count(self, network: str) -> int:
        """How many brokers of this network answer pings; "": of all."""
        return sum(map(len, self._of(network).values())) if network else self.measured

    def names(self, most: int, network: str) -> list[str]:
        """Their names; empty if there are more than ``most``."""
        if self.count(network) > most:
            return []
        return [key[0] for island in self._of(network).values() for _, key in island]

    def describe_networks(self) -> str:
        """Some of the networks that are known by a name."""
        found = dict.fromkeys(self._brokers[one[0][1]].advertisement.network for one in self._islands.values())
        names = sorted(filter(None, found))
        return f"; there is {', '.join(names[:NAMED_MAX])}{' …' if len(names) > NAMED_MAX else ''}" if names else ""

    def _of(self, network: str) -> dict[str, list[tuple[int, Key]]]:
        """The islands of a network ("": all). Linked brokers belong to one network."""
        if not network:
            return self._islands
        named = self._brokers
        return {name: one for name, one in self._islands.items() if named[one[0][1]].advertisement.network == network}

    def ends(self, budget: int, network: str = "") -> list[KnownBroker]:
        """The brokers that get a request: the nearest and the farthest of each island, to spread it from both ends.

        An unlinked broker is an island of its own and always gets it. If there are more islands than answers wanted,
        they take turns.
        """
        islands = self._of(network)
        names = list(islands)
        if len(names) > budget:
            first = self._turn % len(names)
            self._turn += budget
            names = (names + names)[first : first + budget]
        keys: dict[Key, None] = {}
        for name in names:
            island = islands[name]
            keys[island[0][1]] = None
            keys[island[-1][1]] = None
        return [self._brokers[key] for key in keys]

    def several(self, budget: int, network: str = "") -> list[KnownBroker]:
        """For a repeated request: brokers spread over each island, as its ends may be the cause of the failure."""
        islands = self._of(network)
        found = dict.fromkeys(self.ends(budget, network))
        each = max(1, budget // max(1, len(islands)))
        for island in list(islands.values())[:budget]:
            step = max(1, len(island) // each)
            found.update(dict.fromkeys(self._brokers[key] for _, key in island[::step][:each]))
        return list(found)[: 2 * budget]

    def all_of(self, budget: int, network: str = "") -> list[KnownBroker]:
        """The nearest brokers of all islands, as many as answers are wanted."""
        found = sorted(entry for island in self._of(network).values() for entry in island)
        return [self._brokers[key] for _, key in found[:budget]]

    def nearest(self, count: int) -> list[KnownBroker]:
        """The nearest broker of each island, nearest first."""
        firsts = sorted(island[0] for island in list(self._islands.values())[:count])
        return [self._brokers[key] for _, key in firsts]


def _key(advertisement: BrokerAdvertisement, source: Address | None) -> Key:
    host = advertisement.host or (source[0] if source else "")
    return advertisement.broker, host, advertisement.ports.get("udp", 0)
