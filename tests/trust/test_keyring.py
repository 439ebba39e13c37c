"""The keyring: statements of proven holders, remembered within bounds and never longer than they are true."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from hypothesis import example, given

from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.live.parallel_checks import check_all
from heliograph.model.identity import Role
from heliograph.trust.certificates import LEAF_DAYS
from heliograph.trust.chains import Authorities
from heliograph.trust.envelope import ENVELOPE_BYTES, decode, encode
from heliograph.trust.keyring import Keyring, Own
from heliograph.trust.recent import Recent
from heliograph.trust.sealing import SEAL_BYTES
from heliograph.trust.signatures import CheckAll, check_in_turn
from tests.trust import parties
from tests.trust.parties import AUTHORITIES, BROKER, CLIENT, DAY_NS, WALL_NS, chain, keyring, outcome, own, refused

DOMAIN, OTHER_DOMAIN, PAYLOAD = b"test/answer/1", b"test/request/1", b"take broker-1"
DATAGRAM_BYTES = 1_232
STATEMENT = keyring(BROKER).sign(DOMAIN, PAYLOAD)
EXPIRED_NS = WALL_NS + (LEAF_DAYS + 1) * DAY_NS


def listener(**limits: int) -> Keyring:
    """A client that knows the broker's chain."""
    ring = keyring(CLIENT, **limits)
    ring.learn(chain(BROKER), WALL_NS)
    return ring


WARM, COLD = listener(), Keyring(AUTHORITIES)


@pytest.mark.req("B17")
def test_a_signed_statement_comes_with_its_proven_signer() -> None:
    signed = listener().verify(DOMAIN, STATEMENT, WALL_NS, Role.BROKER)
    assert signed.payload == PAYLOAD
    assert signed.holder.identity.entity == "broker-1"


@pytest.mark.req("B17")
def test_a_signer_is_unknown_until_its_chain_is_learnt() -> None:
    ring = keyring()
    assert refused(ring.verify, DOMAIN, STATEMENT, WALL_NS) is Reason.CERTIFICATE_UNKNOWN
    wanted = decode(STATEMENT).chain_hash
    fetched = keyring(BROKER).chain(wanted)  # what the broker answers when it is asked for it
    assert fetched is not None
    ring.learn(fetched, WALL_NS)
    assert ring.verify(DOMAIN, STATEMENT, WALL_NS).payload == PAYLOAD
    assert ring.chain(wanted) == fetched  # and hands on to the next who asks
    assert ring.chain(bytes(32)) is None


@pytest.mark.req("B17")
def test_a_statement_is_worth_nothing_in_another_domain_even_after_it_was_verified() -> None:
    ring = listener()
    ring.verify(DOMAIN, STATEMENT, WALL_NS)
    assert refused(ring.verify, OTHER_DOMAIN, STATEMENT, WALL_NS) is Reason.SIGNATURE_WRONG


@pytest.mark.req("B17")
def test_a_statement_cannot_be_put_under_another_name() -> None:
    ring = listener()
    ring.learn(chain(CLIENT), WALL_NS)
    taken = decode(STATEMENT)
    forged = encode(replace(taken, signed=own(CLIENT).chain_hash + taken.payload))
    assert refused(ring.verify, DOMAIN, forged, WALL_NS) is Reason.SIGNATURE_WRONG


@pytest.mark.req("B17")
def test_the_role_of_a_signer_is_asked_for() -> None:
    ring = listener()
    assert refused(ring.verify, DOMAIN, STATEMENT, WALL_NS, Role.ADMIN) is Reason.ROLE_MISSING
    assert refused(ring.learn, chain(CLIENT), WALL_NS, Role.BROKER) is Reason.ROLE_MISSING


@pytest.mark.req("B17")
def test_an_impostor_is_not_learnt() -> None:
    ring = keyring()
    assert refused(ring.learn, chain(parties.IMPOSTOR), WALL_NS) is Reason.CERTIFICATE_UNTRUSTED
    forged = keyring(parties.IMPOSTOR).sign(DOMAIN, PAYLOAD)
    assert refused(ring.verify, DOMAIN, forged, WALL_NS) is Reason.CERTIFICATE_UNKNOWN
    assert ring.report()["holders"]["entries"] == 0


