"""A network of broker processes on this machine, and its directory: starts, links, awaits and stops them.

In:    a topology and a folder.
Out:   processes whose maps are complete, or an error that names the failed broker and its log.
State: the processes; while they run, network_state.py records them.
Not here: the graph (topology.py), files (network_state.py), commands (network.py).

Ports are free ones, known only when a process has opened its own. So brokers start without links, get them by orders,
and find them in their settings if they are restarted.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]

from heliograph.cli import network_secure
from heliograph.cli import network_state as state
from heliograph.cli.connection import Connection, connected
from heliograph.cli.files import locked, private_folder, write_file
from heliograph.cli.network_state import HOST, LocalBroker, LocalDirectory, LocalNetwork
from heliograph.cli.shape import counted
from heliograph.discovery.brokers.config import DIRECTORY_PORT
from heliograph.errors import HeliographError
from heliograph.live.remembered_file import forget
from heliograph.live.runtime import node_environment
from heliograph.topology.process_network import NetworkTopology

if TYPE_CHECKING:
    from heliograph.live.client import Client

START_S_MAX = 30.0  # plus one per broker: a loaded machine may take seconds to start Python
MAP_S_MAX = 30.0
STOP_S_MAX = 10.0
POLL_S = 0.05
KEY_BYTES = 32

_OPEN = re.compile(r"open on 127\.0\.0\.1:(\d+)")
_READY = re.compile(r" node ready\b")

Say = Callable[[str], None]


def new_key() -> bytes:
    """A random network key, as text with a line end."""
    return f"{secrets.token_hex(KEY_BYTES)}\n".encode()


class NetworkProcesses:
    """A network that this process started."""

    def __init__(
        self,
        topology: NetworkTopology,
        folder: Path,
        *,
        name: str = "",
        bdn: bool = True,
        bdn_port: int = 0,
        secure: bool = False,
    ) -> None:
        self._secure = secure
        self.topology = topology.with_slots()
        self.folder = folder
        self.name = name or state.default_name(folder)
        self.directories: tuple[LocalDirectory, ...] = ()
        self._bdn = bdn
        self._bdn_port = bdn_port  # 0: the default one, or a free one if that is taken
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.brokers: tuple[LocalBroker, ...] = ()
        self._is_ours = False  # until then the folder may belong to another network

    async def start(self, say: Say) -> None:
        """Start, link and wait until every map is complete; stop everything if that fails."""
        private_folder(state.default_folder().parent)  # brokers store the admin's token only in a private folder
        private_folder(self.folder)
        with locked(self.folder):
            refuse_running(self.folder)
            refuse_others_files(self.folder, self.topology)
            self._is_ours = True
            try:
                self._prepare()
                await self._start_directory()
                self._spawn()
            except BaseException:
                self.stop(keep_logs=False)
                raise
        try:
            await self._become_one(say)
        except BaseException:
            self.stop(keep_logs=True)
            raise

    async def _become_one(self, say: Say) -> None:
        count = len(self.brokers)
        say(f"{counted(count, 'process', 'processes')} started; waiting until they are ready")
        await self._wait_until_ready()
        self._write_links()
        async with AsyncExitStack() as stack:
            clients = {
                broker.name: await stack.enter_async_context(administrating(broker.url)) for broker in self.brokers
            }
            say(f"{counted(count, 'broker')} ready; linking them")
            await self._link(clients)
            await self._wait_for_maps(clients)

    # -- processes ------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        write_file(self.folder / state.KEY, new_key(), force=True)
        if self._secure:
            network_secure.make_certificates(self.folder, [broker.name for broker in self.topology.brokers])

    def _more(self, name: str) -> list[str]:
        """The settings that `--secure` adds for a broker."""
        return network_secure.sections(name, name == self.topology.brokers[0].name) if self._secure else []

    @property
    def secure_url(self) -> str:
        """Where the first broker accepts clients with certificates; empty if it does not."""
        if not self._secure:
            return ""
        log = state.log_of(self.folder, self.topology.brokers[0].name)
        return network_secure.secure_url(log.read_text(errors="replace"))

    async def _start_directory(self) -> None:
        """Start a directory, before the brokers, which need its address."""
        if not self._bdn:
            return
        name = directory_name(self.topology)
        usual = [0] if await listens(DIRECTORY_PORT) else [DIRECTORY_PORT, 0]
        ports = [self._bdn_port] if self._bdn_port else usual
        for port in ports:
            state.write_directory(self.folder, name, port)
            self._run(name, "bdn")
            self._remember_directory(name, port)
            try:
                taken = (await self._wait_for_ports([name]))[name]
            except HeliographError:
                if port == ports[-1]:
                    raise
                continue  # another process took the default port meanwhile
            state.write_directory(self.folder, name, taken)
            self._remember_directory(name, taken)
            return

    def _remember_directory(self, name: str, port: int) -> None:
        self.directories = (LocalDirectory(name=name, port=port, pid=self.processes[name].pid),)
        self._save()

    def _spawn(self) -> None:
        for broker in self.topology.brokers:
            state.write_settings(self.folder, self.name, broker, (), self.directories, self._more(broker.name))
            self._run(broker.name, "broker")
        self._remember({broker.name: broker.port for broker in self.topology.brokers})

    def _run(self, name: str, what: str) -> None:
        settings = str(state.settings_of(self.folder, name))
        with state.log_of(self.folder, name).open("wb") as log:
            # In its own session: we handle Ctrl-C.
            self.processes[name] = subprocess.Popen(  # noqa: S603 our own program with our own arguments
                [sys.executable, "-m", "heliograph.cli.main", what, "run", "--config", settings],
                cwd=self.folder,
                env=node_environment(state.default_folder().parent),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _remember(self, ports: dict[str, int]) -> None:
        self.brokers = tuple(
            LocalBroker(
                name=broker.name,
                cluster=broker.cluster,
                slot=broker.slot or 0,
                port=ports[broker.name],
                pid=self.processes[broker.name].pid,
            )
            for broker in self.topology.brokers
        )
        self._save()

    def _save(self) -> None:
        network = LocalNetwork(
            brokers=self.brokers, links=self.topology.links, name=self.name, directories=self.directories
        )
        state.save(self.folder, network)

    async def _wait_until_ready(self) -> None:
        self._remember(await self._wait_for_ports([broker.name for broker in self.brokers]))

    async def _wait_for_ports(self, names: list[str]) -> dict[str, int]:
        ports: dict[str, int] = {}
        deadline = time.monotonic() + START_S_MAX + len(names)
        while len(ports) < len(names):
            for name in names:
                if name not in ports and (port := self._port_of(name)) is not None:
                    ports[name] = port
            if time.monotonic() > deadline:
                waiting = [name for name in names if name not in ports]
                raise HeliographError(f"not ready in time: {', '.join(waiting)}; their logs are in {self.folder}")
            await asyncio.sleep(POLL_S)
        return ports

    def _port_of(self, name: str) -> int | None:
        """The port of a broker or directory that is ready."""
        log = state.log_of(self.folder, name)
        ended = self.processes[name].poll() is not None  # before the log is read, so that nothing is missed
        text = log.read_text(errors="replace")
        opened = _OPEN.search(text)
        if opened is not None and _READY.search(text):
            return int(opened[1])
        if ended:
            last = text.splitlines()[-1] if text else "it said nothing"
            what = "directory" if name == directory_name(self.topology) else "broker"
            raise HeliographError(f"{what} {name} did not start: {last.removeprefix('heliograph: ')} (log: {log})")
        return None

    def _write_links(self) -> None:
        """Record links, so that a restarted broker has the same ones, on the port where others look for it."""
        ports = {broker.name: broker.port for broker in self.brokers}
        for broker in self.topology.brokers:
            dialled = [ports[other] for one, other in self.topology.links if one == broker.name]
            placed = replace(broker, port=ports[broker.name])
            state.write_settings(self.folder, self.name, placed, dialled, self.directories, self._more(broker.name))

    def ended(self) -> dict[str, int]:
        """Brokers and directories whose processes ended, with their exit codes; a negative one is a signal."""
        return {name: code for name, process in self.processes.items() if (code := process.poll()) is not None}

    def stop(self, *, keep_logs: bool) -> None:
        """End all processes and remove their files; logs may be kept. A second call does nothing."""
        if not self._is_ours:
            return
        end([psutil.Process(each.pid) for each in self.processes.values() if each.poll() is None])
        for process in self.processes.values():
            process.poll()
        forget([broker.address for broker in self.brokers])
        state.clear(self.folder, [each.name for each in self.directories], keep_logs=False)
        state.clear(self.folder, [broker.name for broker in self.topology.brokers], keep_logs=keep_logs)

    # -- links ----------------------------------------------------------------------------------------------------

    async def _link(self, clients: dict[str, Client]) -> None:
        ports = {broker.name: broker.port for broker in self.brokers}
        for one, other in self.topology.links:
            order = {"do": "link", "host": HOST, "port": ports[other], "secure": False}
            await clients[one].ask("admin", order)

    async def _wait_for_maps(self, clients: dict[str, Client]) -> None:
        waiting = dict(clients)
        deadline = time.monotonic() + MAP_S_MAX + len(clients)
        while waiting:
            for name, client in list(waiting.items()):
                report = await client.ask("admin", {"do": "report", "question": "map"})
                if is_complete(self.topology, name, report):
                    del waiting[name]
            if waiting and time.monotonic() > deadline:
                raise HeliographError(
                    f"these brokers do not see the whole network: {', '.join(waiting)}; logs are in {self.folder}"
                )
            if waiting:
                await asyncio.sleep(POLL_S)


def directory_name(topology: NetworkTopology) -> str:
    """The name of a network's directory and of its files: unlike any broker's."""
    taken = [broker.name for broker in topology.brokers]
    return next(name for name in ("bdn", *(f"bdn-{number}" for number in range(len(taken)))) if name not in taken)


def administrating(url: str) -> Any:
    """A connection with the administrator's rights to a broker that this user runs on this machine."""
    return connected(Connection(url=url), name="heliograph network", as_admin=True)


