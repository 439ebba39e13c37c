"""Faults: what goes wrong in a world, and when.

In:    the faults of a scenario, with their own random stream.
Out:   calls on world and network; entries "fault" and "healed" in the journal; how often each fault struck.
State: counters.
Not here: faults of many brokers (network_faults.py) and of disks (disk_faults.py), what a broken link or a crashed
          host does (network.py, world.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from random import Random

from heliograph.sim.disk_faults import DiskFaults
from heliograph.sim.host import Host
from heliograph.sim.loop import MILLISECOND, SECOND
from heliograph.sim.network import End
from heliograph.sim.network_faults import NetworkFaults, come_back, direction
from heliograph.sim.scenario import OF_DATAGRAMS, OF_DISKS, OF_LINKS, OF_MANY, Fault
from heliograph.sim.wiring import Wiring
from heliograph.sim.world import World

AGAIN_NS = 100 * MILLISECOND


class Faults:
    """Strikes as planned. Each fault has its own random stream, so that adding one does not change the others.

    A fault whose strikes found no host or link at all (hosts were down) strikes the first one that comes: a run in
    which a planned fault never struck would prove nothing.
    """

    def __init__(self, world: World, plan: tuple[Fault, ...], duration_s: float, wiring: Wiring | None = None) -> None:
        self.counts = [0] * len(plan)
        self.plan = plan
        self._left = [0] * len(plan)  # strikes that are still planned
        self._end_ns = int(duration_s * SECOND)
        self._world = world
        self._random = [world.random(f"fault/{number}") for number in range(len(plan))]
        self._network = NetworkFaults(world, wiring, self.begin)
        self._disks = DiskFaults(world, self.begin)
        self._of_hosts: dict[str, Callable[[Fault, Host, Random], None]] = {
            "stop": self._network.stop,
            "replace": self._network.replace,
            "clog": self._network.clog,
            "crash": self._crash,
            "power_cut": self._power_cut,
            "pause": self._pause,
            "slow": self._slow,
            "clock_step": self._step_clock,
            **self._disks.kinds(),
        }
        self._of_links: dict[str, Callable[[Fault, End, Random], None]] = {
            "stall": self._stall,
            "partition": self._partition,
            "reset": self._reset,
            "lag": self._lag,
            "drop_frame": self._drop_frame,
            "unlink": self._network.unlink,
        }
        for number, fault in enumerate(plan):
            for strike in range(fault.times):
                at_s = fault.at_s + strike * fault.every_s + fault.within_s * self._random[number].random()
                if at_s > duration_s:
                    break
                self._left[number] += 1
                world.loop.at(int(at_s * SECOND), self._strike, number)

    def count(self, kind: str) -> int:
        """How often faults of this kind struck."""
        return sum(count for count, fault in zip(self.counts, self.plan, strict=True) if fault.kind == kind)

    def _strike(self, number: int, instant: int) -> None:
        fault, random = self.plan[number], self._random[number]
        self._left[number] -= 1
        if random.random() >= fault.probability:
            return
        if fault.kind in OF_MANY:
            self.counts[number] += self._network.strike(fault, random)
        elif fault.kind in OF_DATAGRAMS:
            self.counts[number] += 1
            self._lossy(fault)
        elif fault.kind in OF_LINKS:
            ends = list(self._links(fault.target))
            if fault.kind == "unlink":
                ends = [end for end in ends if self._network.is_wired(end)]
            if ends:
                self.counts[number] += 1
                self._of_links[fault.kind](fault, random.choice(ends), random)
        else:
            hosts = [h for h in self._world.hosts.values() if h.up and fnmatchcase(h.name, fault.target)]
            if fault.kind in OF_DISKS:
                hosts = [host for host in hosts if self._disks.has_disk(host)]
            if hosts:
                self.counts[number] += 1
                self._of_hosts[fault.kind](fault, random.choice(hosts), random)
        if not self.counts[number] and self._left[number] <= 0 and instant + AGAIN_NS <= self._end_ns:
            self._world.loop.at(instant + AGAIN_NS, self._strike, number)

    def _links(self, target: str) -> Iterator[End]:
        """The directions of links in use that match ``from > to``."""
        source, sink = _directed(target)
        for host in self._world.hosts.values():
            if fnmatchcase(host.name, source):
                for end in host.ends.values():
                    if not (end.pipe or end.over or end.far.over) and fnmatchcase(end.far.host.name, sink):
                        yield end

    def begin(self, fault: Fault, target: str, heal: Callable[[], None] | None) -> None:
        """Record a fault, and schedule its end."""
        self._world.journal.write("fault", target, fault.kind)
        if heal is not None:
            self._world.loop.at(self._world.loop.now + int(fault.for_s * SECOND), self._heal, (fault, target, heal))

    def _heal(self, begun: tuple[Fault, str, Callable[[], None]], _instant: int) -> None:
        fault, target, heal = begun
        self._world.journal.write("healed", target, fault.kind)
        heal()

    # Faults of links.

    def _stall(self, fault: Fault, end: End, _random: Random) -> None:
        end.stop()
        self.begin(fault, direction(end), partial(self._world.network.let_go, end))

    def _partition(self, fault: Fault, end: End, _random: Random) -> None:
        source, sink = end.host, end.far.host
        self._world.block(source, sink)
        self.begin(fault, direction(end), partial(self._world.unblock, source, sink))

    def _reset(self, fault: Fault, end: End, random: Random) -> None:
        self.begin(fault, direction(end), None)
        self._world.network.break_link(end, random.random())

    def _lag(self, fault: Fault, end: End, _random: Random) -> None:
        usual = self._world.distances.delay_ns(end.host.name, end.far.host.name)  # several at once add up
        longer = int(usual * (fault.factor - 1))
        end.lengthen(longer)
        self.begin(fault, direction(end), partial(end.lengthen, -longer))

    def _drop_frame(self, fault: Fault, end: End, _random: Random) -> None:
        self.begin(fault, direction(end), None)
        end.plant_loss()

    # Faults of datagrams.

    def _lossy(self, fault: Fault) -> None:
        worse = (*_directed(fault.target), fault.loss)
        self._world.datagrams.worsen(*worse)
        self.begin(fault, fault.target, partial(self._world.datagrams.better, *worse))

    # Faults of hosts.

    def _crash(self, fault: Fault, host: Host, random: Random) -> None:
        self._go_down(fault, host, random.random(), silent=False)

    def _power_cut(self, fault: Fault, host: Host, random: Random) -> None:
        self._go_down(fault, host, random.random(), silent=True)

    def _go_down(self, fault: Fault, host: Host, keep: float, *, silent: bool) -> None:
        self.begin(fault, host.name, partial(come_back, self._world, host, host.incarnation))
        self._world.crash(host, keep, silent)

    def _pause(self, fault: Fault, host: Host, _random: Random) -> None:
        self.begin(fault, host.name, partial(self._world.go_on, host))
        self._world.pause(host)

    def _slow(self, fault: Fault, host: Host, _random: Random) -> None:
        slower = int(host.service_ns_usual * fault.factor)
        host.slow_down(slower)
        self.begin(fault, host.name, partial(host.slow_down, -slower))

    def _step_clock(self, fault: Fault, host: Host, _random: Random) -> None:
        self.begin(fault, host.name, None)
        self._world.step_clock(host, fault.step_ms * MILLISECOND)


def _directed(target: str) -> tuple[str, str]:
    """Both hosts of ``from > to``."""
    source, _, sink = (part.strip() for part in (target if ">" in target else "* > *").partition(">"))
    return source, sink