@pytest.mark.req("B17")
def test_what_is_remembered_ends_with_the_certificate() -> None:
    ring = listener()
    ring.verify(DOMAIN, STATEMENT, WALL_NS)
    assert refused(ring.verify, DOMAIN, STATEMENT, EXPIRED_NS) is Reason.CERTIFICATE_EXPIRED
    assert ring.report()["holders"]["entries"] == 0
    assert refused(ring.learn, chain(BROKER), EXPIRED_NS) is Reason.CERTIFICATE_EXPIRED


def test_a_clock_that_steps_back_before_the_certificate_unproves_it() -> None:
    ring = listener()
    assert refused(ring.verify, DOMAIN, STATEMENT, WALL_NS - DAY_NS) is Reason.CERTIFICATE_NOT_YET_VALID
    ring.learn(chain(BROKER), WALL_NS)
    assert ring.verify(DOMAIN, STATEMENT, WALL_NS).payload == PAYLOAD


def test_a_certificate_of_tomorrow_is_taken_tomorrow() -> None:
    ring = keyring()
    assert refused(ring.learn, chain(parties.LATER), WALL_NS) is Reason.CERTIFICATE_NOT_YET_VALID
    assert ring.learn(chain(parties.LATER), WALL_NS + 30 * DAY_NS).identity.entity == "broker-2"


def test_other_authorities_unprove_everybody_they_do_not_vouch_for() -> None:
    ring = listener()
    ring.verify(DOMAIN, STATEMENT, WALL_NS)
    ring.renew(Keyring(Authorities.from_pem(parties.RIVAL.certificate), own(parties.IMPOSTOR)))
    assert refused(ring.verify, DOMAIN, STATEMENT, WALL_NS) is Reason.CERTIFICATE_UNKNOWN
    assert refused(ring.learn, chain(BROKER), WALL_NS) is Reason.CERTIFICATE_UNTRUSTED
    assert ring.own == own(parties.IMPOSTOR)


def test_a_party_knows_its_own_chain() -> None:
    ring = keyring(BROKER)
    assert ring.verify(DOMAIN, STATEMENT, WALL_NS).holder.identity.entity == "broker-1"


def test_a_statement_verified_once_is_remembered() -> None:
    ring = listener()
    for _ in range(3):
        ring.verify(DOMAIN, STATEMENT, WALL_NS)
    assert ring.report()["signatures"] == {"entries": 1, "hits": 2, "misses": 1, "evictions": 0}
    assert ring.report()["holders"]["hits"] == 3


def test_a_wrong_signature_is_not_remembered() -> None:
    ring = listener()
    wrong = parties.flipped(STATEMENT, 8 * (ENVELOPE_BYTES + 1))
    for _ in range(2):
        assert refused(ring.verify, DOMAIN, wrong, WALL_NS) is Reason.SIGNATURE_WRONG
    assert ring.report()["signatures"]["entries"] == 0


def test_memories_are_bounded_and_what_they_lost_is_verified_again() -> None:
    ring = listener(holders_max=1, signatures_max=2)
    statements = [keyring(BROKER).sign(DOMAIN, b"%d" % number) for number in range(4)]
    for statement in statements * 2:
        ring.verify(DOMAIN, statement, WALL_NS)
    assert ring.report()["signatures"] == {"entries": 2, "hits": 0, "misses": 8, "evictions": 6}
    ring.learn(chain(CLIENT), WALL_NS)
    assert refused(ring.verify, DOMAIN, STATEMENT, WALL_NS) is Reason.CERTIFICATE_UNKNOWN


def test_what_was_asked_for_last_is_forgotten_last() -> None:
    memory: Recent[str, int] = Recent(2)
    memory.keep("a", 1)
    memory.keep("b", 2)
    assert memory.get("a") == 1
    memory.keep("c", 3)
    assert (memory.get("a"), memory.get("b"), memory.get("c")) == (1, None, 3)
    memory.keep("c", 4)  # takes no second place
    memory.drop("missing")
    assert (len(memory), memory.get("c")) == (2, 4)


@pytest.mark.req("B17")
def test_what_is_sealed_for_a_holder_only_that_holder_opens() -> None:
    ring = listener()
    broker = ring.holder(own(BROKER).chain_hash, WALL_NS)
    sealed = ring.seal(broker, DOMAIN, PAYLOAD, b"request 7")
    assert keyring(BROKER).open(DOMAIN, sealed, b"request 7") == PAYLOAD
    assert refused(keyring(CLIENT).open, DOMAIN, sealed, b"request 7") is Reason.SEAL_BROKEN
    assert refused(keyring().open, DOMAIN, sealed, b"request 7") is Reason.SEAL_BROKEN
    assert refused(keyring(BROKER).open, OTHER_DOMAIN, sealed, b"request 7") is Reason.SEAL_BROKEN
    assert refused(keyring(BROKER).open, DOMAIN, sealed) is Reason.SEAL_BROKEN


