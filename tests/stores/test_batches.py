"""Batches: staged by any session of an entity, visible by one commit, once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from heliograph.errors import Reason
from heliograph.stores import batch_publishers
from heliograph.stores.batch_publishers import BatchState
from heliograph.stores.staged import REFERRED, STAGED
from heliograph.vault import KeysRead, LogsRead, Put, ReadKeys, ReadLogs, Trim, VaultOpened
from heliograph.wire import stores
from heliograph.wire.frames import SCAN, Flag, event
from heliograph.wire.hearing import Hearing
from tests.stores.ledge import EVERYTHING, Ledge

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


def stage(
    ledge: Ledge, origin: int, first: int, count: int, batch: int, part: str, previous: int = 0, publisher: str = "job"
) -> None:
    frames = []
    for number in range(first, first + count):
        quality = b'["%016x",%d,"%b",%d,"%b"]' % (ledge.id, previous, publisher.encode(), batch, part.encode())
        headers = b'{"$d":["Inbox/cccccccccccccccc/dddddddddddddddd"],"$q":%b}' % quality
        frames.append(event(b"t", b"%d" % number, origin, number, headers, Flag.DIRECTED))
        previous = number
    ledge.deliver(*frames)
    ledge.settle()


def commit(
    ledge: Ledge,
    batch: int,
    *parts: tuple[str, int],
    entity: str = "alice",
    publisher: str = "job",
    source: str = "",
    hears: Hearing | None = EVERYTHING,
    **more: Any,
) -> tuple[bool, dict[str, Any]]:
    request = stores.CommitBatch(f"{ledge.id:016x}", publisher, batch, list(parts), **more)
    number = ledge.ask(request, entity=entity, source=source, hears=hears)
    ledge.settle()
    return ledge.answer(number)


def values(ledge: Ledge, prefix: str) -> dict[str, bytes]:
    found = ledge.vault.find(ReadKeys(prefix))
    assert isinstance(found, KeysRead)
    return {key: value or b"" for key, value in found.pairs}


def keys(ledge: Ledge, prefix: str) -> list[str]:
    return list(values(ledge, prefix))


def staged_logs(ledge: Ledge) -> list[str]:
    found = ledge.vault.find(ReadLogs(STAGED))
    assert isinstance(found, LogsRead)
    return [log.name.rsplit("/", 1)[1] for log in found.logs]


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
def test_holders_leave_places_for_publishers_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_publishers, "PUBLISHERS_MAX", 8)
    ledge = Ledge()
    ledge.ask(stores.AttachPublisher(f"{ledge.id:016x}"), "anonymous", inbox(ONE))
    ledge.ask(stores.AttachPublisher(f"{ledge.id:016x}"), "bob", inbox(TWO))
    ledge.settle()
    last = {ONE: 0, TWO: 0}

    def commits(origin: int, entity: str, source: str, names: str) -> list[int]:
        said = []
        for name in names:
            stage(ledge, origin, last[origin] + 1, 1, 1, "0", last[origin], name)
            last[origin] += 1
            own: dict[str, Any] = {"entity": entity, "source": source, "publisher": name}
            said.append(commit(ledge, 1, ("0", 1), **own, proof="ab" * 32)[1].get("code", 0))
        return said

    full = Reason.BATCHES_OVER_LIMIT
    assert commits(ONE, "anonymous", "192.0.2.1", "abcdef") == [0] * 4 + [full] * 2
    assert commits(ONE, "anonymous", "192.0.2.2", "ghi") == [0] * 2 + [full]
    assert commits(TWO, "bob", "192.0.2.1", "abc") == [0, full, full]
    assert commits(ONE, "anonymous", "192.0.2.2", "a") == [0], "those that are known go on"
    ledge.wait(60_000)
    ledge.settle()
    again = Ledge(ledge.vault)
    assert commit(again, 2, ("0", 0), entity="bob", publisher="a")[0]
    assert commit(again, 1, publisher="b", entity="bob") == (True, {"batch": 1, "position": 7})
    assert keys(again, "c/") == [f"c/anonymous/{name}" for name in "abcdgh"] + ["c/bob/a"]


def test_a_publisher_that_is_used_once_takes_no_place_and_its_batch_is_still_there_once() -> None:
    ledge = staging()
    stage(ledge, ONE, 1, 2, 7, "0.x")
    assert commit(ledge, 7, ("0.x", 2), once=True) == (True, {"batch": 7})
    assert keys(ledge, "c/") == []
    again = Ledge(ledge.vault)
    for one in (ledge, again):
        assert commit(one, 7, ("0.x", 2), once=True)[1] == {"batch": 7, "repeated": True}
        assert len(read(one)) == 2


def test_an_empty_batch_of_an_unknown_publisher_leaves_nothing_and_that_of_a_known_one_counts() -> None:
    ledge = staging()
    assert commit(ledge, 3, ("0", 0)) == (True, {"batch": 3})
    assert keys(ledge, "") == ["id", *keys(ledge, "o/")]
    stage(ledge, ONE, 1, 1, 1, "0")
    commit(ledge, 1, ("0", 1))
    assert commit(ledge, 2) == (True, {"batch": 2, "position": 1})
    assert commit(ledge, 1)[1] == {"batch": 2, "position": 1, "repeated": True}


def test_parts_that_a_commit_does_not_name_are_dropped_with_it() -> None:
    ledge = staging()
    stage(ledge, ONE, 1, 2, 1, "0.crashed")
    stage(ledge, TWO, 1, 2, 1, "0.again")
    stage(ledge, TWO, 3, 1, 2, "0.next", previous=2)
    commit(ledge, 1, ("0.again", 2))
    assert staged_logs(ledge) == ["0.again", "0.next"]
    assert [origin for _, origin, _ in read(ledge)] == [TWO, TWO]


def test_another_query_with_an_old_number_is_told_so_and_one_with_a_new_number_goes_on() -> None:
    ledge = staging()
    stage(ledge, ONE, 1, 1, 3, "a")
    assert commit(ledge, 3, ("a", 1), query="first")[0]
    assert commit(ledge, 3, ("a", 1), query="first")[1]["repeated"]
    for batch in (0, 3):
        granted, said = commit(ledge, batch, ("b", 1), query="second")
        assert (granted, said["code"]) == (False, Reason.BATCH_FOREIGN)
        assert "publisher of its own" in said["text"]
    stage(ledge, ONE, 2, 1, 4, "c", previous=1)
    assert commit(ledge, 4, ("c", 1), query="second")[0]
    assert commit(Ledge(ledge.vault), 4, query="first")[1]["code"] == Reason.BATCH_FOREIGN


def test_a_publisher_that_was_idle_for_long_is_forgotten_and_its_last_batch_is_still_there_once() -> None:
    ledge = staging(name_idle_s=3_600)
    stage(ledge, ONE, 1, 2, 5, "0")
    commit(ledge, 5, ("0", 2), query="q")
    ledge.wait(60_000)
    ledge.settle()
    assert keys(ledge, "c/") == ["c/alice/job"]
    for _ in range(2):
        ledge.wait(3_600_000)
        ledge.settle()
    assert keys(ledge, "c/") == []
    assert commit(ledge, 5, ("other", 2), query="q")[1] == {"batch": 5, "repeated": True}
    assert commit(ledge, 5, ("other", 2), query="p")[1]["code"] == Reason.BATCH_FOREIGN
    for _ in range(8):
        ledge.wait(86_400_000)
        ledge.settle()
    assert len(read(ledge)) == 2, "its parts stay while they are visible"


def test_parts_are_removed_when_retention_has_removed_what_refers_to_them() -> None:
    ledge = staging()
    stage(ledge, ONE, 1, 2, 1, "0")
    commit(ledge, 1, ("0", 2))
    ledge.wait(60_000)
    ledge.settle()
    assert staged_logs(ledge) == ["0"]
    ledge.vault.commit([Trim("main", 2)])
    again = Ledge(ledge.vault)
    again.wait(61_000)
    again.settle()
    assert staged_logs(again) == []
    assert keys(again, REFERRED) == []


def test_the_bytes_of_batches_count_where_retention_keeps_the_newest_bytes() -> None:
    ledge = staging(retain_bytes=3_000)
    for batch in range(1, 7):
        stage(ledge, ONE, 20 * batch, 20, batch, "0", previous=20 * batch - 1 if batch > 1 else 0)
        commit(ledge, batch, ("0", 20))
    assert ledge.store._tail.referred_bytes > 3 * 3_000
    ledge = Ledge(ledge.vault, retain_bytes=3_000)  # what is forgotten and what is not is in the vault
    for _ in range(5):
        ledge.wait(2_000)
        ledge.settle()
    left = ledge.store._tail.referred_bytes
    assert ledge.vault.logs["main"].first == 80, "of two batches, the older one is partly within the limit"
    assert 4_900 < left < 5_000
    again = Ledge(ledge.vault, retain_bytes=3_000)
    assert again.store._tail.referred_bytes == left
    for _ in range(70):
        again.wait(1_000)
        again.settle()
    assert len(staged_logs(again)) == 2
    assert [position for position, _, _ in read(again)] == list(range(80, 120))


def test_the_bytes_of_a_batch_that_could_not_be_committed_do_not_count() -> None:
    ledge = staging()
    stage(ledge, ONE, 1, 2, 1, "0")
    ledge.ask(stores.CommitBatch(f"{ledge.id:016x}", "job", 1, [("0", 2)]))
    ledge.read()
    assert ledge.store._tail.referred_bytes > 0
    ledge.fail(Reason.VAULT_FULL)
    assert ledge.store._tail.referred_bytes == 0


def test_a_vault_of_before_goes_on() -> None:
    """Then a state had a number and a position only, and the key of a visible part no value."""
    ledge = staging()
    stage(ledge, ONE, 1, 2, 1, "0")
    commit(ledge, 1, ("0", 2), query="q")
    (part,) = keys(ledge, REFERRED)
    ledge.vault.commit([Put(part, b""), Put("c/alice/job", b'{"batch":1,"position":0}')])
    again = Ledge(ledge.vault)
    assert commit(again, 1, ("0", 2), query="any")[1] == {"batch": 1, "repeated": True}
    again.wait(60_000)
    again.settle()
    assert len(read(again)) == 2
    (state,) = [msgspec.json.decode(value, type=BatchState) for value in values(again, "c/").values()]
    assert (state.batch, state.position, state.query) == (1, 0, None)
    assert state.used_ns, "it counts as used now"
    stage(ledge, ONE, 3, 1, 2, "0", previous=2)
    third = Ledge(ledge.vault)
    assert commit(third, 2, ("0", 1), query="any") == (True, {"batch": 2, "position": 2})
    third.vault.commit([Trim("main", 2)])
    fourth = Ledge(third.vault)
    fourth.wait(61_000)
    fourth.settle()
    fourth.wait(200)
    fourth.settle()
    assert [name for name in keys(fourth, REFERRED) if "1/0" in name] == []


@pytest.mark.req("O6")
def test_without_credentials_a_publisher_belongs_to_the_first_that_shows_a_secret() -> None:
    ledge = staging()
    ledge.ask(stores.AttachPublisher(f"{ledge.id:016x}"), "anonymous", inbox(3))
    ledge.settle()
    mine, other = "ab" * 32, "cd" * 32
    stage(ledge, 3, 1, 1, 1, "0")
    stage(ledge, 3, 2, 1, 2, "0", previous=1)
    by: dict[str, Any] = {"entity": "anonymous", "source": "192.0.2.1"}
    assert commit(ledge, 1, ("0", 1), **by)[1]["code"] == Reason.NAME_UNPROVEN
    assert commit(ledge, 1, ("0", 1), **by, proof=mine)[0]
    for one in (ledge, Ledge(ledge.vault)):
        for once in (False, True):
            assert commit(one, 2, ("0", 1), **by, proof=other, once=once)[1]["code"] == Reason.NAME_FOREIGN
            assert commit(one, 1, ("0", 1), **by, proof=other, once=once)[1]["code"] == Reason.NAME_FOREIGN
    assert commit(ledge, 2, ("0", 1), **by, proof=mine)[0]


@pytest.mark.req("O6")
def test_a_batch_that_another_client_committed_once_is_no_repeat_of_ours() -> None:
    ledge = staging()
    ledge.ask(stores.AttachPublisher(f"{ledge.id:016x}"), "anonymous", inbox(3))
    ledge.settle()
    stage(ledge, 3, 1, 1, 1, "0")
    stage(ledge, 3, 2, 1, 1, "1", previous=1)
    assert commit(ledge, 1, ("0", 1), entity="anonymous", proof="ab" * 32, once=True)[0]
    said = commit(ledge, 1, ("1", 1), entity="anonymous", proof="cd" * 32)[1]
    assert said["code"] == Reason.NAME_FOREIGN
