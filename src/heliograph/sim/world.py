"""The simulated world: hosts, network and virtual time, all determined by a seed.

In:    nodes to run (the same machines as live), a seed, settings; then crashes, pauses and clock steps.
Out:   a run that is identical to the last byte if seed and inputs are the same; digest and journal.
State: the hosts; loop, network, digest and journal hold the rest.
Not here: what goes wrong and when (faults.py), what clients do (workloads.py), reading scenarios (scenario.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random

from heliograph.model.identity import Identity
from heliograph.sim.clock import WallClock
from heliograph.sim.datagrams import DatagramSettings, SimulatedDatagrams
from heliograph.sim.dials import SimulatedDials, SimulatedListener
from heliograph.sim.digest import Digest
from heliograph.sim.disk import SimulatedDisks
from heliograph.sim.distances import Distances, NetworkSettings, Ruler
from heliograph.sim.effects import EffectCarrier
from heliograph.sim.host import Build, Host, HostSurroundings, MachineError
from heliograph.sim.jobs import SimulatedWorkers
from heliograph.sim.journal import Journal
from heliograph.sim.loop import MICROSECOND, MILLISECOND, NEVER, SECOND, Loop
from heliograph.sim.network import Flows, LinkHost, SimulatedNetwork
from heliograph.sim.seat import ContractError

CLOCK_NS = 10 * SECOND  # how often machines are told the wall time, as the live driver does
LINGER = 0.05  # probability that an idle host waits for more input before it handles the first
SHIFT_NS_MAX = 1 << 50  # each node's monotonic clock starts with another value: about 13 days at most


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """How the computers of brokers and clients behave."""

    service_us: float = 5.0  # the cost of one input; each host draws its own, near this
    inputs_per_take_max: int = 4  # a turn handles up to this many waiting inputs before it carries out effects
    clock_skew_ms: float = 100.0  # wall clocks are wrong by up to this much …
    clock_drift_ppm: int = 50  # … and drift by up to this
    job_ms: float = 5.0  # the longest time of a slow job
    disk_ms: float = 5.0  # the longest time of a commit or a read

    def problems(self, path: str = "hosts") -> list[str]:
        """All problems with these settings."""
        found = []
        if not 0.1 <= self.service_us <= 1_000_000:
            found.append(f"{path}.service_us = {self.service_us}: must be between 0.1 and 1000000")
        if not 1 <= self.inputs_per_take_max <= 1_000:
            found.append(f"{path}.inputs_per_take_max = {self.inputs_per_take_max}: must be between 1 and 1000")
        most_of = {"clock_skew_ms": 86_400_000, "clock_drift_ppm": 100_000, "job_ms": 60_000, "disk_ms": 60_000}
        for name, most in most_of.items():
            if not 0 <= getattr(self, name) <= most:
                found.append(f"{path}.{name} = {getattr(self, name)}: must be between 0 and {most}")
        return found


class World:
    """Everything that exists in a run."""

    def __init__(
        self,
        seed: int,
        *,
        network: NetworkSettings | None = None,
        hosts: HostSettings | None = None,
        datagrams: DatagramSettings | None = None,
        ruler: Ruler | None = None,
        flows: Flows = lambda _: None,
        keep_journal: bool = False,
    ) -> None:
        settings = self._settings = hosts or HostSettings()
        links = network or NetworkSettings()
        self.seed = seed
        self.loop = loop = Loop()
        self.journal = Journal(loop, keep_all=keep_journal)
        self.digest = Digest()
        self.distances = Distances(links, ruler)
        draw: Callable[[], float] = self.random("network").random
        self.network = SimulatedNetwork(links, self.distances, loop, draw, self.digest, flows)
        self._dials = SimulatedDials(loop, self.network, self.distances, draw)
        self.datagrams = SimulatedDatagrams(
            datagrams or DatagramSettings(),
            self.distances,
            self.network,
            loop,
            self.journal,
            self.random("datagrams"),
        )
        self.disks = SimulatedDisks(loop, self.journal, self.random("disks"), settings.disk_ms)
        self.hosts: dict[str, Host] = {}
        draw_hosts = self.random("hosts").random
        self.workers = SimulatedWorkers(loop, draw_hosts, settings.job_ms)
        self._around = self._surroundings(draw_hosts)
        loop.at(CLOCK_NS, self._tick, None)

    def _surroundings(self, draw: Callable[[], float]) -> HostSurroundings:
        """What all hosts share."""
        effects = EffectCarrier(
            loop=self.loop,
            journal=self.journal,
            digest=self.digest,
            network=self.network,
            dials=self._dials,
            datagrams=self.datagrams,
            disks=self.disks,
            workers=self.workers,
        )
        return HostSurroundings(
            loop=self.loop,
            journal=self.journal,
            network=self.network,
            datagrams=self.datagrams,
            disks=self.disks,
            effects=effects,
            draw=draw,
            seat_numbers=count(1),
            linger=LINGER if self._settings.inputs_per_take_max > 1 else 0.0,
            inputs_per_take_max=self._settings.inputs_per_take_max,
        )

    def random(self, stream: str) -> Random:
        """A separate random source for this purpose: drawing from one does not affect others."""
        return Random(f"{self.seed}/{stream}")

    @property
    def step(self) -> int:
        """How many inputs machines have had so far."""
        return self.loop.step

    # Hosts.

    def add(
        self,
        name: str,
        build: Build,
        *,
        wall: WallClock | None = None,
        identity: Identity | None = None,
        serial: str = "",
        expires_ms: int | None = None,
    ) -> Host:
        """A host that is not running yet. ``build`` makes new machines for each incarnation.

        Its wall clock is drawn from the seed, unless one is given.
        """
        assert name not in self.hosts, f"two hosts are called {name}"
        settings = self._settings
        draw = self.random(f"host/{name}").random
        service_ns = max(1, int(settings.service_us * MICROSECOND * (0.5 + draw())))
        drawn_wall = WallClock(
            int(settings.clock_skew_ms * MILLISECOND * (2 * draw() - 1)),
            int(settings.clock_drift_ppm * (2 * draw() - 1)),
        )
        shift = int(SHIFT_NS_MAX * draw())
        host = self.hosts[name] = Host(
            self._around,
            name,
            build,
            service_ns=service_ns,
            wall=wall or drawn_wall,
            shift=shift,
            identity=identity,
            serial=serial,
            expires_ms=expires_ms,
        )
        return host

    def listen(self, host: Host, address: tuple[str, int], listener: str, machine: str, secure: bool = False) -> None:
        """Let peers dial this address; it answers while the host runs."""
        self._dials.listen(address, SimulatedListener(host, machine, listener, secure))

    def start(self, host: Host) -> None:
        """Start a host."""
        host.start()

    def crash(self, host: Host, keep: float = 0.0, silent: bool = False) -> None:
        """A host loses its memory."""
        host.crash(keep, silent)

    def pause(self, host: Host) -> None:
        """A host handles nothing for a while."""
        host.pause()

    def go_on(self, host: Host) -> None:
        """A pause has ended."""
        host.go_on()

    def block(self, source: LinkHost, sink: LinkHost) -> None:
        """From now on nothing from one host arrives at the other, and no new links between them can be made."""
        self.network.block(source.name, sink.name, 1)
        for end in sink.ends.values():
            if end.far.host is source:
                end.far.stop()

    def unblock(self, source: LinkHost, sink: LinkHost) -> None:
        """Undo one block; after the last, everything that waited arrives."""
        self.network.block(source.name, sink.name, -1)
        for end in sink.ends.values():  # those of the sink, as the source may have given up its own end
            if end.far.host is source:
                self.network.let_go(end.far)

    def step_clock(self, host: Host, by_ns: int) -> None:
        """Set a host's wall clock; its machines are told at once."""
        host.wall.step(by_ns)
        host.look_at_clock()

    def _tick(self, _: None, instant: int) -> None:
        for host in self.hosts.values():
            host.look_at_clock()
        self.loop.at(instant + CLOCK_NS, self._tick, None)

    # Time.

    def run(self, until: int) -> None:
        """Run the world to this instant. A machine that fails ends the run."""
        try:
            self.loop.run(until)
        except MachineError:
            raise
        except Exception as error:  # outside of any machine
            raise MachineError("the world", self.step, self.loop.now, error) from error

    def faults(self) -> list[str]:
        """Inputs that the world still owes its machines: a detach after the far end is gone, a requested wake."""
        found = []
        for host in self.hosts.values():
            for end in host.ends.values():
                if host.up and not (end.over or end.pipe) and end.far.over and not (end.far.flight or end.far.silent):
                    found.append(f"{host.name}: link {end.link} is gone, but was never detached")
            for seat in host.seats:
                late = seat.wake_at <= self.loop.now and not (host.turning or host.paused or seat.gone)
                if late and seat.alarm == NEVER:
                    found.append(f"{host.name}: {seat.name} was not woken when it asked for it")
        return found


__all__ = ["ContractError", "HostSettings", "MachineError", "World"]
