"""A live node: opens its listeners, logs them, and runs until a signal or its broker ends it.

In:    settings; signals: TERM and INT stop, a second one exits at once, HUP reloads, USR2 drains.
Out:   log lines (the first tells what is open), the administrator's token file, an exit code.
State: the driver of this process.
Not here: effects (loop.py), which services there are (heliograph/node.py), what runs beside them (beside.py), settings
          (config/), options (cli/broker_run.py).
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import fields, replace
from time import time_ns
from typing import TYPE_CHECKING, Any

from msgspec import structs

from heliograph.broker.commands import Drain, Expel, Listening, Reload, Room, Stop
from heliograph.broker.config import EVERYWHERE, BrokerConfig, ListenerConfig
from heliograph.config.changes import changes
from heliograph.config.keyring_files import load_keyring
from heliograph.config.load import Settings
from heliograph.discovery.brokers.advertisement import DirectoriesFound
from heliograph.discovery.brokers.config import SOCKET, ResponderConfig
from heliograph.discovery.revocation_lists import RIGHTS, ListsRenewed
from heliograph.discovery.topics.config import RightsConfig
from heliograph.errors import ConfigError, HeliographError
from heliograph.live import process_memory
from heliograph.live.beside import in_numbers, joining, named
from heliograph.live.chance import system_seed
from heliograph.live.clock import process_age_ms
from heliograph.live.descriptors import links_max, raise_limit
from heliograph.live.directories import look_up
from heliograph.live.links import format_address
from heliograph.live.loop import Driver, describe_crash
from heliograph.live.runtime import LocalToken, remove_token, write_token
from heliograph.live.tls import TlsContexts, TlsFiles, client_context, server_context
from heliograph.live.usage import sample_load, sample_usage
from heliograph.machine import Address, Socket, SocketName
from heliograph.node import BROKER, DIRECTORY, DISCOVERY, Node, build, build_alone
from heliograph.notes import Note, ReloadFailed
from heliograph.observe.counters import Counters
from heliograph.observe.log import NodeLog
from heliograph.services.declared import Configured
from heliograph.trust.config import TlsConfig

if TYPE_CHECKING:
    from heliograph.live.join import Joining

LoadSettings = Callable[[], Settings]
Ready = Callable[[Mapping[str, Address]], None]

_PROOF = "--secure --auth certificate --certificate FILE --key FILE --authority FILE"


class Certificates:
    """The files of [tls], for the links of this process and for machines that sign and verify."""

    def __init__(self, settings: Settings, listeners: Sequence[ListenerConfig]) -> None:
        """ConfigError if the files are not usable."""
        self.tls = settings.tls  # in force
        self._listeners = listeners
        self.contexts = contexts(listeners, TlsFiles.named_in(settings.tls))
        self.keyring = load_keyring(settings.tls)
        self.distrusts = False  # the last renewal took an authority away

    def renew(self, wanted: TlsConfig, loop: asyncio.AbstractEventLoop) -> list[str]:
        """Read the files again, in a worker. New links use them. ConfigError before anything is changed.

        Returns the keys that differ from those in force: they need a restart.
        """
        tls = self._possible(wanted)
        renewed = load_keyring(tls)
        files = TlsFiles.named_in(tls)
        if self.contexts is not None and files is not None:
            fresh = contexts(self._listeners, files)
            assert fresh is not None
            loop.call_soon_threadsafe(self.contexts.take, fresh)
        self.distrusts = False
        if self.keyring is not None and renewed is not None:
            self.distrusts = not self.keyring.authorities.are_all_of(renewed.authorities)
            loop.call_soon_threadsafe(self.keyring.renew, renewed)
        self.tls = tls
        return [f"tls.{each.name}" for each in fields(tls) if getattr(tls, each.name) != getattr(wanted, each.name)]

    def _possible(self, wanted: TlsConfig) -> TlsConfig:
        """The files that can be used without a restart: other ones, but none where there were none, nor the reverse."""
        tls = self.tls
        if not tls.is_used:
            return tls
        if wanted.certificate and wanted.key:
            tls = replace(tls, certificate=wanted.certificate, key=wanted.key)
        return replace(tls, revoked=wanted.revoked) if wanted.revoked else tls

    @property
    def revoked(self) -> tuple[str, ...]:
        """The serial numbers of the certificates that were revoked."""
        return () if self.keyring is None else self.keyring.authorities.revoked.serials()


async def run_broker(
    settings: Settings, log: NodeLog, *, load_settings: LoadSettings | None = None, ready: Ready | None = None
) -> int:
    """Build a node from settings and run it. ConfigError if certificates or keys are not usable."""
    token = LocalToken()
    broker = replace(settings.broker, local_digest=token.digest)
    certificates = Certificates(settings, broker.listeners)
    node = build(
        broker,
        seed=system_seed(),
        incarnation=time_ns() // 1_000_000,
        services=in_numbers(_possible(settings, certificates)),
        keyring=certificates.keyring,
    )
    running = Running(node, log, settings, certificates, token, load_settings)
    return await run(running, broker.listeners, ready)


def _possible(settings: Settings, certificates: Certificates) -> list[Any]:
    """The configured services. Without certificates there are no grants to check."""
    has_keys = certificates.keyring is not None
    return [config for config in settings.wanted if has_keys or not isinstance(config, RightsConfig)]


async def run_alone(
    kind: type, settings: Settings, log: NodeLog, *, name: str, load_settings: LoadSettings | None = None
) -> int:
    """Run the service with settings of this kind in a process of its own."""
    token = LocalToken()
    certificates = Certificates(settings, ())
    node = build_alone(
        name,
        settings.of(kind),
        seed=system_seed(),
        keyring=certificates.keyring,
        digest=token.digest,
    )
    return await run(Running(node, log, settings, certificates, token, load_settings), ())


def contexts(listeners: Sequence[ListenerConfig], files: TlsFiles | None) -> TlsContexts | None:
    """TLS for dials and for secure listeners. A certificate is demanded if all of them demand one."""
    secure = [listener for listener in listeners if listener.secure]
    if not secure:
        return None if files is None else TlsContexts(client=client_context(files))
    if files is None:
        raise ConfigError([f"listener.{secure[0].name}.secure = true needs tls.certificate and tls.key"])
    required = all(listener.auth == "certificate" for listener in secure)
    return TlsContexts(server_context(files, require_certificate=required), client_context(files))


async def run_node(node: Node, listeners: Sequence[ListenerConfig], log: NodeLog) -> int:
    """Run a node without settings until it ends; returns the exit code."""
    return await run(Running(node, log), listeners)


async def run(running: Running, listeners: Sequence[ListenerConfig], ready: Ready | None = None) -> int:
    """Run a node until it ends; returns the exit code."""
    raise_limit()
    try:
        if not await running.open(listeners):
            return 1
        running.begin(listeners)
        if ready is not None:
            ready(running.addresses)
        running.look_after()
        await running.driver.stopped.wait()
    finally:
        await running.end()
    return 0 if running.driver.failure is None else 1


class Running:
    """One node while it runs."""

    def __init__(
        self,
        node: Node,
        log: NodeLog,
        settings: Settings | None = None,
        certificates: Certificates | None = None,
        token: LocalToken | None = None,
        load_settings: LoadSettings | None = None,
    ) -> None:
        self._node = node
        self._log = log
        self._settings = settings  # at the start
        self._loaded = settings  # by the last reload
        self._certificates = certificates
        self._token = token
        self._load_settings = load_settings
        self._signals = 0
        self._reload: asyncio.Task[None] | None = None
        self._joining: Joining | None = None
        self.counters = Counters()
        self.addresses: dict[str, Address] = {}
        self.sockets: dict[tuple[str, SocketName], Address] = {}
        self.driver = Driver(
            node.machines,
            node.pipes,
            tls=None if certificates is None else certificates.contexts,
            heard=self._heard,
            crashed=self._crashed,
            load_settings=None if load_settings is None else self._load,
        )

    async def open(self, listeners: Sequence[ListenerConfig]) -> bool:
        """Start the machines and open every vault, listener and socket; False if one cannot be opened."""
        self.driver.start()
        self._expel()
        for machine, vault in self._node.vaults.items():
            if await self.driver.open_vault(machine, vault) is not None:
                return False  # the log says why
        for machine, repository in self._node.repositories.items():
            if await self.driver.open_repository(machine, repository) is not None:
                return False
        try:
            for listener in (*listeners, *self._node.service_listeners):
                self.addresses[listener.name] = await self.driver.listen(self._node.listeners[listener.name], listener)
        except OSError as error:
            self._log.say("error", error.strerror or str(error))
            return False
        if BROKER in self._node.machines:
            urls = announced(listeners, self.addresses)
            if not urls:
                text = "no address can be told to others; set listener.announce to one that they reach"
                self._log.say("warning", text)
            self.driver.tell(BROKER, Listening(tuple(urls)))
            self.driver.tell(BROKER, Room(links_max(self.driver.network.peers_max)))
        for machine, specs in self._node.sockets.items():
            for spec in specs:
                if not await self._open_socket(machine, spec):
                    return False
        return True

    async def _open_socket(self, machine: str, spec: Socket) -> bool:
        """False if a required socket cannot be opened. For a multicast group that fails, log only a warning."""
        switch = next((each.service.without_socket for each in self._node.services if each.name == machine), "")
        vital = bool(switch) and spec.group is None
        if vital and not spec.port:
            spec = structs.replace(spec, port=self._same_port(machine, spec.host))
        address = await self.driver.open(machine, spec)
        if address is not None:
            self.sockets[machine, spec.name] = address
        elif vital:
            where = format_address((spec.host, spec.port))
            self._log.say("error", f"{where} (UDP) is not available for {machine}; {switch}")
        return address is not None or not vital

    def _same_port(self, machine: str, host: str) -> int:
        """A free UDP port: if possible that of the listener beside it, so that users need only one number."""
        own = (name for name, taker in self._node.listeners.items() if taker == machine)
        port = self.addresses[next(own, next(iter(self.addresses)))][1]
        try:
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.bind((host, port))
        except OSError:
            return 0
        return port

    def begin(self, listeners: Sequence[ListenerConfig]) -> None:
        """Everything is open: log that, and handle signals."""
        for line in self._describe(listeners):
            self._log.say("info", line)
        self._leave_token()
        self._heed_signals()
        process_memory.tune()
        age_ms = process_age_ms()
        self._log.say("info", "ready" if age_ms is None else f"ready in {age_ms} ms")

    def _describe(self, listeners: Sequence[ListenerConfig]) -> list[str]:
        """The first lines of the log."""
        told = [describe_open(listeners, self.addresses)] if listeners else []
        for each in self._node.services:
            opened = {name: address for (machine, name), address in self.sockets.items() if machine == each.name}
            told.append(each.service.describe(each.config, opened))
        return [line for text in told for line in text.splitlines()]

    def look_after(self) -> None:
        """Start the tasks beside the machines, which are now running."""
        if BROKER in self._node.machines:
            self._go_on(sample_load(self.driver))
        if self._settings is None:
            return
        responder = self._settings.of(ResponderConfig)
        if DISCOVERY in self._node.machines:
            self._go_on(sample_usage(self.driver))
            own = self._own_directory()
            if named(responder):
                self._go_on(look_up(self.driver, self._log, named(responder), own))
            elif own:
                self.driver.tell(DISCOVERY, DirectoriesFound(own))
        if BROKER in self._node.machines and self._settings.broker.network.join:
            self._join(self._settings.broker, responder)

    def _join(self, broker: BrokerConfig, responder: ResponderConfig) -> None:
        from heliograph.live.join import Joining  # late: few brokers look for others

        keyring = None if self._certificates is None else self._certificates.keyring
        host = responder.host if responder.enabled else "127.0.0.1"
        config = joining(broker, responder, keyring)
        self._joining = Joining(self.driver, self._log, config, named(responder), host, keyring)
        self._go_on(self._joining.run())

    def _own_directory(self) -> tuple[Address, ...]:
        """The address at which the directory of this process listens to its own broker."""
        address = self.sockets.get((DIRECTORY, SOCKET))
        if address is None:
            return ()
        everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 an address that it has, not one to open
        return ((everywhere.get(address[0], address[0]), address[1]),)

    def _go_on(self, work: Coroutine[Any, Any, None]) -> None:
        self.driver.network.keep(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # our own bug: log it rather than continue silently without the task
            self.driver.crash("node", error)

    def _leave_token(self) -> None:
        """Write the token file for tools of the user that runs this node. The node works without it."""
        if self._token is None:
            return
        try:
            for _, port in self.addresses.values():
                write_token(port, self._token)
        except OSError as error:
            self._log.say("warning", f"no administrator's token was written: {error}")

    def _heed_signals(self) -> None:
        """Handle signals as commands from now on."""
        loop = self.driver.loop
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._start_reload)
        loop.add_signal_handler(signal.SIGUSR2, self._drain)

    async def end(self) -> None:
        """Close everything."""
        await self.driver.stop()
        if self._token is not None:
            for _, port in self.addresses.values():
                remove_token(port, self._token)
        if self.addresses:
            self._log.say("info", "stopped" if self.driver.failure is None else "stopped after a crash")

    def _stop(self, number: int) -> None:
        self._signals += 1
        if self._signals > 1:
            os._exit(128 + number)  # asked twice: do not wait for anything
        self._log.say("info", f"{signal.Signals(number).name}: stopping")
        if BROKER in self._node.machines:
            self._withdraw()
            self.driver.tell(BROKER, Stop())
        else:
            self.driver.stopped.set()

    def _drain(self) -> None:
        if BROKER not in self._node.machines:
            self._stop(signal.SIGUSR2)
            return
        self._log.say("info", "SIGUSR2: draining")
        self._withdraw()
        self.driver.tell(BROKER, Drain())

    def _withdraw(self) -> None:
        """Called before the broker is told, so that publications of its services are still sent."""
        for each in self._node.services:
            command = each.service.farewell()
            if command is not None:
                self.driver.tell(each.name, command)

    def _start_reload(self) -> None:
        if self._load_settings is None:
            self._log.say("warning", "SIGHUP: this node has no settings file to reload")
        elif self._reload is None or self._reload.done():
            self._reload = self.driver.loop.create_task(self._load_now())

    async def _load_now(self) -> None:
        machine = next(iter(self._node.machines))
        try:
            loaded = await asyncio.to_thread(self._load)
        except ConfigError as error:
            self._heard(machine, ReloadFailed(error.problems))
        except (HeliographError, OSError) as error:
            self._heard(machine, ReloadFailed([str(error)]))
        else:
            if BROKER in self._node.machines:
                self.driver.tell(BROKER, loaded)
            else:
                self._log.say("info", f"settings reloaded; now in force: {', '.join(loaded.taken) or 'no change'}")
                if loaded.restart:
                    self._log.say(
                        "warning", f"{', '.join(loaded.restart)} changed, and will be in force after a restart"
                    )

    def _load(self) -> Reload:
        """Load new settings, in a worker, and pass services theirs. The token stays."""
        assert self._load_settings is not None
        assert self._settings is not None
        assert self._loaded is not None
        loaded = self._load_settings()
        fixed = [each.name for each in loaded.services if not self._takes(each)]
        broker = replace(loaded.broker, local_digest=b"" if self._token is None else self._token.digest)
        if self._certificates is not None:
            fixed += self._certificates.renew(loaded.tls, self.driver.loop)
            tls = self._certificates.tls
            network = replace(broker.network, certified=tls.is_complete, dials_secure=tls.is_used)
            broker = replace(broker, network=network)
            self.driver.loop.call_soon_threadsafe(self._spread_lists)
            if self._certificates.distrusts:
                self.driver.loop.call_soon_threadsafe(self.driver.network.links.end_proven)
        self.driver.loop.call_soon_threadsafe(self._reload_services, loaded)
        found = changes(self._settings, self._loaded, loaded, fixed=fixed)
        self._loaded = loaded
        return Reload(broker, found.taken, found.restart)

    def _takes(self, service: Configured) -> bool:
        """True if this service runs here, and can take new settings while it does."""
        return service.name in self._node.machines and service.service.reload(service.config) is not None

    def _expel(self) -> None:
        """Tell the broker which certificates were revoked: it ends and refuses their links."""
        revoked = () if self._certificates is None else self._certificates.revoked
        if revoked and BROKER in self._node.machines:
            self.driver.tell(BROKER, Expel(revoked))

    def _spread_lists(self) -> None:
        """The files were read again: tell the other brokers what was revoked."""
        self._expel()
        if RIGHTS in self._node.machines:
            self.driver.tell(RIGHTS, ListsRenewed())

    def _reload_services(self, loaded: Settings) -> None:
        """Tell each service its new settings."""
        for new in loaded.services:
            command = new.service.reload(new.config) if new.name in self._node.machines else None
            if command is not None:
                self.driver.tell(new.name, command)

    def _heard(self, machine: str, note: Note) -> None:
        self.counters.heard(machine, note)
        self._log.heard(machine, note)
        if self._joining is not None:
            self._joining.heard(note)

    def _crashed(self, machine: str, error: BaseException) -> None:
        self._log.say("error", describe_crash(machine, error, self.driver.inputs).rstrip())


def announced(listeners: Sequence[ListenerConfig], addresses: Mapping[str, Address]) -> list[str]:
    """The addresses at which clients dial this node; those that other machines can reach come first."""
    found = []
    for listener in sorted(listeners, key=lambda listener: listener.is_local):
        host, port = addresses[listener.name]
        host = listener.announce or (outgoing_address(host) if host in EVERYWHERE else host)
        if host:
            found.append(f"heliograph{'s' if listener.secure else ''}://{format_address((host, port))}")
    return found


def outgoing_address(everywhere: str) -> str:
    """The address from which this machine reaches others; empty if there is none. Nothing is sent."""
    ipv6 = ":" in everywhere
    with socket.socket(socket.AF_INET6 if ipv6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("2001:db8::1" if ipv6 else "192.0.2.1", 9))  # addresses reserved for examples
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def describe_open(listeners: Sequence[ListenerConfig], addresses: Mapping[str, Address]) -> str:
    """The first lines of the log: what is open, to which peers, and the option that opens more."""
    texts = []
    for listener in listeners:
        reach = "this machine only" if listener.is_local else "the network"
        proof = {"none": "no authentication", "any": "token or certificate"}.get(listener.auth, listener.auth)
        secure = "TLS, " if listener.secure else ""
        texts.append(f"{format_address(addresses[listener.name])} ({reach}, {secure}{proof})")
    if all(listener.is_local for listener in listeners):
        port = next(iter(addresses.values()))[1]
        more = f"heliograph broker run --listen 0.0.0.0:{port} {_PROOF}"
        return f"open on {', '.join(texts)}\nto open it to the network: {more}, or a [[listener]] in heliograph.toml"
    return f"open on {', '.join(texts)}\nto open more: a [[listener]] in heliograph.toml"
