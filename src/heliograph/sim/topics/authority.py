"""The authority of simulated networks: certificates and keyrings that are the same in every run.

In:    names and roles of parties; a seed for their seals.
Out:   keyrings, chains.
State: pairs of keys, remembered per process: they depend on the names only.
Not here: certificates of live networks (trust/certificates.py), what is sealed with them (trust/seeded_hpke.py).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random

from heliograph.model.identity import Role
from heliograph.sim.clock import EPOCH_NS
from heliograph.trust.certificates import Pair, issue, make_authority
from heliograph.trust.chains import Authorities
from heliograph.trust.keyring import Keyring, Own
from heliograph.trust.seeded_hpke import SimulatedSealer

_BEGAN = datetime.fromtimestamp(EPOCH_NS // 1_000_000_000, UTC) - timedelta(days=1)


@cache
def _authority() -> Pair:
    return make_authority("simulated-authority", _BEGAN, draw=Random("authority").randbytes)


@cache
def _own(name: str, role: Role) -> Own:
    pair = issue(_authority(), name, [role], [], _BEGAN, draw=Random(f"{name}/{role}").randbytes)
    return Own.from_pem(pair.certificate, pair.key)


def chain_of_party(name: str, role: Role = Role.CLIENT) -> bytes:
    """The certificates of a party."""
    return _own(name, role).chain


def keyring_of_party(name: str, role: Role, seed: str) -> Keyring:
    """What a party signs, seals and verifies with; equal seeds make equal seals."""
    authorities = Authorities.from_pem(_authority().certificate)
    return Keyring(authorities, _own(name, role), sealer=SimulatedSealer(Random(f"{seed}/{name}").randbytes))
