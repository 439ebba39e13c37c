"""Seeking: how the clients of each system find one of several servers on this host.

In:    five servers of a system; whether the last of them is farther away.
Out:   per search: ms to the first answer, to the choice and until connected, and whether the far one was chosen.
State: the servers while a case lasts.
Not here: rounds and figures (discover_broker.py), what makes a server farther (relay.py).

Every system is used as its documentation shows it: ours and zenoh ask a multicast group on loopback, NATS is given the
list of its servers.
"""

from __future__ import annotations

import importlib.util
import json
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from benchmarks.certificates import TlsFiles
from benchmarks.machine import cores
from benchmarks.peers.nats import Nats
from benchmarks.peers.network import Member, Place
from benchmarks.peers.ours import Heliograph
from benchmarks.peers.server import Server, relay
from benchmarks.peers.system import Startable
from benchmarks.peers.zenoh import Zenoh, run_router
from benchmarks.ports import free_ports

COUNT = 5
FAR = COUNT - 1  # the last one
DELAY_MS = 25  # each way
GROUP, ZENOH_GROUP = "239.255.71.17", "224.0.0.224"
NOWHERE = "127.0.0.1:9"

Search = dict[str, float]


class Seeker(Protocol):
    """One system with its servers and a client that looks for one of them."""

    def start(self, stack: ExitStack, folder: Path, far: bool) -> None:
        """Start the servers, for as long as the stack lasts."""
        ...

    async def search(self) -> Search:
        """Find a server, connect, and leave again."""
        ...


class OurSeeker:
    """Brokers that are linked; one that is far is on its own, or the others would pass requests on to it."""

    def __init__(self) -> None:
        self._port = 0

    def start(self, stack: ExitStack, folder: Path, far: bool) -> None:
        """A star around the first."""
        self._port, behind, *ports = free_ports(2 + COUNT)
        key = folder / "network.key"
        key.touch(mode=0o600)
        key.write_text("77" * 32 + "\n")
        first = (ports[0], 0)
        for number, port in enumerate(ports):
            alone = far and number == FAR
            place = Place(f"b{number}", port, 0, (first,) if number and not alone else (), key)
            member = OurMember(Heliograph(), place)
            member.multicast_port = behind if alone else self._port
            stack.enter_context(Server(member, cores(), port=port))
        if far:
            relay(stack, "multicast", GROUP, self._port, behind, DELAY_MS)

    async def search(self) -> Search:
        """The search's own clock tells of its parts."""
        import heliograph

        options = heliograph.Discover(
            multicast_port=self._port, brokers=(NOWHERE,), remember=False, follow=False, timeout_ms=2_000
        )
        begin = perf_counter()
        client = await heliograph.connect(discover=options)
        connected = perf_counter() - begin
        told = client.report("discovery")
        await client.close()
        times = told["times_ms"]
        return {
            "first_answer_ms": times["first answer"],
            "choice_ms": times["total"],
            "connected_ms": connected * 1e3,
            "far": float(client.broker == f"b{FAR}" or told["broker"] == f"b{FAR}"),
        }


class OurMember(Member):
    """A broker with a multicast port of this run's own."""

    multicast_port = 0

    def command(self, folder: Path, port: int, tls: TlsFiles | None) -> list[str]:
        """As the others, and one section more."""
        command = super().command(folder, port, tls)
        with (folder / "heliograph.toml").open("a") as file:
            file.write(f"[discovery]\nmulticast_port = {self.multicast_port}\n")
        return command


class ZenohSeeker:
    """Routers that answer scouts."""

    def __init__(self) -> None:
        self._port = 0

    def start(self, stack: ExitStack, folder: Path, far: bool) -> None:
        """Not linked: a client needs one of them only."""
        self._port, behind, *ports = free_ports(2 + COUNT)
        for number, port in enumerate(ports):
            alone = far and number == FAR
            member = ZenohMember(Zenoh(), Place(f"z{number}", port, 0, (), folder))
            member.settings = scouting("router", behind if alone else self._port, port, number)
            stack.enter_context(Server(member, cores(), port=port))
        if far:
            relay(stack, "multicast", ZENOH_GROUP, self._port, behind, DELAY_MS)

    async def search(self) -> Search:
        """Its own threads do the work, so nothing else runs on the loop."""
        import zenoh

        config = zenoh.Config.from_json5(scouting("client", self._port))
        begin = perf_counter()
        scout: Any = zenoh.scout(what="router", config=config)
        next(iter(scout))
        first = perf_counter() - begin
        scout.stop()
        begin = perf_counter()
        session: Any = zenoh.open(zenoh.Config.from_json5(scouting("client", self._port)))
        connected = perf_counter() - begin
        chosen = [str(zid) for zid in session.info.routers_zid()]
        session.close()
        return {
            "first_answer_ms": first * 1e3,
            "connected_ms": connected * 1e3,
            "far": float(chosen == [zid_of(FAR)]),
        }


class ZenohMember(Member):
    """A router with settings of its own."""

    settings = ""

    def command(self, folder: Path, port: int, tls: TlsFiles | None) -> list[str]:
        """Scouting instead of links."""
        return run_router(folder, self.settings)


class NatsSeeker:
    """Servers in a list; the far one is reached through a relay."""

    def __init__(self) -> None:
        self._ports: list[int] = []

    def start(self, stack: ExitStack, folder: Path, far: bool) -> None:
        """Not linked, as above."""
        self._ports = free_ports(COUNT + 1)
        behind = self._ports.pop()
        for port in self._ports[:FAR]:
            stack.enter_context(Server(Nats(), cores(), port=port))
        own = behind if far else self._ports[FAR]
        stack.enter_context(Server(Nats(), cores(), port=own))
        if far:
            relay(stack, "tcp", "127.0.0.1", self._ports[FAR], own, DELAY_MS)

    async def search(self) -> Search:
        """The client chooses from its list."""
        import nats  # type: ignore[import-untyped, import-not-found, unused-ignore]

        begin = perf_counter()
        client: Any = await nats.connect(servers=[f"nats://127.0.0.1:{port}" for port in self._ports])
        connected = perf_counter() - begin
        port = client.connected_url.port
        await client.close()
        return {"connected_ms": connected * 1e3, "far": float(port == self._ports[FAR])}


class NatsWithClient(Nats):
    """The server and its Python client."""

    def absent(self) -> str | None:
        """Why it cannot run here, or None."""
        missing = None if importlib.util.find_spec("nats") else "nats-py is not installed (pip install nats-py)"
        return super().absent() or missing


def scouting(mode: str, group_port: int, port: int | None = None, number: int = 0) -> str:
    """Settings of a zenoh router or client that finds others by multicast on loopback."""
    wanted = {"router": [], "peer": [], "client": ["router"]}
    group = {"enabled": True, "address": f"{ZENOH_GROUP}:{group_port}", "interface": "127.0.0.1", "autoconnect": wanted}
    chosen: dict[str, Any] = {
        "mode": mode,
        "connect": {"endpoints": []},
        "listen": {"endpoints": [] if port is None else [f"tcp/127.0.0.1:{port}"]},
        "scouting": {"multicast": group, "gossip": {"enabled": False}},
    }
    return json.dumps(chosen if port is None else {"id": zid_of(number), **chosen})


def zid_of(number: int) -> str:
    """A router's id."""
    return f"a{number}"


ABLE: dict[str, Startable] = {"ours": Heliograph(), "zenoh": Zenoh(), "nats": NatsWithClient()}
SEEKERS: dict[str, type[Seeker]] = {"ours": OurSeeker, "zenoh": ZenohSeeker, "nats": NatsSeeker}
