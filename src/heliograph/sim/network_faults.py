"""Network faults: faults between brokers that concern more than one link or one host.

In:    a fault that strikes, and the host or link that was drawn for it.
Out:   calls on world and wiring; the rest as in faults.py.
State: none.
Not here: when and where faults strike (faults.py), how links and brokers come and go (wiring.py).
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from random import Random

from heliograph.broker.commands import Stop
from heliograph.node import BROKER
from heliograph.sim.host import Host
from heliograph.sim.loop import SECOND
from heliograph.sim.network import End, LinkHost
from heliograph.sim.scenario import Fault
from heliograph.sim.wiring import Wiring
from heliograph.sim.world import World
from heliograph.topology.scenario_network import DRAWS_MAX, Pair

CLOGGED = 0.6  # share of the time of a clog during which links are clogged; in the rest they are released
PATIENCE_NS = SECOND // 4

Begin = Callable[[Fault, str, Callable[[], None] | None], None]


class NetworkFaults:
    """Strikes brokers and the links between them."""

    def __init__(self, world: World, wiring: Wiring | None, begin: Begin) -> None:
        self._world = world
        self._wiring = wiring
        self._begin = begin

    @property
    def wiring(self) -> Wiring:
        """The wiring; a world without one has no brokers for such faults."""
        assert self._wiring is not None
        return self._wiring

    def strike(self, fault: Fault, random: Random) -> bool:
        """Draw matching brokers, and strike; False if there are not enough."""
        hosts = [
            host for host in self._world.hosts.values() if _is_broker(host) and fnmatchcase(host.name, fault.target)
        ]
        if len(hosts) < 2:
            return False
        return self._divide(fault, hosts, random) if fault.kind == "divide" else self._link(fault, hosts, random)

    def _divide(self, fault: Fault, hosts: list[Host], random: Random) -> bool:
        cut_off = random.sample(hosts, random.randint(1, len(hosts) // 2))
        others = [host for host in self._world.hosts.values() if _is_broker(host) and host not in cut_off]
        pairs = [pair for one in cut_off for other in others for pair in ((one, other), (other, one))]
        for pair in pairs:
            self._world.block(*pair)
        self._begin(fault, ",".join(host.name for host in cut_off), partial(self._unite, pairs))
        return True

    def _unite(self, pairs: list[tuple[Host, Host]]) -> None:
        for pair in pairs:
            self._world.unblock(*pair)

    def _link(self, fault: Fault, hosts: list[Host], random: Random) -> bool:
        for _ in range(DRAWS_MAX):
            one, other = random.sample(hosts, 2)
            if self.wiring.pair(one.name, other.name) is None:
                pair = (one.name, other.name)
                self.wiring.add(pair)
                self._begin(fault, " > ".join(pair), partial(self._remove, pair))
                return True
        return False

    def _remove(self, pair: Pair) -> None:
        if pair in self.wiring.pairs:
            self.wiring.remove(pair)

    def _add(self, pair: Pair) -> None:
        if self.wiring.pair(*pair) is None:
            self.wiring.add(pair)

    # Faults of a drawn link or host.

    def is_wired(self, end: End) -> bool:
        """True if this is a link between brokers that an operator made."""
        return self._wiring is not None and self._wiring.pair(end.host.name, end.far.host.name) is not None

    def unlink(self, fault: Fault, end: End, _random: Random) -> None:
        """An operator removes a link, and adds it again."""
        pair = self.wiring.pair(end.host.name, end.far.host.name)
        assert pair is not None
        self.wiring.remove(pair)
        self._begin(fault, direction(end), partial(self._add, pair))

    def clog(self, fault: Fault, host: Host, random: Random) -> None:
        """All directions of a broker's links stop, one after another; they are released in another order."""
        others = {end.far.host.name: end.far.host for end in host.ends.values() if not end.pipe}
        brokers = [other for other in others.values() if _is_broker(other)]
        directions = [pair for other in brokers for pair in ((host, other), (other, host))]
        world, lasts = self._world, fault.for_s * SECOND
        for pair in directions:
            clogged = int(lasts * CLOGGED * random.random())
            free = int(lasts * (CLOGGED + (1 - CLOGGED) * random.random()))
            world.loop.at(world.loop.now + clogged, _block, (world, pair))
            world.loop.at(world.loop.now + free, _unblock, (world, pair))
        self._begin(fault, host.name, _nothing)

    def stop(self, fault: Fault, host: Host, _random: Random) -> None:
        """An operator stops a broker, and starts it again."""
        host.tell(host.seat(BROKER), Stop())
        self._begin(fault, host.name, partial(come_back, self._world, host, host.incarnation))

    def replace(self, fault: Fault, host: Host, random: Random) -> None:
        """A broker dies; another takes its place and address."""
        self.wiring.rename(host)
        self._begin(fault, host.name, partial(come_back, self._world, host, host.incarnation))
        self._world.crash(host, random.random(), silent=False)


def come_back(world: World, host: Host, incarnation: int) -> None:
    """Start a host again, unless that was done; if it has not ended yet (it may be paused), wait for that."""
    if host.incarnation != incarnation:
        return
    if host.up:
        world.loop.at(world.loop.now + PATIENCE_NS, _try_again, (world, host, incarnation))
    else:
        world.start(host)


def _try_again(planned: tuple[World, Host, int], _instant: int) -> None:
    come_back(*planned)


def direction(end: End) -> str:
    """A link's direction: from host > to host."""
    return f"{end.host.name} > {end.far.host.name}"


def _is_broker(host: LinkHost) -> bool:
    return any(seat.name == BROKER for seat in host.seats)


def _block(pair: tuple[World, tuple[LinkHost, LinkHost]], _instant: int) -> None:
    pair[0].block(*pair[1])


def _unblock(pair: tuple[World, tuple[LinkHost, LinkHost]], _instant: int) -> None:
    pair[0].unblock(*pair[1])


def _nothing() -> None:
    pass
