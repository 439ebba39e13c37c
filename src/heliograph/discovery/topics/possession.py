"""Possession: a requester proves to a broker that it has the key of an entity, where TLS has not proven it.

In:    requests on a link, with the name under which the broker knows the session.
Out:   challenges; whether the proof is that of the holder's key.
State: outstanding challenges, one per link, bounded.
Not here: what the holder may do (grants.py), TLS (live/tls.py).

The holder signs a number that the service chose, its broker and the requester's session, so that the proof is valid
only here and now.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256
from typing import TYPE_CHECKING

from heliograph.errors import ProtocolError, Reason
from heliograph.machine import LinkId

if TYPE_CHECKING:
    from heliograph.trust.chains import Holder
    from heliograph.trust.keyring import Keyring

POSSESSION_DOMAIN = b"heliograph/possession/1"
CHALLENGES_MAX = 1_024


def possession_payload(challenge: str, broker: str, session: str) -> bytes:
    """What a holder signs to prove its key to one broker, on one session."""
    return f"{challenge}/{broker}/{session}".encode()


class Possession:
    """The challenges of one broker's service."""

    def __init__(self, broker: str, secret: bytes, keyring: Keyring) -> None:
        self._broker = broker
        self._secret = secret
        self._keyring = keyring
        self._drawn = 0
        self._challenges: OrderedDict[LinkId, str] = OrderedDict()

    def challenge(self, link: LinkId) -> str:
        """A new number for the requester on this link to sign."""
        self._drawn += 1
        challenge = sha256(self._secret + self._drawn.to_bytes(8, "little")).hexdigest()
        self._challenges[link] = challenge
        if len(self._challenges) > CHALLENGES_MAX:
            self._challenges.popitem(last=False)
        return challenge

    def take(self, link: LinkId) -> str | None:
        """The challenge that this link got, which is used up; None if there is none."""
        return self._challenges.pop(link, None)

    def check(self, challenge: str, proof: bytes, session: str, holder: str, wall_ns: int) -> Holder:
        """The prover; ProtocolError if the holder's key did not sign this challenge for this session."""
        said = self._keyring.verify(POSSESSION_DOMAIN, proof, wall_ns)
        wanted = possession_payload(challenge, self._broker, session)
        if said.payload != wanted or said.holder.identity.entity != holder:
            raise ProtocolError(Reason.POSSESSION_UNPROVEN, f"this is not the key of {holder}")
        return said.holder
