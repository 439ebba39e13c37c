"""Retention: by age, size and acknowledgement, in slices, held back by durable subscriptions."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.wire import stores
from heliograph.wire.frames import event
from tests.stores.ledge import ORIGIN, Ledge

pytestmark = pytest.mark.req("N10")


def filled(count: int = 10, **settings: Any) -> Ledge:
    """One publication a second."""
    ledge = Ledge(**settings)
    for number in range(1, count + 1):
        ledge.deliver(event(b"t", b"x" * 1_000, ORIGIN, number))
        ledge.settle()
        ledge.now += 1_000_000_000
    return ledge


def later(ledge: Ledge, seconds: int) -> int:
    """Time passes; the first position that is left."""
    for _ in range(seconds):
        ledge.wait(1_000)
        ledge.settle()
    return ledge.vault.logs["main"].first


def test_what_is_older_than_the_limit_is_forgotten() -> None:
    ledge = filled(retain_s=10)
    assert 0 < later(ledge, 5) < 10
    assert later(ledge, 20) == 10


def test_what_is_more_than_the_limit_is_forgotten_oldest_first() -> None:
    ledge = filled(retain_bytes=4_500)
    assert later(ledge, 5) == 5


def test_the_newest_bytes_are_kept_though_they_came_in_one_run_with_more() -> None:
    ledge = Ledge(retain_bytes=2_000)
    for number in (1, 11):
        ledge.deliver(b"".join(event(b"t", b"x" * 1_000, ORIGIN, number + further) for further in range(10)))
        ledge.settle()
    assert len(ledge.vault.logs["main"].runs) == 2
    assert later(ledge, 5) == 10, "the newest 2,000 bytes are in the second run"


def test_without_limits_everything_is_kept() -> None:
    assert later(filled(), 60) == 0


def test_a_name_holds_back_what_it_has_not_acknowledged() -> None:
    ledge = filled(retain_s=5)
    id = f"{ledge.id:016x}"
    ledge.ask(stores.OpenChannel(id, 1, "slow", start="first"))
    ledge.settle()
    assert later(ledge, 30) == 0
    ledge.ask(stores.AckPositions(id, "slow", 4))
    ledge.settle()
    assert later(ledge, 5) == 4
    ledge.ask(stores.DropName(id, "slow"))
    ledge.settle()
    assert later(ledge, 5) == 10


def test_a_run_of_which_a_name_has_acknowledged_a_part_is_kept_whole() -> None:
    ledge = Ledge(retain_s=5)
    for number in (1, 6):
        ledge.deliver(b"".join(event(b"t", b"x", ORIGIN, number + further) for further in range(5)))
        ledge.settle()
    assert len(ledge.vault.logs["main"].runs) == 2
    id = f"{ledge.id:016x}"
    ledge.ask(stores.OpenChannel(id, 1, "slow", start="first"))
    ledge.ask(stores.AckPositions(id, "slow", 7))
    ledge.settle()
    assert later(ledge, 30) == 5, "the second run has positions 5 to 9, of which 7 to 9 are not acknowledged"
    ledge.ask(stores.AckPositions(id, "slow", 10))
    ledge.settle()
    assert later(ledge, 5) == 10


def test_what_every_name_has_acknowledged_goes_if_the_settings_say_so() -> None:
    ledge = filled(retain_acknowledged=False)
    id = f"{ledge.id:016x}"
    for channel, name in enumerate(("one", "two")):
        ledge.ask(stores.OpenChannel(id, channel, name, start="first"))
        ledge.settle()
    ledge.ask(stores.AckPositions(id, "one", 7))
    ledge.ask(stores.AckPositions(id, "two", 3))
    ledge.settle()
    assert later(ledge, 5) == 3


def test_a_name_that_nobody_uses_for_long_is_forgotten() -> None:
    ledge = filled(retain_s=5, name_idle_s=60)
    ledge.ask(stores.OpenChannel(f"{ledge.id:016x}", 1, "gone", start="first"))
    ledge.settle()
    assert later(ledge, 50) == 0
    assert later(ledge, 20) == 10


def test_a_name_that_is_being_read_is_in_use_also_when_nothing_comes_for_it() -> None:
    ledge = filled(retain_s=5, name_idle_s=60)
    id = f"{ledge.id:016x}"
    ledge.ask(stores.OpenChannel(id, 1, "quiet", start="first"))
    ledge.settle()
    for _ in range(10):
        later(ledge, 20)
        ledge.ask(stores.GiveCredit(id, 1, 10))
    ledge.settle()
    assert len(ledge.store._names) == 1
    assert later(ledge, 100) == 10  # its reader fell silent


def test_a_publisher_is_not_forgotten_while_something_of_it_is_on_its_way_to_the_disk() -> None:
    """Else what it repeats would be kept twice."""
    ledge = Ledge(publisher_idle_s=60)
    id = f"{ledge.id:016x}"
    ledge.ask(stores.AttachPublisher(id))
    ledge.settle()
    ledge.deliver(ledge.reliable(1, 0))
    ledge.settle()
    ledge.wait(600_000)
    [(ticket, query)] = [each for each in ledge.reads if "o/" in str(each)]
    found = ledge.vault.find(query)
    ledge.deliver(ledge.reliable(2, 1))
    ledge.store.done(ticket, found, ledge.now)
    ledge.reads.remove((ticket, query))
    ledge.settle()
    assert any(key.startswith("o/") for key in ledge.vault.keys)
    later(ledge, 700)
    assert not any(key.startswith("o/") for key in ledge.vault.keys)


def test_a_reader_behind_what_was_forgotten_is_told_of_the_gap() -> None:
    ledge = filled(retain_bytes=4_500)
    later(ledge, 5)
    ledge.frames.clear()
    ledge.ask(stores.OpenChannel(f"{ledge.id:016x}", 1, position=0))
    ledge.settle()
    notices = [frame.payload for frame in ledge.frames if frame.flags & stores.StoredFlag.NOTICE]
    assert len(notices) == 1
    assert stores.decode(stores.Notice, notices[0]).gap == (0, 5)
