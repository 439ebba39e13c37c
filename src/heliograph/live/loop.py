"""The live loop: runs machines on asyncio and carries out their effects.

In:    bytes and the ends of links from network.py, alarms of the loop, results of workers, commands of the program.
Out:   one vectored write per link and read; everything else that machines want done.
State: per machine its next alarm; a work list that keeps what machines cause each other in order.
Not here: decisions about publications (machines), sockets (network.py), signals and listeners of a node (node.py).
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from heliograph.broker.config import ListenerConfig
from heliograph.errors import Reason, UsageError
from heliograph.live.clock import CLOCK_S, now_ns, wall_ns
from heliograph.live.datagrams import UdpSockets
from heliograph.live.disk import Disks
from heliograph.live.jobs import Workers
from heliograph.live.network import LiveNetwork
from heliograph.live.repositories import LiveRepositories
from heliograph.machine import Address, Effects, Instant, LinkId, Machine, Peer, Shortcut, Socket, Ticket, no_shortcut
from heliograph.notes import Note, WorkFailed
from heliograph.repository import Repository
from heliograph.vault import Vault

if TYPE_CHECKING:
    from heliograph.live.tls import TlsContexts
    from heliograph.node import Pipe

FAR: Instant = 1 << 63
"""Later than any alarm."""
INPUTS_KEPT = 32  # shown when a machine crashes
WORK_PER_TURN = 1_024  # machines that keep each other busy over a pipe must not starve the sockets

_T = TypeVar("_T")


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a program on the fastest loop available."""
    try:
        import uvloop
    except ImportError:  # uvloop is not built for every platform
        return asyncio.run(main)
    return uvloop.run(main)


