"""Disk faults: faults of the vaults of a host.

In:    a fault that strikes, and the host that was drawn for it.
Out:   calls on the host's disks; the rest as in faults.py.
State: none.
Not here: when and where faults strike (faults.py), what a full or torn disk does (disk.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from heliograph.sim.disk import SimulatedDisk
from heliograph.sim.host import Host
from heliograph.sim.network_faults import Begin, come_back
from heliograph.sim.scenario import Fault
from heliograph.sim.world import World


class DiskFaults:
    """Strikes at all disks of a host."""

    def __init__(self, world: World, begin: Begin) -> None:
        self._world = world
        self._begin = begin

    def kinds(self) -> dict[str, Callable[[Fault, Host, Random], None]]:
        """The function for each kind of disk fault."""
        return {"disk_full": self._full, "disk_slow": self._slow, "disk_torn": self._torn, "disk_flip": self._flip}

    def has_disk(self, host: Host) -> bool:
        """True if such a fault can strike this host."""
        return bool(self._world.disks.of(host))

    def _full(self, fault: Fault, host: Host, _random: Random) -> None:
        disks = self._world.disks.of(host)
        for disk in disks:
            disk.fill()
        self._begin(fault, host.name, partial(_make_room, disks))

    def _slow(self, fault: Fault, host: Host, _random: Random) -> None:
        disks = self._world.disks.of(host)
        for disk in disks:
            disk.slow_down(fault.factor)
        self._begin(fault, host.name, partial(_speed_up, disks, fault.factor))

    def _torn(self, fault: Fault, host: Host, random: Random) -> None:
        for disk in self._world.disks.of(host):
            disk.tear()
        self._begin(fault, host.name, partial(come_back, self._world, host, host.incarnation))
        self._world.crash(host, random.random(), silent=False)

    def _flip(self, fault: Fault, host: Host, random: Random) -> None:
        self._begin(fault, host.name, None)
        self._world.disks.flip(host, random.random())


def _make_room(disks: list[SimulatedDisk]) -> None:
    for disk in disks:
        disk.make_room()


def _speed_up(disks: list[SimulatedDisk], factor: float) -> None:
    for disk in disks:
        disk.speed_up(factor)
