"""Batches: staged by any session of an entity, visible by one commit, once."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.errors import Reason
from heliograph.stores import batches
from heliograph.vault import VaultOpened
from heliograph.wire import stores
from heliograph.wire.frames import SCAN, Flag, event
from tests.stores.ledge import Ledge

pytestmark = pytest.mark.req("N11")

ONE, TWO = 0x1111, 0x2222


def inbox(origin: int) -> str:
    return f"Inbox/00000000000000aa/{origin:016x}"


def staging(**settings: Any) -> Ledge:
    ledge = Ledge(**settings)
    for origin in (ONE, TWO):
        ledge.ask(stores.AttachPublisher(f"{ledge.id:016x}"), inbox=inbox(origin))
        ledge.settle()
    return ledge


def stage(ledge: Ledge, origin: int, first: int, count: int, batch: int, part: str, previous: int = 0) -> None:
    frames = []
    for number in range(first, first + count):
        quality = b'["%016x",%d,"job",%d,"%s"]' % (ledge.id, previous, batch, part.encode())
        headers = b'{"$d":["Inbox/cccccccccccccccc/dddddddddddddddd"],"$q":%b}' % quality
        frames.append(event(b"t", b"%d" % number, origin, number, headers, Flag.DIRECTED))
        previous = number
    ledge.deliver(*frames)
    ledge.settle()


def commit(ledge: Ledge, batch: int, *parts: tuple[str, int], entity: str = "alice") -> tuple[bool, dict[str, Any]]:
    number = ledge.ask(stores.CommitBatch(f"{ledge.id:016x}", "job", batch, list(parts)), entity=entity)
    ledge.settle()
    return ledge.answer(number)


def read(ledge: Ledge, **asked: Any) -> list[tuple[int, int, int]]:
    """Everything visible: position, origin, number."""
    ledge.frames.clear()
    ledge.ask(stores.OpenChannel(f"{ledge.id:016x}", 9, window=10_000, **asked))
    ledge.settle()
    found = []
    for frame in [frame for frame in ledge.frames if not frame.flags]:
        _, before, _, offsets = stores.span_of(frame)
        start = 0
        for offset in offsets:
            length, _, origin, number, _ = SCAN.unpack_from(frame.payload, start)
            start += 4 + length
            found.append((before + offset, origin, number))
    return found


def test_a_batch_becomes_visible_by_one_commit_part_after_part() -> None:
    ledge = staging()
    stage(ledge, ONE, 1, 3, 1, "0")
    stage(ledge, TWO, 1, 2, 1, "1")
    assert [number for number, _ in ledge.acknowledgements()][-1] == 2
    assert read(ledge) == []
    assert commit(ledge, 1, ("0", 3), ("1", 2)) == (True, {"batch": 1})
    assert read(ledge) == [(0, ONE, 1), (1, ONE, 2), (2, ONE, 3), (3, TWO, 1), (4, TWO, 2)]
    assert read(ledge, position=1, end=4) == [(1, ONE, 2), (2, ONE, 3), (3, TWO, 1)]


def test_a_reader_that_waits_hears_a_batch_when_it_is_committed() -> None:
    ledge = staging()
    read(ledge)
    stage(ledge, ONE, 1, 2, 1, "0")
    ledge.frames.clear()
    commit(ledge, 1, ("0", 2))
    assert [stores.span_of(frame)[1:] for frame in ledge.frames if not frame.flags] == [(0, 2, range(2))]


def test_a_batch_that_is_committed_again_changes_nothing() -> None:
    ledge = staging()
    stage(ledge, ONE, 1, 2, 1, "0")
    commit(ledge, 1, ("0", 2))
    assert commit(ledge, 1, ("0", 2)) == (True, {"batch": 1, "repeated": True})
    assert len(read(ledge)) == 2


def test_a_batch_that_is_committed_again_begins_where_it_did_after_a_crash_too() -> None:
    ledge = staging()
    stage(ledge, ONE, 1, 2, 1, "0")
    ledge.deliver(*(event(b"t", b"", 7, number) for number in (1, 2, 3)))  # being committed when the batch is
    number = ledge.ask(stores.CommitBatch(f"{ledge.id:016x}", "job", 1, [("0", 2)]), entity="alice")
    ledge.read()
    ledge.settle()
    assert ledge.answer(number) == (True, {"batch": 1, "position": 3})
    assert commit(ledge, 1, ("0", 2)) == (True, {"batch": 1, "position": 3, "repeated": True})
    restarted = Ledge(ledge.vault)
    assert commit(restarted, 1, ("0", 2)) == (True, {"batch": 1, "position": 3, "repeated": True})


def test_what_is_staged_for_a_batch_that_is_visible_is_acknowledged_and_dropped() -> None:
    ledge = staging()
    stage(ledge, ONE, 1, 2, 2, "0")
    commit(ledge, 2, ("0", 2))
    ledge.frames.clear()
    stage(ledge, ONE, 3, 2, 1, "0", previous=2)
    assert ledge.acknowledgements()[-1][0] == 4
    assert commit(ledge, 1, ("0", 2))[1]["repeated"]
    assert len(read(ledge)) == 2


def test_a_commit_that_names_more_than_was_staged_is_refused() -> None:
    ledge = staging()
    stage(ledge, ONE, 1, 2, 1, "0")
    granted, said = commit(ledge, 1, ("0", 3))
    assert (granted, said["code"]) == (False, Reason.BATCH_INCOMPLETE)
    assert commit(ledge, 1, ("0", 2))[0]


def test_parts_that_a_commit_does_not_name_stay_out() -> None:
    ledge = staging()
    stage(ledge, ONE, 1, 2, 1, "0.0")
    stage(ledge, TWO, 1, 2, 1, "0.1")
    commit(ledge, 1, ("0.1", 2))
    assert [origin for _, origin, _ in read(ledge)] == [TWO, TWO]


@pytest.mark.req("O6")
def test_another_entity_has_publishers_of_its_own() -> None:
    ledge = staging()
    stage(ledge, ONE, 1, 2, 1, "0")
    assert commit(ledge, 1, ("0", 2), entity="mallory")[1]["code"] == Reason.BATCH_INCOMPLETE
    assert commit(ledge, 5, entity="mallory")[0]
    assert commit(ledge, 1, ("0", 2)) == (True, {"batch": 1})


def test_two_commits_at_once_make_one_batch_visible() -> None:
    ledge = staging()
    stage(ledge, ONE, 1, 2, 1, "0")
    request = stores.CommitBatch(f"{ledge.id:016x}", "job", 1, [("0", 2)])
    first, second = ledge.ask(request), ledge.ask(request)
    ledge.settle()
    assert ledge.answer(first) == (True, {"batch": 1})
    assert ledge.answer(second) == (True, {"batch": 1, "repeated": True})
    assert len(read(ledge)) == 2


def test_batches_outlive_a_start() -> None:
    ledge = staging()
    stage(ledge, ONE, 1, 2, 1, "0")
    commit(ledge, 1, ("0", 2))
    stage(ledge, ONE, 3, 1, 2, "0", previous=2)
    again = Ledge()
    again.vault = ledge.vault
    again.store.tell(VaultOpened("store", 0), again.now)
    again.settle()
    assert commit(again, 1, ("0", 2))[1]["repeated"]
    assert commit(again, 2, ("0", 1)) == (True, {"batch": 2, "position": 2})
    assert [number for _, _, number in read(again)] == [1, 2, 3]


@pytest.mark.req("O6")
@pytest.mark.parametrize("quality", [b'"job",1,"a b"', b'"",1,""', b'"job",-1,"0"', b'"jo/b",1,"0"'])
def test_names_that_are_none_are_refused_and_their_publisher_is_told(quality: bytes) -> None:
    ledge = staging()
    headers = b'{"$q":["%016x",0,%b]}' % (ledge.id, quality)
    ledge.deliver(event(b"t", b"", ONE, 1, headers, Flag.DIRECTED))
    ledge.settle()
    assert b"refused" in ledge.acknowledgements()[-1][1]
    assert commit(ledge, 1)[0]
    assert read(ledge) == []


@pytest.mark.req("O6")
def test_one_entity_leaves_places_for_publishers_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "PUBLISHERS_MAX", 8)
    ledge = Ledge()

    def commits(entity: str) -> list[int]:
        said = []
        for number in range(6):
            asked = ledge.ask(stores.CommitBatch(f"{ledge.id:016x}", f"p{number}", 1, []), entity)
            ledge.settle()
            said.append(ledge.answer(asked)[1].get("code", 0))
        return said

    full = Reason.BATCHES_OVER_LIMIT
    assert commits("anonymous") == [0] * 4 + [full] * 2
    assert commits("bob") == [0] * 2 + [full] * 4
    assert commits("anonymous") == [0] * 4 + [full] * 2, "those that are known go on"
