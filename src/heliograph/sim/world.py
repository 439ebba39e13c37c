"""The simulated world: hosts, network and virtual time, all determined by a seed.

In:    nodes to run (the same machines as live), a seed, settings; then crashes, pauses and clock steps.
Out:   a run that is the same to the last byte whenever seed and inputs are the same; digest and journal.
State: the hosts; loop, network, digest and journal hold the rest.
Not here: what goes wrong and when (faults.py), what clients do (workloads.py), reading scenarios (scenario.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from heliograph.broker.commands import LoadSettings
from heliograph.errors import Reason
from heliograph.machine import Job, Ticket
from heliograph.sim.clock import WallClock
from heliograph.sim.datagrams import Datagrams, DatagramSettings
from heliograph.sim.digest import Digest
from heliograph.sim.disk import Disks
from heliograph.sim.host import Build, ContractError, Host, Seat
from heliograph.sim.journal import Journal
from heliograph.sim.loop import MICROSECOND, MILLISECOND, NEVER, SECOND, Loop
from heliograph.sim.network import Listener, Network, NetworkSettings

CLOCK_NS = 10 * SECOND  # how often machines are told the wall time, as the live driver does
LINGER = 0.05  # probability that an idle host waits for more input before it handles the first
SHIFT_NS_MAX = 1 << 50  # each node's monotonic clock starts elsewhere: about 13 days at most


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """How the computers behave that brokers and clients run on."""

    service_us: float = 5.0  # what one input costs; each host draws its own around it
    inputs_per_take_max: int = 4  # a turn handles up to so many waiting inputs before it carries out effects
    clock_skew_ms: float = 100.0  # wall clocks are wrong by up to so much …
    clock_drift_ppm: int = 50  # … and drift by up to this
    job_ms: float = 5.0  # what a slow job takes at most
    disk_ms: float = 5.0  # what a commit or a read takes at most

    def problems(self, path: str = "hosts") -> list[str]:
        """Everything wrong with it."""
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


class MachineError(Exception):
    """A machine raised, or the contract was broken: our own fault. Its cause is the exception."""

    def __init__(self, host: str, step: int, instant: int, error: BaseException) -> None:
        super().__init__(f"{host}: {type(error).__name__}: {error}")
        self.host = host
        self.step = step
        self.instant = instant


class World:
    """All that exists in a run."""

    def __init__(
        self,
        seed: int,
        *,
        network: NetworkSettings | None = None,
        hosts: HostSettings | None = None,
        datagrams: DatagramSettings | None = None,
        keep_journal: bool = False,
    ) -> None:
        self.seed = seed
        self.loop = Loop()
        self.journal = Journal(self.loop, keep_all=keep_journal)
        self.digest = Digest()
        self.network = Network(network or NetworkSettings(), self.loop, self.random("network"), self.digest)
        self.datagrams = Datagrams(self, datagrams or DatagramSettings())
        self.hosts: dict[str, Host] = {}
        self.acting: Host | None = None  # whose turn it is
        self._settings = hosts or HostSettings()
        self.disks = Disks(self, self._settings.disk_ms)
        self.inputs_per_take_max = self._settings.inputs_per_take_max
        self.linger = LINGER if self.inputs_per_take_max > 1 else 0.0
        self.draw: Callable[[], float] = self.random("hosts").random
        self._seats = 0
        self.loop.at(CLOCK_NS, self._tick, None)

    def random(self, stream: str) -> Random:
        """A random source of its own for this purpose: drawing more from one shifts no other."""
        return Random(f"{self.seed}/{stream}")

    @property
    def step(self) -> int:
        """How many inputs machines have had so far."""
        return self.loop.step

    # Hosts.

    def add(self, name: str, build: Build) -> Host:
        """A host that is not running yet. ``build`` makes its machines anew for each incarnation."""
        assert name not in self.hosts, f"two hosts are called {name}"
        host = self.hosts[name] = Host(self, name, build)
        settings = self._settings
        draw = self.random(f"host/{name}").random
        host.service_ns = host.service_ns_usual = max(1, int(settings.service_us * MICROSECOND * (0.5 + draw())))
        host.wall = WallClock(
            int(settings.clock_skew_ms * MILLISECOND * (2 * draw() - 1)),
            int(settings.clock_drift_ppm * (2 * draw() - 1)),
        )
        host.shift = int(SHIFT_NS_MAX * draw())
        return host

    def listen(self, host: Host, address: tuple[str, int], listener: str, machine: str, secure: bool = False) -> None:
        """Let peers dial this address; it answers while the host runs."""
        self.network.listeners[address] = Listener(host, machine, listener, secure)

    def start(self, host: Host) -> None:
        """Run a host: new machines, pipes between them, and the time of day."""
        assert not host.up
        host.incarnation += 1
        host.node = node = host.build(host.incarnation)
        host.up = True
        host.turning = False
        host.free_at = NEVER if host.paused else self.loop.now
        host.seats = []
        for name, machine in node.machines.items():
            self._seats += 1
            host.seats.append(Seat(host, name, machine, self._seats))
        self.journal.write("started", host.name, host.incarnation)
        self.pause(host)  # nobody acts before everybody is joined
        for pipe in node.pipes:
            self.network.pipe(host, host.seat(pipe.broker), host.seat(pipe.service))
        host.look_at_clock()
        for owner, sockets in node.sockets.items():
            for socket in sockets:
                self.datagrams.open(host.seat(owner), socket)
        for owner, vault in node.vaults.items():
            self.disks.open(host.seat(owner), vault)
        if host.on_start is not None:
            host.on_start()
        self.go_on(host)

    def crash(self, host: Host, keep: float = 0.0, silent: bool = False) -> None:
        """A host loses all it had in memory. Of what it wrote, a share ``keep`` may still arrive.

        Peers see a reset; after a power cut (``silent``) they are told nothing until the host is back.
        """
        assert host.up
        self.journal.write("crashed", host.name, "power cut" if silent else "")
        self._end(host)
        self.disks.crash(host)
        for end in host.ends.values():
            self.network.drop_end(end, keep, silent)
        host.ends.clear()

    def stop(self, host: Host) -> None:
        """A machine said that it has finished: its links end, and nothing of the host runs any more."""
        self.journal.write("stopped", host.name)
        self._end(host)
        self.disks.stop(host)
        for end in host.ends.values():
            self.network.leave(end)
        host.ends.clear()

    def _end(self, host: Host) -> None:
        host.up = False
        host.inbox.clear()
        if host.node is not None and host.node.sockets:
            self.datagrams.close(host)
        for seat in host.seats:
            seat.gone = True

    def pause(self, host: Host) -> None:
        """A host stands still: what arrives waits. Pauses may overlap."""
        host.paused += 1
        host.free_at = NEVER

    def go_on(self, host: Host) -> None:
        """A pause is over."""
        host.paused -= 1
        if not host.paused:
            host.free_at = self.loop.now
            if host.inbox and not host.turning:
                host.turning = True
                self.loop.at(self.loop.now, Host.turn, host)

    def speed_up(self, host: Host, by_ns: int) -> None:
        """What made a host slower is over."""
        host.service_ns -= by_ns

    def block(self, source: Host, sink: Host) -> None:
        """Nothing from one host arrives at another any more; new links between them cannot be made."""
        self.network.block(source.name, sink.name, 1)
        for end in sink.ends.values():
            if end.far.host is source:
                self.network.stop(end.far)

    def unblock(self, source: Host, sink: Host) -> None:
        """One reason for it is gone; if it was the last, everything that waited arrives."""
        self.network.block(source.name, sink.name, -1)
        for end in sink.ends.values():  # the sink's: the source may have given up its own end meanwhile
            if end.far.host is source:
                self.network.let_go(end.far)

    def step_clock(self, host: Host, by_ns: int) -> None:
        """A host's wall clock is set; its machines see it at once."""
        host.wall.step(by_ns)
        host.look_at_clock()

    def _tick(self, _: None, instant: int) -> None:
        for host in self.hosts.values():
            host.look_at_clock()
        self.loop.at(instant + CLOCK_NS, self._tick, None)

    # Promises that hosts ask for.

    def start_job(self, seat: Seat, ticket: Ticket, job: Job, instant: int) -> None:
        """Slow pure work; how long it takes is drawn from the seed."""
        lasts = 1 + int(self._settings.job_ms * MILLISECOND * self.draw())
        self.loop.at(instant + lasts, self._end_job, (seat, ticket, job))

    def _end_job(self, started: tuple[Seat, Ticket, Job], _instant: int) -> None:
        seat, ticket, job = started
        if seat.gone:
            return
        try:
            result: Any = seat.host.settings if isinstance(job, LoadSettings) else job.run()
        except Exception:  # as the contract says: whatever a job raises is this answer
            seat.host.fail(seat, ticket, Reason.JOB_FAILED)
        else:
            seat.host.finish_job(seat, ticket, result)

    # Time.

    def run(self, until: int) -> None:
        """Let the world run to this instant. A machine that fails ends the run."""
        try:
            self.loop.run(until)
        except Exception as error:  # whatever a machine raises is its fault, and must be reported with its step
            name = self.acting.name if self.acting is not None else "the world"
            raise MachineError(name, self.step, self.loop.now, error) from error

    def faults(self) -> list[str]:
        """What the world owes its machines: a detach for a link whose far end is gone, a wake that was asked for."""
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
