"""The answer policy: decides whether this broker answers a requester.

In:    a request, the address it came from, its proven sender if there is one.
Out:   nothing if the request may be answered; otherwise ProtocolError with the reason.
State: none beyond the settings.
Not here: proving an address (cookies.py) or a sender (signing.py).
Paper: [brokers] §5 and §7: by credential, by network realm, or not at all.
"""

from __future__ import annotations

from hashlib import sha256
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from heliograph.discovery.brokers.config import ResponderConfig
from heliograph.errors import ProtocolError, Reason

if TYPE_CHECKING:  # cryptography is slow to load, and only nodes with certificates need it
    from heliograph.trust.chains import Holder


class AnswerPolicy:
    """The policy of one broker."""

    def __init__(self, config: ResponderConfig) -> None:
        self._policy = config.policy
        self._realms = [ip_network(realm) for realm in config.realms]

    def check(self, host: str, holder: Holder | None) -> None:
        """ProtocolError unless this requester gets an answer."""
        if self._policy == "silent":
            raise ProtocolError(Reason.ASK_DENIED, "this broker answers no requests")
        if self._policy == "credential" and holder is None:
            raise ProtocolError(Reason.CREDENTIAL_MISSING, "this broker answers only requesters with a certificate")
        if self._policy == "realm" and not self._is_near(host):
            raise ProtocolError(Reason.REALM_FOREIGN, f"{host[:64]} is in none of this broker's realms")

    def _is_near(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in realm for realm in self._realms)


def is_among(id: bytes, attempt: int, broker: str, brokers: int, budget: int) -> bool:
    """True if this broker, of this many, is among those that use the budget of a request.

    No broker knows which others answer. Each draws from the request's id and its own name, so that on average as many
    answer as the budget allows, different ones at each attempt; if there is budget for all, all answer.
    """
    if brokers <= budget:
        return True
    draw = int.from_bytes(sha256(b"%b%c%b" % (id, attempt, broker.encode())).digest()[:8], "big")
    return draw * brokers < budget << 64