async def listens(port: int) -> bool:
    """True if something listens there: a client would wait for a broker that is about to start."""
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    return True


def is_complete(topology: NetworkTopology, name: str, report: dict[str, Any]) -> bool:
    """True if a broker's map shows everything that it can reach in the topology."""
    clusters = {broker.name: broker.cluster for broker in topology.brokers}
    mine = clusters[name]
    linked = {row["broker"] for row in report["neighbours"] if not row["suspected"]}
    near = next(part for part in topology.parts(cluster=mine) if name in part)
    reached = {row["broker"] for row in report["members"] if row["cost"] is not None}
    piece = next(set(part) for part in topology.parts() if name in part)
    others = Counter(
        cluster
        for cluster in topology.clusters
        for part in topology.parts(cluster=cluster)
        if part[0] in piece and name not in part
    )
    seen = Counter(row["cluster"] for row in report["clusters"])
    return linked == set(topology.neighbours[name]) and reached >= set(near) and seen == others


def refuse_running(folder: Path) -> None:
    """Fail if a network runs in this folder; the remains of one without brokers are ended and removed."""
    network = state.load(folder)
    if network is None:
        return
    found = state.processes(folder, network)
    alive = [broker for broker in network.brokers if broker.name in found]
    if alive:
        raise HeliographError(
            f"a network of {len(alive)} brokers runs in {folder}; "
            f"stop it by `heliograph network down --dir {folder}`, or choose another folder with --dir"
        )
    end(found.values())  # its directory, which cannot be found once its settings are gone
    state.remove_files(folder, [each.name for each in network.parts])


def refuse_others_files(folder: Path, topology: NetworkTopology) -> None:
    """Fail before overwriting a file that no network of ours left here."""
    names = [directory_name(topology), *(broker.name for broker in topology.brokers)]
    paths = [folder / state.KEY, *(state.settings_of(folder, name) for name in names)]
    for path in paths:
        if path.exists():
            raise HeliographError(f"{path} exists and would be overwritten; choose an empty folder with --dir")


def end(processes: Iterable[psutil.Process]) -> int:
    """Ask processes to end, and kill those that do not. Returns how many were killed."""
    left = list(processes)
    _send(left, signal.SIGTERM)
    stubborn = _wait(left)
    _send(stubborn, signal.SIGKILL)
    _wait(stubborn)
    return len(stubborn)


def _send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            pass


def _wait(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run after the time limit."""
    deadline = time.monotonic() + STOP_S_MAX
    while (left := [process for process in processes if _runs(process)]) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return left


def _runs(process: psutil.Process) -> bool:
    """False also for a process that has ended but was not waited for (a zombie)."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