def new_loop() -> asyncio.AbstractEventLoop:
    """The same loop, for a thread that runs it itself."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Runner:
    """One machine on the loop: gives it its inputs and carries out its effects."""

    __slots__ = (
        "_alarm",
        "_alarm_at",
        "_driver",
        "_heard",
        "_on_carried",
        "_outlets",
        "_receive",
        "_take",
        "_wanted",
        "machine",
        "name",
        "shortcut",
    )

    def __init__(self, driver: Driver, name: str, machine: Machine) -> None:
        self._driver = driver
        self.name = name
        self.machine = machine
        self._receive = machine.receive
        self._take = machine.take
        self.shortcut: Shortcut = no_shortcut if driver.on_carried else getattr(machine, "shortcut", no_shortcut)
        self._outlets = driver.network.links.outlets
        self._heard = driver.heard
        self._on_carried = driver.on_carried
        self._wanted: Instant | None = None
        self._alarm_at: Instant = FAR
        self._alarm: asyncio.Handle | None = None

    def receive(self, link: LinkId, data: bytes) -> None:
        """Bytes came in. This is the hot path: everything for one read happens here."""
        driver = self._driver
        driver.inputs.append(("receive", link, len(data)))
        try:
            self._receive(link, data, now_ns())
            if driver.settling:
                driver.work.append((self, None, ()))
                return
            driver.settling = True
            try:
                effects = self._take()
                if effects.rare or self._on_carried is not None:
                    self._carry_out(effects)
                else:  # the same for writes only, without another call
                    wanted = effects.wake_at
                    if wanted is not self._wanted:
                        self._wanted = wanted
                        if wanted is not None and wanted < self._alarm_at:
                            self._set_alarm(wanted)
                    outlets = self._outlets
                    for to, frames in effects.writes:
                        if to in outlets:  # else it ended before the machine was told
                            outlets[to](frames)
                if driver.work:
                    driver.work_off()
            finally:
                driver.settling = False
        except Exception as error:
            driver.crash(self.name, error)

    def hand(self, kind: str, number: int, call: Callable[..., None], *arguments: Any) -> None:
        """Any other input; ``number`` is its link or ticket."""
        driver = self._driver
        if driver.failure is not None:
            return
        driver.inputs.append((kind, number, 0))
        try:
            call(*arguments, now_ns())
            self._settle()
        except Exception as error:
            driver.crash(self.name, error)

    def tell(self, command: Any) -> None:
        """A command; errors of the caller are raised to it."""
        driver = self._driver
        if driver.failure is not None:
            return
        driver.inputs.append((type(command).__name__, 0, 0))
        try:
            self.machine.tell(command, now_ns())
            self._settle()
        except UsageError:
            raise
        except Exception as error:
            driver.crash(self.name, error)

    def queue(self, call: Callable[..., None], *arguments: Any) -> None:
        """An input that must wait until the effects of the present one have been carried out."""
        self._driver.work.append((self, call, arguments))

    def go_on(self) -> None:
        """Process queued inputs now, unless that is happening already."""
        self._driver.go_on()

    def record(self, kind: str, number: int, length: int) -> None:
        """Remember an input for crash reports."""
        self._driver.inputs.append((kind, number, length))

    def settle(self) -> None:
        """The program has called the machine directly (``Publisher.publish``): carry out the effects."""
        driver = self._driver
        if driver.failure is not None:
            return
        driver.inputs.append(("settle", 0, 0))
        try:
            self._settle()
        except Exception as error:
            driver.crash(self.name, error)

    def _settle(self) -> None:
        """Carry out the effects of an input. Inputs that come up meanwhile wait in the work list."""
        driver = self._driver
        if driver.settling:
            driver.work.append((self, None, ()))
            return
        driver.settling = True
        try:
            self.carry_out()
            if driver.work:
                driver.work_off()
        finally:
            driver.settling = False

    def carry_out(self) -> None:
        """Take the effects and carry them out. Usually these are only writes."""
        self._carry_out(self._take())

    def _carry_out(self, effects: Effects) -> None:
        outlets = self._outlets
        for link, frames in effects.writes:
            outlet = outlets.get(link)
            if outlet is not None:  # else it ended before the machine was told
                outlet(frames)
        if effects.rare:
            self._carry_out_rare(effects)
        wanted = self._wanted = effects.wake_at
        if wanted is not None and wanted < self._alarm_at:
            self._set_alarm(wanted)
        if self._on_carried is not None:
            self._on_carried(self.name)

    def _carry_out_rare(self, effects: Effects) -> None:
        """Carry out everything but writes; later answers come by ``done`` or ``failed``."""
        driver = self._driver
        for note in effects.notes:
            self.note(note)
        for link, held in effects.holds:
            driver.network.links.hold(link, held)
        for link, reason in effects.hangups:
            driver.network.links.hang_up(link, reason)
        if effects.stop:
            driver.stopped.set()
        for ticket, dial in effects.dials:
            driver.network.dial(self, ticket, dial)
        for ticket, job in effects.jobs:
            driver.workers.start(self, ticket, job)
        if effects.commits:
            driver.disks.commit(self, effects.commits)
        if effects.reads:
            driver.disks.read(self, effects.reads)
        if effects.datagrams:
            driver.datagrams.send(self, effects.datagrams)

    def fail_shortcut(self, link: LinkId, error: Exception) -> None:
        """The shortcut raised for a read of this link. A machine with a shortcut knows what that costs the peer."""
        machine: Any = self.machine
        self.hand("shortcut", link, machine.fail_shortcut, link, error)

    def crash(self, error: BaseException) -> None:
        """The machine failed."""
        self._driver.crash(self.name, error)

    def done(self, ticket: int, result: Any) -> None:
        """A job succeeded."""
        self.hand("done", ticket, self.machine.done, ticket, result)

    def failed(self, ticket: int, reason: Reason) -> None:
        """A dial or job did not succeed."""
        self.hand("failed", ticket, self.machine.failed, ticket, reason)

    def answer(self, answers: Sequence[tuple[Ticket, Any]]) -> None:
        """The results of commits or reads, oldest first: a value, or a Reason. All are inputs of one take."""
        driver, machine = self._driver, self.machine
        if driver.failure is not None:
            return
        try:
            for ticket, result in answers:
                if isinstance(result, Reason):
                    driver.inputs.append(("failed", ticket, 0))
                    machine.failed(ticket, result, now_ns())
                else:
                    driver.inputs.append(("done", ticket, 0))
                    machine.done(ticket, result, now_ns())
            self._settle()
        except Exception as error:
            driver.crash(self.name, error)

    def fail_soon(self, ticket: int, reason: Reason) -> None:
        """The same, while effects are carried out."""
        self._driver.loop.call_soon(self.failed, ticket, reason)

    def note(self, note: Note) -> None:
        """An observation of this machine, or of the driver about it. The driver adds what led to a failure."""
        if self._heard is None:
            return
        if isinstance(note, WorkFailed):
            note = replace(note, inputs=", ".join(_shown(each) for each in self._driver.inputs))
        self._heard(self.name, note)

    def _set_alarm(self, at: Instant) -> None:
        """Set the alarm to ``at``. An alarm is only ever moved earlier; one that rings too early is set again."""
        if self._alarm is not None:
            self._alarm.cancel()
        loop = self._driver.loop
        self._alarm_at = at
        delay = at - now_ns()
        if delay <= 0:
            self._alarm = loop.call_soon(self._ring)
        else:  # whole milliseconds, rounded up: uvloop counts in them, and must not ring early
            self._alarm = loop.call_later(-(-delay // 1_000_000) / 1_000, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._alarm_at = FAR
        if self._wanted is None:
            return
        if self._wanted > now_ns():
            self._set_alarm(self._wanted)
        else:
            self.hand("wake", 0, self.machine.wake)

    def end(self) -> None:
        """Set no more alarms."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_at = -1  # earlier than anything, so no alarm is set again


