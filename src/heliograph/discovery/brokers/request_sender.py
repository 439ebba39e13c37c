"""The request sender: writes the requests of one search, and sends each party its request by datagram or link.

In:    parties to ask; measured distances to landmarks.
Out:   requests, signed and sealed where there are keys; requests for chains of certificates, and our own chain.
State: the number of the current attempt, and whether it may have spread among brokers.
Not here: which parties are asked when (search.py, asked.py), sockets and restraint (sending.py).

A party processes a request again only if its attempt is higher than before. So the attempt grows only when the last
one may have spread: a repeat of the same attempt costs parties that have it nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.asked import DIRECTORY, LINK, MULTICAST, STATIC, AskedParties, AskedParty
from heliograph.discovery.brokers.config import DiscoveryConfig
from heliograph.discovery.brokers.messages import Certificate, CertificateRequest, DiscoveryRequest, Message
from heliograph.discovery.brokers.search_links import SearchLinks
from heliograph.discovery.brokers.sending import Sending
from heliograph.discovery.brokers.signing import Signing
from heliograph.discovery.wall_time import WallTime
from heliograph.errors import ProtocolError
from heliograph.machine import Address, Instant

if TYPE_CHECKING:  # cryptography is slow to load, and only nodes with certificates need it
    from heliograph.trust.chains import Holder

NS_PER_MS = 1_000_000
ATTEMPTS_MAX = 64  # the highest attempt that a request can carry


class RequestSender:
    """The requests of one search."""

    def __init__(
        self,
        id: bytes,
        config: DiscoveryConfig,
        signing: Signing,
        parties: AskedParties,
        sending: Sending,
        links: SearchLinks,
        clock: WallTime,
        *,
        sealed: bool,
        directory_chain: bytes,
    ) -> None:
        """``sealed``: only we can read answers; ``directory_chain``: only that directory can read requests."""
        self._id = id
        self._config = config
        self._signing = signing
        self._parties = parties
        self._sending = sending
        self._links = links
        self._clock = clock
        self._sealed = sealed
        self._directory_chain = directory_chain
        self.attempt = 0
        self._has_spread = False  # a party may have passed on the current attempt

    def next_attempt(self) -> int:
        """Start a new attempt, and return its number."""
        self.attempt = min(ATTEMPTS_MAX, self.attempt + 1)
        return self.attempt

    def repeat(self) -> None:
        """Parties are asked again: in a new attempt if the current one may have spread."""
        if self._has_spread and self.attempt < ATTEMPTS_MAX:  # otherwise repeat the same attempt
            self.attempt += 1
            self._has_spread = False

    def count_as_spread(self) -> None:
        """The current attempt has been answered, so a repeat is a new one."""
        self._has_spread = True

    def send(self, party: AskedParty, distances: Mapping[str, int], measures: bool, now: Instant) -> None:
        """Ask one party, or dial it first. ``measures``: we can measure landmarks; ``distances``: what we measured."""
        if party.how == LINK and party.link is None:
            self._links.dial(party)
            return
        if party.how == STATIC and not party.takes_links:
            self._links.dial(party)  # it may accept links and still not answer searches
        party.asked(now)
        try:
            request = self._request(party, distances, measures, now)
            message = self._signing.message(request, party.cookie or party.nonce, self._reader(party, now))
        except ProtocolError as error:
            party.refused(f"its certificate: {error}")
            return
        self._has_spread = self._has_spread or party.link is not None or bool(party.cookie)
        if party.link is not None:
            self._sending.write(party.link, messages.pack(message, pad=False))
        elif party.how == MULTICAST:
            self._sending.ask_group(party.address, message)
        else:
            self._sending.ask(party.address, message)

    def _reader(self, party: AskedParty, now: Instant) -> Holder | None:
        """The only party that may read a sealed request. ProtocolError if the chain in our settings is not valid."""
        if not self._directory_chain or party.how not in (DIRECTORY, LINK):
            return None
        return self._signing.learn(self._directory_chain, self._clock.at(now))

    def _request(
        self, party: AskedParty, distances: Mapping[str, int], measures: bool, now: Instant
    ) -> DiscoveryRequest:
        config, wall_ns = self._config, self._clock.at(now)
        is_cut_off = self.attempt > 1 and not distances  # no answer came directly: perhaps none can
        return DiscoveryRequest(
            id=self._id,
            attempt=self.attempt,
            requester=config.name,
            role=config.role,
            port=self._sending.port_to(party.address),
            transports=list(config.transports),
            budget=config.answers_max,
            relay=party.how == LINK or is_cut_off,
            sealed=self._sealed,
            measures=party.how == DIRECTORY and measures and self.attempt == 1,
            distances=dict(distances),
            issued_ms=0 if wall_ns is None else wall_ns // NS_PER_MS,
            network=config.network or "",
        )

    # -- chains of certificates -------------------------------------------------------------------------------------

    def ask_for_chain(self, hash: bytes, source: Address) -> None:
        """By datagram; a directory that we have a link to is asked on that link, where any chain fits."""
        link = self._parties.link_to(source)
        if link is None:
            self._sending.send(source, messages.write(CertificateRequest(hash)))
        else:
            self._sending.write(link, messages.write(CertificateRequest(hash), pad=False))

    def give_chain(self, party: AskedParty, message: Message) -> bool:
        """Send our chain to a party that got only its hash. Returns True if the request should be sent again."""
        chain = self._signing.chain(messages.decode(CertificateRequest, message.body).hash)
        data = messages.write(Certificate(chain or b""))
        if not chain or len(data) > messages.DATAGRAM_BYTES_MAX:
            return False
        self._sending.send(party.address, data)
        return party.takes_chain()
