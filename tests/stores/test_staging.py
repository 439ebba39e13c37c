"""What is staged and not committed: bounded, shared, and nobody's batches keep those of others out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import ProtocolError, Reason
from heliograph.stores.config import StoreConfig
from heliograph.stores.staging import PARTS_MAX, Staging, batch_of
from heliograph.vault import ReadLogs
from heliograph.wire import stores
from heliograph.wire.frames import Flag, event
from tests.stores.ledge import Ledge
from tests.stores.test_batches import commit, inbox

pytestmark = pytest.mark.req("N11", "O6")

ATTACKER, VICTIM = 0x3333, 0x4444
ROOM = 1_000_000
PIECE = 10_000


def a_ledge(**settings: Any) -> Ledge:
    ledge = Ledge(**{"retain_bytes": ROOM, **settings})
    attach(ledge, ATTACKER, "anonymous", "192.0.2.1")
    attach(ledge, VICTIM, "alice")
    return ledge


def attach(ledge: Ledge, origin: int, entity: str, source: str = "") -> None:
    ledge.ask(stores.AttachPublisher(f"{ledge.id:016x}"), entity, inbox(origin), source=source)
    ledge.settle()


def stage(
    ledge: Ledge, origin: int, numbers: range, part: str, publisher: str, batch: int = 0, size: int = PIECE
) -> None:
    for number in numbers:
        quality = json.dumps([f"{ledge.id:016x}", number - 1, publisher, batch, part])
        headers = b'{"$q":%b,"$d":["Inbox/cccccccccccccccc/dddddddddddddddd"]}' % quality.encode()
        ledge.deliver(event(b"t", bytes(size), origin, number, headers, Flag.DIRECTED))
    ledge.settle()


def settle_slowly(ledge: Ledge) -> None:
    """Slices of removals need time."""
    for _ in range(20):
        ledge.wait(50)
        ledge.settle()


def refused(ledge: Ledge) -> list[list[int]]:
    said = [json.loads(payload) for _, payload in ledge.acknowledgements() if payload]
    return [each for body in said for each in body.get("refused", [])]


def logs_of_attacker(ledge: Ledge) -> list[str]:
    return [name for name in ledge.vault.logs if name.startswith("b/anonymous/")]


def bytes_staged(ledge: Ledge) -> int:
    return sum(len(run.data) for name, log in ledge.vault.logs.items() if name.startswith("b/") for run in log.runs)


def test_what_is_staged_without_credentials_and_never_committed_is_bounded_and_its_publisher_hears_so() -> None:
    ledge = a_ledge()
    stage(ledge, ATTACKER, range(1, 301), "p", "x")
    assert bytes_staged(ledge) <= ROOM
    assert [300, Reason.BATCHES_OVER_LIMIT] in refused(ledge)


def test_who_has_most_staged_gives_way_and_hears_so_when_it_commits_and_when_it_stages_more() -> None:
    ledge = a_ledge()
    stage(ledge, ATTACKER, range(1, 98), "p", "x")
    stage(ledge, VICTIM, range(1, 11), "p", "job")
    settle_slowly(ledge)
    assert commit(ledge, 0, ("p", 10))[0], "the victim's batch is whole"
    assert logs_of_attacker(ledge) == []
    granted, answer = commit(ledge, 0, ("p", 97), entity="anonymous", publisher="x", proof="ab" * 32)
    assert not granted
    assert (answer["code"], "needed the room" in answer["text"]) == (Reason.BATCH_INCOMPLETE, True)
    stage(ledge, ATTACKER, range(98, 99), "p", "x")
    assert refused(ledge)[-1] == [98, Reason.BATCHES_OVER_LIMIT]
    report = ledge.store.report("overview")
    assert (report["batches"], report["batches_gave_way"], report["staged_bytes"]) == (0, 1, 0)


def test_what_is_on_its_way_to_the_vault_when_a_batch_gives_way_is_not_written_later() -> None:
    ledge = a_ledge()
    for number in range(1, 98):
        quality = b'["%016x",%d,"x",0,"p"]' % (ledge.id, number - 1)
        headers = b'{"$q":%b,"$d":["Inbox/cccccccccccccccc/dddddddddddddddd"]}' % quality
        ledge.deliver(event(b"t", bytes(PIECE), ATTACKER, number, headers, Flag.DIRECTED))
    quality = b'["%016x",0,"job",0,"p"]' % ledge.id
    headers = b'{"$q":%b,"$d":["Inbox/cccccccccccccccc/dddddddddddddddd"]}' % quality
    ledge.deliver(event(b"t", bytes(4 * PIECE), VICTIM, 1, headers, Flag.DIRECTED))
    settle_slowly(ledge)
    assert logs_of_attacker(ledge) == []
    assert commit(ledge, 0, ("p", 1))[0]


def test_the_bound_holds_after_a_start_and_for_the_smallest_parts() -> None:
    ledge = a_ledge()
    stage(ledge, ATTACKER, range(1, 80), "p", "x")
    again = Ledge(ledge.vault, retain_bytes=ROOM)
    assert again.store.report("overview")["staged_bytes"] >= 79 * PIECE
    attach(again, VICTIM, "alice")
    stage(again, VICTIM, range(1, 31), "p", "job")
    settle_slowly(again)
    assert bytes_staged(again) <= ROOM
    assert commit(again, 0, ("p", 30))[0]
    staging = Staging(StoreConfig(staged_bytes_max=PARTS_MAX * 10))
    with pytest.raises(ProtocolError, match="more than by others"):
        _stage_all(staging)


def _stage_all(staging: Staging) -> None:
    for number in range(PARTS_MAX):
        staging.add(("anonymous", "192.0.2.1"), f"b/anonymous/x/{0:020d}/{number}", b"t", 1)


def test_visible_batches_count_as_staged_neither_at_once_nor_after_a_start() -> None:
    ledge = a_ledge(retain_bytes=0, staged_bytes_max=ROOM)
    for batch in range(3):
        stage(ledge, VICTIM, range(60 * batch + 1, 60 * batch + 61), "p", "job", batch)
        assert commit(ledge, batch, ("p", 60))[0]
    assert ledge.store.report("overview")["staged_bytes"] == 0
    again = Ledge(ledge.vault, staged_bytes_max=ROOM)
    assert again.store.report("overview")["staged_bytes"] == 0


def test_what_a_visible_batch_refers_to_stays_although_more_is_staged_under_its_name_and_gives_way() -> None:
    ledge = a_ledge()
    stage(ledge, ATTACKER, range(1, 11), "p", "x")
    assert commit(ledge, 0, ("p", 10), entity="anonymous", publisher="x", proof="ab" * 32, once=True)[0]
    stage(ledge, ATTACKER, range(11, 100), "p", "x")
    stage(ledge, VICTIM, range(1, 41), "p", "job")
    settle_slowly(ledge)
    assert ledge.store.report("overview")["batches_gave_way"] == 1
    assert logs_of_attacker(ledge) == [f"b/anonymous/x/{0:020d}/p"]
    assert ledge.store._tail.referred_bytes > 98 * PIECE, "what was added counts where retention looks"


def test_a_commit_that_fails_leaves_what_is_staged_as_it_was() -> None:
    ledge = a_ledge()
    stage(ledge, VICTIM, range(1, 21), "p", "job")
    before = ledge.store.report("overview")["staged_bytes"]
    ledge.deliver(event(b"t", bytes(PIECE), VICTIM, 21, _headers(ledge, 20), Flag.DIRECTED))
    ledge.fail(Reason.VAULT_FULL)
    assert ledge.store.report("overview")["staged_bytes"] == before
    ledge.wait(2_000)
    stage(ledge, VICTIM, range(21, 22), "p", "job")
    ledge.ask(stores.CommitBatch(f"{ledge.id:016x}", "job", 0, [("p", 21)]), "alice", inbox(VICTIM))
    ledge.read()
    ledge.fail(Reason.VAULT_FULL)
    ledge.wait(2_000)
    assert ledge.store.report("overview")["staged_bytes"] == before + PIECE + len(_headers(ledge, 20)) + 29
    assert commit(ledge, 0, ("p", 21))[0]


def _headers(ledge: Ledge, previous: int) -> bytes:
    quality = json.dumps([f"{ledge.id:016x}", previous, "job", 0, "p"])
    return b'{"$q":%b,"$d":["Inbox/cccccccccccccccc/dddddddddddddddd"]}' % quality.encode()


def test_a_commit_that_is_refused_reads_none_of_the_parts() -> None:
    ledge = a_ledge()
    for number in range(1, 201):
        stage(ledge, VICTIM, range(number, number + 1), f"p{number}", "job", size=1)
    ledge.ask(stores.CommitBatch(f"{ledge.id:016x}", "job", 0, [("p1", 2)]), "alice", inbox(VICTIM))
    asked = []
    while ledge.reads:
        asked += [query for _, query in ledge.reads]
        ledge.read()
    assert not [query for query in asked if isinstance(query, ReadLogs)]


holders = st.sampled_from([("alice", ""), ("anonymous", "192.0.2.1"), ("anonymous", "192.0.2.2")])
steps = st.tuples(
    st.sampled_from(["add", "add", "add", "stored", "lost", "begin", "end", "finish", "drop", "removed"]),
    holders,
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(1, 400),
)


@given(st.lists(steps, max_size=60))
def test_whatever_happens_the_sums_are_true_and_within_the_bound(
    todo: list[tuple[str, tuple[str, str], int, int, int]],
) -> None:
    staging = Staging(StoreConfig(staged_bytes_max=1_000))
    for what, holder, batch, part, size in todo:
        log = f"b/{holder[0]}/x/{batch:020d}/{part}"
        prefix = batch_of(log)
        known = staging._batches.get(prefix)
        if what == "add":
            try:
                staging.add(holder, log, b"t", size)
            except ProtocolError:
                assert prefix in staging._gone or staging.total + size + 1 > 1_000
        elif what == "stored" and known is not None and log in known.parts:
            pending = known.parts[log].pending
            if pending:
                staging.stored(log, sum(pending.values()), 1)
        elif what == "lost":
            staging.lost()
        elif what in ("begin", "end", "finish", "drop"):
            getattr(staging, what)(prefix)
        elif what == "removed":
            staging.removed(log)
        counted = sum(sum(each.shares.values()) for each in staging._batches.values() if not each.commits)
        assert staging.total == counted
        for each in staging._batches.values():
            has = sum(part.bytes + sum(part.pending.values()) + 1 for part in each.parts.values())
            assert sum(each.shares.values()) == has


def test_an_administrator_sees_what_is_staged_and_drops_it() -> None:
    ledge = a_ledge()
    stage(ledge, ATTACKER, range(1, 3), "p", "x")
    stage(ledge, VICTIM, range(1, 2), "p", "job", 7)
    store = f"{ledge.id:016x}"

    def asked(request: Any, entity: str, *roles: str) -> tuple[bool, dict[str, Any]]:
        number = ledge.ask(request, entity, roles=roles)
        ledge.settle()
        return ledge.answer(number)

    batches = asked(stores.ListBatches(store), "root", "admin")[1]["batches"]
    assert [(each["entity"], each["publisher"], each["batch"], each["parts"]) for each in batches] == [
        ("alice", "job", 7, 1),
        ("anonymous", "x", 0, 1),
    ]
    assert batches[1]["sources"] == ["192.0.2.1"]
    assert batches[1]["bytes"] > 2 * PIECE
    assert [each["entity"] for each in asked(stores.ListBatches(store), "alice")[1]["batches"]] == ["alice"]
    after = asked(stores.ListBatches(store, f"alice/job/{7:020d}"), "root", "admin")[1]["batches"]
    assert [each["entity"] for each in after] == ["anonymous"]
    for entity in ("alice", "anonymous"):
        assert asked(stores.DropBatch(store, "x", 0, "anonymous"), entity)[1]["code"] == Reason.ASK_DENIED
    assert asked(stores.ListBatches(store), "anonymous")[1]["code"] == Reason.ASK_DENIED
    assert asked(stores.DropBatch(store, "x", 0, "anonymous"), "root", "admin")[0]
    settle_slowly(ledge)
    assert logs_of_attacker(ledge) == []
    assert asked(stores.DropBatch(store, "job", 7), "alice")[0]
    assert asked(stores.DropBatch(store, "job", 7), "alice")[1]["code"] == Reason.BATCH_INCOMPLETE
