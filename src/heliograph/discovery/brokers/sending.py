"""Sending: sends the messages of a search on the right socket or link, and limits what unproven addresses get.

In:    messages and where they go; which sockets are open.
Out:   datagrams and writes, in the search's outbox.
State: the ports of open sockets; the restraint towards unproven addresses (restraint.py).
Not here: which messages are sent (request_sender.py, pinging.py, measuring.py).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.config import SOCKET, SOCKET6
from heliograph.discovery.brokers.messages import DIRECTORY_NAME, GROUP_BYTES, Message
from heliograph.discovery.restraint import Restraint
from heliograph.machine import Address, LinkId, Outbox, SocketName
from heliograph.wire.frames import service


class Sending:
    """What leaves one search."""

    def __init__(self, outbox: Outbox, restraint: Restraint, counts: Counter[str]) -> None:
        self._outbox = outbox
        self._restraint = restraint
        self._counts = counts
        self._ports: dict[SocketName, int] = {}

    def opened(self, name: SocketName, port: int) -> None:
        """A socket is open."""
        self._ports[name] = port

    def port_to(self, address: Address) -> int:
        """The port from which a datagram leaves for this address; 0: there is no socket for it."""
        return self._ports.get(socket_for(address), 0)

    def send(self, address: Address, data: bytes) -> None:
        """Send one datagram, unless an unproven address has used up its allowance."""
        if not self._restraint.may(address, len(data)):
            self._counts["restrained"] += 1
        elif socket_for(address) in self._ports:
            self._counts["sent"] += 1
            self._outbox.datagrams.append((socket_for(address), address, data))

    def ask(self, address: Address, request: Message) -> None:
        """Send a request; without the chain of certificates if an unproven address's allowance is too small for it."""
        data, left = messages.pack(request), self._restraint.left(address)
        if left is not None and len(data) > left:
            data = messages.pack(replace(request, chain=b""))
        self.send(address, data)

    def ask_group(self, address: Address, request: Message) -> None:
        """A request that every broker of the group will answer."""
        self.send(address, messages.pack(request).ljust(GROUP_BYTES, b"\0"))

    def write(self, link: LinkId, data: bytes) -> None:
        """One message to a directory, on its link."""
        self._counts["sent"] += 1
        self._outbox.writes.append((link, [service(DIRECTORY_NAME, data, 0)]))


def is_six(address: Address) -> bool:
    """True for an IPv6 address."""
    return ":" in address[0]


def socket_for(address: Address) -> SocketName:
    """The socket for this address."""
    return SOCKET6 if is_six(address) else SOCKET