def test_signed_and_sealed_leaves_a_kilobyte_of_a_datagram() -> None:
    ring = listener()
    broker = ring.holder(own(BROKER).chain_hash, WALL_NS)
    payload = bytes(DATAGRAM_BYTES - ENVELOPE_BYTES - SEAL_BYTES)
    assert len(payload) > 1_024
    assert len(ring.seal(broker, DOMAIN, ring.sign(DOMAIN, payload))) == DATAGRAM_BYTES


def test_without_a_certificate_nothing_is_signed() -> None:
    with pytest.raises(UsageError, match=r"tls\.certificate"):
        keyring().sign(DOMAIN, PAYLOAD)


def test_a_key_is_never_shown() -> None:
    ring, mine = keyring(BROKER), own(BROKER)
    shown = f"{ring!r} {mine!r} {ring.report()} {listener().holder(mine.chain_hash, WALL_NS)!r}"
    secret = mine.key.private_numbers().private_value
    assert "PRIVATE" not in shown
    assert "ec." not in shown.lower()
    assert str(secret) not in shown
    assert f"{secret:x}" not in shown
    with pytest.raises(TypeError):
        pickle.dumps(mine)


@pytest.mark.parametrize(
    ("certificate", "key", "problem"),
    [
        (BROKER.certificate, CLIENT.key, "does not belong"),
        (BROKER.certificate, b"nonsense", "PEM private key"),
        (BROKER.certificate, BROKER.certificate, "PEM private key"),
        (b"nonsense", BROKER.key, "PEM certificates"),
    ],
)
def test_a_key_and_a_certificate_that_do_not_fit_are_refused(certificate: bytes, key: bytes, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        Own.from_pem(certificate, key)
    assert "-----" not in str(caught.value)


@given(parties.garbled(STATEMENT))
def test_any_bytes_give_the_statement_or_a_reason(data: bytes) -> None:
    for ring in (WARM, COLD):
        found = outcome(ring.verify, DOMAIN, data, WALL_NS)
        if isinstance(found, Reason):
            assert found in (Reason.BODY_MALFORMED, Reason.CERTIFICATE_UNKNOWN, Reason.SIGNATURE_WRONG)
        else:
            assert data == STATEMENT


@given(parties.flips_of(STATEMENT))
def test_no_bit_of_a_statement_can_be_changed(changed: bytes) -> None:
    refused(WARM.verify, DOMAIN, changed, WALL_NS)


@given(parties.garbled(chain(BROKER)))
@example(chain(BROKER) * 2)  # a splice of the whole chain behind itself: it was learnt under a second hash
def test_any_bytes_as_a_chain_are_learnt_or_give_a_reason(data: bytes) -> None:
    found = outcome(WARM.learn, data, WALL_NS)
    if isinstance(found, Reason):
        assert found in (Reason.CERTIFICATE_MALFORMED, Reason.CERTIFICATE_UNTRUSTED)
    else:
        assert data == chain(BROKER)


@pytest.mark.req("B17")
@pytest.mark.parametrize("checks", [check_in_turn, check_all])
def test_many_statements_are_verified_as_each_one_would_be(checks: CheckAll) -> None:
    ring = listener()
    ring.check_with(checks)
    good = [keyring(BROKER).sign(DOMAIN, b"statement %d" % number) for number in range(20)]
    forged = good[3][:-1] + b"x"
    strange = keyring(CLIENT).sign(DOMAIN, PAYLOAD)  # its signer has another role
    upper = good[5][:1] + bytes(31) + b"\x01" + b"\xff" * 32 + good[5][65:]  # a signature in no accepted form
    many = [*good[:7], forged, b"", strange, *good[7:], upper, good[0], good[4][:80]]

    def alone(data: bytes) -> object:
        return outcome(listener().verify, DOMAIN, data, WALL_NS, Role.BROKER)

    for _ in range(2):  # the second time most are remembered
        found = ring.verify_all(DOMAIN, many, WALL_NS, Role.BROKER)
        assert [one.reason if isinstance(one, ProtocolError) else one for one in found] == [alone(one) for one in many]
    assert sum(isinstance(one, ProtocolError) for one in found) == 5
    assert ring.verify_all(DOMAIN, [], WALL_NS) == []