class Driver:
    """Runs machines on the running asyncio loop and carries out their effects."""

    def __init__(
        self,
        machines: Mapping[str, Machine],
        pipes: Sequence[Pipe] = (),
        *,
        tls: TlsContexts | None = None,
        heard: Callable[[str, Note], None] | None = None,
        carried: Callable[[str], None] | None = None,
        crashed: Callable[[str, BaseException], None] | None = None,
        load_settings: Callable[[], object] | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.stopped = asyncio.Event()
        self.failure: BaseException | None = None  # the error with which a machine crashed
        self.inputs: deque[tuple[str, int, int]] = deque(maxlen=INPUTS_KEPT)  # kind, link or ticket, length
        self.work: deque[tuple[Runner, Callable[..., None] | None, tuple[Any, ...]]] = deque()
        self.settling = False
        self.heard = heard
        self.on_carried = carried
        self.network = LiveNetwork(self.loop, tls)
        self.datagrams = UdpSockets(self.loop, self.network.keep)
        self.disks = Disks(self.loop)
        self.repositories = LiveRepositories(self.loop)
        self.workers = Workers(self.loop, load_settings, self.repositories)
        self.runners = {name: Runner(self, name, machine) for name, machine in machines.items()}
        self._pipes = pipes
        self._crashed = crashed
        self._clock: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Join the pipes, tell the time, and carry out the machines' first effects."""
        self.settling = True  # no machine acts before all are joined
        for pipe in self._pipes:
            self._join(self.runners[pipe.broker], self.runners[pipe.service])
        self._tell_time()
        self.settling = False
        self.go_on()

    def tell(self, name: str, command: Any) -> None:
        """Give a machine a command. UsageError if it makes no sense."""
        self.runners[name].tell(command)

    def report(self, name: str, question: str) -> Any:
        """Ask a machine about its state."""
        return self.runners[name].machine.report(question)

    async def listen(self, name: str, listener: ListenerConfig) -> Address:
        """Let peers dial in to a machine. OSError, with a readable text, if that address is not available."""
        return await self.network.listen(self.runners[name], listener)

    async def open(self, name: str, socket: Socket) -> Address | None:
        """Open a datagram socket for a machine and tell it; None, with a note, if it cannot be opened."""
        return await self.datagrams.open(self.runners[name], socket)

    async def open_vault(self, name: str, vault: Vault) -> Reason | None:
        """Open a machine's vault and tell it; None, or why it is not open. Opening is repeated if that may help."""
        return await self.disks.open(self.runners[name], vault)

    async def open_repository(self, name: str, repository: Repository) -> Reason | None:
        """Open a machine's repository and tell it; None, or why it is not open."""
        return await self.repositories.open(self.runners[name], repository)

    async def stop(self) -> None:
        """Commit what is waiting; end links, listeners and sockets, flushing for at most a second; end the workers."""
        if self._clock is not None:
            self._clock.cancel()
        self.workers.end()
        await self.disks.close()
        await self.repositories.close()
        await self.network.close()
        self.datagrams.close()
        for runner in self.runners.values():
            runner.end()
        self.stopped.set()

    def crash(self, name: str, error: BaseException) -> None:
        """A machine failed, which is a bug of ours. Log its last inputs and end everything now."""
        if self.failure is not None:
            return
        self.failure = error
        self.work.clear()
        if self._crashed is not None:
            self._crashed(name, error)
        else:
            sys.stderr.write(describe_crash(name, error, self.inputs))
        for runner in self.runners.values():
            runner.end()
        self.network.abort()
        self.datagrams.close()
        self.disks.abort()
        self.stopped.set()

    def work_off(self) -> None:
        """Process what the last effects caused, oldest first; beyond a limit, after the sockets had their turn."""
        for _ in range(WORK_PER_TURN):
            if not self.work:
                return
            runner, call, arguments = self.work.popleft()
            try:
                if call is not None:
                    call(*arguments, now_ns())
                runner.carry_out()
            except Exception as error:
                self.crash(runner.name, error)
        self.loop.call_soon(self.go_on)

    def go_on(self) -> None:
        """Process the work list, unless that is happening already."""
        if self.work and not self.settling:
            self.settling = True
            self.work_off()
            self.settling = False

    def _join(self, broker: Runner, service: Runner) -> None:
        here, there = self.network.join(broker, service)
        broker.hand("attach", here, broker.machine.attach, here, Peer("pipe", service.name))
        service.hand("attach", there, service.machine.attach, there, Peer("pipe", broker.name))

    def _tell_time(self) -> None:
        for runner in self.runners.values():
            runner.hand("clock", 0, runner.machine.clock, wall_ns())
        if self.failure is None:
            self._clock = self.loop.call_later(CLOCK_S, self._tell_time)


def describe_crash(name: str, error: BaseException, inputs: Sequence[tuple[str, int, int]]) -> str:
    """The log text of a crash. Payloads are not shown, as they may be secret."""
    lines = [f"{name} crashed; its last inputs (kind, link or ticket, bytes), newest last:\n"]
    lines += [f"  {_shown(each)}\n" for each in inputs]
    return "".join(lines + traceback.format_exception(error))


def _shown(recorded: tuple[str, int, int]) -> str:
    kind, number, length = recorded
    return f"{kind} {number} {length}"
