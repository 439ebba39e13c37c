"""Resolves names of directories and brokers to numeric addresses, by the system's resolver and by DNS SRV.

In:    ``host:port``, or a domain; /etc/resolv.conf.
Out:   numeric addresses; texts about names that were not found.
State: none.
Not here: the bytes of an SRV query and answer (discovery/brokers/srv.py).

Nothing secret depends on these answers: a lying resolver can lead a search to a rogue directory, which learns no more
than that a client searches for a broker.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from heliograph.discovery.brokers.config import address_of, is_number, written
from heliograph.discovery.brokers.srv import SrvRecord, answer, question
from heliograph.errors import ProtocolError
from heliograph.machine import Address

RESOLVERS = Path("/etc/resolv.conf")
RESOLVERS_MAX = 3  # as in the C library
FILE_BYTES_MAX = 1 << 16
PORT = 53
AGAIN_S = 0.4

Found = tuple[list[str], list[str]]
"""Numeric addresses, and problems."""


async def in_numbers(addresses: Sequence[str], seconds: float) -> Found:
    """Resolve the host names among these, all at once."""
    found: list[str] = []
    problems: list[str] = []
    looked_up = await asyncio.gather(*(_in_numbers(text, seconds) for text in addresses))
    for text, numbers in zip(addresses, looked_up, strict=True):
        if numbers is None:
            problems.append(f"{text}: no such host name, or its name server does not answer")
        else:
            found.append(numbers)
    return found, problems


async def _in_numbers(text: str, seconds: float) -> str | None:
    address = address_of(text)
    if address is None or is_number(address[0]):
        return text
    found = await in_number(address, seconds)
    return None if found is None else written(found)


async def in_number(address: Address, seconds: float | None = None) -> Address | None:
    """The same address with a numeric host; None if it cannot be resolved in time."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            infos = await loop.getaddrinfo(*address, family=socket.AF_INET, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError, TimeoutError):  # UnicodeError: not a valid name
        return None
    return str(infos[0][4][0]), address[1]


async def directories_of(domains: Sequence[str], seconds: float, resolvers: Sequence[Address] | None = None) -> Found:
    """The directories that these domains name in SRV records."""
    servers = system_resolvers() if resolvers is None else list(resolvers)
    asked = await asyncio.gather(*(_services(domain, seconds, servers) for domain in domains))
    texts: list[str] = []
    problems: list[str] = []
    for domain, services in zip(domains, asked, strict=True):
        texts += [written((service.host, service.port)) for service in services or ()]
        if not services:
            why = "no name server answered" if services is None else "its DNS names none"
            problems.append(f"directories of {domain}: {why}")
    found, missing = await in_numbers(texts, seconds)
    return found, problems + missing


def system_resolvers(path: Path = RESOLVERS) -> list[Address]:
    """The name servers of this computer; if it names none, the one at localhost."""
    with suppress(OSError, UnicodeDecodeError), path.open("rb") as file:
        lines = [line.split() for line in file.read(FILE_BYTES_MAX).decode("ascii", "replace").splitlines()]
        hosts = [line[1] for line in lines if len(line) > 1 and line[0] == "nameserver"]
        if chosen := [(host, PORT) for host in hosts if is_number(host)][:RESOLVERS_MAX]:
            return chosen
    return [("127.0.0.1", PORT)]


async def _services(domain: str, seconds: float, resolvers: Sequence[Address]) -> list[SrvRecord] | None:
    """The answer of the first resolver that answers; None if none does in time."""
    asked = question(domain, secrets.randbits(16))
    loop = asyncio.get_running_loop()
    said: asyncio.Future[list[SrvRecord]] = loop.create_future()
    doors: list[asyncio.DatagramTransport] = []
    try:
        async with asyncio.timeout(seconds):
            for address in resolvers:
                with suppress(OSError):
                    door, _ = await loop.create_datagram_endpoint(lambda: _Asked(asked, said), remote_addr=address)
                    doors.append(door)
            while doors and not said.done():
                for door in doors:
                    door.sendto(asked)
                await asyncio.wait([said], timeout=AGAIN_S)
    except TimeoutError:
        pass
    finally:
        for door in doors:
            door.close()
    return said.result() if said.done() else None


class _Asked(asyncio.DatagramProtocol):
    """Waits for one answer, and ignores other datagrams."""

    def __init__(self, asked: bytes, said: asyncio.Future[list[SrvRecord]]) -> None:
        self._asked = asked
        self._said = said

    def datagram_received(self, data: bytes, addr: Address) -> None:
        """A datagram of the resolver that was asked, as the socket is connected to it."""
        with suppress(ProtocolError):
            services = answer(data, self._asked)
            if not self._said.done():
                self._said.set_result(services)

    def error_received(self, exc: Exception) -> None:
        """That server does not answer; another may."""
