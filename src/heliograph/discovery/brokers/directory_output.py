"""How a directory's messages leave: by datagram, or in SERVICE frames on links that were dialled to it.

In:    bodies and packed messages, with an address, a link or a known broker.
Out:   datagrams and writes in the directory's outbox.
State: none.
Not here: what is sent when (directory.py, broker_pings.py, request_intake.py).
"""

from __future__ import annotations

from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.config import SOCKET
from heliograph.discovery.brokers.guests import Guests
from heliograph.discovery.brokers.known_broker import KnownBroker
from heliograph.discovery.brokers.messages import DATAGRAM_BYTES_MAX, DIRECTORY_NAME, Certificate, MessageBody
from heliograph.machine import Address, LinkId, Outbox
from heliograph.wire.frames import service


class DirectoryOutput:
    """Sends the messages of one directory."""

    def __init__(self, outbox: Outbox, guests: Guests) -> None:
        self._outbox = outbox
        self._guests = guests

    def send(self, address: Address, data: bytes) -> None:
        """One datagram."""
        self._outbox.datagrams.append((SOCKET, address, data))

    def write(self, link: LinkId, data: bytes) -> None:
        """One message on a link. What comes too late, as a relayed answer for a guest that has left, is dropped."""
        if self._guests.is_here(link):
            self._outbox.writes.append((link, [service(DIRECTORY_NAME, data, 0)]))

    def answer(self, address: Address, link: LinkId | None, body: MessageBody, cookie: bytes) -> None:
        """To a requester: on its link, otherwise by datagram with the cookie that it presented, which no other party
        knows."""
        if link is not None:
            self.write(link, messages.write(body, pad=False))
        else:
            self.send(address, messages.write(body, cookie))

    def tell(self, known: KnownBroker, body: MessageBody, cookie: bytes) -> None:
        """To a broker: on its link, otherwise by datagram with this cookie."""
        if known.link is not None:
            self.write(known.link, messages.write(body, pad=False))
        elif known.address is not None:
            self.send(known.address, messages.write(body, cookie))

    def give_chain(self, address: Address, chain: bytes | None) -> None:
        """Send a chain of certificates by datagram, if it is known and fits."""
        data = messages.write(Certificate(chain or b""))
        if chain and len(data) <= DATAGRAM_BYTES_MAX:
            self.send(address, data)
