"""Peers whose certificates were revoked lose their links and get no new ones."""

from __future__ import annotations

import pytest

from heliograph.broker import expelled
from heliograph.broker.commands import Expel
from heliograph.errors import Reason
from heliograph.machine import Peer
from heliograph.notes import PeerRefused
from tests.broker.talk import Talk


def shows(serial: str) -> Peer:
    return Peer("tls", "127.0.0.1:9", "main", serial=serial)


@pytest.mark.req("B17")
def test_links_of_revoked_certificates_end_and_others_stay() -> None:
    talk = Talk()
    talk.attach(1, shows("A1"))
    talk.say(1, talk.hello(1))
    talk.join(2)
    talk.broker.tell(Expel(("A1", "A2")), talk.now)
    talk.take()
    assert talk.hangups == {1: Reason.CERTIFICATE_REVOKED}
    assert talk.heard[1].goodbye == "certificate_revoked"
    talk.attach(3, shows("A2"))
    talk.attach(4, shows("A3"))
    assert talk.hangups.keys() == {1, 3}
    assert [note.reason for note in talk.notes if isinstance(note, PeerRefused)] == [Reason.CERTIFICATE_REVOKED] * 2
    assert talk.broker.report("overview")["expelled"] == 2


@pytest.mark.req("B17")
def test_the_table_is_bounded_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expelled, "EXPELLED_MAX", 3)
    talk = Talk()
    talk.broker.tell(Expel(tuple("ABCDE")), talk.now)
    talk.attach(1, shows("A"))
    talk.attach(2, shows("E"))
    assert talk.hangups.keys() == {2}
