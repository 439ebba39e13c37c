"""Certificates that an authority took back are refused, everywhere that a chain is looked at."""

from __future__ import annotations

import pytest

from heliograph.errors import Reason, UsageError
from heliograph.trust.certificates import revoke
from heliograph.trust.chains import Authorities
from heliograph.trust.keyring import Keyring
from heliograph.trust.revocation import Revocations, serials_of
from tests.trust.parties import AUTHORITY, BROKER, CLIENT, IMPOSTOR, NOW, RIVAL, WALL_NS, chain, own, refused

DOMAIN = b"heliograph/test/1"


def with_list(crl: bytes) -> Keyring:
    return Keyring(Authorities.from_pem(AUTHORITY.certificate, crl), own(BROKER))


def test_a_revoked_certificate_is_refused_and_others_are_not() -> None:
    keyring = with_list(revoke(AUTHORITY, [CLIENT.certificate], b"", NOW))
    assert refused(keyring.learn, chain(CLIENT), WALL_NS) is Reason.CERTIFICATE_REVOKED
    assert keyring.learn(chain(BROKER), WALL_NS).identity.entity == "broker-1"


def test_a_list_grows_and_keeps_what_was_in_it() -> None:
    first = revoke(AUTHORITY, [CLIENT.certificate], b"", NOW)
    second = revoke(AUTHORITY, [BROKER.certificate], first, NOW)
    assert len(serials_of(second)) == 2
    assert refused(with_list(second).learn, chain(CLIENT), WALL_NS) is Reason.CERTIFICATE_REVOKED


def test_a_keyring_that_is_renewed_forgets_holders_that_were_revoked_meanwhile() -> None:
    keyring = with_list(b"")
    client = Keyring(Authorities.from_pem(AUTHORITY.certificate), own(CLIENT))
    said = client.sign(DOMAIN, b"hello")
    keyring.learn(chain(CLIENT), WALL_NS)
    assert keyring.verify(DOMAIN, said, WALL_NS).payload == b"hello"
    keyring.renew(with_list(revoke(AUTHORITY, [CLIENT.certificate], b"", NOW)))
    assert refused(keyring.verify, DOMAIN, said, WALL_NS) is Reason.CERTIFICATE_UNKNOWN
    assert refused(keyring.learn, chain(CLIENT), WALL_NS) is Reason.CERTIFICATE_REVOKED


def test_a_list_of_somebody_else_is_an_error_and_so_is_a_certificate_of_somebody_else() -> None:
    with pytest.raises(UsageError, match="not signed"):
        Authorities.from_pem(AUTHORITY.certificate, revoke(RIVAL, [IMPOSTOR.certificate], b"", NOW))
    with pytest.raises(UsageError, match="PEM"):
        Revocations.from_pem(b"nonsense", [])
