"""The response sender: answers requests for a broker, straight to the requester and if needed through a directory.

In:    requests that the responder decided to answer.
Out:   responses, signed and sealed where there are keys.
State: none.
Not here: which requests are answered (responder.py, policy.py), the broker's status (status.py).
Paper: [brokers] §5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.config import SOCKET, ResponderConfig, address_of
from heliograph.discovery.brokers.messages import (
    RELAY_TOPIC,
    DiscoveryRequest,
    DiscoveryResponse,
    Message,
    Relay,
    Spread,
)
from heliograph.discovery.brokers.signing import Signing
from heliograph.discovery.brokers.status import BrokerStatus
from heliograph.machine import Instant, Outbox
from heliograph.services.broker_session import BrokerSession

if TYPE_CHECKING:  # cryptography is slow to load, and only nodes with certificates need it
    from heliograph.trust.chains import Holder


class ResponseSender:
    """The responses of one broker."""

    def __init__(
        self,
        config: ResponderConfig,
        broker: str,
        incarnation: int,
        status: BrokerStatus,
        signing: Signing,
        outbox: Outbox,
        counts: Counter[str],
        session: Callable[[], BrokerSession | None],
    ) -> None:
        """``session`` is the session with the broker, if there is one."""
        self._config = config
        self._broker = broker
        self._incarnation = incarnation
        self._status = status
        self._signing = signing
        self._outbox = outbox
        self._counts = counts
        self._session = session

    def send(self, request: DiscoveryRequest, holder: Holder | None, spread: Spread, now: Instant) -> None:
        """Answer a request; sealed for its signer, if the request asks for that."""
        message = self._signing.message(self._response(request, now), recipient=holder if request.sealed else None)
        self._counts["answered"] += 1
        self._outbox.datagrams.append((SOCKET, (spread.host, spread.port), messages.pack(message)))
        if spread.relay:
            self._relay(request.id, message, spread)

    def _response(self, request: DiscoveryRequest, now: Instant) -> DiscoveryResponse:
        timestamp_ns, error_ns = self._status.network_ns(now)
        status, config = self._status, self._config
        return DiscoveryResponse(
            id=request.id,
            attempt=request.attempt,
            broker=self._broker,
            incarnation=self._incarnation,
            host=config.advertise_host,
            ports=status.ports,
            address=status.address,
            geography=config.geography,
            institution=config.institution,
            timestamp_ns=timestamp_ns,
            error_ns=error_ns,
            usage=status.usage,
            island=status.island,
            brokers=status.brokers,
            distances=status.distances,
            network=status.network,
            settling=status.is_settling(now),
            before=status.before(now),
        )

    def _relay(self, id: bytes, message: Message, spread: Spread) -> None:
        """The requester receives nothing from brokers: a directory that it does hear relays the answer."""
        self._counts["relayed"] += 1
        to = (spread.host, spread.port)
        data = messages.write(Relay(id, messages.bare(message), "", *to))
        address, session = address_of(spread.relay), self._session()
        if address is None and session is not None:
            session.publish(RELAY_TOPIC + spread.by.encode(), data)
        elif address is not None:
            fits = len(data) <= messages.DATAGRAM_BYTES_MAX
            brief = replace(message, chain=b"")  # a reader that needs the chain asks the directory for it
            whole_or_brief = data if fits else messages.write(Relay(id, messages.bare(brief), "", *to))
            self._outbox.datagrams.append((SOCKET, address, whole_or_brief))
